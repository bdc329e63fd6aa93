from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from curate.labels.classes import LabelClass
from curate.labels.space import LabelSpace
from curate.metrics import aurra, bootstrap_interval, calibration_error, soft_f1
from curate.testbed.measures import MEASURES, measure
from curate.testbed.predictions import Predictions

SPACE = LabelSpace("two", [LabelClass("ape", "ape"), LabelClass("bee", "bee")])


def made(
    confidence: list[float],
    correct: list[bool],
    everywhere: list[bool] | None = None,
    rank: list[int] | None = None,
) -> Predictions:
    def said(right: list[bool]) -> list[str | None]:
        return ["ape" if one else "bee" for one in right]

    n = len(confidence)
    return Predictions(
        [str(row) for row in range(n)],
        ["ape"] * n,
        said(correct),
        np.asarray(confidence, np.float64),
        None,
        None if everywhere is None else said(everywhere),
        {},
        None if everywhere is None else 1000,
        None if rank is None else np.array(rank, np.int32),
        None if everywhere is None or rank is None else np.array(rank, np.int32) + 1,
    )


def values(found: dict[str, dict[str, Any]]) -> dict[str, float | None]:
    return {name: told["value"] for name, told in found.items()}


def slow_aurra(confidence: list[float], correct: list[bool]) -> float:
    order = sorted(range(len(confidence)), key=lambda i: -confidence[i])
    shares = [sum(correct[i] for i in order[: j + 1]) / (j + 1) for j in range(len(confidence))]
    return sum(shares) / len(shares)


