"""The embedded ensemble on real photos: one shortlist, whatever runs it and in which numbers."""

from __future__ import annotations

import copy
import csv
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from curate.errors import MissingExtraError, UsageError
from curate.filtration.caps import Survivor, shortlist
from curate.filtration.cascade import judge_chunk
from curate.filtration.margins import with_margins
from curate.filtration.plan import make_plan, prepare
from curate.filtration.rules import Misclassified, Outlier, Rule
from curate.filtration.terms import ChunkResult, Counts, Photo, Plan, Verdict
from curate.images.decode import decode_trusted
from curate.images.views import PAPER
from curate.labels.space import load_label_space
from curate.models.classifier import Classifier
from curate.models.ensemble import Ensemble
from curate.models.forwards import choose, make_forward
from curate.models.runtime import bound_threads
from curate.models.torch_forward import TorchForward, is_emulated
from tests.filtration.plain import (
    Place,
    first_decision,
    first_unconfident,
    near_the_least,
    plain_scores,
)
from tests.filtration.small import assert_one_verdict, judged, members_of, places

pytestmark = pytest.mark.slow

#: Ways to run a network besides eager fp32; those that this machine lacks are skipped. Others take
#: minutes on a CPU for networks of this size, and are tested on small ones.
WAYS = [
    ("auto", "auto"),
    ("torch", "bf16"),
]

EACH_WAY = pytest.mark.parametrize(
    ("backend", "precision"),
    [WAYS[0], pytest.param(*WAYS[1], marks=pytest.mark.thorough)],
    ids=[f"{backend}-{precision}" for backend, precision in WAYS],
)


@cache
def ensemble() -> Ensemble:
    return Ensemble(["lite/efficientnet_lite0", "lite/efficientnet_lite1"])


@cache
def exact_plan(space: str, rule: Rule) -> Plan:
    return make_plan(ensemble(), load_label_space(space), rule)


def chosen(backend: str, precision: str) -> tuple[str, str]:
    """What the two mean here; skips where this machine cannot run it."""
    try:
        way = choose(backend, precision, ensemble()[0].device)
    except MissingExtraError as error:
        if os.environ.get("CURATE_CI") == "1":
            raise
        pytest.skip(str(error))
    except UsageError as error:
        pytest.skip(str(error))
    if way == ("torch", "fp32"):
        pytest.skip("here that is the classifier itself")
    return way


@cache
def forwards(way: tuple[str, str]) -> list[object]:
    if is_emulated("cpu", way[1]):
        # Seconds a view; rounding the weights costs what instructions for bf16 cost at least.
        return [rounded(classifier) for classifier in ensemble()]
    return [make_forward(classifier, *way, PAPER.crop) for classifier in ensemble()]


def rounded(classifier: Classifier) -> object:
    """The network with weights in bf16, computed in fp32."""
    other = copy.copy(classifier)
    other.module = copy.deepcopy(classifier.module)
    for parameter in other.module.parameters():
        parameter.data = parameter.data.bfloat16().float()
    forward = TorchForward(other, "fp32")
    forward.precision, forward.name = "bf16", "torch bf16"
    forward.logits = other.logits  # type: ignore[method-assign]
    return forward


def quick_plan(plan: Plan, way: tuple[str, str], sample: Sequence[Photo]) -> Plan:
    """The plan by another way, with the margins that a sample shows."""
    other = replace(plan, forwards=forwards(way), share_all=True)
    with bound_threads(1):
        return with_margins(other, sample)


def listed(verdicts: Sequence[Verdict], targets: Sequence[int]) -> list[str]:
    """The shortlist's keys."""
    return shortlisted(
        [(n, v.predicted, v.confidence) for n, v in enumerate(verdicts) if v.outcome == "survivor"],
        targets,
    )


def shortlisted(
    found: Sequence[tuple[int, int | None, float | None]], targets: Sequence[int]
) -> list[str]:
    survivors = [
        Survivor(f"{n:04}", str(targets[n]), str(predicted), float(confidence or 0), n)
        for n, predicted, confidence in found
    ]
    return [survivor.key for survivor in shortlist(survivors, 15)]


@dataclass(frozen=True)
class Truth:
    """Photos with what the plain loop says of them."""

    photos: list[Image.Image]
    targets: list[int]
    p: list[np.ndarray]
    expected: list[Place]

    def shortlist(self) -> list[str]:
        found = [
            (n, int(p[0, 0].argmax()), float(p[0, 0].max()))
            for n, (p, place) in enumerate(zip(self.p, self.expected, strict=True))
            if place[0] == "survivor"
        ]
        return shortlisted(found, self.targets)


CASES: list[tuple[str, Rule]] = [
    ("imagenet-a", Misclassified(0.15)),
    ("imagenet-a", Outlier("centre", 0.6)),
    ("imagenet-a", Outlier("mean", 0.5)),
]
EACH_CASE = pytest.mark.parametrize(
    ("space", "rule"),
    [*CASES[:2], pytest.param(*CASES[2], marks=pytest.mark.thorough)],
    ids=str,
)


