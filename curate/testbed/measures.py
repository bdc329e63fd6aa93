"""What predictions amount to: each measure with its interval and its convention, in fractions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.labels.space import LabelSpace
from curate.metrics import aurra, bootstrap_interval, calibration_error, clopper_pearson
from curate.testbed.predictions import Predictions

#: Of every interval.
CONFIDENCE_LEVEL = 0.95

#: The measures, in the order of tables, with what tables call them.
MEASURES = {
    "accuracy": "accuracy",
    "accuracy_unrestricted": "accuracy, all outputs",
    "aurra": "AURRA",
    "aurra_published": "AURRA, published order",
    "rms_calibration_error": "RMS calibration error",
    "rms_calibration_error_published": "RMS calib. error, published code",
}

_BIN = 100

_Statistic = Callable[[NDArray[Any], NDArray[Any]], float]


def measure(
    predictions: Predictions,
    space: LabelSpace,
    *,
    resamples: int = 1000,
    seed: int = 0,
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
        seed: of the bootstrap, 0 … 2³² - 1.
        done: called after each measure.

    Raises:
        ValueError: no prediction, or resamples or seed out of range.
    """
    sound = predictions.sound
    confidence, correct = predictions.confidence[sound], predictions.correct[sound]
    within = {"restricted_to": space.name, "classes": len(space)}
    bootstrap = _Bootstrap(confidence, correct, resamples, seed)
    found = {"accuracy": {**_share(correct), **within}}
    done()

    everywhere = predictions.correct_unrestricted
    found["accuracy_unrestricted"] = {
        **(
            _nothing(len(correct), "the file does not say what all of the outputs predict")
            if everywhere is None
            else _share(everywhere[sound])
        ),
        "restricted_to": None,
        "classes": predictions.outputs,
    }
    done()

    for name, ties, convention in (
        ("aurra", "expected", "equal confidences: the expected value over their orders"),
        ("aurra_published", "published", "equal confidences: in reversed argsort's order"),
    ):
        found[name] = {
            **bootstrap(lambda c, k, ties=ties: aurra(c, k, ties)),  # type: ignore[misc]
            **within,
            "convention": convention,
        }
        done()

    found["rms_calibration_error"] = {
        **bootstrap(lambda c, k: calibration_error(c, k, bin_size=_BIN)),
        **within,
        "convention": f"bins of {_BIN} by confidence, all of them; equal confidences share "
        "their mean correctness",
    }
    done()
    found["rms_calibration_error_published"] = {
        **(
            _nothing(
                len(correct),
                f"undefined below {2 * _BIN} images: the published code drops the last bin, "
                "which is all there is",
            )
            if len(correct) < 2 * _BIN
            else bootstrap(_published_calibration_error)
        ),
        **within,
        "convention": f"bins of {_BIN} by confidence, without the most confident one, as the "
        "published code has it",
    }
    done()
    return found


def _published_calibration_error(confidence: NDArray[Any], correct: NDArray[Any]) -> float:
    return calibration_error(
        confidence, correct, bin_size=_BIN, convention="published", ties="input"
    )


def _metric(
    value: float | None, interval: tuple[float, float] | None, n: int, how: str | None, note: str
) -> dict[str, Any]:
    low, high = interval or (None, None)
    return {
        "value": value,
        "low": low,
        "high": high,
        "n": n,
        "interval": how,
        "convention": None,
        "note": note or None,
    }


def _nothing(n: int, note: str) -> dict[str, Any]:
    return _metric(None, None, n, None, note)


def _share(correct: NDArray[np.bool_]) -> dict[str, Any]:
    right, n = int(np.count_nonzero(correct)), len(correct)
    interval = clopper_pearson(right, n, CONFIDENCE_LEVEL)
    return _metric(right / n, interval, n, f"Clopper-Pearson, {CONFIDENCE_LEVEL:.0%}", "")


class _Bootstrap:
    def __init__(
        self,
        confidence: NDArray[np.float64],
        correct: NDArray[np.bool_],
        resamples: int,
        seed: int,
    ) -> None:
        self._arrays = confidence, correct
        self._resamples, self._seed = resamples, seed

    def __call__(self, statistic: _Statistic) -> dict[str, Any]:
        n = len(self._arrays[0])
        value = statistic(*self._arrays)
        if n < 2:
            return _metric(value, None, n, None, "one image has no spread, so no interval")
        interval = bootstrap_interval(
            statistic,
            *self._arrays,
            resamples=self._resamples,
            confidence=CONFIDENCE_LEVEL,
            seed=self._seed,
            bounds=(0.0, 1.0),
        )
        how = (
            f"bootstrap over images, {CONFIDENCE_LEVEL:.0%}: percentiles of {self._resamples} "
            f"resamples less the bootstrap's bias, seed {self._seed}"
        )
        note = ""
        if interval[0] == interval[1]:
            note = "every resample gives this value; that is no certainty, see accuracy's interval"
        return _metric(value, interval, n, how, note)
