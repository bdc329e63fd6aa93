"""The Ray engine: a pool of actors, one a GPU or one a core, on one machine or many.

What travels is small: keys of images to the actors, verdicts and scores back. Actors read images
from the store's address themselves. An actor that is lost, with its node or alone, is replaced
where the cluster has room, and its chunks go to whoever is free.
"""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from curate._version import __version__
from curate.catalog.judging import Candidate
from curate.catalog.store import open_store
from curate.errors import UsageError
from curate.progress import say
from pipelines.bench import Fault, Place, code_fingerprint, hands
from pipelines.crew import CrewEngine, Event, Worker
from pipelines.ray_cluster import Cluster
from pipelines.scoring import Chunk, Job, Scored

#: Seconds between two looks at whether the user wants to stop, until a wait for actors is told,
#: and between two looks at whether the cluster has grown.
_LOOK, _TELL, _GROW = 0.2, 60.0, 30.0

#: Candidates of the sample that are looked for here to find one whose image is sound.
_WITNESSES = 8

#: Refusals that may mean that a machine has lost its way to the store.
_AWAY = ("missing", "unreadable")


class Actor:
    """What runs in a Ray actor: a place of work, once it is sure that it may serve this driver."""

    def __init__(self) -> None:
        self._place: Place | None = None
        self._host = socket.gethostname()
        self._witness: Candidate | None = None
        self._store = ""

    def begin(self, code: tuple[str, str], told: bytes, cores: int) -> Fault | None:
        """Get ready.

        Args:
            code: version and fingerprint of the driver's code.
            told: the pickled job, and a candidate whose image the driver found; not looked at
                before the code is known to be the same.
            cores: that this actor may use.
        """
        where = f"the worker on {self._host}"
        mine = own_code()
        if mine != code:
            text = (
                f"{where} runs natadv-curate {mine[0]} ({mine[1][:8]}), this machine {code[0]} "
                f"({code[1][:8]}): install the same on every machine of the cluster"
            )
            return Fault("UsageError", text, "")
        try:
            job, self._witness = pickle.loads(told)
            self._store = job.store
            self._check_store()
            self._place = Place(job, cores)
        except Exception as error:
            return Fault.of(error, where)
        return None

    def score(self, turn: int, chunk: Chunk) -> Scored | Fault | None:
        """See `Place.score`; a chunk that was scored without a way to the store is a fault."""
        assert self._place is not None
        answer = self._place.score(turn, chunk)
        if isinstance(answer, Scored) and any(v.reason in _AWAY for v in answer.verdicts):
            try:
                self._check_store()
            except Exception as error:
                return Fault.of(error)
        return answer

    def stop(self, turn: int) -> None:
        """See `Place.stop`."""
        if self._place is not None:
            self._place.stop(turn)

    def widen(self, told: bytes) -> None:
        """See `Place.widen`."""
        assert self._place is not None
        self._place.widen(pickle.loads(told)[0])

    def _check_store(self) -> None:
        witness = self._witness
        if witness and not open_store(self._store).check(witness.sha256, witness.extension):
            raise UsageError(
                f"{self._host} does not find the images at {self._store}, where this machine does: "
                "share that folder with every machine of the cluster under the same path, or keep "
                "the images in an object store (setting store)"
            )


@dataclass(eq=False)
class _Handle(Worker):
    handle: Any = field(kw_only=True)
    refs: dict[Any, Any] = field(kw_only=True)

    def send(self, turn: int, chunk: Chunk) -> None:
        self.refs[self.handle.score.remote(turn, chunk)] = (self, chunk.number)

    def stop(self, turn: int) -> None:
        self.handle.stop.remote(turn)

    def end(self) -> None:
        import ray

        for ref in [ref for ref, (worker, _) in self.refs.items() if worker is self]:
            del self.refs[ref]
        ray.kill(self.handle)


