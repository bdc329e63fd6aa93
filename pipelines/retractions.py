"""Taking images back: a tombstone bars an image from every later release, and from coming back.

A photo that somebody asked to take back must not return as a smaller copy from elsewhere, so that
what has the same pixels, or nearly shows the same picture, is barred with it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Any, Protocol, TypeVar, get_args

from curate.catalog import intake, releases, retractions
from curate.catalog.tables import now
from curate.choices import RETRACTIONS, Retraction
from curate.errors import AmbiguousNameError, UnknownNameError, UsageError
from curate.files import csv_text, printable
from curate.progress import say
from curate.release.reading import TOMBSTONE_COLUMNS, manifest_rows
from curate.release.version import parse_version
from pipelines.barred import Barred, retracted_among
from pipelines.quality import measure_some
from pipelines.review_withdrawn import withdraw
from pipelines.workspace import Workspace

#: Fewest digits that name an image.
_DIGITS = 12

_HEXADECIMAL = re.compile(rf"[0-9a-f]{{{_DIGITS},64}}")


class _OfImage(Protocol):
    @property
    def sha256(self) -> str: ...


_Entry = TypeVar("_Entry", bound=_OfImage)


def retract(workspace: Workspace, image: str, reason: str) -> dict[str, Any]:
    """Take an image back; there is no way to undo it.

    Args:
        workspace: where it was collected.
        image: at least twelve digits of the SHA-256 of its bytes, collected or released; the key
            of a candidate; or a path in a release.
        reason: of `curate.choices.RETRACTIONS`.

    Returns:
        `image` (the SHA-256 of the collected bytes), `reason`, `retracted` (a date), `already`
        (whether it had been taken back before, in which case nothing changes), `versions` that
        hold it or a copy, with the paths there, `withdrawn` (tasks that waited for somebody's
        answer and wait no more), and `copies`, the other images that show the same
        and are barred too.

    Raises:
        UnknownNameError: no such reason.
        UsageError, AmbiguousNameError: no image, or several, are meant.
        BusyError: a build or a review command is at work.
    """
    if reason not in get_args(Retraction):
        raise UnknownNameError(
            "reason", reason, RETRACTIONS, note=f"write one of {', '.join(RETRACTIONS)}"
        )
    # No push may give out meanwhile what is taken back here.
    with workspace.held("release"), workspace.held("review"):
        sha256 = _meant(workspace, image)
        looks = _looks(workspace, sha256)
        with workspace.catalogue.write() as connection:
            before = [
                row for row in retractions.all_tombstones(connection) if row["sha256"] == sha256
            ]
            told: Mapping[str, Any] = (
                before[0]
                if before
                else {"sha256": sha256, **looks, "reason": reason, "retracted": now()}
            )
            if not before:
                retractions.add_tombstone(connection, dict(told))
            withdrawn = withdraw(connection, Barred([told]))
    versions, copies = _holding(workspace, told)
    return {
        "image": sha256,
        "reason": told["reason"],
        "retracted": _told(told)[0],
        "already": bool(before),
        "versions": versions,
        "copies": copies,
        "withdrawn": withdrawn,
    }


def without_retracted(workspace: Workspace, listed: Sequence[_Entry]) -> tuple[list[_Entry], int]:
    """What may still be released of a list whose entries have a `sha256`, and how many may not."""
    gone = retracted_among(workspace, (entry.sha256 for entry in listed))
    kept = [entry for entry in listed if entry.sha256 not in gone]
    return kept, len(listed) - len(kept)


def retracted_by_version(workspace: Workspace) -> dict[str, dict[str, Mapping[str, Any]]]:
    """For each version that holds images that were taken back: their SHA-256 and tombstones."""
    found: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    with workspace.catalogue.read() as connection:
        barred = Barred.here(connection)
        if not barred:
            return {}
        for row in retractions.released_images(connection):
            if (tombstone := barred.match(row)) is not None:
                found[row["version"]][row["sha256"]] = tombstone
    return dict(found)


def retracted_here(workspace: Workspace) -> dict[str, tuple[str, str]]:
    """SHA-256 to date and reason of all images that were taken back, and of the copies of them that
    versions hold."""
    with workspace.catalogue.read() as connection:
        rows: dict[str, Mapping[str, Any]] = {
            row["sha256"]: row for row in retractions.all_tombstones(connection)
        }
    for held in retracted_by_version(workspace).values():
        rows |= held
    return {sha256: _told(row) for sha256, row in rows.items()}


def tombstones_csv(workspace: Workspace, until: datetime | None = None) -> bytes:
    """`tombstones.csv` of a release: what earlier versions held and nobody may use any more.

    One row an image, by SHA-256 of the collected bytes, with the date and the reason alone.

    Args:
        workspace: where the releases are.
        until: when the release was built, in UTC without zone; by default it is the next one.
    """
    with workspace.catalogue.read() as connection:
        built = {row["version"]: row["built"] for row in releases.all_releases(connection)}
    rows = {
        sha256: (sha256, *_told(row))
        for version, held in retracted_by_version(workspace).items()
        for sha256, row in held.items()
        if until is None or max(row["retracted"], built[version]) < until
    }
    return csv_text(TOMBSTONE_COLUMNS, [rows[sha256] for sha256 in sorted(rows)]).encode()


def _told(tombstone: Mapping[str, Any]) -> tuple[str, str]:
    return tombstone["retracted"].date().isoformat(), tombstone["reason"]


def _holding(
    workspace: Workspace, tombstone: Mapping[str, Any]
) -> tuple[dict[str, list[str]], int]:
    """Paths by version of an image and what shows the same; how many other images do."""
    versions: dict[str, list[str]] = defaultdict(list)
    copies = set()
    barred = Barred([tombstone])
    with workspace.catalogue.read() as connection:
        for row in retractions.released_images(connection):
            if barred.match(row) is not None:
                versions[row["version"]].append(row["path"])
                copies.add(row["sha256"])
    ordered = sorted(versions, key=parse_version)
    return {version: versions[version] for version in ordered}, len(copies - {tombstone["sha256"]})


def _looks(workspace: Workspace, sha256: str) -> dict[str, str]:
    """The hashes of an image's pixels, computed where nobody has; empty where it is not here."""
    for measured in (False, True):
        with workspace.catalogue.read() as connection:
            row = intake.known_image(connection, sha256)
        if row is None or row["perceptual_hash"] or measured:
            break
        measure_some(workspace, [sha256])
    return {name: row[name] if row else "" for name in ("pixel_sha256", "perceptual_hash")}


