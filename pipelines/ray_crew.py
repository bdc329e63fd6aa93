"""A crew of Ray actors, one a GPU or one a core, on one machine or many.

An actor that is lost, with its node or alone, is replaced where the cluster has room, and its
chunks go to whoever is free.
"""

from __future__ import annotations

import pickle
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from curate._version import __version__
from curate.errors import UsageError
from curate.progress import say
from pipelines.bench import Fault, code_fingerprint
from pipelines.crew import Chunk, CrewEngine, Event, Job, Made, Worker
from pipelines.ray_cluster import Cluster

#: Seconds between two looks at whether the user wants to stop, until a wait for actors is told,
#: and between two looks at whether the cluster has grown.
_LOOK, _TELL, _GROW = 0.2, 60.0, 30.0


class RayActor(ABC):
    """What runs in a Ray actor, once it is sure that it may serve this driver."""

    def __init__(self) -> None:
        self.host = socket.gethostname()

    def begin(self, code: tuple[str, str], told: bytes, cores: int) -> Fault | None:
        """Get ready.

        Args:
            code: version and fingerprint of the driver's code.
            told: pickled, what `open` takes; not looked at before the code is known to be the same.
            cores: that this actor may use.
        """
        where = f"the worker on {self.host}"
        mine = own_code()
        if mine != code:
            text = (
                f"{where} runs natadv-curate {mine[0]} ({mine[1][:8]}), this machine {code[0]} "
                f"({code[1][:8]}): install the same on every machine of the cluster"
            )
            return Fault("UsageError", text, "")
        try:
            self.open(pickle.loads(told), cores)
        except Exception as error:
            return Fault.of(error, where)
        return None

    @abstractmethod
    def open(self, told: Any, cores: int) -> None:
        """Get ready for what the driver told."""

    @abstractmethod
    def score(self, turn: int, chunk: Any) -> Any:
        """Work on a chunk of a pass; gives what is made, a fault, or None where it was stopped."""

    @abstractmethod
    def stop(self, turn: int) -> None:
        """Begin no further chunk of a pass."""


@dataclass(eq=False)
class Handle(Worker[Chunk]):
    """A worker that is a Ray actor."""

    handle: Any = field(kw_only=True)
    refs: dict[Any, Any] = field(kw_only=True)

    def send(self, turn: int, chunk: Chunk) -> None:
        """See `Worker.send`."""
        self.refs[self.handle.score.remote(turn, chunk)] = (self, chunk.number)

    def stop(self, turn: int) -> None:
        """See `Worker.stop`."""
        self.handle.stop.remote(turn)

    def end(self) -> None:
        """See `Worker.end`."""
        import ray

        for ref in [ref for ref, (worker, _) in self.refs.items() if worker is self]:
            del self.refs[ref]
        ray.kill(self.handle)


class RayCrew(CrewEngine[Job, Chunk, Made]):
    """An engine whose workers are Ray actors; its kinds say which, and what these are told.

    Args:
        job: what to do.
        device: "auto", the cluster's GPUs or, where it has none, its cores; "cuda" or "cpu".
        address: of the cluster to join; empty for one of this machine's own.
        cores: that one of this machine's own uses.
        named: what sets the address, for errors.
        command: which command it serves.

    Raises:
        UsageError: Ray does not hand out such a device.
    """

    #: What runs in an actor.
    actor: type[RayActor]

    def __init__(
        self,
        job: Job,
        device: str,
        address: str,
        cores: int,
        *,
        named: str = "filter.ray_address",
        command: str = "curate filter",
    ) -> None:
        super().__init__(job)
        if device not in ("auto", "cpu", "cuda"):
            raise UsageError(
                f"device {device!r} with --engine ray: Ray itself chooses among GPUs; write "
                "auto, cpu or cuda"
            )
        self._here, self._own_gpus = cores, 0 if device == "cpu" else _gpus()
        self._cluster = Cluster(address, cores, self._own_gpus, named, command)
        #: Of the actors; "auto" until the cluster is joined.
        self.device = device
        self._refs: dict[Any, tuple[Handle[Chunk], int | None]] = {}
        # How many actors there are to be, what each has, and what they are told.
        self._wanted, self._resources, self._told = 0, {"num_cpus": 1}, b""
        self._code = own_code()
        self._grown = self._waiting = 0.0

    @property
    def workers(self) -> int:
        """See `Engine.workers`; a cluster is joined to find out."""
        if self._cluster.address:
            self._join()
        return self._wanted or self._own_gpus or self._here

    @abstractmethod
    def told(self) -> Any:
        """What `RayActor.open` takes, once `device` is known."""

    @abstractmethod
    def hands(self, cores: int) -> int:
        """Chunks that an actor with so many cores works on at one time."""

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
        if self.device == "cuda" and not gpus:
            raise UsageError("device 'cuda': the Ray cluster has no GPU; write auto or cpu")
        if self.device != "cpu" and gpus:
            self._resources = {"num_gpus": 1, "num_cpus": self._cluster.cores_a_gpu()}
        self.device = "cuda" if "num_gpus" in self._resources else "cpu"
        self._told = pickle.dumps(self.told())
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
        most = self.hands(cores) + 1
        # Two more calls fit beside the chunks: to stop, and to change what was told.
        options = {"max_concurrency": most + 2, "max_restarts": 0, "max_task_retries": 0}
        handle: Any = ray.remote(self.actor).options(**self._resources, **options).remote()
        worker: Handle[Chunk] = Handle("a Ray worker", most, handle=handle, refs=self._refs)
        self._crew.append(worker)
        self._refs[handle.begin.remote(self._code, self._told, cores)] = (worker, None)

    def _replace(self, worker: Worker[Chunk]) -> bool:
        if self._losses > 3 + self._wanted:
            return False
        self._start()
        return True

    def _listen(self) -> Iterable[Event[Chunk, Made]]:
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


def own_code() -> tuple[str, str]:
    """Version and fingerprint of the code of this machine."""
    return __version__, code_fingerprint()


def _how_it_ended(worker: Worker[Any], error: Exception) -> str:
    """Why an actor is gone, in one line; what Ray tells has many, the last one of an error."""
    if worker.ready:
        return f"{worker.name} has ended ({type(error).__name__})"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = next((line for line in reversed(lines) if "Error" in line), lines[0] if lines else "")
    return f"{worker.name} does not start: {cause[:200]}"


def _gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0
