"""Numbers from the literature, beside those measured on what looks like the same images."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from curate.files import data_file
from curate.labels.space import LabelSpace, load_label_space

#: What the project can say of images whose checksums nobody has published.
AGREES = "layout and counts agree"

_PAPER = "Hendrycks et al., Natural Adversarial Examples, CVPR 2021"
_TIMM = "timm, results-imagenet-a.csv, 2025 or later"

#: The row that stands for the set itself.
_REFERENCE = "ResNet-50"

#: Of each set its label space, how many images it has, and in which results it plays a part.
_SETS = {
    "ImageNet-A": ("imagenet-a", 7500, "classification"),
    "ImageNet-O": ("imagenet-o", 2000, "ood"),
}

#: How the SHA-256 of weights that filtered a set begins, as torchvision's file names tell it: its
#: first ResNet-50, and the same numbers in the file that it offers today.
_FILTERS = {"ImageNet-A": ("19c8e357", "0676ba61")}

#: How many validation images of each of its classes stand against ImageNet-O.
_OF_EACH = 50

#: p(true class)_prediction _ second model's prediction_confidence, as ImageNet-A names its files.
_NAME = re.compile(r"0\.\d+_.+ _ .+_[01]\.\d+\.(jpg|jpeg|png)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class PublishedNumber:
    """One number from the literature.

    Attributes:
        model: as the source calls it.
        dataset: "imagenet-a" or "imagenet-o".
        measure: a key of a result's `metrics`.
        value: a fraction.
        source: who published it, and when.
        settings: input size, crop and interpolation, where the source gives them.
        note: how to read it.
        names: models of the zoo with the same architecture.
    """

    model: str
    dataset: str
    measure: str
    value: float
    source: str
    settings: str = ""
    note: str = ""
    names: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def published_numbers() -> tuple[PublishedNumber, ...]:
    """All published numbers that travel with the project: the paper's, then timm's."""
    return (*_of_paper(), *_of_timm())


def published_beside(
    model: str,
    paths: Sequence[str],
    wnids: Sequence[str],
    space: LabelSpace,
    *,
    kind: str = "classification",
    inside: Sequence[str] = (),
    release: bool = False,
) -> dict[str, Any] | None:
    """What is published for a model on a dataset that looks like ImageNet-A or ImageNet-O.

    The set is taken for what it looks like where its classes, its number of images and the label
    space are those of the original. That is no proof: nobody has published checksums.

    Args:
        model: its name in the zoo.
        paths: of all images of the dataset, those that failed too.
        wnids: the class folder of each.
        space: the label space that the results are restricted to.
        kind: of the result, "classification" or "ood".
        inside: the class of each in-distribution image of a detection.
        release: whether the dataset is a release of this project, and so another one.

    Returns:
        None for other sets; else `dataset`, `agreement` (`AGREES`), `evidence` (what was compared,
        in words) and `rows`, one a number: `model`, `measure`, `value` (a fraction), `source`,
        `settings`, `note` and `relation`: "same name" (timm's of this very name), "same
        architecture" (the weights may be others) or "reference" (the paper's ResNet-50, which
        stands for the set).
    """
    known = None if release else _recognised(paths, wnids, space, kind, inside)
    if known is None:
        return None
    dataset, evidence = known
    return {
        "dataset": dataset,
        "agreement": AGREES,
        "evidence": evidence,
        "rows": [
            {**_told(number), "relation": relation}
            for number in published_numbers()
            if number.dataset == _SETS[dataset][0] and (relation := _relation(number, model))
        ],
    }


def took_part(published: Mapping[str, Any] | None, fingerprint: str) -> bool:
    """Whether weights are known to have filtered the set that a dataset looks like.

    Args:
        published: as `published_beside` gives it.
        fingerprint: SHA-256 of the file of weights.
    """
    return published is not None and fingerprint.startswith(_FILTERS.get(published["dataset"], ()))


def _recognised(
    paths: Sequence[str],
    wnids: Sequence[str],
    space: LabelSpace,
    kind: str,
    inside: Sequence[str],
) -> tuple[str, list[str]] | None:
    """Which set it looks like, and why."""
    for dataset, (preset, images, of_kind) in _SETS.items():
        if kind != of_kind or len(paths) != images:
            continue
        classes = set(load_label_space(preset).wnids)
        if not set(wnids) == classes == set(space.wnids):
            continue
        evidence = [f"{images:,} images", f"the {len(classes)} classes of {dataset}"]
        if kind == "ood":
            if Counter(inside) != dict.fromkeys(classes, _OF_EACH):
                continue
            evidence.append(f"{_OF_EACH} images of each class on the other side")
        if dataset == "ImageNet-A":
            named = sum(_NAME.fullmatch(path.rpartition("/")[2]) is not None for path in paths)
            if named < 0.9 * images:
                continue
            evidence.append(f"{named:,} file names in the form of ImageNet-A's")
        evidence.append("no checksums are published, so the images themselves were not compared")
        return dataset, evidence
    return None


def _told(number: PublishedNumber) -> dict[str, Any]:
    told = asdict(number)
    del told["dataset"], told["names"]
    return told


def _relation(number: PublishedNumber, model: str) -> str:
    """How a number is of a model; empty where it is not."""
    if number.source == _TIMM:
        return "same name" if model == f"timm/{number.model}" else ""
    # Weights are named behind a colon (torchvision) or a point (timm).
    if re.split(r"[:.]", model)[0] in number.names or model in number.names:
        return "same architecture"
    return "reference" if number.model == _REFERENCE else ""


def _rows(name: str) -> Iterator[dict[str, str]]:
    with data_file(f"published/{name}").open(newline="", encoding="utf-8") as stream:
        yield from csv.DictReader(stream)


def _fraction(percent: str) -> float:
    return round(float(percent) / 100.0, 6)


def _of_paper() -> Iterator[PublishedNumber]:
    for row in _rows("natural-adversarial-examples.csv"):
        yield PublishedNumber(
            row["model"],
            row["dataset"],
            row["measure"],
            _fraction(row["percent"]),
            _PAPER,
            note=row["note"],
            names=tuple(row["names"].split()),
        )


def _of_timm() -> Iterator[PublishedNumber]:
    for row in _rows("timm-imagenet-a.csv"):
        yield PublishedNumber(
            row["model"],
            "imagenet-a",
            "accuracy",
            _fraction(row["imagenet_a_top1"]),
            _TIMM,
            settings=f"input {row['img_size']}, crop {row['crop_pct']}, {row['interpolation']}",
            note=f"{float(row['clean200_top1']):.2f} % on clean images of the same classes",
        )
