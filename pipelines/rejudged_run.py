"""A run that judges an earlier run's scores anew, and scores what they do not decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from curate.catalog import judging
from curate.progress import Stop, progress, say
from pipelines.filter_run import FilterRun
from pipelines.rejudge import Settled
from pipelines.scoring import Chunk, Scored
from pipelines.sharing import one_at_a_time

#: Verdicts that are recorded in one transaction.
_AT_ONCE = 20_000


class RejudgedRun(FilterRun):
    """A `FilterRun` whose `given` is there.

    Where stored scores decide all candidates it shares them, as runs that differ in caps do.
    Otherwise each of its parts holds the stored scores of what they decide and the new ones of the
    rest.
    """

    _settled: dict[int, Settled]

    def _serves(self) -> bool:
        assert self.given is not None
        self._settled = {}
        if self.given.rewrites:
            # They say something else now, so that they are told anew.
            return False
        with one_at_a_time(self.workspace, "filter-end"):
            left = self._settle_all()
        if left:
            say(
                f"{left} of {len(self.candidates.ids)} candidates need more views than run "
                f"{self.given.run_id} has scored"
            )
        return not left

    def _settle_all(self) -> int:
        """Record the verdicts of stored scores; gives how many candidates they do not decide."""
        assert self.given is not None
        with self.workspace.catalogue.read() as connection:
            self._row = judging.run(connection, self.id)
            decided = judging.count_verdicts(connection, self.id)
        if self._row is not None and self._row["scores_run"] == self.id and decided:
            return len(self.candidates.ids) - decided
        self._begin(self.given.scores_run)
        with self.workspace.catalogue.write() as connection:
            judging.forget_verdicts(connection, self.id)
        left = 0
        rows: list[dict[str, Any]] = []
        with progress("judge", len(self.candidates.ids)) as bar:
            for number, ids in self.candidates.spans():
                settled = self.given.settle(self.chunk(number))
                left += len(settled.rest().candidates)
                if not left:
                    pairs = zip(settled.chunk.candidates, settled.verdicts, strict=True)
                    rows += [self._verdict_row(c, verdict) for c, verdict in pairs if verdict]
                    if len(rows) >= _AT_ONCE:
                        self._add(rows)
                bar.advance(len(ids))
        if not left:
            self._add(rows)
        return left

    def _add(self, rows: list[dict[str, Any]]) -> None:
        with self.workspace.catalogue.write() as connection:
            judging.add_verdicts(connection, rows)
        rows.clear()

    def _chunks(self, stop: Stop) -> Iterator[Chunk]:
        assert self.given is not None
        self._settled.clear()
        for number in self._work.numbers(stop):
            settled = self.given.settle(self.chunk(number))
            rest = settled.rest()
            self._settled[number] = settled
            if rest.candidates:
                yield rest
                continue
            made_by = {"from_run": self.given.run_id, "widened": self.job.widened}
            self._name_part(settled.chunk, settled.joined(None, made_by))
            del self._settled[number]

    def _completed(self, chunk: Chunk, scored: Scored) -> tuple[Chunk, Scored]:
        settled = self._settled.pop(chunk.number)
        return settled.chunk, settled.joined(scored, {})
