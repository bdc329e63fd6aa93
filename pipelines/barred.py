"""What may not be used any more: the images that were taken back, and those that show the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from curate.catalog import intake, retractions
from curate.images.hashing import NearIndex, PerceptualHash
from pipelines.quality import measure_some
from pipelines.workspace import Workspace


class Barred:
    """Knows the images that were taken back, and those that show the same.

    Args:
        tombstones: the rows of the catalogue.
    """

    def __init__(self, tombstones: Sequence[Mapping[str, Any]]) -> None:
        self._tombstones = tombstones
        self._by_content = {row["sha256"]: row for row in self._tombstones}
        self._by_pixels = {row["pixel_sha256"]: row for row in self._tombstones}
        self._by_pixels.pop("", None)
        self._near: NearIndex[str] = NearIndex()
        for row in self._tombstones:
            if row["perceptual_hash"]:
                hashed = PerceptualHash.from_text(row["perceptual_hash"])
                self._near.add(row["sha256"], hashed)

    @classmethod
    def here(cls, connection: Connection) -> Barred:
        """What was taken back in a workspace."""
        return cls(retractions.all_tombstones(connection))

    def __len__(self) -> int:
        return len(self._tombstones)

    def match(self, image: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The tombstone that an image falls under, or None.

        Args:
            image: its `sha256`, `pixel_sha256` and `perceptual_hash`; these two may be empty.
        """
        if not self._tombstones:
            return None
        found = self._by_content.get(image["sha256"]) or self._by_pixels.get(image["pixel_sha256"])
        if found is None and image["perceptual_hash"]:
            near = self._near.nearest(PerceptualHash.from_text(image["perceptual_hash"]))
            found = None if near is None else self._by_content[near[0]]
        return found


def retracted_among(workspace: Workspace, sha256s: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Those of some images that were taken back, or show what was, with their tombstones."""
    wanted = sorted(set(sha256s))
    with workspace.catalogue.read() as connection:
        barred = Barred.here(connection)
        if not barred:
            return {}
        rows = intake.images_of(connection, wanted)
    if unhashed := [sha256 for sha256, row in rows.items() if not row["perceptual_hash"]]:
        measure_some(workspace, unhashed)
        with workspace.catalogue.read() as connection:
            rows = intake.images_of(connection, wanted)
    found = {sha256: barred.match(dict(row)) for sha256, row in rows.items()}
    return {sha256: row for sha256, row in found.items() if row is not None}
