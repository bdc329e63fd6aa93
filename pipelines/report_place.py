"""Where a report may stand: beside what it is made from, and never in its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from curate.errors import UsageError
from curate.files import printable


def check_report_place(
    report: Path | None,
    *,
    folders: Iterable[Path | None] = (),
    files: Iterable[Path | None] = (),
    writes: Sequence[str] = (),
    what: str = "the report",
    option: str = "--report",
) -> None:
    """Refuse a report that would change what it is made from.

    In a folder of images it would pass for a class or for images the next time, and make a
    release another one than was checked; under the name of a file that is read it would be
    written over that.

    Args:
        report: its folder; None for no report.
        folders: of images that are read; None counts as absent.
        files: that are read; None counts as absent.
        writes: what the report writes directly in its folder, as patterns of names.
        what: how messages call it, where it is no report.
        option: that names its folder.

    Raises:
        UsageError: it would.
    """
    if report is None:
        return
    place = report.resolve()
    for folder in filter(None, folders):
        if place.is_relative_to(folder.resolve()):
            raise UsageError(
                f"{what} {printable(report)} would stand among the images of "
                f"{printable(folder)}: name a folder outside with {option}"
            )
    for file in filter(None, files):
        found = file.resolve()
        name = found.name.casefold()
        if found.parent == place and any(fnmatchcase(name, pattern) for pattern in writes):
            raise UsageError(
                f"{what} would be written over {printable(file)}, which it is made from: name "
                f"another folder with {option}"
            )
