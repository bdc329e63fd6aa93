"""Filter: score, judge, cap. One run is one ensemble, one rule and one set of candidates.

A run's id is the hash of its settings and its candidates, so the same command goes on with a run
that was cut off, and returns one that has ended. A chunk passes the whole cascade; its scores
become one synced and renamed Parquet part; then one transaction names the part and records the
verdicts. Readers use only named parts. Runs that differ in caps alone share their scores.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import RowMapping

from curate.catalog import judging, twins
from curate.catalog.tables import now
from curate.choices import QUALITY_FLAGS
from curate.errors import ImageRefused, Interrupted, UsageError
from curate.files import (
    canonical_json,
    csv_text,
    make_folder,
    remove_leftovers,
    sha256_bytes,
    sha256_file,
    write_bytes,
    write_json,
)
from curate.filtration.caps import Survivor, shortlist
from curate.filtration.rules import make_rule
from curate.progress import progress, say, stop_on_interrupt
from pipelines.engines import run_here, usable_cores
from pipelines.provenance import made_by
from pipelines.quality import Flags, candidate_flags, measure_missing, measure_some
from pipelines.runs import finished_run, scores_path, shortlist_flags, shortlist_text
from pipelines.workspace import Workspace, check_label_space

if TYPE_CHECKING:
    from curate.filtration.terms import ChunkResult, Photo, Plan, Verdict

#: Raise it when the same settings would give other scores.
_SCORING = 1

#: Candidates in a chunk: at most this many, and fewer where that keeps every core busy.
_LARGEST_CHUNK, _SMALLEST_CHUNK, _CHUNKS_WANTED = 128, 16, 32

#: Failures that end when the image is put back into the store.
_CURABLE = ("missing", "altered", "unreadable")


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


def run_filter(workspace: Workspace, classes: Sequence[str] = ()) -> dict[str, Any]:
    """Filter a workspace's candidates with the ensemble and the rule of its settings.

    Args:
        workspace: what to filter.
        classes: class arguments as in the contract, files relative to the current folder; none
            selects every class. They select candidates only: softmax and argmax run over the
            workspace's whole label space.

    Returns:
        The JSON summary of the contract.

    Raises:
        UsageError: an unknown class, model or rule; weights that do not fit the label space; no
            candidates; candidates of another label space.
        BusyError: another filter is at work here.
        Interrupted: stopped by the user; the same command goes on.
    """
    with workspace.held("filter"):
        run = begin_run(workspace, classes)
        if run.finished_summary is not None:
            say(f"run {run.id} has ended before: same settings, same candidates")
            newest = finished_run(workspace)["id"]
            if newest != run.id:
                say(f"other commands take the newest run, {newest}; for this one: --run {run.id}")
            return run.finished_summary
        return run.work()


def begin_run(workspace: Workspace, classes: Sequence[str] = ()) -> FilterRun:
    """Everything of `run_filter` that comes before the first image: candidates, models, plan.

    The caller holds the workspace's stage "filter".
    """
    check_label_space(workspace)
    settings = workspace.settings.filter
    rule = make_rule(settings.rule, settings.threshold)
    wnids = workspace.label_space.select(classes, Path.cwd()) if classes else None
    candidates = _Candidates(workspace, wnids)
    plan, scoring = _plan(workspace, rule)
    return FilterRun(workspace, candidates, plan, scoring)


class _Candidates:
    """The candidates of a run, sorted by key, and the hash of the set."""

    def __init__(self, workspace: Workspace, wnids: Sequence[str] | None) -> None:
        self.ids: list[int] = []
        # Each is counted once, under the first of its flags that is not wanted.
        set_aside: Counter[str] = Counter()
        digest = hashlib.sha256()
        settings = workspace.settings.filter
        by_quality = bool(settings.without) or settings.cap_order == "quality"
        if by_quality:
            measure_missing(workspace)
        with workspace.catalogue.read() as connection:
            flags: Flags = candidate_flags(workspace, connection) if by_quality else {}
            for key, number in judging.candidate_keys(connection, wnids):
                unwanted = [flag for flag in flags.get(number, ()) if flag in settings.without]
                if unwanted:
                    set_aside[unwanted[0]] += 1
                    continue
                self.ids.append(number)
                digest.update(key.encode())
        self._flags = flags
        self.set_aside = {flag: set_aside[flag] for flag in QUALITY_FLAGS if set_aside[flag]}
        if not self.ids and set_aside:
            raise UsageError(f"all {set_aside.total()} candidates have a flag that is left out")
        if not self.ids:
            what = "of these classes " if wnids is not None else ""
            with workspace.catalogue.read() as connection:
                dropped = twins.count_dropped(connection)
            told = f"left: curate dedup has dropped {dropped:,}" if dropped else "yet"
            raise UsageError(f"there are no candidates {what}{told}; begin with: curate collect")
        self.set_hash = digest.hexdigest()
        self._chunk = settings.chunk or self._suitable_chunk()

    def _suitable_chunk(self) -> int:
        size = -(-len(self.ids) // _CHUNKS_WANTED)
        return min(_LARGEST_CHUNK, max(_SMALLEST_CHUNK, -(-size // 8) * 8))

    @property
    def chunk_size(self) -> int:
        return self._chunk

    def arrival_hash(self) -> str:
        """The hash of the order in which the candidates arrived."""
        digest = hashlib.sha256()
        for number in sorted(range(len(self.ids)), key=self.ids.__getitem__):
            digest.update(f"{number} ".encode())
        return digest.hexdigest()

    def flagged_hash(self) -> str:
        """The hash of which candidates have a quality flag."""
        digest = hashlib.sha256()
        for place, number in enumerate(self.ids):
            if self.is_flagged(number):
                digest.update(f"{place} ".encode())
        return digest.hexdigest()

    def is_flagged(self, number: int) -> bool:
        """Whether a candidate has a quality flag; known for the order `quality`."""
        return number in self._flags

    def chunks(self) -> Iterator[Chunk]:
        for number, start in enumerate(range(0, len(self.ids), self._chunk)):
            yield Chunk(number, self.ids[start : start + self._chunk])


def _plan(workspace: Workspace, rule: Any) -> tuple[Plan, dict[str, Any]]:
    """How to compute, and everything that decides what comes out."""
    from curate.filtration.plan import make_plan
    from curate.models.checkpoint import rooted
    from curate.models.ensemble import Ensemble
    from curate.models.runtime import resolve_device, tune_allocator

    settings = workspace.settings.filter
    space = workspace.label_space
    device = str(resolve_device(settings.device))
    tune_allocator()
    ensemble = Ensemble([rooted(name, workspace.root) for name in settings.models], space)
    plan = make_plan(
        ensemble,
        space,
        rule,
        views=settings.views,
        device=device,
        complete=settings.complete,
        keep_logits=settings.keep_logits,
    )
    scoring = {
        "models": ensemble.record(),
        "label_space": {
            "name": space.name,
            "classes": len(space),
            "fingerprint": space.fingerprint,
        },
        "rule": settings.rule,
        "threshold": settings.threshold,
        "views": settings.views,
        "recipes": [asdict(recipe) for recipe in plan.recipes],
        "order": list(plan.order),
        "complete": settings.complete,
        "keep_logits": settings.keep_logits,
    }
    return plan, scoring


class FilterRun:
    """A run that is ready to work.

    Attributes:
        id: the hash of what decides its result.
        plan: how it computes.
        finished_summary: its summary if it has ended before and nothing is lost, else None.
    """

    def __init__(
        self,
        workspace: Workspace,
        candidates: _Candidates,
        plan: Plan,
        scoring: dict[str, Any],
    ) -> None:
        self.workspace, self.candidates, self.plan = workspace, candidates, plan
        self.targets = {c.wnid: n for n, c in enumerate(workspace.label_space.classes)}
        settings = workspace.settings.filter
        self.made_by = made_by(str(plan.classifiers[0].device), plan.forwards[0].batch_size)
        self.record = scoring | {
            "cap": settings.cap,
            "cap_order": settings.cap_order,
            "seed": settings.seed,
            "candidates": len(candidates.ids),
            "set": candidates.set_hash,
            "chunk": candidates.chunk_size,
        }
        without = {"without": sorted(settings.without), "set_aside": candidates.set_aside}
        if settings.without:
            self.record |= without
        # Versions of libraries may differ between two starts of one run; what decides may not.
        decides = scoring | {
            "models": [_without(model, "libraries") for model in scoring["models"]],
            "set": candidates.set_hash,
            "chunk": candidates.chunk_size,
            "scoring": _SCORING,
        }
        self.scoring = sha256_bytes(canonical_json(decides))[:12]
        caps = [self.scoring, settings.cap, settings.cap_order, settings.seed]
        if settings.cap_order == "arrival":
            caps.append(candidates.arrival_hash())
        if settings.cap_order == "quality":
            caps.append(candidates.flagged_hash())
        if settings.without:
            caps.append(without)
        self.id = sha256_bytes(canonical_json(caps))[:12]
        self.folder = workspace.run_folder(self.id)
        self.parts_folder = self.folder / "parts"
        with workspace.catalogue.read() as connection:
            self._row = judging.run(connection, self.id)
        self._earlier_seconds = 0.0
        self.finished_summary: dict[str, Any] | None = None
        if self._row is not None and self._row["state"] == "finished" and self._whole(self._row):
            self.finished_summary = dict(self._row["summary"])
            self._remove_parts()

    def work(self) -> dict[str, Any]:
        """Score what is not scored yet, cap, and return the summary.

        Raises:
            Interrupted: stopped by the user; the same command goes on.
        """
        started = time.monotonic()
        make_folder(self.folder)
        remove_leftovers(self.folder)
        donor = self._donor()
        if donor is not None:
            say(f"the scores of run {donor['id']} serve: only caps differ")
            self._adopt(donor)
        else:
            self._score_all()
        return self._finish(started)

    def load(self, chunk: Chunk) -> tuple[list[judging.Candidate], list[Photo | ImageRefused]]:
        """A chunk's candidates, and their decoded photos or why there is none."""
        from curate.filtration.plan import prepare

        limits = self.workspace.settings.images
        with self.workspace.catalogue.read() as connection:
            candidates = judging.candidates_by_id(connection, chunk.ids)
        photos: list[Photo | ImageRefused] = []
        for candidate in candidates:
            try:
                data = self.workspace.store.read(candidate.sha256, candidate.extension)
                photos.append(prepare(data, self.plan, limits))
            except ImageRefused as refusal:
                photos.append(refusal)
        return candidates, photos

    def _whole(self, row: RowMapping) -> bool:
        """Whether a finished run's scores are there, and none of its failures has been cured."""
        scores = scores_path(self.workspace, row)
        if not scores.is_file() or sha256_file(scores) != row["summary"]["scores_sha256"]:
            say(f"the scores of run {row['id']} are missing or altered; scoring again")
            return False
        if cured := self._cured(row["id"]):
            say(f"{len(cured)} failed candidates of run {row['id']} can be scored by now")
            return False
        return True

    def _cured(self, run_id: str) -> list[int]:
        """The ids of failed candidates whose images are sound by now."""
        with self.workspace.catalogue.read() as connection:
            failed = judging.failures(connection, run_id)
        return [
            row["candidate_id"]
            for row in failed
            if row["reason"] in _CURABLE
            and self.workspace.store.holds(row["sha256"], row["extension"])
        ]

    def _donor(self) -> RowMapping | None:
        with self.workspace.catalogue.read() as connection:
            donor = judging.run_with_scores(connection, self.scoring)
        if donor is None or donor["id"] == self.id or not self._whole(donor):
            return None
        return donor

    def _begin(self, scores_run: str) -> None:
        """Record that the run has begun, and whose scores it uses."""
        with self.workspace.catalogue.write() as connection:
            if self._row is None:
                judging.start_run(
                    connection,
                    {
                        "id": self.id,
                        "scoring": self.scoring,
                        "scores_run": scores_run,
                        "rule": self.record["rule"],
                        "state": "running",
                        "settings": _settings_record(self.workspace, self.record),
                        "record": self.record,
                        "started": now(),
                    },
                )
                return
            if self._row["state"] == "finished":
                judging.reopen_run(connection, self.id)
            if self._row["scores_run"] != scores_run:
                judging.forget_verdicts(connection, self.id)
                judging.update_run(connection, self.id, {"scores_run": scores_run})

    def _adopt(self, donor: RowMapping) -> None:
        self._begin(donor["id"])
        with self.workspace.catalogue.write() as connection:
            judging.forget_verdicts(connection, self.id)
            judging.copy_verdicts(connection, donor["id"], self.id)
        self._remove_parts()

    def _score_all(self) -> None:
        was_finished = self._row is not None and self._row["state"] == "finished"
        owned = self._row is not None and self._row["scores_run"] == self.id
        make_folder(self.parts_folder)
        if was_finished and owned:
            self._split()
        cured = set(self._cured(self.id)) if was_finished else set()
        self._begin(self.id)
        workers = usable_cores() if self.made_by["device"] == "cpu" else 1
        done = self._sound_parts(cured, workers)
        chunks = [c for c in self.candidates.chunks() if c.number not in done]
        total = len(self.candidates.ids)
        left = sum(len(chunk.ids) for chunk in chunks)
        if done and left:
            say(f"run {self.id} goes on: {total - left} of {total} candidates are scored")
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

    def _split(self) -> None:
        """Make the parts of a finished run anew from its merged scores, where these are whole."""
        from curate.filtration.scores import split_scores

        scores = self.folder / "scores.parquet"
        summary = self._row["summary"] if self._row else {}
        if not scores.is_file() or sha256_file(scores) != summary["scores_sha256"]:
            return
        with self.workspace.catalogue.read() as connection:
            named = judging.run_parts(connection, self.id)
        split_scores(scores, [(self.parts_folder / p["file"], p["rows"]) for p in named])

    def _sound_parts(self, cured: set[int], workers: int) -> set[int]:
        """The named parts; one whose file is gone or altered, or that holds a candidate which has
        been cured, is forgotten and made again."""
        ids = {chunk.number: chunk.ids for chunk in self.candidates.chunks()}
        with self.workspace.catalogue.read() as connection:
            named = judging.run_parts(connection, self.id)
        sound: dict[int, str] = {}
        for part in named:
            path = self.parts_folder / part["file"]
            whole = path.is_file() and sha256_file(path) == part["sha256"]
            if whole and cured.isdisjoint(ids[part["number"]]):
                sound[part["number"]] = part["file"]
                self._earlier_seconds += part["seconds"] / workers
        broken = [part["number"] for part in named if part["number"] not in sound]
        if broken:
            say(f"{len(broken)} parts of run {self.id} are scored again")
            with self.workspace.catalogue.write() as connection:
                for number in broken:
                    judging.forget_part(connection, self.id, number, ids[number])
        for path in self.parts_folder.iterdir():
            if path.name not in sound.values():
                path.unlink()
        return set(sound)

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
            "made_by": self.made_by,
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

    def _finish(self, started: float) -> dict[str, Any]:
        with self.workspace.catalogue.read() as connection:
            row = judging.run(connection, self.id)
            assert row is not None
            named = judging.run_parts(connection, row["scores_run"])
            survivors = judging.survivors(connection, self.id)
            counts = judging.verdict_counts(connection, self.id)
            failed = judging.failures(connection, self.id)
        record = self.record | {"made_by": _distinct(part["made_by"] for part in named)}
        if row["scores_run"] == self.id:
            self._merge(named, record)
        listed = self._shortlisted(survivors)
        ended = {o: sum(c for p, _, c in counts if p == o) for o in ("survivor", "failed")}
        total = len(self.candidates.ids)
        summary = {
            "run": self.id,
            "candidates": total,
            "set_aside": self.candidates.set_aside,
            "removed": {r: c for o, r, c in counts if o == "removed" and r},
            "survivors": ended["survivor"],
            "shortlisted": len(listed),
            "capped": ended["survivor"] - len(listed),
            "failed": ended["failed"],
            "forwards": sum(part["forwards"] for part in named),
            "forwards_naive": total * len(self.plan.classifiers) * 10,
            "seconds": round(self._earlier_seconds + time.monotonic() - started, 3),
            "scores_run": row["scores_run"],
            "scores_sha256": sha256_file(scores_path(self.workspace, row)),
        }
        if failed:
            columns = ("candidate", "sha256", "wnid", "reason")
            cells = [[f["key"], *(f[c] for c in columns[1:])] for f in failed]
            write_bytes(self.folder / "failed.csv", csv_text(columns, cells).encode())
            summary["failed_list"] = f"runs/{self.id}/failed.csv"
        else:
            (self.folder / "failed.csv").unlink(missing_ok=True)
        places = [survivor.arrival for survivor in listed]
        with self.workspace.catalogue.read() as connection:
            files = twins.stored_files(connection, places)
        # People shall see the flags of what stands on the shortlist.
        measure_some(self.workspace, sorted({sha256 for sha256, _ in files.values()}))
        with self.workspace.catalogue.write() as connection:
            judging.set_places(connection, self.id, places)
            rows = judging.shortlist(connection, self.id)
            flags = shortlist_flags(self.workspace, rows)
            text = shortlist_text(rows, self.workspace.label_space, flags, "csv")
            write_bytes(self.folder / "shortlist.csv", text.encode())
            write_json(self.folder / "run.json", {"run": self.id, **record})
            judging.update_run(
                connection,
                self.id,
                {"state": "finished", "summary": summary, "record": record, "finished": now()},
            )
        self._remove_parts()
        return summary

    def _merge(self, named: Sequence[RowMapping], record: dict[str, Any]) -> None:
        from curate.filtration.scores import merge_parts

        about = {"curate": canonical_json({"scoring": self.scoring, **_uncapped(record)}).decode()}
        paths = [self.parts_folder / part["file"] for part in named]
        merge_parts(paths, self.folder / "scores.parquet", about)

    def _shortlisted(self, survivors: Sequence[RowMapping]) -> list[Survivor]:
        found = [
            Survivor(
                s["key"],
                s["wnid"],
                s["predicted_wnid"],
                s["confidence"],
                arrival=s["candidate_id"],
                flagged=self.candidates.is_flagged(s["candidate_id"]),
            )
            for s in survivors
        ]
        settings = self.workspace.settings.filter
        return shortlist(found, settings.cap, settings.cap_order, settings.seed)

    def _remove_parts(self) -> None:
        """The parts of a run that has ended are in its merged scores."""
        if self.parts_folder.is_dir():
            for path in self.parts_folder.iterdir():
                path.unlink()
            self.parts_folder.rmdir()


def _without(mapping: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in names}


def _uncapped(record: Mapping[str, Any]) -> dict[str, Any]:
    """What made the scores: caps have no part in it, so that runs may share them."""
    return _without(record, "cap", "cap_order", "seed", "without", "set_aside")


def _distinct(records: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each of the records once, in an order of its own."""
    return [value for _, value in sorted({canonical_json(r): r for r in records}.items())]


def _settings_record(workspace: Workspace, record: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a run shows: no secret, and no folder of this machine."""
    shown = workspace.settings.filter.model_dump(mode="json")
    return {
        "label_space": record["label_space"]["name"],
        "filter": shown | {"models": [model["name"] for model in record["models"]]},
    }
