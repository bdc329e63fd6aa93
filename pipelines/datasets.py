"""Opening datasets to evaluate on: their images, their label space, the release they are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from curate.errors import UsageError
from curate.files import printable, sha256_file
from curate.labels.space import PRESETS, LabelSpace, load_label_space
from curate.release.layout import (
    IMAGE_EXTENSIONS,
    IMAGENET_A,
    IMAGENET_O,
    RELEASE_RECORD,
    LabelledImage,
    Layout,
    files_below,
    read_layout,
    release_label_space,
)
from curate.settings import FILE_NAME
from curate.testbed.image_labels import ImageLabel, read_image_labels


@dataclass(frozen=True)
class Release:
    """What a dataset that `curate release build` wrote says of itself.

    Attributes:
        version: MAJOR.MINOR.PATCH.
        layout: what its folders are named by.
        reviewed: whether people confirmed its labels.
        manifest_sha256: of `manifest.parquet` as it is now.
        selection: fingerprints of the weights that took part in selecting its images.
    """

    version: str
    layout: str
    reviewed: bool
    manifest_sha256: str
    selection: frozenset[str]


@dataclass(frozen=True)
class LabelFile:
    """A file that says of which class each image is.

    Attributes:
        name: of the file, printable.
        sha256: of its content.
    """

    name: str
    sha256: str


@dataclass(frozen=True)
class Dataset:
    """A dataset to evaluate on.

    Attributes:
        name: of its folder, printable.
        layout: its images.
        paths: printable path of each image within it, with slashes.
        wnids: class of each image; where `truth` is False, the one that its folder says or "".
        space: the label space to restrict to.
        chosen_by: why this label space.
        release: None for other folders.
        truth: whether `wnids` are what the images show. False for images of something else.
        labels: where the classes come from, where no folders name them.
        other_classes: how many images of classes outside the label space were passed over.
    """

    name: str
    layout: Layout
    paths: tuple[str, ...]
    wnids: tuple[str, ...]
    space: LabelSpace
    chosen_by: str
    release: Release | None
    truth: bool = True
    labels: LabelFile | None = None
    other_classes: int = 0


def open_dataset(root: Path, label_space: str | None = None, labels: Path | None = None) -> Dataset:
    """Open a dataset whose images are of classes of its label space, and settle that.

    Args:
        root: the folder of the class folders, or with `labels` of images.
        label_space: a preset or a CSV file; by default the release's own label space, and for
            other folders the smallest preset that holds every class.
        labels: a file that says of which class each image is (see `read_image_labels`).

    Raises:
        UsageError: no dataset; a class is outside the label space; a wrong file of labels; a
            release whose record or class map is unusable, or whose images show no class of its
            label space.
    """
    refuse_workspace(root)
    if labels is not None:
        return _labelled_dataset(root, label_space, labels)
    own = release_label_space(root)
    release = None if own is None else read_release(root)
    if release is not None and release.layout == IMAGENET_O:
        raise UsageError(
            f"{printable(root)} has no true classes in its label space: its folders name what a "
            "photo is taken for; add --in-distribution DIR to tell how well a model detects it"
        )
    refuse_flat(root, "--labels")
    space = load_label_space(label_space) if label_space else own
    layout = read_layout(root, space)
    chosen_by = NAMED if label_space else "the release"
    if space is None:
        space = smallest_label_space(layout.wnids, f"class folders of {printable(root)}")
        chosen_by = SMALLEST
    return dataset_of(root, layout, space, chosen_by, release)


def dataset_of(
    root: Path,
    layout: Layout,
    space: LabelSpace,
    chosen_by: str,
    release: Release | None = None,
    *,
    truth: bool = True,
    labels: LabelFile | None = None,
    other_classes: int = 0,
) -> Dataset:
    """A dataset of the images of a layout; see `Dataset`.

    Args:
        root: its folder.
        layout: its images.
        space: the label space to restrict to.
        chosen_by: why this label space.
        release: None for other folders.
        truth: whether the classes are what the images show.
        labels: where the classes come from, where no folders name them.
        other_classes: how many images were passed over.
    """
    return Dataset(
        name=printable(root.resolve().name),
        layout=layout,
        paths=tuple(layout.relative(item) for item in layout),
        wnids=tuple(item.wnid for item in layout),
        space=space,
        chosen_by=chosen_by,
        release=release,
        truth=truth,
        labels=labels,
        other_classes=other_classes,
    )


def refuse_workspace(root: Path) -> None:
    """Refuse a workspace, which people take for the releases in it.

    Raises:
        UsageError: it is one; the text names a release.
    """
    if (root / FILE_NAME).is_file():
        releases = sorted(path.name for path in (root / "releases").glob("[0-9]*"))
        hint = (
            f"such as {printable(root / 'releases' / releases[-1])}" if releases else "once built"
        )
        raise UsageError(f"{printable(root)} is a workspace: name one of its releases, {hint}")


def refuse_flat(root: Path, option: str) -> None:
    """Refuse a folder of images without class folders.

    Args:
        root: the folder.
        option: that takes the file of their classes.

    Raises:
        UsageError: it holds images and no folders.
    """
    try:
        with os.scandir(root) as listing:
            entries = [entry for entry in listing if not entry.name.startswith(".")]
    except OSError:
        return  # whoever lists it tells why
    images = [entry.name for entry in entries if entry.name.lower().endswith(IMAGE_EXTENSIONS)]
    if images and not any(entry.is_dir() for entry in entries):
        raise UsageError(
            f"{printable(root)} has no class folders ({len(images)} images lie in it directly): "
            f"say with {option} FILE of which class each one is"
        )


def read_images(root: Path) -> Layout:
    """All images below a folder, whatever its folders are called; the first one stands as class.

    Files and folders beside them whose name begins with a dot are ignored.

    Args:
        root: the folder.

    Raises:
        UsageError: it cannot be read, or holds no images.
    """
    items: list[LabelledImage] = []
    passed_over: list[tuple[str, str]] = []
    for path, fault in files_below(root):
        relative = path.relative_to(root)
        if relative.parts[0].startswith("."):
            continue
        if not fault:
            items.append(LabelledImage(path, relative.parts[0] if len(relative.parts) > 1 else ""))
        elif len(relative.parts) > 1:
            passed_over.append((printable(relative.as_posix()), fault))
    if not items:
        raise UsageError(f"{printable(root)} holds no images")
    return Layout(root, tuple(items), tuple(passed_over))


def label_images(root: Path, path: Path) -> tuple[Layout, list[ImageLabel], LabelFile]:
    """The images below a folder with the classes that a file gives them.

    Args:
        root: the folder.
        path: the file (see `read_image_labels`).

    Raises:
        UsageError: the folder holds no images, or the file is wrong.
    """
    layout = read_images(root)
    found = read_image_labels(path, [layout.relative(item) for item in layout])
    items = [item._replace(wnid=told.wnid) for item, told in zip(layout, found, strict=True)]
    told = LabelFile(printable(path.name), sha256_file(path))
    return Layout(root, tuple(items), layout.passed_over), found, told


def _labelled_dataset(root: Path, label_space: str | None, path: Path) -> Dataset:
    layout, found, told = label_images(root, path)
    space = load_label_space(label_space) if label_space else None
    if space is None:
        space = smallest_label_space(layout.wnids, f"labels of {printable(path)}")
    for label in found:
        if label.wnid not in space:
            raise UsageError(f"{label.where}: {label.wnid!r} is no class of {space.name}")
    return dataset_of(root, layout, space, NAMED if label_space else SMALLEST, labels=told)


#: Why a label space was chosen, where somebody named it and where nobody did.
NAMED = "--label-space"
SMALLEST = "the smallest preset that holds every class"


def smallest_label_space(wnids: Sequence[str], where: str) -> LabelSpace:
    """The smallest preset that holds every class; ImageNet-A before ImageNet-O.

    Args:
        wnids: the classes.
        where: what holds them, for the error.

    Raises:
        UsageError: none does; the text names the first class that ImageNet-1k lacks.
    """
    spaces = sorted((load_label_space(name) for name in PRESETS), key=len)
    for space in spaces:
        if _first_unknown(wnids, space) is None:
            return space
    unknown = _first_unknown(wnids, spaces[-1])
    raise UsageError(
        f"{where}: {unknown!r} is a class of none of {', '.join(space.name for space in spaces)}; "
        "name the label space with --label-space"
    )


def _first_unknown(wnids: Iterable[str], space: LabelSpace) -> str | None:
    return next((wnid for wnid in wnids if wnid not in space), None)


def read_release(root: Path) -> Release:
    """What a release, or the one that a split is part of, says of itself.

    Args:
        root: its folder.

    Raises:
        UsageError: its record or its manifest is unusable.
    """
    if not (root / RELEASE_RECORD).is_file() and (root.parent / RELEASE_RECORD).is_file():
        root = root.parent
    path = root / RELEASE_RECORD
    try:
        record = json.loads(path.read_bytes())
        if record["layout"] not in (IMAGENET_A, IMAGENET_O):
            raise ValueError("its folders are named by something else")
        return Release(
            version=str(record["version"]),
            layout=str(record["layout"]),
            reviewed=record["reviewed"] is True,
            manifest_sha256=sha256_file(root / "manifest.parquet"),
            selection=frozenset(str(model["fingerprint"]) for model in record["models"]),
        )
    except OSError as error:
        lacking = Path(error.filename or path).name
        raise UsageError(
            f"cannot read {lacking} of the release {printable(root)}: {error.strerror}"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{printable(path)} is no release's record; fetch it again") from error
