"""A run of the filter: what it is known by, what is scored already, and how it ends.

A chunk passes the whole cascade; its scores become one synced and renamed Parquet part; then one
transaction names the part and records the verdicts. Readers use only named parts. Runs that differ
in caps alone share their scores.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import RowMapping

from curate.catalog import judging
from curate.catalog.tables import now
from curate.errors import Interrupted
from curate.files import (
    canonical_json,
    make_folder,
    remove_leftovers,
    sha256_bytes,
    sha256_file,
    write_bytes,
)
from curate.progress import Stop, progress, say, stop_on_interrupt
from pipelines.candidate_set import CandidateSet
from pipelines.engines import Engine
from pipelines.filter_end import end_run
from pipelines.runs import scores_path
from pipelines.scoring import Chunk, Job, Scored, Scorer
from pipelines.workspace import Workspace

if TYPE_CHECKING:
    from curate.filtration.terms import Verdict

#: Raise it when the same settings would give other scores.
_SCORING = 2

#: Failures that end when the image is put back into the store.
_CURABLE = ("missing", "altered", "unreadable")


class FilterRun:
    """A run that is ready to work.

    Attributes:
        id: the hash of what decides its result.
        scorer: how it computes here.
        finished_summary: its summary if it has ended before and nothing is lost, else None.
    """

    def __init__(
        self,
        workspace: Workspace,
        candidates: CandidateSet,
        job: Job,
        scorer: Scorer,
        engine: Engine,
    ) -> None:
        self.workspace, self.candidates = workspace, candidates
        self.job, self.scorer, self.engine = job, scorer, engine
        self.scoring, self.id, self.record = identity(workspace, candidates, scorer)
        self.folder = workspace.run_folder(self.id)
        self.parts_folder = self.folder / "parts"
        with workspace.catalogue.read() as connection:
            self._row = judging.run(connection, self.id)
        if self._row is not None and self._row["widened"]:
            self.job = replace(job, widened=self._row["widened"])
            engine.widen(self.job)
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
        summary = end_run(self, self._earlier_seconds, started)
        self._remove_parts()
        return summary

    def chunk(self, number: int) -> Chunk:
        """One chunk with its candidates as the catalogue has them."""
        with self.workspace.catalogue.read() as connection:
            found = judging.candidates_by_id(connection, self.candidates.span(number))
        return Chunk(number, tuple(found))

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
            and self.workspace.store.check(row["sha256"], row["extension"])
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
        with stop_on_interrupt() as stop:
            while not self._pass(cured, stop):
                cured = set()
                self._widen()

    def _pass(self, cured: set[int], stop: Stop) -> bool:
        """Score what is not scored yet.

        Returns:
            False where low precision proved to be further off than its margins.
        """
        done = self._sound_parts(cured)
        spans = [(number, ids) for number, ids in self.candidates.spans() if number not in done]
        total = len(self.candidates.ids)
        left = sum(len(ids) for _, ids in spans)
        if done and left:
            say(f"run {self.id} goes on: {total - left} of {total} candidates are scored")
        chunks = (self.chunk(number) for number, _ in spans)
        with progress("filter", total, done=total - left) as bar:
            for chunk, scored in self.engine.run(chunks, stop):
                if scored.counts.flips:
                    return False
                self._name_part(chunk, scored)
                bar.advance(len(chunk.candidates))
                left -= len(chunk.candidates)
        if left:
            raise Interrupted(
                f"run {self.id} stopped after {total - left} of {total} candidates; "
                "the same command goes on"
            )
        return True

    def _widen(self) -> None:
        """Take back what was decided under margins that proved too narrow, and widen them."""
        self.job = replace(self.job, widened=self.job.widened + 1)
        say(
            f"low precision and fp32 disagree on a view of run {self.id}: its margins are doubled, "
            "and all is scored again"
        )
        with self.workspace.catalogue.write() as connection:
            judging.forget_parts(connection, self.id)
            judging.update_run(connection, self.id, {"widened": self.job.widened})
        self.engine.widen(self.job)

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

    def _sound_parts(self, cured: set[int]) -> set[int]:
        """The named parts; one whose file is gone or altered, or that holds a candidate which has
        been cured, is forgotten and made again."""
        ids = dict(self.candidates.spans())
        with self.workspace.catalogue.read() as connection:
            named = judging.run_parts(connection, self.id)
        sound: dict[int, str] = {}
        self._earlier_seconds = 0.0
        for part in named:
            path = self.parts_folder / part["file"]
            whole = path.is_file() and sha256_file(path) == part["sha256"]
            if whole and cured.isdisjoint(ids[part["number"]]):
                sound[part["number"]] = part["file"]
                self._earlier_seconds += part["seconds"] / self.engine.workers
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

    def _name_part(self, chunk: Chunk, scored: Scored) -> None:
        path = self.parts_folder / f"{chunk.number:06}.parquet"
        write_bytes(path, scored.part)
        part = {
            "run_id": self.id,
            "number": chunk.number,
            "file": path.name,
            "sha256": sha256_bytes(scored.part),
            "rows": scored.rows,
            "candidates": len(chunk.candidates),
            "forwards": scored.forwards,
            "counts": asdict(scored.counts) if scored.counts.quick + scored.counts.again else None,
            "seconds": scored.seconds,
            "made_by": scored.made_by,
        }
        rows = [
            self._verdict_row(candidate, verdict)
            for candidate, verdict in zip(chunk.candidates, scored.verdicts, strict=True)
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

    def _remove_parts(self) -> None:
        """The parts of a run that has ended are in its merged scores."""
        if self.parts_folder.is_dir():
            for path in self.parts_folder.iterdir():
                path.unlink()
            self.parts_folder.rmdir()


def identity(
    workspace: Workspace, candidates: CandidateSet, scorer: Scorer
) -> tuple[str, str, dict[str, Any]]:
    """What a run is known by.

    Backend, precision, device and engine have no part in it: they change no verdict.

    Returns:
        The id of its scores, its own id, and its record.
    """
    settings, space, plan = workspace.settings.filter, workspace.label_space, scorer.outline
    scoring = {
        "models": scorer.ensemble.record(),
        "label_space": {
            "name": space.name,
            "classes": len(space),
            "fingerprint": space.fingerprint,
        },
        **plan.rule.record(),
        "views": settings.views,
        "recipes": [asdict(recipe) for recipe in plan.recipes],
        "order": list(plan.order),
        "complete": settings.complete,
        "keep_logits": settings.keep_logits,
    }
    record = scoring | {
        "cap": settings.cap,
        "cap_order": settings.cap_order,
        "seed": settings.seed,
        "candidates": len(candidates.ids),
        "set": candidates.set_hash,
        "chunk": candidates.chunk_size,
    }
    # Versions of libraries may differ between two starts of one run; what decides may not.
    decides = scoring | {
        "models": [without(model, "libraries") for model in scoring["models"]],
        "set": candidates.set_hash,
        "chunk": candidates.chunk_size,
        "scoring": _SCORING,
    }
    scores_id = sha256_bytes(canonical_json(decides))[:12]
    caps: list[Any] = [scores_id, settings.cap, settings.cap_order, settings.seed]
    if settings.cap_order == "arrival":
        caps.append(candidates.arrival_hash())
    if settings.cap_order == "quality":
        caps.append(candidates.flagged_hash())
    if settings.without:
        left_out = {"without": sorted(settings.without), "set_aside": candidates.set_aside}
        record |= left_out
        caps.append(left_out)
    if settings.control:
        record |= {"control": len(candidates.control)}
        caps.append({"control": settings.control})
    return scores_id, sha256_bytes(canonical_json(caps))[:12], record


def without(mapping: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The mapping but for some of its keys."""
    return {key: value for key, value in mapping.items() if key not in names}


def _settings_record(workspace: Workspace, record: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a run shows: no secret, and no folder of this machine."""
    shown = workspace.settings.filter.model_dump(mode="json")
    return {
        "label_space": record["label_space"]["name"],
        "filter": shown | {"models": [model["name"] for model in record["models"]]},
    }
