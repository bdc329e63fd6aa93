"""The settings, shifts and baselines of the published testbed, by the names in its own table."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from curate.files import data_file

_CORRUPTED = re.compile(r"imagenet-c\.([a-z_]+)\.(mean5|[1-5])_(in-memory|on-disk)")
_ATTACKED = re.compile(r"(pgd\..*?)(?:\.steps([0-9]+))?")


@dataclass(frozen=True)
class KnownShift:
    """A shift by its settings.

    Attributes:
        name: how it is called.
        x, y: its settings.
        pivot_model: whose accuracy in `x` is the pivot; None for a single line.
        pivot: that accuracy, in percent, where a table lacks the model.
    """

    name: str
    x: str
    y: str
    pivot_model: str | None = None
    pivot: float | None = None


@dataclass(frozen=True)
class KnownTestbed:
    """What is known of the columns of the published table.

    Attributes:
        standard: columns that together say which models the lines are fitted to.
        correlated: columns that together say which of the others correlations are over.
        types: what plots call the types of models, in their order.
        labels: what plots call a setting.
        sizes: how many images a setting has.
        shifts: in their order.
        baselines: from a model to the one that it was made from.
    """

    standard: tuple[str, ...]
    correlated: tuple[str, ...]
    types: Mapping[str, str]
    labels: Mapping[str, str]
    sizes: Mapping[str, int]
    shifts: tuple[KnownShift, ...]
    baselines: Mapping[str, str]

    def is_own(self, columns: Collection[str]) -> bool:
        """Whether a table says of its models what the published one says."""
        return {*self.standard, *self.correlated} <= set(columns)

    def run_labels(self, columns: Iterable[str]) -> dict[str, str]:
        """What plots call the corruptions and attacks of `curate robustness run`, whose columns
        bear names that nothing else has.
        """
        found = {}
        for column in columns:
            if told := _CORRUPTED.fullmatch(column):
                name = self.labels.get(f"imagenet-c.{told[1]}.mean5_on-disk")
                name = name or told[1].replace("_", " ").capitalize()
                severity = "" if told[2] == "mean5" else f" {told[2]}"
                place = ", in memory" if told[3] == "in-memory" else ""
                found[column] = f"{name}{severity}{place}"
            elif (told := _ATTACKED.fullmatch(column)) and told[1] in self.labels:
                found[column] = self.labels[told[1]] + (f", {told[2]} steps" if told[2] else "")
        return found

    def shift(self, x: str | None, y: str) -> KnownShift | None:
        """The known shift to a setting, from a given one or whichever it is."""
        return next((one for one in self.shifts if one.y == y and x in (None, one.x)), None)

    def shifts_in(self, columns: Collection[str]) -> list[KnownShift]:
        """The known shifts whose settings are both there."""
        return [shift for shift in self.shifts if {shift.x, shift.y} <= set(columns)]


@lru_cache(maxsize=1)
def known_testbed() -> KnownTestbed:
    """What travels with this project."""
    import yaml

    told: dict[str, Any] = yaml.safe_load(
        data_file("testbed/imagenet-testbed.yaml").read_text(encoding="utf-8")
    )
    return KnownTestbed(
        standard=tuple(told["standard"]),
        correlated=tuple(told["correlated"]),
        types=told["types"],
        labels={name: about["label"] for name, about in told["settings"].items()},
        sizes={
            name: about["images"] for name, about in told["settings"].items() if "images" in about
        },
        shifts=tuple(
            KnownShift(
                one["name"],
                one["x"],
                one["y"],
                one.get("pivot", {}).get("model"),
                one.get("pivot", {}).get("percent"),
            )
            for one in told["shifts"]
        ),
        baselines={
            model: baseline for baseline, models in told["baselines"].items() for model in models
        },
    )
