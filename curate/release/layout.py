"""Reading datasets in the layout of ImageNet-A: one folder a class, named by the class's id, or in
folders that are no release by its name."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from curate.errors import AmbiguousNameError, UnknownNameError, UsageError
from curate.files import printable
from curate.labels.space import LabelSpace, load_label_space

#: The names that torchvision's ImageFolder takes for images, whatever their case.
IMAGE_EXTENSIONS = (
    ".jpg",
    ".jpeg",
    ".png",
    ".ppm",
    ".bmp",
    ".pgm",
    ".tif",
    ".tiff",
    ".webp",
)

#: Files that `curate release build` writes beside the class folders.
CLASS_MAP, RELEASE_RECORD = "classes.csv", "release.json"

#: What the class folders of a release are named by: the true class, or the class of the label space
#: that an image of something else is taken for.
IMAGENET_A, IMAGENET_O = "imagenet-a", "imagenet-o"

# What Hugging Face's Hub and its client put into the folder of a dataset.
_OF_HOSTS = re.compile(r"\.gitattributes|\.cache/huggingface/.+")

_WNID = re.compile(r"n[0-9]{8}")

# A record is as long as its label space; this is a hundred times the longest one.
_LARGEST_RECORD = 256_000_000


class LabelledImage(NamedTuple):
    """One image of a dataset.

    Attributes:
        path: the file, beginning with the dataset's folder as it was given.
        wnid: id of its class, which its class folder bears or names.
    """

    path: Path
    wnid: str


@dataclass(frozen=True)
class Layout:
    """A dataset on the disk.

    Attributes:
        root: its folder.
        items: the images, class by class, in the order of their ids' and names' bytes.
        passed_over: what lies in the class folders but is not loaded: (path within the dataset,
            "symbolic link", "no image name" or "no regular file"), in the same order.
        named: class folders that bear a name, with the id that it means.
    """

    root: Path
    items: tuple[LabelledImage, ...]
    passed_over: tuple[tuple[str, str], ...] = ()
    named: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def wnids(self) -> tuple[str, ...]:
        """The classes that have images, sorted; ImageFolder numbers ids in this order."""
        return tuple(sorted({item.wnid for item in self.items}))

    def relative(self, item: LabelledImage) -> str:
        """The path of an image within the dataset, with slashes and printable."""
        return _printable(item.path.relative_to(self.root))

    def lot_of(self, item: LabelledImage) -> str:
        """What a lot is drawn by: its path, with the id of its class where its folder bears a name.

        However a class is written, the same images are drawn.
        """
        folder, *inner = item.path.relative_to(self.root).parts
        return _printable(Path(self.named.get(folder, folder), *inner))

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[LabelledImage]:
        return iter(self.items)


def read_layout(root: Path, space: LabelSpace | None = None) -> Layout:
    """List the images of a dataset in ImageNet-A style; their content is not looked at.

    Files beside the class folders and folders whose name begins with a dot are ignored. Symbolic
    links below `root` are not followed. Folders within a class folder belong to its class.

    Args:
        root: the folder that holds the class folders.
        space: whose ids class folders may bear. By default the release's own label space, and
            for other datasets every WordNet id, such as n02268443. The folders of what is no
            release may also bear names, as `curate collect folder` takes them: those of `space`,
            by default of imagenet-1k. Several folders may mean one class.

    Raises:
        UsageError: no folder, no class folders, or no images in them; a folder of a release that
            bears a name.
        UnknownNameError: a folder that no class is called; the text names the nearest.
        AmbiguousNameError: a folder's name that several classes carry; the text names these.
        LabelSpaceError: the class map of a release is unusable.
    """
    released = any((place / RELEASE_RECORD).is_file() for place in (root, root.parent))
    space = space or release_label_space(root)
    images: list[LabelledImage] = []
    passed_over: list[tuple[str, str]] = []
    folders = _class_folders(root, space, by_name=not released)
    for name, wnid in folders:
        for path, fault in files_below(root / name):
            if fault:
                passed_over.append((_printable(path.relative_to(root)), fault))
            else:
                images.append(LabelledImage(path, wnid))
    if not images:
        seen = ""
        if passed_over:
            first, fault = passed_over[0]
            seen = f"; passed over: {len(passed_over)} files, the first is {first!r} ({fault})"
        raise UsageError(f"the class folders of {printable(root)} hold no images{seen}")
    named = {name: wnid for name, wnid in folders if name != wnid}
    return Layout(root, tuple(images), tuple(passed_over), named)


def release_label_space(root: Path) -> LabelSpace | None:
    """The label space of a release that `curate release build` wrote, or of the one that a split
    is part of; None for other folders.

    Raises:
        UsageError: its record cannot be read, or its class map is another one than it names.
        LabelSpaceError: its class map is unusable.
    """
    record_path, class_map = root / RELEASE_RECORD, root / CLASS_MAP
    split = None
    if not record_path.is_file() and (root.parent / RELEASE_RECORD).is_file():
        split, root = root.name, root.parent
        record_path, class_map = root / RELEASE_RECORD, root / CLASS_MAP
    if not (record_path.is_file() and class_map.is_file()):
        return None
    try:
        if record_path.stat().st_size > _LARGEST_RECORD:
            raise ValueError("it is too large")
        record = json.loads(record_path.read_bytes())
        if split is not None and split not in record["counts"].get("by_split", {}):
            return None
        told = record["label_space"]
        name, fingerprint = str(told["name"]), told["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if split is not None:
            return None
        reason = error.strerror if isinstance(error, OSError) else "it is no release's record"
        raise UsageError(f"cannot read {printable(record_path)}: {reason}") from error
    space = LabelSpace(name, load_label_space(CLASS_MAP, root).classes)
    if space.fingerprint != fingerprint:
        raise UsageError(
            f"{printable(class_map)} is not the class map that {RELEASE_RECORD} names; "
            "fetch the release again"
        )
    return space


def is_of_host(path: str) -> bool:
    """Whether the host of a dataset has added a file, by its path; no image, which loaders would
    take for one of the dataset."""
    return bool(_OF_HOSTS.fullmatch(path)) and not path.lower().endswith(IMAGE_EXTENSIONS)


def _class_folders(root: Path, space: LabelSpace | None, *, by_name: bool) -> list[tuple[str, str]]:
    """The class folders, each with the id of its class, in the order of these ids."""
    folders, links, files = [], [], 0
    for entry in _entries(root):
        if entry.name.startswith("."):
            continue
        if entry.is_symlink():
            links.append(printable(entry.name))
        elif entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
        else:
            files += entry.name.lower().endswith(IMAGE_EXTENSIONS)
    found = [(name, _meant(name, space, by_name=by_name)) for name in folders]
    strangers = [name for name, wnid in found if wnid is None]
    if strangers and len(strangers) == len(folders):
        for name in folders:
            if any(_meant(one.name, space, by_name=by_name) for one in _entries(root / name)):
                inner = printable(root / name)
                raise UsageError(
                    f"the class folders are one level down: name {inner} instead of "
                    f"{printable(root)}"
                )
    if strangers:
        raise _stranger(root, strangers[0], space)
    if not folders:
        seen = f" ({links[0]!r} is a symbolic link, which is not followed)" if links else ""
        seen = seen or (f" ({files} images lie in it directly)" if files else "")
        raise UsageError(
            f"{printable(root)} has no class folders{seen}; images belong in folders named by "
            "class id, such as n02268443"
        )
    known = [(name, wnid) for name, wnid in found if wnid is not None]
    # Numbers that are drawn by lot depend on the order, which no way of writing a class may change.
    return sorted(known, key=lambda folder: os.fsencode(folder[1]))


def _is_class(name: str, space: LabelSpace | None) -> bool:
    return bool(_WNID.fullmatch(name)) if space is None else name in space


def _meant(name: str, space: LabelSpace | None, *, by_name: bool) -> str | None:
    """The id of the one class that a folder stands for, if it stands for one."""
    if _is_class(name, space):
        return name
    names, text = space or load_label_space("imagenet-1k"), printable(name)
    # Whoever is unknown is not asked for its nearest names: there may be thousands.
    if not by_name or not names.knows(text):
        return None
    try:
        return names.match(text).wnid
    except AmbiguousNameError:
        return None


def _stranger(root: Path, name: str, space: LabelSpace | None) -> UsageError:
    where, text = f"class folders of {printable(root)}", printable(name)
    try:
        meant = (space or load_label_space("imagenet-1k")).match(text, where=where)
    except (UnknownNameError, AmbiguousNameError) as error:
        return error
    return UsageError(f"{where}: {text!r} is a class name; call the folder {meant.wnid}")


def files_below(folder: Path) -> Iterator[tuple[Path, str]]:
    """Everything below a folder but folders, as (path, why it is no image or ""), in order.

    Symbolic links are not followed.

    Args:
        folder: a class folder, or one of images without classes.

    Raises:
        UsageError: it cannot be read.
    """
    waiting = [folder]
    while waiting:
        inner = []
        for entry in _entries(waiting.pop()):
            path = Path(entry.path)
            if entry.is_symlink():
                yield path, "symbolic link"
            elif entry.is_dir(follow_symlinks=False):
                inner.append(path)
            elif not entry.name.lower().endswith(IMAGE_EXTENSIONS):
                yield path, "no image name"
            else:
                yield path, "" if entry.is_file(follow_symlinks=False) else "no regular file"
        waiting += reversed(inner)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            return sorted(listing, key=lambda entry: os.fsencode(entry.name))
    except NotADirectoryError:
        raise UsageError(f"{printable(folder)} is not a folder") from None
    except OSError as error:
        raise UsageError(f"cannot read {printable(folder)}: {error.strerror}") from error


def _printable(relative: Path) -> str:
    return printable(relative.as_posix())
