"""The rule `misclassified`: what it removes, and when it admits to being unsure."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from curate.errors import UnknownNameError
from curate.filtration.rules import (
    CORRECT,
    KEEP,
    MARGIN,
    THRESHOLD,
    UNSURE,
    Misclassified,
    make_rule,
)
from curate.filtration.scores import ViewScores, view_scores

logits = arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(2, 8)),
    elements=st.floats(-40, 40, width=32),
)


def scores(p_true: list[float], predicted: list[int], gap: list[float]) -> ViewScores:
    n = len(p_true)
    return ViewScores(
        np.array(p_true), np.array(predicted), np.ones(n), np.array(gap), np.ones(n, bool)
    )


def test_a_view_removes_by_the_right_class_or_by_more_than_the_threshold() -> None:
    said = Misclassified(0.15).judge(
        scores([0.9, 0.2, 0.15, 0.1501, 0.01], [0, 1, 1, 1, 1], [0.8, -0.1, -0.5, -0.5, -0.9]),
        np.zeros(5, int),
    )
    assert said.tolist() == [CORRECT, THRESHOLD, KEEP, THRESHOLD, KEEP]


def test_within_the_margin_of_either_limit_a_view_is_unsure() -> None:
    m = MARGIN
    said = Misclassified(0.15).judge_with_margin(
        scores(
            [0.5, 0.15 + 2 * m, 0.15 + m / 2, 0.15 - m / 2, 0.15 - 2 * m, 0.3, 0.3, 0.15],
            [0, 1, 1, 1, 1, 1, 0, 0],
            [0.2, -0.3, -0.3, -0.3, -0.3, -m / 2, m / 2, 0.05],
        )
    )
    expected = [CORRECT, THRESHOLD, UNSURE, UNSURE, KEEP, UNSURE, UNSURE, CORRECT]
    assert said.tolist() == expected


@given(logits, st.data())
def test_what_is_decided_with_a_margin_is_what_exact_scores_say(
    z: np.ndarray, data: st.DataObject
) -> None:
    """Any change of the scores below half the margin leaves the decision as it was."""
    targets = np.array(
        data.draw(st.lists(st.integers(0, z.shape[1] - 1), min_size=len(z), max_size=len(z)))
    )
    rule = Misclassified(data.draw(st.sampled_from([0.0, 0.15, 0.5, 1.0])))
    said = rule.judge_with_margin(view_scores(z, targets))
    noise = data.draw(
        arrays(np.float32, z.shape, elements=st.floats(-(2.0**-12), 2.0**-12, width=32))
    )
    exact = rule.judge(view_scores(z + noise, targets), targets)
    sure = said != UNSURE
    assert (said[sure] == exact[sure]).all()


@given(logits, st.data())
def test_scores_are_the_softmax_over_exactly_these_columns(
    z: np.ndarray, data: st.DataObject
) -> None:
    from scipy.special import softmax

    targets = np.array(
        data.draw(st.lists(st.integers(0, z.shape[1] - 1), min_size=len(z), max_size=len(z)))
    )
    got = view_scores(z, targets)
    p = softmax(z.astype(np.float64), axis=1)
    rows = np.arange(len(z))
    np.testing.assert_allclose(got.p_true, p[rows, targets], rtol=1e-12)
    np.testing.assert_allclose(got.confidence, p.max(axis=1), rtol=1e-12)
    assert (got.predicted == p.argmax(axis=1)).all()
    others = p.copy()
    others[rows, targets] = -1
    np.testing.assert_allclose(got.gap, p[rows, targets] - others.max(axis=1), atol=1e-12)


def test_a_logit_gap_that_saturates_float32_still_ranks() -> None:
    got = view_scores(np.array([[20.0, 0.0, 1.0]], np.float32), np.array([0]))
    assert got.confidence[0] < 1.0


def test_logits_that_are_no_numbers_are_marked_and_harm_no_neighbour() -> None:
    z = np.array([[1, 2], [np.nan, 0], [np.inf, 0], [3, 1]], np.float32)
    got = view_scores(z, np.zeros(4, int))
    assert got.finite.tolist() == [True, False, False, True]
    assert np.isfinite(got.p_true).all()


def test_an_unknown_rule_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean misclassified"):
        make_rule("missclassified", 0.15)
