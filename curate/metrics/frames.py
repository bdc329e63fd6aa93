"""Accuracy on the frames of videos (Shankar et al., ICCV 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from curate.metrics.checks import flags


@dataclass(frozen=True)
class PmK:
    """Accuracy on video frames, as fractions of all anchors.

    Attributes:
        pm0: anchors that are right.
        pmk: anchors that are right together with all their neighbours.
        anchors: number of anchors.
        neighbours: number of neighbours over all anchors.
    """

    pm0: float
    pmk: float
    anchors: int
    neighbours: int


def pm_k(anchor_correct: ArrayLike, neighbours_correct: Sequence[ArrayLike]) -> PmK:
    """Accuracy that must hold over neighbouring video frames (pm-k; Shankar et al., ICCV 2021).

    An anchor counts for pm-k only if it and all its reviewed neighbours, at most k frames before
    and after, are right; one without neighbours decides alone. The denominator is all anchors.

    Args:
        anchor_correct: 0 or 1 an anchor, shape (n,).
        neighbours_correct: n lists of 0 or 1, one an anchor, of any lengths, empty ones too.

    Raises:
        ValueError: no anchor, lengths that differ, or a value other than 0 and 1.
    """
    anchors = flags(anchor_correct, "anchor_correct")
    if len(neighbours_correct) != anchors.size:
        raise ValueError(
            "anchor_correct and neighbours_correct differ in length: "
            f"{anchors.size} and {len(neighbours_correct)}"
        )
    sizes = np.array([np.size(frames) for frames in neighbours_correct])
    stable = anchors.copy()
    for i in np.flatnonzero(sizes).tolist():
        stable[i] &= flags(neighbours_correct[i], f"neighbours_correct[{i}]").all()
    return PmK(
        pm0=float(anchors.mean()),
        pmk=float(stable.mean()),
        anchors=anchors.size,
        neighbours=int(sizes.sum()),
    )
