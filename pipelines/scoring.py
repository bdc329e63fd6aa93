"""Scoring: what a worker is told, what it does with a chunk, and what it gives back.

A job and a chunk are small and can be pickled, so that a worker may be a thread of this process, a
process beside it, or an actor on another machine. A chunk names images by key and never carries
pixels; what comes back is verdicts and one Parquet part. Whoever drives the workers writes the part
and names it in the catalogue: workers know no catalogue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from curate.catalog.judging import Candidate
from curate.catalog.store import open_store
from curate.errors import ImageRefused, UsageError
from curate.filtration.rules import Rule
from curate.labels.space import LabelSpace
from curate.settings import ImageLimits
from pipelines.provenance import made_by

if TYPE_CHECKING:
    from curate.filtration.terms import ChunkResult, Counts, Photo, Plan, Verdict

#: Candidates whose centre views show how far a forward is off: for other runtimes in fp32, whose
#: errors are all alike, and for low precision.
_SAMPLE_FP32, _SAMPLE = 4, 64

#: How canonical scores are computed, by the views in a batch.
_EXACT = {
    1: "float32, each view alone, one thread",
    10: "float32, ten views a batch, one thread",
}


@dataclass(frozen=True)
class Chunk:
    """Candidates that pass the cascade together.

    Attributes:
        number: its place in the run.
        candidates: in the order of their keys.
    """

    number: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Job:
    """All that a worker on any machine must know.

    Attributes:
        models: names of the ensemble's classifiers; a checkpoint's path holds on every machine.
        label_space: what softmax runs over.
        rule: what removes a candidate.
        views: "paper" or "native".
        complete: score every view of every candidate.
        keep_logits: keep the full logits.
        seed: of what is repeated in fp32.
        device: where to compute; "auto" is decided where the worker is.
        backend: what runs shared batches.
        precision: in which numbers.
        limits: those that images were accepted under.
        store: the address of the images.
        sample: candidates whose views show how far low precision is off.
        widened: how often its margins have proved too narrow.
        fingerprints: of the classifiers' weights; a worker that finds others refuses. None where
            this worker is the first to look.
    """

    models: tuple[str, ...]
    label_space: LabelSpace
    rule: Rule
    views: str
    complete: bool
    keep_logits: bool
    seed: int
    device: str
    backend: str
    precision: str
    limits: ImageLimits
    store: str
    sample: tuple[Candidate, ...] = ()
    widened: int = 0
    fingerprints: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Scored:
    """What a worker gives for a chunk.

    Attributes:
        verdicts: one a candidate, in the chunk's order.
        part: the scores, a Parquet file.
        rows: in it.
        forwards: views that passed a classifier.
        counts: what low precision did.
        seconds: of work.
        made_by: device, versions and the like.
    """

    verdicts: list[Verdict]
    part: bytes
    rows: int
    forwards: int
    counts: Counts
    seconds: float
    made_by: dict[str, Any] = field(default_factory=dict)


class Scorer:
    """Scores chunks here; safe to share between threads.

    Args:
        job: what to do.
        cores: threads that may decode the sample.

    Raises:
        UsageError: an unusable model, device, backend or label space; weights that are not those
            of the job.
    """

    def __init__(self, job: Job, cores: int = 1) -> None:
        from curate.filtration.plan import make_plan
        from curate.models.ensemble import Ensemble
        from curate.models.runtime import resolve_device, tune_allocator

        device = str(resolve_device(job.device))
        tune_allocator()
        self.job = job
        self.store = open_store(job.store)
        self.ensemble = Ensemble(job.models, job.label_space)
        _check_fingerprints(self.ensemble.record(), job.fingerprints)
        #: The plan, which lacks the margins of its forwards.
        self.outline = make_plan(
            self.ensemble,
            job.label_space,
            job.rule,
            views=job.views,
            device=device,
            backend=job.backend,
            precision=job.precision,
            complete=job.complete,
            keep_logits=job.keep_logits,
            seed=job.seed,
        )
        self._cores = cores
        self._lock = threading.Lock()
        self._ready: tuple[Plan, dict[str, Any]] | None = None

    @property
    def device(self) -> str:
        """Where it computes."""
        return str(self.outline.classifiers[0].device)

    @property
    def plan(self) -> Plan:
        """The plan with its margins, which are measured when they are first needed."""
        return self._with_margins()[0]

    @property
    def made_by(self) -> dict[str, Any]:
        """Device, versions and margins."""
        return self._with_margins()[1]

    def widen(self, job: Job) -> None:
        """Go on with the wider margins of a job that is otherwise the same."""
        with self._lock:
            self.job, self._ready = job, None

    def score(self, chunk: Chunk) -> Scored:
        """Read, decode and judge a chunk's candidates, in the calling thread."""
        started = time.monotonic()
        photos = self.load(chunk)
        return self.judge(chunk, photos, time.monotonic() - started)

    def load(self, chunk: Chunk, spread: Callable[..., Iterable[Any]] = map) -> list[Any]:
        """The decoded and resized photos of a chunk, or why there is none (ImageRefused).

        Args:
            chunk: the candidates.
            spread: as `map`; that of a pool decodes in its threads.
        """
        return list(spread(self._photo, chunk.candidates))

    def judge(
        self, chunk: Chunk, photos: Sequence[Photo | ImageRefused], seconds: float = 0.0
    ) -> Scored:
        """Judge a chunk whose photos are loaded.

        Args:
            chunk: the candidates.
            photos: as `load` gave them.
            seconds: what loading took.
        """
        from curate.filtration.scores import table_bytes

        started = time.monotonic()
        # Both at once: another thread may widen the margins while this one judges.
        plan, told = self._with_margins()
        result = self.judged(chunk, photos, plan)
        keys = [candidate.key for candidate in chunk.candidates]
        part = table_bytes(result.scores.table(keys, self.job.label_space.wnids))
        return Scored(
            result.verdicts,
            part,
            len(result.scores),
            result.forwards,
            result.counts,
            seconds + time.monotonic() - started,
            told,
        )

    def judged(
        self, chunk: Chunk, photos: Sequence[Photo | ImageRefused], plan: Plan | None = None
    ) -> ChunkResult:
        """The cascade's result for a chunk, by default under the present margins."""
        from curate.filtration.cascade import judge_chunk
        from curate.models.memory import device_errors
        from curate.models.runtime import bound_threads

        # Concepts of the rule outlier are outside the label space.
        space = self.job.label_space
        targets = [space.position(c.wnid) if c.wnid in space else -1 for c in chunk.candidates]
        plan = plan or self.plan
        with bound_threads(1), device_errors(self.device):
            return judge_chunk(photos, targets, plan, [c.key for c in chunk.candidates])

    def _photo(self, candidate: Candidate) -> Photo | ImageRefused:
        from curate.filtration.plan import prepare

        try:
            data = self.store.read(candidate.sha256, candidate.extension)
            return prepare(data, self.outline, self.job.limits)
        except ImageRefused as refusal:
            return refusal

    def _with_margins(self) -> tuple[Plan, dict[str, Any]]:
        with self._lock:
            if self._ready is None:
                plan = self._measured()
                exact = not any(plan.margins)
                self._ready = (
                    plan,
                    made_by(self.device)
                    | {
                        "exact": _EXACT[plan.exact_size],
                        "forwards": [forward.record() for forward in plan.forwards],
                        "margins": None if exact else [round(margin, 6) for margin in plan.margins],
                        "widened": self.job.widened,
                    },
                )
            return self._ready

    def _measured(self) -> Plan:
        from curate.filtration.margins import is_exact, with_margins

        forwards = self.outline.forwards
        needed = [model for model in range(len(forwards)) if not is_exact(self.outline, model)]
        if not needed:
            return self.outline
        fp32 = all(forwards[model].precision == "fp32" for model in needed)
        sample = self.job.sample[: _SAMPLE_FP32 if fp32 else _SAMPLE]
        with ThreadPoolExecutor(self._cores) as pool:
            loaded = list(pool.map(self._photo, sample))
            photos = [photo for photo in loaded if not isinstance(photo, ImageRefused)]

            def side_by_side(calls: Sequence[Callable[[], float]]) -> list[float]:
                return list(pool.map(_on_one_thread, calls))

            return with_margins(self.outline, photos, self.job.widened, side_by_side)


def _on_one_thread(call: Callable[[], float]) -> float:
    from curate.models.memory import device_errors
    from curate.models.runtime import bound_threads

    with bound_threads(1), device_errors("the device"):
        return call()


def _check_fingerprints(records: Sequence[dict[str, Any]], expected: Sequence[str] | None) -> None:
    for record, fingerprint in zip(records, expected or (), strict=bool(expected)):
        if record["fingerprint"] != fingerprint:
            raise UsageError(
                f"a worker found other weights for {record['name']} ({record['fingerprint'][:8]}, "
                f"not {fingerprint[:8]}): give every machine the same file"
            )
