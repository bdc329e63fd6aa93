"""A run that judges an earlier run's scores anew, and scores what they do not decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from curate.catalog import judging
from curate.progress import Stop, progress, say
from pipelines.filter_end import end_run
from pipelines.filter_run import FilterRun
from pipelines.rejudge import Settled
from pipelines.scoring import Chunk, Scored
from pipelines.sharing import one_at_a_time

#: Verdicts that are recorded in one transaction.
_AT_ONCE = 20_000


class RejudgedRun(FilterRun):
    """A `FilterRun` whose `given` is there.

    Where stored scores decide all candidates, under the labels that they had, it shares them, as
    runs that differ in caps do.
    Otherwise each of its parts holds the stored scores of what they decide and the new ones of the
    rest.
    """

    _settled: dict[int, Settled]

    def _served(self, started: float) -> dict[str, Any] | None:
        assert self.given is not None
        self._settled = {}
        if self.given.rewrites:
            # They say something else now, so that they are told anew.
            return None
        was_finished = self._row is not None and self._row["state"] == "finished"
        with one_at_a_time(self.workspace, "filter-end"):
            with self.workspace.catalogue.read() as connection:
                self._row = judging.run(connection, self.id)
            if self._row is not None:
                if self._row["scores_run"] == self.id:
                    # More views are needed; an earlier start, or another command, scores them.
                    return None
                if self._row["state"] == "finished" and not was_finished:
                    return dict(self._row["summary"])
            left, moved = self._settle_all()
            if not left and not moved:
                return end_run(self, 0.0, started)
            # From here on another command leaves verdicts and parts alone.
            with self.workspace.catalogue.read() as connection:
                self._row = judging.run(connection, self.id)
            self._begin(self.id)
        if left:
            say(
                f"{left} of {len(self.candidates.ids)} candidates need more views than run "
                f"{self.given.run_id} has scored"
            )
        return None

    def _settle_all(self) -> tuple[int, bool]:
        """Record the verdicts of stored scores.

        Returns:
            How many candidates they do not decide, and whether some have another key by now, under
            which readers would not find their scores.
        """
        assert self.given is not None
        self._begin(self.given.scores_run)
        with self.workspace.catalogue.write() as connection:
            judging.forget_verdicts(connection, self.id)
        left, moved = 0, False
        rows: list[dict[str, Any]] = []
        with progress("judge", len(self.candidates.ids)) as bar:
            for number, ids in self.candidates.spans():
                settled = self.given.settle(self.chunk(number))
                left += len(settled.rest().candidates)
                moved |= settled.moved
                if not left and not moved:
                    pairs = zip(settled.chunk.candidates, settled.verdicts, strict=True)
                    rows += [self._verdict_row(c, verdict) for c, verdict in pairs if verdict]
                    if len(rows) >= _AT_ONCE:
                        self._add(rows)
                bar.advance(len(ids))
        if not left and not moved:
            self._add(rows)
        return left, moved

    def _add(self, rows: list[dict[str, Any]]) -> None:
        with self.workspace.catalogue.write() as connection:
            judging.add_verdicts(connection, rows)
        rows.clear()

    def _chunks(self, stop: Stop) -> Iterator[Chunk]:
        assert self.given is not None
        self._settled.clear()
        for number in self._work.numbers(stop):
            if stop.requested:
                return
            settled = self.given.settle(self.chunk(number))
            rest = settled.rest()
            self._settled[number] = settled
            if rest.candidates:
                yield rest
                continue
            made_by = {"from_run": self.given.run_id, "widened": self.job.widened}
            del self._settled[number]
            if not self._name_part(settled.chunk, settled.joined(None, made_by)):
                return

    def _completed(self, chunk: Chunk, scored: Scored) -> tuple[Chunk, Scored]:
        settled = self._settled.pop(chunk.number)
        return settled.chunk, settled.joined(scored, {})
