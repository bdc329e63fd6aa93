from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from curate.labels.classes import LabelClass
from curate.labels.space import LabelSpace
from curate.metrics import calibration_error, softmax_confidence, temperature
from curate.testbed.measures import measure
from curate.testbed.predictions import Predictions
from curate.testbed.scaling import fitted_on

SPACE = LabelSpace("three", [LabelClass(name, name) for name in ("ape", "bee", "cat")])


def predictions(n: int, sure: float, *, failed: int | None = None) -> Predictions:
    """Of a model whose logits are `sure` times what its labels follow."""
    random = np.random.default_rng(7)
    logits = random.normal(0.0, 1.5, (n, 3))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    truth = [int(random.choice(3, p=row)) for row in p]
    told = (sure * logits).astype(np.float32)
    if failed is not None:
        told[failed] = np.nan
    guess: list[str | None] = [SPACE.wnids[place] for place in told.argmax(axis=1)]
    confidence = np.full(n, np.nan)
    sound = np.isfinite(told).all(axis=1)
    confidence[sound] = softmax_confidence(told[sound])
    if failed is not None:
        guess[failed] = None
    return Predictions(
        [f"{row}.jpg" for row in range(n)],
        [SPACE.wnids[place] for place in truth],
        guess,
        confidence,
        failed={} if failed is None else {failed: "truncated"},
        logits=told,
    )


def scaled(of: Predictions, **options: Any) -> dict[str, Any]:
    options = {"temperature_split": 0.3, "resamples": 20} | options
    return measure(of, SPACE, **options)["rms_calibration_error_scaled"]


def test_an_overconfident_model_is_calibrated_by_its_temperature() -> None:
    of = predictions(4000, 3.0)
    found = scaled(of)
    fit = fitted_on(of.paths, 0.3, 0)
    assert found["fitted_on"] == fit.sum() == 4000 - found["n"]
    assert found["temperature"] == pytest.approx(3.0, rel=0.1)
    assert found["unscaled"] > 0.15
    assert found["value"] < 0.07
    assert found["low"] < found["value"] < found["high"]
    assert "fitted by likelihood" in found["convention"]
    assert of.logits is not None
    places = np.array([SPACE.position(wnid) for wnid in of.wnids])
    assert found["temperature"] == temperature(of.logits[fit], places[fit])
    rest = softmax_confidence(of.logits[~fit].astype(float) / found["temperature"])
    assert found["value"] == pytest.approx(calibration_error(rest, of.correct[~fit]), abs=1e-12)
    assert found["unscaled"] == pytest.approx(
        calibration_error(of.confidence[~fit], of.correct[~fit]), abs=1e-12
    )


def test_the_split_is_about_the_share_and_of_each_image_alone() -> None:
    paths = [f"n{row}/x.jpg" for row in range(5000)]
    fit = fitted_on(paths, 0.2, 0)
    assert fit.mean() == pytest.approx(0.2, abs=0.02)
    np.testing.assert_array_equal(fitted_on(paths[::-1], 0.2, 0), fit[::-1])
    np.testing.assert_array_equal(fitted_on(paths[7:90], 0.2, 0), fit[7:90])
    assert not np.array_equal(fitted_on(paths, 0.2, 1), fit)
    assert np.all(fitted_on(paths, 0.4, 0) | ~fit)


def test_images_without_a_prediction_are_on_neither_side() -> None:
    found = scaled(predictions(300, 2.0, failed=4))
    assert found["n"] + found["fitted_on"] == 299


def test_it_has_no_value_without_logits_or_images() -> None:
    of = predictions(300, 2.0)
    without = Predictions(of.paths, of.wnids, of.predicted, of.confidence)
    assert scaled(without)["value"] is None
    assert "needs logits" in scaled(without)["note"]
    few = scaled(predictions(1, 2.0))
    assert few["value"] is None
    assert "too few images" in few["note"]
    assert "rms_calibration_error_scaled" not in measure(of, SPACE, resamples=1)


def test_a_model_that_is_always_right_has_no_best_temperature() -> None:
    of = predictions(200, 2.0)
    right = Predictions(
        of.paths, [str(one) for one in of.predicted], of.predicted, of.confidence, logits=of.logits
    )
    found = scaled(right)
    assert found["temperature"] == 0.01
    assert "nearer end" in found["note"]


@pytest.mark.parametrize("part", [0.0, 1.0, -0.1])
def test_the_share_is_between_none_and_all(part: float) -> None:
    with pytest.raises(ValueError, match="must be between 0 and 1"):
        scaled(predictions(20, 1.0), temperature_split=part)
