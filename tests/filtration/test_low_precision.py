"""Low precision decides what fp32 would have decided, or leaves it to fp32, or tells its flips."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from curate.filtration import cascade
from curate.filtration.cascade import VIEWS
from curate.filtration.margins import largest_error, with_margins
from curate.filtration.rules import Misclassified, Outlier, Rule
from curate.filtration.terms import Counts, Photo, Plan
from curate.images.views import resize_short_side, ten_views
from curate.models.runtime import bound_threads
from tests.filtration.plain import (
    Place,
    first_decision,
    first_unconfident,
    near_the_least,
    plain_scores,
)
from tests.filtration.small import (
    SPACE,
    TINY,
    Broken,
    Fragile,
    Noisy,
    Pushes,
    assert_one_verdict,
    classifier_of,
    judged,
    marked,
    members_of,
    places,
    plan_for,
    small_network,
)

RULES = st.one_of(
    st.builds(Misclassified, st.sampled_from([0.0, 0.15, 0.3, 1.0])),
    st.builds(Outlier, st.sampled_from(["centre", "mean"]), st.sampled_from([0.5, 0.7, 0.95])),
)
EACH_RULE = pytest.mark.parametrize(
    "rule", [Misclassified(0.3), Outlier("centre", 0.7), Outlier("mean", 0.7)], ids=str
)


def targets_for(rule: Rule, count: int) -> list[int]:
    return [n % 5 if isinstance(rule, Misclassified) else -1 for n in range(count)]


def noisy(plan: Plan, size: float, margin: float, precision: str = "bf16", **changes: Any) -> Plan:
    """The plan with forwards whose log-odds are off by up to twice the size."""
    return replace(
        plan,
        forwards=[Noisy(c, size, plan.again_size, precision) for c in plan.classifiers],
        margins=[margin] * len(plan.classifiers),
        **changes,
    )


def covering(size: float) -> float:
    """A margin that covers the noise of that size, and what batches do to the last bits."""
    return 2 * size + 1e-4


def shared_views(plan: Plan) -> int:
    return sum(forward.seen for forward in plan.forwards)  # type: ignore[attr-defined]


def expected_places(
    photos: Sequence[Image.Image], targets: Sequence[int], plan: Plan
) -> list[Place]:
    """Those of the plain loop."""
    with bound_threads(1):
        found = plain_scores(photos, members_of(plan), TINY.resize, TINY.crop)
    rule = plan.rule
    if isinstance(rule, Misclassified):
        return [
            first_decision(p, target, rule.threshold, plan.order)
            for p, target in zip(found, targets, strict=True)
        ]
    assert isinstance(rule, Outlier)
    assume(not any(near_the_least(p, rule.confidence, rule.min_confidence) for p in found))
    return [first_unconfident(p, rule.confidence, rule.min_confidence, plan.order) for p in found]


@given(
    rule=RULES,
    seed=st.integers(0, 10_000),
    sharpness=st.sampled_from([0.05, 0.2, 0.6, 2.0]),
    size=st.sampled_from([0.001, 0.01, 0.1, 0.5, 2.0]),
    precision=st.sampled_from(["fp32", "bf16"]),
    wider=st.sampled_from([1.0, 2.0, 10.0]),
    batch_size=st.integers(1, 9),
    again_size=st.integers(1, 9),
    order=st.sampled_from([(0, 1), (1, 0)]),
    share_all=st.booleans(),
    one_in=st.sampled_from([1, 2, 100]),
    some=st.lists(st.integers(0, 19), min_size=1, max_size=8),
)
@settings(max_examples=30, deadline=None)
def test_a_margin_that_covers_the_noise_gives_the_verdicts_of_fp32_and_of_the_plain_loop(
    pictures: list[Image.Image],
    rule: Rule,
    seed: int,
    sharpness: float,
    size: float,
    precision: str,
    wider: float,
    batch_size: int,
    again_size: int,
    order: tuple[int, int],
    share_all: bool,
    one_in: int,
    some: list[int],
) -> None:
    photos, targets = [pictures[n] for n in some], targets_for(rule, len(some))
    networks = [small_network(seed + n, sharpness) for n in range(2)]
    exact = plan_for(networks, rule, batch_size=batch_size, order=order)
    expected = expected_places(photos, targets, exact)
    quick = noisy(exact, size, covering(size) * wider, precision, share_all=share_all)
    quick = replace(quick, again_size=again_size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cascade, "REPEAT_ONE_IN", one_in)
        result = judged(photos, targets, quick)
    assert places(result) == expected
    assert_one_verdict(result, judged(photos, targets, exact))
    counts = result.counts
    assert counts.quick + counts.again == shared_views(quick)
    assert counts.flips == 0
    assert counts.repeated == counts.quick if one_in == 1 else counts.repeated <= counts.quick


@EACH_RULE
def test_one_exact_classifier_beside_one_of_low_precision_is_not_counted(
    pictures: list[Image.Image], rule: Rule
) -> None:
    """As where one network of the ensemble runs by another runtime and one does not."""
    exact = plan_for([small_network(n, 0.1) for n in range(2)], rule)
    forward = Noisy(exact.classifiers[1], 0.2)
    mixed = replace(exact, forwards=[exact.forwards[0], forward], margins=[0.0, covering(0.2)])
    targets = targets_for(rule, 20)
    result = judged(pictures, targets, mixed)
    assert_one_verdict(result, judged(pictures, targets, exact))
    assert result.counts.quick + result.counts.again == forward.seen
    assert result.counts.quick > 0


@EACH_RULE
def test_weights_rounded_to_bf16_give_the_verdicts_of_fp32(
    pictures: list[Image.Image], rule: Rule
) -> None:
    """Real rounding: the margin is the largest error over all views, found by plain arithmetic."""
    exact = plan_for([small_network(n, 0.3) for n in range(2)], rule)
    resized = [resize_short_side(photo, TINY) for photo in pictures]
    every = np.concatenate([ten_views(pixels, TINY.crop) for pixels in resized])
    forwards, margins = [], []
    for classifier in exact.classifiers:
        module = copy.deepcopy(classifier.module)
        for parameter in module.parameters():
            parameter.data = parameter.data.bfloat16().float()
        rounded = Noisy(classifier_of(module), 0.0)
        forwards.append(rounded)
        off = (rounded.logits(every) - classifier.logits(every).numpy())[:, :5]
        margins.append(float((off.max(axis=1) - off.min(axis=1)).max()) + 1e-4)
        rounded.seen = 0
    assert min(margins) > 0.005
    quick = replace(exact, forwards=forwards, margins=margins, share_all=True)
    targets = targets_for(rule, 20)
    result = judged(pictures, targets, quick)
    assert_one_verdict(result, judged(pictures, targets, exact))
    assert result.counts.again > 0
    assert result.counts.quick > 3 * result.counts.again
    # Centre views alone show less than all views do, and never more.
    photos = [Photo({TINY: pixels}) for pixels in resized]
    for model, margin in enumerate(margins):
        assert 0 < largest_error(quick, photos, model) < margin


@EACH_RULE
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_autocast_with_the_margin_that_its_own_photos_show_gives_the_verdicts_of_fp32(
    pictures: list[Image.Image], rule: Rule, precision: str
) -> None:
    from curate.models.forwards import make_forward

    exact = plan_for([small_network(n, 0.3) for n in range(2)], rule)
    forwards = [make_forward(c, "torch", precision, TINY.crop) for c in exact.classifiers]
    photos = [Photo({TINY: resize_short_side(picture, TINY)}) for picture in pictures]
    with bound_threads(1):
        quick = with_margins(replace(exact, forwards=forwards, share_all=True), photos)
    assert min(quick.margins) > 2e-3
    targets = targets_for(rule, 20)
    result = judged(pictures, targets, quick)
    assert_one_verdict(result, judged(pictures, targets, exact))
    assert result.counts.flips == 0
    assert result.counts.quick > result.counts.again


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [
        ("onnx", "fp32"),
        pytest.param(("compile", "bf16"), marks=pytest.mark.thorough),
        pytest.param(("compile", "fp32"), marks=pytest.mark.thorough),
    ],
    ids="-".join,
)
def test_other_ways_to_run_a_network_give_the_verdicts_of_fp32(
    pictures: list[Image.Image],
    way: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from curate.models.forwards import make_forward

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    classifiers = [small_network(n, 0.3) for n in range(2)]
    forwards = [make_forward(c, *way, TINY.crop) for c in classifiers]
    photos = [Photo({TINY: resize_short_side(picture, TINY)}) for picture in pictures]
    for rule in (Misclassified(0.3), Outlier("centre", 0.7), Outlier("mean", 0.7)):
        exact = plan_for(classifiers, rule)
        with bound_threads(1):
            quick = with_margins(replace(exact, forwards=forwards, share_all=True), photos)
        targets = targets_for(rule, 20)
        result = judged(pictures, targets, quick)
        assert_one_verdict(result, judged(pictures, targets, exact))
        assert result.counts.flips == 0
        assert result.counts.quick > result.counts.again


@EACH_RULE
def test_a_margin_that_is_too_narrow_is_told_by_flips(
    pictures: list[Image.Image], rule: Rule
) -> None:
    """By the decisions that are repeated, the same ones for the same seed."""
    exact = plan_for([small_network(n, 0.1) for n in range(2)], rule)
    targets = targets_for(rule, 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cascade, "REPEAT_ONE_IN", 2)
        # By far too narrow: the noise decides.
        told = [
            judged(pictures, targets, noisy(exact, 3.0, 1e-4, share_all=True, seed=seed)).counts
            for seed in (0, 0, 1)
        ]
        assert told[0] == told[1] != told[2]
        assert all(counts.flips > 0 for counts in told)
        assert all(0 < counts.repeated < counts.quick for counts in told)
        wide = judged(pictures, targets, noisy(exact, 3.0, covering(3.0), share_all=True))
    assert wide.counts.flips == 0
    assert_one_verdict(wide, judged(pictures, targets, exact))


@EACH_RULE
def test_a_view_let_pass_that_fp32_would_not_is_a_flip_though_it_was_not_repeated(
    pictures: list[Image.Image], rule: Rule
) -> None:
    """What seems to survive passes the canonical ten: each flip on the way there is told."""
    exact = plan_for([small_network(n, 0.1) for n in range(2)], rule)
    targets = [1 + n % 4 if target >= 0 else -1 for n, target in enumerate(targets_for(rule, 20))]
    sound = judged(pictures, targets, exact)
    # So sure of class 0 that nobody is removed.
    blind = [Pushes(classifier, 0, 1000.0) for classifier in exact.classifiers]
    plan = replace(exact, forwards=blind, margins=[1e-4, 1e-4], share_all=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cascade, "REPEAT_ONE_IN", 10**18)
        result = judged(pictures, targets, plan)
    assert result.counts.repeated == result.counts.again == 0
    assert result.counts.flips == sum(v.outcome == "removed" for v in sound.verdicts) > 0
    assert_one_verdict(result, sound)


def test_one_decision_in_a_hundred_is_repeated_whatever_the_chunk(
    pictures: list[Image.Image],
) -> None:
    exact = plan_for([small_network(n, 0.05) for n in range(2)], Misclassified(0.3))
    total = Counts()
    for seed in range(20):
        plan = noisy(exact, 0.001, covering(0.001), share_all=True, seed=seed)
        total += judged(pictures, targets_for(plan.rule, 20), plan).counts
    assert total.quick > 1000
    assert 0.003 < total.repeated / total.quick < 0.02


def test_a_repeated_decision_near_the_limit_in_fp32_is_no_flip(pictures: list[Image.Image]) -> None:
    """Low precision decides beyond its margin of the limit, fp32 is within its own: both are right.

    The canonical pass says who is, and says nothing against low precision.
    """
    classifier = small_network(3, 0.1)
    plan = plan_for([classifier], Misclassified(0.3))
    with bound_threads(1):
        p = plain_scores(pictures, members_of(plan), TINY.resize, TINY.crop)
    # A photo that leaves by the threshold at its centre, and a limit just below it.
    n, target, p_true = next(
        (n, target, of_one[0, 0, target])
        for n, of_one in enumerate(p)
        for target in range(5)
        if 0.2 < of_one[0, 0, target] < of_one[0, 0].max() - 0.1
    )

    rule = Misclassified(float(p_true) - 0.0009)
    plan = replace(plan, rule=rule, forwards=[Pushes(classifier, target, 0.004)], margins=[0.0041])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cascade, "REPEAT_ONE_IN", 1)
        result = judged([pictures[n]], [target], plan)
    assert (result.counts.quick, result.counts.repeated, result.counts.flips) == (1, 1, 0)
    assert places(result) == [("removed", "threshold", 0, 0)]
    assert result.verdicts[0].borderline


@given(
    rule=RULES,
    seed=st.integers(0, 1000),
    every=st.sampled_from([1, 2, 3, 5]),
    value=st.sampled_from([float("nan"), float("inf"), float("-inf")]),
    some=st.lists(st.integers(0, 19), min_size=1, max_size=8),
)
@settings(max_examples=30, deadline=None)
def test_a_forward_that_overflows_is_looked_at_again_and_fails_nobody(
    pictures: list[Image.Image], rule: Rule, seed: int, every: int, value: float, some: list[int]
) -> None:
    photos, targets = [pictures[n] for n in some], targets_for(rule, len(some))
    networks = [small_network(seed + n, 0.3) for n in range(2)]
    exact = plan_for(networks, rule)
    expected = expected_places(photos, targets, exact)
    broken = [Broken(c, every, value) for c in networks]
    quick = replace(exact, forwards=broken, margins=[1e-3, 1e-3], share_all=True)
    result = judged(photos, targets, quick)
    assert places(result) == expected
    assert_one_verdict(result, judged(photos, targets, exact))
    assert result.counts.again >= sum(forward.broken for forward in broken)
    assert result.counts.quick + result.counts.again == shared_views(quick)
    assert result.counts.flips == 0


@EACH_RULE
def test_a_view_without_a_number_in_fp32_fails_its_image_though_low_precision_had_one(
    pictures: list[Image.Image], rule: Rule
) -> None:
    sound = small_network(3, 0.3)
    fragile = classifier_of(Fragile(sound.module, 0))
    exact = plan_for([sound], rule)
    targets = targets_for(rule, 20)
    survivors = [
        n
        for n, v in enumerate(judged(pictures, targets, exact).verdicts)
        if v.outcome == "survivor"
    ]
    assert survivors
    photos = [marked(pictures[n], [7], 0) for n in survivors]
    targets = [targets[n] for n in survivors]
    quick = replace(
        plan_for([fragile], rule, share_all=True), forwards=[Noisy(sound, 0.0)], margins=[1e-3]
    )
    for verdict in judged(photos, targets, quick).verdicts:
        assert verdict.outcome != "survivor"
    assert ("failed", "nan-logits", 0, 7) in places(judged(photos, targets, quick))


def test_a_class_that_leads_by_less_than_the_margin_is_not_named_by_low_precision(
    pictures: list[Image.Image],
) -> None:
    """A removed candidate's confusion is what fp32 says too, whatever removes it."""

    class Swaps(Noisy):
        """Gives the two best classes each other's logits: the worst within their distance."""

        def logits(self, views: np.ndarray | torch.Tensor) -> np.ndarray:
            logits = super().logits(views)
            order = np.argsort(logits[:, :5], axis=1)
            rows = np.arange(len(logits))
            best, next_best = order[:, -1], order[:, -2]
            logits[rows, best], logits[rows, next_best] = (
                logits[rows, next_best].copy(),
                logits[rows, best].copy(),
            )
            return logits

    rule = Outlier("centre", 0.999999)
    exact = plan_for([small_network(3, 0.05)], rule)
    with bound_threads(1):
        p = plain_scores(pictures, members_of(exact), TINY.resize, TINY.crop)
    leads = [np.diff(np.log(np.sort(of_one[0, 0])[-2:]))[0] for of_one in p]
    close = [n for n, lead in enumerate(leads) if lead < 0.5]
    assert close
    photos = [pictures[n] for n in close]
    margin = 2 * max(leads[n] for n in close) + 1e-3
    swapped = replace(exact, forwards=[Swaps(exact.classifiers[0], 0.0)], margins=[margin])
    result = judged(photos, [-1] * len(close), swapped)
    assert_one_verdict(result, judged(photos, [-1] * len(close), exact))
    assert [v.predicted for v in result.verdicts] == [p[n][0, 0].argmax() for n in close]
    assert result.counts.again == len(close)


