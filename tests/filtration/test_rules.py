"""The rules: what they remove, and when they admit to being unsure."""

from __future__ import annotations

import math
from dataclasses import replace

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
    UNCONFIDENT,
    UNSURE,
    Misclassified,
    Outlier,
    Rule,
    make_rule,
)
from curate.filtration.scores import ViewScores, scores_with_softmax, view_scores

logits = arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(2, 8)),
    # Extremes, and such as leave several classes a chance.
    elements=st.one_of(st.floats(-40, 40, width=32), st.floats(-2, 2, width=32)),
)
limits = st.one_of(st.sampled_from([0.0, 0.15, 0.5, 0.9, 1.0]), st.floats(0, 1))
rules = st.one_of(st.builds(Misclassified, limits), st.builds(Outlier, st.just("centre"), limits))


def scores_of(*probabilities: list[float]) -> ViewScores:
    """Scores of views of three classes, of which the first is the true one."""
    p = np.array(probabilities)
    return view_scores(np.log(p), np.zeros(len(p), int))


def drawn_targets(z: np.ndarray, data: st.DataObject) -> np.ndarray:
    one = st.integers(0, z.shape[1] - 1)
    return np.array(data.draw(st.lists(one, min_size=len(z), max_size=len(z))))


def drawn_noise(z: np.ndarray, largest: float, data: st.DataObject) -> np.ndarray:
    """Changes of logits that no log-odds feels as more than `largest`."""
    # At its ends, where it does most, or anywhere.
    one = st.one_of(st.sampled_from([-0.5, 0.5]), st.floats(-0.5, 0.5))
    return np.asarray(data.draw(arrays(np.float64, z.shape, elements=one))) * largest


def test_a_view_removes_by_the_right_class_or_by_more_than_the_threshold() -> None:
    scores = scores_of(
        [0.9, 0.05, 0.05],
        [0.2, 0.7, 0.1],
        [0.14, 0.8, 0.06],
        [0.1501, 0.8, 0.0499],
        [0.4, 0.3, 0.3],
    )
    said = Misclassified(0.15).judge(scores, np.zeros(5, int))
    assert said.tolist() == [CORRECT, THRESHOLD, KEEP, THRESHOLD, CORRECT]
    on_the_limit = Misclassified(float(scores.p_true[2]))
    assert on_the_limit.judge(scores, np.zeros(5, int))[2] == KEEP


def test_within_the_margin_of_either_limit_a_view_is_unsure() -> None:
    m = MARGIN
    scores = scores_of(
        [0.5, 0.3, 0.2],
        [0.15 + 2 * m, 0.8, 0.05 - 2 * m],
        [0.15 + m / 2, 0.8, 0.05 - m / 2],
        [0.15 - m / 2, 0.8, 0.05 + m / 2],
        [0.15 - 2 * m, 0.8, 0.05 + 2 * m],
        [0.45 - m / 4, 0.45 + m / 4, 0.1],
        [0.45 + m / 4, 0.45 - m / 4, 0.1],
    )
    rule = Misclassified(0.15)
    said = rule.judge_with_margin(scores)
    assert said.tolist() == [CORRECT, THRESHOLD, UNSURE, UNSURE, KEEP, UNSURE, UNSURE]
    assert rule.borderline(scores).tolist() == [s == UNSURE for s in said]
    # What is right is removed on either side of the threshold.
    low = replace(scores, p_true=scores.p_true * 0 + 0.15)
    assert rule.judge_with_margin(low)[0] == CORRECT


