"""The cascade gives the verdicts of the plain loop, on small real networks and on real photos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from curate.errors import ImageRefused
from curate.filtration.caps import Survivor, shortlist
from curate.filtration.cascade import (
    SHARED_VIEWS,
    VIEWS,
    ChunkResult,
    Photo,
    Plan,
    judge_chunk,
)
from curate.filtration.rules import Misclassified
from curate.images.views import PAPER, ViewRecipe, resize_short_side
from curate.labels.classes import LabelClass
from curate.labels.space import LabelSpace
from curate.models.classifier import Classifier, Preprocessing
from curate.models.runtime import bound_threads
from tests.filtration.plain import Member, Said, near_a_limit, plain_loop

SPACE = LabelSpace("five", tuple(LabelClass(f"c{n}", f"class {n}", column=n) for n in range(5)))
OTHER = LabelSpace("eight", tuple(LabelClass(f"c{n}", f"class {n}", column=n) for n in range(8)))


def small_network(seed: int, sharpness: float) -> Classifier:
    """A real network whose answers differ from view to view."""
    generator = torch.Generator().manual_seed(seed)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 16, stride=16),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.AdaptiveMaxPool2d(3),
        torch.nn.Flatten(),
        torch.nn.Linear(72, 8),
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
        module[5].weight.mul_(sharpness)
    return Classifier(
        name=f"small/{seed}",
        architecture="small",
        module=module,
        output=OTHER,
        preprocessing=Preprocessing(PAPER, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), "test"),
    )


def plan_for(classifiers: Sequence[Classifier], space: LabelSpace, threshold: float) -> Plan:
    return Plan(
        classifiers=classifiers,
        columns=[np.asarray(c.columns(space)) for c in classifiers],
        recipes=[PAPER] * len(classifiers),
        order=range(len(classifiers)),
        rule=Misclassified(threshold),
    )


def members_of(plan: Plan) -> list[Member]:
    return [
        Member(c.module, c.preprocessing.mean, c.preprocessing.std, columns)
        for c, columns in zip(plan.classifiers, plan.columns, strict=True)
    ]


def judged(photos: Sequence[Image.Image], targets: Sequence[int], plan: Plan) -> ChunkResult:
    with bound_threads(1):
        return judge_chunk(
            [Photo({PAPER: resize_short_side(photo, PAPER)}) for photo in photos], targets, plan
        )


def assert_same(result: ChunkResult, said: Sequence[Said]) -> None:
    for verdict, plain in zip(result.verdicts, said, strict=True):
        assert (verdict.outcome == "survivor") == plain.survives
        if plain.survives:
            assert verdict.predicted == plain.predicted
            assert verdict.confidence == pytest.approx(plain.confidence, abs=1e-5)
            assert verdict.p_true == pytest.approx(plain.p_true, abs=1e-5)


def first_decisions(said: Sequence[Said], targets: Sequence[int], plan: Plan) -> list[object]:
    """Where the plain scores first decide, in the cascade's order."""
    threshold = plan.rule.threshold
    order = [(m, v) for v in SHARED_VIEWS for m in plan.order]
    order += [(m, v) for m in plan.order for v in range(VIEWS) if v not in SHARED_VIEWS]
    told: list[object] = []
    for plain, target in zip(said, targets, strict=True):
        place: object = ("survivor", None, None, None)
        for model, view in reversed(order):
            p = plain.p[model, view]
            if p.argmax() == target:
                place = ("removed", "correct", model, view)
            elif p[target] > threshold:
                place = ("removed", "threshold", model, view)
        told.append(place)
    return told


@pytest.fixture(scope="module")
def pictures(package_photos: list[tuple[Path, int]]) -> list[Image.Image]:
    photos = [Image.open(path).convert("RGB") for path, _ in package_photos]
    # Wide, tall and odd sizes, so that corners and centre differ.
    return [p.crop((0, 0, 180 + 4 * n, 224 - 5 * n)) for n, p in enumerate(photos)]


