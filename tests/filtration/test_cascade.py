"""The cascade gives the verdicts of the plain loop, on small real networks and on real photos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from curate.errors import ImageRefused
from curate.filtration import rules
from curate.filtration.cascade import SHARED_VIEWS, VIEWS, judge_chunk
from curate.filtration.rules import Misclassified
from curate.filtration.terms import ChunkResult, Photo, Plan
from curate.images.views import PAPER, ViewRecipe, resize_short_side
from curate.models.classifier import Classifier, Preprocessing
from curate.models.runtime import bound_threads
from tests.filtration.plain import Said, first_decision, near_a_limit, plain_loop
from tests.filtration.small import (
    OUTPUT,
    SPACE,
    TINY,
    Fragile,
    classifier_of,
    judged,
    marked,
    members_of,
    place,
    places,
    plan_for,
    small_network,
)

TINY_SIZES = (TINY.resize, TINY.crop)


def assert_same(result: ChunkResult, said: Sequence[Said]) -> None:
    for verdict, plain in zip(result.verdicts, said, strict=True):
        assert (verdict.outcome == "survivor") == plain.survives
        if plain.survives:
            assert verdict.predicted == plain.predicted
            assert verdict.confidence == pytest.approx(plain.confidence, abs=1e-5)
            assert verdict.p_true == pytest.approx(plain.p_true, abs=1e-5)


@given(
    seed=st.integers(0, 10_000),
    sharpness=st.sampled_from([0.05, 0.2, 0.6]),
    threshold=st.sampled_from([0.0, 0.15, 0.3, 1.0]),
    batch_size=st.integers(1, 9),
    margin=st.sampled_from([rules.MARGIN, 0.03, 0.3]),
    data=st.data(),
)
@settings(max_examples=30, deadline=None)
def test_any_networks_any_batch_size_any_threshold_give_the_plain_verdicts(
    pictures: list[Image.Image],
    seed: int,
    sharpness: float,
    threshold: float,
    batch_size: int,
    margin: float,
    data: st.DataObject,
) -> None:
    """With any margin around the limits too, which sends more or fewer to the canonical pass."""
    networks = [small_network(seed + n, sharpness) for n in range(2)]
    plan = plan_for(networks, Misclassified(threshold), batch_size=batch_size)
    some = data.draw(st.lists(st.sampled_from(range(20)), min_size=1, max_size=8))
    targets = data.draw(st.lists(st.integers(0, 4), min_size=len(some), max_size=len(some)))
    photos = [pictures[n] for n in some]
    with bound_threads(1):
        said = plain_loop(photos, targets, members_of(plan), threshold, *TINY_SIZES)
    for changed in (
        plan,
        replace(plan, order=[1, 0]),
        replace(plan, complete=True),
        replace(plan, share_all=True),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rules, "MARGIN", margin)
            result = judged(photos, targets, changed)
        assert_same(result, said)
        expected = [
            first_decision(s.p, target, threshold, changed.order)
            for s, target in zip(said, targets, strict=True)
        ]
        assert places(result) == expected


@given(seed=st.integers(0, 1000), order=st.permutations(range(12)), batch_size=st.integers(1, 12))
@settings(max_examples=15, deadline=None)
def test_a_verdict_does_not_depend_on_what_else_is_in_the_chunk(
    pictures: list[Image.Image], seed: int, order: list[int], batch_size: int
) -> None:
    plan = plan_for([small_network(seed, 0.1)], Misclassified(0.3), batch_size=batch_size)
    targets = [n % 5 for n in range(12)]
    together = judged(pictures[:12], targets, plan).verdicts
    shuffled = judged([pictures[n] for n in order], [targets[n] for n in order], plan).verdicts
    for position, n in enumerate(order):
        assert place(shuffled[position]) == place(together[n])
        if together[n].outcome == "survivor":
            assert shuffled[position] == together[n]


def test_views_of_the_papers_size_give_the_plain_verdicts(pictures: list[Image.Image]) -> None:
    networks = [small_network(n, 0.1, PAPER) for n in range(2)]
    plan = plan_for(networks, Misclassified(0.3), recipe=PAPER)
    targets = [n % 5 for n in range(10)]
    with bound_threads(1):
        said = plain_loop(pictures[:10], targets, members_of(plan), 0.3)
    result = judged(pictures[:10], targets, plan)
    assert {s.survives for s in said} == {True, False}
    assert_same(result, said)
    expected = [first_decision(s.p, t, 0.3, [0, 1]) for s, t in zip(said, targets, strict=True)]
    assert places(result) == expected


def test_a_rule_that_decides_otherwise_is_found(pictures: list[Image.Image]) -> None:
    """The comparison can fail: a rule that decides the other way round does not pass."""

    class Wrong(Misclassified):
        def judge(self, scores, targets):  # type: ignore[no-untyped-def]
            return np.where(super().judge(scores, targets) == 0, 1, 0)

    plan = plan_for([small_network(3, 0.05)], Misclassified(0.3))
    targets = [n % 5 for n in range(20)]
    said = plain_loop(pictures, targets, members_of(plan), 0.3, *TINY_SIZES)
    assert {s.survives for s in said} == {True, False}
    assert_same(judged(pictures, targets, plan), said)
    with pytest.raises(AssertionError):
        assert_same(judged(pictures, targets, replace(plan, rule=Wrong(0.3))), said)


def test_a_tie_and_a_score_on_the_limit_go_to_the_canonical_pass(
    pictures: list[Image.Image],
) -> None:
    """A network that gives every class the same logit: each view is a tie of all classes."""
    flat = small_network(0, 0.0)
    with torch.no_grad():
        flat.module[5].bias.zero_()
    for target, outcome in ((0, "removed"), (1, "removed"), (4, "removed")):
        plan = plan_for([flat], Misclassified(0.15))
        result = judged(pictures[:3], [target] * 3, plan)
        assert [v.outcome for v in result.verdicts] == [outcome] * 3
        assert all(v.borderline for v in result.verdicts)
        assert result.forwards == 3 * (1 + VIEWS)
    result = judged(pictures[:1], [1], plan_for([flat], Misclassified(0.2)))
    assert result.verdicts[0].outcome == "survivor"
    assert result.verdicts[0].borderline


@given(
    seed=st.integers(0, 1000),
    failing=st.lists(
        st.tuples(st.sets(st.integers(0, 9), max_size=2), st.sets(st.integers(0, 9), max_size=2)),
        min_size=1,
        max_size=6,
    ),
)
@settings(max_examples=30, deadline=None)
def test_views_without_a_number_fail_their_image_where_they_decide_and_no_other(
    pictures: list[Image.Image], seed: int, failing: list[tuple[set[int], set[int]]]
) -> None:
    networks = [classifier_of(Fragile(small_network(seed + n, 0.1).module, n)) for n in range(2)]
    photos = [
        marked(marked(pictures[n], sorted(views[0]), 0), sorted(views[1]), 1)
        for n, views in enumerate(failing)
    ]
    targets = [n % 5 for n in range(len(photos))]
    plan = plan_for(networks, Misclassified(0.3))
    with bound_threads(1):
        said = plain_loop(photos, targets, members_of(plan), 0.3, *TINY_SIZES)
    for s, views in zip(said, failing, strict=True):
        lost = np.isnan(s.p).any(axis=2)
        assert [set(np.flatnonzero(of_one)) for of_one in lost] == list(views)
    expected = [first_decision(s.p, t, 0.3, [0, 1]) for s, t in zip(said, targets, strict=True)]
    for changed in (plan, replace(plan, complete=True), replace(plan, share_all=True)):
        result = judged(photos, targets, changed)
        assert places(result) == expected
        for verdict, views in zip(result.verdicts, failing, strict=True):
            assert verdict.outcome != "survivor" or not any(views)


def test_an_image_that_cannot_be_used_fails_and_the_chunk_goes_on(
    pictures: list[Image.Image],
) -> None:
    plan = plan_for([small_network(3, 0.05)], Misclassified(0.3))
    photos: list[Photo | ImageRefused] = [
        Photo({TINY: resize_short_side(p, TINY)}) for p in pictures[:3]
    ]
    photos.insert(1, ImageRefused("altered"))
    with bound_threads(1):
        result = judge_chunk(photos, [0, 0, 1, 2], plan)
    assert (result.verdicts[1].outcome, result.verdicts[1].reason) == ("failed", "altered")
    assert all(v.outcome != "failed" for n, v in enumerate(result.verdicts) if n != 1)


def test_an_image_leaves_at_the_first_view_that_decides(pictures: list[Image.Image]) -> None:
    plan = plan_for([small_network(3, 5.0)], Misclassified(0.15))
    said = plain_loop(pictures, [0] * 20, members_of(plan), 0.15, *TINY_SIZES)
    easy = {n: s.predicted for n, s in enumerate(said) if s.confidence > 0.6}
    assert len(easy) >= 10
    result = judged([pictures[n] for n in easy], list(easy.values()), plan)
    assert result.forwards == len(easy)
    assert {(v.outcome, v.reason, v.view) for v in result.verdicts} == {("removed", "correct", 0)}


@pytest.mark.parametrize("share_all", [False, True])
def test_nothing_is_computed_beyond_what_decides(
    pictures: list[Image.Image], share_all: bool
) -> None:
    """Counted from the plain scores: shared views up to the one that decides, then tens."""
    plan = plan_for([small_network(n, 0.05) for n in range(2)], Misclassified(0.3))
    every = range(len(pictures))
    all_said = plain_loop(pictures, [n % 5 for n in every], members_of(plan), 0.3, *TINY_SIZES)
    clear = [n for n in every if not near_a_limit(all_said[n], n % 5, 0.3)]
    targets, said = [n % 5 for n in clear], [all_said[n] for n in clear]
    order = [(m, v) for v in SHARED_VIEWS for m in (0, 1)]
    rest = [(m, v) for m in (0, 1) for v in range(VIEWS) if v not in SHARED_VIEWS]
    expected = 0
    for s, target in zip(said, targets, strict=True):
        outcome, _, model, view = first_decision(s.p, target, 0.3, [0, 1])
        shared = order + rest if share_all else order
        if (model, view) in shared:
            expected += shared.index((model, view)) + 1  # type: ignore[arg-type]
        else:
            expected += len(shared) + VIEWS * (2 if outcome == "survivor" else model + 1)  # type: ignore[operator]
    result = judged([pictures[n] for n in clear], targets, replace(plan, share_all=share_all))
    assert result.forwards == expected
    assert len({place(v) for v in result.verdicts}) > 4


def test_complete_scores_hold_every_view_and_the_cascade_a_part_of_them(
    pictures: list[Image.Image],
) -> None:
    plan = plan_for([small_network(3, 0.2), small_network(4, 0.2)], Misclassified(0.3))
    targets = [n % 5 for n in range(20)]
    keys = [f"{n:02}" for n in range(20)]
    complete = judged(pictures, targets, replace(plan, complete=True, keep_logits=True))
    table = complete.scores.table(keys, SPACE.wnids)
    assert len(table) == complete.forwards == 20 * 2 * VIEWS
    assert table["exact"].to_pylist() == [True] * len(table)
    assert {len(row) for row in table["logits"].to_pylist()} == {8}
    order = list(zip(*(table[c].to_pylist() for c in ("candidate", "model", "view")), strict=True))
    assert order == sorted(order)
    said = plain_loop(pictures, targets, members_of(plan), 0.3, *TINY_SIZES)
    by_place = dict(zip(order, table["p_true"].to_pylist(), strict=True))
    for (key, model, view), p_true in by_place.items():
        assert p_true == pytest.approx(said[int(key)].p[model, view, targets[int(key)]], abs=1e-5)
    part = judged(pictures, targets, plan).scores.table(keys, SPACE.wnids)
    assert 0 < len(part) < len(table)
    assert set(part["odds_margin"].to_pylist()) == {0.0}
    for row in part.to_pylist():
        full = by_place[row["candidate"], row["model"], row["view"]]
        assert row["p_true"] == pytest.approx(full, abs=1e-5)
        if row["exact"]:
            assert row["p_true"] == full


def test_native_views_are_cut_for_each_classifier(pictures: list[Image.Image]) -> None:
    sizes: list[int] = []

    class Looks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.nn.Linear(3, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sizes.append(x.shape[-1])
            return self.last(x.mean(dim=(2, 3)))

    recipes = [ViewRecipe(64, 56, "bilinear"), ViewRecipe(80, 80, "bicubic")]
    networks = [
        Classifier(
            name=f"looks/{n}",
            architecture="looks",
            module=Looks(),
            output=OUTPUT,
            preprocessing=Preprocessing(recipe, (0.5,) * 3, (0.25,) * 3, "test"),  # type: ignore[arg-type]
        )
        for n, recipe in enumerate(recipes)
    ]
    plan = replace(plan_for(networks, Misclassified(1.0)), recipes=recipes, complete=True)
    judged(pictures[:1], [0], plan)
    assert sizes == [56] * 10 + [80] * 10


def test_what_low_precision_did_is_nothing_where_all_is_exact(pictures: list[Image.Image]) -> None:
    plan: Plan = plan_for([small_network(3, 0.05)], Misclassified(0.3))
    counts = judged(pictures, [0] * 20, plan).counts
    assert (counts.quick, counts.again, counts.repeated, counts.flips) == (0, 0, 0, 0)
