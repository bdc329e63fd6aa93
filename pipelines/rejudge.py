"""Judging anew what an earlier run has scored: another threshold, label space or label.

Scores outlive a threshold. What they decide under the new rule is not computed again; of the other
candidates the views are scored, and only of those. The verdicts are those of a run from the start.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import RowMapping

from curate.catalog import judging
from curate.catalog.judging import Candidate
from curate.errors import StorageError, UsageError
from curate.files import printable, sha256_file
from curate.filtration.terms import Counts, Verdict
from pipelines.runs import scores_path
from pipelines.scoring import Chunk, Scored, Scorer
from pipelines.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Settled:
    """What stored scores say of a chunk.

    Attributes:
        chunk: all of it.
        verdicts: one a candidate; None where its scores do not suffice.
        rows: the stored scores of the others.
        moved: whether some are stored under another key than their candidate's, so that a run
            which judges them cannot share them.
    """

    chunk: Chunk
    verdicts: list[Verdict | None]
    rows: pa.Table
    moved: bool = False

    def rest(self) -> Chunk:
        """The candidates whose views must be scored."""
        pairs = zip(self.chunk.candidates, self.verdicts, strict=True)
        return Chunk(self.chunk.number, tuple(c for c, verdict in pairs if verdict is None))

    def joined(self, scored: Scored | None, made_by: dict[str, Any]) -> Scored:
        """The whole chunk: what was settled, and what has been scored of the rest.

        Args:
            scored: the result for `rest`; None where that is empty.
            made_by: of the part if nothing was scored.
        """
        import io

        import pyarrow as pa
        import pyarrow.parquet as pq

        from curate.filtration.scores import table_bytes

        table, verdicts = self.rows, list(self.verdicts)
        if scored is not None:
            fresh = pq.read_table(io.BytesIO(scored.part))
            # A rule that judges the mean has a column of its own, and scores without it settle
            # nothing.
            kept = [table.select(fresh.column_names).cast(fresh.schema)] if len(table) else []
            table = pa.concat_tables([*kept, fresh])
            table = table.sort_by([(name, "ascending") for name in ("candidate", "model", "view")])
            left = iter(scored.verdicts)
            verdicts = [verdict or next(left) for verdict in verdicts]
        return Scored(
            [verdict for verdict in verdicts if verdict is not None],
            table_bytes(table),
            len(table),
            scored.forwards if scored else 0,
            scored.counts if scored else Counts(),
            scored.seconds if scored else 0.0,
            scored.made_by if scored else made_by,
        )


class Given:
    """The scores of an earlier run, ready to be judged anew.

    Args:
        workspace: with the label space to judge within.
        row: the earlier run, which has ended.
        scorer: the same classifiers and views, and the new rule.

    Attributes:
        run_id: of the earlier run.
        scores_run: of the run whose scores it uses.
        record: of the earlier run.
        has_logits: whether it kept logits.
        rewrites: whether its rows say something else now (another label space), so that a run
            that judges them cannot share them.

    Raises:
        UsageError: other classifiers or views; or another label space, and no logits were kept.
        StorageError: its scores are gone or altered.
    """

    def __init__(self, workspace: Workspace, row: RowMapping, scorer: Scorer) -> None:
        import pyarrow.parquet as pq

        self.run_id, self.scores_run = row["id"], row["scores_run"]
        self._workspace, self._scorer = workspace, scorer
        record = row["record"]
        self.record = record
        _check_same(record, scorer, self.run_id)
        path = scores_path(workspace, row)
        if not path.is_file() or sha256_file(path) != row["summary"]["scores_sha256"]:
            raise StorageError(
                f"the scores of run {self.run_id} ({printable(path)}) are missing or altered; "
                "start its command again to make them anew"
            )
        self._file = pq.ParquetFile(path)
        names = self._file.schema_arrow.names
        self.has_logits = "logits" in names
        space = workspace.label_space
        self.rewrites = record["label_space"]["fingerprint"] != space.fingerprint
        if self.rewrites and not self.has_logits:
            raise UsageError(
                f"run {self.run_id} kept no logits, so it cannot be judged within another label "
                "space; filter once with --keep-logits"
            )
        plan = scorer.outline
        wanted = [name for name in names if name != "ceiling" or plan.rule.of_mean]
        self._columns = [name for name in wanted if name != "logits" or self.has_logits]
        # The mean of views is told by their logits alone, whatever rule the run was judged by.
        self._from_logits = self.has_logits and (self.rewrites or plan.rule.of_mean)
        self._adds_ceilings = plan.rule.of_mean and self.has_logits and "ceiling" not in names
        column = names.index("candidate")
        groups = [self._file.metadata.row_group(n) for n in range(self._file.num_row_groups)]
        self._last = [group.column(column).statistics.max for group in groups]
        self._group = lru_cache(maxsize=4)(self._read)
        self._keys = lru_cache(maxsize=256)(self._read_keys)
        # Margins were found within the columns of the earlier run.
        self._trusts = not self.rewrites

    def settle(self, chunk: Chunk) -> Settled:
        """Judge a chunk by stored scores."""
        from curate.filtration.stored import judge_stored, scores_from_logits, stored_scores

        plan, space = self._scorer.outline, self._workspace.label_space
        keys, moved = self._stored_keys(chunk.candidates)
        targets = np.array(
            [space.position(c.wnid) if c.wnid in space else -1 for c in chunk.candidates]
        )
        table = self._rows(sorted({key for key in keys if key}))
        if self._from_logits or moved:
            stored = scores_from_logits(
                table,
                keys,
                targets,
                plan.columns,
                trust_margins=self._trusts,
                of_mean=plan.rule.of_mean,
            )
        else:
            stored = stored_scores(table, keys, space.wnids, len(plan.classifiers))
        verdicts = judge_stored(stored, targets, plan.rule, plan.order)
        settled = [n for n, verdict in enumerate(verdicts) if verdict is not None]
        rows = self._told(table, stored, chunk.candidates, keys, settled, moved)
        return Settled(chunk, verdicts, rows, moved)

    def _stored_keys(self, candidates: Sequence[Candidate]) -> tuple[list[str], bool]:
        """Under which key each candidate's scores are stored, empty where under none.

        A corrected label makes a new candidate of an image: its logits are stored under the key
        of the old one.
        """
        mine = [candidate.key for candidate in candidates]
        present = self._present(mine)
        missing = [c for c in candidates if c.key not in present]
        if not missing or not self.has_logits:
            return [key if key in present else "" for key in mine], False
        with self._workspace.catalogue.read() as connection:
            others = judging.keys_of_images(connection, [c.sha256 for c in missing])
        known = self._present([key for keys in others.values() for key in keys])
        by_image = {
            sha256: min((key for key in keys if key in known), default="")
            for sha256, keys in others.items()
        }
        keys = [c.key if c.key in present else by_image.get(c.sha256, "") for c in candidates]
        return keys, any(key and key != c.key for key, c in zip(keys, candidates, strict=True))

    def _present(self, keys: Sequence[str]) -> set[str]:
        wanted = set(keys)
        found: set[str] = set()
        for group in self._groups(sorted(wanted)):
            found |= wanted & self._keys(group)
        return found

    def _rows(self, keys: Sequence[str]) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        values = pa.array(keys, pa.string())
        tables = [self._group(0).slice(0, 0)] if self._last else []
        for group in self._groups(keys):
            table = self._group(group)
            tables.append(table.filter(pc.is_in(table["candidate"], value_set=values)))
        return pa.concat_tables(tables).combine_chunks()

    def _groups(self, keys: Sequence[str]) -> list[int]:
        """The row groups that may hold some of these keys."""
        places = {bisect_left(self._last, key) for key in keys}
        return sorted(place for place in places if place < len(self._last))

    def _read(self, group: int) -> pa.Table:
        return self._file.read_row_group(group, columns=self._columns)

    def _read_keys(self, group: int) -> frozenset[str]:
        import pyarrow.compute as pc

        # Logits are many times what a key is, and most groups are only asked for keys.
        keys = self._file.read_row_group(group, columns=["candidate"])["candidate"]
        return frozenset(pc.unique(keys).to_pylist())

    def _told(
        self,
        table: pa.Table,
        stored: Any,
        candidates: Sequence[Candidate],
        keys: Sequence[str],
        settled: Sequence[int],
        moved: bool,
    ) -> pa.Table:
        """The rows of the settled candidates, as a run within this label space, by this rule, would
        tell them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not (self.rewrites or moved or self._adds_ceilings):
            names = pa.array([keys[item] for item in settled], pa.string())
            return table.filter(pc.is_in(table["candidate"], value_set=names))
        from curate.filtration.stored import rewritten

        chosen = [(keys[item], candidates[item].key, item) for item in settled]
        return rewritten(table, chosen, stored, self._workspace.label_space.wnids)


def _check_same(record: Any, scorer: Scorer, run_id: str) -> None:
    """Refuse classifiers or views that are not those of a run."""
    apart = ("libraries",)

    def told(models: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{k: v for k, v in model.items() if k not in apart} for model in models]

    if told(record["models"]) != told(scorer.ensemble.record()):
        names = ", ".join(model["name"] for model in record["models"])
        raise UsageError(f"run {run_id} was scored by other models: name the same ones ({names})")
    if record["views"] != scorer.job.views:
        raise UsageError(f"run {run_id} saw other views: use --views {record['views']}")