class RayEngine(CrewEngine):
    """A pool of Ray actors.

    Args:
        job: what to do; on "auto" it is done on the cluster's GPUs, or on its cores where it has
            none.
        address: of the cluster to join; empty for one of this machine's own.
        cores: that one of this machine's own uses.

    Raises:
        UsageError: Ray does not hand out such a device.
    """

    def __init__(self, job: Job, address: str, cores: int) -> None:
        super().__init__(job)
        if job.device not in ("auto", "cpu", "cuda"):
            raise UsageError(
                f"device {job.device!r} with --engine ray: Ray itself chooses among GPUs; write "
                "auto, cpu or cuda"
            )
        self._here, self._own_gpus = cores, 0 if job.device == "cpu" else _gpus()
        self._cluster = Cluster(address, cores, self._own_gpus)
        self._witness: Candidate | None = None
        self._refs: dict[Any, tuple[_Handle, int | None]] = {}
        # How many actors there are to be, what each has, and the job as they are told it.
        self._wanted, self._resources, self._told = 0, {"num_cpus": 1}, b""
        self._code = own_code()
        self._grown = self._waiting = 0.0

    @property
    def workers(self) -> int:
        """See `Engine.workers`; a cluster is joined to find out."""
        if self._cluster.address:
            self._join()
        return self._wanted or self._own_gpus or self._here

    def widen(self, job: Job) -> None:
        """See `Engine.widen`."""
        self.job = replace(job, device=self.job.device)
        if not self._cluster.is_joined:
            return
        import ray

        self._told = self._pickled()
        told = []
        for worker in list(self._crew):
            assert isinstance(worker, _Handle)
            if worker.ready:
                told.append(worker.handle.widen.remote(self._told))
            else:
                worker.end()
                self._crew.remove(worker)
        for ref in told:
            try:
                ray.get(ref)
            except ray.exceptions.RayError:
                # It is gone, which the next pass will notice.
                continue

    def close(self) -> None:
        """See `Engine.close`."""
        if self._cluster.is_joined:
            for worker in self._crew:
                worker.end()
        self._crew.clear()
        self._refs.clear()
        self._cluster.leave()

    def _join(self) -> None:
        """Join the cluster, and see what it has.

        Raises:
            UsageError: there is no such cluster, or it has no GPU where one is needed.
        """
        if self._cluster.is_joined:
            return
        self._cluster.join()
        gpus = int(self._cluster.resources().get("GPU", 0))
        if self.job.device == "cuda" and not gpus:
            raise UsageError("device 'cuda': the Ray cluster has no GPU; write auto or cpu")
        if self.job.device != "cpu" and gpus:
            self._resources = {"num_gpus": 1, "num_cpus": self._cluster.cores_a_gpu()}
        self.job = replace(self.job, device="cuda" if "num_gpus" in self._resources else "cpu")
        self._witness = _sound(self.job)
        self._told = self._pickled()
        self._count()

    def _count(self) -> None:
        """How many actors the cluster has room for; it may grow, and never counts as less."""
        found = self._cluster.resources()
        room = found.get("GPU", 0) if "num_gpus" in self._resources else found.get("CPU", 0)
        self._wanted = max(self._wanted, 1, int(room))
        self._grown = time.monotonic()

    def _gather(self) -> None:
        self._join()
        while len(self._crew) < self._wanted:
            self._start()
        self._waiting = time.monotonic()

    def _start(self) -> None:
        import ray

        cores = self._resources["num_cpus"]
        most = hands(self.job.device, cores) + 1
        # Two more calls fit beside the chunks: stop and widen.
        options = {"max_concurrency": most + 2, "max_restarts": 0, "max_task_retries": 0}
        handle: Any = ray.remote(Actor).options(**self._resources, **options).remote()
        worker = _Handle("a Ray worker", most, handle=handle, refs=self._refs)
        self._crew.append(worker)
        self._refs[handle.begin.remote(self._code, self._told, cores)] = (worker, None)

    def _replace(self, worker: Worker) -> bool:
        if self._losses > 3 + self._wanted:
            return False
        self._start()
        return True

    def _listen(self) -> Iterable[Event]:
        import ray

        self._look_around()
        if not self._refs:
            time.sleep(_LOOK)
            return
        if not ray.wait(list(self._refs), num_returns=1, timeout=_LOOK)[0]:
            return
        done, _ = ray.wait(list(self._refs), num_returns=len(self._refs), timeout=0)
        for ref in done:
            if ref not in self._refs:
                continue
            worker, number = self._refs.pop(ref)
            try:
                answer = ray.get(ref)
            except ray.exceptions.RayTaskError as error:
                answer = Fault.of(error)
            except ray.exceptions.RayError as error:
                yield Event(worker, gone=_how_it_ended(worker, error))
                continue
            yield Event(worker, number, answer)

    def _look_around(self) -> None:
        now = time.monotonic()
        if now - self._grown > _GROW:
            self._count()
            while len(self._crew) < self._wanted:
                self._start()
        if any(worker.ready for worker in self._crew):
            self._waiting = now
        elif now - self._waiting > _TELL:
            say(f"waiting for {len(self._crew)} Ray workers to find room and to start")
            self._waiting = float("inf")

    def _forget(self) -> None:
        super()._forget()
        for ref in [ref for ref, (_, number) in self._refs.items() if number is not None]:
            del self._refs[ref]

    def _pickled(self) -> bytes:
        return pickle.dumps((self.job, self._witness))


def own_code() -> tuple[str, str]:
    """Version and fingerprint of the code of this machine."""
    return __version__, code_fingerprint()


def _how_it_ended(worker: Worker, error: Exception) -> str:
    """Why an actor is gone, in one line; what Ray tells has many, the last one of an error."""
    if worker.ready:
        return f"{worker.name} has ended ({type(error).__name__})"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = next((line for line in reversed(lines) if "Error" in line), lines[0] if lines else "")
    return f"{worker.name} does not start: {cause[:200]}"


def _sound(job: Job) -> Candidate | None:
    """A candidate whose image is found from here, so that every worker must find it too."""
    store = open_store(job.store)
    found = (c for c in job.sample[:_WITNESSES] if store.check(c.sha256, c.extension))
    return next(found, None)


def _gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0