def test_a_view_that_is_not_confident_removes_an_outlier() -> None:
    m = MARGIN
    scores = scores_of(
        [0.05, 0.92, 0.03],
        [0.93, 0.05, 0.02],
        [0.9 + m / 2, 0.05, 0.05 - m / 2],
        [0.9 - m / 2, 0.05, 0.05 + m / 2],
        [0.9 - 2 * m, 0.05, 0.05 + 2 * m],
    )
    rule = Outlier("centre", 0.9)
    expected = [KEEP, KEEP, KEEP, UNCONFIDENT, UNCONFIDENT]
    assert rule.judge(scores, np.full(5, -1)).tolist() == expected
    said = rule.judge_with_margin(scores)
    assert said.tolist() == [KEEP, KEEP, UNSURE, UNSURE, UNCONFIDENT]
    assert rule.borderline(scores).tolist() == [s == UNSURE for s in said]
    exactly = Outlier("centre", float(scores.confidence[0]))
    assert exactly.judge(scores, np.full(5, -1))[0] == KEEP


def test_a_mean_is_judged_by_what_it_can_still_reach() -> None:
    scores = replace(
        scores_of(*[[0.2, 0.7, 0.1]] * 4),
        ceiling=np.array([0.95, 0.9005, 0.8995, 0.85]),
        seen=np.full(4, 10),
    )
    rule = Outlier("mean", 0.9)
    assert rule.judge(scores, np.full(4, -1)).tolist() == [KEEP, KEEP, UNCONFIDENT, UNCONFIDENT]
    assert rule.judge_with_margin(scores).tolist() == [KEEP, UNSURE, UNSURE, UNCONFIDENT]
    assert rule.borderline(scores).tolist() == [False, True, True, False]
    # What one view of ten may be off moves the ceiling by a tenth of that.
    one = replace(scores, seen=np.ones(4, int))
    assert rule.judge_with_margin(one).tolist() == [KEEP, KEEP, UNCONFIDENT, UNCONFIDENT]


@given(logits, rules, st.data())
def test_what_is_decided_with_a_margin_is_what_exact_scores_say(
    z: np.ndarray, rule: Rule, data: st.DataObject
) -> None:
    """Any change of the scores below half the margin leaves the decision as it was."""
    targets = drawn_targets(z, data)
    said = rule.judge_with_margin(view_scores(z, targets))
    noise = drawn_noise(z, MARGIN, data)
    exact = rule.judge(view_scores(z + noise, targets), targets)
    sure = said != UNSURE
    assert (said[sure] == exact[sure]).all()


@given(logits, rules, st.floats(1e-3, 8), st.data())
def test_a_margin_in_log_odds_covers_any_error_up_to_it(
    z: np.ndarray, rule: Rule, odds: float, data: st.DataObject
) -> None:
    """And a lead beyond it names the class that exact scores name."""
    targets = drawn_targets(z, data)
    low = view_scores(z + drawn_noise(z, odds * 0.999999, data), targets)
    said = rule.judge_with_margin(low, odds)
    exact = view_scores(z, targets)
    sure = said != UNSURE
    assert (said[sure] == rule.judge(exact, targets)[sure]).all()
    clear = low.odds_lead > odds
    assert (low.predicted[clear] == exact.predicted[clear]).all()


@given(st.integers(1, 10), st.integers(2, 6), limits, st.floats(1e-3, 8), st.data())
def test_a_margin_covers_the_mean_of_any_number_of_views(
    seen: int, classes: int, least: float, odds: float, data: st.DataObject
) -> None:
    def with_ceiling(z: np.ndarray) -> ViewScores:
        scores, p = scores_with_softmax(z, np.full(len(z), -1))
        reached = (p.sum(axis=0).max() + 10 - seen) / 10
        return replace(scores, ceiling=np.full(seen, reached), seen=np.full(seen, seen))

    elements = st.floats(-9, 9, width=32)
    z = data.draw(arrays(np.float32, (seen, classes), elements=elements))
    rule = Outlier("mean", least)
    said = rule.judge_with_margin(with_ceiling(z + drawn_noise(z, odds * 0.999999, data)), odds)
    exact = rule.judge(with_ceiling(z), np.full(seen, -1))
    sure = said != UNSURE
    assert (said[sure] == exact[sure]).all()


