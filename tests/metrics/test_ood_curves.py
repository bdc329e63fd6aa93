"""The curves of detection: those of scikit-learn, and the areas that the measures tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_curve, roc_curve

from curate.metrics.ood import ood_detection
from curate.metrics.ood_curves import detection_curves

# Few distinct values, so that ties are frequent.
SCORES = st.lists(st.integers(0, 12).map(float), min_size=1, max_size=60)


@given(SCORES, SCORES)
def test_the_curves_are_those_of_scikit_learn(inside: list[float], outside: list[float]) -> None:
    found = detection_curves(inside, outside)
    truth = [0] * len(inside) + [1] * len(outside)
    rate, recall, _ = roc_curve(truth, inside + outside, drop_intermediate=False)
    np.testing.assert_allclose(found.false_positive_rate, rate, atol=1e-15)
    np.testing.assert_allclose(found.recall, recall, atol=1e-15)
    precision, recall, _ = precision_recall_curve(truth, inside + outside)
    np.testing.assert_allclose(found.precision[1:], precision[-2::-1], atol=1e-15)
    np.testing.assert_allclose(found.recall[1:], recall[-2::-1], atol=1e-15)
    # Where nothing passes there is no precision, which scikit-learn calls 1.
    assert found.precision[0] == found.precision[1]


@given(SCORES, SCORES)
def test_the_areas_under_them_are_the_measures(inside: list[float], outside: list[float]) -> None:
    found, measured = detection_curves(inside, outside), ood_detection(inside, outside)
    steps = np.sum(np.diff(found.recall) * found.precision[1:])
    assert steps == pytest.approx(measured.aupr, abs=1e-12)
    area = np.trapezoid(found.recall, found.false_positive_rate)
    assert area == pytest.approx(measured.auroc, abs=1e-12)


@given(SCORES, SCORES, st.integers(4, 30))
def test_few_points_are_points_of_the_whole_curve_and_keep_its_ends(
    inside: list[float], outside: list[float], points: int
) -> None:
    whole, some = detection_curves(inside, outside), detection_curves(inside, outside, points)
    known = set(zip(whole.recall, whole.false_positive_rate, whole.precision, strict=True))
    drawn = list(zip(some.recall, some.false_positive_rate, some.precision, strict=True))
    assert len(drawn) <= points
    assert set(drawn[1:]) <= known
    assert drawn[0][:2] == (0.0, 0.0)
    assert drawn[-1][:2] == (1.0, 1.0)


def test_few_points_lie_close_together_on_a_large_curve() -> None:
    random = np.random.default_rng(3)
    found = detection_curves(random.normal(0, 1, 10_000), random.normal(1, 1, 2_000), 200)
    assert 150 < found.recall.size <= 200
    assert np.diff(found.recall).max() < 0.02
    assert np.diff(found.false_positive_rate).max() < 0.02


@pytest.mark.parametrize(
    ("inside", "outside", "points", "told"),
    [
        ([], [1.0], None, "scores_in is empty"),
        ([1.0], [], None, "scores_out is empty"),
        ([1.0, np.nan], [1.0], None, r"scores_in\[1\] is nan"),
        ([1.0], [np.inf], None, r"scores_out\[0\] is inf"),
        ([1.0], [1.0], 3, "points"),
    ],
)
def test_what_is_no_score_is_refused(
    inside: list[float], outside: list[float], points: int | None, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        detection_curves(inside, outside, points)
