"""Searches: what is asked, class by class, and the hits that come, recorded with their cursor.

The hits of a step and the place where the search stands after them are written in one transaction:
a search that is cut off goes on there, and no hit is recorded twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping

from curate.catalog import hits
from curate.catalog.tables import now
from curate.errors import CurateError, ImageRefused, Interrupted, QuotaExhausted
from curate.licences import parse
from curate.sources.protocol import Hit, Query, Source
from curate.sources.states import OPEN, state_of
from pipelines.admission import Labels
from pipelines.policy import Policy
from pipelines.workspace import Workspace

#: Most hits of one step, and the smallest page of a source.
_STEP, _SMALL_PAGE = 200, 20

#: Hits in these states were never worth a download; they do not count towards a limit.
_NEVER_WANTED = ("licence", "malformed", *hits.UNLABELLED, "bad_url")

_CREDENTIALS = re.compile(r"^(\s*(?:[a-z][a-z0-9+.-]*:)?[/\\\\]{2})[^/\\\\?#]*@", re.IGNORECASE)

#: What a licence that is allowed now changes of a hit that was refused for it.
_LICENCE_COLUMNS = ("licence", "licence_url", "licence_text", "seen", "search_id")


@dataclass(frozen=True)
class Ask:
    """One search: a class and what to search for; both empty for a list."""

    wnid: str
    text: str
    options: Mapping[str, Any]


@dataclass
class Step:
    """Some hits of a search, and whether there are no more."""

    search_id: int
    ask: Ask
    hits: list[Hit]
    done: bool = False


class Searches:
    """The searches of a command, one after the other.

    Args:
        workspace: where hits are recorded.
        name: the source's name.
        asks: the searches, in their order.
        limit: most hits a class; None for all.
        policy: which licences are taken.
        refresh: whether searches that had come to their end are asked again.

    Attributes:
        ids: of the searches in the catalogue.
        troubles: what went wrong, one error a search.
    """

    def __init__(
        self,
        workspace: Workspace,
        name: str,
        asks: Sequence[Ask],
        limit: int | None,
        policy: Policy,
        *,
        refresh: bool = False,
    ) -> None:
        self.troubles: list[CurateError] = []
        self._workspace, self._name, self._limit, self._policy = workspace, name, limit, policy
        self._refresh = refresh
        self._labels = Labels.of(workspace)
        self._open: list[tuple[Ask, RowMapping]] = []
        with workspace.catalogue.write() as connection:
            for ask in asks:
                options = {**ask.options, "licences": policy.identity}
                row = hits.open_search(connection, name, ask.wnid, ask.text, options)
                self._open.append((ask, row))
        self.ids = [row["id"] for _, row in self._open]

    @property
    def most(self) -> int | None:
        """How many hits are wanted in all; None where there is no limit."""
        return self._limit and self._limit * len({ask.wnid for ask, _ in self._open})

    def steps(self, source: Source) -> Iterator[Step]:
        """Search until each class has what it may have.

        The caller records each step before it asks for the next one.
        """
        for ask, row in self._open:
            # Lists cost nothing to read again, and tell which hits are theirs: other lists may have
            # named the same ones since.
            ended = row["done"] and not self._refresh and ask.text
            if ended or self._missing(ask.wnid) == 0:
                continue
            try:
                yield from self._search(source, ask, row)
            except Interrupted:
                return
            except QuotaExhausted as error:
                self.troubles.append(error)
                return
            except CurateError as error:
                if str(error) in map(str, self.troubles):
                    # What two searches meet the others would meet as well: a key that is refused.
                    return
                self.troubles.append(error)

    def _search(self, source: Source, ask: Ask, row: RowMapping) -> Iterator[Step]:
        options = tuple((name, str(value)) for name, value in ask.options.items())
        anew = row["done"] and not ask.text
        cursor = None if anew else row["cursor"]
        query = Query(ask.wnid, ask.text, self._policy.sent, cursor, options)
        found = source.search(query)
        while (missing := self._missing(ask.wnid)) != 0:
            step = Step(row["id"], ask, [])
            trouble: CurateError | None = None
            try:
                _fill(step, found, min(_STEP, missing or _STEP))
            except CurateError as error:
                trouble = error
            # What came before a trouble is paid for: some sources answer five questions an hour.
            if step.hits or step.done:
                yield step
            if trouble is not None:
                raise trouble
            if step.done:
                return

    def _missing(self, wnid: str) -> int | None:
        if self._limit is None:
            return None
        with self._workspace.catalogue.read() as connection:
            there = hits.count_wanted(connection, self._name, wnid, _NEVER_WANTED)
        return max(0, self._limit - there)

    def record(self, step: Step) -> bool:
        """Write the hits of a step, and where its search stands.

        Returns:
            Whether hits that are older than others wait for a download now: they were refused for
            their licence before, or an earlier form of this list named them.
        """
        moment = now()
        rows: dict[str, dict[str, Any]] = {}
        for hit in step.hits:
            row = self._row(hit, step, moment)
            rows.setdefault(row["key"], row)
        with self._workspace.catalogue.write() as connection:
            known = hits.hits_of_keys(connection, list(rows))
            hits.add_hits(connection, [row for key, row in rows.items() if key not in known])
            allowed = [
                {"id": known[key]["id"]}
                | {name: row[name] for name in ("state", "detail", *_LICENCE_COLUMNS)}
                for key, row in rows.items()
                if key in known and known[key]["state"] == "licence" and row["state"] == "waiting"
            ]
            hits.change_hits(connection, allowed)
            refused = [
                {"id": known[key]["id"], "state": "licence", "detail": row["detail"], "image": None}
                for key, row in rows.items()
                if key in known and known[key]["state"] in OPEN and row["state"] == "licence"
            ]
            hits.change_hits(connection, refused)
            # A list that changed is another search; what it still names belongs to it now.
            moved = [
                one
                for one in known.values()
                if not step.ask.text and one["search_id"] != step.search_id
            ]
            changes = [{"id": one["id"], "search_id": step.search_id} for one in moved]
            hits.change_hits(connection, changes)
            if step.hits:
                cursor = step.hits[-1].cursor
                hits.set_search(connection, step.search_id, cursor, done=step.done)
            elif step.done:
                hits.end_search(connection, step.search_id)
        return bool(allowed) or any(one["state"] in OPEN for one in moved)

    def _row(self, hit: Hit, step: Step, moment: datetime) -> dict[str, Any]:
        licence = parse(hit.licence)
        wnid, state, detail = step.ask.wnid, "waiting", ""
        url, locator = _without_credentials(hit.url), _without_credentials(hit.locator)
        try:
            if hit.refusal is not None:
                raise hit.refusal
            wnid = wnid or self._labels.wnid(hit.label)
            if hit.url is None:
                raise ImageRefused("malformed-record", "no address")
            self._policy.check(hit, licence)
        except ImageRefused as refusal:
            state, detail = state_of(refusal.reason), refusal.detail
        if url != hit.url:
            state, detail = "bad_url", "credentials in the address; they are not kept"
        return {
            "key": hits.hit_key(hit.source, locator or "", wnid or hit.label),
            "search_id": step.search_id,
            "source": hit.source,
            "locator": locator,
            "label": hit.label,
            "wnid": wnid,
            "url": url,
            "collection": hit.collection,
            "page": hit.page,
            "title": hit.title,
            "author": hit.author,
            "licence": licence.id,
            "licence_url": licence.url,
            "licence_text": hit.licence,
            "seen": moment,
            "state": state,
            "detail": detail,
            "attempts": 0,
            "updated": moment,
        }


def _without_credentials(address: str | None) -> str | None:
    """An address without the name and password in it: they are nobody else's to read."""
    return address and _CREDENTIALS.sub(r"\1…@", address, count=1)


