"""The Ray engine: a crew of Ray actors that score, see `ray_crew.py`.

What travels is small: keys of images to the actors, verdicts and scores back. Actors read images
from the store's address themselves.
"""

from __future__ import annotations

import pickle
from dataclasses import replace

from curate.catalog.judging import Candidate
from curate.catalog.store import open_store
from curate.errors import UsageError
from pipelines.bench import Fault, Place, hands
from pipelines.ray_crew import Handle, RayActor, RayCrew
from pipelines.scoring import Chunk, Job, Scored

#: Candidates of the sample that are looked for here to find one whose image is sound.
_WITNESSES = 8

#: Refusals that may mean that a machine has lost its way to the store.
_AWAY = ("missing", "unreadable")


class Actor(RayActor):
    """A place of work in a Ray actor."""

    def __init__(self) -> None:
        super().__init__()
        self._place: Place | None = None
        self._witness: Candidate | None = None
        self._store = ""

    def open(self, told: tuple[Job, Candidate | None], cores: int) -> None:
        """Get ready for a job; beside it stands a candidate whose image the driver found."""
        job, self._witness = told
        self._store = job.store
        self._check_store()
        self._place = Place(job, cores)

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
                f"{self.host} does not find the images at {self._store}, where this machine does: "
                "share that folder with every machine of the cluster under the same path, or keep "
                "the images in an object store (setting store)"
            )


class RayEngine(RayCrew[Job, Chunk, Scored]):
    """A pool of Ray actors that score.

    Args:
        job: what to do, on its device as `RayCrew` takes it.
        address: of the cluster to join; empty for one of this machine's own.
        cores: that one of this machine's own uses.

    Raises:
        UsageError: Ray does not hand out such a device.
    """

    actor = Actor

    def __init__(self, job: Job, address: str, cores: int) -> None:
        super().__init__(job, job.device, address, cores)

    def told(self) -> tuple[Job, Candidate | None]:
        """See `RayCrew.told`."""
        self.job = replace(self.job, device=self.device)
        return self.job, _sound(self.job)

    def hands(self, cores: int) -> int:
        """See `RayCrew.hands`."""
        return hands(self.device, cores)

    def widen(self, job: Job) -> None:
        """See `Engine.widen`."""
        self.job = replace(job, device=self.device)
        if not self._cluster.is_joined:
            return
        import ray

        self._told = pickle.dumps(self.told())
        told = []
        for worker in list(self._crew):
            assert isinstance(worker, Handle)
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


def _sound(job: Job) -> Candidate | None:
    """A candidate whose image is found from here, so that every worker must find it too."""
    store = open_store(job.store)
    found = (c for c in job.sample[:_WITNESSES] if store.check(c.sha256, c.extension))
    return next(found, None)
