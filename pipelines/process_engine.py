"""One process a device: how several GPUs of this machine share a run.

A process has a pipe of its own to the driver, so that one that is killed can leave no lock behind
which others wait. It ends when its pipe does, however the driver ended.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pipelines.bench import Fault, Place, hands
from pipelines.crew import CrewEngine, Event, Worker
from pipelines.scoring import Chunk, Job, Scored

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

_Heard = Event[Chunk, Scored]

#: Seconds between two looks at whether the user wants to stop, those until an end is forced, and
#: those that what has been killed may take to be gone.
_LOOK, _PATIENCE, _EXIT = 0.2, 3.0, 30.0


@dataclass(eq=False)
class _Process(Worker[Chunk]):
    process: BaseProcess = field(kw_only=True)
    pipe: Connection = field(kw_only=True)

    def send(self, turn: int, chunk: Chunk) -> None:
        self.tell("score", turn, chunk)

    def stop(self, turn: int) -> None:
        self.tell("stop", turn)

    def end(self) -> None:
        """Close its pipe, at whose end it ends, and see that it does."""
        self.pipe.close()
        self.process.join(_PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def tell(self, *message: Any) -> None:
        with suppress(OSError):
            self.pipe.send(message)


class ProcessEngine(CrewEngine[Job, Chunk, Scored]):
    """A process for each device.

    Args:
        job: what to do; its device is that of each process in turn.
        devices: "cuda:0", "cuda:1"; or "cpu" as often as there are to be processes.
        cores: of this machine, which the processes share.
    """

    def __init__(self, job: Job, devices: Sequence[str], cores: int) -> None:
        super().__init__(job)
        self.devices = tuple(devices)
        self._share = max(1, cores // len(self.devices))
        self._started = False

    @property
    def workers(self) -> int:
        """See `Engine.workers`."""
        return sum(self._share if device == "cpu" else 1 for device in self.devices)

    def widen(self, job: Job) -> None:
        """See `Engine.widen`."""
        self.job = job
        for worker in self._processes():
            worker.tell("widen", self._for(worker.name))

    def close(self) -> None:
        """See `Engine.close`."""
        for worker in self._crew:
            worker.end()
        self._crew.clear()
        self._started = False

    def _gather(self) -> None:
        if self._started:
            return
        self._started = True
        for device in self.devices:
            self._crew.append(self._start(device))

    def _start(self, device: str) -> _Process:
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=serve, args=(theirs, self._for(device), self._share), name=f"curate {device}"
        )
        # The user's interrupt goes to every process of the terminal; the driver alone heeds it.
        with _signals_blocked():
            process.start()
        theirs.close()
        most = hands(device, self._share) + 1
        return _Process(device, most, process=process, pipe=ours)

    def _for(self, device: str) -> Job:
        return replace(self.job, device=device)

    def _listen(self) -> Iterable[_Heard]:
        from multiprocessing.connection import wait

        crew = self._processes()
        heard = wait([*(w.pipe for w in crew), *(w.process.sentinel for w in crew)], _LOOK)
        for worker in crew:
            if worker.pipe in heard:
                yield from self._read(worker)
            elif worker.process.sentinel in heard:
                yield Event(worker, gone=_how_it_ended(worker))

    def _read(self, worker: _Process) -> Iterator[_Heard]:
        try:
            turn, number, answer = worker.pipe.recv()
        except (EOFError, OSError):
            yield Event(worker, gone=_how_it_ended(worker))
            return
        # A pass that was given up leaves answers behind.
        if turn in (0, self._turn):
            yield Event(worker, number, answer)

    def _processes(self) -> list[_Process]:
        return [worker for worker in self._crew if isinstance(worker, _Process)]


def _how_it_ended(worker: _Process) -> str:
    worker.process.join(_EXIT)
    code = worker.process.exitcode
    how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return f"the process for {worker.name} has ended ({how})"


def serve(pipe: Connection, job: Job, cores: int) -> None:
    """The work of a process: read from the pipe until it ends, and answer with what was made.

    Messages are ("score", turn, chunk), ("stop", turn) and ("widen", job); answers are (turn,
    number of the chunk, what `Place.score` gave), and (0, None, None or a fault) for the process
    itself.
    """
    lock = threading.Lock()

    def answer(turn: int, number: int | None, what: Any) -> None:
        with lock, suppress(OSError):
            pipe.send((turn, number, what))

    def score(place: Place, turn: int, chunk: Chunk) -> None:
        answer(turn, chunk.number, place.score(turn, chunk))

    try:
        place = Place(job, cores)
    except Exception as error:
        answer(0, None, Fault.of(error, job.device))
        return
    answer(0, None, None)
    pool = ThreadPoolExecutor(hands(job.device, cores), thread_name_prefix="score")
    while True:
        try:
            kind, *about = pipe.recv()
        except (EOFError, OSError):
            # The driver is gone or wants no more; what threads have in hand is of no use.
            os._exit(0)
        if kind == "score":
            pool.submit(score, place, *about)
        elif kind == "stop":
            place.stop(*about)
        else:
            place.widen(*about)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Hold back interrupts; a process that is started meanwhile never gets them."""
    from multiprocessing import resource_tracker

    # Python's helper for processes, when it starts with the first of them, lets interrupts through.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