def _fill(step: Step, found: Iterator[Hit], most: int) -> None:
    """Add hits to a step: at most so many, and none for which another page must be awaited while
    those that are there could be downloaded.
    """
    for hit in found:
        step.hits.append(hit)
        # Places change with pages. Lists have none, and no page.
        at_a_page_end = bool(step.ask.text) and hit.cursor != step.hits[0].cursor
        if len(step.hits) == most or (at_a_page_end and len(step.hits) >= _SMALL_PAGE):
            return
    step.done = True


class Searcher:
    """Takes the steps of searches in a thread of its own: servers are slow, and pauses long."""

    def __init__(self, steps: Iterator[Step]) -> None:
        self._steps = steps
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._future: Future[Step | None] | None = None
        self.ended = False

    @property
    def idle(self) -> bool:
        """Whether `go_on` may be called."""
        return self._future is None and not self.ended

    @property
    def at_work(self) -> bool:
        """Whether a step was begun and has not been taken."""
        return self._future is not None

    def go_on(self) -> None:
        """Begin the next step."""
        self._future = self._pool.submit(next, self._steps, None)

    def take(self, timeout: float = 0.0) -> Step | None:
        """The step that was begun, if it has come; after the last one `ended` is true.

        Args:
            timeout: seconds to wait for it.
        """
        if self._future is None:
            return None
        wait((self._future,), timeout)
        if not self._future.done():
            return None
        step, self._future = self._future.result(), None
        self.ended = step is None
        return step

    def close(self) -> None:
        """Wait for the step in hand."""
        self._pool.shutdown(wait=True, cancel_futures=True)
