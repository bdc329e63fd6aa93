"""How a release is loaded, for the texts that tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curate.release.layout import IMAGENET_O
from curate.release.splits import REST


def first_folder(record: Mapping[str, Any]) -> str:
    """The folder that holds class folders, seen from where the release lies: its own, or that of
    the split to evaluate with."""
    splits = sorted(record["counts"].get("by_split", {}), key=lambda name: (name != REST, name))
    return f"{record['version']}/{splits[0]}" if splits else str(record["version"])


def evaluation(record: Mapping[str, Any]) -> str:
    """The command that evaluates a model with a release."""
    inside = "--in-distribution val " if record.get("layout") == IMAGENET_O else ""
    return f"curate evaluate {first_folder(record)} {inside}--model lite/efficientnet_lite2"
