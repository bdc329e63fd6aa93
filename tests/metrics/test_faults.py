"""Whatever the measure, a fault in its input is a `ValueError` that names the argument and row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import curate.metrics as m
from curate.metrics.corruption import IMAGENET_C

N = 6
SCORES = np.linspace(0.1, 0.9, N)
RIGHT = np.array([1, 0, 1, 0, 1, 1])
LOGITS = np.random.default_rng(0).random((N, 4))
LABELS = np.array([0, 1, 2, 3, 0, 1])
PERCENT = 100 * SCORES
ERRORS = {name: [0.1, 0.2, 0.3, 0.4, 0.5] for name in IMAGENET_C}


def mean(values: Any) -> float:
    return float(np.mean(values))


#: name: the call, and its arguments by name.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "accuracy": (m.accuracy, {"logits": LOGITS, "labels": LABELS}),
    "top_k_accuracy": (m.top_k_accuracy, {"logits": LOGITS, "labels": LABELS, "k": 2}),
    "grouped_accuracy": (
        lambda logits, labels: m.grouped_accuracy(logits, labels, [[0, 1], [2]]),
        {"logits": LOGITS, "labels": LABELS},
    ),
    "restrict": (lambda logits: m.restrict(logits, [0, 1]), {"logits": LOGITS}),
    "softmax_confidence": (m.softmax_confidence, {"logits": LOGITS}),
    "predict": (m.predict, {"logits": LOGITS}),
    "anomaly_scores": (m.anomaly_scores, {"logits": LOGITS}),
    "temperature": (m.temperature, {"logits": LOGITS, "labels": LABELS}),
    "apply_temperature": (lambda logits: m.apply_temperature(logits, 2.0), {"logits": LOGITS}),
    "negative_log_likelihood": (m.negative_log_likelihood, {"logits": LOGITS, "labels": LABELS}),
    "brier_score": (m.brier_score, {"logits": LOGITS, "labels": LABELS}),
    "aurra": (m.aurra, {"confidence": SCORES, "correct": RIGHT}),
    "response_rate_curve": (m.response_rate_curve, {"confidence": SCORES, "correct": RIGHT}),
    "calibration_error": (m.calibration_error, {"confidence": SCORES, "correct": RIGHT}),
    "reliability_curve": (m.reliability_curve, {"confidence": SCORES, "correct": RIGHT}),
    "overconfidence": (m.overconfidence, {"confidence": SCORES, "correct": RIGHT}),
    "soft_f1": (m.soft_f1, {"confidence": SCORES, "correct": RIGHT}),
    "confusions": (m.confusions, {"labels": LABELS, "predicted": LABELS[::-1]}),
    "class_accuracy": (m.class_accuracy, {"labels": LABELS, "correct": RIGHT}),
    "mcnemar": (m.mcnemar, {"first_correct": RIGHT, "second_correct": RIGHT[::-1]}),
    "paired_difference": (
        lambda confidence, correct: m.paired_difference(
            m.aurra, (confidence, correct), (SCORES, RIGHT), resamples=2
        ),
        {"confidence": SCORES, "correct": RIGHT},
    ),
    "ood_detection": (m.ood_detection, {"scores_in": SCORES, "scores_out": SCORES}),
    "aupr_at_base_rate": (m.aupr_at_base_rate, {"scores_in": SCORES, "scores_out": SCORES}),
    "auc": (m.auc, {"scores": SCORES, "genuine": RIGHT}),
    "fit_logit_line": (m.fit_logit_line, {"x": PERCENT, "y": PERCENT}),
    "fit_piecewise": (lambda x, y: m.fit_piecewise(x, y, 50.0), {"x": PERCENT, "y": PERCENT}),
    "find_knee": (lambda x, y: m.find_knee(x, y, resamples=2), {"x": PERCENT, "y": PERCENT}),
    "gaussian": (m.gaussian, {"features": LOGITS}),
    "effective_robustness": (
        lambda x, y: m.effective_robustness(x, y, m.fit_logit_line(PERCENT, PERCENT)),
        {"x": PERCENT, "y": PERCENT},
    ),
    "relative_robustness": (m.relative_robustness, {"y": PERCENT, "y_baseline": PERCENT}),
    "bootstrap_band": (
        lambda x, y, grid: m.bootstrap_band(x, y, grid, resamples=2),
        {"x": PERCENT, "y": PERCENT, "grid": PERCENT},
    ),
    "bootstrap_interval": (
        lambda array: m.bootstrap_interval(mean, array, resamples=2),
        {"array": SCORES},
    ),
    "pm_k": (
        lambda anchor_correct: m.pm_k(anchor_correct, [[1]] * len(anchor_correct)),
        {"anchor_correct": RIGHT},
    ),
}
#: Whose arguments need not be of one length.
FREE = {"ood_detection", "aupr_at_base_rate", "bootstrap_band"}

ARGUMENTS = [
    (name, argument)
    for name, (_, arguments) in CALLS.items()
    for argument, value in arguments.items()
    if isinstance(value, np.ndarray)
]


def test_every_measure_of_arrays_is_here() -> None:
    tables = {name for name in m.__all__ if "kappa" in name or name.startswith(("gwet", "kripp"))}
    others = {"raw_agreement", "clopper_pearson", "corruption_errors", "frechet_distance"}
    assert set(CALLS) == set(m.__all__) - tables - others


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_a_bad_row_is_named(name: str, argument: str) -> None:
    call, good = CALLS[name]
    call(**good)
    faults = [math.nan, math.inf]
    if good[argument] is RIGHT or argument.endswith("correct"):
        faults += [2.0, -1.0]
    elif argument in ("labels", "predicted"):
        faults = [-1]
    elif good[argument] is PERCENT:
        faults += [101.0, -1.0]
    for fault in faults:
        array = good[argument].astype(type(fault))
        array[(2,) if array.ndim == 1 else (2, 1)] = fault
        place = "2" if array.ndim == 1 else "2, 1"
        told = "array 0" if argument == "array" else argument
        with pytest.raises(ValueError, match=rf"{told}\[{place}\] is {fault}"):
            call(**{**good, argument: array})


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_nothing_and_too_little_are_named(name: str, argument: str) -> None:
    call, good = CALLS[name]
    with pytest.raises(ValueError, match="empty|at least two items"):
        call(**{**good, argument: good[argument][:0]})
    if name not in FREE and len([1 for other, _ in ARGUMENTS if other == name]) > 1:
        with pytest.raises(ValueError, match=r"differ in (length|shape)|of one length"):
            call(**{**good, argument: good[argument][:-1]})


def test_bad_errors_under_corruption_name_the_corruption_and_severity() -> None:
    for fault in (math.nan, 1.5):
        errors = {**ERRORS, "fog": [0.1, 0.2, fault, 0.3, 0.4]}
        with pytest.raises(ValueError, match=rf"errors\['fog'\]\[2\] is {fault}"):
            m.corruption_errors(errors, ERRORS)


def test_a_bad_answer_names_its_item_and_annotator() -> None:
    for measure in (m.raw_agreement, m.fleiss_kappa, m.krippendorff_alpha, m.cohen_kappa):
        with pytest.raises(ValueError, match=r"table\[2\]\[1\] is nan"):
            measure([["a", "b"], ["a", "a"], ["a", math.nan]])
    with pytest.raises(ValueError, match=r"table\[1\]\[1\] is 'z': that is not among"):
        m.gwet_ac1([["a", "b"], ["a", "z"]], categories=["a", "b"])