def test_scores_tell_how_far_each_may_be_off(pictures: list[Image.Image]) -> None:
    exact = plan_for([small_network(n, 0.1) for n in range(2)], Misclassified(0.3))
    quick = noisy(exact, 0.05, 0.2, share_all=True, keep_logits=True)
    keys = [f"{n:02}" for n in range(20)]
    targets = targets_for(exact.rule, 20)
    complete = judged(pictures, targets, replace(exact, complete=True))
    true = {
        (row["candidate"], row["model"], row["view"]): row
        for row in complete.scores.table(keys, SPACE.wnids).to_pylist()
    }
    rows = judged(pictures, targets, quick).scores.table(keys, SPACE.wnids).to_pylist()
    kinds = {(row["exact"], row["odds_margin"]) for row in rows}
    assert kinds == {(True, 0.0), (False, 0.0), (False, 0.2)}
    for row in rows:
        exactly = true[row["candidate"], row["model"], row["view"]]
        if row["exact"]:
            assert row["p_true"] == exactly["p_true"]
            assert row["confidence"] == exactly["confidence"]
        for name in ("p_true", "confidence"):
            off = abs(
                np.log(row[name] / (1 - row[name])) - np.log(exactly[name] / (1 - exactly[name]))
            )
            assert off <= row["odds_margin"] + 1e-4


