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
        with one_at_a_time(self.workspace, "filter-end"):
            if (summary := self._ended_meanwhile()) is not None:
                return summary
            if self._row is not None and self._row["scores_run"] == self.id:
                # More views are needed; an earlier start, or another command, scores them.
                return None
            if self._settle_all():
                return end_run(self, 0.0, started)
            # From here on another command leaves verdicts and parts alone.
            with self.workspace.catalogue.read() as connection:
                self._row = judging.run(connection, self.id)
            self._begin(self.id)
        say(f"run {self.given.run_id} has not scored all that is needed; the rest is scored now")
        return None

    def _settle_all(self) -> bool:
        """Record the verdicts of stored scores, as long as these suffice.

        Returns:
            Whether they decide all candidates, under the keys that they are stored by: readers
            would not find them under others. At the first chunk where they do not, the run needs
            parts of its own, which are settled as they are made.
        """
        assert self.given is not None
        self._begin(self.given.scores_run)
        with self.workspace.catalogue.write() as connection:
            judging.forget_verdicts(connection, self.id)
        rows: list[dict[str, Any]] = []
        with progress("judge", len(self.candidates.ids)) as bar:
            for number, ids in self.candidates.spans():
                settled = self.given.settle(self.chunk(number))
                if settled.moved or None in settled.verdicts:
                    return False
                pairs = zip(settled.chunk.candidates, settled.verdicts, strict=True)
                rows += [self._verdict_row(c, verdict) for c, verdict in pairs if verdict]
                if len(rows) >= _AT_ONCE:
                    self._add(rows)
                bar.advance(len(ids))
        self._add(rows)
        return True

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
            if rest.candidates:
                self._settled[number] = settled
                yield rest
                continue
            made_by = {"from_run": self.given.run_id, "widened": self.job.widened}
            if not self._name_part(settled.chunk, settled.joined(None, made_by)):
                return
            self._bar.advance(len(settled.chunk.candidates))

    def _score_all(self) -> None:
        assert self.given is not None
        self._needed = 0
        super()._score_all()
        if self._needed:
            say(
                f"{self._needed} of {len(self.candidates.ids)} candidates needed more views than "
                f"run {self.given.run_id} has scored"
            )

    def _completed(self, chunk: Chunk, scored: Scored) -> tuple[Chunk, Scored]:
        self._needed += len(chunk.candidates)
        settled = self._settled.pop(chunk.number)
        return settled.chunk, settled.joined(scored, {})