def _meant(workspace: Workspace, image: str) -> str:
    """The SHA-256 of the collected bytes of the image that a user names."""
    text = image.strip()
    digits = text.lower()
    found: set[str] = set()
    if _HEXADECIMAL.fullmatch(digits):
        with workspace.catalogue.read() as connection:
            found = retractions.images_meant(connection, digits)
        found = found or _released_as(workspace, digits)
        if not found and len(digits) == 64:
            return digits
    elif re.fullmatch(r"[0-9a-f]+", digits):
        raise UsageError(f"{digits!r} is too short: write at least {_DIGITS} digits of the SHA-256")
    else:
        found = _at_path(workspace, text)
    if not found:
        raise UsageError(
            f"no image {printable(text)!r} here; write at least {_DIGITS} digits of its SHA-256, "
            "the key of its candidate, or its path in a release"
        )
    if len(found) > 1:
        raise AmbiguousNameError("image", printable(text), sorted(found))
    return found.pop()


def _at_path(workspace: Workspace, text: str) -> set[str]:
    parts = PurePath(text).parts
    with workspace.catalogue.read() as connection:
        versions = {row["version"] for row in releases.all_releases(connection)}
        for place, part in enumerate(parts[:-1]):
            if part in versions:
                inner = "/".join(parts[place + 1 :])
                return retractions.images_at(connection, inner, part)
        return retractions.images_at(connection, "/".join(parts))


def _released_as(workspace: Workspace, digits: str) -> set[str]:
    """The collected bytes of what was released under other bytes."""
    with workspace.catalogue.read() as connection:
        versions = [row["version"] for row in releases.all_releases(connection)]
    found = set()
    for version in versions:
        folder = workspace.root / "releases" / version
        if not folder.is_dir():
            continue
        try:
            for row in manifest_rows(folder, ("sha256", "original_sha256")):
                if str(row["sha256"]).startswith(digits):
                    found.add(str(row["original_sha256"]))
        except UsageError as error:
            # A version that somebody has damaged keeps no image from being taken back.
            say(f"release {version} was not looked through: {error}")
    return found
