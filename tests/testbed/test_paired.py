from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from curate.metrics import aurra, calibration_error, paired_difference
from curate.testbed.paired import PAIRED, comparisons
from curate.testbed.predictions import Predictions


def made(seed: int, share: float, n: int = 300, failed: tuple[int, ...] = ()) -> Predictions:
    random = np.random.default_rng(seed)
    right = random.random(n) < share
    confidence = random.random(n)
    confidence[list(failed)] = np.nan
    return Predictions(
        [f"{row}.jpg" for row in range(n)],
        ["ape"] * n,
        [None if row in failed else "ape" if one else "bee" for row, one in enumerate(right)],
        confidence,
        failed=dict.fromkeys(failed, "truncated"),
    )


def test_each_pair_is_compared_as_if_alone() -> None:
    models = [("a", made(1, 0.3)), ("b", made(2, 0.5)), ("c", made(3, 0.5))]
    found = comparisons(models, "set", resamples=40, seed=5)
    assert [(one["first"], one["second"]) for one in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    for one in found:
        sides = {name: (p.confidence, p.correct) for name, p in models}
        first, second = sides[one["first"]], sides[one["second"]]
        assert one["difference"] == "second less first"
        assert list(one["metrics"]) == list(PAIRED)
        statistics: dict[str, Any] = {
            "accuracy": lambda c, k: float(np.mean(k)),
            "aurra": aurra,
            "rms_calibration_error": calibration_error,
        }
        for name, statistic in statistics.items():
            plain = paired_difference(statistic, second, first, resamples=40, seed=5)
            told = one["metrics"][name]
            assert (told["value"], told["low"], told["high"]) == pytest.approx(
                (plain.value, plain.low, plain.high), abs=1e-12
            )
            assert told["n"] == one["n"] == 300
            assert told["interval"].startswith("paired bootstrap")
        alone = int((first[1] & ~second[1]).sum()), int((second[1] & ~first[1]).sum())
        assert (one["mcnemar"]["first_only"], one["mcnemar"]["second_only"]) == alone
        assert one["mcnemar"]["p_value"] == pytest.approx(binomtest(alone[0], sum(alone)).pvalue)


def test_only_images_that_both_can_read_count() -> None:
    one = comparisons(
        [("a", made(1, 0.4, failed=(0, 7))), ("b", made(2, 0.4, failed=(7, 9)))], None, resamples=5
    )
    assert one[0]["n"] == 297
    assert (
        sum(one[0]["mcnemar"][k] for k in ("both", "first_only", "second_only", "neither")) == 297
    )


def test_a_model_does_not_differ_from_itself() -> None:
    (one,) = comparisons([("a", made(1, 0.4)), ("again", made(1, 0.4))], "set", resamples=5)
    for told in one["metrics"].values():
        assert (told["value"], told["low"], told["high"]) == (0.0, 0.0, 0.0)
        assert "no certainty" in told["note"]
    assert one["mcnemar"]["p_value"] == 1.0


def test_few_images_have_a_difference_and_no_interval() -> None:
    (one,) = comparisons([("a", made(1, 0.0, 1)), ("b", made(2, 1.0, 1))], "set", resamples=5)
    assert one["metrics"]["accuracy"]["value"] == 1.0
    assert one["metrics"]["accuracy"]["low"] is None
    assert comparisons([("a", made(1, 0.5))], "set") == []
    nothing = [("a", made(1, 0.5, 2, failed=(0,))), ("b", made(1, 0.5, 2, failed=(1,)))]
    assert comparisons(nothing, "set") == []


def test_other_images_are_refused() -> None:
    with pytest.raises(ValueError, match="b and a predict for different images"):
        comparisons([("a", made(1, 0.5)), ("b", made(1, 0.5, 299))], "set")