@given(
    seed=st.integers(0, 10_000),
    sharpness=st.sampled_from([0.05, 0.2, 0.6]),
    threshold=st.sampled_from([0.0, 0.15, 0.3, 1.0]),
    batch_size=st.integers(1, 9),
    data=st.data(),
)
@settings(max_examples=12, deadline=None)
def test_any_networks_any_batch_size_any_threshold_give_the_plain_verdicts(
    pictures: list[Image.Image],
    seed: int,
    sharpness: float,
    threshold: float,
    batch_size: int,
    data: st.DataObject,
) -> None:
    networks = [small_network(seed + n, sharpness) for n in range(2)]
    plan = replace(plan_for(networks, SPACE, threshold), batch_size=batch_size)
    some = data.draw(st.lists(st.sampled_from(range(20)), min_size=1, max_size=8))
    targets = data.draw(st.lists(st.integers(0, 4), min_size=len(some), max_size=len(some)))
    photos = [pictures[n] for n in some]
    with bound_threads(1):
        said = plain_loop(photos, targets, members_of(plan), threshold)
    for changed in (plan, replace(plan, order=[1, 0]), replace(plan, complete=True)):
        result = judged(photos, targets, changed)
        assert_same(result, said)
        if changed.order == plan.order:
            places = [(v.outcome, v.reason, v.model, v.view) for v in result.verdicts]
            assert places == first_decisions(said, targets, plan)
        assert result.forwards <= len(photos) * 2 * VIEWS + len(photos) * 6


@given(seed=st.integers(0, 1000), order=st.permutations(range(12)), batch_size=st.integers(1, 12))
@settings(max_examples=8, deadline=None)
def test_a_verdict_does_not_depend_on_what_else_is_in_the_chunk(
    pictures: list[Image.Image], seed: int, order: list[int], batch_size: int
) -> None:
    plan = replace(plan_for([small_network(seed, 0.1)], SPACE, 0.3), batch_size=batch_size)
    targets = [n % 5 for n in range(12)]
    together = judged(pictures[:12], targets, plan).verdicts
    shuffled = judged([pictures[n] for n in order], [targets[n] for n in order], plan).verdicts
    for place, n in enumerate(order):
        assert shuffled[place].outcome == together[n].outcome
        if together[n].outcome == "survivor":
            assert shuffled[place] == together[n]


def test_a_planted_fault_in_the_margin_is_found(pictures: list[Image.Image]) -> None:
    """The comparison can fail: a rule that decides the other way round does not pass."""

    class Wrong(Misclassified):
        def judge(self, scores, targets):  # type: ignore[no-untyped-def]
            return np.where(super().judge(scores, targets) == 0, 1, 0)

    plan = plan_for([small_network(3, 0.05)], SPACE, 0.3)
    targets = [n % 5 for n in range(20)]
    said = plain_loop(pictures, targets, members_of(plan), 0.3)
    assert any(s.survives for s in said)
    assert not all(s.survives for s in said)
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
        plan = plan_for([flat], SPACE, 0.15)
        result = judged(pictures[:3], [target] * 3, plan)
        assert [v.outcome for v in result.verdicts] == [outcome] * 3
        assert all(v.borderline for v in result.verdicts)
        assert result.forwards == 3 * (1 + VIEWS)
    result = judged(pictures[:1], [1], plan_for([flat], SPACE, 0.2))
    assert result.verdicts[0].outcome == "survivor"
    assert result.verdicts[0].borderline


