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
from curate.metrics.intervals import interval_of
from curate.metrics.resampled import ScoredItems, draws

ITEMS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from([0.0, 0.3, 1.0]), st.floats(0.0, 1.0)),
        st.booleans(),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=40,
).filter(lambda items: any(copies for _, _, copies in items))


def plain(confidence: Any, correct: Any, bin_size: int) -> dict[str, float]:
    n = len(confidence)
    published = 0.0
    if n >= bin_size:
        published = calibration_error(confidence, correct, "rms", bin_size, "published")
    return {
        "accuracy": float(np.mean(correct)),
        "aurra": aurra(confidence, correct),
        **{
            norm: calibration_error(confidence, correct, norm, bin_size)  # type: ignore[arg-type]
            for norm in ("rms", "mad", "max")
        },
        "rms_published": published,
        "soft_f1": soft_f1(confidence, correct),
        "overconfidence": overconfidence(confidence, correct),
    }


@given(ITEMS, st.integers(1, 12))
def test_every_measure_is_that_of_the_copies(
    items: list[tuple[float, bool, int]], bin_size: int
) -> None:
    confidence, correct, copies = (np.array(column) for column in zip(*items, strict=True))
    scored = ScoredItems(confidence, correct, bin_size)
    assert scored.measures(copies) == pytest.approx(
        plain(confidence.repeat(copies), correct.repeat(copies), bin_size), abs=1e-9
    )
    assert scored.measures() == pytest.approx(plain(confidence, correct, bin_size), abs=1e-9)
    assert scored.distinct == (np.unique(confidence).size == len(items))


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
            plain(confidence.repeat(copies), correct.repeat(copies), 100), abs=1e-12
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
    with pytest.raises(ValueError, match="resamples is 0"):
        next(draws(3, 0, 0))
    with pytest.raises(ValueError, match="seed is -1"):
        next(draws(3, 1, -1))
    with pytest.raises(ValueError, match=r"values\[1\] is nan"):
        interval_of([0.1, math.nan], 0.1)
