"""Harvest: hits of public sources and lists are downloaded, and decided in their order.

Every step may be killed at any instant. A downloaded image lies in `incoming/` under its SHA-256
before a transaction says so. Hits are decided in the order in which they were found, whatever the
order in which servers answered: so the same hits make the same candidates.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, RowMapping

from curate.catalog import hits, intake
from curate.catalog.tables import now
from curate.errors import ImageRefused, Interrupted
from curate.files import (
    files_by_content,
    make_folder,
    remove_leftovers,
    storage_errors,
    sync_folder,
)
from curate.licences import parse
from curate.progress import Bar, Stop, progress, say, stop_on_interrupt
from curate.sources.addresses import parse_allow_host, parse_url
from curate.sources.download import Failed, Fetched
from curate.sources.failures import FetchFailed
from curate.sources.protocol import Hit, Source, clean
from curate.sources.states import state_of
from pipelines.admission import Admission, Decided, Labels, Ready
from pipelines.collect import Collected, list_refusals, tally
from pipelines.feeding import Feed
from pipelines.network import REMOTE_SOURCES, Network
from pipelines.placeholders import remove_withdrawn, withdraw_placeholders
from pipelines.policy import Policy
from pipelines.reading import KnownImages, examined_row, image_row
from pipelines.searching import Ask, Searcher, Searches
from pipelines.workspace import Workspace, claim_store

#: Results, and seconds, between two transactions.
_FLUSH, _FLUSH_SECONDS = 256, 1.0

#: Seconds to wait for the next step of a search before downloads are seen to.
_STEP_SECONDS = 0.02

#: Seconds between two records of what hosts were asked.
_MANNERS_SECONDS = 5.0

#: What a download changes of a hit.
_RESULT_COLUMNS = ("sha256", "image", "next_try", "final_url", "etag", "last_modified")

#: A downloaded image's row, but for the time.
Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What a command searches and downloads.

    Attributes:
        source: what is searched; None where only failed hits are tried again.
        name: the source's name.
        asks: the searches, in their order.
        limit: most hits a class; None for all.
        policy: which licences are taken.
        scope: the hits that the command downloads; None for those of its own searches.
        refresh: whether searches that had come to their end are asked again.
    """

    source: Source | None
    name: str
    asks: Sequence[Ask]
    limit: int | None
    policy: Policy
    scope: hits.Scope | None
    refresh: bool = False