@cache
def truth(paths: tuple[tuple[Path, int], ...], space: str, rule: Rule) -> Truth:
    """Fourteen photos under labels that remove some of them."""
    photos, p = scored_plainly(paths, space)
    plan = exact_plan(space, rule)
    if isinstance(rule, Outlier):
        targets = [-1] * len(photos)
        near = [near_the_least(one, rule.confidence, rule.min_confidence, 1e-5) for one in p]
        assert not any(near)
        expected = [
            first_unconfident(one, rule.confidence, rule.min_confidence, plan.order) for one in p
        ]
        return Truth(photos, targets, p, expected)
    # What the second classifier says of a corner, or the label of another photo.
    size = p[0].shape[2]
    others = [paths[n - 7][1] % size for n in range(14)]
    targets = [int(one[1, 3].argmax()) if n % 2 else others[n] for n, one in enumerate(p)]
    expected = [
        first_decision(one, target, rule.threshold, plan.order)
        for one, target in zip(p, targets, strict=True)
    ]
    return Truth(photos, targets, p, expected)


@cache
def scored_plainly(
    paths: tuple[tuple[Path, int], ...], space: str
) -> tuple[list[Image.Image], list[np.ndarray]]:
    photos = [Image.open(path).convert("RGB") for path, _ in paths[:14]]
    with bound_threads(1):
        return photos, plain_scores(photos, members_of(exact_plan(space, Misclassified())))


@cache
def judged_exactly(paths: tuple[tuple[Path, int], ...], space: str, rule: Rule) -> ChunkResult:
    known = truth(paths, space, rule)
    return judged(known.photos, known.targets, exact_plan(space, rule))


@EACH_CASE
def test_the_cascade_gives_the_plain_verdicts_and_shortlist(
    package_photos: list[tuple[Path, int]], space: str, rule: Rule
) -> None:
    known = truth(tuple(package_photos), space, rule)
    assert {place[0] for place in known.expected} == {"survivor", "removed"}
    plan = exact_plan(space, rule)
    result = judged_exactly(tuple(package_photos), space, rule)
    assert places(result) == known.expected
    assert listed(result.verdicts, known.targets) == known.shortlist()
    for verdict, p in zip(result.verdicts, known.p, strict=True):
        if verdict.outcome == "survivor":
            assert verdict.predicted == p[0, 0].argmax()
            assert verdict.confidence == pytest.approx(p[0, 0].max(), abs=1e-5)
    assert_one_verdict(result, judged(known.photos, known.targets, replace(plan, share_all=True)))


@EACH_WAY
@EACH_CASE
def test_every_way_to_run_the_networks_gives_the_same_verdicts_and_shortlist(
    package_photos: list[tuple[Path, int]], space: str, rule: Rule, backend: str, precision: str
) -> None:
    known = truth(tuple(package_photos), space, rule)
    way = chosen(backend, precision)
    plan = exact_plan(space, rule)
    sample = [prepare(path.read_bytes(), plan) for path, _ in package_photos[14:]]
    quick = quick_plan(plan, way, sample)
    result = judged(known.photos, known.targets, quick)
    assert places(result) == known.expected
    assert_one_verdict(result, judged_exactly(tuple(package_photos), space, rule))
    assert listed(result.verdicts, known.targets) == known.shortlist()
    assert result.counts.flips == 0
    assert result.counts.quick > 0


# The shared photos: a subset, seeded, so that a test takes a minute on one core.


@dataclass(frozen=True)
class Labelled:
    photos: list[Photo]
    targets: list[int]
    outcomes: list[str]
    paths: list[str]


def load(folder: Path, rows: Sequence[dict[str, str]], space: str, plan: Plan) -> Labelled:
    positions = load_label_space(space)
    return Labelled(
        [prepare((folder / row["path"]).read_bytes(), plan) for row in rows],
        [
            positions.position(label)
            if (label := Path(row["path"]).parent.name) in positions
            else -1
            for row in rows
        ],
        [row["outcome"] for row in rows],
        [row["path"] for row in rows],
    )


def judged_in_chunks(photos: Sequence[Photo], targets: Sequence[int], plan: Plan) -> ChunkResult:
    """As a run judges them; the scores are those of the last chunk."""
    verdicts: list[Verdict] = []
    forwards, counts = 0, Counts()
    with bound_threads(1):
        for start in range(0, len(photos), 64):
            span = slice(start, start + 64)
            keys = [str(n) for n in range(start, len(photos))][:64]
            result = judge_chunk(photos[span], targets[span], plan, keys)
            verdicts += result.verdicts
            forwards += result.forwards
            counts += result.counts
    return ChunkResult(verdicts, result.scores, forwards, counts)


def reference(shared_data: Path) -> list[dict[str, str]]:
    with (shared_data / "photos" / "reference.csv").open(encoding="utf-8") as stream:
        return sorted(csv.DictReader(stream), key=lambda row: row["path"])


