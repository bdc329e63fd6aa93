"""Calibration after temperature scaling: on images that the temperature was not fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.files import sha256_bytes
from curate.labels.space import LabelSpace
from curate.metrics import apply_temperature, calibration_error, softmax_confidence, temperature
from curate.metrics.temperature import TEMPERATURES
from curate.testbed.metric_records import nothing, resampled
from curate.testbed.predictions import Predictions
from curate.testbed.resamples import BIN, Resamples


def fitted_on(paths: Sequence[str], part: float, seed: int) -> NDArray[np.bool_]:
    """Which images a temperature is fitted on: about a share of them, by a hash of the path.

    The same image is on the same side whatever model is measured, whatever images stand beside
    it, and in whatever order.

    Args:
        paths: of the images within their dataset.
        part: the share, between 0 and 1.
        seed: another one deals the images anew.
    """
    limit = int(part * 2**64)
    drawn = (int(sha256_bytes(f"{seed}:{path}".encode())[:16], 16) < limit for path in paths)
    return np.fromiter(drawn, np.bool_, count=len(paths))


def after_temperature(
    predictions: Predictions,
    space: LabelSpace,
    part: float,
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    """The RMS calibration error of the images left over when a temperature is fitted on a share.

    The interval is that of the images left over; how far the temperature itself would differ with
    other images is not in it.

    Args:
        predictions: with logits, or there is no value.
        space: the label space that they are restricted to.
        part: the share of images to fit on, between 0 and 1.
        resamples: of the bootstrap.
        seed: of the bootstrap and of the split.

    Returns:
        A measure as `curate.testbed.metric_records.metric` has it, and where there is a value
        `temperature`, `fitted_on` (how many images) and `unscaled` (the same error of the same
        images before).

    Raises:
        ValueError: `part` is not between 0 and 1.
    """
    if not 0.0 < part < 1.0:
        raise ValueError(f"temperature_split is {part}: it must be between 0 and 1")
    sound = predictions.sound
    if predictions.logits is None:
        return nothing(int(np.count_nonzero(sound)), "a temperature needs logits")
    fit = fitted_on(predictions.paths, part, seed) & sound
    rest = sound & ~fit
    n = int(np.count_nonzero(rest))
    if not fit.any() or not rest.any():
        return nothing(n, "too few images to fit a temperature on some and measure others")
    places = np.array([space.position(wnid) for wnid in predictions.wnids])
    value = temperature(predictions.logits[fit], places[fit])
    scaled = softmax_confidence(apply_temperature(predictions.logits[rest], value))
    correct = predictions.correct[rest]
    (values,) = Resamples().values([(scaled, correct)], resamples, seed)
    error, *drawn = values["rms"].tolist()
    found = resampled(error, drawn, n, resamples, seed)
    count = int(np.count_nonzero(fit))
    if value in TEMPERATURES:
        found["note"] = (
            f"no temperature between {TEMPERATURES[0]:g} and {TEMPERATURES[1]:g} is the best; "
            f"{value:g} is the nearer end"
        )
    before = calibration_error(predictions.confidence[rest], correct, bin_size=BIN)
    return {
        **found,
        "convention": f"logits over {value:.4g}, fitted by likelihood on {count} other images; "
        f"bins of {BIN} by confidence, all of them",
        "temperature": value,
        "fitted_on": count,
        "unscaled": before,
    }
