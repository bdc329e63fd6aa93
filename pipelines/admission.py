"""Admission: from images whose content is known to candidates, decided one after the other.

Whatever the order in which images arrive from disks and servers, they are decided in the order of
their items: the first one of several equal pictures becomes the candidate. A batch is decided, its
files are put in place and synced, then one transaction writes everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection

from curate.catalog import intake
from curate.catalog.tables import now
from curate.errors import CurateError, ImageRefused
from curate.files import candidate_key
from curate.images.hashing import NearIndex, PerceptualHash
from curate.labels.overlaps import Trained
from curate.labels.space import LabelSpace
from curate.licences import parse
from curate.sources.protocol import Hit
from pipelines.barred import Barred
from pipelines.classes import trained_classes
from pipelines.workspace import OUTLIER, Workspace


@dataclass(frozen=True)
class Ready:
    """An item whose content is known.

    Attributes:
        hit: the item.
        wnid: its class.
        image: the image's row.
        content: its bytes, or the file that becomes the stored one; None where the store has it.
        number: the hit's id in the catalogue, for those that have one.
        seen: when its source told of it; None for now.
    """

    hit: Hit
    wnid: str
    image: dict[str, Any]
    content: bytes | Path | None
    number: int | None = None
    seen: datetime | None = None


@dataclass(frozen=True)
class Refused:
    """An item that cannot become a candidate."""

    hit: Hit
    refusal: ImageRefused
    number: int | None = None


@dataclass
class Decided:
    """What becomes of a batch.

    Attributes:
        accepted: key to the item that becomes this candidate, and the candidate it resembles.
        places: keys of candidates with an item that shows where else, or again, it was found.
        refused: items that become no candidate, duplicates among them.
        twins: of the refused ones those whose file nothing needs.
        copies: items whose image is there already; those with content are put back into the store.
        known: of these the ones that stand where their candidate was first seen.
    """

    accepted: dict[str, tuple[Ready, str | None]] = field(default_factory=dict)
    places: list[tuple[str, Ready]] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    twins: list[Ready] = field(default_factory=list)
    copies: list[Ready] = field(default_factory=list)
    known: list[Ready] = field(default_factory=list)

    def refuse(self, item: Ready, reason: str, detail: str) -> None:
        """Refuse an item although its content is fine."""
        self.refused.append(Refused(item.hit, ImageRefused(reason, detail), item.number))
        self.twins.append(item)

    @property
    def near_duplicates(self) -> int:
        """How many were accepted although nearly the same picture was there."""
        return sum(near is not None for _, near in self.accepted.values())


class Ledger(Protocol):
    """Where a stage records what became of its items, in the transaction that admits them."""

    def record(self, connection: Connection, decided: Decided, moment: datetime) -> None:
        """Write what `decided` says of the stage's own items."""


