"""Filter: score, judge, cap. One run is one ensemble, one rule and one set of candidates.

A run's id is the hash of its settings and its candidates, so the same command goes on with a run
that was cut off, and returns one that has ended. A chunk passes the whole cascade; its scores
become one synced and renamed Parquet part; then one transaction names the part and records the
verdicts. Readers use only named parts.
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from curate._version import __version__
from curate.catalog import judging
from curate.catalog.tables import now
from curate.errors import ImageRefused, Interrupted, UsageError
from curate.files import (
    canonical_json,
    csv_text,
    remove_leftovers,
    sha256_bytes,
    sha256_file,
    storage_errors,
    write_bytes,
    write_json,
)
from curate.filtration.caps import Survivor, shortlist
from curate.filtration.rules import make_rule
from curate.progress import progress, say, stop_on_interrupt
from pipelines.engines import run_here, usable_cores
from pipelines.workspace import Workspace

if TYPE_CHECKING:
    from curate.filtration.cascade import ChunkResult, Photo, Plan, Verdict

#: Raise it when the same settings would give other scores.
_SCORING = 1

#: Candidates in a chunk: at most this many, and fewer where that keeps every core busy.
_LARGEST_CHUNK, _SMALLEST_CHUNK, _CHUNKS_WANTED = 256, 32, 32

_SHORTLIST_COLUMNS = (
    "candidate",
    "sha256",
    "wnid",
    "predicted_wnid",
    "confidence",
    "p_true",
    "borderline",
)


@dataclass(frozen=True)
class Chunk:
    """Candidates that pass the cascade together.

    Attributes:
        number: its place in the run.
        ids: of its candidates, in the order of their keys.
    """

    number: int
    ids: Sequence[int]


@dataclass(frozen=True)
class _Scored:
    candidates: list[judging.Candidate]
    result: ChunkResult
    file: str
    sha256: str
    seconds: float


def run_filter(
    workspace: Workspace,
    classes: Sequence[str] = (),
    *,
    complete: bool = False,
    keep_logits: bool = False,
) -> dict[str, Any]:
    """Filter a workspace's candidates with the ensemble and the rule of its settings.

    Args:
        workspace: what to filter.
        classes: class arguments as in the contract; none selects every class. They select
            candidates only: softmax and argmax run over the workspace's whole label space.
        complete: score every view of every candidate, for other thresholds later.
        keep_logits: keep the full logits beside the scores.

    Returns:
        The JSON summary of the contract.

    Raises:
        UsageError: an unknown class, model or rule; weights that do not fit the label space; no
            candidates.
        BusyError: another filter is at work here.
        Interrupted: stopped by the user; the same command goes on.
    """
    with workspace.held("filter"):
        run = begin_run(workspace, classes, complete=complete, keep_logits=keep_logits)
        if run.finished_summary is not None:
            say(f"run {run.id} has ended before: same settings, same candidates")
            return run.finished_summary
        return run.work()


def begin_run(
    workspace: Workspace,
    classes: Sequence[str] = (),
    *,
    complete: bool = False,
    keep_logits: bool = False,
) -> FilterRun:
    """Everything of `run_filter` that comes before the first image: candidates, models, plan.

    The caller holds the workspace's stage "filter".
    """
    settings = workspace.settings.filter
    rule = make_rule(settings.rule, settings.threshold)
    wnids = workspace.label_space.select(classes, workspace.root) if classes else None
    candidates = _Candidates(workspace, wnids)
    plan, record = _plan(workspace, rule, complete=complete, keep_logits=keep_logits)
    return FilterRun(workspace, candidates, plan, record)


class _Candidates:
    """The candidates of a run, sorted by key, and the hash of the set."""

    def __init__(self, workspace: Workspace, wnids: Sequence[str] | None) -> None:
        self.ids: list[int] = []
        digest = hashlib.sha256()
        arrival = hashlib.sha256()
        with workspace.catalogue.read() as connection:
            for key, number in judging.candidate_keys(connection, wnids):
                self.ids.append(number)
                digest.update(key.encode())
        if not self.ids:
            what = "of these classes " if wnids is not None else ""
            raise UsageError(f"there are no candidates {what}yet; begin with: curate collect")
        for number in sorted(range(len(self.ids)), key=self.ids.__getitem__):
            arrival.update(f"{number} ".encode())
        self.set_hash = digest.hexdigest()
        self.arrival_hash = arrival.hexdigest()

    def chunks(self) -> Iterator[Chunk]:
        size = -(-len(self.ids) // _CHUNKS_WANTED)
        size = min(_LARGEST_CHUNK, max(_SMALLEST_CHUNK, -(-size // 8) * 8))
        for number, start in enumerate(range(0, len(self.ids), size)):
            yield Chunk(number, self.ids[start : start + size])


def _plan(workspace: Workspace, rule: Any, *, complete: bool, keep_logits: bool) -> Any:
    from curate.filtration.plan import make_plan
    from curate.images.decode import DECODER
    from curate.models.ensemble import Ensemble
    from curate.models.runtime import resolve_device, tune_allocator

    settings = workspace.settings.filter
    space = workspace.label_space
    device = str(resolve_device(settings.device))
    tune_allocator()
    ensemble = Ensemble(settings.models, space)
    plan = make_plan(
        ensemble,
        space,
        rule,
        views=settings.views,
        device=device,
        complete=complete,
        keep_logits=keep_logits,
    )
    record = {
        "models": ensemble.record(),
        "label_space": {
            "name": space.name,
            "classes": len(space),
            "fingerprint": space.fingerprint,
        },
        "rule": settings.rule,
        "threshold": settings.threshold,
        "cap": settings.cap,
        "cap_order": settings.cap_order,
        "seed": settings.seed,
        "views": settings.views,
        "recipes": [vars(recipe) for recipe in plan.recipes],
        "order": list(plan.order),
        "complete": complete,
        "keep_logits": keep_logits,
        "made_by": {
            "device": device,
            "dtype": "float32",
            "batch_size": plan.batch_size,
            "decoder": DECODER,
            "python": platform.python_version(),
            "numpy": metadata.version("numpy"),
            "curate": __version__,
        },
    }
    return plan, record


class FilterRun:
    """A run that is ready to work.

    Attributes:
        id: the hash of what decides its result.
        plan: how it computes.
        finished_summary: its summary if it has ended before, else None.
    """

    def __init__(
        self, workspace: Workspace, candidates: _Candidates, plan: Plan, record: dict[str, Any]
    ) -> None:
        self.workspace, self.candidates, self.plan = workspace, candidates, plan
        self.targets = {c.wnid: n for n, c in enumerate(workspace.label_space.classes)}
        # What made a score may differ between two starts of one run; what decides may not.
        decides = {k: v for k, v in record.items() if k != "made_by"} | {
            "models": [
                {k: v for k, v in model.items() if k != "libraries"} for model in record["models"]
            ],
            "scoring": _SCORING,
            "candidates": candidates.set_hash,
        }
        if record["cap_order"] == "arrival":
            decides["arrival"] = candidates.arrival_hash
        self.id = sha256_bytes(canonical_json(decides))[:12]
        self.record = record | {"candidates": len(candidates.ids), "set": candidates.set_hash}
        self.folder = workspace.run_folder(self.id)
        self.parts_folder = self.folder / "parts"
        with workspace.catalogue.read() as connection:
            row = judging.run(connection, self.id)
        self.known = row is not None
        self.has_lost_scores = False
        self.finished_summary = row["summary"] if row and row["state"] == "finished" else None
        if self.finished_summary is not None:
            scores = self.folder / "scores.parquet"
            expected = self.finished_summary["scores_sha256"]
            self.has_lost_scores = not scores.is_file() or sha256_file(scores) != expected
        if self.has_lost_scores:
            self.finished_summary = None

    def work(self) -> dict[str, Any]:
        """Score what is not scored yet, cap, and return the summary.

        Raises:
            Interrupted: stopped by the user; the same command goes on.
        """
        started = time.monotonic()
        with storage_errors(f"the run's folder runs/{self.id}"):
            self.parts_folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.folder)
        if not self.known:
            with self.workspace.catalogue.write() as connection:
                judging.start_run(
                    connection,
                    {
                        "id": self.id,
                        "rule": self.record["rule"],
                        "state": "running",
                        "settings": self.workspace.settings.model_dump(mode="json"),
                        "record": self.record,
                        "started": now(),
                    },
                )
        if self.has_lost_scores:
            say(f"the scores of run {self.id} are missing or altered; scoring again")
            with self.workspace.catalogue.write() as connection:
                judging.reopen_run(connection, self.id)
        done = self._sound_parts()
        chunks = [c for c in self.candidates.chunks() if c.number not in done]
        total = len(self.candidates.ids)
        left = sum(len(chunk.ids) for chunk in chunks)
        if done and left:
            say(f"run {self.id} goes on: {total - left} of {total} candidates are scored")
        workers = usable_cores() if self.record["made_by"]["device"] == "cpu" else 1
        with stop_on_interrupt() as stop, progress("filter", total, done=total - left) as bar:
            for chunk, scored in run_here(chunks, self._score, workers, stop):
                self._name_part(chunk, scored)
                bar.advance(len(chunk.ids))
                left -= len(chunk.ids)
        if left:
            raise Interrupted(
                f"run {self.id} stopped after {total - left} of {total} candidates; "
                "the same command goes on"
            )
        return self._finish(time.monotonic() - started)

    def _sound_parts(self) -> set[int]:
        """The named parts; one whose file is gone or altered is forgotten and made again."""
        with self.workspace.catalogue.read() as connection:
            named = judging.run_parts(connection, self.id)
        sound, broken = set(), []
        for part in named:
            path = self.parts_folder / part["file"]
            whole = path.is_file() and sha256_file(path) == part["sha256"]
            if whole:
                sound.add(part["number"])
            else:
                broken.append(part["number"])
        if broken:
            say(f"{len(broken)} parts of run {self.id} are missing or altered; scoring them again")
            ids = {chunk.number: chunk.ids for chunk in self.candidates.chunks()}
            with self.workspace.catalogue.write() as connection:
                for number in broken:
                    judging.forget_part(connection, self.id, number, ids[number])
        names = {part["file"] for part in named if part["number"] in sound}
        for path in self.parts_folder.iterdir():
            if path.name not in names:
                path.unlink()
        return sound

    def load(self, chunk: Chunk) -> tuple[list[judging.Candidate], list[Photo | ImageRefused]]:
        """A chunk's candidates, and their decoded photos or why there is none."""
        from curate.filtration.plan import prepare

        with self.workspace.catalogue.read() as connection:
            candidates = judging.candidates_by_id(connection, chunk.ids)
        photos: list[Photo | ImageRefused] = []
        for candidate in candidates:
            try:
                data = self.workspace.store.read(candidate.sha256, candidate.extension)
                photos.append(prepare(data, self.plan, self.workspace.settings.images))
            except ImageRefused as refusal:
                photos.append(refusal)
        return candidates, photos

    def _score(self, chunk: Chunk) -> _Scored:
        from curate.filtration.cascade import judge_chunk
        from curate.filtration.scores import write_table
        from curate.models.runtime import bound_threads

        started = time.monotonic()
        candidates, photos = self.load(chunk)
        with bound_threads(1):
            result = judge_chunk(photos, [self.targets[c.wnid] for c in candidates], self.plan)
        keys = [candidate.key for candidate in candidates]
        path = self.parts_folder / f"{chunk.number:06}.parquet"
        write_table(path, result.scores.table(keys, self.workspace.label_space.wnids))
        return _Scored(candidates, result, path.name, sha256_file(path), time.monotonic() - started)

    def _name_part(self, chunk: Chunk, scored: _Scored) -> None:
        part = {
            "run_id": self.id,
            "number": chunk.number,
            "file": scored.file,
            "sha256": scored.sha256,
            "rows": len(scored.result.scores),
            "candidates": len(scored.candidates),
            "forwards": scored.result.forwards,
            "seconds": scored.seconds,
        }
        rows = [
            self._verdict_row(candidate, verdict)
            for candidate, verdict in zip(scored.candidates, scored.result.verdicts, strict=True)
        ]
        with self.workspace.catalogue.write() as connection:
            judging.add_part(connection, part, rows)

    def _verdict_row(self, candidate: judging.Candidate, verdict: Verdict) -> dict[str, Any]:
        wnids = self.workspace.label_space.wnids
        return {
            "run_id": self.id,
            "candidate_id": candidate.id,
            "outcome": verdict.outcome,
            "reason": verdict.reason,
            "model": verdict.model,
            "view": verdict.view,
            "predicted_wnid": None if verdict.predicted is None else wnids[verdict.predicted],
            "confidence": verdict.confidence,
            "p_true": verdict.p_true,
            "borderline": verdict.borderline,
            "place": None,
        }

    def _finish(self, seconds: float) -> dict[str, Any]:
        from curate.filtration.scores import merge_parts

        with self.workspace.catalogue.read() as connection:
            named = judging.run_parts(connection, self.id)
            survivors = judging.survivors(connection, self.id)
            counts = judging.verdict_counts(connection, self.id)
            failed = judging.failures(connection, self.id)
        paths = [self.parts_folder / part["file"] for part in named]
        about = {"curate": canonical_json({"run": self.id, **self.record}).decode()}
        scores = self.folder / "scores.parquet"
        merge_parts(paths, scores, about)
        listed = shortlist(
            [
                Survivor(
                    s["key"], s["wnid"], s["predicted_wnid"], s["confidence"], s["candidate_id"]
                )
                for s in survivors
            ],
            self.record["cap"],
            self.record["cap_order"],
            self.record["seed"],
        )
        ended = {o: sum(c for p, _, c in counts if p == o) for o in ("survivor", "failed")}
        forwards = sum(part["forwards"] for part in named)
        total = len(self.candidates.ids)
        summary = {
            "run": self.id,
            "candidates": total,
            "removed": {r: c for o, r, c in counts if o == "removed" and r},
            "survivors": ended["survivor"],
            "shortlisted": len(listed),
            "capped": ended["survivor"] - len(listed),
            "failed": ended["failed"],
            "forwards": forwards,
            "forwards_naive": total * len(self.plan.classifiers) * 10,
            "seconds": round(seconds, 3),
            "scores_sha256": sha256_file(scores),
        }
        if failed:
            columns = ("candidate", "sha256", "wnid", "reason")
            text = csv_text(columns, [[f["key"], *(f[c] for c in columns[1:])] for f in failed])
            write_bytes(self.folder / "failed.csv", text.encode())
            summary["failed_list"] = f"runs/{self.id}/failed.csv"
        with self.workspace.catalogue.write() as connection:
            judging.set_places(connection, self.id, [s.arrival for s in listed])
            rows = judging.shortlist(connection, self.id)
            write_bytes(self.folder / "shortlist.csv", shortlist_text(rows, "csv").encode())
            write_json(self.folder / "run.json", {"run": self.id, **self.record})
            judging.finish_run(
                connection, self.id, {"state": "finished", "summary": summary, "finished": now()}
            )
        for path in paths:
            path.unlink(missing_ok=True)
        self.parts_folder.rmdir()
        return summary


