"""What a corruption run measures: corruptions, severities and images, settled before it begins."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from curate.corruptions import Scale
from curate.errors import UnknownNameError, UsageError
from curate.files import printable, sha256_bytes
from curate.labels.space import LabelSpace, load_label_space
from curate.release.layout import read_layout
from curate.testbed.corruption_errors import SEVERITIES
from curate.testbed.corruption_means import CLASSES, IMAGES
from pipelines.datasets import Dataset, dataset_of, open_dataset

if TYPE_CHECKING:
    from curate.images.views import ViewRecipe

#: Where a photo is corrupted: where the camera would have done it, or as ImageNet-C did.
PLACES = ("camera", "crop")

_VALIDATION = "ILSVRC2012_val_{:08}"


@dataclass(frozen=True)
class Setting:
    """One corruption at one severity.

    Attributes:
        corruption: its name; None for the clean images.
        severity: 1 … 5; 0 for the clean images.
        dataset: the images, where they lie corrupted on the disk; else None.
    """

    corruption: str | None
    severity: int
    dataset: Dataset | None = field(default=None, compare=False)

    def __str__(self) -> str:
        if self.corruption is None:
            return "the clean images"
        return f"{self.corruption} at severity {self.severity}"


CLEAN = Setting(None, 0)


@dataclass(frozen=True)
class Plan:
    """A corruption run.

    Attributes:
        clean: the uncorrupted images; None where nobody has them.
        space: the label space.
        settings: those with corruptions, row by row.
        missing: settings of an ImageNet-C folder that are not there, as "fog/3".
        at: "camera", "crop", or "disk" where the images lie there corrupted.
        jpeg: whether corrupted images go through JPEG.
        scale: how the constants follow the size of the picture.
        seed: of everything that is random.
        limit: how many images were drawn; None for all.
        folder: name of the ImageNet-C folder; None without one.
    """

    clean: Dataset | None
    space: LabelSpace
    settings: tuple[Setting, ...]
    missing: tuple[str, ...]
    at: str
    jpeg: bool
    scale: Scale
    seed: int
    limit: int | None
    folder: str | None

    @property
    def first(self) -> Dataset:
        """A dataset of the run: the clean one, or that of the first setting."""
        dataset = self.clean or self.settings[0].dataset
        assert dataset is not None
        return dataset

    @property
    def all_settings(self) -> Iterator[Setting]:
        """Every setting, the clean images first."""
        if self.clean is not None:
            yield CLEAN
        yield from self.settings


def plan_run(
    dataset: Path | None,
    names: Sequence[str],
    severities: Sequence[int],
    *,
    at: str,
    jpeg: bool | None,
    folder: Path | None,
    limit: int | None,
    seed: int,
    label_space: str | None,
    labels: Path | None,
) -> Plan:
    """Settle what is measured; see `pipelines.corruptions.corruptions`.

    Args:
        dataset: the clean images.
        names: of corruptions, each once.
        severities: each once.
        at: see `PLACES`.
        jpeg: None for what belongs to the place: JPEG at the crop, none at the camera.
        folder: an ImageNet-C folder.
        limit: how many images to draw.
        seed: of the draw and the corruptions.
        label_space: a preset or a CSV file.
        labels: of which class each clean image is, where no folders name them.

    Raises:
        UsageError: something does not fit together or is not there.
    """
    if at not in PLACES:
        raise UnknownNameError("place of the corruption", at, PLACES)
    if dataset is None and folder is None:
        raise UsageError("nothing to corrupt: name a DATASET, or an ImageNet-C folder with --in")
    if dataset is None and labels is not None:
        raise UsageError("--labels is about the clean images: name a DATASET")
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed is {seed}: write 0 … {2**32 - 1}")
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}: at least one image is needed")
    for severity in severities:
        if severity not in SEVERITIES:
            raise UsageError(f"severity {severity} does not exist: write 1, 2, 3, 4 or 5")
    levels = sorted(set(severities)) or list(SEVERITIES)
    clean = None if dataset is None else open_dataset(dataset, label_space, labels)
    if folder is None:
        assert clean is not None
        _check_classes(clean.space)
        return Plan(
            clean=clean if limit is None else drawn(clean, limit, seed),
            space=clean.space,
            settings=tuple(Setting(name, level) for name in names for level in levels),
            missing=(),
            at=at,
            jpeg=at == "crop" if jpeg is None else jpeg,
            scale="none" if at == "crop" else "short-side",
            seed=seed,
            limit=limit,
            folder=None,
        )
    if jpeg is not None:
        raise UsageError("--in reads images that are corrupted already: leave --jpeg out")
    settings, missing, space = _on_disk(folder, names, levels, clean, label_space)
    _check_classes(space)
    if limit is not None:
        settings = [
            replace(one, dataset=drawn(one.dataset, limit, seed)) if one.dataset else one
            for one in settings
        ]
    return Plan(
        clean=clean if clean is None or limit is None else drawn(clean, limit, seed),
        space=space,
        settings=tuple(settings),
        missing=tuple(missing),
        at="disk",
        jpeg=False,
        scale="none",
        seed=seed,
        limit=limit,
        folder=printable(folder.resolve().name),
    )


def _check_classes(space: LabelSpace) -> None:
    if len(space) < 2:
        raise UsageError(f"{space.name} has one class: there is nothing to mistake it for")


def _on_disk(
    folder: Path,
    names: Sequence[str],
    levels: Sequence[int],
    clean: Dataset | None,
    label_space: str | None,
) -> tuple[list[Setting], list[str], LabelSpace]:
    """The settings of an ImageNet-C folder, those that are missing, and the label space."""
    if not folder.is_dir():
        raise UsageError(f"{printable(folder)} is not a folder")
    found: list[tuple[str, int, Path]] = []
    missing: list[tuple[str, int, Path]] = []
    for name in names:
        for level in levels:
            place = folder / name / str(level)
            (found if place.is_dir() else missing).append((name, level, place))
    if not found:
        name, level, _ = missing[0]
        raise UsageError(
            f"{printable(folder)} holds no {name}/{level} with class folders, nor any other of "
            f"the {len(missing)} settings: name the folder above the corruptions"
        )
    space = clean.space if clean else None
    if space is None and label_space:
        space = load_label_space(label_space)
    settings = []
    for name, level, place in found:
        if space is None:
            dataset = replace(open_dataset(place), name=f"{name}/{level}")
            space = dataset.space
        else:
            layout = read_layout(place, space)
            chosen_by = "the clean images" if clean else "--label-space"
            found_here = dataset_of(place, layout, space, chosen_by)
            dataset = replace(found_here, name=f"{name}/{level}")
        settings.append(Setting(name, level, dataset))
    assert space is not None
    return settings, [f"{name}/{level}" for name, level, _ in missing], space


def drawn(dataset: Dataset, limit: int, seed: int) -> Dataset:
    """A dataset with `limit` of its images, the same ones whatever else is in it.

    An image's lot depends on its class, its name without the ending, and the seed alone: a photo
    and what lies corrupted on the disk, which may be of another format, are drawn together.
    """
    lots = {
        path: sha256_bytes(f"{seed}:{wnid}/{name}".encode())
        for path, (wnid, name) in zip(dataset.paths, _names(dataset), strict=True)
    }
    kept = set(sorted(lots, key=lots.__getitem__)[:limit])
    rows = [row for row, path in enumerate(dataset.paths) if path in kept]
    return replace(
        dataset,
        layout=replace(dataset.layout, items=tuple(dataset.layout.items[row] for row in rows)),
        paths=tuple(dataset.paths[row] for row in rows),
        wnids=tuple(dataset.wnids[row] for row in rows),
    )


def unlike(plan: Plan) -> list[str]:
    """The settings of an ImageNet-C folder that hold other photos than the run's first dataset.

    Photos are told by class and file name, without its ending: a corrupted one may be of another
    format.
    """
    wanted = _photos(plan.first)
    return [
        f"{one.corruption}/{one.severity}"
        for one in plan.settings
        if one.dataset is not None and _photos(one.dataset) != wanted
    ]


def _photos(dataset: Dataset) -> Counter[tuple[str, str]]:
    return Counter(_names(dataset))


def _names(dataset: Dataset) -> Iterator[tuple[str, str]]:
    """Each image's class, and its name without the ending."""
    names = (path.rpartition("/")[2].rpartition(".")[0] for path in dataset.paths)
    return zip(dataset.wnids, names, strict=True)


def is_validation(dataset: Dataset) -> bool:
    """Whether a dataset is ImageNet's validation set, by number, names and classes."""
    if len(dataset.paths) != IMAGES:
        return False
    stems = {re.split(r"[/.]", path)[-2] for path in dataset.paths}
    classes = Counter(dataset.wnids)
    return (
        stems == {_VALIDATION.format(number) for number in range(1, IMAGES + 1)}
        and len(classes) == CLASSES
        and set(classes.values()) == {IMAGES // CLASSES}
    )


def is_cut_as_published(recipe: ViewRecipe) -> bool:
    """Whether ImageNet-C's pictures were cut this way: short side 256, the 224 centre."""
    from curate.images.views import PAPER

    return recipe == PAPER
