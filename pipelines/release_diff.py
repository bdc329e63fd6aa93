"""Diff: what differs between two releases, as text, as JSON and as a page with thumbnails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from curate._version import __version__
from curate.errors import CurateError, ImageRefused, UsageError
from curate.files import atomic_write, printable
from curate.licences import parse
from curate.release.compare import COMPARED, Changes, Row, compare
from curate.release.layout import RELEASE_RECORD
from curate.release.reading import (
    LARGEST_TEXT,
    MANIFEST,
    TOMBSTONES,
    manifest_rows,
    read_tombstones,
    release_record,
)
from curate.release.version import parse_version
from curate.report import diff_page as shown
from curate.report.thumbnails import make_thumbnail
from curate.setting_groups import ImageLimits
from pipelines.release_versions import release_folder
from pipelines.retractions import retracted_here
from pipelines.review_export import check_target
from pipelines.workspace import Workspace

#: Most images of each kind on a page.
MOST_SHOWN = 100

# Most images that a text or a summary lists of each kind.
_MOST_LISTED = 1000

# What a page or a summary shows of a row.
_CREDITED = ("author", "title", "page", "licence_url")

# A release's images were taken in by limits that only its workspace knows.
_LIMITS = ImageLimits(max_pixels=1 << 28, max_bytes=1 << 28)


class _Side(NamedTuple):
    """One of two releases that are compared."""

    name: str
    folder: Path
    rows: Sequence[Row]
    tombstones: Mapping[str, str]


def diff_releases(
    workspace: Workspace | None, before: str, after: str, page: Path | None = None
) -> dict[str, Any]:
    """What differs between two releases, image by image.

    Args:
        workspace: whose versions may be named; None where there is none.
        before: a folder, or a version of the workspace.
        after: as `before`.
        page: where to write it as a page with thumbnails.

    Returns:
        `before`, `after` (names), `step`, `counts` (by kind), `kept`, and for each kind a list of
        images: `image` (SHA-256), `wnid`, `path`, and `path_before`, `what` or `reason`; at most
        1,000 a kind are listed; `path` of the page.

    Raises:
        UsageError: there is no such release, or its manifest cannot be read; `page` cannot be a
            file.
        StorageError: the disk is full.
    """
    if page is not None:
        check_target(page)
    old, new = _side(workspace, before), _side(workspace, after)
    changes = compare(old.rows, new.rows, {**old.tombstones, **new.tombstones})
    summary: dict[str, Any] = {
        "before": old.name,
        "after": new.name,
        "step": changes.step,
        "counts": changes.counts(),
        "kept": changes.kept,
        "added": [_listed(row) for row in changes.added[:_MOST_LISTED]],
        "removed": [
            _listed(row) | {"reason": reason} for row, reason in changes.removed[:_MOST_LISTED]
        ],
    }
    for kind in ("relabelled", "changed", "reencoded", "renamed"):
        summary[kind] = [
            _listed(pair.after) | {"path_before": pair.before["path"], "what": pair.what}
            for pair in getattr(changes, kind)[:_MOST_LISTED]
        ]
    if page is not None:
        with atomic_write(page) as stream:
            for piece in shown.pieces(_page(old, new, changes)):
                stream.write(piece.encode("utf-8", "backslashreplace"))
        summary["path"] = printable(page)
    return summary


def diff_text(summary: Mapping[str, Any]) -> str:
    """What `diff_releases` gives, a line an image."""
    counts = summary["counts"]
    told = [f"{name} {count:,}" for name, count in counts.items() if count]
    lines = [
        f"{summary['before']} → {summary['after']}: {', '.join(told) or 'nothing'}"
        f"{' changed' if not told else ''}, unchanged {summary['kept']:,}; "
        f"a {summary['step']} step"
    ]
    for kind, count in counts.items():
        for one in summary[kind]:
            why = one.get("what") or one.get("reason")
            lines.append(f"{kind}  {one['path']}" + (f"  {why}" if why else ""))
        if count > len(summary[kind]):
            lines.append(f"{kind}  … {count - len(summary[kind]):,} more")
    return "\n".join(printable(line) for line in lines)


def _side(workspace: Workspace | None, name: str) -> _Side:
    folder = release_folder(workspace, name)
    rows = list(manifest_rows(folder, (*COMPARED, *_CREDITED)))
    if any(not row["wnid"] or not row["path"] for row in rows):
        raise UsageError(f"{printable(folder / MANIFEST)} has rows without a path or a label")
    tombstones: dict[str, str] = {}
    if (folder / TOMBSTONES).is_file():
        tombstones = {k: reason for k, (_, reason) in read_tombstones(folder / TOMBSTONES).items()}
    if workspace is not None:
        tombstones |= {k: reason for k, (_, reason) in retracted_here(workspace).items()}
    return _Side(_called(folder), folder, rows, tombstones)


def _called(folder: Path) -> str:
    """The version that a release says it is, or else the folder's name."""
    try:
        if (folder / RELEASE_RECORD).stat().st_size <= LARGEST_TEXT:
            told = release_record((folder / RELEASE_RECORD).read_bytes(), RELEASE_RECORD)
            return str(parse_version(str(told.get("version"))))
    except (OSError, CurateError):
        pass
    return printable(folder.resolve().name)


