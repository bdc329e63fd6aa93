"""Whose the photos of a page are, as far as their dataset tells."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from curate.errors import UsageError
from curate.licences import parse
from curate.testbed.parquet_tables import parquet_batches

#: A line longer than this is cut; a release holds the whole one.
_LONGEST = 300


class Credits:
    """The attribution of each photo, from the manifest of a release.

    Args:
        root: the dataset's folder; None where there is none.
        paths: of the photos within it.

    Attributes:
        withheld: whether some photo is not known to be one that may be passed on.
    """

    def __init__(self, root: Path | None, paths: Collection[str]) -> None:
        wanted = set(paths)
        self._lines: dict[str, str] = {}
        free = set()
        for path, line, licence in () if root is None or not wanted else _manifest(root):
            if path in wanted:
                self._lines[path] = line[:_LONGEST]
                if parse(licence).redistributable:
                    free.add(path)
        self.withheld = bool(wanted - free)

    def get(self, path: str) -> str:
        """The credit of a photo; empty where nothing is known."""
        return self._lines.get(path, "")


def _manifest(root: Path) -> Iterator[tuple[str, str, str]]:
    """Path, attribution and licence of each image of a release; nothing for other folders."""
    path = root / "manifest.parquet"
    if not path.is_file():
        return
    columns = ("path", "attribution", "licence")

    def choose(names: Sequence[str], rows: int) -> Sequence[str]:
        if any(names.count(name) != 1 for name in columns):
            raise UsageError("it is no manifest")
        return columns

    try:
        for _, cells in parquet_batches(path, choose):
            for row in zip(*(cells[name] for name in columns), strict=True):
                named, line, licence = ("" if cell is None else str(cell) for cell in row)
                yield named, line, licence
    except UsageError:
        # What it says is for courtesy; `curate release verify` tells what is wrong with it.
        return
