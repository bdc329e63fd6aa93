"""What predictions amount to: each measure with its interval and its convention, in fractions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.labels.space import LabelSpace
from curate.testbed.metric_records import CONFIDENCE_LEVEL, nothing, resampled, share
from curate.testbed.predictions import Predictions
from curate.testbed.resamples import BIN, Resamples, evenly
from curate.testbed.scaling import after_temperature

__all__ = ["CONFIDENCE_LEVEL", "LOWER_IS_BETTER", "MEASURES", "measure"]

#: The measures, in the order of tables, with what tables call them.
MEASURES = {
    "accuracy": "accuracy",
    "top5": "top-5 accuracy",
    "accuracy_unrestricted": "accuracy, all outputs",
    "top5_unrestricted": "top-5 accuracy, all outputs",
    "aurra": "AURRA",
    "aurra_published": "AURRA, published order",
    "rms_calibration_error": "RMS calibration error",
    "rms_calibration_error_published": "RMS calib. error, published code",
    "mad_calibration_error": "mean absolute calibration error",
    "max_calibration_error": "maximum calibration error",
    "overconfidence": "confidence less accuracy",
    "soft_f1": "soft F1 of finding errors",
    "rms_calibration_error_scaled": "RMS calib. error, temperature scaled",
}

#: Measures whose larger value is the worse one.
LOWER_IS_BETTER = frozenset(name for name in MEASURES if "calibration_error" in name)

_ALL_BINS = (
    f"bins of {BIN} by confidence, all of them; equal confidences share their mean correctness"
)

#: Of the measures that need confidence and correctness alone: what `ScoredItems` calls it, the
#: ends of its range, and its convention.
_SCORED: Mapping[str, tuple[str, tuple[float, float], str]] = {
    "aurra": ("aurra", (0.0, 1.0), "equal confidences: the expected value over their orders"),
    "aurra_published": (
        "aurra_published",
        (0.0, 1.0),
        "equal confidences: in reversed argsort's order",
    ),
    "rms_calibration_error": ("rms", (0.0, 1.0), _ALL_BINS),
    "rms_calibration_error_published": (
        "rms_published_input",
        (0.0, 1.0),
        f"bins of {BIN} by confidence, without the most confident one, as the published code "
        "has it",
    ),
    "mad_calibration_error": ("mad", (0.0, 1.0), _ALL_BINS),
    "max_calibration_error": ("max", (0.0, 1.0), f"the worst of {_ALL_BINS}"),
    "overconfidence": (
        "overconfidence",
        (-1.0, 1.0),
        "mean confidence less accuracy, with its sign",
    ),
    "soft_f1": (
        "soft_f1",
        (0.0, 1.0),
        "wrong predictions are the positive class, each found to the degree 1 - confidence",
    ),
}


def measure(
    predictions: Predictions,
    space: LabelSpace,
    *,
    resamples: int = 1000,
    seed: int = 0,
    temperature_split: float | None = None,
    kept: Resamples | None = None,
    done: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, Any]]:
    """All measures of `MEASURES`.

    Each is a mapping: value, low, high (None where there is none), n, interval (how low and high
    were found), restricted_to (the label space), classes (its size), convention, note (why there
    is no value or no interval, or how to read it).

    Args:
        predictions: at least one of them sound; images without a prediction are left out.
        space: the label space that they are restricted to.
        resamples: of the bootstrap, at least 1.
        seed: of the bootstrap, 0 … 2³² - 1; and of the split for the temperature.
        temperature_split: the share of images that a temperature is fitted on, between 0 and 1;
            None leaves that measure out.
        kept: keeps the measures on resamples for whoever asks for them again.
        done: called once for each of `MEASURES`, evenly while it works.

    Raises:
        ValueError: no prediction, or an argument out of range.
    """
    sound = predictions.sound
    confidence, correct = predictions.confidence[sound], predictions.correct[sound]
    n = len(correct)
    within = {"restricted_to": space.name, "classes": len(space)}
    beyond = {"restricted_to": None, "classes": predictions.outputs}
    everywhere = predictions.correct_unrestricted
    unknown = "the file does not say what all of the outputs predict"
    found = {
        "accuracy": {**share(correct), **within},
        "top5": {**_first_five(predictions.rank, sound), **within},
        "accuracy_unrestricted": {
            **(nothing(n, unknown) if everywhere is None else share(everywhere[sound])),
            **beyond,
        },
        "top5_unrestricted": {**_first_five(predictions.rank_unrestricted, sound), **beyond},
    }
    for name, told in _scored(
        confidence, correct, resamples, seed, kept or Resamples(), done
    ).items():
        found[name] = {**told, **within, "convention": _SCORED[name][2]}
    if temperature_split is not None:
        found["rms_calibration_error_scaled"] = {
            **after_temperature(predictions, space, temperature_split, resamples, seed),
            **within,
        }
    done()
    return found


def _first_five(rank: NDArray[np.int32] | None, sound: NDArray[np.bool_]) -> dict[str, Any]:
    if rank is None:
        return nothing(int(np.count_nonzero(sound)), "top-5 needs logits, or ranks in the file")
    return share(rank[sound] < 5)


def _scored(
    confidence: NDArray[np.float64],
    correct: NDArray[np.bool_],
    resamples: int,
    seed: int,
    kept: Resamples,
    done: Callable[[], None],
) -> dict[str, dict[str, Any]]:
    """The measures of `_SCORED`, all on the same resamples."""
    n = len(correct)
    tell = evenly(done, len(MEASURES) - 1, resamples)
    (values,) = kept.values([(confidence, correct)], resamples, seed, done=tell)
    tell(resamples - 1)
    found = {}
    for name, (key, bounds, _) in _SCORED.items():
        if name == "rms_calibration_error_published" and n < 2 * BIN:
            note = (
                f"undefined below {2 * BIN} images: the published code drops the last bin, which "
                "is all there is"
            )
            found[name] = nothing(n, note)
            continue
        value, *drawn = values[key].tolist()
        found[name] = resampled(value, drawn, n, resamples, seed, bounds=bounds)
    return found