def slow_gaps(confidence: list[float], correct: list[bool]) -> list[tuple[float, float]]:
    """Share and gap of each bin."""
    order = sorted(range(len(confidence)), key=lambda i: confidence[i])
    count = max(1, len(order) // 100)
    bins = [order[i * 100 : (i + 1) * 100] for i in range(count)]
    bins[-1] = order[(count - 1) * 100 :]
    return [
        (
            len(one) / len(order),
            abs(float(np.mean([confidence[i] for i in one]) - np.mean([correct[i] for i in one]))),
        )
        for one in bins
    ]


def slow_rms(gaps: list[tuple[float, float]]) -> float:
    return float(np.sqrt(sum(share * gap**2 for share, gap in gaps)))


@settings(max_examples=10, deadline=None)
@given(st.integers(200, 450), st.integers(0, 2**16))
def test_values_equal_plain_loops(n: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    confidence = random.permutation(np.linspace(0.01, 0.99, n)).tolist()
    correct = (random.random(n) < 0.4).tolist()
    rank = random.integers(0, 9, n).tolist()
    predictions = made(confidence, correct, correct[::-1], rank)
    found = values(measure(predictions, SPACE, resamples=2))
    gaps = slow_gaps(confidence, correct)
    doubt, wrong = 1 - np.array(confidence), ~np.array(correct)
    assert found == pytest.approx(
        {
            "accuracy": sum(correct) / n,
            "top5": sum(r < 5 for r in rank) / n,
            "accuracy_unrestricted": sum(correct) / n,
            "top5_unrestricted": sum(r < 4 for r in rank) / n,
            "aurra": slow_aurra(confidence, correct),
            "aurra_published": slow_aurra(confidence, correct),
            "rms_calibration_error": slow_rms(gaps),
            "rms_calibration_error_published": slow_rms(gaps[:-1]),
            "mad_calibration_error": sum(share * gap for share, gap in gaps),
            "max_calibration_error": max(gap for _, gap in gaps),
            "overconfidence": np.mean(confidence) - np.mean(correct),
            "soft_f1": 2 * sum(doubt * wrong) / sum(doubt + wrong),
        },
        abs=1e-12,
    )


def test_the_share_has_the_exact_interval() -> None:
    found = measure(made([0.5] * 18, [True] + [False] * 17), SPACE, resamples=2)["accuracy"]
    exact = binomtest(1, 18).proportion_ci(0.95, method="exact")
    assert (found["low"], found["high"]) == pytest.approx((exact.low, exact.high), abs=1e-12)
    assert found["n"] == 18
    assert found["restricted_to"] == "two"
    assert found["classes"] == 2


def test_every_interval_holds_its_value() -> None:
    random = np.random.default_rng(5)
    confidence = random.random(300)
    correct = random.random(300) < confidence
    rank = np.where(correct, 0, random.integers(1, 9, 300))
    predictions = made(confidence.tolist(), correct.tolist(), correct.tolist(), rank.tolist())
    found = measure(predictions, SPACE)
    assert list(found) == list(MEASURES)[:-1]
    for name, told in found.items():
        assert -1 <= told["low"] < told["value"] < told["high"] <= 1
        assert told["low"] >= 0 or name == "overconfidence"
    assert found["aurra"] | {"convention": ""} == found["aurra_published"] | {"convention": ""}


def test_intervals_are_those_of_the_plain_bootstrap_with_ties_too() -> None:
    random = np.random.default_rng(6)
    for confidence in (random.random(230), random.random(230).round(1)):
        correct = random.random(230) < confidence
        found = measure(made(confidence.tolist(), correct.tolist()), SPACE, resamples=60, seed=2)
        for name, statistic in (
            ("aurra", aurra),
            ("rms_calibration_error", calibration_error),
            ("soft_f1", soft_f1),
        ):
            plain = bootstrap_interval(
                statistic, confidence, correct, resamples=60, seed=2, bounds=(0.0, 1.0)
            )
            assert (found[name]["low"], found[name]["high"]) == pytest.approx(plain, abs=1e-12)
        published = found["aurra_published"]
        assert published["low"] < published["value"] < published["high"]


@pytest.mark.parametrize("resamples", [1, 5, 100])
def test_progress_ends_with_the_measures(resamples: int) -> None:
    calls: list[int] = []
    measure(
        made([0.4, 0.6], [True, False]), SPACE, resamples=resamples, done=lambda: calls.append(1)
    )
    assert len(calls) == len(MEASURES)


def test_the_bootstrap_repeats_and_its_seed_matters() -> None:
    predictions = made(np.linspace(0, 1, 50).tolist(), [True, False] * 25)
    first = measure(predictions, SPACE, resamples=50, seed=3)
    assert first == measure(predictions, SPACE, resamples=50, seed=3)
    other = measure(predictions, SPACE, resamples=50, seed=4)
    assert first["aurra"]["low"] != other["aurra"]["low"]


@pytest.mark.parametrize("right", [True, False])
def test_all_right_or_all_wrong(right: bool) -> None:
    found = measure(made([0.2, 0.9, 0.9], [right] * 3, [right] * 3), SPACE, resamples=20)
    for name in ("accuracy", "accuracy_unrestricted", "aurra", "aurra_published"):
        assert found[name]["value"] == float(right)
    assert found["top5"]["value"] is None
    assert "needs logits" in found["top5"]["note"]
    assert found["soft_f1"]["value"] == pytest.approx(0.0 if right else 2 / 4)
    share = found["accuracy"]
    assert (share["high"] if right else share["low"]) == float(right)
    assert (share["low"] if right else 1 - share["high"]) == pytest.approx(0.025 ** (1 / 3))
    assert found["aurra"]["low"] == found["aurra"]["high"] == float(right)
    assert "no certainty" in found["aurra"]["note"]


def test_one_image_has_values_but_no_bootstrap() -> None:
    found = measure(made([0.75], [True]), SPACE)
    assert values(found) == {
        "accuracy": 1.0,
        "top5": None,
        "accuracy_unrestricted": None,
        "top5_unrestricted": None,
        "aurra": 1.0,
        "aurra_published": 1.0,
        "rms_calibration_error": 0.25,
        "rms_calibration_error_published": None,
        "mad_calibration_error": 0.25,
        "max_calibration_error": 0.25,
        "overconfidence": -0.25,
        "soft_f1": 0.0,
    }
    assert found["accuracy"]["low"] == pytest.approx(0.025)
    assert found["aurra"]["low"] is None
    assert "no interval" in found["aurra"]["note"]


@pytest.mark.parametrize(("n", "defined"), [(99, False), (199, False), (200, True)])
def test_the_published_calibration_error_is_no_zero_where_it_is_undefined(
    n: int, defined: bool
) -> None:
    found = measure(made([0.9] * n, [False] * n), SPACE, resamples=2)
    published = found["rms_calibration_error_published"]
    assert found["rms_calibration_error"]["value"] == pytest.approx(0.9)
    assert (published["value"] is not None) is defined
    assert ("undefined below 200" in (published["note"] or "")) is not defined


@given(st.permutations(range(12)))
def test_ties_leave_no_trace_of_the_order_but_in_the_published_variant(order: list[int]) -> None:
    confidence = [0.3] * 5 + [0.6] * 7
    correct = [True, False, True, False, False, True, True, False, True, False, False, True]
    plain = measure(made(confidence, correct), SPACE, resamples=1)
    mixed = measure(
        made([confidence[i] for i in order], [correct[i] for i in order]), SPACE, resamples=1
    )
    for name in ("aurra", "rms_calibration_error"):
        assert mixed[name]["value"] == pytest.approx(plain[name]["value"], abs=1e-15)


def test_the_published_order_of_ties_is_reversed_argsort() -> None:
    found = measure(made([0.5] * 6, [True] * 3 + [False] * 3), SPACE, resamples=1)
    assert found["aurra"]["value"] == pytest.approx(0.5)
    assert found["aurra_published"]["value"] == pytest.approx(0.19166666666666668)


def test_images_without_a_prediction_are_left_out() -> None:
    plain = made([0.3, 0.8], [True, False])
    with_failed = Predictions(
        ["x", "0", "1"],
        ["ape"] * 3,
        [None, *plain.predicted],
        np.array([np.nan, 0.3, 0.8]),
        failed={0: "truncated"},
    )
    assert measure(with_failed, SPACE, resamples=9) == measure(plain, SPACE, resamples=9)
