"""Caps: at most K survivors a confusion stand on the shortlist.

A confusion is the pair (true class, class that the first classifier predicts on the centre crop).
The cap keeps one of them from flooding the set. Source: Hendrycks et al. 2021, section 3.1 (15).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from curate.choices import CapOrder
from curate.errors import UnknownNameError


@dataclass(frozen=True)
class Survivor:
    """What caps and orders need to know of a survivor.

    Attributes:
        key: of the candidate; depends on content alone.
        true: id of its weak label.
        predicted: id of what it is taken for.
        confidence: probability of that prediction.
        arrival: its place in the input list.
        flagged: whether its picture has a quality flag.
    """

    key: str
    true: str
    predicted: str
    confidence: float
    arrival: int
    flagged: bool = False


def in_order(survivors: Sequence[Survivor], cap_order: str, seed: int) -> list[Survivor]:
    """The survivors in review order, the same whatever order they come in.

    Args:
        survivors: with distinct keys.
        cap_order: "hash" (pseudo-random: seeded and blind to everything but content),
            "confidence" (of the wrong prediction, highest first), "arrival" (first come first) or
            "quality" (those without a quality flag first, otherwise as "hash").
        seed: for "hash" and "quality".

    Raises:
        UnknownNameError: no such order.
    """
    if cap_order == "hash":
        return sorted(survivors, key=lambda s: _shuffled(s, seed))
    if cap_order == "quality":
        return sorted(survivors, key=lambda s: (s.flagged, _shuffled(s, seed)))
    if cap_order == "confidence":
        return sorted(survivors, key=lambda s: (-s.confidence, s.key))
    if cap_order == "arrival":
        return sorted(survivors, key=lambda s: (s.arrival, s.key))
    raise UnknownNameError("cap order", cap_order, get_args(CapOrder))


def _shuffled(survivor: Survivor, seed: int) -> str:
    return hashlib.sha256(f"{seed}:{survivor.key}".encode()).hexdigest()


def shortlist(
    survivors: Sequence[Survivor], cap: int, cap_order: str = "hash", seed: int = 0
) -> list[Survivor]:
    """The survivors that people will see: the first `cap` of each confusion, in review order."""
    taken: Counter[tuple[str, str]] = Counter()
    listed = []
    for survivor in in_order(survivors, cap_order, seed):
        confusion = (survivor.true, survivor.predicted)
        if taken[confusion] < cap:
            taken[confusion] += 1
            listed.append(survivor)
    return listed
