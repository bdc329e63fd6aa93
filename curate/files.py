"""Files that are whole or absent, and the other things every room does with the disk."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import IO, Any

from curate.errors import BusyError, StorageError, UsageError

#: How names of unfinished files and folders begin.
TEMPORARY = ".partial-"
_DISARMED = ("=", "+", "-", "@", "\t", "\r", "'")
_SHA256 = re.compile("[0-9a-f]{64}")

# Whoever wrote a temporary file or folder that long ago does so no more, whatever a clock says.
_OLD_SECONDS = 86_400

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, and make that survive a power cut.

    Raises:
        StorageError: the disk is full or refuses.
    """
    if folder.is_dir():
        return
    with storage_errors(f"the folder {printable(folder)}"):
        made = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for one in made:
            sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive a power cut (a no-op where folders cannot be opened)."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Turn what the operating system says of a full or failing disk into one line."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(
                f"the disk is full while writing {what}; free some space and run again"
            ) from error
        raise StorageError(f"cannot write {what}: {error.strerror or error}") from error


@contextmanager
def atomic_write(path: Path, *, sync_parent: bool = True) -> Iterator[IO[bytes]]:
    """Open a binary file that appears under `path` whole, or not at all.

    The bytes go to a temporary name in the same folder, are synced, and take the name `path` by a
    rename; then the folder is synced. An error or a kill before that leaves `path` as it was.

    Args:
        path: where the file shall stand; its folder must exist.
        sync_parent: False leaves syncing the folder to a caller who writes many files into it.

    Raises:
        StorageError: the disk is full or refuses.
    """
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{os.urandom(6).hex()}")
    what = printable(path)
    try:
        with storage_errors(what):
            stream = temporary.open("xb")
        try:
            yield _Reporting(stream, what)  # type: ignore[misc]
            with storage_errors(what):
                stream.flush()
                os.fsync(stream.fileno())
        finally:
            # Closing tries once more to write what a full disk refused; that is told already.
            with suppress(OSError):
                stream.close()
        with storage_errors(what):
            temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    if sync_parent:
        with storage_errors(what):
            sync_folder(path.parent)


class _Reporting:
    """A stream whose failing writes are told as what they are; whatever else the body of
    `atomic_write` raises keeps its own words."""

    def __init__(self, stream: IO[bytes], what: str) -> None:
        self._stream, self._what = stream, what

    def write(self, data: Any) -> int:
        with storage_errors(self._what):
            return self._stream.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def written_together(folder: Path, last: str) -> Iterator[Path]:
    """A folder whose files appear in `folder` when all of them are there, or not at all.

    So that what belongs together is not seen mixed with what stood there before. An error leaves
    `folder` as it was, and so does a kill, but for a hidden folder that a later call removes.

    Args:
        folder: where the files shall stand; it must exist. Files of the same names are replaced.
        last: the name of the file that appears when all others are there.

    Yields:
        An empty folder, to be filled.

    Raises:
        StorageError: the disk is full or refuses.
    """
    what = printable(folder)
    with storage_errors(what):
        for leftover in folder.glob(f"{TEMPORARY}together-*"):
            if time.time() - leftover.stat().st_mtime > _OLD_SECONDS:
                shutil.rmtree(leftover, ignore_errors=True)
        temporary = folder / f"{TEMPORARY}together-{os.getpid()}-{os.urandom(6).hex()}"
        temporary.mkdir()
    try:
        yield temporary
        found = [path for path in temporary.rglob("*") if path.is_file()]
        with storage_errors(what):
            for path in sorted(found, key=lambda path: (path.name == last, path)):
                place = folder / path.relative_to(temporary)
                place.parent.mkdir(parents=True, exist_ok=True)
                path.replace(place)
            sync_folder(folder)
    except StorageError as error:
        raise StorageError(str(error).replace(printable(temporary), what)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically (see `atomic_write`)."""
    with atomic_write(path) as stream:
        stream.write(data)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON with sorted keys, atomically and with the same bytes each time."""
    write_bytes(path, canonical_json(value, indent=2) + b"\n")


def canonical_json(value: Any, *, indent: int | None = None) -> bytes:
    """JSON that depends on the value alone: sorted keys, UTF-8, no NaN.

    Raises:
        ValueError: the value holds NaN or an infinity.
    """
    text = json.dumps(value, sort_keys=True, indent=indent, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


def remove_leftovers(folder: Path, *, dry: bool = False, shared: bool = False) -> int:
    """Delete temporary files that a killed `atomic_write` left directly in `folder`.

    Args:
        folder: where to look; it may be absent.
        dry: only count them.
        shared: others may write there, so that only files count which nobody has touched for a day.
            Without it nobody else may.

    Returns:
        How many there were.
    """
    found = 0
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name.startswith(TEMPORARY) and _is_leftover(path, shared):
                if not dry:
                    path.unlink(missing_ok=True)
                found += 1
    return found


def _is_leftover(path: Path, shared: bool) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return False  # whoever wrote it has finished meanwhile
    is_old = time.time() - status.st_mtime > _OLD_SECONDS
    return stat.S_ISREG(status.st_mode) and (is_old or not shared)


def files_by_content(folder: Path) -> list[Path]:
    """The files directly in `folder` that are named by a SHA-256; it may be absent.

    Whatever else lies there is somebody else's: a user may have pointed the folder elsewhere.
    """
    return [path for path in folder.glob("*") if _SHA256.fullmatch(path.name) and path.is_file()]


def sha256_bytes(data: bytes) -> str:
    """The SHA-256 of `data` in 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's content, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def user_cache() -> Path | None:
    """What can be made anew: below $XDG_CACHE_HOME, else where the system keeps such things.

    Returns:
        The project's folder there, which may not exist; None where this user has no home.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named / "curate"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "curate"


def data_file(relative: str) -> Path:
    """A file that travels with the project: presets and label data.

    Args:
        relative: for example "labels/imagenet-a.csv" or "presets/imagenet-a.yaml".

    Returns:
        Its path in the installed package, or else in the checkout's `configs/`.

    Raises:
        FileNotFoundError: neither has it, which is a fault of the installation.
    """
    package = Path(str(resources.files("curate")))
    for root in (package / "configs", package.parent / "configs"):
        if (root / relative).is_file():
            return root / relative
    raise FileNotFoundError(f"{relative} is missing from the installation of natadv-curate")


def candidate_key(sha256: str, wnid: str) -> str:
    """The key of a candidate: 32 hexadecimal digits that depend on content alone.

    Two workspaces with the same photos thus agree on every order that goes by keys.

    Args:
        sha256: of the image's bytes, 64 hexadecimal digits.
        wnid: the id of its weak label.
    """
    return sha256_bytes(f"{sha256}:{wnid}".encode())[:32]


def printable(path: str | os.PathLike[str] | bytes) -> str:
    r"""A path as text that any file, terminal or database takes.

    Bytes that are not UTF-8 become backslash escapes such as ``\udce9``.
    """
    if isinstance(path, str) and path.isascii():
        return path
    return os.fsdecode(path).encode("utf-8", "backslashreplace").decode("utf-8")


def csv_safe(cell: Any) -> Any:
    """Disarm a text cell that a spreadsheet would run as a formula, by a leading apostrophe.

    Numbers pass unchanged. The reverse is `csv_plain`.
    """
    if isinstance(cell, str) and cell.startswith(_DISARMED):
        return "'" + cell
    return cell


def csv_plain(cell: str) -> str:
    """Undo `csv_safe`; text with an apostrophe of its own ("'Tis a bird") stays as it is."""
    return cell[1:] if cell[:1] == "'" and cell.startswith(_DISARMED, 1) else cell


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any] | Sequence[Any]]) -> str:
    """CSV with a header, safe against spreadsheet formulas (see `csv_safe`), lines ending in LF.

    Args:
        columns: the header.
        rows: mappings from column to cell, or sequences in the order of `columns`.
    """
    return "".join(csv_lines(columns, rows))


