"""What a setting of the testbed is: images, what is right for each, and what is done to them.

A setting only says so. Whoever runs it decodes, corrupts, attacks and passes images through
models, so that all settings are computed, kept and counted in one way, and a new one is a small
file.

Classes that a set merges need no merged logits: the group whose maximum is the largest of all
groups' is that of the class with the largest logit. So an image has the ids that count as right,
and a prediction is one id of the label space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from curate.errors import UsageError, few
from curate.files import data_file, printable
from curate.labels.space import LabelSpace, load_label_space
from curate.release.layout import IMAGE_EXTENSIONS, LabelledImage, Layout, files_below, read_layout
from curate.testbed.image_labels import read_image_labels

if TYPE_CHECKING:
    from curate.testbed.attacks import Attack


@dataclass(frozen=True)
class Part:
    """Images that every model passes once, and the number that comes of it.

    Attributes:
        name: of the column in the table.
        layout: the images.
        space: the classes that a prediction is one of.
        right: of each image, the ids that count as right; empty for an image of something else.
        together: from a class of the space to all that count as right with it; one that is absent
            stands alone.
        border: pixels that are cut from each side of the photo first.
        is_cut: whether the pictures are crops already, and are shown whole.
        corruption: name and severity; None for none.
        attack: None for none.
        neighbours: from the row of each anchor to those of its frames; then two numbers come of it,
            pm-0 and pm-10. None where images stand alone.
        inside: images of the space's classes, where these are of something else: then the number is
            the AUPR of telling them apart.
        mean: the column that is the mean of all parts that name it; "" for a column of its own.
        published: classes and images of the published set; None where there is none.
        each: images of each class in it; 0 where classes have unlike numbers.
    """

    name: str
    layout: Layout
    space: LabelSpace
    right: tuple[tuple[str, ...], ...]
    together: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    border: int = 0
    is_cut: bool = False
    corruption: tuple[str, int] | None = None
    attack: Attack | None = None
    neighbours: Mapping[int, tuple[int, ...]] | None = None
    inside: Part | None = None
    mean: str = ""
    published: tuple[int, int] | None = None
    each: int = 0

    def __post_init__(self) -> None:
        if len(self.right) != len(self.layout):
            raise ValueError(f"{len(self.layout)} images, but {len(self.right)} say what is right")

    @property
    def note(self) -> str:
        """Where classes or images are not as many as were published, and of which; "" where not."""
        if self.published is None:
            return ""
        classes, images = self.published
        if self.inside is not None:
            told, wanted = f"{len(self.layout):,} images", f"{images:,}"
        else:
            what, items = "images", len(self.layout)
            if self.neighbours is not None:
                what, items = "anchors", len(self.neighbours)
            told = f"{items:,} {what} of {len(set(self.right)):,} classes"
            wanted = f"{images:,} of {classes:,}"
        unlike = self._unlike()
        if unlike is None:
            return ""
        name = printable(self.layout.root.name)
        return (
            f"{name} holds {told}, where {wanted} were published{unlike}: its numbers are not that "
            "set's"
        )

    def _unlike(self) -> str | None:
        """Which classes lack images or have another number of them; None where all is as it was."""
        assert self.published is not None
        if self.inside is not None:
            return None if len(self.layout) == self.published[1] else ""
        if self.neighbours is not None:
            # Frames show several classes, in more than thirty ways.
            return None if len(self.neighbours) == self.published[1] else ""
        counts = Counter(self.right)
        classes = dict.fromkeys(self.together.get(wnid, (wnid,)) for wnid in self.space.wnids)
        lacking = [ids[0] for ids in classes if not counts.get(ids)]
        if lacking and len(classes) == self.published[0]:
            return f", without any of {few(lacking)}"
        other = [
            f"{counts[ids]} of {ids[0]}"
            for ids in classes
            if self.each and counts[ids] != self.each * len(ids)
        ]
        if other:
            return f" ({few(other)}, where {self.each} are of each class)"
        return None if (len(counts), len(self.layout)) == self.published else ""


@dataclass(frozen=True)
class Asked:
    """What a setting is opened with.

    Attributes:
        name: as it was asked for.
        root: the folder.
        labels: a file with the class of each image, for folders without class folders.
        steps: of an attack.
        other: gives the parts of another setting of the same run.
        layouts: class folders that settings of the run have read, for those that come later.
    """

    name: str
    root: Path
    labels: Path | None
    steps: int
    other: Callable[[str], Sequence[Part]]
    layouts: dict[tuple[Path, str], Layout] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """A setting, or a family of them.

    Attributes:
        names: as it is asked for.
        about: what it is, and what its folder holds; for the help.
        opens: gives its parts.
    """

    names: tuple[str, ...]
    about: str
    opens: Callable[[Asked], Sequence[Part]]


def imagenet() -> LabelSpace:
    """ImageNet-1k."""
    return load_label_space("imagenet-1k")


@lru_cache(maxsize=32)
def subset(wnids: frozenset[str], name: str) -> LabelSpace:
    """Some classes of ImageNet-1k, in its order.

    Args:
        wnids: their ids.
        name: what the label space is called.
    """
    if len(wnids) == len(imagenet()):
        return imagenet()
    return LabelSpace(name, [item for item in imagenet() if item.wnid in wnids])


@lru_cache(maxsize=8)
def listed(name: str) -> LabelSpace:
    """Classes that the published testbed takes.

    Args:
        name: a key of `configs/testbed/class-subsets.yaml`.
    """
    import yaml

    text = data_file("testbed/class-subsets.yaml").read_text(encoding="utf-8")
    return subset(
        frozenset(imagenet().wnids[number] for number in yaml.safe_load(text)[name]), name
    )


def alone(layout: Layout) -> tuple[tuple[str, ...], ...]:
    """What is right where each image is of one class."""
    return tuple((item.wnid,) for item in layout)


def class_folders(asked: Asked, space: LabelSpace) -> Layout:
    """The images of a folder whose folders bear ids or names of classes, or with a file of labels.

    Args:
        asked: with the folder and the file.
        space: the label space.

    Raises:
        UsageError: no images, a folder of another class, or a wrong file of labels.
    """
    key = asked.root, space.fingerprint
    if key not in asked.layouts:
        asked.layouts[key] = _class_folders(asked, space)
    return asked.layouts[key]


def _class_folders(asked: Asked, space: LabelSpace) -> Layout:
    if is_flat(asked.root):
        if asked.labels is not None:
            return _labelled(asked.root, asked.labels, space)
        raise UsageError(
            f"{asked.name}: {printable(asked.root)} has no class folders: say with --labels FILE "
            "of which class each image is"
        )
    try:
        return read_layout(asked.root, space)
    except UsageError as error:
        raise UsageError(f"{asked.name}: {error}") from error


def is_flat(root: Path) -> bool:
    """Whether images lie in a folder directly, and no folders beside them."""
    try:
        entries = [entry for entry in root.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return False  # whoever lists it tells why
    return bool(entries) and not any(entry.is_dir() for entry in entries)


def _labelled(root: Path, labels: Path, space: LabelSpace) -> Layout:
    paths = [path for path, fault in files_below(root) if not fault]
    if not paths:
        raise UsageError(f"{printable(root)} holds no images")
    named = [printable(path.relative_to(root).as_posix()) for path in paths]
    found = read_image_labels(labels, named)
    for label in found:
        if label.wnid not in space:
            raise UsageError(f"{label.where}: {label.wnid!r} is no class of {space.name}")
    items = [LabelledImage(path, told.wnid) for path, told in zip(paths, found, strict=True)]
    return Layout(root, tuple(items))


def images_in(root: Path, name: str) -> list[Path]:
    """The images below a folder, in order.

    Args:
        root: the folder.
        name: of the setting, for the error.

    Raises:
        UsageError: it cannot be read, or holds none.
    """
    try:
        found = [path for path, fault in files_below(root) if not fault]
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
    if not found:
        raise UsageError(
            f"{name}: {printable(root)} holds no images ({', '.join(IMAGE_EXTENSIONS[:3])} …)"
        )
    return found
