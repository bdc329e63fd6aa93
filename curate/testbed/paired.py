"""Models compared on the same images: what differs between two of them, and how surely."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from curate.metrics import mcnemar
from curate.testbed.metric_records import paired_said, resampled
from curate.testbed.predictions import Predictions
from curate.testbed.resamples import Resamples

#: The measures whose differences are told, with what `ScoredItems` calls them.
PAIRED = {"accuracy": "accuracy", "aurra": "aurra", "rms_calibration_error": "rms"}


def comparisons(
    models: Sequence[tuple[str, Predictions]],
    dataset: str | None,
    *,
    resamples: int = 1000,
    seed: int = 0,
    kept: Resamples | None = None,
    done: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Every two of several models, on the images that both have a prediction of.

    The bootstrap draws the same images for both models, so that what makes an image hard for
    either cancels; McNemar's test is the exact one. Neither is corrected for the number of pairs.

    Args:
        models: names and predictions, all of the same images in the same order.
        dataset: its name.
        resamples: of the bootstrap, at least 1.
        seed: of the bootstrap.
        kept: may hold the measures on resamples already.
        done: called after each pair.

    Returns:
        One mapping a pair, in the order of the models: `first`, `second`, `dataset`, `n`,
        `difference` ("second less first"), `metrics` (for each of `PAIRED` value, low, high, n,
        interval, note, as a measure has them; fractions) and `mcnemar` (`both`, `first_only`,
        `second_only`, `neither`, `p_value`). No pair where no image has both predictions.

    Raises:
        ValueError: the models are not of the same images.
    """
    for name, predictions in models[1:]:
        if list(predictions.paths) != list(models[0][1].paths):
            raise ValueError(f"{name} and {models[0][0]} predict for different images")
    kept = kept or Resamples()
    found = []
    for (first, of_first), (second, of_second) in combinations(models, 2):
        done()
        common = of_first.sound & of_second.sound
        n = int(np.count_nonzero(common))
        if not n:
            continue
        one, other = kept.values(
            [(each.confidence[common], each.correct[common]) for each in (of_first, of_second)],
            resamples,
            seed,
        )
        test = mcnemar(of_first.correct[common], of_second.correct[common])
        found.append(
            {
                "first": first,
                "second": second,
                "dataset": dataset,
                "n": n,
                "difference": "second less first",
                "metrics": {
                    name: _difference((other[key] - one[key]).tolist(), n, resamples, seed)
                    for name, key in PAIRED.items()
                },
                "mcnemar": vars(test).copy(),
            }
        )
    return found


def _difference(values: Sequence[float], n: int, resamples: int, seed: int) -> dict[str, Any]:
    told = resampled(values[0], values[1:], n, resamples, seed, bounds=(-1.0, 1.0))
    if told["low"] is None:
        return told
    if told["low"] == told["high"]:
        told["note"] = "every resample gives this difference; that is no certainty"
    return {**told, "interval": paired_said(resamples, seed)}
