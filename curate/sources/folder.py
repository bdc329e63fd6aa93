"""Folders of weakly labelled images: class folders, or a table of paths and labels.

Every file is looked at, hidden ones too, but for what operating systems leave behind; folders whose
name begins with a dot are passed over.
Symbolic links are never followed. Names are any bytes that the file system takes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from curate.errors import ImageRefused, UsageError
from curate.files import csv_plain, printable, read_csv

#: Files that operating systems leave in folders of photos.
_LITTER = frozenset((".DS_Store", "Thumbs.db", "desktop.ini"))

#: Text from a table is cut here: it ends up on pages and in manifests.
_LONGEST = 2000


@dataclass(frozen=True)
class Found:
    """One image file with its weak label, before anything is known of its content.

    Attributes:
        locator: the folder's name and the path within it, printable; names the file in lists.
        path: the file.
        label: what the folder or the table calls its class; empty where there is no label.
        collection, page, title, author, licence: what the table says of its origin.
        refusal: why it cannot be taken, where that is clear already.
    """

    locator: str
    path: Path
    label: str
    collection: str | None = None
    page: str | None = None
    title: str | None = None
    author: str | None = None
    licence: str | None = None
    refusal: ImageRefused | None = None


def scan_class_folders(root: Path) -> Iterator[Found]:
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


def _scan(folder: Path, locator: str, label: str) -> Iterator[Found]:
    with os.scandir(folder) as listing:
        entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
    for entry in entries:
        name = f"{locator}/{printable(entry.name)}"
        path = Path(entry.path)
        if entry.name in _LITTER:
            continue
        if entry.is_symlink():
            yield Found(name, path, label, refusal=ImageRefused("symlink"))
        elif entry.is_dir(follow_symlinks=False):
            if entry.name.startswith("."):
                continue
            if label and _is_image_name(entry.name):
                yield Found(name, path, label, refusal=ImageRefused("not-a-file", "a folder"))
                continue
            try:
                yield from _scan(path, name, label or printable(entry.name))
            except OSError as error:
                detail = f"cannot list the folder: {error.strerror}"
                yield Found(name, path, label, refusal=ImageRefused("unreadable", detail))
        else:
            yield Found(name, path, label)


def read_table(root: Path, table: Path) -> Iterator[Found]:
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
            for name in names:
                if value := _text(row.get(name, "")):
                    return value
            return None

        yield Found(
            locator=f"{_name(root)}/{_text(text)}",
            path=root / text,
            label=_text(row["label"]),
            collection=cell("source"),
            page=cell("page"),
            title=cell("title"),
            author=cell("author"),
            licence=cell("licence", "license"),
            refusal=_outside(root, text),
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


def _text(cell: str) -> str:
    """A cell as text that any database takes: none takes NUL."""
    return printable(csv_plain(cell).strip()).replace("\0", "\\x00")[:_LONGEST]


def _name(root: Path) -> str:
    return printable(root.resolve().name)


def _is_image_name(name: str) -> bool:
    return name.lower().endswith((".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif"))
