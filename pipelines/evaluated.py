"""One result of an evaluation and what it was computed from."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from curate.labels.space import LabelSpace
from curate.testbed.predictions import Predictions
from pipelines.datasets import Dataset


@dataclass(frozen=True, eq=False)
class Evaluated:
    """One result and what it was computed from.

    Attributes:
        result: the entry of the summary's `results`.
        predictions: of the dataset's images, in its order; of images of something else where the
            result's kind is "ood".
        space: the label space that they are restricted to.
        dataset: None where a predictions file stands alone.
        inside: of the in-distribution images; None where the kind is another one.
        inside_dataset: the dataset that they are; None where a predictions file stands alone.
    """

    result: dict[str, Any]
    predictions: Predictions
    space: LabelSpace
    dataset: Dataset | None
    inside: Predictions | None = None
    inside_dataset: Dataset | None = None

    @property
    def images(self) -> Hashable:
        """Equal for results on the same images, by which models are held against each other.

        Files of predictions that stand alone are on the same ones where every image has the same
        name and true class in both.
        """
        kind = self.result["kind"]
        if self.dataset is not None:
            return kind, id(self.dataset)
        sides = [self.predictions, *([self.inside] if self.inside is not None else [])]
        named = [frozenset(zip(one.paths, one.wnids, strict=True)) for one in sides]
        return kind, self.space.fingerprint, *named
