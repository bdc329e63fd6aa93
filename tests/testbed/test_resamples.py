from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from curate.labels.classes import LabelClass
from curate.labels.space import LabelSpace
from curate.metrics.resampled import ScoredItems
from curate.testbed.measures import measure
from curate.testbed.paired import comparisons
from curate.testbed.predictions import Predictions
from curate.testbed.resamples import Resamples, Scored, evenly

SPACE = LabelSpace("two", [LabelClass("ape", "ape"), LabelClass("bee", "bee")])


def scored(seed: int, n: int = 250) -> Scored:
    random = np.random.default_rng(seed)
    return random.random(n).round(2), random.random(n) < 0.5


def predictions(seed: int, failed: int | None = None) -> Predictions:
    confidence, right = scored(seed)
    if failed is not None:
        confidence[failed] = np.nan
    return Predictions(
        [f"{row}.jpg" for row in range(250)],
        ["ape"] * 250,
        [None if row == failed else "ape" if k else "bee" for row, k in enumerate(right)],
        confidence,
        failed={} if failed is None else {failed: "truncated"},
    )


def same(one: Any, other: Any) -> None:
    assert list(one) == list(other)
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name])


def test_models_together_are_as_each_alone() -> None:
    models = [scored(1), scored(2), scored(1)]
    together = Resamples().values(models, 7, 3)
    for told, model in zip(together, models, strict=True):
        same(told, Resamples().values([model], 7, 3)[0])
        assert told["rms"][0] == ScoredItems(*model).measures()["rms"]
        assert told["rms"].shape == (8,)


def test_what_is_known_is_not_drawn_again_and_anything_else_is() -> None:
    kept = Resamples()
    calls: list[int] = []
    first = kept.values([scored(1)], 4, 0, done=calls.append)
    assert calls == [0, 1, 2, 3]
    again = kept.values([scored(1)], 4, 0, done=calls.append)
    assert again[0] is first[0]
    assert calls == [0, 1, 2, 3]
    flipped = scored(1)[0], ~scored(1)[1]
    for models, resamples, seed in (
        ([scored(1)], 5, 0),
        ([scored(1)], 4, 1),
        ([flipped], 4, 0),
        ([scored(1), scored(2)], 4, 0),
    ):
        calls.clear()
        found = kept.values(models, resamples, seed, done=calls.append)
        assert calls == list(range(resamples))
        for told, model in zip(found, models, strict=True):
            same(told, Resamples().values([model], resamples, seed)[0])


def test_one_image_has_no_resamples() -> None:
    (found,) = Resamples().values([scored(1, 1)], 4, 0)
    assert {len(values) for values in found.values()} == {1}


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(
    ("resamples", "seed", "told"),
    [(0, 0, "resamples is 0"), (1, -1, "seed is -1"), (1, 2**32, "seed")],
)
def test_what_cannot_be_drawn_is_refused_however_few_images_there_are(
    n: int, resamples: int, seed: int, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        Resamples().values([scored(1, n)], resamples, seed)
    few = Predictions(["a.jpg"] * n, ["ape"] * n, ["ape"] * n, np.full(n, 0.5))
    with pytest.raises(ValueError, match=told):
        measure(few, SPACE, resamples=resamples, seed=seed)


@pytest.mark.parametrize("failed", [None, 3])
def test_pairs_of_measured_models_are_compared_as_if_nothing_was_known(failed: int | None) -> None:
    models = [("a", predictions(1)), ("b", predictions(2, failed)), ("c", predictions(3))]
    kept = Resamples()
    for _, one in models:
        told = measure(one, SPACE, resamples=20, seed=5, kept=kept)
        assert told == measure(one, SPACE, resamples=20, seed=5)
    assert comparisons(models, "set", resamples=20, seed=5, kept=kept) == comparisons(
        models, "set", resamples=20, seed=5
    )


def test_the_same_model_measured_twice_still_tells_its_progress() -> None:
    kept = Resamples()
    calls: list[int] = []
    for _ in range(2):
        calls.clear()
        measure(predictions(1), SPACE, resamples=5, kept=kept, done=lambda: calls.append(1))
        assert len(calls) == 13


@pytest.mark.parametrize(("times", "resamples"), [(12, 1), (12, 5), (3, 100), (0, 4)])
def test_progress_is_even_and_ends_with_the_last_resample(times: int, resamples: int) -> None:
    told = 0

    def done() -> None:
        nonlocal told
        told += 1

    tell = evenly(done, times, resamples)
    for number in range(resamples):
        tell(number)
        assert told == times * (number + 1) // resamples
    tell(resamples - 1)
    assert told == times
