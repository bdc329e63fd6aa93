"""Driving workers that may be lost at any time: every chunk is scored once, or the user is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.errors import DeviceError, UsageError
from curate.progress import Stop
from pipelines.bench import Fault
from pipelines.crew import CrewEngine, Event, Worker
from pipelines.scoring import Chunk, Job, Scored

JOB = cast(Job, None)


@dataclass(eq=False)
class _Worker(Worker):
    queue: list[int] = field(default_factory=list)
    stopped: int = 0
    ended: bool = False

    def send(self, turn: int, chunk: Chunk) -> None:
        assert not self.ended
        assert self.ready
        assert len(self.held) <= self.most
        self.queue.append(chunk.number)

    def stop(self, turn: int) -> None:
        self.stopped = turn

    def end(self) -> None:
        self.ended = True


class _Crew(CrewEngine):
    """Workers whose every answer is drawn: scores, a lost device, or silence for good."""

    workers = 2

    def __init__(self, fates: Iterator[str], count: int = 2, *, replaces: bool = False) -> None:
        super().__init__(JOB)
        self.fates, self.count, self.replaces = fates, count, replaces
        self.most_held = 0

    def _gather(self) -> None:
        while len(self._crew) < self.count:
            self._crew.append(_Worker(f"worker {len(self._crew)}", 2))

    def _replace(self, worker: Worker) -> bool:
        if self.replaces:
            self._crew.append(_Worker("another worker", 2))
        return self.replaces

    def _listen(self) -> Iterable[Event]:
        crew = cast(list[_Worker], self._crew)
        self.most_held = max(self.most_held, sum(len(worker.held) for worker in crew))
        for worker in list(crew):
            if not worker.ready:
                yield Event(worker)
            elif worker.queue:
                yield self._event(worker)

    def _event(self, worker: _Worker) -> Event:
        fate = next(self.fates, "scored")
        number = worker.queue.pop(0)
        if worker.stopped == self._turn:
            return Event(worker, number, None)
        if fate == "killed":
            return Event(worker, gone=f"{worker.name} was killed")
        if fate == "lost":
            return Event(worker, number, Fault("DeviceError", f"{worker.name} lost its GPU", ""))
        return Event(worker, number, cast(Scored, f"scores of {number}"))

    def widen(self, job: Job) -> None:
        self.job = job

    def close(self) -> None:
        self._crew.clear()


def chunks(count: int, taken: list[int] | None = None) -> Iterator[Chunk]:
    for number in range(count):
        if taken is not None:
            taken.append(number)
        yield Chunk(number, ())


def numbers(pairs: Iterable[tuple[Chunk, Any]]) -> list[int]:
    return [chunk.number for chunk, _ in pairs]


@given(
    st.integers(0, 12),
    st.lists(st.sampled_from(["scored", "killed", "lost"]), max_size=20),
    st.booleans(),
)
def test_every_chunk_is_scored_once_whoever_is_lost_or_the_user_is_told(
    count: int, fates: list[str], replaces: bool
) -> None:
    crew = _Crew(iter(fates), replaces=replaces)
    done: list[int] = []
    told = ""
    try:
        for chunk, answer in crew.run(chunks(count), Stop()):
            assert cast(str, answer) == f"scores of {chunk.number}"
            done.append(chunk.number)
    except DeviceError as error:
        told = str(error)
    assert len(done) == len(set(done))
    if told:
        assert sum(fate != "scored" for fate in fates) >= (3 if replaces else 2)
        assert "what was finished is kept" in told
    else:
        assert sorted(done) == list(range(count))


def test_chunks_are_taken_as_workers_have_room_for_them() -> None:
    taken: list[int] = []
    crew = _Crew(iter(()))
    pairs = crew.run(chunks(50, taken), Stop())
    next(pairs)
    assert len(taken) <= 6
    assert len(numbers(pairs)) == 49
    assert crew.most_held <= 4


def test_nothing_starts_for_no_chunks() -> None:
    crew = _Crew(iter(()))
    assert numbers(crew.run(iter(()), Stop())) == []
    assert crew._crew == []


def test_after_a_stop_no_chunk_starts_and_those_at_work_are_handed_out() -> None:
    stop, taken = Stop(), []
    done = []
    for chunk, _ in _Crew(iter(())).run(chunks(50, taken), stop):
        done.append(chunk.number)
        stop.request()
    assert 1 <= len(done) <= 2
    assert len(taken) <= 5


def test_workers_lost_after_a_stop_are_no_error() -> None:
    stop = Stop()
    crew = _Crew(iter(["scored", *["killed"] * 9]))
    for _ in crew.run(chunks(50), stop):
        stop.request()


def test_a_chunk_that_ends_every_worker_is_named_and_not_tried_for_ever() -> None:
    with pytest.raises(DeviceError, match="3 workers were lost with chunk 0 in hand"):
        list(_Crew(iter(["killed"] * 99), replaces=True).run(chunks(1), Stop()))


def test_an_error_inside_a_worker_ends_the_run_as_that_error() -> None:
    crew = _Crew(iter(()))

    def refused(worker: _Worker) -> Event:
        return Event(worker, worker.queue.pop(0), Fault("UsageError", "no such class", "trace"))

    crew._event = refused  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="^no such class"):
        list(crew.run(chunks(3), Stop()))


def test_a_pass_that_was_given_up_leaves_nothing_to_the_next_one() -> None:
    crew = _Crew(iter(()))
    pairs = crew.run(chunks(9), Stop())
    next(pairs)
    pairs.close()
    assert all(not worker.held for worker in crew._crew)
    for worker in cast(list[_Worker], crew._crew):
        assert worker.stopped == 1
        worker.queue.clear()
    assert sorted(numbers(crew.run(chunks(9), Stop()))) == list(range(9))
