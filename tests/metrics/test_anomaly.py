from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.special import logsumexp, softmax
from scipy.stats import entropy

from curate.metrics.anomaly import SCORES, anomaly_scores
from curate.metrics.classification import softmax_confidence

LOGITS = arrays(
    np.float32,
    array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(-60, 60, width=32),
)


@given(LOGITS)
def test_agrees_with_scipy(logits: np.ndarray) -> None:
    found = anomaly_scores(logits)
    exact = logits.astype(np.float64)
    probabilities = softmax(exact, axis=1)
    assert list(found) == list(SCORES)
    np.testing.assert_allclose(found["msp"], -probabilities.max(axis=1), rtol=1e-12)
    np.testing.assert_array_equal(found["max_logit"], -exact.max(axis=1))
    np.testing.assert_allclose(found["energy"], -logsumexp(exact, axis=1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found["entropy"], entropy(probabilities, axis=1), atol=1e-12)


@given(LOGITS)
def test_the_confidence_is_the_same_to_the_bit(logits: np.ndarray) -> None:
    np.testing.assert_array_equal(-anomaly_scores(logits)["msp"], softmax_confidence(logits))


@given(LOGITS, st.floats(-20, 20))
def test_a_shift_moves_energy_and_maximum_alone(logits: np.ndarray, shift: float) -> None:
    exact = logits.astype(np.float64)
    before, after = anomaly_scores(exact), anomaly_scores(exact + shift)
    for name, moved in (("msp", 0), ("entropy", 0), ("max_logit", shift), ("energy", shift)):
        np.testing.assert_allclose(after[name], before[name] - moved, atol=1e-9)


@given(LOGITS)
def test_every_score_is_in_its_range(logits: np.ndarray) -> None:
    found = anomaly_scores(logits)
    classes = logits.shape[1]
    assert ((found["msp"] >= -1) & (found["msp"] <= -1 / classes + 1e-12)).all()
    assert ((found["entropy"] >= 0) & (found["entropy"] <= math.log(classes) + 1e-12)).all()
    assert (found["energy"] <= found["max_logit"]).all()


def test_one_class_and_extremes() -> None:
    one = anomaly_scores([[3.0]])
    assert [float(one[name][0]) for name in SCORES] == [-1, -3, -3, 0]
    far = anomaly_scores([[1.7e308, -1.7e308, 0.0]])
    assert (far["msp"][0], far["entropy"][0]) == (-1, 0)


def test_several_blocks_equal_one() -> None:
    logits = np.random.RandomState(0).randn(2_000, 200)
    whole = anomaly_scores(logits)
    for row in (0, 1_309, 1_310, 1_999):
        for name, values in anomaly_scores(logits[[row]]).items():
            assert values[0] == pytest.approx(whole[name][row], abs=1e-12)


@pytest.mark.parametrize(
    ("logits", "fault"),
    [
        ([[0.0, math.nan]], r"logits\[0, 1\] is nan"),
        ([[math.inf, 0.0]], r"logits\[0, 0\] is inf"),
        ([], "logits is empty"),
        ([1.0, 2.0], "items by classes"),
    ],
)
def test_bad_input_is_named(logits: list[float], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        anomaly_scores(logits)
