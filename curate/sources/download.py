"""The downloader: many addresses at a time to files, each host at its own pace.

A thread asks for one address, writes the body to a file while hashing it, and looks at the image.
Redirects and tries after failures wait in their host's lane like everything else: each request is a
turn of the host that it goes to.

A host where several different images fail one after the other is left for a later start, with all
its images. There it is asked for one image at a time until one is answered, and left again when
several have ended in their failures. So no image fails that was not asked for, and the images of a
host that is gone for good end as well, some with each start.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from curate.errors import ImageRefused, Interrupted
from curate.files import sha256_bytes
from curate.retries import backoff, naive_utc
from curate.settings import NetworkSettings
from curate.sources.addresses import Url, parse_url
from curate.sources.asking import Asking, Item, Moved, RobotsFailed, RobotsKnown
from curate.sources.bodies import BodyFile
from curate.sources.failures import FetchFailed
from curate.sources.http import Answer, Fetcher
from curate.sources.lanes import Lanes, Turn
from curate.sources.manners import Manners
from curate.sources.placeholders import Placeholders
from curate.sources.robots import Robots
from curate.sources.states import state_of
from curate.sources.wanted import Failed, Fetched, Wanted

__all__ = ["PER_LANE", "Downloader", "Failed", "Fetched", "Wanted"]

T = TypeVar("T")

#: Seconds that downloads in hand are given to end before their connections are cut, and in all.
_GRACE_SECONDS, _CLOSE_SECONDS = 0.3, 2.0

#: Images that wait for one host, above which `Downloader.takes` asks for those of others.
PER_LANE = 200


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
        cores: how many images are looked at at a time.
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
        cores: int,
        per_lane: int = PER_LANE,
        wait: Callable[[int], float] = lambda failed: backoff(failed - 1),
    ) -> None:
        self._fetcher, self._manners, self._placeholders = fetcher, manners, placeholders
        self._settings, self._process, self._stop, self._wait = settings, process, stop, wait
        self._asking = Asking(fetcher, manners, robots, placeholders, folder, max_bytes, settings)
        self._looking = threading.Semaphore(cores)
        self._lanes: Lanes[Item] = Lanes(
            manners, settings.patience_seconds, self._give_up, self._goes_alone, self._start_thread
        )
        self._threads: list[threading.Thread] = []
        self._results: SimpleQueue[Fetched[T] | Failed | BaseException] = SimpleQueue()
        self._error: BaseException | None = None
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
            self._lanes.put(url.host, Item(wanted, url, url))

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

    def _give_up(self, item: Item, until: float) -> None:
        when = naive_utc(until)
        detail = (
            f"{item.at.host} asked for a pause or did not answer; it is left until "
            f"{when:%Y-%m-%d %H:%M:%S} UTC"
        )
        self._results.put(Failed(item.wanted, "waiting", detail, item.attempts, when))

    def _goes_alone(self, item: Item) -> bool:
        return self._asking.asks_robots(item) or self._manners.is_in_doubt(item.at.host)

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

    def _handle(self, turn: Turn[Item]) -> None:
        """Make the one request whose turn it is, and decide how the item goes on."""
        item = turn.item
        try:
            file, answer = self._asking.ask(turn)
        except Moved as moved:
            turn.end(failed=False)
            self._follow(item, moved.to)
        except RobotsKnown:
            self._lanes.put(item.at.host, item, first=True)
            # That it has a robots.txt does not tell that it has images.
            turn.end()
        except FetchFailed as failure:
            self._fail(turn, failure)
        except Interrupted:
            pass
        else:
            turn.end(failed=False)
            self._finish(item, file, answer)
        finally:
            turn.end()

    def _finish(self, item: Item, file: BodyFile, answer: Answer) -> None:
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

    def _look(self, item: Item, file: BodyFile, answer: Answer) -> Fetched[T] | Failed:
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

    def _follow(self, item: Item, to: Url) -> None:
        item.at = to
        item.hops += 1
        if item.hops > self._settings.redirects:
            detail = f"redirected more than {self._settings.redirects} times"
            self._results.put(Failed(item.wanted, "too_many_redirects", detail, item.attempts))
        else:
            self._lanes.put(to.host, item)

    def _fail(self, turn: Turn[Item], failure: FetchFailed) -> None:
        """Let an item wait for another try, or report it."""
        if failure.state == "waiting" and self._ending:
            return
        item = turn.item
        host, pause = item.at.host, failure.retry_after
        if pause is not None:
            self._manners.pause(host, pause)
        # A host that wants a long pause is left for later, whatever the number of tries.
        leaves = pause is not None and pause > self._settings.patience_seconds
        again = failure.retryable and (leaves or item.attempts < self._settings.tries)
        failed = failure.out_of_reach
        doubted = self._manners.is_in_doubt(host)
        if failed and doubted and again:
            failed = None
        name = sha256_bytes(str(item.first).encode())[:16]
        if again and not leaves:
            self._try_again(item, failure, alone=doubted)
        turn.end(failed=failed, name=name)
        if not again:
            self._results.put(Failed(item.wanted, failure.state, failure.detail, item.attempts))
        elif leaves:
            self._give_up(item, self._manners.paused_until(host))

    def _try_again(self, item: Item, failure: FetchFailed, *, alone: bool) -> None:
        host = item.at.host
        delay = 0.0
        if failure.retry_after is None:
            delay = self._wait(max(item.attempts, item.robots_attempts))
            if alone or failure.state == "http_429" or isinstance(failure, RobotsFailed):
                self._manners.pause(host, delay)
        first = alone and item.first.host == host
        item.at, item.hops = item.first, 0
        self._lanes.put(item.at.host, item, 0.0 if first else delay, first=first)


def _discard(result: object) -> None:
    if isinstance(result, Fetched):
        with suppress(OSError):
            result.path.unlink()
