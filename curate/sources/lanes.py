"""Items waiting for their host's turn, a lane a host, so that no host holds up another."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from curate.sources.manners import Manners

Item = TypeVar("Item")

# How soon to look again at a host whose connections somebody else uses.
_LOOK_SECONDS = 0.05
_NEVER = float("inf")


@dataclass(slots=True, eq=False)
class _Lane(Generic[Item]):
    """A host's items, by the time before which they shall not be tried."""

    host: str
    queue: list[tuple[float, int, Item]] = field(default_factory=list)
    active: int = 0
    closed: bool = False
    due: float = _NEVER


class Turn(Generic[Item]):
    """An item that was handed out, with the turn of its host.

    Attributes:
        item: the item.
    """

    __slots__ = ("_alone", "_lane", "_lanes", "item")

    def __init__(self, lanes: Lanes[Item], lane: _Lane[Item], item: Item, alone: bool) -> None:
        self.item = item
        self._lanes, self._alone = lanes, alone
        self._lane: _Lane[Item] | None = lane

    def end(self, *, failed: bool | None = None, asked: bool = True, name: str = "") -> None:
        """Give the turn back, the first time that it is called.

        Args:
            failed: as `Manners.end` takes it.
            asked: False if no request was made.
            name: what was asked for, as `Manners.end` takes it.
        """
        lane, self._lane = self._lane, None
        if lane is None:
            return
        if asked:
            self._lanes._manners.end(lane.host, failed=failed, item=name)
        else:
            self._lanes._manners.cancel(lane.host)
        self._lanes._end(lane, self._alone)


class Lanes(Generic[Item]):
    """Hands out items as soon as their hosts may be asked, to any number of threads.

    A thread that waits sleeps until the next item is due, whichever host's it is. Hosts that one
    rule covers share a lane.

    Args:
        manners: who may be asked when; each item that `take` hands out holds a turn.
        patience: items of a host that wants a longer pause are given up, in seconds; those of one
            that `Manners.is_left` are as well.
        give_up: called with such an item and the time when the host may be asked.
        alone: whether nothing else of the host may be handed out until an item has ended.
        need_thread: called when items wait and no thread does.
    """

    def __init__(
        self,
        manners: Manners,
        patience: float,
        give_up: Callable[[Item, float], None],
        alone: Callable[[Item], bool],
        need_thread: Callable[[], None],
    ) -> None:
        self._manners = manners
        self._patience = patience
        self._give_up, self._alone, self._need_thread = give_up, alone, need_thread
        self._changed = threading.Condition(threading.Lock())
        self._lanes: dict[str, _Lane[Item]] = {}
        self._due: list[tuple[float, int, _Lane[Item]]] = []
        self._numbers = count()
        self._idle = 0
        self._watched = _NEVER
        self._closed = False

    def put(self, host: str, item: Item, delay: float = 0.0, *, first: bool = False) -> None:
        """Let an item wait for its host's turn.

        Args:
            host: the host to be asked, lower case.
            item: what to hand out.
            delay: seconds that it shall wait at least.
            first: whether it comes before all others of its host; then without a delay.
        """
        name = self._manners.rule(host).host
        with self._changed:
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = _Lane(name)
            not_before = 0.0 if first else self._manners.now() + delay
            heapq.heappush(lane.queue, (not_before, next(self._numbers), item))
            self._schedule(lane)
            self._rouse()

    def take(self, stop: Callable[[], bool]) -> Turn[Item] | None:
        """The next item that is due; waits for it.

        Args:
            stop: asked whether to give up before each item; `close` wakes up who waits.

        Returns:
            None at the end.
        """
        with self._changed:
            while not (self._closed or stop()):
                now = self._manners.now()
                while self._due and self._due[0][0] <= now:
                    due, _, lane = heapq.heappop(self._due)
                    if due != lane.due:
                        continue
                    lane.due = _NEVER
                    if lane.queue[0][0] <= now and self._manners.start(lane.host):
                        return self._hand_out(lane)
                    self._schedule(lane)
                self._wait(now)
        return None

    def _hand_out(self, lane: _Lane[Item]) -> Turn[Item]:
        _, _, item = heapq.heappop(lane.queue)
        lane.active += 1
        lane.closed = self._alone(item)
        turn = Turn(self, lane, item, lane.closed)
        self._schedule(lane)
        self._rouse()
        return turn

    def _end(self, lane: _Lane[Item], alone: bool) -> None:
        with self._changed:
            lane.active -= 1
            if alone:
                lane.closed = False
            self._schedule(lane)
            self._rouse()

    def close(self) -> None:
        """Hand out nothing more; whoever waits in `take` gets None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _schedule(self, lane: _Lane[Item]) -> None:
        """Note when the lane's next item is due, or give its items up."""
        if not lane.queue:
            if not lane.active:
                self._lanes.pop(lane.host, None)
            return
        if lane.closed:
            return
        now = self._manners.now()
        due = self._manners.ready_at(lane.host)
        if due == _NEVER:
            if lane.active:
                return
            due = now + _LOOK_SECONDS
        elif due - now > self._patience or self._manners.is_left(lane.host):
            given_up, lane.queue = sorted(lane.queue), []
            lane.due = _NEVER
            for _, _, item in given_up:
                self._give_up(item, due)
            self._schedule(lane)
            return
        due = max(due, lane.queue[0][0])
        if due < lane.due:
            # A later time needs no note: the lane is looked at when the earlier one comes.
            lane.due = due
            heapq.heappush(self._due, (due, next(self._numbers), lane))

    def _rouse(self) -> None:
        """See to it that a thread is awake, or wakes up, when the next item is due."""
        if not self._due or self._closed:
            return
        if self._idle == 0:
            self._need_thread()
        elif self._due[0][0] < self._watched:
            self._changed.notify()

    def _wait(self, now: float) -> None:
        # One of the waiting threads watches the clock; the others sleep until they are called.
        due = self._due[0][0] if self._due else _NEVER
        watches = due < self._watched
        if watches:
            self._watched = due
        self._idle += 1
        try:
            self._changed.wait(max(0.0, due - now) if watches else None)
        finally:
            self._idle -= 1
            if watches and self._watched == due:
                self._watched = _NEVER