def _listed(row: Row) -> dict[str, Any]:
    image = row["original_sha256"] or row["sha256"]
    return {"image": image, "wnid": row["wnid"], "path": row["path"]}


def _page(old: _Side, new: _Side, changes: Changes) -> shown.DiffPage:
    every = [
        *changes.added[:MOST_SHOWN],
        *(row for row, _ in changes.removed[:MOST_SHOWN]),
        *(
            pair.after
            for kind in (changes.relabelled, changes.changed, changes.reencoded)
            for pair in kind[:MOST_SHOWN]
        ),
    ]
    return shown.DiffPage(
        before=old.name,
        after=new.name,
        step=changes.step,
        counts=changes.counts(),
        kept=changes.kept,
        sections=_sections(old, new, changes),
        withheld=sum(not parse(row["licence"]).redistributable for row in every),
        curate=__version__,
    )


def _sections(old: _Side, new: _Side, changes: Changes) -> Iterator[shown.Section]:
    yield shown.Section(
        "Removed",
        "What was computed on them counts no longer.",
        (
            _photo(old, row, reason, picture=not reason.startswith("retracted"))
            for row, reason in changes.removed[:MOST_SHOWN]
        ),
        len(changes.removed),
        max(0, len(changes.removed) - MOST_SHOWN),
    )
    for title, hint, pairs in (
        ("Relabelled", "The same image under another label.", changes.relabelled),
        ("Changed", "The same image in another split, or told otherwise.", changes.changed),
        ("Re-encoded", "The same image in other bytes.", changes.reencoded),
    ):
        yield shown.Section(
            title,
            hint,
            (_photo(new, pair.after, pair.what) for pair in pairs[:MOST_SHOWN]),
            len(pairs),
            max(0, len(pairs) - MOST_SHOWN),
        )
    yield shown.Section(
        "Added",
        "",
        (_photo(new, row, "") for row in changes.added[:MOST_SHOWN]),
        len(changes.added),
        max(0, len(changes.added) - MOST_SHOWN),
    )


def _photo(side: _Side, row: Row, what: str, *, picture: bool = True) -> shown.Changed:
    thumbnail, problem = None, None
    if not picture:
        problem = "taken back: no picture"
    else:
        try:
            thumbnail = make_thumbnail(_bytes_at(side.folder, str(row["path"])), limits=_LIMITS)
        except ImageRefused as refusal:
            problem = f"no picture: {refusal.reason}"
    licence = parse(row["licence"])
    return shown.Changed(
        image=str(row["original_sha256"] or row["sha256"]),
        label=str(row["name"] or row["wnid"]),
        path=str(row["path"]),
        what=what,
        licence=licence.name,
        licence_url=str(row["licence_url"] or licence.url),
        author=row["author"],
        title=row["title"],
        page=row["page"],
        thumbnail=thumbnail,
        problem=problem,
    )


def _bytes_at(folder: Path, path: str) -> bytes:
    """The bytes of an image of a release, whose manifest may name any path."""
    parts = path.split("/")
    place = folder.joinpath(*parts)
    if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
        raise ImageRefused("outside")
    if any(one.is_symlink() for one in (place, *place.parents) if folder in one.parents):
        raise ImageRefused("symlink")
    if not place.is_file():
        raise ImageRefused("missing")
    if place.stat().st_size > _LIMITS.max_bytes:
        raise ImageRefused("too-many-bytes")
    try:
        return place.read_bytes()
    except OSError as error:
        raise ImageRefused("unreadable", error.strerror or str(error)) from error
