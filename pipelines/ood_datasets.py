"""Opening what out-of-distribution detection needs: images of something else, and of the classes.

Images of something else have no true class in the label space: a folder names what they are taken
for, or nothing. The others are held against the label space's classes alone, as those 200 of
ImageNet's validation images are that stand against ImageNet-O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from curate.errors import UnknownNameError, UsageError
from curate.files import printable
from curate.labels.space import LabelSpace, load_label_space
from curate.release.layout import (
    IMAGENET_A,
    IMAGENET_O,
    LabelledImage,
    Layout,
    read_layout,
    release_label_space,
)
from curate.testbed.image_labels import ImageLabel
from pipelines.datasets import (
    NAMED,
    SMALLEST,
    Dataset,
    dataset_of,
    label_images,
    read_images,
    read_release,
    refuse_flat,
    refuse_workspace,
)

#: Why a label space was chosen where nothing names one.
PUBLISHED = "that of ImageNet-O"

_WNID = re.compile(r"n[0-9]{8}")


def has_true_classes(root: Path) -> bool:
    """Whether a folder is a release whose folders name true classes; no other folder says so.

    Raises:
        UsageError: a release whose record or class map is unusable.
    """
    return release_label_space(root) is not None and read_release(root).layout == IMAGENET_A


def open_outside(root: Path, label_space: str | None = None) -> Dataset:
    """Open images of something else.

    Args:
        root: a release in ImageNet-O layout, class folders named by what an image is taken for,
            or any folder of images.
        label_space: a preset or a CSV file; by default the release's own, else `imagenet-o`,
            unless another preset alone holds every folder's name.

    Raises:
        UsageError: no images; a release whose record or class map is unusable.
    """
    refuse_workspace(root)
    own = release_label_space(root)
    release = None if own is None else read_release(root)
    if own is not None:
        layout = read_layout(root, own)
        space = load_label_space(label_space) if label_space else own
        chosen_by = NAMED if label_space else "the release"
    else:
        layout = read_images(root)
        space, chosen_by = _space(label_space, layout)
        layout = _taken_for(layout, space)
    return dataset_of(root, layout, space, chosen_by, release, truth=False)


def _space(label_space: str | None, layout: Layout) -> tuple[LabelSpace, str]:
    if label_space:
        return load_label_space(label_space), NAMED
    published = load_label_space("imagenet-o")
    folders = set(layout.wnids)
    for space in (published, load_label_space("imagenet-a"), load_label_space("imagenet-1k")):
        if folders and all(name in space for name in folders):
            return space, SMALLEST
    return published, PUBLISHED


def _taken_for(layout: Layout, space: LabelSpace) -> Layout:
    """Folders that are no classes of the label space say nothing of what a photo is taken for."""
    items = tuple(
        item if item.wnid in space else LabelledImage(item.path, "") for item in layout.items
    )
    return Layout(layout.root, items, layout.passed_over)


def open_inside(
    root: Path,
    space: LabelSpace,
    labels: Path | None = None,
    *,
    option: str = "--in-distribution-labels",
) -> Dataset:
    """Open images of a label space's classes, to hold others against; the rest is passed over.

    Args:
        root: class folders, as ImageFolder has them, or with `labels` any folder of images.
        space: the label space that the others are restricted to.
        labels: a file that says of which class each image is (see `read_image_labels`).
        option: that takes this file.

    Raises:
        UsageError: no images, or none of a class of the label space; a wrong file of labels.
    """
    refuse_workspace(root)
    file = None
    if labels is not None:
        layout, found, file = label_images(root, labels)
        _refuse_strange(found, space)
    else:
        if release_label_space(root) is not None and read_release(root).layout == IMAGENET_O:
            raise UsageError(
                f"{printable(root)} holds images of something else, in ImageNet-O layout: "
                "in-distribution are images of the label space's classes"
            )
        refuse_flat(root, option)
        # Any WordNet id may be there, unless the label space goes by other ones.
        own = all(_WNID.fullmatch(wnid) for wnid in space.wnids)
        layout = read_layout(root, release_label_space(root) if own else space)
    kept = tuple(item for item in layout if item.wnid in space)
    if not kept:
        named = ", ".join(layout.wnids[:3]) + (" …" if len(layout.wnids) > 3 else "")
        raise UsageError(
            f"none of the {len(layout)} images of {printable(root)} is of a class of "
            f"{space.name}: they are of {len(layout.wnids)} others ({named})"
        )
    return dataset_of(
        root,
        Layout(root, kept, layout.passed_over),
        space,
        "the other side's",
        labels=file,
        other_classes=len(layout) - len(kept),
    )


def _refuse_strange(labels: Sequence[ImageLabel], space: LabelSpace) -> None:
    for label in labels:
        if label.wnid not in space and not _WNID.fullmatch(label.wnid):
            raise UnknownNameError("class", label.wnid, space.wnids, where=label.where)


def refuse_overlap(outside: Path, inside: Path) -> None:
    """Refuse folders of which one holds the other: an image cannot be on both sides.

    Raises:
        UsageError: they are the same, or one lies in the other.
    """
    first, second = outside.resolve(), inside.resolve()
    if first == second or first in second.parents or second in first.parents:
        raise UsageError(
            f"{printable(outside)} and the in-distribution images in {printable(inside)} hold "
            "the same files: name two folders apart"
        )
