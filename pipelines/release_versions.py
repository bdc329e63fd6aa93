"""Versions of a release: which one a new one follows, and whether its step is the right one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import RowMapping

from curate.catalog import releases, retractions
from curate.errors import UsageError
from curate.files import candidate_key, printable, sha256_file
from curate.release.compare import COMPARED, Row, check_step, compare, following
from curate.release.reading import (
    MANIFEST,
    manifest_rows,
)
from curate.release.splits import parse_splits
from curate.release.version import Version, parse_version
from pipelines.release_choice import Wanted
from pipelines.retractions import retracted_here
from pipelines.workspace import Workspace

_CONTROL = "control"


class Before(NamedTuple):
    """The version that a new one follows, and its rows."""

    version: Version
    rows: Sequence[Row]
    retracted: Mapping[str, str]


def version_before(
    workspace: Workspace, wanted: Version, *, control: bool, again: bool = False
) -> Before | None:
    """The version that a new one follows; None for the first one.

    Control samples follow control samples, and the others the others.

    Args:
        workspace: where the releases are.
        wanted: the new version.
        control: whether it is a control sample.
        again: whether it was built once already; what came after it does not matter then.

    Raises:
        UsageError: a higher version exists.
    """
    known = {
        parse_version(row["version"]): row
        for row in _recorded(workspace)
        if (row["record"].get("split") == _CONTROL) == control
    }
    if again:
        known = {version: row for version, row in known.items() if version < wanted}
    if not known:
        return None
    newest = max(known)
    if wanted < newest:
        raise UsageError(
            f"release {wanted}: {newest} exists already, and versions only go up; "
            f"build {following(newest, 'patch')} or a higher one"
        )
    retracted = {sha256: reason for sha256, (_, reason) in retracted_here(workspace).items()}
    return Before(newest, list(_rows_of(workspace, known[newest])), retracted)


def dealt_before(
    workspace: Workspace, before: Before | None, wanted: Wanted
) -> dict[str, str | None]:
    """The split of each candidate of the version before, if that one was dealt by the same shares
    and seed; else nothing."""
    if before is None or not wanted.splits:
        return {}
    known = {row["version"]: row["record"] for row in _recorded(workspace)}
    selection = known[str(before.version)].get("selection", {})
    shares = {name: str(share) for name, share in parse_splits(wanted.splits).items()}
    if (selection.get("splits"), selection.get("seed")) != (shares, wanted.seed):
        return {}
    return {
        candidate_key(row["original_sha256"], row["wnid"]): row.get("split") for row in before.rows
    }


def check_release_step(
    before: Before | None, wanted: Version, rows: Sequence[Row], *, reviewed: bool
) -> None:
    """Refuse a version whose step is not the one that its images call for.

    Below 1.0.0 an unreviewed release is a draft that nothing rests on: it may follow another draft
    by any step, unless images were taken back.

    Args:
        before: what `version_before` gives.
        wanted: the new version.
        rows: what it will hold: `original_sha256`, `wnid`, `licence`, `reviewed`, `split`, and
            `folder` (of the class) where `path` is empty.
        reviewed: whether people have confirmed its labels.

    Raises:
        UsageError: another step is right; the text names the version.
    """
    if before is None:
        return
    changes = compare(before.rows, rows, before.retracted)
    draft = wanted.major == 0 and not reviewed and not any(row["reviewed"] for row in before.rows)
    gone = any(row["original_sha256"] in before.retracted for row, _ in changes.removed)
    if not draft or gone:
        check_step(wanted, before.version, changes, before.version)


def release_folder(workspace: Workspace | None, name: str) -> Path:
    """The folder of a release: a path, or a version of the workspace.

    Raises:
        UsageError: there is neither.
    """
    path = Path(name)
    if path.exists():
        return path
    if workspace is not None and (workspace.root / "releases" / name / MANIFEST).is_file():
        return workspace.root / "releases" / name
    known = []
    if workspace is not None:
        known = [row["version"] for row in _recorded(workspace)]
    if name in known:
        raise UsageError(
            f"release {name} was built here, and its folder releases/{name} is gone or no release "
            f"any more: restore it from a copy, or build it again: curate release build {name}"
        )
    hint = f"; versions here: {', '.join(known)}" if known else ""
    raise UsageError(f"no release {printable(name)!r}{hint}")


def _recorded(workspace: Workspace) -> list[RowMapping]:
    with workspace.catalogue.read() as connection:
        rows = releases.all_releases(connection)
    return sorted(rows, key=lambda row: parse_version(row["version"]))


def _rows_of(workspace: Workspace, release: RowMapping) -> Iterator[Row]:
    """The manifest of a version that was built here; where its folder is gone or is not what was
    built, what the catalogue remembers of it."""
    folder = workspace.root / "releases" / release["version"]
    try:
        if sha256_file(folder / MANIFEST) == release["manifest_sha256"]:
            yield from manifest_rows(folder, COMPARED)
            return
    except OSError:
        pass
    with workspace.catalogue.read() as connection:
        for row in retractions.released_images(connection):
            if row["version"] == release["version"]:
                split, slash, _ = row["path"].rpartition("/")[0].rpartition("/")
                yield {
                    "path": row["path"],
                    "wnid": row["wnid"],
                    "original_sha256": row["sha256"],
                    "reviewed": release["reviewed"],
                    "split": split if slash else None,
                }
