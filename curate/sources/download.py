"""The downloader: many addresses at a time to files, each host at its own pace.

A thread asks for one address, writes the body to a file while hashing it, and looks at the image.
Redirects and tries after failures wait in their host's lane like everything else: each request is a
turn of the host that it goes to.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from curate.errors import ImageRefused, Interrupted
from curate.retries import backoff, naive_utc
from curate.settings import NetworkSettings
from curate.sources.addresses import Url, parse_url
from curate.sources.bodies import BodyFile, receive
from curate.sources.failures import FetchFailed
from curate.sources.http import AGENT_TOKEN, Answer, Fetcher
from curate.sources.lanes import Lanes, Turn
from curate.sources.manners import Manners
from curate.sources.placeholders import Placeholders
from curate.sources.robots import Robots, tag_refuses
from curate.sources.states import state_of

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: Seconds that downloads in hand are given to end before their connections are cut, and in all.
_GRACE_SECONDS, _CLOSE_SECONDS = 0.3, 2.0

#: Images that wait for one host, above which `Downloader.takes` asks for those of others.
PER_LANE = 200

# Hosts out of reach that are remembered at a time.
_MOST_LOST = 10_000


@dataclass(frozen=True)
class Wanted:
    """An image to be downloaded.

    Attributes:
        id: the caller's name for it.
        url: its address as somebody wrote it.
    """

    id: int
    url: str


@dataclass(frozen=True)
class Fetched(Generic[T_co]):
    """A downloaded image.

    Attributes:
        wanted: what was asked for.
        path: the file, whole and synced; the caller's to rename or remove.
        sha256: of its content, 64 hexadecimal digits.
        bytes: its size.
        url: the address that answered, after redirects.
        content_type, etag, last_modified: what the answer said of itself.
        attempts: how often it was tried, this time included.
        outcome: what looking at the image gave.
    """

    wanted: Wanted
    path: Path
    sha256: str
    bytes: int
    url: str
    content_type: str | None
    etag: str | None
    last_modified: str | None
    attempts: int
    outcome: T_co


@dataclass(frozen=True)
class Failed:
    """An image that was not downloaded.

    Attributes:
        wanted: what was asked for.
        state: one of `curate.sources.states`; "waiting" where its host wants a longer pause.
        detail: what was seen.
        attempts: how often it was tried.
        retry_at: when the host may be asked again, in UTC without zone; None where nothing says so.
    """

    wanted: Wanted
    state: str
    detail: str
    attempts: int
    retry_at: datetime | None = None


@dataclass(slots=True, eq=False)
class _Item:
    """What is wanted, and where its redirects have led so far."""

    wanted: Wanted
    first: Url
    at: Url
    hops: int = 0
    attempts: int = 0


class _Moved(Exception):
    """An answer leads elsewhere, where another host's turn must be waited for."""

    def __init__(self, to: Url) -> None:
        self.to = to


