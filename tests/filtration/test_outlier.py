"""The rule outlier through the cascade: the plain loop's verdicts, in fewer forward passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from curate.filtration import cascade, rules
from curate.filtration.cascade import VIEWS
from curate.filtration.rules import MARGIN, Outlier
from curate.filtration.terms import ChunkResult, Plan
from curate.models.runtime import bound_threads
from tests.filtration.plain import (
    Said,
    best_mean,
    first_unconfident,
    in_order,
    near_the_least,
    plain_outlier,
)
from tests.filtration.small import (
    SPACE,
    TINY,
    Fragile,
    Noisy,
    classifier_of,
    judged,
    marked,
    members_of,
    place,
    places,
    plan_for,
    small_network,
)

FROM = st.sampled_from(["centre", "mean"])


def judged_plainly(photos: Sequence[Image.Image], plan: Plan) -> list[Said]:
    rule = plan.rule
    assert isinstance(rule, Outlier)
    with bound_threads(1):
        return plain_outlier(
            photos, members_of(plan), rule.confidence, rule.min_confidence, TINY.resize, TINY.crop
        )


def expected_places(said: Sequence[Said], plan: Plan) -> list[object]:
    rule = plan.rule
    assert isinstance(rule, Outlier)
    return [first_unconfident(s.p, rule.confidence, rule.min_confidence, plan.order) for s in said]


def assert_plain(result: ChunkResult, said: Sequence[Said], plan: Plan) -> None:
    """Outcome, reason and place of all; of survivors the confusion and its confidence too."""
    assert places(result) == expected_places(said, plan)
    for verdict, s in zip(result.verdicts, said, strict=True):
        assert verdict.p_true is None
        assert (verdict.outcome == "survivor") == s.survives
        if verdict.predicted is not None and not np.isnan(s.p[0, 0]).any():
            assert verdict.predicted == s.predicted
            assert verdict.confidence == pytest.approx(s.confidence, abs=1e-5)


@given(
    seed=st.integers(0, 10_000),
    sharpness=st.sampled_from([0.05, 0.2, 0.6, 2.0]),
    confidence=FROM,
    least=st.one_of(st.sampled_from([0.0, 0.5, 0.9, 0.95, 1.0]), st.floats(0, 1)),
    batch_size=st.integers(1, 9),
    order=st.sampled_from([(0, 1), (1, 0)]),
    margin=st.sampled_from([MARGIN, 0.03, 0.3]),
    some=st.lists(st.integers(0, 19), min_size=1, max_size=8),
)
@settings(max_examples=30, deadline=None)
def test_any_networks_any_batch_size_any_confidence_give_the_plain_verdicts(
    pictures: list[Image.Image],
    seed: int,
    sharpness: float,
    confidence: str,
    least: float,
    batch_size: int,
    order: tuple[int, int],
    margin: float,
    some: list[int],
) -> None:
    """With any margin around the limit too, which sends more or fewer to the canonical pass."""
    networks = [small_network(seed + n, sharpness) for n in range(2)]
    rule = Outlier(confidence, least)  # type: ignore[arg-type]
    plan = plan_for(networks, rule, batch_size=batch_size, order=order)
    photos = [pictures[n] for n in some]
    said = judged_plainly(photos, plan)
    assume(not any(near_the_least(s.p, confidence, least) for s in said))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "MARGIN", margin)
        results = [
            judged(photos, [-1] * len(photos), changed)
            for changed in (plan, replace(plan, complete=True), replace(plan, share_all=True))
        ]
    for result in results:
        assert_plain(result, said, plan)
    for one, two, three in zip(*(r.verdicts for r in results), strict=True):
        if one.outcome == "survivor":
            assert one == two == three


@given(
    seed=st.integers(0, 1000),
    confidence=FROM,
    least=st.sampled_from([0.3, 0.5, 0.8]),
    order=st.sampled_from([(0, 1), (1, 0)]),
    failing=st.lists(
        st.tuples(st.sets(st.integers(0, 9), max_size=2), st.sets(st.integers(0, 9), max_size=2)),
        min_size=1,
        max_size=6,
    ),
)
@example(seed=0, confidence="centre", least=0.0, order=(0, 1), failing=[({5}, {2})])
@settings(max_examples=30, deadline=None)
def test_views_without_a_number_fail_their_image_wherever_they_are(
    pictures: list[Image.Image],
    seed: int,
    confidence: str,
    least: float,
    order: tuple[int, int],
    failing: list[tuple[set[int], set[int]]],
) -> None:
    """Also those that decide nothing: a survivor has ten sound views of every classifier."""
    networks = [classifier_of(Fragile(small_network(seed + n, 0.3).module, n)) for n in range(2)]
    photos = [
        marked(marked(pictures[n], sorted(views[0]), 0), sorted(views[1]), 1)
        for n, views in enumerate(failing)
    ]
    plan = plan_for(networks, Outlier(confidence, least), order=order)  # type: ignore[arg-type]
    said = judged_plainly(photos, plan)
    finite = [np.nan_to_num(s.p) for s in said]
    assume(not any(near_the_least(p, confidence, least) for p in finite))
    for changed in (plan, replace(plan, complete=True), replace(plan, share_all=True)):
        result = judged(photos, [-1] * len(photos), changed)
        assert_plain(result, said, plan)
        for verdict, views in zip(result.verdicts, failing, strict=True):
            assert verdict.outcome != "survivor" or not any(views)


@pytest.mark.parametrize("share_all", [False, True])
@pytest.mark.parametrize(("confidence", "least"), [("centre", 0.7), ("mean", 0.7), ("mean", 0.95)])
def test_nothing_is_computed_beyond_what_decides(
    pictures: list[Image.Image], confidence: str, least: float, share_all: bool
) -> None:
    """Counted from the plain scores: shared views up to the one that decides, then tens."""
    networks = [small_network(n, 0.3) for n in range(2)]
    rule = Outlier(confidence, least)  # type: ignore[arg-type]
    plan = plan_for(networks, rule, share_all=share_all)
    clear = [
        photo
        for photo, s in zip(pictures, judged_plainly(pictures, plan), strict=True)
        if not near_the_least(s.p, confidence, least, 2 * MARGIN)
    ]
    assert len(clear) > 10
    said = judged_plainly(clear, plan)
    shared = [
        (model, view)
        for model, view in in_order([0, 1])
        if view in rule.views and (share_all or view in (0, 2))
    ]
    expected = 0
    for outcome, _, model, view in expected_places(said, plan):  # type: ignore[misc]
        if (model, view) in shared:
            expected += shared.index((model, view)) + 1
        else:
            expected += len(shared) + VIEWS * (2 if outcome == "survivor" else model + 1)
    result = judged(clear, [-1] * len(clear), plan)
    assert result.forwards == expected
    assert len(set(places(result))) > 2
    assert expected < len(clear) * 2 * VIEWS * (1 + share_all)


def test_a_mean_removes_as_soon_as_no_class_can_reach_the_least(
    pictures: list[Image.Image],
) -> None:
    """Ten unsure views need not be seen: after one of p the mean is (p + 9) / 10 at most."""
    plan = plan_for([small_network(4, 0.05)], Outlier("mean", 0.97), share_all=True)
    said = judged_plainly(pictures, plan)
    unsure = [
        photo
        for photo, s in zip(pictures, said, strict=True)
        if s.p[0, 0].max() < 0.7 - 10 * MARGIN
    ]
    assert len(unsure) > 10
    result = judged(unsure, [-1] * len(unsure), plan)
    assert result.forwards == len(unsure)
    assert set(places(result)) == {("removed", "unconfident", 0, 0)}


@pytest.mark.parametrize("one_in", [1, 100])
def test_a_ceiling_knows_each_view_once_and_the_margin_counts_them(
    pictures: list[Image.Image], one_in: int
) -> None:
    """In shared passes too, and where views are looked at again."""
    known: dict[int, list[int]] = {1: [], 2: []}

    class Looks(Outlier):
        def judge_with_margin(self, scores, odds=0.0):  # type: ignore[no-untyped-def]
            # Repeats have no margin in log-odds.
            known[1 if odds else 2].append(int(scores.seen[0]))
            return super().judge_with_margin(scores, odds)

    exact = plan_for([small_network(3, 0.6)], Looks("mean", 0.0))
    quick = replace(
        exact, forwards=[Noisy(exact.classifiers[0], 0.0)], margins=[1e-3], share_all=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cascade, "REPEAT_ONE_IN", one_in)
        judged(pictures[:1], [-1], quick)
    assert known[1] == list(range(1, 11))
    if one_in == 1:
        assert known[2] == [seen for last in range(1, 11) for seen in range(1, last + 1)]


@pytest.mark.parametrize("confidence", ["centre", "mean"])
def test_a_survivor_near_the_limit_is_borderline_and_no_other(
    pictures: list[Image.Image], confidence: str
) -> None:
    networks = [small_network(n, 0.6) for n in range(2)]
    plan = plan_for(networks, Outlier(confidence, 0.0))  # type: ignore[arg-type]
    for photo, s in zip(pictures[:8], judged_plainly(pictures[:8], plan), strict=True):
        reached = [best_mean(p, 9) if confidence == "mean" else p[0].max() for p in s.p]
        for below, flag in ((MARGIN / 2, True), (2 * MARGIN, False)):
            rule = Outlier(confidence, min(reached) - below)  # type: ignore[arg-type]
            other_is_near = abs(max(reached) - rule.min_confidence) <= MARGIN
            verdict = judged([photo], [-1], replace(plan, rule=rule)).verdicts[0]
            assert verdict.outcome == "survivor"
            assert verdict.borderline == (flag or other_is_near)
        rule = Outlier(confidence, min(reached) + MARGIN / 2)  # type: ignore[arg-type]
        removed = judged([photo], [-1], replace(plan, rule=rule, complete=True)).verdicts[0]
        assert (removed.outcome, removed.borderline) == ("removed", True)


def test_a_corner_near_the_limit_makes_nobody_borderline_by_its_centre(
    pictures: list[Image.Image],
) -> None:
    plan = plan_for([small_network(3, 0.2)], Outlier("centre", 0.0))
    survivors = 0
    for photo, s in zip(pictures, judged_plainly(pictures, plan), strict=True):
        least = float(s.p[0, 4].max())
        if s.confidence > least + 2 * MARGIN:
            verdict = judged([photo], [-1], replace(plan, rule=Outlier("centre", least))).verdicts[
                0
            ]
            assert (verdict.outcome, verdict.borderline) == ("survivor", False)
            survivors += 1
    assert survivors > 3


def test_what_a_mean_might_still_have_reached_makes_nobody_borderline(
    pictures: list[Image.Image],
) -> None:
    plan = plan_for([small_network(3, 0.2)], Outlier("mean", 0.0), complete=True)
    far = 0
    for photo, s in zip(pictures, judged_plainly(pictures, plan), strict=True):
        least = best_mean(s.p[0], 3) + MARGIN / 2
        verdict = judged([photo], [-1], replace(plan, rule=Outlier("mean", least))).verdicts[0]
        assert verdict.outcome == "removed"
        assert verdict.borderline == (best_mean(s.p[0], 9) >= least - MARGIN)
        far += not verdict.borderline
    assert far > 10


@given(
    seed=st.integers(0, 1000),
    confidence=FROM,
    order=st.permutations(range(10)),
    batch_size=st.integers(1, 10),
    share_all=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_a_verdict_does_not_depend_on_what_else_is_in_the_chunk(
    pictures: list[Image.Image],
    seed: int,
    confidence: str,
    order: list[int],
    batch_size: int,
    share_all: bool,
) -> None:
    rule = Outlier(confidence, 0.6)  # type: ignore[arg-type]
    plan = plan_for([small_network(seed, 0.3)], rule, batch_size=batch_size, share_all=share_all)
    together = judged(pictures[:10], [-1] * 10, plan).verdicts
    shuffled = judged([pictures[n] for n in order], [-1] * 10, plan).verdicts
    for position, n in enumerate(order):
        assert place(shuffled[position]) == place(together[n])
        if together[n].outcome == "survivor":
            assert shuffled[position] == together[n]


def test_scores_of_a_candidate_without_a_true_class_say_what_it_is_taken_for(
    pictures: list[Image.Image],
) -> None:
    plan = plan_for([small_network(3, 0.6)], Outlier("mean", 0.6), complete=True)
    said = judged_plainly(pictures[:3], plan)
    result = judged(pictures[:3], [-1] * 3, plan)
    rows = result.scores.table(["0", "1", "2"], SPACE.wnids).to_pylist()
    assert len(rows) == 3 * VIEWS
    for row in rows:
        p = said[int(row["candidate"])].p[0]
        assert row["p_true"] is None
        assert row["predicted_wnid"] == SPACE.wnids[p[row["view"]].argmax()]
        assert row["confidence"] == pytest.approx(p[row["view"]].max(), abs=1e-5)
        assert row["ceiling"] == pytest.approx(best_mean(p, row["view"]), abs=1e-5)
    centre = judged(pictures[:3], [-1] * 3, replace(plan, rule=Outlier("centre", 0.6)))
    assert "ceiling" not in centre.scores.table(["0", "1", "2"], SPACE.wnids).column_names
