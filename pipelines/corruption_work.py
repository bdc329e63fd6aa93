"""The work on one picture under one corruption, here or in a process beside this one."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from curate.corruptions import FrostPictures, Scale, corrupt, load_file, seed_of
from curate.corruptions.registry import words_of
from curate.errors import ImageRefused
from curate.files import printable
from curate.progress import StopNow
from pipelines.corruption_pictures import Pixels, Stored, cut, decoded

if TYPE_CHECKING:
    from curate.images.views import ViewRecipe

#: How the published files of ImageNet-C were written.
JPEG_QUALITY = 85

_LONGEST_REASON = 200

_FAILED = "corruption-failed"

# Of a file that was there when the run began.
_CURABLE = ("missing", "altered", "unreadable")

# Pictures that travel to a worker at once, by their bytes.
_PARCEL = 1 << 20


@dataclass(frozen=True)
class Damage:
    """What is done to each picture of a setting.

    Attributes:
        corruption: its name; None for the clean picture.
        severity: 1 … 5; 0 for the clean picture.
        seed: of the run; each picture's own seed comes from it and the photo's content.
        scale: how the constants follow the size of the picture.
        frost: pictures of frost; None draws it.
        jpeg: whether the corrupted picture goes through JPEG.
        before: how a file's photo is cut before it is corrupted; None for the whole photo.
        after: how it is cut afterwards; None where it was cut before.
        border: pixels that are cut from each side of a file's photo first.
    """

    corruption: str | None
    severity: int
    seed: int
    scale: Scale
    frost: FrostPictures | None
    jpeg: bool
    before: ViewRecipe | None
    after: ViewRecipe | None
    border: int = 0


def damaged(source: Pixels | Stored, sha256: str, damage: Damage) -> Pixels:
    """A picture under a corruption, as the classifier sees it.

    Args:
        source: what `Pictures.source` gives.
        sha256: of the photo's bytes.
        damage: what to do.

    Raises:
        ImageRefused: the photo cannot be decoded.
        Exception: whatever a corruption raises.
    """
    pixels = source
    if isinstance(pixels, Stored):
        pixels = without_border(decoded(pixels), damage.border)
        if damage.before is not None:
            pixels = cut(pixels, damage.before)
    if damage.corruption is not None:
        name, severity = damage.corruption, damage.severity
        own = seed_of(sha256, name, severity, damage.seed)
        pixels = corrupt(pixels, name, severity, own, scale=damage.scale, frost=damage.frost)
        if damage.jpeg:
            pixels = through_jpeg(pixels)
    return pixels if damage.after is None else cut(pixels, damage.after)


def without_border(pixels: Pixels, border: int) -> Pixels:
    """A photo without the pixels next to its edges.

    Args:
        pixels: shape (h, w, 3).
        border: how many are cut from each side.

    Raises:
        ImageRefused: nothing would be left.
    """
    if min(pixels.shape[:2]) <= 2 * border:
        raise ImageRefused("too-small", f"a border of {border} pixels leaves nothing of it")
    return pixels[border : pixels.shape[0] - border, border : pixels.shape[1] - border]


def through_jpeg(pixels: Pixels) -> Pixels:
    """What is left of a picture after a file like those of ImageNet-C."""
    import numpy as np
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=JPEG_QUALITY, optimize=True)
    with Image.open(file) as image:
        return np.array(image)


#: A picture, or why there is none.
Outcome = Pixels | str


def damage_all(parcel: Sequence[tuple[Pixels | Stored, str]], damage: Damage) -> list[Outcome]:
    """`damaged` for several pictures; one that fails leaves the others alone."""
    return [_outcome(source, sha256, damage) for source, sha256 in parcel]


def _outcome(source: Pixels | Stored, sha256: str, damage: Damage) -> Outcome:
    try:
        return damaged(source, sha256, damage)
    except ImageRefused as refusal:
        return refusal.reason
    except StopNow:
        raise
    except BaseException as error:
        # A corruption may be a user's own, and may raise anything.
        return printable(f"{_FAILED}: {words_of(error)}"[:_LONGEST_REASON])


def may_be_kept(failed: Mapping[int, str], digests: Sequence[str]) -> bool:
    """Whether pictures that failed would fail again, so that another run may take that from here.

    A file that was read and then was not, or was another one, says nothing of what it held. What a
    user's code says may depend on memory, on other files and on whatever else it asks.

    Args:
        failed: row to why there was no picture.
        digests: of each row, SHA-256 of the file that was read first; "" where none was.
    """
    return not any(
        digests[row] and (reason in _CURABLE or reason.startswith(_FAILED))
        for row, reason in failed.items()
    )


def parcels(
    items: Sequence[tuple[Pixels | Stored, str]],
) -> list[Sequence[tuple[Pixels | Stored, str]]]:
    """Split items so that each part has at most a megabyte of pixels, or one item."""
    parts: list[list[tuple[Pixels | Stored, str]]] = []
    room = 0
    for item in items:
        size = _PARCEL if isinstance(item[0], Stored) else item[0].nbytes
        if room < size or not parts:
            parts.append([])
            room = _PARCEL
        parts[-1].append(item)
        room -= size
    return list(parts)


class Here(Executor):
    """Does work when its result is asked for, in the thread that asks."""

    def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Future[Any]:
        """See `Executor.submit`."""
        return _Lazy(lambda: fn(*args, **kwargs))


class _Lazy(Future[Any]):
    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> object:
        return self._work()


def processes(count: int, files: Sequence[str]) -> ProcessPoolExecutor:
    """Worker processes that know the user's corruptions.

    Args:
        count: how many.
        files: Python files with the user's corruptions.
    """
    import multiprocessing

    return ProcessPoolExecutor(
        count,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare,
        initargs=(tuple(files),),
    )


def _prepare(files: Sequence[str]) -> None:
    # The terminal sends the user's interrupt to every process; the driver alone heeds it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Standard output is for the summary; a user's code may print.
    sys.stdout = sys.stderr
    for file in files:
        load_file(file)


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, however that ended."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
