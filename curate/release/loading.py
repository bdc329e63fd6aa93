"""How a release is loaded, for the texts that tell it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from curate.release.layout import IMAGENET_O
from curate.release.splits import REST


def evaluated_split(splits: Iterable[str]) -> str | None:
    """The split to evaluate with: what the fractions of the others leave, else the first by name;
    None without splits."""
    return min(splits, key=lambda name: (name != REST, name), default=None)


def first_folder(record: Mapping[str, Any]) -> str:
    """The folder that holds class folders, seen from where the release lies: its own, or that of
    the split to evaluate with."""
    split = evaluated_split(record["counts"].get("by_split", {}))
    return f"{record['version']}/{split}" if split else str(record["version"])


def evaluation(record: Mapping[str, Any]) -> str:
    """The command that evaluates a model with a release."""
    inside = "--in-distribution val " if record.get("layout") == IMAGENET_O else ""
    return f"curate evaluate {first_folder(record)} {inside}--model lite/efficientnet_lite2"
