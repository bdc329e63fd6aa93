"""Labelled folders: photos in class folders named by id or by name, for learning and measuring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from curate.errors import (
    AmbiguousNameError,
    ImageRefused,
    Interrupted,
    UnknownNameError,
    UsageError,
)
from curate.files import printable, sha256_bytes
from curate.labels.space import LabelSpace
from curate.progress import Stop, progress
from curate.setting_groups import ImageLimits
from curate.sources.folder import read_image, scan_class_folders
from pipelines.threads import run_here, usable_cores

#: Folders to learn from are made by others: a side may be short. The ratio bounds what resizing
#: makes.
LIMITS = ImageLimits(min_side=1, max_aspect_ratio=100)

# Photos in hand of one worker.
_CHUNK = 16


@dataclass(frozen=True)
class LabelledPhoto:
    """One file of a class folder.

    Attributes:
        path: the file.
        name: its path within the folder, printable and with slashes.
        wnid: id of its class.
    """

    path: Path
    name: str
    wnid: str


@dataclass(frozen=True)
class Refused:
    """One file that cannot be used.

    Attributes:
        name: its path within the folder.
        reason: a key of `errors.REASONS`.
        detail: what was seen.
    """

    name: str
    reason: str
    detail: str


@dataclass(frozen=True)
class LabelledFolder:
    """What lies in a folder of class folders.

    Attributes:
        root: the folder.
        photos: its files, by their names' bytes; their content has not been looked at.
        refused: what is no regular file.
        passed_over: class folders outside the label space, with the number of their files.
    """

    root: Path
    photos: tuple[LabelledPhoto, ...]
    refused: tuple[Refused, ...]
    passed_over: Mapping[str, int]

    def counts(self) -> Counter[str]:
        """Files by class id."""
        return Counter(photo.wnid for photo in self.photos)


def list_labelled(root: Path, space: LabelSpace) -> LabelledFolder:
    """List a folder of class folders.

    Class folders are named by id or name, as `curate collect folder` takes them; several may mean
    one class. Those that mean no class of the label space are passed over: a folder of all of
    ImageNet serves a label space of some of its classes. Files beside the class folders are
    ignored, and symbolic links are not followed.

    Args:
        root: the folder that holds the class folders.
        space: the classes.

    Raises:
        UsageError: it cannot be read, or holds no photo of any class; the text names the first
            folder and the class nearest to its name.
        AmbiguousNameError: several classes carry a folder's name.
    """
    photos: list[LabelledPhoto] = []
    refused: list[Refused] = []
    passed_over: Counter[str] = Counter()
    known: dict[str, str | UnknownNameError] = {}
    for hit in scan_class_folders(root):
        if not hit.label:
            continue
        if hit.label not in known:
            known[hit.label] = _class(hit.label, space, root)
        wnid = known[hit.label]
        if not isinstance(wnid, str):
            passed_over[hit.label] += 1
        elif hit.path is None or hit.refusal is not None:
            fault = hit.refusal or ImageRefused("unreadable")
            refused.append(Refused(_within(hit.locator), fault.reason, fault.detail))
        else:
            photos.append(LabelledPhoto(hit.path, _within(hit.locator), wnid))
    if not photos:
        raise _nothing(root, space, known, refused)
    return LabelledFolder(root, tuple(photos), tuple(refused), dict(sorted(passed_over.items())))


def _class(label: str, space: LabelSpace, root: Path) -> str | UnknownNameError:
    try:
        return space.match(label, where=f"class folders of {printable(root)}").wnid
    except AmbiguousNameError:
        raise
    except UnknownNameError as error:
        return error


def _nothing(
    root: Path,
    space: LabelSpace,
    known: Mapping[str, str | UnknownNameError],
    refused: Sequence[Refused],
) -> UsageError:
    strangers = [value for value in known.values() if isinstance(value, UnknownNameError)]
    if strangers and len(strangers) == len(known):
        for folder in known:
            inner = root / folder
            if any(space.knows(printable(one.name)) for one in _folders(inner)):
                return UsageError(
                    f"the class folders are one level down: name {printable(inner)} instead of "
                    f"{printable(root)}"
                )
        many = f"none of its {len(known)} folders is" if len(known) > 1 else "it is not"
        return UsageError(f"{strangers[0]}; {many} a class of {space.name}")
    seen = ""
    if refused:
        seen = f"; refused: {len(refused)}, the first is {refused[0].name!r} ({refused[0].reason})"
    return UsageError(
        f"{printable(root)} holds no photos in folders named by a class of {space.name}, such as "
        f"{space.wnids[0]}{seen}"
    )


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return []


def _within(locator: str) -> str:
    """A path without the first part, the folder's own name."""
    return PurePosixPath(*PurePosixPath(locator).parts[1:]).as_posix()


@dataclass
class Looked:
    """What the content of photos is.

    Attributes:
        sha256: of each photo by its place; absent where it cannot be read.
        refusals: why a photo cannot be used, by its place.
    """

    sha256: dict[int, str] = field(default_factory=dict)
    refusals: dict[int, ImageRefused] = field(default_factory=dict)


def look(
    photos: Sequence[LabelledPhoto],
    stop: Stop,
    *,
    verdicts: Mapping[str, tuple[str, str] | None] | None = None,
    decodes: bool = True,
) -> Looked:
    """Hash photos and check that they can be decoded, on all cores.

    Args:
        photos: the files.
        stop: asks to stop.
        verdicts: SHA-256 to what an earlier look said: a reason and what was seen, or None where
            the photo is good. What is known is not decoded again.
        decodes: whether what is not known is decoded; otherwise it is hashed alone.

    Raises:
        Interrupted: stopped.
    """
    from curate.images.decode import examine

    known = verdicts or {}

    def work(places: Sequence[int]) -> Looked:
        one = Looked()
        for place in places:
            photo = photos[place]
            try:
                data = read_image(photo.path, LIMITS.max_bytes)
                sha256 = one.sha256[place] = sha256_bytes(data)
                if sha256 in known:
                    if (told := known[sha256]) is not None:
                        raise ImageRefused(*told)
                elif decodes:
                    examine(data, LIMITS, photo.path.name)
            except ImageRefused as refusal:
                one.refusals[place] = refusal
        return one

    all_places = range(len(photos))
    chunks = [all_places[start : start + _CHUNK] for start in range(0, len(photos), _CHUNK)]
    looked, done = Looked(), 0
    with progress("looking at photos", len(photos)) as bar:
        for chunk, one in run_here(chunks, work, usable_cores(), stop):
            looked.sha256 |= one.sha256
            looked.refusals |= one.refusals
            done += len(chunk)
            bar.advance(len(chunk))
    if done < len(photos):
        raise Interrupted("stopped while looking at the photos; the same command looks again")
    return looked
