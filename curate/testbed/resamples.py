"""The measures of models on resamples: drawn once for all of them, and computed once for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from curate.files import sha256_bytes
from curate.metrics.checks import integer
from curate.metrics.resampled import ScoredItems, measures_on_draws

#: Items a bin of the calibration errors.
BIN = 100

#: Confidence and correctness of a model, an image each.
Scored = tuple[NDArray[np.float64], NDArray[np.bool_]]

#: By the name of a measure: its value on all images, then on each resample of them.
Values = Mapping[str, NDArray[np.float64]]


def evenly(done: Callable[[], None], times: int, resamples: int) -> Callable[[int], None]:
    """What to call with the number of each resample so that `done` is called evenly meanwhile.

    Args:
        done: to be called.
        times: how often in all; that is over with resample number `resamples` - 1, from 0.
        resamples: how many there are.
    """
    told = 0

    def tell(number: int) -> None:
        nonlocal told
        due = times * (number + 1) // resamples
        for _ in range(told, due):
            done()
        told = due

    return tell


class Resamples:
    """What models amount to on resamples, kept for who asks again: pairs of them do.

    It holds no images, and less than 100 bytes a resample of each model.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], Values] = {}

    def values(
        self,
        models: Sequence[Scored],
        resamples: int,
        seed: int,
        *,
        done: Callable[[int], None] = lambda _: None,
    ) -> list[Values]:
        """Every measure of `ScoredItems.measures` of each model; one image has no resamples.

        Args:
            models: of the same images in the same order, at least one.
            resamples: of the bootstrap, at least 1.
            seed: of the bootstrap, 0 … 2³² - 1.
            done: called with its number, from 0, after each resample that had to be drawn.

        Raises:
            ValueError: as `ScoredItems`, or resamples or seed out of range.
        """
        # One image draws nothing that would refuse them.
        resamples = integer(resamples, "resamples", 1)
        seed = integer(seed, "seed", 0, 2**32 - 1)
        keys = [
            (sha256_bytes(confidence.tobytes() + correct.tobytes()), resamples, seed)
            for confidence, correct in models
        ]
        missing = {
            key: scored for key, scored in zip(keys, models, strict=True) if key not in self._known
        }
        if missing:
            items = [ScoredItems(*scored, BIN) for scored in missing.values()]
            rows = [[one.measures()] for one in items]
            if len(items[0]) > 1:
                drawn = measures_on_draws(items, resamples, seed)
                for number, found in enumerate(drawn):
                    for own, value in zip(rows, found, strict=True):
                        own.append(value)
                    done(number)
            for key, own in zip(missing, rows, strict=True):
                self._known[key] = {
                    name: np.array([value[name] for value in own]) for name in own[0]
                }
        return [self._known[key] for key in keys]
