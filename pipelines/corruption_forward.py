"""Forward passes over one setting: pictures are corrupted ahead, so that models never wait long.

On a CPU a thread a core computes, each operation on one thread, and takes what workers have
corrupted meanwhile; on a GPU the threads take turns. Chunks and batches are the same whatever the
number of cores and workers, so the numbers are too.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.errors import CurateError
from curate.labels.space import LabelSpace
from curate.metrics.classification import predict, restrict, softmax_confidence
from curate.progress import Bar, Stop
from curate.testbed.predictions import Predictions
from pipelines.corruption_pictures import Pictures
from pipelines.corruption_work import Damage, Outcome, damage_all, parcels
from pipelines.threads import run_here, usable_cores

if TYPE_CHECKING:
    from curate.models.classifier import Classifier

# As in other evaluations, so that the clean images give the same numbers there and here.
_CHUNK = 32

# Chunks that are corrupted beyond those that threads have in hand.
_AHEAD = 2

# Threads that feed a GPU: one computes while the other gathers its pictures.
_TAKING_TURNS = 2


@dataclass
class Clock:
    """How long at least one forward pass was running, and how much all took together.

    Attributes:
        running: seconds in which a model computed.
        seconds: of all passes, added up over threads.
        passes: pictures that passed a model.
    """

    running: float = 0.0
    seconds: float = 0.0
    passes: int = 0
    _active: int = 0
    _since: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def passing(self, pictures: int) -> Iterator[None]:
        """Around the passes of some pictures."""
        with self._lock:
            began = time.perf_counter()
            if not self._active:
                self._since = began
            self._active += 1
        try:
            yield
        finally:
            with self._lock:
                now = time.perf_counter()
                self._active -= 1
                self.seconds += now - began
                self.passes += pictures
                if not self._active:
                    self.running += now - self._since


class Scored:
    """What one classifier says of the pictures of a setting, in the making.

    Args:
        classifier: on its device.
        space: the label space that it is restricted to.
        count: how many pictures there are.
    """

    def __init__(self, classifier: Classifier, space: LabelSpace, count: int) -> None:
        self.classifier, self._space = classifier, space
        self._columns = classifier.columns(space)
        self._predicted = np.full(count, -1, np.int32)
        self._confidence = np.full(count, np.nan)
        self._failed: dict[int, str] = {}

    def logits(self, rows: Sequence[int], batch: np.ndarray) -> np.ndarray:
        """What the classifier says of a batch, the pictures of some rows."""
        return self.classifier.logits(batch).cpu().numpy()

    def add(self, rows: Sequence[int], logits: np.ndarray) -> None:
        """Take the logits of some rows; those that are not finite have failed."""
        finite = np.isfinite(logits).all(axis=1)
        places = np.asarray(rows)
        self._failed |= dict.fromkeys(places[~finite].tolist(), "nan-logits")
        if finite.any():
            within = restrict(logits[finite], self._columns)
            self._predicted[places[finite]] = predict(within)
            self._confidence[places[finite]] = softmax_confidence(within)

    def fail(self, row: int, reason: str) -> None:
        """Note why a row has no prediction."""
        self._failed[row] = reason

    def predictions(self, paths: Sequence[str], wnids: Sequence[str]) -> Predictions:
        """The predictions, when every row has arrived."""
        return Predictions(
            paths,
            wnids,
            [None if n < 0 else self._space.wnids[n] for n in self._predicted],
            self._confidence,
            failed=dict(sorted(self._failed.items())),
            outputs=len(self.classifier.output),
        )


@dataclass
class Job:
    """One setting for some models.

    Attributes:
        pictures: what is corrupted.
        damage: what the setting does to each picture.
        models: take the scores.
        about: whatever the caller wants to know it by.
        left: pictures that are still to be passed.
    """

    pictures: Pictures
    damage: Damage
    models: Sequence[Scored]
    about: Any = None
    left: int = 0

    def __post_init__(self) -> None:
        self.left = len(self.pictures)
        for row, refusal in self.pictures.refused.items():
            for model in self.models:
                model.fail(row, refusal.reason)


@dataclass(frozen=True)
class _Chunk:
    """Rows of a job that have pictures, the work that makes those, and how many rows it covers."""

    job: Job
    rows: Sequence[int]
    made: Sequence[Future[list[Outcome]]]
    size: int


class Passes:
    """Passes the pictures of settings through classifiers whose input is alike.

    Args:
        workers: where pictures are corrupted.
        device: of the models, by type: "cpu", "cuda", "mps".
        clock: counts the time of forward passes.
        cores: that this process may use; None for all that it has.
    """

    def __init__(
        self, workers: Executor, device: str, clock: Clock, cores: int | None = None
    ) -> None:
        from curate.models.runtime import BATCH_SIZES

        self._workers, self._clock = workers, clock
        self._size = BATCH_SIZES[device]
        self._turn: Any = nullcontext() if device == "cpu" else threading.Lock()
        # Threads that only take turns would hold pictures for nothing.
        self._threads = (cores or usable_cores()) if device == "cpu" else _TAKING_TURNS

    def finish(self, jobs: Iterable[Job], stop: Stop, bar: Bar) -> Iterator[Job]:
        """Pass every picture of every job, and hand out each job when it is whole.

        The next job begins while the last chunks of the one before are at work, so that no core
        waits for another.

        Args:
            jobs: taken lazily.
            stop: asks to stop; then no further batch begins, and no job that lacks one is handed
                out.
            bar: advances by a picture and model.

        Raises:
            CurateError: a worker process ended.
        """
        chunks = self._chunks(jobs, max(_CHUNK, self._size), stop)
        try:
            for chunk, is_whole in run_here(
                chunks, lambda chunk: self._compute(chunk, stop), self._threads, stop
            ):
                if not is_whole:
                    continue
                job = chunk.job
                bar.advance(chunk.size * len(job.models))
                job.left -= chunk.size
                if not job.left:
                    yield job
        except BrokenProcessPool as error:
            raise CurateError(
                "a process that corrupts images has ended, which happens where memory is short; "
                "run the same command again, it goes on"
            ) from error

    def _chunks(self, jobs: Iterable[Job], size: int, stop: Stop) -> Iterator[_Chunk]:
        """Chunks whose pictures are in the making, a few ahead of whoever takes them."""
        waiting: deque[_Chunk] = deque()
        for job in jobs:
            pictures = job.pictures
            for start in range(0, len(pictures), size):
                if stop.requested:
                    return
                rows = range(start, min(start + size, len(pictures)))
                good = [row for row in rows if row not in pictures.refused]
                items = [(pictures.source(row), pictures.digests[row]) for row in good]
                made = [
                    self._workers.submit(damage_all, parcel, job.damage)
                    for parcel in parcels(items)
                ]
                waiting.append(_Chunk(job, good, made, len(rows)))
                if len(waiting) > _AHEAD:
                    yield waiting.popleft()
        yield from waiting

    def _compute(self, chunk: _Chunk, stop: Stop) -> bool:
        """Score a chunk; False where a stop was requested before its end."""
        from curate.models.runtime import bound_threads

        models = chunk.job.models
        outcomes: list[Outcome] = []
        for made in chunk.made:
            if stop.requested:
                return False
            outcomes += made.result()
        crops, rows = [], []
        for row, outcome in zip(chunk.rows, outcomes, strict=True):
            if isinstance(outcome, str):
                for model in models:
                    model.fail(row, outcome)
            else:
                crops.append(outcome)
                rows.append(row)
        with self._turn, bound_threads(1):
            for start in range(0, len(rows), self._size):
                if stop.requested:
                    return False
                batch = np.stack(crops[start : start + self._size])
                part = rows[start : start + self._size]
                for model in models:
                    with self._clock.passing(len(batch)):
                        logits = model.logits(part, batch)
                    model.add(part, logits)
        return True
