"""Folders of weakly labelled images: class folders, or a table of paths and labels.

Every file is looked at, hidden ones too, but for what operating systems leave behind; folders whose
name begins with a dot are passed over.
Symbolic links are never followed. Names are any bytes that the file system takes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from curate.errors import ImageRefused, UsageError
from curate.files import csv_plain, printable, read_csv
from curate.sources.locators import locator_of
from curate.sources.protocol import Hit, Query, clean

#: Files that operating systems leave in folders of photos.
LITTER = frozenset((".DS_Store", "Thumbs.db", "desktop.ini"))

#: The name of this source in the catalogue.
NAME = "folder"


class Folder:
    """A folder as a source, see `scan_class_folders` and `read_table`.

    Looking costs little, so a cursor is not needed: every search begins at the front.

    Args:
        root: class folders, or the folder that the table refers to.
        labels: the table; None for class folders.
    """

    name = NAME

    def __init__(self, root: Path, labels: Path | None = None) -> None:
        self.root, self.labels = root, labels

    def search(self, query: Query) -> Iterator[Hit]:
        """Every file of the class folders, or of the table.

        Raises:
            UsageError: the folder or the table cannot be read.
        """
        return read_table(self.root, self.labels) if self.labels else scan_class_folders(self.root)


def scan_class_folders(root: Path) -> Iterator[Hit]:
    """Every file under `root`, labelled with the folder directly below `root` that holds it.

    Files come in the order of their names' bytes, the same on every machine.

    Args:
        root: the folder that holds the class folders.

    Raises:
        UsageError: `root` is no folder, or cannot be read.
    """
    try:
        yield from _scan(root, _name(root), "")
    except NotADirectoryError:
        raise UsageError(f"{printable(root)} is not a folder") from None
    except OSError as error:
        raise UsageError(f"cannot read {printable(root)}: {error.strerror}") from error


def _scan(folder: Path, locator: str, label: str) -> Iterator[Hit]:
    with os.scandir(folder) as listing:
        entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
    for entry in entries:
        name = f"{locator}/{printable(entry.name)}"
        path = Path(entry.path)
        if entry.name in LITTER:
            continue
        if entry.is_symlink():
            yield _refused(name, label, ImageRefused("symlink"))
        elif entry.is_dir(follow_symlinks=False):
            if entry.name.startswith("."):
                continue
            if label and _is_image_name(entry.name):
                yield _refused(name, label, ImageRefused("not-a-file", "a folder"))
                continue
            try:
                yield from _scan(path, name, label or printable(entry.name))
            except OSError as error:
                detail = f"cannot list the folder: {error.strerror}"
                yield _refused(name, label, ImageRefused("unreadable", detail))
        else:
            yield Hit(NAME, name, label, path=path)


def read_table(root: Path, table: Path) -> Iterator[Hit]:
    """The files that a CSV table names, with their labels, in its order.

    Args:
        root: the folder that the paths are relative to.
        table: columns `path` and `label`, optionally `source`, `page`, `title`, `author` and
            `licence` (or `license`).

    Raises:
        UsageError: the table cannot be read, or lacks a column.
    """
    if not root.is_dir():
        raise UsageError(f"{printable(root)} is not a folder")
    for _, row in read_csv(table, ["path", "label"]):
        text = csv_plain(row["path"])

        def cell(*names: str, row: dict[str, str] = row) -> str | None:
            return next((told for name in names if (told := clean(row.get(name)))), None)

        refusal = _outside(root, text)
        yield Hit(
            source=NAME,
            locator=f"{_name(root)}/{locator_of(text)}",
            label=cell("label") or "",
            path=None if refusal else root / text,
            collection=cell("source"),
            page=cell("page"),
            title=cell("title"),
            author=cell("author"),
            licence=cell("licence", "license"),
            refusal=refusal,
        )


def _outside(root: Path, text: str) -> ImageRefused | None:
    """Refuse a path that leaves the folder, in words or through a symbolic link."""
    relative = PurePosixPath(text)
    if not text or "\0" in text or relative.is_absolute() or ".." in relative.parts:
        return ImageRefused("outside", f"the path {printable(text)!r} leaves the folder")
    path = root
    for part in relative.parts:
        path = path / part
        if path.is_symlink():
            return ImageRefused("symlink")
    return None


def read_image(path: Path, max_bytes: int) -> bytes:
    """The bytes of a regular file, at most `max_bytes` of them.

    Raises:
        ImageRefused: "missing", "symlink", "not-a-file", "unreadable", "empty-file" or
            "too-many-bytes".
    """
    try:
        # Not blocking: a named pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ImageRefused("missing") from None
    except IsADirectoryError:
        raise ImageRefused("not-a-file", "a folder") from None
    except OSError as error:
        if path.is_symlink():
            raise ImageRefused("symlink") from None
        raise ImageRefused("unreadable", error.strerror or str(error)) from error
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise ImageRefused("not-a-file", what)
        if status.st_size > max_bytes:
            raise ImageRefused("too-many-bytes", f"{status.st_size:,} bytes, over {max_bytes:,}")
        try:
            data = stream.read(max_bytes + 1)
        except OSError as error:
            raise ImageRefused("unreadable", error.strerror or str(error)) from error
    if not data:
        raise ImageRefused("empty-file")
    if len(data) > max_bytes:
        raise ImageRefused("too-many-bytes", f"over {max_bytes:,} bytes")
    return data


def _refused(locator: str, label: str, refusal: ImageRefused) -> Hit:
    return Hit(NAME, locator, label, refusal=refusal)


def _name(root: Path) -> str:
    return printable(root.resolve().name)


def _is_image_name(name: str) -> bool:
    return name.lower().endswith((".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif"))
