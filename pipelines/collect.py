"""Collect from this machine's disks: from files and archives to candidates in the catalogue.

Items are taken in their order, in batches: decoded in threads, decided one after the other, their
files stored and synced, then one transaction. A killed collect leaves no half-taken item, and the
next one ends in the same catalogue.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, RowMapping

from curate.catalog import hits, intake
from curate.errors import CurateError, ImageRefused, Interrupted, UsageError
from curate.files import (
    atomic_write,
    csv_lines,
    make_folder,
    printable,
    remove_leftovers,
    sha256_bytes,
)
from curate.progress import Bar, progress, stop_on_interrupt
from curate.sources.folder import Folder, read_image
from curate.sources.protocol import Hit, Query, Source
from curate.sources.states import is_failure
from pipelines.admission import Admission, Decided, Labels, Ready, Refused
from pipelines.reading import KnownImages, image_row
from pipelines.threads import usable_cores
from pipelines.workspace import Workspace, claim_store, pin_label_space

#: The columns of the list of what became no candidate.
_LISTED = ("source", "locator", "label", "reason", "detail", "url")

#: Most items and most bytes in one batch.
_BATCH_ITEMS, _BATCH_BYTES = 256, 128_000_000


@dataclass
class Collected:
    """What a collect did.

    Attributes:
        found: items looked at; the sum of `new`, `known`, `rejected`, `failed` and `waiting`.
        new: candidates added.
        known: items that were candidates before.
        rejected: items refused, by reason.
        failed: items that a server or the way to it did not hand over, by reason.
        waiting: items left for a later start, because their host asked for a pause.
        near_duplicates: candidates added although nearly the same picture was there.
        troubles: what kept searches from their end, one error each; what they had found is taken.
        list: where the items that became no candidates are listed, relative to the workspace; None
            if there are none.
    """

    found: int = 0
    new: int = 0
    known: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    waiting: int = 0
    near_duplicates: int = 0
    troubles: Sequence[CurateError] = ()
    list: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON summary of the contract."""
        return {
            "found": self.found,
            "new": self.new,
            "known": self.known,
            "rejected": dict(sorted(self.rejected.items())),
            "failed": dict(sorted(self.failed.items())),
            "waiting": self.waiting,
            "near_duplicates": self.near_duplicates,
            "troubles": [str(trouble) for trouble in self.troubles],
            "list": self.list,
        }


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
    source = Folder(path, labels)
    with workspace.held("collect"):
        total = sum(1 for _ in source.search(Query()))
        return _collect(workspace, source, total)


def collect_tar(workspace: Workspace, path: Path, wnids: Sequence[str] | None = None) -> Collected:
    """Take in the images of tar files in the layout of ImageNet-21k, without unpacking them.

    A start after a kill or an interrupt goes on where the one before stopped; a start after a
    finished one looks at everything again, and puts back what the store lost.

    Args:
        workspace: where to.
        path: one tar file of a class, one that holds such files or class folders, or a folder.
        wnids: the classes to take; None for all.

    Raises:
        UsageError: the path cannot be used.
        BusyError, StorageError, Interrupted: as `collect_folder`.
    """
    from curate.sources.tar import TarFiles

    limits = workspace.settings.images
    chosen = None if wnids is None else frozenset(wnids)
    source = TarFiles(path, max_bytes=limits.max_bytes, wnids=chosen)
    with workspace.held("collect"):
        return _collect(workspace, source, None, _identity(path, wnids))


def _identity(path: Path, wnids: Sequence[str] | None) -> dict[str, Any]:
    """What makes a later start of the same search go on: the same archive and classes."""
    try:
        status = path.stat()
    except OSError as error:
        raise UsageError(f"cannot read {printable(path)}: {error.strerror}") from error
    return {
        "path": path.resolve().name,
        "bytes": status.st_size,
        "changed": status.st_mtime_ns,
        "classes": None if wnids is None else sorted(wnids),
    }


def _collect(
    workspace: Workspace,
    source: Source,
    total: int | None,
    identity: Mapping[str, Any] | None = None,
) -> Collected:
    """Take in what a source on this machine finds; resumable where it has an identity."""
    pin_label_space(workspace)
    claim_store(workspace)
    workspace.store.leftovers(remove=True)
    search: RowMapping | None = None
    if identity is not None:
        with workspace.catalogue.write() as connection:
            search = hits.open_search(connection, source.name, "", "", identity)
    cursor = search["cursor"] if search and not search["done"] else None
    taker = _Taker(workspace, search["id"] if search else None)
    with stop_on_interrupt() as stop, progress("collect", total, unit="files") as bar:
        items = source.search(Query(cursor=cursor))
        for item in _read_all(workspace, items, lambda: stop.requested):
            taker.take(item, bar)
        taker.flush(bar)
    list_refusals(workspace, taker.collected)
    if stop.requested:
        of = "" if total is None else f" of {total}"
        raise Interrupted(f"stopped after {taker.collected.found}{of} files; run again to go on")
    if search is not None:
        with workspace.catalogue.write() as connection:
            hits.set_search(connection, search["id"], None, done=True)
    return taker.collected