@pytest.mark.parametrize("seen", [1, 2, 10])
@pytest.mark.parametrize("odds", [0.02, 0.2, 1.0])
def test_the_worst_that_can_happen_to_a_mean_is_covered(seen: int, odds: float) -> None:
    """Two classes of one half each, in every view, and an error that favours one of them."""

    def ceiling(by: float) -> ViewScores:
        z = np.tile([by / 2, -by / 2], (seen, 1))
        scores, p = scores_with_softmax(z, np.full(seen, -1))
        reached = (p[:, 0].sum() + 10 - seen) / 10
        return replace(scores, ceiling=np.full(seen, reached), seen=np.full(seen, seen))

    exact, low = ceiling(0.0), ceiling(odds)
    assert exact.ceiling is not None
    assert low.ceiling is not None
    for part in (0.01, 0.5, 0.99):
        least = float(exact.ceiling[0] + part * (low.ceiling[0] - exact.ceiling[0]))
        rule = Outlier("mean", least)
        assert rule.judge(exact, np.full(seen, -1))[0] == UNCONFIDENT
        assert rule.judge_with_margin(low, odds)[0] == UNSURE


@given(logits, rules, st.data())
def test_a_wider_margin_decides_less_and_nothing_else(
    z: np.ndarray, rule: Rule, data: st.DataObject
) -> None:
    scores = view_scores(z, drawn_targets(z, data))
    narrow, wide = rule.judge_with_margin(scores, 0.01), rule.judge_with_margin(scores, 0.5)
    assert ((wide == narrow) | (wide == UNSURE)).all()
    assert (rule.judge_with_margin(scores, math.inf) != CORRECT).all()


def test_far_from_a_limit_low_precision_decides() -> None:
    """The margin is one in log-odds: a sure view stays sure though its logits are 0.5 off."""
    scores = scores_of([0.001, 0.998, 0.001], [0.97, 0.02, 0.01], [0.4, 0.59, 0.01])
    said = Misclassified(0.15).judge_with_margin(scores, 1.0)
    assert said.tolist() == [KEEP, CORRECT, UNSURE]
    # Of these the first is near the threshold alone, the second near the tie alone.
    near = scores_of([0.2, 0.79, 0.01], [0.4, 0.59, 0.01])
    assert Misclassified(0.15).judge_with_margin(near, 0.3).tolist() == [THRESHOLD, THRESHOLD]
    assert Misclassified(0.15).judge_with_margin(near, 0.36).tolist() == [UNSURE, THRESHOLD]
    assert Misclassified(0.15).judge_with_margin(near, 0.4).tolist() == [UNSURE, UNSURE]
    assert Outlier("centre", 0.9).judge_with_margin(scores, 1.0).tolist() == [
        KEEP,
        KEEP,
        UNCONFIDENT,
    ]
    assert Outlier("centre", 0.9).judge_with_margin(scores, 2.0).tolist() == [KEEP, UNSURE, UNSURE]


def test_rules_are_made_by_name_and_a_wrong_name_suggests_the_nearest() -> None:
    assert make_rule("misclassified", 0.2) == Misclassified(0.2)
    assert make_rule("outlier", 0.2, "mean", 0.8) == Outlier("mean", 0.8)
    with pytest.raises(UnknownNameError, match="did you mean misclassified"):
        make_rule("missclassified", 0.15)
    with pytest.raises(UnknownNameError, match="did you mean centre"):
        make_rule("outlier", confidence="center")  # type: ignore[arg-type]


def test_a_record_tells_what_decides_and_nothing_of_the_other_rule() -> None:
    assert Misclassified(0.2).record() == {"rule": "misclassified", "threshold": 0.2}
    assert Outlier("mean", 0.8).record() == {
        "rule": "outlier",
        "confidence": "mean",
        "min_confidence": 0.8,
    }
    assert (Outlier().views, Outlier("mean").views) == ((0,), tuple(range(10)))