def test_a_network_that_gives_no_number_fails_its_image_and_no_other(
    pictures: list[Image.Image],
) -> None:
    network = small_network(3, 0.05)

    class Fragile(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = network.module(x)
            out[x.amax(dim=(1, 2, 3)) < 0] = float("nan")
            return out

    fragile = Classifier(
        name="fragile",
        architecture="small",
        module=Fragile(),
        output=OTHER,
        preprocessing=network.preprocessing,
    )
    photos = [*pictures[:5], Image.new("RGB", (300, 300), (3, 3, 3))]
    targets = [n % 5 for n in range(6)]
    sound = judged(photos[:5], targets[:5], plan_for([network], SPACE, 0.3))
    result = judged(photos, targets, plan_for([fragile], SPACE, 0.3))
    assert [v.outcome for v in result.verdicts[:5]] == [v.outcome for v in sound.verdicts]
    assert (result.verdicts[5].outcome, result.verdicts[5].reason) == ("failed", "nan-logits")
    complete = judged(photos, targets, replace(plan_for([fragile], SPACE, 0.3), complete=True))
    assert complete.verdicts[5].reason == "nan-logits"


def test_an_image_that_cannot_be_used_fails_and_the_chunk_goes_on(
    pictures: list[Image.Image],
) -> None:
    plan = plan_for([small_network(3, 0.05)], SPACE, 0.3)
    photos: list[Photo | ImageRefused] = [
        Photo({PAPER: resize_short_side(p, PAPER)}) for p in pictures[:3]
    ]
    photos.insert(1, ImageRefused("altered"))
    with bound_threads(1):
        result = judge_chunk(photos, [0, 0, 1, 2], plan)
    assert (result.verdicts[1].outcome, result.verdicts[1].reason) == ("failed", "altered")
    assert all(v.outcome != "failed" for n, v in enumerate(result.verdicts) if n != 1)


def test_an_image_leaves_at_the_first_view_that_decides(pictures: list[Image.Image]) -> None:
    plan = plan_for([small_network(3, 5.0)], SPACE, 0.15)
    said = plain_loop(pictures, [0] * 20, members_of(plan), 0.15)
    easy = {n: s.predicted for n, s in enumerate(said) if s.confidence > 0.6}
    assert len(easy) >= 10
    result = judged([pictures[n] for n in easy], list(easy.values()), plan)
    assert result.forwards == len(easy)
    assert {(v.outcome, v.reason, v.view) for v in result.verdicts} == {("removed", "correct", 0)}


def test_complete_scores_hold_every_view_and_the_cascade_a_part_of_them(
    pictures: list[Image.Image],
) -> None:
    plan = plan_for([small_network(3, 0.2), small_network(4, 0.2)], SPACE, 0.3)
    targets = [n % 5 for n in range(20)]
    keys = [f"{n:02}" for n in range(20)]
    complete = judged(pictures, targets, replace(plan, complete=True, keep_logits=True))
    table = complete.scores.table(keys, SPACE.wnids)
    assert len(table) == complete.forwards == 20 * 2 * VIEWS
    assert table["exact"].to_pylist() == [True] * len(table)
    assert {len(row) for row in table["logits"].to_pylist()} == {8}
    order = list(zip(*(table[c].to_pylist() for c in ("candidate", "model", "view")), strict=True))
    assert order == sorted(order)
    said = plain_loop(pictures, targets, members_of(plan), 0.3)
    by_place = dict(zip(order, table["p_true"].to_pylist(), strict=True))
    for (key, model, view), p_true in by_place.items():
        assert p_true == pytest.approx(said[int(key)].p[model, view, targets[int(key)]], abs=1e-5)
    part = judged(pictures, targets, plan).scores.table(keys, SPACE.wnids)
    assert 0 < len(part) < len(table)
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
            output=OTHER,
            preprocessing=Preprocessing(recipe, (0.5,) * 3, (0.25,) * 3, "test"),  # type: ignore[arg-type]
        )
        for n, recipe in enumerate(recipes)
    ]
    plan = replace(plan_for(networks, SPACE, 1.0), recipes=recipes, complete=True)
    resized = {recipe: resize_short_side(pictures[0], recipe) for recipe in recipes}
    with bound_threads(1):
        judge_chunk([Photo(resized)], [0], plan)
    assert sizes == [56, 80]


@pytest.fixture(scope="module")
def lite_plan() -> Plan:
    from curate.filtration.plan import make_plan
    from curate.labels.space import load_label_space
    from curate.models.ensemble import Ensemble

    ensemble = Ensemble(["lite/efficientnet_lite0", "lite/efficientnet_lite1"])
    return make_plan(ensemble, load_label_space("imagenet-1k"), Misclassified(0.15))


@pytest.mark.slow
def test_real_classifiers_on_package_photos_give_the_plain_verdicts(
    package_photos: list[tuple[Path, int]], lite_plan: Plan
) -> None:
    """True labels, and wrong ones, so that there are survivors."""
    photos = [Image.open(path).convert("RGB") for path, _ in package_photos]
    indices = [index for _, index in package_photos]
    right, wrong = range(8), range(8, 16)
    pairs = [(photos[n], indices[n]) for n in right] + [(photos[n], indices[n - 7]) for n in wrong]
    result = judged([p for p, _ in pairs], [t for _, t in pairs], lite_plan)
    with bound_threads(1):
        said = plain_loop([p for p, _ in pairs], [t for _, t in pairs], members_of(lite_plan), 0.15)
    assert sum(s.survives for s in said) >= 6
    assert not any(near_a_limit(s, t, 0.15, 1e-5) for s, (_, t) in zip(said, pairs, strict=True))
    assert_same(result, said)
    assert shortlist_of(result, [t for _, t in pairs]) == shortlist_of_plain(
        said, [t for _, t in pairs]
    )


def shortlist_of(result: ChunkResult, targets: Sequence[int]) -> list[str]:
    found = [
        Survivor(f"{n:03}", str(targets[n]), str(v.predicted), float(v.confidence or 0), n)
        for n, v in enumerate(result.verdicts)
        if v.outcome == "survivor"
    ]
    return [s.key for s in shortlist(found, 15)]


def shortlist_of_plain(said: Sequence[Said], targets: Sequence[int]) -> list[str]:
    found = [
        Survivor(f"{n:03}", str(targets[n]), str(s.predicted), s.confidence, n)
        for n, s in enumerate(said)
        if s.survives
    ]
    return [s.key for s in shortlist(found, 15)]