def _read_all(
    workspace: Workspace, items: Iterable[Hit], stopped: Callable[[], bool]
) -> Iterator[Ready | Refused]:
    """Read and decode in threads; results come in the order of the items."""
    labels, known = Labels.of(workspace), KnownImages(workspace)
    workers = usable_cores()
    queue: deque[tuple[Hit, Future[Ready]]] = deque()

    def first() -> Ready | Refused:
        hit, future = queue.popleft()
        try:
            return future.result()
        except ImageRefused as refusal:
            return Refused(hit, refusal)

    with ThreadPoolExecutor(workers, thread_name_prefix="collect") as pool:
        for hit in items:
            if stopped():
                break
            queue.append((hit, pool.submit(_read_one, workspace, hit, labels, known)))
            if len(queue) > 2 * workers:
                yield first()
        while queue:
            yield first()


def _read_one(workspace: Workspace, hit: Hit, labels: Labels, known: KnownImages) -> Ready:
    if hit.refusal:
        raise hit.refusal
    wnid = labels.wnid(hit.label)
    data, name = hit.data, hit.locator.rpartition("/")[2]
    if data is None:
        assert hit.path is not None
        data, name = read_image(hit.path, workspace.settings.images.max_bytes), hit.path.name
    sha256 = sha256_bytes(data)
    stored = known.row(sha256)
    if stored is not None:
        # An image that was lost or altered since is put back.
        whole = workspace.store.holds(sha256, stored["extension"])
        return Ready(hit, wnid, stored, None if whole else data)
    return Ready(hit, wnid, image_row(workspace, data, sha256, name), data)


class _Taker:
    """Hands items on in batches, and counts what became of them."""

    def __init__(self, workspace: Workspace, search_id: int | None) -> None:
        self.collected = Collected()
        self._search_id = search_id
        self._admission = Admission(workspace, self)
        self._pending: list[Ready | Refused] = []
        self._bytes = 0

    def take(self, item: Ready | Refused, bar: Bar) -> None:
        self._pending.append(item)
        if isinstance(item, Ready) and isinstance(item.content, bytes):
            self._bytes += len(item.content)
        if len(self._pending) >= _BATCH_ITEMS or self._bytes >= _BATCH_BYTES:
            self.flush(bar)

    def flush(self, bar: Bar) -> None:
        if not self._pending:
            return
        decided = self._admission.admit(self._pending)
        collected = self.collected
        collected.found += len(self._pending)
        collected.new += len(decided.accepted)
        collected.known += len(decided.known)
        collected.near_duplicates += decided.near_duplicates
        collected.rejected.update(item.refusal.reason for item in decided.refused)
        bar.advance(len(self._pending))
        self._pending, self._bytes = [], 0

    def record(self, connection: Connection, decided: Decided, moment: datetime) -> None:
        """Keep the list of refused items, and where the search stands."""
        taken = [*(item for item, _ in decided.accepted.values()), *decided.known]
        intake.clear_refusals(
            connection,
            [
                intake.refusal_key(item.hit.source, item.hit.locator, item.hit.label)
                for item in taken
            ],
        )
        intake.set_refusals(
            connection,
            [
                {
                    "source": item.hit.source,
                    "locator": item.hit.locator,
                    "label": item.hit.label,
                    "reason": item.refusal.reason,
                    "detail": item.refusal.detail,
                    "seen": moment,
                }
                for item in decided.refused
            ],
        )
        if self._search_id is not None:
            hits.set_search(connection, self._search_id, self._pending[-1].hit.cursor)


def list_refusals(workspace: Workspace, collected: Collected) -> None:
    """Write everything that became no candidate, for people to look at.

    Call it while holding what every stage that writes lists holds.
    """
    path = workspace.root / "lists" / "refused.csv"
    make_folder(path.parent)
    remove_leftovers(path.parent)
    with workspace.catalogue.read() as connection:
        rows = chain(intake.refused(connection), hits.unsettled(connection))
        lines = csv_lines(_LISTED, map(dict, rows))
        header, first = next(lines), next(lines, None)
        if first is None:
            path.unlink(missing_ok=True)
            return
        with atomic_write(path) as stream:
            for line in chain((header, first), lines):
                stream.write(line.encode())
    collected.list = str(path.relative_to(workspace.root))


def tally(collected: Collected, state: str, number: int) -> None:
    """Count hits by what became of them, but for those that are candidates."""
    if state in ("waiting", "fetched"):
        collected.waiting += number
    elif is_failure(state):
        collected.failed[state] += number
    else:
        collected.rejected[state] += number