class Harvest:
    """Runs a plan to its end, or until the user stops it.

    Args:
        workspace: where to; its stage "collect" is held by the caller.
        plan: what to do.
        network: downloads, and remembers what hosts were asked and told.
        stop: whether the user asked to stop.
    """

    def __init__(self, workspace: Workspace, plan: Plan, network: Network, stop: Stop) -> None:
        self.workspace = workspace
        self.collected = Collected()
        self._plan, self._network, self._stop = plan, network, stop
        self._incoming = workspace.root / "incoming"
        self._searches = Searches(
            workspace, plan.name, plan.asks, plan.limit, plan.policy, refresh=plan.refresh
        )
        self._scope = plan.scope
        if self._scope is None:
            self._scope = hits.of_searches(self._searches.ids)
        self._admission = Admission(workspace, self)
        self._known = KnownImages(workspace)
        # Else `curate dedup` finds near duplicates: looking costs more than downloading.
        self._looks_at_once = workspace.settings.collect.near_duplicates == "reject"
        self._results: list[Fetched[Row] | Failed] = []
        self._flushed = self._remembered = time.monotonic()
        self._feed = Feed(workspace, lambda: self.scope)
        # The id of the first candidate of this start: all later ones have larger ids.
        self._first_new: int | None = None
        self._retries = False
        self._ended: Counter[str] = Counter()

    @property
    def scope(self) -> hits.Scope:
        """The hits that this command downloads."""
        assert self._scope is not None
        return hits.retried(self._scope) if self._retries else self._scope

    def retry(self, matches: Callable[[str], bool]) -> None:
        """Limit the harvest to hits whose state `matches`; they are tried again.

        What their label is and whether their licence is allowed is judged anew.
        """
        labels = Labels.of(self.workspace)
        with self.workspace.catalogue.write() as connection:
            unlabelled = [state for state in hits.UNLABELLED if matches(state)]
            for label in hits.unknown_labels(connection, self.scope, unlabelled):
                with suppress(ImageRefused):
                    hits.set_class(connection, self.scope, label, labels.wnid(label))
            states = [state for state in hits.counts(connection, self.scope) if matches(state)]
            hits.try_again(connection, self.scope, states)
        self._retries = True

    def run(self) -> Collected:
        """Search, download and decide.

        Raises:
            StorageError: the disk is full; what was done stays, and the next start goes on.
            Interrupted: stopped by the user; the same holds.
        """
        make_folder(self._incoming)
        claim_store(self.workspace)
        self.workspace.store.leftovers(remove=True)
        remove_leftovers(self._incoming)
        with self.workspace.catalogue.write() as connection:
            hits.forget_pauses(connection, self.scope)
            # The allow-list may have changed since they were found.
            licences = hits.open_licences(connection, self.scope)
            refused = [one for one in licences if not self._plan.policy.allows(parse(one))]
            number = hits.refuse_licences(connection, self.scope, refused)
            self._ended.update({"licence": number} if number else {})
            self._allow_hosts(connection)
        self._remove_unnamed()
        self._miss_files()
        with (
            stop_on_interrupt(self._stop) as stop,
            progress("collect", None if self._retries else self._searches.most) as bar,
        ):
            self._work(stop, bar)
        self._remove_unnamed()
        self._count()
        list_refusals(self.workspace, self.collected)
        self.collected.troubles = tuple(self._searches.troubles)
        if stop.requested:
            told = f"stopped with {self.collected.new:,} new candidates; run again to go on"
            raise Interrupted(told)
        return self.collected

    def _allow_hosts(self, connection: Connection) -> None:
        """Let hits wait again whose host has been exempted from the rules on addresses since."""
        allowed = [parse_allow_host(t) for t in self.workspace.settings.network.allow_hosts]
        if not allowed or self._retries:
            return
        again = []
        for number, text in hits.addresses_in(connection, self.scope, "forbidden_address"):
            with suppress(FetchFailed):
                url = parse_url(text)
                if any(one.exempts(url.host, url.port) for one in allowed):
                    again.append({"id": number, "state": "waiting", "detail": ""})
        hits.change_hits(connection, again)

    def _work(self, stop: Stop, bar: Bar) -> None:
        source = None if self._retries else self._plan.source
        searcher = Searcher(iter(()) if source is None else self._searches.steps(source))
        downloader = self._network.downloader(self._look_at, self._incoming)
        try:
            while not stop.requested:
                if self._feed.hand_on(downloader) and searcher.idle:
                    searcher.go_on()
                if (step := searcher.take(_STEP_SECONDS)) is not None:
                    self._feed.look_again(from_start=self._searches.record(step))
                elif searcher.ended and not downloader.pending and not self._results:
                    break
                # Lists have millions of rows that are known: nothing may wait between their steps,
                # and none of these for a download while the next one is made.
                busy = step is not None or searcher.at_work
                self._results += downloader.results(timeout=0.0 if busy else 0.1)
                self._flush(bar, force=searcher.ended and not downloader.pending)
        except BaseException:
            # So that neither waits for a host's pause.
            stop.request()
            raise
        finally:
            downloader.close()
            if stop.requested:
                self._network.abort()
            searcher.close()
        self._results += downloader.results(timeout=0)
        self._flush(bar, force=True)
        if not stop.requested:
            self._admit(None)

    # Downloads

    def _look_at(self, path: Path, sha256: str) -> Row:
        """The row of a downloaded image; runs in the downloader's threads.

        Raises:
            ImageRefused: the image cannot be used.
        """
        row = self._known.row(sha256)
        if row is None and self._looks_at_once:
            row = image_row(self.workspace, path.read_bytes(), sha256, None)
        elif row is None:
            row = examined_row(self.workspace, path.read_bytes(), sha256)
        return {name: value for name, value in row.items() if name != "taken_in"}

    def _flush(self, bar: Bar, *, force: bool = False) -> None:
        """Write what was downloaded, and decide what can be decided."""
        moment = time.monotonic()
        late = moment - self._flushed >= _FLUSH_SECONDS
        if self._results and (force or late or len(self._results) >= _FLUSH):
            results, self._results, self._flushed = self._results, [], moment
            with storage_errors("downloaded images"):
                for result in results:
                    if isinstance(result, Fetched):
                        result.path.replace(self._staged(result.sha256))
                sync_folder(self._incoming)
            with self.workspace.catalogue.write() as connection:
                hits.change_hits(connection, [self._result_row(result) for result in results])
                before = hits.first_waiting(connection, self.scope)
            self._feed.ended(result.wanted.id for result in results)
            bar.advance(sum(not _waits(result) for result in results))
            self._admit(before)
        if force or moment - self._remembered >= _MANNERS_SECONDS:
            self._remembered = moment
            self._network.remember()

    def _result_row(self, result: Fetched[Row] | Failed) -> dict[str, Any]:
        row: dict[str, Any] = dict.fromkeys(_RESULT_COLUMNS)
        row |= {"id": result.wanted.id, "attempts": result.attempts}
        # A hit that is tried again stays one until it ends.
        going_on = hits.RETRIED if self._retries else ""
        if isinstance(result, Failed):
            self._ended[result.state] += 1
            detail = going_on if self._retries and _waits(result) else result.detail
            return row | {"state": result.state, "detail": detail, "next_try": result.retry_at}
        return row | {
            "state": "fetched",
            "detail": going_on,
            "sha256": result.sha256,
            "image": result.outcome,
            "final_url": result.url,
            "etag": clean(result.etag, 200),
            "last_modified": clean(result.last_modified, 200),
        }

    def _staged(self, sha256: str) -> Path:
        return self._incoming / sha256

    # Decisions

    def _admit(self, before: int | None) -> None:
        """Decide about downloaded hits in their order, up to the id `before`."""
        while True:
            with self.workspace.catalogue.read() as connection:
                rows = hits.fetched(connection, self.scope, before, _FLUSH)
            if not rows:
                return
            items = [self._ready(row) for row in rows]
            lost = [row["id"] for row, item in zip(rows, items, strict=True) if item is None]
            self._fetch_anew(lost)
            found = [item for item in items if item]
            batch, withdrawn = withdraw_placeholders(self.workspace, found)
            self._discount(withdrawn)
            decided = self._admission.admit(batch)
            self._count_new(decided)
            self.collected.near_duplicates += decided.near_duplicates
            self._drop(decided)

    def _count_new(self, decided: Decided) -> None:
        self.collected.new += len(decided.accepted)
        if self._first_new is None and decided.accepted:
            with self.workspace.catalogue.read() as connection:
                numbers = intake.candidate_ids(connection, list(decided.accepted))
            self._first_new = min(numbers.values())

    def _discount(self, withdrawn: Sequence[int]) -> None:
        """Candidates that were new in this start and are none any more."""
        if self._first_new is not None:
            self.collected.new -= sum(number >= self._first_new for number in withdrawn)

    def _ready(self, row: RowMapping) -> Ready | None:
        """A downloaded hit with its content; None where the file is gone."""
        image = {**row["image"], "taken_in": now()}
        staged = self._staged(row["sha256"])
        there = staged.is_file()
        if not there and not self.workspace.store.holds(row["sha256"], image["extension"]):
            return None
        hit = Hit(
            row["source"],
            row["locator"],
            row["label"],
            url=row["url"],
            collection=row["collection"],
            page=row["page"],
            title=row["title"],
            author=row["author"],
            licence=row["licence_text"],
        )
        content = staged if there else None
        return Ready(hit, row["wnid"], image, content, row["id"], row["seen"])

    def _miss_files(self) -> None:
        """Look whether what is downloaded is there: a copied workspace may lack it."""
        last = 0
        while True:
            with self.workspace.catalogue.read() as connection:
                rows = hits.fetched(connection, self.scope, None, _FLUSH, after=last)
            if not rows:
                return
            self._fetch_anew([row["id"] for row in rows if self._ready(row) is None])
            last = rows[-1]["id"]

    def _fetch_anew(self, numbers: Sequence[int]) -> None:
        """Somebody removed downloaded files: they are downloaded and decided once more."""
        if not numbers:
            return
        changed = [{"id": number, "state": "waiting", "image": None} for number in numbers]
        with self.workspace.catalogue.write() as connection:
            hits.change_hits(connection, changed)
        self._feed.look_again(from_start=True)

    def record(self, connection: Connection, decided: Decided, moment: datetime) -> None:
        """Write what became of hits, in the transaction that admits them."""
        taken = [*(item for item, _ in decided.accepted.values()), *decided.known]
        ended = [(item.number, "downloaded", "") for item in taken]
        ended += [
            (item.number, state_of(item.refusal.reason), item.refusal.detail)
            for item in decided.refused
        ]
        self._ended.update(state for _, state, _ in ended)
        hits.change_hits(
            connection,
            [
                {"id": number, "state": state, "detail": detail, "image": None}
                for number, state, detail in ended
            ],
        )

    def _drop(self, decided: Decided) -> None:
        """Remove the files of refused images that no other hit waits with."""
        gone = {item.image["sha256"] for item in decided.twins}
        if not gone:
            return
        with self.workspace.catalogue.read() as connection:
            gone -= hits.fetched_among(connection, sorted(gone))
        for sha256 in gone:
            self._staged(sha256).unlink(missing_ok=True)

    def _remove_unnamed(self) -> None:
        """Remove files that a kill left between a download and its record or after a decision, and
        images whose candidates were withdrawn.
        """
        with self.workspace.catalogue.read() as connection:
            named = hits.fetched_files(connection, REMOTE_SOURCES)
        for path in files_by_content(self._incoming):
            if path.name not in named:
                path.unlink(missing_ok=True)
        remove_withdrawn(self.workspace)

    # The end

    def _count(self) -> None:
        """What the hits of this command are now."""
        collected = self.collected
        with self.workspace.catalogue.read() as connection:
            states = dict(self._ended) if self._retries else hits.counts(connection, self.scope)
            again = hits.earliest_try(connection, self.scope)
        for state, number in states.items():
            collected.found += number
            if state == "downloaded":
                collected.known += max(0, number - collected.new)
            else:
                tally(collected, state, number)
        if collected.waiting and again is not None:
            say(
                f"{collected.waiting:,} photos wait: their hosts asked for a pause or did not "
                f"answer; run the same command again after {again:%Y-%m-%d %H:%M:%S} UTC"
            )


def _waits(result: Fetched[Row] | Failed) -> bool:
    return isinstance(result, Failed) and result.state == "waiting"
