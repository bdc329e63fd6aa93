"""Driving workers in other processes: who gets which chunk, and what happens to those of the dead.

A chunk is whatever is handed out at a time, and bears a number. Each goes to one worker, and to
another where that one is lost, until somebody has scored it. How workers are started, spoken to and
listened to is told by the engines made of this (`process_engine.py`, `ray_crew.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from curate.errors import CurateError, DeviceError
from curate.progress import Stop, say
from pipelines.bench import Fault


class Numbered(Protocol):
    """What can be handed out."""

    @property
    def number(self) -> int:
        """Its own among all of a pass."""


#: What all workers must know, what one is handed at a time, and what it makes of that.
Job = TypeVar("Job")
Chunk = TypeVar("Chunk", bound=Numbered)
Made = TypeVar("Made")

#: Workers that may be lost while they hold one and the same chunk.
_LOSSES = 3


@dataclass(eq=False)
class Worker(ABC, Generic[Chunk]):
    """A worker as its driver sees it.

    Attributes:
        name: for messages.
        most: chunks that it may hold: those at work, and one that waits.
        ready: whether it can work.
        held: the chunks that it holds, by number.
    """

    name: str
    most: int
    ready: bool = False
    held: dict[int, Chunk] = field(default_factory=dict)

    @abstractmethod
    def send(self, turn: int, chunk: Chunk) -> None:
        """Hand it a chunk; one that is dead says nothing here, and is found gone later."""

    @abstractmethod
    def stop(self, turn: int) -> None:
        """Let it begin no further chunk of a pass; it answers None for those."""

    @abstractmethod
    def end(self) -> None:
        """End it at once."""


@dataclass(frozen=True)
class Event(Generic[Chunk, Made]):
    """What was heard of a worker: it is ready, it answers for a chunk, or it is gone.

    Attributes:
        worker: whom it is about.
        number: of the chunk that it answers for; None where it is about the worker itself.
        answer: what was made, an error, or None where the chunk was not finished, or the worker is
            ready.
        gone: why there will be no answer from it any more.
    """

    worker: Worker[Chunk]
    number: int | None = None
    answer: Made | Fault | None = None
    gone: str = ""


class CrewEngine(ABC, Generic[Job, Chunk, Made]):
    """An engine whose workers are other processes; see `pipelines.engines.Engine`."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._crew: list[Worker[Chunk]] = []
        self._turn = 0
        #: Workers lost since the last chunk that was scored.
        self._losses = 0

    def run(self, chunks: Iterable[Chunk], stop: Stop) -> Iterator[tuple[Chunk, Made]]:
        """See `Engine.run`.

        Raises:
            DeviceError: no worker is left.
        """
        table = _Table(chunks, stop)
        if not table.is_laid():
            return
        self._turn += 1
        self._gather()
        told = False
        try:
            while True:
                if stop.requested and not told:
                    told = True
                    self._stop()
                self._deal(table)
                if not any(worker.held for worker in self._crew) and not table.is_laid():
                    return
                for event in self._listen():
                    if (scored := self._heard(event, table, stop)) is not None:
                        yield scored
        finally:
            self._stop()
            self._forget()

    @abstractmethod
    def _gather(self) -> None:
        """Start the workers that are not there yet."""

    @abstractmethod
    def _listen(self) -> Iterable[Event[Chunk, Made]]:
        """Wait a moment for what workers of the crew say about this pass."""

    def _replace(self, worker: Worker[Chunk]) -> bool:
        """Start another worker for one that is lost; False where there is to be none."""
        return False

    def _stop(self) -> None:
        for worker in self._crew:
            worker.stop(self._turn)

    def _forget(self) -> None:
        """Wait no more for answers of this pass."""
        for worker in self._crew:
            worker.held.clear()

    def _deal(self, table: _Table[Chunk]) -> None:
        """Give chunks to those that hold the fewest, so that the last ones are shared out."""
        while free := [w for w in self._crew if w.ready and len(w.held) < w.most]:
            if not table.is_laid():
                return
            worker, chunk = min(free, key=lambda w: len(w.held)), table.take()
            worker.held[chunk.number] = chunk
            worker.send(self._turn, chunk)

    def _heard(
        self, event: Event[Chunk, Made], table: _Table[Chunk], stop: Stop
    ) -> tuple[Chunk, Made] | None:
        worker, answer = event.worker, event.answer
        if worker not in self._crew:
            return None
        if event.gone:
            self._lose(worker, DeviceError(event.gone), table, stop)
        elif isinstance(answer, Fault):
            error = answer.error()
            if not isinstance(error, DeviceError):
                raise error
            self._lose(worker, error, table, stop)
        elif event.number is None:
            worker.ready = True
        else:
            chunk = worker.held.pop(event.number)
            if answer is not None:
                self._losses = 0
                return chunk, answer
        return None

    def _lose(
        self, worker: Worker[Chunk], why: CurateError, table: _Table[Chunk], stop: Stop
    ) -> None:
        self._crew.remove(worker)
        self._losses += 1
        worker.end()
        table.take_back(worker.held.values(), why)
        if stop.requested:
            return
        if self._replace(worker):
            say(f"{why}; another worker takes its place")
        elif self._crew:
            say(f"{why}; its chunks go to the others")
        else:
            raise DeviceError(
                f"{why}; no worker is left, and what was finished is kept: run the same command "
                "again"
            ) from why


class _Table(Generic[Chunk]):
    """Chunks that nobody has: those taken back first, then new ones.

    Args:
        chunks: taken one by one, as they are asked for.
        stop: empties the table.
    """

    def __init__(self, chunks: Iterable[Chunk], stop: Stop) -> None:
        self._new, self._stop = iter(chunks), stop
        self._laid: deque[Chunk] = deque()
        self._lost: Counter[int] = Counter()

    def is_laid(self) -> bool:
        """Whether there is a chunk to take."""
        if self._stop.requested:
            return False
        if not self._laid and (chunk := next(self._new, None)) is not None:
            self._laid.append(chunk)
        return bool(self._laid)

    def take(self) -> Chunk:
        """The next chunk; only where there is one."""
        return self._laid.popleft()

    def take_back(self, chunks: Iterable[Chunk], why: CurateError) -> None:
        """Lay chunks of a lost worker on the table again.

        Raises:
            DeviceError: one of them has been with too many that were lost.
        """
        for chunk in chunks:
            self._lost[chunk.number] += 1
            if self._lost[chunk.number] >= _LOSSES:
                raise DeviceError(
                    f"{_LOSSES} workers were lost with chunk {chunk.number} in hand, the last one "
                    f"because {why}; what was finished is kept"
                ) from why
            self._laid.append(chunk)
