"""Opening datasets to evaluate on: their images, their label space, the release they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from curate.errors import UsageError
from curate.files import printable, sha256_file
from curate.labels.space import PRESETS, LabelSpace, load_label_space
from curate.release.layout import (
    IMAGENET_O,
    RELEASE_RECORD,
    Layout,
    read_layout,
    release_label_space,
)
from curate.settings import FILE_NAME


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
class Dataset:
    """A dataset in ImageNet-A layout.

    Attributes:
        name: of its folder, printable.
        layout: its images.
        paths: printable path of each image within it, with slashes.
        wnids: class of each image.
        space: the label space to restrict to.
        chosen_by: why this label space.
        release: None for other folders.
    """

    name: str
    layout: Layout
    paths: tuple[str, ...]
    wnids: tuple[str, ...]
    space: LabelSpace
    chosen_by: str
    release: Release | None


def open_dataset(root: Path, label_space: str | None = None) -> Dataset:
    """Open a dataset and settle its label space.

    Args:
        root: the folder of the class folders.
        label_space: a preset or a CSV file; by default the release's own label space, and for
            other folders the smallest preset that holds every class folder.

    Raises:
        UsageError: no dataset; a class folder is outside the label space; a release whose record
            or class map is unusable, or whose images show no class of its label space.
    """
    if (root / FILE_NAME).is_file():
        releases = sorted(path.name for path in (root / "releases").glob("[0-9]*"))
        hint = (
            f"such as {printable(root / 'releases' / releases[-1])}" if releases else "once built"
        )
        raise UsageError(f"{printable(root)} is a workspace: name one of its releases, {hint}")
    own = release_label_space(root)
    release = None if own is None else _release(root)
    if release is not None and release.layout == IMAGENET_O:
        raise UsageError(
            f"{printable(root)} has no true classes in its label space: its folders name what a "
            "photo is taken for; tell how well a model detects it with curate.metrics.ood_detection"
        )
    space = load_label_space(label_space) if label_space else own
    layout = read_layout(root, space)
    chosen_by = "--label-space" if label_space else "the release"
    if space is None:
        space = smallest_label_space(layout.wnids, f"class folders of {printable(root)}")
        chosen_by = SMALLEST
    return Dataset(
        name=printable(root.resolve().name),
        layout=layout,
        paths=tuple(layout.relative(item) for item in layout),
        wnids=tuple(item.wnid for item in layout),
        space=space,
        chosen_by=chosen_by,
        release=release,
    )


#: Why a label space was chosen where nobody named one.
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


def _release(root: Path) -> Release:
    path = root / RELEASE_RECORD
    try:
        record = json.loads(path.read_bytes())
        return Release(
            version=str(record["version"]),
            layout=str(record["layout"]),
            reviewed=record["reviewed"] is True,
            manifest_sha256=sha256_file(root / "manifest.parquet"),
            selection=frozenset(str(model["fingerprint"]) for model in record["models"]),
        )
    except OSError as error:
        raise UsageError(f"cannot read the release {printable(root)}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{printable(path)} is no release's record; fetch it again") from error
