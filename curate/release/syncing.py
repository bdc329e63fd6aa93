"""Making a finished folder survive a power cut before it gets its name."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from curate.files import sync_folder

_THREADS = 16

# File systems that write to a disk of this machine, where syncing one as a whole does for all of
# its files what syncing each would, at a tenth of the cost. Network file systems and those of other
# processes (FUSE) may keep more back.
_WHOLE = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"))

# Linux tells since 5.8 whether what it wrote has failed.
_TELLS_FAILURE = (5, 8)


class Syncing:
    """Syncs all that is written below a folder from now on.

    Args:
        folder: it is there, and nothing in it yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun: Future[None] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="sync")
        # What fails between this and the sync is told then, whoever wrote it back meanwhile.
        whole = syncs_as_a_whole(folder)
        self._descriptor = os.open(folder, os.O_RDONLY) if whole else None

    def __enter__(self) -> Syncing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        if self._descriptor is not None:
            os.close(self._descriptor)

    def begin(self) -> None:
        """Have what is written so far go to the disk while the caller works on."""
        if self._descriptor is not None:
            if self._begun is not None:
                self._begun.result()
            self._begun = self._pool.submit(_sync_whole, self._descriptor)

    def finish(self) -> None:
        """Wait until everything below the folder is on the disk, names included.

        Raises:
            OSError: some of it is not.
        """
        if self._descriptor is None:
            _sync_one_by_one(self._folder)
            return
        if self._begun is not None:
            self._begun.result()
        _sync_whole(self._descriptor)


def syncs_as_a_whole(folder: Path) -> bool:
    """Whether syncing the file system that a folder lies on is as good as syncing its files."""
    if sys.platform != "linux":
        return False
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    if release is None or (int(release[1]), int(release[2])) < _TELLS_FAILURE:
        return False
    return _file_system(folder) in _WHOLE


def _sync_whole(descriptor: int) -> None:
    # Python's os has no syncfs; ctypes lets other threads work meanwhile.
    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _sync_one_by_one(folder: Path) -> None:
    files, folders = [], []
    for place, _, names in os.walk(folder):
        folders.append(place)
        files += [f"{place}/{name}" for name in names]
    # File systems answer many requests at once with one write of their journal: with 16 threads
    # 10,000 files took a third of the time of one after the other.
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="sync") as pool:
        parts = [files[start::_THREADS] for start in range(_THREADS)]
        for done in [pool.submit(_sync_files, part) for part in parts]:
            done.result()
    for place in folders:
        sync_folder(Path(place))


def _sync_files(paths: list[str]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _file_system(folder: Path) -> str | None:
    """What kind of file system a folder lies on; None where Linux does not say."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return None
    kinds = set()
    for line in lines:
        about, _, kind = line.partition(" - ")
        if about.split()[2:3] == [wanted]:
            kinds.add(kind.split()[0])
    return kinds.pop() if len(kinds) == 1 else None