def test_low_precision_saves_looks_in_fp32(pictures: list[Image.Image]) -> None:
    """What it decides is not computed by the classifier, survivors and repeats aside."""
    exact = plan_for([small_network(n, 2.0) for n in range(2)], Misclassified(0.3))
    quick = noisy(exact, 0.01, covering(0.01), share_all=True)
    result = judged(pictures, targets_for(exact.rule, 20), quick)
    survivors = sum(v.outcome == "survivor" for v in result.verdicts)
    unsure = sum(v.borderline for v in result.verdicts if v.outcome != "survivor")
    counts = result.counts
    looks = counts.again + counts.repeated + 2 * VIEWS * (survivors + unsure)
    assert result.forwards == shared_views(quick) + looks
    assert counts.again < counts.quick / 10


def test_a_repeated_mean_is_one_of_as_many_views_as_it_was(pictures: list[Image.Image]) -> None:
    """Looking twice at a view does not count it twice: the mean stays that of ten views."""
    networks = [small_network(n, 0.6) for n in range(2)]
    exact = plan_for(networks, Outlier("mean", 0.0))
    with bound_threads(1):
        p = plain_scores(pictures[:5], members_of(exact), TINY.resize, TINY.crop)
    for n, of_one in enumerate(p):
        least = float(min(of_model.mean(axis=0).max() for of_model in of_one)) - 0.002
        rule = Outlier("mean", least)
        quick = noisy(replace(exact, rule=rule), 0.0001, covering(0.0001), share_all=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cascade, "REPEAT_ONE_IN", 1)
            result = judged([pictures[n]], [-1], quick)
        assert places(result) == [("survivor", None, None, None)]
        assert (result.counts.flips, result.counts.again) == (0, 0)


def test_a_repeated_mean_tells_of_an_earlier_view_that_fp32_would_not_have_let_pass(
    pictures: list[Image.Image],
) -> None:
    """Whichever view is repeated: all those before it are looked at again with it."""
    constant = small_network(0, 0.0)
    with torch.no_grad():
        # Class 0 has 0.5 in every view, and 0.7 by a forward that is off by as much as that.
        constant.module[5].bias.copy_(torch.tensor([np.log(4), 0, 0, 0, 0, 0, 0, 0]))
    exact = plan_for([constant], Outlier("mean", 0.96))
    forward = Pushes(constant, 0, float(np.log(7 / 3)))
    seen = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cascade, "REPEAT_ONE_IN", 3)
        for seed in range(16):
            quick = replace(exact, forwards=[forward], margins=[1e-3], share_all=True, seed=seed)
            result = judged(pictures[:1], [-1], quick)
            is_told = result.counts.repeated > 0
            assert result.counts.flips == is_told
            assert places(result) == [("removed", "unconfident", 0, 0 if is_told else 2)]
            seen.add((is_told, result.counts.quick))
    assert seen == {(False, 2), (True, 1), (True, 2)}
