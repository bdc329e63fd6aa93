"""The duplicates for people: a table of all, and a page of the most doubtful ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import RowMapping

from curate._version import __version__
from curate.catalog import intake, twins
from curate.errors import ImageRefused
from curate.files import atomic_write, csv_text, make_folder, remove_leftovers
from curate.report import pairs as shown
from curate.report.naming import display_names
from curate.report.page import Credit
from curate.report.thumbnails import make_thumbnail
from curate.sources.folder import read_image
from pipelines.duplicates import Deduplicated
from pipelines.picture_sets import PictureSet, any_shape
from pipelines.report import credit_of
from pipelines.workspace import Workspace

#: Most duplicates on the page.
MOST_SHOWN = 200

_COLUMNS = (
    "kind",
    "distance",
    "dropped",
    "candidate",
    "wnid",
    "sha256",
    "kept",
    "kept_wnid",
    "kept_sha256",
    "against",
    "item",
)
_ROWS_AT_ONCE = 10_000


def write_pairs(workspace: Workspace, summary: Deduplicated, sets: Sequence[PictureSet]) -> None:
    """Write the table and the page of the duplicates, and name them in the summary.

    Call it while holding what every stage that writes lists holds.

    Args:
        workspace: the workspace.
        summary: what was found.
        sets: what candidates were compared with; folders give their pictures to the page.

    Raises:
        StorageError: the disk is full.
    """
    folder = workspace.root / "lists"
    table, page = folder / "duplicates.csv", folder / "duplicates.html"
    remove_leftovers(folder)
    if not summary.exact + summary.near:
        table.unlink(missing_ok=True)
        page.unlink(missing_ok=True)
        return
    make_folder(folder)
    with atomic_write(table) as stream:
        for text in _table(workspace):
            stream.write(text.encode())
    with atomic_write(page) as stream:
        for piece in shown.pieces(_page(workspace, summary, sets)):
            stream.write(piece.encode("utf-8", "backslashreplace"))
    summary.list, summary.page = (str(path.relative_to(workspace.root)) for path in (table, page))


def _table(workspace: Workspace) -> Iterator[str]:
    yield csv_text(_COLUMNS, [])
    header = len(csv_text(_COLUMNS, []))
    with workspace.catalogue.read() as connection:
        rows: list[list[Any]] = []
        for row in twins.pairs(connection):
            told = {**row, "candidate": row["key"], "kept": row["kept_key"]}
            told["dropped"] = "true" if row["dropped"] else "false"
            rows.append([told[column] for column in _COLUMNS])
            if len(rows) == _ROWS_AT_ONCE:
                yield csv_text(_COLUMNS, rows)[header:]
                rows.clear()
        yield csv_text(_COLUMNS, rows)[header:]


def _page(
    workspace: Workspace, summary: Deduplicated, sets: Sequence[PictureSet]
) -> shown.PairsPage:
    with workspace.catalogue.read() as connection:
        rows = list(twins.pairs(connection, MOST_SHOWN))
        ids = {row[name] for row in rows for name in ("id", "kept_id") if row[name] is not None}
        origins = intake.origins_of(connection, sorted(ids))
    credits = {number: credit_of(found) for number, found in origins.items()}
    groups: dict[Any, list[RowMapping]] = {}
    for row in rows:
        groups.setdefault((row["against"], row["item"], row["kept_id"]), []).append(row)
    pictures = _Pictures(workspace, credits, sets)
    return shown.PairsPage(
        groups=(pictures.group(members) for members in groups.values()),
        shown=len(rows),
        total=summary.exact + summary.near,
        exact=summary.exact,
        near=summary.near,
        against=summary.against,
        across_labels=summary.across_labels,
        dropped=summary.dropped,
        withheld=sum(not credit.redistributable for credit in credits.values()),
        curate=__version__,
    )


class _Pictures:
    """Pictures for the page, each read when its group is written."""

    def __init__(
        self, workspace: Workspace, credits: Mapping[int, Credit], sets: Sequence[PictureSet]
    ) -> None:
        self.workspace, self.credits = workspace, credits
        self.limits = workspace.settings.images
        self.names = display_names(workspace.weak_labels)
        self.folders = {one.hashes.name: one.path for one in sets if one.path.is_dir()}

    def group(self, rows: Sequence[RowMapping]) -> shown.Group:
        """A group from the rows of its duplicates."""
        first = rows[0]
        return shown.Group(
            first=(
                self._candidate(first, "kept_")
                if first["against"] is None
                else self._item(first["against"], first["item"])
            ),
            set=first["against"],
            twins=[
                shown.Twin(
                    picture=self._candidate(row, ""),
                    exact=row["kind"] == "exact",
                    distance=row["distance"],
                    other_label=row["kept_wnid"] not in (None, row["wnid"]),
                    dropped=row["dropped"],
                )
                for row in rows
            ],
        )

    def _candidate(self, row: RowMapping, prefix: str) -> shown.Picture:
        told = {name: row[prefix + name] for name in ("id", "key", "wnid", "sha256", "extension")}
        thumbnail, problem = None, None
        try:
            data = self.workspace.store.read(told["sha256"], told["extension"])
            thumbnail = make_thumbnail(data, limits=self.limits)
        except ImageRefused:
            problem = "no picture: the stored file is bad"
        width, height, size = (row[prefix + name] for name in ("width", "height", "bytes"))
        return shown.Picture(
            title=self.names.get(told["wnid"], told["wnid"]),
            size=f"{width:,} × {height:,}, {size / 1000:,.0f} kB",
            candidate=told["key"],
            credit=self.credits[told["id"]],
            thumbnail=thumbnail,
            problem=problem,
        )

    def _item(self, against: str, name: str) -> shown.Picture:
        """A picture of a set: shown where the set is a folder that has it under its own name."""
        thumbnail, problem = None, "the picture is not at hand"
        folder = self.folders.get(against)
        if folder is not None:
            limits = any_shape(self.limits)
            try:
                data = read_image(_within(folder, name), limits.max_bytes)
                thumbnail = make_thumbnail(data, limits=limits)
            except (ImageRefused, ValueError):
                problem = "the picture cannot be read"
        return shown.Picture(title=name, thumbnail=thumbnail, problem=problem)


def _within(folder: Path, name: str) -> Path:
    """The file of a folder's picture: its name begins with the folder's own."""
    return folder.joinpath(*Path(name).parts[1:])
