"""Collect: from files to images in the store and candidates in the catalogue.

Items are taken in their order, in batches: decoded in threads, decided one after the other, their
files stored and synced, then one transaction. A killed collect leaves no half-taken item, and the
next one ends in the same catalogue.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from curate.catalog import intake
from curate.catalog.tables import now
from curate.errors import CurateError, ImageRefused, Interrupted
from curate.files import candidate_key, csv_text, make_folder, sha256_bytes, write_bytes
from curate.images.decode import decode
from curate.images.hashing import NearIndex, PerceptualHash, perceptual_hash, pixel_sha256
from curate.licences import parse
from curate.progress import Bar, progress, stop_on_interrupt
from curate.sources.folder import Found, read_image, read_table, scan_class_folders
from pipelines.engines import usable_cores
from pipelines.workspace import Workspace, pin_label_space

#: Most items and most bytes in one batch.
_BATCH_ITEMS, _BATCH_BYTES = 256, 128_000_000

#: The name of this source in the catalogue.
_SOURCE = "folder"


@dataclass
class Collected:
    """What a collect did.

    Attributes:
        found: items looked at; the sum of the others.
        new: candidates added.
        known: items that were candidates before.
        rejected: items refused, by reason.
        near_duplicates: candidates added although nearly the same picture was there.
        list: where refused items are listed, relative to the workspace; None if there are none.
    """

    found: int = 0
    new: int = 0
    known: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    near_duplicates: int = 0
    list: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON summary of the contract."""
        return {
            "found": self.found,
            "new": self.new,
            "known": self.known,
            "rejected": dict(sorted(self.rejected.items())),
            "near_duplicates": self.near_duplicates,
            "list": self.list,
        }


@dataclass(frozen=True)
class _Read:
    """An item whose content is known: an image row, its bytes where the store lacks them."""

    found: Found
    wnid: str
    image: dict[str, Any]
    data: bytes | None


def collect_folder(workspace: Workspace, path: Path, labels: Path | None = None) -> Collected:
    """Take in a folder of weakly labelled images.

    Pictures that are nearly there already are taken with a note, or refused, as the setting
    `collect.near_duplicates` says.

    Args:
        workspace: where to.
        path: class folders, or the folder that `labels` refers to.
        labels: a CSV table (path, label, and optionally source, page, title, author, licence).

    Raises:
        UsageError: the folder or the table cannot be used.
        BusyError: another collect is at work.
        StorageError: the disk is full; what was taken stays, and the next start goes on.
        Interrupted: stopped by the user; the same holds.
    """

    def scan() -> Iterator[Found]:
        return read_table(path, labels) if labels else scan_class_folders(path)

    with workspace.held("collect"):
        pin_label_space(workspace)
        workspace.store.remove_leftovers()
        taker = _Taker(workspace)
        total = sum(1 for _ in scan())
        with stop_on_interrupt() as stop, progress("collect", total, unit="files") as bar:
            for item in _read_all(workspace, scan(), lambda: stop.requested):
                taker.take(item, bar)
            taker.flush(bar)
        _list_refusals(workspace, taker.collected)
        if stop.requested:
            raise Interrupted(
                f"stopped after {taker.collected.found} of {total} files; run again to go on"
            )
    return taker.collected


def _read_all(
    workspace: Workspace, items: Iterable[Found], stopped: Callable[[], bool]
) -> Iterator[_Read | tuple[Found, ImageRefused]]:
    """Read and decode in threads; results come in the order of the items."""
    labels = _Labels(workspace)
    workers = usable_cores()
    queue: deque[tuple[Found, Future[_Read]]] = deque()

    def first() -> _Read | tuple[Found, ImageRefused]:
        found, future = queue.popleft()
        try:
            return future.result()
        except ImageRefused as refusal:
            return found, refusal

    with ThreadPoolExecutor(workers, thread_name_prefix="collect") as pool:
        for found in items:
            if stopped():
                break
            queue.append((found, pool.submit(_read_one, workspace, found, labels)))
            if len(queue) > 2 * workers:
                yield first()
        while queue:
            yield first()


