"""Bytes of results may depend on nothing that a machine brings along, such as its cores."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from curate.metrics import (
    aurra,
    calibration_error,
    ood_detection,
    overconfidence,
    soft_f1,
    temperature,
)
from curate.metrics.draws import draws
from curate.metrics.ood_intervals import ood_detection_estimates
from curate.metrics.resampled import ScoredItems


@pytest.mark.parametrize("digits", [16, 3])
def test_no_measure_depends_on_the_threads_of_linear_algebra(digits: int) -> None:
    random = np.random.RandomState(digits)
    confidence = random.rand(60_000).round(digits)
    correct = random.rand(60_000) < confidence
    first, second = random.randn(2, 30_000).round(digits)
    logits, labels = random.randn(300, 200), random.randint(0, 200, 300)

    def everything() -> str:
        items = ScoredItems(confidence, correct)
        values = [items.measures(), *(items.measures(copies) for copies in draws(60_000, 2, 0))]
        values += [measure(confidence, correct) for measure in (aurra, soft_f1, overconfidence)]
        values += [calibration_error(confidence, correct, norm) for norm in ("rms", "mad")]
        values += [ood_detection(first, second + 1.0), temperature(logits, labels)]
        values += [ood_detection_estimates(first, second + 1.0, resamples=2)]
        return repr(values)

    told = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            told.append(everything())
    assert told[0] == told[1] == told[2]