def csv_lines(
    columns: Sequence[str], rows: Iterable[Mapping[str, Any] | Sequence[Any]]
) -> Iterator[str]:
    """The lines of `csv_text`, one at a time."""
    line = ""

    class Lines:
        def write(self, text: str) -> None:
            nonlocal line
            # The writer quotes what its line end is made of; so a lone CR is quoted as well.
            line = text.removesuffix("\r\n") + "\n"

    writer = csv.writer(Lines(), lineterminator="\r\n")
    writer.writerow(columns)
    yield line
    for row in rows:
        cells = [row[c] for c in columns] if isinstance(row, Mapping) else row
        writer.writerow(["" if cell is None else csv_safe(cell) for cell in cells])
        yield line


def read_csv(path: Path, required: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a UTF-8 CSV file with a header, one at a time, with their line numbers.

    Args:
        path: the file; a byte-order mark is skipped.
        required: columns that must be there.

    Raises:
        UsageError: no such file, not UTF-8, a column is missing or there twice, or a row has too
            many cells.
    """
    try:
        if stat.S_ISCHR(path.stat().st_mode):
            raise UsageError(f"cannot read {printable(path)}: it is a device")
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, restkey="\0", strict=True)
            names = [name for name in reader.fieldnames or () if name]
            if twins := [name for name, times in Counter(names).items() if times > 1]:
                raise UsageError(f"{printable(path)}: column {twins[0]!r} is there twice; keep one")
            absent = [c for c in required if c not in (reader.fieldnames or ())]
            if absent:
                has = ", ".join(reader.fieldnames or ()) or "nothing"
                raise UsageError(
                    f"{printable(path)}: column {absent[0]!r} is missing; the header has {has}"
                )
            for row in reader:
                if "\0" in row:
                    raise UsageError(
                        f"{printable(path)}, line {reader.line_num}: more cells than columns"
                    )
                yield reader.line_num, {k: v or "" for k, v in row.items()}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {printable(path)}: {reason}") from error


@contextmanager
def hold(path: Path, what: str, where: str = "this workspace") -> Iterator[None]:
    """Hold the lock file `path` while working, and say in it who holds it.

    The operating system lets go of the lock when the process ends, however it ends.

    Args:
        path: the lock file; its folder must exist.
        what: what this process does, for the message to the others.
        where: what is held by it, for the same message.

    Raises:
        BusyError: another process holds it; the text names it.
        StorageError: the disk refuses.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path.with_suffix(".lock"))
    note = path.with_suffix(".json")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BusyError(f"{_holder(note)} holds {where}; wait for it to end") from None
    except OSError as error:
        raise StorageError(f"cannot lock {where}: {error.strerror or error}") from error
    try:
        with suppress(OSError):
            note.write_text(
                json.dumps(
                    {
                        "what": what,
                        "pid": os.getpid(),
                        "host": socket.gethostname(),
                        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
                    }
                ),
                encoding="utf-8",
            )
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def _holder(note: Path) -> str:
    try:
        told = json.loads(note.read_text(encoding="utf-8"))
        return f"{told['what']} (process {told['pid']} on {told['host']}, since {told['since']})"
    except (OSError, ValueError, KeyError):
        return "another command"