@pytest.fixture(scope="module")
def weakly_labelled(shared_data: Path) -> Labelled:
    """All survivors of the reference, and of those removed a few that leave late and early."""
    rows = [row for row in reference(shared_data) if row["path"].startswith("images/A/")]
    survivors = [row for row in rows if row["outcome"] == "survivor"]
    assert len(survivors) == 18
    late = [
        row
        for row in rows
        if row["outcome"] == "removed" and not row["decided_at"].startswith("lite0c0")
    ]
    early = [row for row in rows if row["decided_at"].startswith("lite0c0")]
    some = random.Random(5)
    chosen_rows = survivors + some.sample(late, 10) + some.sample(early, 24)
    plan = exact_plan("imagenet-a", Misclassified(0.15))
    return load(shared_data / "photos", chosen_rows, "imagenet-a", plan)


@pytest.fixture(scope="module")
def exactly(weakly_labelled: Labelled) -> ChunkResult:
    plan = exact_plan("imagenet-a", Misclassified(0.15))
    return judged_in_chunks(weakly_labelled.photos, weakly_labelled.targets, plan)


@pytest.mark.photos
def test_the_reference_survivors_survive_and_no_other(
    weakly_labelled: Labelled, exactly: ChunkResult
) -> None:
    assert [v.outcome for v in exactly.verdicts] == weakly_labelled.outcomes


@pytest.mark.photos
@EACH_WAY
def test_every_way_gives_the_survivors_of_the_reference(
    weakly_labelled: Labelled, exactly: ChunkResult, backend: str, precision: str
) -> None:
    way = chosen(backend, precision)
    plan = exact_plan("imagenet-a", Misclassified(0.15))
    quick = quick_plan(plan, way, weakly_labelled.photos[-16:])
    result = judged_in_chunks(weakly_labelled.photos, weakly_labelled.targets, quick)
    assert_one_verdict(result, exactly)
    targets = weakly_labelled.targets
    assert listed(result.verdicts, targets) == listed(exactly.verdicts, targets)
    assert result.counts.flips == 0
    assert result.counts.quick > 0


@pytest.fixture(scope="module")
def outliers(shared_data: Path) -> Labelled:
    """Photos of concepts that no classifier was trained on, with the reference's confidence."""
    rows = [row for row in reference(shared_data) if row["path"].startswith("images/OOD/")]
    sure = [row for row in rows if row["outcome"] == "conf>0.9"]
    assert len(sure) == 41
    others = [row for row in rows if row["outcome"] != "conf>0.9"]
    chosen_rows = random.Random(6).sample(sure, 8) + random.Random(7).sample(others, 30)
    plan = exact_plan("imagenet-o", Outlier("centre", 0.9))
    return load(shared_data / "photos", chosen_rows, "imagenet-o", plan)


@pytest.mark.photos
@pytest.mark.parametrize(
    ("least", "surviving"), [(0.9, {"conf>0.9"}), (0.5, {"conf>0.9", "conf>0.5"})]
)
def test_outliers_survive_where_the_reference_found_both_classifiers_confident(
    outliers: Labelled, least: float, surviving: set[str]
) -> None:
    plan = exact_plan("imagenet-o", Outlier("centre", least))
    result = judged_in_chunks(outliers.photos, outliers.targets, plan)
    told = [v.outcome == "survivor" for v in result.verdicts]
    assert told == [outcome in surviving for outcome in outliers.outcomes]
    assert result.forwards < 20 * len(told) / 2


@pytest.fixture(scope="module")
def plain_outliers(outliers: Labelled, shared_data: Path) -> list[np.ndarray]:
    """What the plain loop says of some of them."""
    plan = exact_plan("imagenet-o", Outlier("centre", 0.9))
    images = [
        decode_trusted((shared_data / "photos" / path).read_bytes())
        for path in outliers.paths[4:16]
    ]
    with bound_threads(1):
        return plain_scores(images, members_of(plan))


@pytest.mark.thorough
@pytest.mark.photos
@pytest.mark.parametrize("confidence", ["centre", "mean"])
def test_outliers_get_the_plain_verdicts_by_every_way(
    outliers: Labelled, plain_outliers: list[np.ndarray], confidence: str
) -> None:
    rule = Outlier(confidence, 0.8)  # type: ignore[arg-type]
    plan = exact_plan("imagenet-o", rule)
    photos, targets = outliers.photos[4:16], outliers.targets[4:16]
    assert not any(near_the_least(p, confidence, 0.8, 1e-5) for p in plain_outliers)
    expected = [first_unconfident(p, confidence, 0.8, plan.order) for p in plain_outliers]
    exact = judged_in_chunks(photos, targets, plan)
    assert places(exact) == expected
    assert {v.outcome for v in exact.verdicts} == {"survivor", "removed"}
    ways = set()
    for backend, precision in WAYS:
        try:
            ways.add(chosen(backend, precision))
        except pytest.skip.Exception:
            continue
    for way in sorted(ways):
        quick = quick_plan(plan, way, outliers.photos[-16:])
        result = judged_in_chunks(photos, targets, quick)
        assert_one_verdict(result, exact)
        assert result.counts.flips == 0