class Admission:
    """Decides about items in their order.

    Args:
        workspace: where candidates go.
        ledger: what else is written with them.
    """

    def __init__(self, workspace: Workspace, ledger: Ledger) -> None:
        self.workspace = workspace
        self.ledger = ledger
        self._reject_near = workspace.settings.collect.near_duplicates == "reject"
        self._near: dict[str, NearIndex[str]] = {}

    def admit(self, batch: Sequence[Ready | Refused]) -> Decided:
        """Decide about a batch and write what was decided.

        Raises:
            StorageError: the disk is full; nothing of the batch is in the catalogue then.
        """
        decided = self._decide(batch)
        try:
            self._write(decided)
        except BaseException:
            # What was indexed and not written must not decide about others.
            self._near.clear()
            raise
        return decided

    def _decide(self, batch: Sequence[Ready | Refused]) -> Decided:
        decided = Decided()
        ready = [item for item in batch if isinstance(item, Ready)]
        keys = {id(item): candidate_key(item.image["sha256"], item.wnid) for item in ready}
        with self.workspace.catalogue.read() as connection:
            firsts = intake.first_origins(connection, list(keys.values()))
            hashes = [item.image["pixel_sha256"] for item in ready]
            pixels = intake.candidates_with_pixels(connection, hashes)
            barred = Barred.here(connection)
        first_places = {key: (source, locator) for key, (_, source, locator) in firsts.items()}
        for item in batch:
            if isinstance(item, Refused):
                decided.refused.append(item)
                continue
            key, twin = keys[id(item)], (item.image["pixel_sha256"], item.wnid)
            looked_at = bool(item.image["perceptual_hash"])
            if (tombstone := barred.match(item.image)) is not None:
                day = tombstone["retracted"].date().isoformat()
                decided.refuse(item, "retracted", f"taken back on {day} ({tombstone['reason']})")
            elif key in first_places:
                decided.copies.append(item)
                decided.places.append((key, item))
                if first_places[key] == (item.hit.source, item.hit.locator):
                    decided.known.append(item)
                else:
                    detail = f"the same bytes as {first_places[key][1]}"
                    decided.refuse(item, "duplicate-exact", detail)
            elif looked_at and twin in pixels:
                detail = f"the same pixels as candidate {pixels[twin]}"
                decided.refuse(item, "duplicate-pixels", detail)
            elif (near := self._nearest(item) if looked_at else None) and self._reject_near:
                detail = f"nearly the same picture as candidate {near}"
                decided.refuse(item, "duplicate-near", detail)
            else:
                if looked_at:
                    self._index(item.wnid).add(key, _hash_of(item))
                decided.accepted[key] = (item, near)
                decided.places.append((key, item))
                pixels[twin] = key
                first_places[key] = (item.hit.source, item.hit.locator)
        return decided

    def _index(self, wnid: str) -> NearIndex[str]:
        if wnid not in self._near:
            index = self._near[wnid] = NearIndex()
            with self.workspace.catalogue.read() as connection:
                for key, text in intake.perceptual_hashes(connection, wnid):
                    index.add(key, PerceptualHash.from_text(text))
        return self._near[wnid]

    def _nearest(self, item: Ready) -> str | None:
        nearest = self._index(item.wnid).nearest(_hash_of(item))
        return nearest[0] if nearest else None

    def _write(self, decided: Decided) -> None:
        moment = now()
        store = self.workspace.store
        accepted = decided.accepted
        items = [item for item, _ in accepted.values()]
        for item in [*decided.copies, *items]:
            sha256, extension = item.image["sha256"], item.image["extension"]
            if isinstance(item.content, Path):
                store.adopt(item.content, sha256, extension)
            elif item.content is not None:
                store.put(item.content, sha256, extension)
        store.sync()
        with self.workspace.catalogue.write() as connection:
            intake.add_images(connection, [item.image for item in items])
            rows = [
                {"key": key, "sha256": item.image["sha256"], "wnid": item.wnid, "near_key": near}
                for key, (item, near) in accepted.items()
            ]
            intake.add_candidates(connection, rows)
            ids = intake.candidate_ids(connection, [key for key, _ in decided.places])
            intake.set_origins(
                connection,
                [_origin(ids[key], item.hit, item.seen or moment) for key, item in decided.places],
            )
            self.ledger.record(connection, decided, moment)


#: Unknown labels that are explained; a list whose labels are captions has millions. Among many
#: classes each takes long to explain.
_EXPLAINED = 1000


class Labels:
    """Weak labels to the ids of what they mean; each label is looked up once.

    Args:
        space: what candidates may be labelled with.
        trained: what concepts must be outside of; None where candidates are labelled with classes.
    """

    def __init__(self, space: LabelSpace, trained: Trained | None = None) -> None:
        self._space, self._trained = space, trained
        self._explained = max(20, _EXPLAINED * 1000 // max(len(space), 1000))
        self._known: dict[str, str] = {}
        self._unknown: dict[str, str] = {}
        self._inside: dict[str, str] = {}

    @classmethod
    def of(cls, workspace: Workspace) -> Labels:
        """Those of a workspace."""
        trained = None
        if workspace.settings.filter.rule == OUTLIER:
            trained = trained_classes([workspace.label_space])
        return cls(workspace.weak_labels, trained)

    def wnid(self, label: str) -> str:
        """The id of the class or concept that a source's label means.

        Raises:
            ImageRefused: "no-label"; or "in-distribution" where classifiers were trained on the
                concept, or on something above or below it.
        """
        if not label:
            raise ImageRefused("no-label", "neither a class folder nor a table names its class")
        if (wnid := self._known.get(label)) is not None:
            return wnid
        if (told := self._unknown.get(label)) is not None:
            raise ImageRefused("no-label", told)
        if (told := self._inside.get(label)) is not None:
            raise ImageRefused("in-distribution", told)
        if len(self._unknown) >= self._explained and not self._space.knows(label):
            raise ImageRefused("no-label", f"unknown {self._space.noun} {label!r}")
        try:
            item = self._space.match(label)
        except CurateError as error:
            self._unknown[label] = str(error)
            raise ImageRefused("no-label", str(error)) from None
        overlap = None if self._trained is None else self._trained.overlap(item)
        if overlap is not None:
            self._inside[label] = overlap.text
            raise ImageRefused("in-distribution", overlap.text)
        self._known[label] = item.wnid
        return item.wnid


def _hash_of(item: Ready) -> PerceptualHash:
    return PerceptualHash.from_text(item.image["perceptual_hash"])


def _origin(candidate_id: int, hit: Hit, seen: datetime) -> dict[str, Any]:
    licence = parse(hit.licence)
    return {
        "candidate_id": candidate_id,
        "source": hit.source,
        "locator": hit.locator,
        "collection": hit.collection,
        "page": hit.page,
        "title": hit.title,
        "author": hit.author,
        "licence": licence.id,
        "licence_url": licence.url,
        "licence_text": hit.licence,
        "seen": seen,
    }
