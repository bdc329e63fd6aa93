"""mCE and relative mCE, where they mean something, and in words where they do not.

The mCE of the literature divides by the errors of AlexNet on ImageNet-C as published. They serve
for a model with ImageNet-1k's outputs on those very files, or on the validation images treated as
those files were. Everything else needs a baseline that went through the same pipeline, and with a
procedural frost the number is not called mCE.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from curate.files import data_file
from curate.metrics import corruption_errors
from curate.metrics.corruption import IMAGENET_C, row_errors
from curate.testbed.corruption_errors import SEVERITIES, Table

#: How many images ImageNet's validation set has, and its classes.
IMAGES, CLASSES = 50_000, 1_000

_NEEDS = "a mean needs the fifteen corruptions at five severities"

#: The side of ImageNet-C's pictures, and the short side of the photo that they were cut from.
SIDE, SHORT_SIDE = 224, 256


@dataclass(frozen=True)
class Baseline:
    """Errors to divide by.

    Attributes:
        name: of the model.
        errors: corruption → five errors by severity, fractions.
        clean: error on uncorrupted images; None where it is not known.
        source: where they come from.
    """

    name: str
    errors: Mapping[str, Sequence[float]]
    clean: float | None
    source: str


@dataclass(frozen=True)
class Means:
    """Means over ImageNet-C's fifteen corruptions, in percent as the literature prints them.

    Attributes:
        called: what the mean is called: "mCE", or words with the baseline's name.
        is_mce: whether it may be called mCE.
        mean: of the fifteen ratios; None where it has no meaning, rows may have one all the same.
        relative: of the fifteen ratios of what is lost; None likewise.
        ce: corruption → ratio; also of corruptions beyond the fifteen where the baseline has them.
        relative_ce: corruption → ratio of what is lost, for rows under which the baseline loses
            something; empty without clean errors.
        baseline: whose errors these are divided by; None without any ratio.
        note: why there is no number, or how to read it.
    """

    called: str
    is_mce: bool
    mean: float | None
    relative: float | None
    ce: Mapping[str, float]
    relative_ce: Mapping[str, float]
    baseline: str | None
    note: str | None


@dataclass(frozen=True)
class Conditions:
    """What decides whether AlexNet's published errors serve.

    Attributes:
        outputs: classes of the model's output within the label space, and whether they are
            ImageNet-1k's.
        is_imagenet_1k: whether the label space is that of ImageNet-1k.
        images: images of each setting, the least.
        is_validation: whether the images are ImageNet's validation set by number, names and
            classes.
        on_disk: whether the corrupted images were read from an ImageNet-C folder.
        is_cut_before: whether the 224 crop of the photo's short side 256 was corrupted.
        is_jpeg: whether the corrupted images went through JPEG as the published ones.
        frost: "published" pictures, "procedural", or what else it is made of.
        failed: settings in which an image failed.
    """

    outputs: int
    is_imagenet_1k: bool
    images: int
    is_validation: bool
    on_disk: bool
    is_cut_before: bool
    is_jpeg: bool
    frost: str
    failed: int = 0


@lru_cache
def alexnet() -> Baseline:
    """AlexNet's errors on ImageNet-C as published, with the list of their sources."""
    found = json.loads(data_file("corruptions/alexnet.json").read_bytes())
    return Baseline(found["baseline"], found["errors"], found["clean_error"], found["source"])


def why_not_published(conditions: Conditions) -> list[str]:
    """Why AlexNet's published errors do not serve; empty where they do."""
    reasons = []
    if not conditions.is_imagenet_1k or conditions.outputs != CLASSES:
        reasons.append("the label space is not the 1,000 classes of ImageNet-1k")
    if conditions.images != IMAGES:
        reasons.append(f"a setting has {conditions.images:,} images, not {IMAGES:,}")
    elif not conditions.is_validation:
        reasons.append("the images are not ImageNet's validation set")
    if conditions.failed:
        reasons.append(f"images failed in {conditions.failed} settings")
    if not conditions.on_disk:
        if not conditions.is_cut_before:
            reasons.append(
                f"not the {SIDE} crop of a short side of {SHORT_SIDE} was corrupted "
                "(--at crop --views paper)"
            )
        if not conditions.is_jpeg:
            reasons.append("the corrupted images did not go through JPEG (--jpeg)")
        if conditions.frost != "published":
            reasons.append(f"frost is not made of the published pictures: {conditions.frost}")
    return reasons