def read_shortlist(
    workspace: Workspace, run_id: str | None = None
) -> tuple[str, list[judging.Shortlisted]]:
    """The id of a finished run (the newest by default) and its shortlist in review order.

    Raises:
        UsageError: no run has ended, or this one has not.
        UnknownNameError: no run has this id.
    """
    row = finished_run(workspace, run_id)
    with workspace.catalogue.read() as connection:
        return row["id"], judging.shortlist(connection, row["id"])


def shortlist_cells(row: judging.Shortlisted) -> dict[str, Any]:
    """One row of the shortlist in the words of the contract."""
    return {column: getattr(row, column) for column in _SHORTLIST_COLUMNS}


def shortlist_text(rows: Sequence[judging.Shortlisted], form: str) -> str:
    """The shortlist in review order, as CSV or JSON Lines, the same bytes each time.

    Args:
        rows: the shortlist.
        form: "csv" or "jsonl".
    """
    cells = [shortlist_cells(row) for row in rows]
    if form == "jsonl":
        return "".join(canonical_json(row).decode() + "\n" for row in cells)
    return csv_text(
        _SHORTLIST_COLUMNS,
        [row | {"borderline": str(row["borderline"]).lower()} for row in cells],
    )


def finished_run(workspace: Workspace, run_id: str | None = None) -> Any:
    """The row of a finished run: the newest one, or the one named.

    Raises:
        UsageError: there is none, or it has not ended.
        UnknownNameError: no run has this id.
    """
    from curate.errors import UnknownNameError

    with workspace.catalogue.read() as connection:
        if run_id is None:
            row = judging.newest_run(connection)
            if row is None:
                raise UsageError("no run has ended yet; begin with: curate filter")
            return row
        row = judging.run(connection, run_id)
        if row is None:
            ids = [run["id"] for run in judging.all_runs(connection)]
            raise UnknownNameError("run", run_id, ids)
    if row["state"] != "finished":
        raise UsageError(f"run {run_id} has not ended; start its command again to go on")
    return row