def _read_one(workspace: Workspace, found: Found, labels: _Labels) -> _Read:
    if found.refusal:
        raise found.refusal
    limits = workspace.settings.images
    wnid = labels.wnid(found)
    data = read_image(found.path, limits.max_bytes)
    sha256 = sha256_bytes(data)
    with workspace.catalogue.read() as connection:
        stored = intake.known_image(connection, sha256)
    if stored is not None:
        # An image that was lost or altered since is put back.
        whole = workspace.store.holds(sha256, stored["extension"])
        return _Read(found, wnid, dict(stored), None if whole else data)
    image, info = decode(data, limits, found.path.name)
    row = {
        "sha256": sha256,
        "extension": info.extension,
        "format": info.format,
        "mode": info.mode,
        "bytes": len(data),
        "width": info.width,
        "height": info.height,
        "notes": list(info.notes),
        "pixel_sha256": pixel_sha256(image),
        "perceptual_hash": str(perceptual_hash(image)),
        "taken_in": now(),
    }
    return _Read(found, wnid, row, data)


class _Labels:
    """Weak labels to classes; each label is looked up once."""

    def __init__(self, workspace: Workspace) -> None:
        self._space = workspace.label_space
        self._known: dict[str, str | CurateError] = {}

    def wnid(self, found: Found) -> str:
        if not found.label:
            raise ImageRefused("no-label", "neither a class folder nor a table names its class")
        if found.label not in self._known:
            try:
                self._known[found.label] = self._space.match(found.label).wnid
            except CurateError as error:
                self._known[found.label] = error
        known = self._known[found.label]
        if isinstance(known, CurateError):
            raise ImageRefused("no-label", str(known))
        return known


