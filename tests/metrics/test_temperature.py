from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.metrics import brier_score_loss, log_loss

from curate.metrics import (
    apply_temperature,
    brier_score,
    negative_log_likelihood,
    softmax_confidence,
    temperature,
)
from curate.metrics.temperature import TEMPERATURES


def drawn(seed: int, n: int, classes: int, true_temperature: float) -> tuple[Any, Any]:
    """Logits whose labels follow the softmax at a temperature."""
    random = np.random.default_rng(seed)
    logits = random.normal(0.0, 3.0, (n, classes))
    p = np.exp(logits / true_temperature)
    labels = [random.choice(classes, p=row / row.sum()) for row in p]
    return logits, np.array(labels)


@given(st.integers(0, 10_000), st.integers(2, 60), st.integers(2, 5), st.sampled_from([0.5, 1, 4]))
def test_it_minimises_the_negative_log_likelihood(
    seed: int, n: int, classes: int, true_temperature: float
) -> None:
    logits, labels = drawn(seed, n, classes, true_temperature)
    found = temperature(logits, labels)

    def loss(log_t: float) -> float:
        return negative_log_likelihood(apply_temperature(logits, math.exp(log_t)), labels)

    bounds = tuple(math.log(end) for end in TEMPERATURES)
    best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    assert TEMPERATURES[0] <= found <= TEMPERATURES[1]
    assert loss(math.log(found)) <= best.fun + 1e-12


def test_it_finds_the_temperature_that_the_labels_follow() -> None:
    logits, labels = drawn(0, 20_000, 5, 2.5)
    assert temperature(logits, labels) == pytest.approx(2.5, rel=0.03)


@given(st.integers(0, 10_000), st.floats(0.5, 2.0))
def test_scaled_logits_have_a_scaled_temperature(seed: int, factor: float) -> None:
    logits, labels = drawn(seed, 200, 3, 2.0)
    plain = temperature(logits, labels)
    assert temperature(logits * factor, labels) == pytest.approx(plain * factor, rel=1e-9)
    assert temperature(logits + 7.0, labels) == pytest.approx(plain, rel=1e-9)
    again = temperature(apply_temperature(logits, plain), labels)
    assert again == pytest.approx(1.0, rel=1e-9)


def test_where_there_is_no_minimum_it_is_the_nearer_end() -> None:
    logits = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0]])
    assert temperature(logits, [0, 1]) == TEMPERATURES[0]
    assert temperature(logits, [2, 0]) == TEMPERATURES[1]
    assert temperature(np.zeros((4, 3)), [0, 1, 2, 0]) == 1.0


def test_columns_restrict_before_the_softmax() -> None:
    logits, labels = drawn(1, 300, 3, 2.0)
    wide = np.concatenate((np.full((300, 1), 50.0), logits), axis=1)
    for measure in (temperature, negative_log_likelihood, brier_score):
        assert measure(wide, labels + 1, [1, 2, 3]) == pytest.approx(measure(logits, labels))


@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(3, 5))
def test_proper_scores_agree_with_scikit_learn(seed: int, n: int, classes: int) -> None:
    logits, labels = drawn(seed, n, classes, 1.0)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    known = list(range(classes))
    assert negative_log_likelihood(logits, labels) == pytest.approx(
        log_loss(labels, p, labels=known), abs=1e-9
    )
    assert brier_score(logits, labels) == pytest.approx(
        brier_score_loss(labels, p, labels=known, scale_by_half=False), abs=1e-12
    )


def test_one_class_and_wholly_sure_answers() -> None:
    assert negative_log_likelihood([[5.0], [1.0]], [0, 0]) == 0.0
    assert brier_score([[5.0], [1.0]], [0, 0]) == 0.0
    assert temperature([[5.0], [1.0]], [0, 0]) == 1.0
    assert negative_log_likelihood([[0.0, 900.0]], [0]) == 900.0
    assert brier_score([[0.0, 900.0]], [0]) == 2.0
    assert negative_log_likelihood(np.zeros((2, 8)), [1, 2]) == pytest.approx(math.log(8))


def test_extreme_logits_are_no_nan() -> None:
    logits = np.array([[1e308, -1e308], [0.0, 1.0], [1.0, 0.0]])
    assert TEMPERATURES[0] <= temperature(logits, [0, 0, 0]) <= TEMPERATURES[1]
    assert brier_score(logits, [0, 0, 0]) < 1.0


def test_a_temperature_changes_confidence_and_no_prediction() -> None:
    logits = np.array([[3.0, 1.0], [0.5, 2.0]], np.float32)
    cooled = apply_temperature(logits, 2.0)
    assert cooled.dtype == np.float64
    assert (cooled.argmax(axis=1) == logits.argmax(axis=1)).all()
    assert (softmax_confidence(cooled) < softmax_confidence(logits)).all()


@pytest.mark.parametrize(
    ("logits", "labels", "fault"),
    [
        ([[1.0, math.nan]], [0], r"logits\[0, 1\] is nan"),
        (np.zeros((0, 2)), [], "logits is empty"),
        ([[1.0, 2.0]], [2], r"labels\[0\] is 2: there are 2 classes"),
        ([[1.0, 2.0]], [0, 1], "differ in length: 1 and 2"),
        ([[1.0, 2.0]], [0.5], "labels must be whole numbers"),
    ],
)
def test_bad_input_is_named(logits: Any, labels: Any, fault: str) -> None:
    for measure in (temperature, negative_log_likelihood, brier_score):
        with pytest.raises(ValueError, match=fault):
            measure(logits, labels)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_temperature_is_above_zero(value: float) -> None:
    with pytest.raises(ValueError, match="temperature is"):
        apply_temperature([1.0, 2.0], value)