def means(table: Table, conditions: Conditions, baseline: Baseline | None) -> Means:
    """The mean corruption errors of a table, against a baseline or AlexNet as published.

    Args:
        table: of the model.
        conditions: how it was measured.
        baseline: a model that went through the same pipeline; None for AlexNet as published.
    """
    absent = _absent(table)
    reasons = why_not_published(conditions)
    if absent and (baseline is not None or not reasons):
        return _rows_alone(table, baseline or alexnet(), absent)
    if absent:
        return _nothing(f"{_NEEDS}; {absent}")
    if baseline is None:
        if reasons:
            return _nothing(
                f"AlexNet's published errors do not serve here: {'; '.join(reasons)}. "
                "Name a model that goes through the same with --baseline"
            )
        return _ratios(table, alexnet(), "mCE", True, "against AlexNet's published errors")
    if conditions.frost != "published" and not conditions.on_disk:
        kind = "procedural frost" if conditions.frost == "procedural" else "other frost"
        called = f"mean corruption error against {baseline.name}, {kind}"
        note = f"not the mCE of the literature: {kind}"
        return _ratios(table, baseline, called, False, note)
    called = f"mCE against {baseline.name}"
    return _ratios(table, baseline, called, True, "not AlexNet, so not the published mCE")


def _absent(table: Table) -> str:
    rows = {row.corruption: row for row in table.rows}
    if absent := [name for name in IMAGENET_C if name not in rows]:
        return f"{len(absent)} are absent, the first is {absent[0]}"
    for name in IMAGENET_C:
        if lacking := [s for s in SEVERITIES if s not in rows[name].accuracies]:
            return f"{name} lacks severity {lacking[0]}"
    return ""


def _nothing(note: str) -> Means:
    return Means("mCE", False, None, None, {}, {}, None, note)


def _rows_alone(table: Table, baseline: Baseline, why: str, needs: str = _NEEDS) -> Means:
    """No mean, but the ratio of each row that has one."""
    errors, clean, other = _errors(table, baseline)
    ce, relative_ce = row_errors(errors, baseline.errors, clean, other)
    note = f"{needs}; {why}"
    if ce:
        note += f"; CE of a row is against {baseline.name}"
    return Means("mCE", False, None, None, ce, relative_ce, baseline.name if ce else None, note)


def _ratios(table: Table, baseline: Baseline, called: str, is_mce: bool, note: str) -> Means:
    errors, clean, other = _errors(table, baseline)
    try:
        found = corruption_errors(errors, baseline.errors)
    except ValueError as error:
        return _rows_alone(table, baseline, str(error), f"no mean ratio to {baseline.name}")
    relative = None
    _, relative_ce = row_errors(errors, baseline.errors, clean, other)
    if clean is None:
        note += "; no relative one without clean errors"
    else:
        try:
            relative = corruption_errors(errors, baseline.errors, clean, other).relative_mce
        except ValueError as error:
            note += f"; no relative one: {error}"
    return Means(called, is_mce, found.mce, relative, found.ce, relative_ce, baseline.name, note)


def _errors(
    table: Table, baseline: Baseline
) -> tuple[dict[str, list[float]], float | None, float | None]:
    """Errors of the rows that are whole, and both clean errors; None where one is not known."""
    errors = {
        row.corruption: [1 - value for value in row.accuracies.values()]
        for row in table.rows
        if row.corruption in baseline.errors and len(row.accuracies) == len(SEVERITIES)
    }
    if table.clean is None or baseline.clean is None:
        return errors, None, None
    return errors, 1 - table.clean, baseline.clean