class Downloader(Generic[T]):
    """Downloads what it is given; one thread gives and takes, others work.

    Args:
        fetcher: what asks.
        manners: which host may be asked when.
        robots: what robots.txt says; None to ask neither it nor the tags of answers.
        placeholders: pictures that stand in for missing ones.
        folder: where files go, under names that begin with `curate.files.TEMPORARY`.
        max_bytes: the largest file.
        settings: tries, redirects, patience and the number of threads.
        process: looks at a file, given its SHA-256; called in the threads. Its `ImageRefused` ends
            the image in the state of that reason.
        stop: asked whether to begin no further download.
        cores: how many images are looked at at a time; those of this machine if None.
        per_lane: as `PER_LANE`.
        wait: seconds before the next try, given how many have failed: 1, 2, …
    """

    def __init__(
        self,
        fetcher: Fetcher,
        manners: Manners,
        robots: Robots | None,
        placeholders: Placeholders,
        folder: Path,
        max_bytes: int,
        settings: NetworkSettings,
        process: Callable[[Path, str], T],
        stop: Callable[[], bool],
        *,
        cores: int | None = None,
        per_lane: int = PER_LANE,
        wait: Callable[[int], float] = lambda failed: backoff(failed - 1),
    ) -> None:
        self._fetcher, self._manners, self._robots = fetcher, manners, robots
        self._placeholders, self._folder, self._max_bytes = placeholders, folder, max_bytes
        self._settings, self._process, self._stop, self._wait = settings, process, stop, wait
        self._looking = threading.Semaphore(cores or _cores())
        self._lanes: Lanes[_Item] = Lanes(
            manners, settings.patience_seconds, self._give_up, self._asks_robots, self._start_thread
        )
        self._threads: list[threading.Thread] = []
        self._results: SimpleQueue[Fetched[T] | Failed | BaseException] = SimpleQueue()
        self._error: BaseException | None = None
        # Of hosts out of reach: the state that the last request ended in; failures of robots.txt.
        self._lost: dict[str, str] = {}
        self._robots_failures: dict[str, int] = {}
        self._open = 0
        # Of what has not come out of `results`: the lane by id, and how many are in each lane.
        self._per_lane = per_lane
        self._lane_of: dict[int, str] = {}
        self._held: Counter[str] = Counter()
        self._ending = self._closed = False
        self._closing = threading.Lock()

    @property
    def pending(self) -> int:
        """How many were added and have not come out of `results`."""
        return self._open

    def takes(self, url: str) -> bool:
        """Whether an image should be added now, rather than one of another host.

        Hosts that one rule covers count as one. A list sorted by host would otherwise fill all the
        room that the caller gives with images that wait for one slow host.

        Args:
            url: its address as somebody wrote it.

        Returns:
            False while as many images as `PER_LANE` that began at its host have not come out of
            `results`; True for what is no address, which ends at once.
        """
        try:
            host = parse_url(url).host
        except FetchFailed:
            return True
        return self._held[self._manners.rule(host).host] < self._per_lane

    def add(self, wanted: Wanted) -> None:
        """Want an image. However many are added is kept in memory: the caller sets the bounds."""
        self._open += 1
        try:
            url = parse_url(wanted.url)
        except FetchFailed as failure:
            self._results.put(Failed(wanted, failure.state, failure.detail, 0))
        else:
            lane = self._manners.rule(url.host).host
            self._lane_of[wanted.id] = lane
            self._held[lane] += 1
            self._lanes.put(url.host, _Item(wanted, url, url))

    def results(self, timeout: float) -> list[Fetched[T] | Failed]:
        """What has ended since the last call.

        Args:
            timeout: seconds to wait for the first one; 0 not to wait.

        Raises:
            StorageError: the disk is full; what ended before has been handed out.
        """
        found: list[Fetched[T] | Failed] = []
        while self._error is None:
            try:
                one = self._results.get(timeout=0 if found else timeout)
            except Empty:
                break
            if isinstance(one, BaseException):
                self._error = one
            else:
                found.append(one)
                self._release(one.wanted)
        self._open -= len(found)
        if self._error is not None and not found:
            raise self._error
        return found

    def _release(self, wanted: Wanted) -> None:
        lane = self._lane_of.pop(wanted.id, None)
        if lane is not None:
            self._held[lane] -= 1
            if not self._held[lane]:
                del self._held[lane]

    def close(self) -> None:
        """End within about two seconds.

        What is in hand ends or is dropped; what has ended can still be had from `results`. Where
        something is dropped the fetcher's connections are cut for good.
        """
        self._ending = True
        self._lanes.close()
        begun = time.monotonic()
        if not self._join(begun + _GRACE_SECONDS):
            self._fetcher.pools.abort()
            self._join(begun + _CLOSE_SECONDS)
        with self._closing:
            self._closed = True
        if self._error is not None:
            with suppress(Empty):
                while True:
                    _discard(self._results.get_nowait())

    def _join(self, until: float) -> bool:
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # What the lanes call, holding their lock.

    def _give_up(self, item: _Item, until: float) -> None:
        host = item.at.host
        if host in self._lost and self._manners.is_lost(host):
            detail = f"{host} is out of reach, after a pause as well"
            self._results.put(Failed(item.wanted, self._lost[host], detail, item.attempts))
            return
        when = naive_utc(until)
        detail = f"{host} wants a pause until {when:%Y-%m-%d %H:%M:%S} UTC"
        self._results.put(Failed(item.wanted, "waiting", detail, item.attempts, when))

    def _asks_robots(self, item: _Item) -> bool:
        robots = self._robots_for(item)
        return robots is not None and not robots.knows(item.at)

    def _start_thread(self) -> None:
        if len(self._threads) < self._settings.workers:
            thread = threading.Thread(
                target=self._work, name=f"download-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    # What the threads do.

    def _work(self) -> None:
        try:
            while (turn := self._lanes.take(self._stop)) is not None:
                self._handle(turn)
        except BaseException as error:
            self._lanes.close()
            self._results.put(error)

    def _handle(self, turn: Turn[_Item]) -> None:
        """Make the one request whose turn it is, and decide how the item goes on."""
        item = turn.item
        try:
            self._check(turn)
            file, answer = self._receive(item)
        except _Moved as moved:
            turn.end(failed=False)
            self._follow(item, moved.to)
        except _KnownNow:
            self._lanes.put(item.at.host, item)
        except FetchFailed as failure:
            self._fail(turn, failure)
        except Interrupted:
            pass
        else:
            turn.end(failed=False)
            self._finish(item, file, answer)
        finally:
            turn.end()

    def _check(self, turn: Turn[_Item]) -> None:
        """Look before the request whether it may be made."""
        item = turn.item
        note = self._placeholders.by_url(str(item.at))
        if note is not None:
            turn.end(asked=False)
            raise FetchFailed("placeholder", note, retryable=False)
        if (robots := self._robots_for(item)) is None:
            return
        asks = not robots.knows(item.at)
        try:
            allowed = robots.allowed(item.at)
        except FetchFailed as failure:
            raise self._robots_failed(item, failure) from None
        if asks:
            self._robots_failures.pop(item.at.host, None)
            turn.end(failed=False)
            raise _KnownNow
        if not allowed:
            turn.end(asked=False)
            raise FetchFailed("robots", retryable=False)

    def _robots_for(self, item: _Item) -> Robots | None:
        """What must allow the item's next request."""
        if self._robots is None or not self._manners.rule(item.at.host).robots:
            return None
        return self._robots

    def _robots_failed(self, item: _Item, failure: FetchFailed) -> FetchFailed:
        """Nothing of a site may be asked before its robots.txt is known."""
        host = item.at.host
        failed = self._robots_failures.get(host, 0) + 1
        ends = not failure.retryable or failed >= self._settings.tries
        self._robots_failures[host] = 0 if ends else failed
        if failure.retryable and failed >= self._settings.tries:
            self._manners.rest(host)
        elif failure.retryable and failure.retry_after is None:
            self._manners.pause(host, self._wait(failed))
        return FetchFailed(
            failure.state,
            f"robots.txt: {failure.detail}",
            retry_after=failure.retry_after,
            retryable=not ends,
        )

    def _receive(self, item: _Item) -> tuple[BodyFile, Answer]:
        """Ask for the item's address, and write what comes to a file."""
        if item.hops == 0:
            item.attempts += 1
        asked = False

        def on_hop(at: Url) -> None:
            nonlocal asked
            if asked:
                raise _Moved(at)
            asked = True

        with self._fetcher.open(item.at, max_bytes=self._max_bytes, on_hop=on_hop) as answer:
            if self._robots is not None:
                tag = tag_refuses(answer.headers, AGENT_TOKEN)
                if tag is not None:
                    raise FetchFailed("robots_tag", tag, retryable=False)
            file = receive(answer, self._folder)
        return file, answer

    def _finish(self, item: _Item, file: BodyFile, answer: Answer) -> None:
        """Sync the file, look at the image, and report both."""
        try:
            result = self._look(item, file, answer)
        except ImageRefused as refusal:
            state = state_of(refusal.reason)
            result = Failed(item.wanted, state, refusal.detail, item.attempts)
        except BaseException:
            file.discard()
            raise
        with self._closing:
            # After the end nobody would take it, nor remove its file.
            if isinstance(result, Failed) or self._closed:
                file.discard()
            if not self._closed:
                self._results.put(result)

    def _look(self, item: _Item, file: BodyFile, answer: Answer) -> Fetched[T] | Failed:
        sha256 = file.finish()
        note = self._placeholders.by_sha256(sha256)
        if note is not None:
            return Failed(item.wanted, "placeholder", note, item.attempts)
        with self._looking:
            outcome = self._process(file.path, sha256)
        headers = answer.headers
        return Fetched(
            item.wanted,
            file.path,
            sha256,
            file.size,
            answer.url,
            headers.get("Content-Type"),
            headers.get("ETag"),
            headers.get("Last-Modified"),
            item.attempts,
            outcome,
        )

    def _follow(self, item: _Item, to: Url) -> None:
        item.at = to
        item.hops += 1
        if item.hops > self._settings.redirects:
            detail = f"redirected more than {self._settings.redirects} times"
            self._results.put(Failed(item.wanted, "too_many_redirects", detail, item.attempts))
        else:
            self._lanes.put(to.host, item)

    def _fail(self, turn: Turn[_Item], failure: FetchFailed) -> None:
        """Let an item wait for another try, or report it."""
        if failure.state == "waiting" and self._ending:
            return
        item = turn.item
        host, pause = item.at.host, failure.retry_after
        if pause is not None:
            self._manners.pause(host, pause)
        out_of_reach = _out_of_reach(failure)
        if out_of_reach:
            if len(self._lost) >= _MOST_LOST:
                self._lost.clear()
            self._lost[host] = failure.state
        turn.end(failed=out_of_reach)
        # A host that wants a long pause is left for later, whatever the number of tries.
        leaves = pause is not None and pause > self._settings.patience_seconds
        if not failure.retryable or not (leaves or item.attempts < self._settings.tries):
            self._results.put(Failed(item.wanted, failure.state, failure.detail, item.attempts))
        elif leaves:
            self._give_up(item, self._manners.paused_until(host))
        else:
            delay = self._wait(item.attempts) if pause is None else 0.0
            if failure.state == "http_429" and pause is None:
                self._manners.pause(host, delay)
            item.at, item.hops = item.first, 0
            self._lanes.put(item.at.host, item, delay)


class _KnownNow(Exception):
    """The turn went to robots.txt; the item waits for another."""


def _out_of_reach(failure: FetchFailed) -> bool | None:
    """Whether a failure is one of those that several times in a row pause a host."""
    if failure.state in ("connection", "timeout"):
        return True
    if failure.state in ("dns", "tls", "waiting", "bad_url", "forbidden_address"):
        return None
    return (failure.status or 0) >= 500


def _discard(result: object) -> None:
    if isinstance(result, Fetched):
        with suppress(OSError):
            result.path.unlink()


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
