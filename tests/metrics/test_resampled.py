from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.metrics import (
    aurra,
    bootstrap_interval,
    calibration_error,
    overconfidence,
    soft_f1,
)
from curate.metrics.draws import draws
from curate.metrics.intervals import interval_of
from curate.metrics.resampled import ScoredItems, measures_on_draws

ITEMS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from([0.0, 0.3, 1.0]), st.floats(0.0, 1.0)),
        st.booleans(),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=40,
).filter(lambda items: any(copies for _, _, copies in items))


def plain(scores: Any, right: Any, copies: Any, bin_size: int) -> dict[str, float]:
    """By the plain measures of all copies, each beside its item."""
    confidence, correct = scores.repeat(copies), right.repeat(copies)
    n = len(confidence)
    order = np.argsort(scores)[::-1]
    in_order = right[order].repeat(copies[order])
    published = {"mean": 0.0, "input": 0.0}
    if n >= bin_size:
        for ties in published:
            published[ties] = calibration_error(
                confidence,
                correct,
                "rms",
                bin_size,
                "published",
                ties,  # type: ignore[arg-type]
            )
    return {
        "accuracy": float(np.mean(correct)),
        "aurra": aurra(confidence, correct),
        **{
            norm: calibration_error(confidence, correct, norm, bin_size)
            for norm in ("rms", "mad", "max")
        },
        "aurra_published": float(np.mean(np.cumsum(in_order) / np.arange(1, n + 1))),
        "rms_published": published["mean"],
        "rms_published_input": published["input"],
        "soft_f1": soft_f1(confidence, correct),
        "overconfidence": overconfidence(confidence, correct),
    }


@given(ITEMS, st.integers(1, 12))
def test_every_measure_is_that_of_the_copies(
    items: list[tuple[float, bool, int]], bin_size: int
) -> None:
    confidence, correct, copies = (np.array(column) for column in zip(*items, strict=True))
    scored = ScoredItems(confidence, correct, bin_size)
    for taken in (copies, copies.astype(np.uint8), copies.astype(float)):
        assert scored.measures(taken) == pytest.approx(
            plain(confidence, correct, copies, bin_size), abs=1e-12
        )
    assert scored.measures() == pytest.approx(
        plain(confidence, correct, np.ones(len(items), int), bin_size), abs=1e-12
    )
    right, wrong = ({score for score, k, _ in items if k == kind} for kind in (True, False))
    assert scored.mixed == bool(right & wrong)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.sampled_from([0.0, 0.2, 0.9, 1.0]), st.floats(0.0, 1.0)), st.booleans()
        ),
        min_size=2,
        max_size=60,
    ),
    st.integers(1, 12),
    st.integers(0, 2**32 - 1),
)
def test_each_resample_is_what_the_plain_measures_say_of_the_very_items_drawn(
    items: list[tuple[float, bool]], bin_size: int, seed: int
) -> None:
    confidence, correct = (np.array(column) for column in zip(*items, strict=True))
    other = confidence[::-1].copy()
    models = [ScoredItems(scores, correct, bin_size) for scores in (confidence, other)]
    random = np.random.RandomState(seed)
    for found in measures_on_draws(models, 4, seed):
        copies = np.bincount(random.choice(len(items), len(items)), minlength=len(items))
        for told, scores in zip(found, (confidence, other), strict=True):
            assert told == pytest.approx(plain(scores, correct, copies, bin_size), abs=1e-12)


@pytest.mark.parametrize("tied", [False, True])
def test_thousands_of_items_and_whole_bins_agree_too(tied: bool) -> None:
    random = np.random.default_rng(4)
    confidence = random.random(5150)
    if tied:
        confidence = confidence.round(2)
    correct = random.random(5150) < confidence
    scored = ScoredItems(confidence, correct)
    for copies in draws(5150, 5, 1):
        assert scored.measures(copies) == pytest.approx(
            plain(confidence, correct, copies, 100), abs=1e-12
        )


def test_draws_are_those_of_the_plain_bootstrap() -> None:
    random = np.random.default_rng(5)
    confidence = random.random(300)
    correct = random.random(300) < confidence
    scored = ScoredItems(confidence, correct)
    drawn = [scored.measures(copies) for copies in draws(300, 80, 9)]
    for name, statistic in (("aurra", aurra), ("rms", calibration_error)):
        quick = interval_of([one[name] for one in drawn], scored.measures()[name])
        slow = bootstrap_interval(statistic, confidence, correct, resamples=80, seed=9)
        assert quick == pytest.approx(slow, abs=1e-12)


def test_all_right_and_wholly_sure_is_exact() -> None:
    scored = ScoredItems([1.0, 1.0, 1.0], [1, 1, 1])
    for copies in (None, [0, 3, 0], [2, 0, 1]):
        found = scored.measures(copies)
        assert found["aurra"] == found["accuracy"] == found["soft_f1"] == 1.0
        assert found["rms"] == found["overconfidence"] == 0.0


@pytest.mark.parametrize(
    ("confidence", "correct", "fault"),
    [
        ([], [], "confidence is empty"),
        ([0.5, math.nan], [1, 0], r"confidence\[1\] is nan"),
        ([2.0], [1], r"confidence\[0\] is 2.0: outside"),
        ([0.5], [1, 0], "differ in length: 1 and 2"),
    ],
)
def test_bad_input_is_named(confidence: Any, correct: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        ScoredItems(confidence, correct)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="bin_size is 0"):
        ScoredItems([0.5], [1], 0)
    scored = ScoredItems([0.5, 0.6], [1, 0])
    for copies, fault in (
        ([1], "differ in length: 1 and 2"),
        ([1, -1], "must be from 0"),
        ([0, 0], "one of them above 0"),
        ([0.5, 1], "whole numbers"),
        ([math.nan, 1], r"copies\[0\] is nan"),
    ):
        with pytest.raises(ValueError, match=fault):
            scored.measures(copies)
    with pytest.raises(ValueError, match=r"one number of items, not \[1, 2\]"):
        next(measures_on_draws([scored, ScoredItems([0.5], [1])], 1, 0))
    with pytest.raises(ValueError, match=r"not \[\]"):
        next(measures_on_draws([], 1, 0))
    with pytest.raises(ValueError, match=r"values\[1\] is nan"):
        interval_of([0.1, math.nan], 0.1)


@given(ITEMS)
def test_one_copy_of_each_is_in_the_published_order_itself(
    items: list[tuple[float, bool, int]],
) -> None:
    confidence, correct, _ = (np.array(column) for column in zip(*items, strict=True))
    found = ScoredItems(confidence, correct).measures()["aurra_published"]
    assert found == pytest.approx(aurra(confidence, correct, "published"), abs=1e-12)
