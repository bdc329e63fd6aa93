"""What an evaluation's plots are drawn from: few points of each curve, kept with its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.metrics import clopper_pearson
from curate.metrics.calibration import reliability_curve
from curate.metrics.ood_curves import detection_curves
from curate.metrics.selective import response_rate_curve
from curate.testbed.measures import CONFIDENCE_LEVEL
from curate.testbed.ood import scores_of
from curate.testbed.predictions import Predictions

#: Most points of a curve.
POINTS = 200

#: Bins of equal width of a histogram over confidences.
BINS = 20

_RELIABILITY_BINS = 10


def classification_curves(predictions: Predictions) -> dict[str, Any]:
    """What the plots of a classification show, in fractions and counts.

    Args:
        predictions: at least one of them sound.

    Returns:
        `response_rate`: `rate` and `accuracy`, the accuracy of the most confident share.
        `reliability`: bins of equal width over the confidence that hold an image, each with its
        mean `confidence`, its `accuracy` with `low` and `high` (Clopper-Pearson) and `count`.
        `confidence`: a histogram with `edges`, images that are `right` and that are `wrong`.
    """
    sound = predictions.sound
    confidence, correct = predictions.confidence[sound], predictions.correct[sound]
    curve = response_rate_curve(confidence, correct)
    some = np.unique(np.linspace(0, curve.rate.size - 1, POINTS).round().astype(int))
    edges = np.linspace(0.0, 1.0, BINS + 1)
    return {
        "response_rate": {
            "rate": curve.rate[some].tolist(),
            "accuracy": curve.accuracy[some].tolist(),
        },
        "reliability": _reliability(confidence, correct),
        "confidence": {
            "edges": edges.tolist(),
            "right": np.histogram(confidence[correct], edges)[0].tolist(),
            "wrong": np.histogram(confidence[~correct], edges)[0].tolist(),
        },
    }


def _reliability(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> dict[str, Any]:
    curve = reliability_curve(confidence, correct, "width", bin_count=_RELIABILITY_BINS)
    right = (curve.accuracy * curve.count).round().astype(int).tolist()
    ends = [
        clopper_pearson(k, n, CONFIDENCE_LEVEL)
        for k, n in zip(right, curve.count.tolist(), strict=True)
    ]
    return {
        "confidence": curve.confidence.tolist(),
        "accuracy": curve.accuracy.tolist(),
        "low": [low for low, _ in ends],
        "high": [high for _, high in ends],
        "count": curve.count.tolist(),
    }


def ood_curves(inside: Predictions, outside: Predictions) -> dict[str, Any]:
    """What the plots of a detection show, in fractions and counts.

    Args:
        inside: of images of the label space's classes.
        outside: of images of something else.

    Returns:
        For each score within the label space that both sides have: `recall`,
        `false_positive_rate` and `precision` of some thresholds, see `detection_curves`; and a
        histogram of the score over `edges`, images that are `inside` and that are `outside`.
    """
    found = {}
    for name, everywhere in scores_of(inside, outside):
        if everywhere:
            continue
        first, second = inside.anomaly[name][inside.sound], outside.anomaly[name][outside.sound]
        curve = detection_curves(first, second, POINTS)
        edges = _edges(name, first, second)
        found[name] = {
            "recall": curve.recall.tolist(),
            "false_positive_rate": curve.false_positive_rate.tolist(),
            "precision": curve.precision.tolist(),
            "edges": edges.tolist(),
            "inside": np.histogram(first, edges)[0].tolist(),
            "outside": np.histogram(second, edges)[0].tolist(),
        }
    return found


def _edges(
    name: str, first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    if name == "msp":
        return np.linspace(-1.0, 0.0, BINS + 1)
    low, high = min(first.min(), second.min()), max(first.max(), second.max())
    return np.linspace(low, high if high > low else low + 1.0, BINS + 1)