class _Taker:
    """Decides about items in their order, and writes what it decided in batches."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.reject_near = workspace.settings.collect.near_duplicates == "reject"
        self.collected = Collected()
        self._pending: list[_Read | tuple[Found, ImageRefused]] = []
        self._bytes = 0
        self._near: dict[str, NearIndex[str]] = {}

    def take(self, item: _Read | tuple[Found, ImageRefused], bar: Bar) -> None:
        self._pending.append(item)
        if isinstance(item, _Read):
            self._bytes += len(item.data or b"")
        if len(self._pending) >= _BATCH_ITEMS or self._bytes >= _BATCH_BYTES:
            self.flush(bar)

    def flush(self, bar: Bar) -> None:
        batch, self._pending, self._bytes = self._pending, [], 0
        if not batch:
            return
        decided = _Decided()
        keys = self._keys(batch)
        with self.workspace.catalogue.read() as connection:
            firsts = intake.first_origins(connection, list(keys.values()))
            hashes = [item.image["pixel_sha256"] for item in batch if isinstance(item, _Read)]
            pixels = intake.candidates_with_pixels(connection, hashes)
        first_locators = {key: locator for key, (_, _, locator) in firsts.items()}
        for item in batch:
            if not isinstance(item, _Read):
                decided.refusals.append(item)
                continue
            key, twin = keys[id(item)], (item.image["pixel_sha256"], item.wnid)
            if key in first_locators:
                decided.copies.append(item)
                decided.places.append((key, item.found))
                if first_locators[key] == item.found.locator:
                    decided.known.append(item)
                else:
                    detail = f"the same bytes as {first_locators[key]}"
                    decided.refuse(item, "duplicate-exact", detail)
            elif twin in pixels:
                detail = f"the same pixels as candidate {pixels[twin]}"
                decided.refuse(item, "duplicate-pixels", detail)
            elif (near := self._nearest(item)) and self.reject_near:
                detail = f"nearly the same picture as candidate {near}"
                decided.refuse(item, "duplicate-near", detail)
            else:
                self._index(item.wnid).add(key, _hash_of(item))
                decided.accepted[key] = (item, near)
                decided.places.append((key, item.found))
                pixels[twin], first_locators[key] = key, item.found.locator
        self._write(decided)
        collected = self.collected
        collected.found += len(batch)
        collected.new += len(decided.accepted)
        collected.known += len(decided.known)
        collected.near_duplicates += sum(near is not None for _, near in decided.accepted.values())
        collected.rejected.update(refusal.reason for _, refusal in decided.refusals)
        bar.advance(len(batch))

    def _keys(self, batch: list[_Read | tuple[Found, ImageRefused]]) -> dict[int, str]:
        return {
            id(item): candidate_key(item.image["sha256"], item.wnid)
            for item in batch
            if isinstance(item, _Read)
        }

    def _index(self, wnid: str) -> NearIndex[str]:
        if wnid not in self._near:
            index = self._near[wnid] = NearIndex()
            with self.workspace.catalogue.read() as connection:
                for key, text in intake.perceptual_hashes(connection, wnid):
                    index.add(key, PerceptualHash.from_text(text))
        return self._near[wnid]

    def _nearest(self, item: _Read) -> str | None:
        nearest = self._index(item.wnid).nearest(_hash_of(item))
        return nearest[0] if nearest else None

    def _write(self, decided: _Decided) -> None:
        moment = now()
        store = self.workspace.store
        accepted_items = [item for item, _ in decided.accepted.values()]
        for item in [*decided.copies, *accepted_items]:
            if item.data is not None:
                store.put(item.data, item.image["sha256"], item.image["extension"])
        store.sync()
        accepted = decided.accepted
        with self.workspace.catalogue.write() as connection:
            intake.add_images(connection, [item.image for item in accepted_items])
            intake.add_candidates(
                connection,
                [
                    {
                        "key": key,
                        "sha256": item.image["sha256"],
                        "wnid": item.wnid,
                        "near_key": near,
                    }
                    for key, (item, near) in accepted.items()
                ],
            )
            ids = intake.candidate_ids(connection, [key for key, _ in decided.places])
            intake.set_origins(
                connection, [_origin(ids[key], found, moment) for key, found in decided.places]
            )
            taken = [*accepted_items, *decided.known]
            intake.clear_refusals(
                connection,
                [
                    intake.refusal_key(_SOURCE, item.found.locator, item.found.label)
                    for item in taken
                ],
            )
            intake.set_refusals(
                connection,
                [
                    {
                        "source": _SOURCE,
                        "locator": found.locator,
                        "label": found.label,
                        "reason": refusal.reason,
                        "detail": refusal.detail,
                        "seen": moment,
                    }
                    for found, refusal in decided.refusals
                ],
            )


@dataclass
class _Decided:
    """What becomes of a batch."""

    accepted: dict[str, tuple[_Read, str | None]] = field(default_factory=dict)
    places: list[tuple[str, Found]] = field(default_factory=list)
    refusals: list[tuple[Found, ImageRefused]] = field(default_factory=list)
    #: Items whose image is there already; those with data are put back into the store.
    copies: list[_Read] = field(default_factory=list)
    #: Of these the ones that stand where their candidate was first seen.
    known: list[_Read] = field(default_factory=list)

    def refuse(self, item: _Read, reason: str, detail: str) -> None:
        self.refusals.append((item.found, ImageRefused(reason, detail)))


def _hash_of(item: _Read) -> PerceptualHash:
    return PerceptualHash.from_text(item.image["perceptual_hash"])


def _origin(candidate_id: int, found: Found, seen: datetime) -> dict[str, Any]:
    licence = parse(found.licence)
    return {
        "candidate_id": candidate_id,
        "source": _SOURCE,
        "locator": found.locator,
        "collection": found.collection,
        "page": found.page,
        "title": found.title,
        "author": found.author,
        "licence": licence.id,
        "licence_url": licence.url,
        "licence_text": found.licence,
        "seen": seen,
    }


def _list_refusals(workspace: Workspace, collected: Collected) -> None:
    """Write everything that stands refused, for people to look at."""
    columns = ("source", "locator", "label", "reason", "detail")
    with workspace.catalogue.read() as connection:
        rows = [[row[column] for column in columns] for row in intake.refused(connection)]
    path = workspace.root / "lists" / "refused.csv"
    if rows:
        make_folder(path.parent)
        write_bytes(path, csv_text(columns, rows).encode())
        collected.list = str(path.relative_to(workspace.root))
    else:
        path.unlink(missing_ok=True)
