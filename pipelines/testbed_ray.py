"""A testbed run on Ray: each actor passes one part at a time through a few models.

What travels is small: which part, and what models said of it. Actors read the images, and keep what
is finished, under the paths that this machine has for them.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.files import printable, sha256_file, write_bytes
from curate.progress import Stop, progress
from curate.testbed.predictions import Predictions
from curate.testbed.setting import Part
from pipelines.bench import Fault
from pipelines.corruption_forward import Clock
from pipelines.ray_crew import RayActor, RayCrew
from pipelines.testbed_models import Models
from pipelines.testbed_work import Run, Store
from pipelines.threads import usable_cores

# A file of the store by which another machine knows it.
_MARK = "store"


@dataclass(frozen=True)
class Work:
    """What actors must know.

    Attributes:
        parts: of all settings, with absolute paths.
        names: of models of the zoo.
        files: Python files with models of the user's, as absolute paths.
        store: an absolute path.
        seed: of corruptions and attacks.
        device: "cuda" or "cpu"; "auto" until a cluster is joined.
        there: files that every machine must find under the same path, and their SHA-256; "" for
            those of any content.
    """

    parts: Sequence[Part]
    names: Sequence[str]
    files: Sequence[Path]
    store: Path
    seed: int
    device: str
    there: Sequence[tuple[Path, str]]


@dataclass(frozen=True)
class Unit:
    """What an actor is handed at a time.

    Attributes:
        number: among all of the run.
        names: models that see the same pictures, a few.
        place: of a part among those that models pass.
    """

    number: int
    names: tuple[str, ...]
    place: int


@dataclass(frozen=True)
class Passed:
    """What came of a unit.

    Attributes:
        said: by each model.
        content: see `Run.contents`.
        records: of each model.
        computed, kept, clock, seconds: as `Run` has them, of this unit alone.
    """

    said: Mapping[str, Predictions]
    content: str
    records: Mapping[str, dict[str, Any]]
    computed: int
    kept: int
    clock: tuple[float, float, int]
    seconds: float


class Actor(RayActor):
    """A testbed run in a Ray actor, which does what it is handed."""

    def __init__(self) -> None:
        super().__init__()
        self._run: Run | None = None
        self._device = ""
        self._stop, self._turn = Stop(), threading.Lock()

    def open(self, told: Work, cores: int) -> None:
        """See `RayActor.open`."""
        for path, digest in told.there:
            if not path.is_file() or (digest and sha256_file(path) != digest):
                raise UsageError(
                    f"{self.host} does not find {printable(path)}, where this machine does: share "
                    "it with every machine of the cluster under the same path"
                )
        models = Models(told.names, told.files, told.device)
        self._run = Run(told.parts, models, Store(told.store), told.seed, self._stop, cores=cores)
        self._device = told.device

    def score(self, turn: int, unit: Unit) -> Passed | Fault | None:
        """Pass a unit, when the one before is done; None where a stop came before its end."""
        from curate.models.memory import device_errors

        assert self._run is not None
        with self._turn:
            if self._stop.requested:
                return None
            try:
                with device_errors(self._device):
                    return passed(self._run, unit)
            except Exception as error:
                return Fault.of(error, f"the worker on {self.host}")

    def stop(self, turn: int) -> None:
        """End after the batch in hand: a run has one pass."""
        self._stop.request()


class Crew(RayCrew[Work, Unit, Passed]):
    """A pool of Ray actors that pass parts through models; see `RayCrew`."""

    actor = Actor

    def told(self) -> Work:
        """See `RayCrew.told`."""
        self.job = replace(self.job, device=self.device)
        return self.job

    def hands(self, cores: int) -> int:
        """See `RayCrew.hands`; the threads of one unit use all cores."""
        return 1


def passed(run: Run, unit: Unit) -> Passed | None:
    """Pass a unit for whoever drives the run; None where a stop was requested before its end."""
    before = run.computed, run.kept, run.seconds
    run.clock = Clock()
    run.take(unit.names)
    if not run.measure(unit.names, [unit.place]):
        return None
    return Passed(
        {name: run.found.pop((name, unit.place)) for name in unit.names},
        run.contents[unit.place],
        {name: run.records[name] for name in unit.names},
        run.computed - before[0],
        run.kept - before[1],
        (run.clock.running, run.clock.seconds, run.clock.passes),
        run.seconds - before[2],
    )


def accept(run: Run, unit: Unit, told: Passed) -> None:
    """Take what another process gave for a unit."""
    for name in unit.names:
        run.found[name, unit.place] = told.said[name]
        run.records[name] = told.records[name]
    run.contents[unit.place] = told.content
    run.computed += told.computed
    run.kept += told.kept
    run.seconds += told.seconds
    running, seconds, passes = told.clock
    run.clock.running += running
    run.clock.seconds += seconds
    run.clock.passes += passes


def must_be_there(
    parts: Sequence[Part], files: Sequence[Path], store: Path
) -> list[tuple[Path, str]]:
    """What every machine must find: see `Work.there`.

    Args:
        parts: an image of each folder is looked for.
        files: Python files with models.
        store: it gets a file by which it is known.

    Raises:
        StorageError: the store cannot be written to.
    """
    mark = store / _MARK
    if not mark.exists():
        write_bytes(mark, f"{secrets.token_hex(16)}\n".encode())
    images = {part.layout.root: part.layout.items[0].path for part in parts}
    return [
        *((path, sha256_file(path)) for path in (mark, *files)),
        *((path, "") for path in images.values() if path.is_file()),
    ]


def finish(run: Run, told: Work, address: str, stop: Stop) -> Generator[str, None, None]:
    """Pass everything on a Ray cluster, and tell each model that is whole; see `Run.finish`.

    Args:
        run: whose models were taken.
        told: to the actors.
        address: of the cluster to join; empty for one of this machine's own.
        stop: asks to stop.

    Raises:
        MissingExtraError: Ray is not installed.
        UsageError: no such cluster, or a machine of it that lacks the images, the store or code.
        DeviceError: too many workers were lost.
    """
    # Some models after the others: a worker holds a few at a time.
    pairs = [(names, place) for names in run.groups() for place in range(len(run.passed))]
    units = [Unit(number, *pair) for number, pair in enumerate(pairs)]
    images = [len(part.layout) for part in run.passed]
    total = sum(len(unit.names) * images[unit.place] for unit in units)
    crew = Crew(
        told,
        told.device,
        address,
        usable_cores(),
        named="--ray-address",
        command="curate robustness run",
    )
    with closing(crew), progress("testbed", total) as bar:
        for unit, found in crew.run(units, stop):
            accept(run, unit, found)
            run.at = run.passed[unit.place].name
            bar.advance(len(unit.names) * images[unit.place])
            if all((unit.names[0], place) in run.found for place in range(len(run.passed))):
                yield from unit.names
