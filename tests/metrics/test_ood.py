from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (
    auc,
    average_precision_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)

from curate.metrics import ood_detection

SCORES = st.lists(
    st.one_of(st.integers(-3, 3).map(float), st.floats(-1e300, 1e300)), min_size=1, max_size=40
)
FRACTIONS = ("auroc", "aupr", "fpr95", "base_rate", "fpr95_published", "aupr_trapezoid")


def labelled(inside: Any, outside: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.r_[np.zeros(len(inside)), np.ones(len(outside))], np.r_[inside, outside]


def nearest_recall(inside: Any, outside: Any) -> float:
    """Threshold by threshold, lowest first: the recall nearest to 0.95 wins, the first of ties."""
    inside, outside = np.asarray(inside), np.asarray(outside)
    best, value = math.inf, math.nan
    for threshold in np.unique(np.r_[inside, outside]):
        recall = (outside >= threshold).sum() / outside.size
        # Below the highest threshold of full recall the published curve has been cut off.
        if recall == 1 and (outside >= threshold).sum() == (outside > threshold).sum():
            continue
        if abs(recall - 0.95) < best:
            best, value = abs(recall - 0.95), (inside >= threshold).sum() / inside.size
    return float(value)


@pytest.mark.parametrize(
    ("inside", "outside", "auroc", "aupr", "fpr95", "published"),
    [
        ([0, 1, 2], [3, 4], 1.0, 1.0, 0.0, 0.0),
        ([3, 4, 5], [1, 2], 0.0, 0.325, 1.0, 1.0),
        ([0.0], [1.0], 1.0, 1.0, 0.0, 0.0),
        ([1.0], [1.0], 0.5, 0.5, 1.0, 1.0),
        ([0, 2, 4, 6], [3], 0.5, 1 / 3, 0.5, 0.5),
        ([20, 19, 18, 1], [*range(22, 41), 5], 0.9625, 0.9934782608695651, 0.0, 0.75),
        # Recalls of 94 and 96 % are equally near: the one of the lower threshold counts.
        ([3, 0], [*range(1, 51)], 0.975, (47 + 48 / 49 + 49 / 50 + 50 / 51) / 50, 0.5, 0.5),
    ],
)
def test_true_values(
    inside: Any, outside: Any, auroc: float, aupr: float, fpr95: float, published: float
) -> None:
    result = ood_detection(inside, outside)
    assert result.auroc == pytest.approx(auroc, abs=1e-12)
    assert result.aupr == pytest.approx(aupr, abs=1e-12)
    assert result.fpr95 == pytest.approx(fpr95, abs=1e-12)
    assert result.fpr95_published == pytest.approx(published, abs=1e-12)


def test_a_score_that_says_nothing_gives_chance_at_the_sizes_of_imagenet_o() -> None:
    result = ood_detection(np.zeros(10_000), np.zeros(2_000))
    assert result.aupr == result.base_rate == pytest.approx(1 / 6, abs=1e-15)
    assert result.aupr_trapezoid == pytest.approx(0.5833333333333334, abs=1e-12)
    assert (result.auroc, result.fpr95, result.n_in, result.n_out) == (0.5, 1.0, 10_000, 2_000)


@given(SCORES, SCORES)
def test_agrees_with_scikit_learn(inside: list[float], outside: list[float]) -> None:
    result = ood_detection(inside, outside)
    truth, scores = labelled(inside, outside)
    assert result.auroc == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
    assert result.aupr == pytest.approx(average_precision_score(truth, scores), abs=1e-12)
    precision, recall, _ = precision_recall_curve(truth, scores)
    assert result.aupr_trapezoid == pytest.approx(auc(recall, precision), abs=1e-12)
    false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert result.fpr95 == pytest.approx(false[true >= 0.95].min(), abs=1e-12)
    assert result.base_rate == truth.mean()


@given(SCORES, SCORES)
def test_published_fpr95_takes_the_nearest_recall(
    inside: list[float], outside: list[float]
) -> None:
    result = ood_detection(inside, outside)
    assert result.fpr95_published == pytest.approx(nearest_recall(inside, outside), abs=1e-12)


@given(SCORES, SCORES)
def test_every_fraction_is_within_zero_and_one(inside: list[float], outside: list[float]) -> None:
    result = ood_detection(inside, outside)
    for name in FRACTIONS:
        assert 0.0 <= getattr(result, name) <= 1.0 + 1e-12, name


@given(SCORES, SCORES, st.randoms(use_true_random=False))
def test_order_and_scale_do_not_matter(
    inside: list[float], outside: list[float], shuffle: Random
) -> None:
    before = ood_detection(inside, outside)
    shuffle.shuffle(inside)
    shuffle.shuffle(outside)
    assert ood_detection(np.array(inside) * 2, np.array(outside) * 2) == before


@given(SCORES, SCORES)
def test_swapped_and_negated_the_area_under_the_roc_is_the_same(
    inside: list[float], outside: list[float]
) -> None:
    swapped = ood_detection(-np.array(outside), -np.array(inside))
    assert swapped.auroc == pytest.approx(ood_detection(inside, outside).auroc, abs=1e-12)


def test_agrees_with_scikit_learn_over_several_blocks() -> None:
    random = np.random.RandomState(0)
    inside, outside = random.randn(200_000), random.randn(100_000) + 0.5
    result = ood_detection(inside, outside)
    truth, scores = labelled(inside, outside)
    assert result.auroc == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
    assert result.aupr == pytest.approx(average_precision_score(truth, scores), abs=1e-12)
    precision, recall, _ = precision_recall_curve(truth, scores)
    assert result.aupr_trapezoid == pytest.approx(auc(recall, precision), abs=1e-12)
    false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert result.fpr95 == pytest.approx(false[true >= 0.95].min(), abs=1e-12)


def test_a_recall_of_exactly_95_percent_is_enough() -> None:
    assert ood_detection([0.5], [*range(1, 20), 0]).fpr95 == 0.0
    assert ood_detection([0.5], [*range(1, 19), 0, 0]).fpr95 == 1.0


@pytest.mark.parametrize(
    ("inside", "outside", "fault"),
    [
        ([0, 1], [], "scores_out is empty"),
        ([], [0, 1], "scores_in is empty"),
        ([0, math.nan], [1], r"scores_in\[1\] is nan"),
        ([0], [-math.inf], r"scores_out\[0\] is -inf"),
        ([[0]], [1], "scores_in must have one dimension"),
    ],
)
def test_bad_input_is_named(inside: Any, outside: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        ood_detection(inside, outside)
