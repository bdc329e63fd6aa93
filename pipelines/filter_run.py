"""A run of the filter: what it is known by, what is scored already, and how it ends.

A chunk passes the whole cascade; its scores become one synced and renamed Parquet part; then one
transaction names the part and records the verdicts. Readers use only named parts. Runs that differ
in caps alone share their scores.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import RowMapping

from curate.catalog import judging
from curate.catalog.tables import now
from curate.errors import Interrupted
from curate.files import (
    make_folder,
    remove_leftovers,
    sha256_bytes,
    sha256_file,
    write_bytes,
)
from curate.progress import Stop, progress, say, stop_on_interrupt
from pipelines.candidate_set import CandidateSet
from pipelines.engines import Engine
from pipelines.filter_checks import cured_candidates, judged_by_chunk
from pipelines.filter_end import Reopened, end_run
from pipelines.filter_identity import identity, settings_record
from pipelines.rejudge import Given
from pipelines.runs import scores_path
from pipelines.scoring import Chunk, Job, Scored, Scorer
from pipelines.sharing import Alone, SideBySide, Work, one_at_a_time
from pipelines.workspace import Workspace

if TYPE_CHECKING:
    from curate.filtration.terms import Verdict


class FilterRun:
    """A run that is ready to work.

    Attributes:
        id: the hash of what decides its result.
        scorer: how it computes here.
        given: the scores of an earlier run that it judges anew, if it does.
        finished_summary: its summary if it has ended before and nothing is lost, else None.
    """

    def __init__(
        self,
        workspace: Workspace,
        candidates: CandidateSet,
        job: Job,
        scorer: Scorer,
        engine: Engine,
        given: Given | None = None,
    ) -> None:
        self.workspace, self.candidates = workspace, candidates
        self.job, self.scorer, self.engine, self.given = job, scorer, engine, given
        from_run = given.run_id if given else None
        self.scoring, self.id, self.record = identity(workspace, candidates, scorer, from_run)
        self.folder = workspace.run_folder(self.id)
        self.parts_folder = self.folder / "parts"
        with workspace.catalogue.read() as connection:
            self._row = judging.run(connection, self.id)
        if self._row is not None and self._row["widened"]:
            self.job = replace(job, widened=self._row["widened"])
            engine.widen(self.job)
        self._earlier_seconds = 0.0
        #: Whether another command has widened the margins since this one took them over.
        self._outdated = False
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
        if not self.workspace.catalogue.side_by_side:
            remove_leftovers(self.folder)
        donor = self._donor()
        if donor is not None:
            say(f"the scores of run {donor['id']} serve: only caps differ")
            with one_at_a_time(self.workspace, "filter-end"):
                if (summary := self._ended_meanwhile()) is not None:
                    return summary
                self._adopt(donor)
                return end_run(self, 0.0, started)
        if (summary := self._served(started)) is not None:
            return summary
        chunks = self.candidates.chunk_count
        if self.workspace.catalogue.side_by_side:
            self._work: Work = SideBySide(self.workspace, self.id, chunks)
        else:
            self._work = Alone(chunks)
        try:
            while True:
                self._score_all()
                with suppress(Reopened):
                    return self._work.end(lambda: self._end(started))
        finally:
            self._work.close()

    def _end(self, started: float) -> dict[str, Any]:
        summary = end_run(self, self._earlier_seconds, started)
        self._remove_parts()
        return summary

    def chunk(self, number: int) -> Chunk:
        """One chunk with its candidates as the catalogue has them."""
        with self.workspace.catalogue.read() as connection:
            found = judging.candidates_by_id(connection, self.candidates.span(number))
        return Chunk(number, tuple(found))

    def _ended_meanwhile(self) -> dict[str, Any] | None:
        """The summary, where another command has ended the run since this one looked; looks again
        in any case."""
        before = self._row
        with self.workspace.catalogue.read() as connection:
            self._row = judging.run(connection, self.id)
        if self._row is None or self._row["state"] != "finished":
            return None
        if before is not None and before["finished"] == self._row["finished"]:
            return None
        return dict(self._row["summary"])

    def _served(self, started: float) -> dict[str, Any] | None:
        """The summary, where all verdicts are there without any scoring."""
        return None

    def _chunks(self, stop: Stop) -> Iterator[Chunk]:
        """What the engine is to score."""
        for number in self._work.numbers(stop):
            yield self.chunk(number)

    def _completed(self, chunk: Chunk, scored: Scored) -> tuple[Chunk, Scored]:
        """A whole chunk of the run, of what the engine gave."""
        return chunk, scored

    def _whole(self, row: RowMapping) -> bool:
        """Whether a finished run's scores are there, and none of its failures has been cured."""
        scores = scores_path(self.workspace, row)
        if not scores.is_file() or sha256_file(scores) != row["summary"]["scores_sha256"]:
            say(f"the scores of run {row['id']} are missing or altered; scoring again")
            return False
        if cured := cured_candidates(self.workspace, row["id"]):
            say(f"{len(cured)} failed candidates of run {row['id']} can be scored by now")
            return False
        return True

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
                        "settings": settings_record(
                            self.workspace, self.record, self.candidates.wnids
                        ),
                        "record": self.record,
                        "started": now(),
                    },
                )
                return
            if self._row["state"] == "finished":
                judging.reopen_run(connection, self.id)
            if self._row["scores_run"] != scores_run:
                # A part that stayed named would keep its candidates from being scored again.
                judging.forget_parts(connection, self.id)
                judging.update_run(connection, self.id, {"scores_run": scores_run})

    def _adopt(self, donor: RowMapping) -> None:
        self._begin(donor["id"])
        with self.workspace.catalogue.write() as connection:
            judging.forget_verdicts(connection, self.id)
            judging.copy_verdicts(connection, donor["id"], self.id)
        self._remove_parts()

    def _score_all(self) -> None:
        self._work.prepare(self._ready)
        with stop_on_interrupt() as stop:
            while not self._pass(stop):
                self._widen()
                self._work.prepare(lambda: self._sound_parts(set()))

    def _ready(self) -> set[int]:
        """Make the run ready to be scored; gives the numbers of the chunks that are."""
        with self.workspace.catalogue.read() as connection:
            self._row = judging.run(connection, self.id)
        was_finished = self._row is not None and self._row["state"] == "finished"
        owned = self._row is not None and self._row["scores_run"] == self.id
        make_folder(self.parts_folder)
        if was_finished and owned:
            self._split()
        cured = set(cured_candidates(self.workspace, self.id)) if was_finished else set()
        self._begin(self.id)
        return self._sound_parts(cured)

    def _pass(self, stop: Stop) -> bool:
        """Score what is not scored yet.

        Returns:
            False where low precision proved to be further off than its margins.
        """
        total = len(self.candidates.ids)
        done = self._count_scored()
        if 0 < done < total:
            say(f"run {self.id} goes on: {done} of {total} candidates are scored")
        with progress("filter", total, done=done) as bar:
            self._bar = bar
            while True:
                for chunk, scored in self.engine.run(self._chunks(stop), stop):
                    if scored.counts.flips:
                        return False
                    whole, scored = self._completed(chunk, scored)
                    if not self._name_part(whole, scored):
                        return False
                    bar.advance(len(whole.candidates))
                if self._outdated:
                    return False
                if not self._work.waits(stop):
                    break
        if (done := self._count_scored()) < total:
            raise Interrupted(
                f"run {self.id} stopped after {done} of {total} candidates; "
                "the same command goes on"
            )
        return True

    def _count_scored(self) -> int:
        with self.workspace.catalogue.read() as connection:
            return judging.count_verdicts(connection, self.id)

    def _widen(self) -> None:
        """Take back what was decided under margins that proved too narrow, and widen them."""
        with self.workspace.catalogue.write() as connection:
            row = judging.run(connection, self.id)
            assert row is not None
            widened = row["widened"]
            if widened == self.job.widened:
                widened += 1
                judging.forget_parts(connection, self.id)
                judging.update_run(connection, self.id, {"widened": widened})
                self._work.reopen(connection)
        say(
            f"low precision and fp32 disagree on a view of run {self.id}: its margins are doubled, "
            "and all is scored again"
        )
        self.job = replace(self.job, widened=widened)
        self._outdated = False
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
        """The named parts; one whose file is gone or altered, that holds a candidate which has been
        cured, or whose verdicts are not those of its candidates, is forgotten and made again."""
        with self.workspace.catalogue.read() as connection:
            named = judging.run_parts(connection, self.id)
            judged = judged_by_chunk(connection, self.id, self.candidates)
        sound: dict[int, str] = {}
        self._earlier_seconds = 0.0
        for part in named:
            number, path = part["number"], self.parts_folder / part["file"]
            ids = self.candidates.span(number)
            whole = path.is_file() and sha256_file(path) == part["sha256"]
            if whole and judged[number] == len(ids) and cured.isdisjoint(ids):
                sound[number] = part["file"]
                self._earlier_seconds += part["seconds"] / self.engine.workers
        broken = [part["number"] for part in named if part["number"] not in sound]
        if broken:
            with self.workspace.catalogue.write() as connection:
                row = judging.run(connection, self.id)
                if row is not None and row["state"] == "finished":
                    # Another command has ended the run meanwhile, and removed its parts.
                    return {part["number"] for part in named}
                say(f"{len(broken)} parts of run {self.id} are scored again")
                for number in broken:
                    judging.forget_part(connection, self.id, number, self.candidates.span(number))
                self._work.reopen(connection, broken)
        if not self.workspace.catalogue.side_by_side:
            # Elsewhere they may be those of another command, which has yet to name them.
            for path in self.parts_folder.iterdir():
                if path.name not in sound.values():
                    path.unlink()
        return set(sound)

    def _name_part(self, chunk: Chunk, scored: Scored) -> bool:
        """Write a part and name it, unless another command was faster.

        Returns:
            False where the margins that it was scored under have proved too narrow.
        """
        tag = f"-{self._work.tag}" if self._work.tag else ""
        path = self.parts_folder / f"{chunk.number:06}{tag}.parquet"
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
            row = judging.run(connection, self.id)
            if row is None or row["widened"] != scored.made_by["widened"]:
                self._outdated = True
                return False
            if row["state"] != "running" or row["scores_run"] != self.id:
                # Another command has ended the run, or found scores that serve.
                return True
            if self._work.finish(connection, chunk.number):
                judging.add_part(connection, part, rows)
        return True

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
                path.unlink(missing_ok=True)
            # Another command may still write a part that it will not get to name.
            with suppress(OSError):
                self.parts_folder.rmdir()
