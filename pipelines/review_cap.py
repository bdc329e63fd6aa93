"""The cap of a run over some of its survivors, for those who ask and those who accept alike."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, RowMapping

from curate.filtration.caps import Survivor, shortlist
from pipelines.quality import candidate_flags
from pipelines.workspace import Workspace


def within_cap(
    workspace: Workspace, connection: Connection, run: RowMapping, rows: Collection[RowMapping]
) -> list[Survivor]:
    """The first survivors of each confusion in the run's order, as many as its cap lets in.

    Args:
        workspace: of the run.
        connection: a transaction.
        run: a finished run.
        rows: some of its survivors: `candidate_id`, `key`, `wnid`, `predicted_wnid` and
            `confidence` of each.

    Returns:
        In review order; `arrival` is the candidate's number.
    """
    flagged = _flagged(workspace, connection, run, rows)
    its = run["settings"]["filter"]
    survivors = [
        Survivor(
            row["key"],
            row["wnid"],
            row["predicted_wnid"],
            row["confidence"],
            arrival=row["candidate_id"],
            flagged=row["candidate_id"] in flagged,
        )
        for row in rows
    ]
    return shortlist(survivors, its["cap"], its["cap_order"], its["seed"])


def _flagged(
    workspace: Workspace, connection: Connection, run: RowMapping, rows: Collection[RowMapping]
) -> set[int]:
    """Those with a quality flag by the run's own settings, where its order depends on that."""
    if run["settings"]["filter"]["cap_order"] != "quality":
        return set()
    told = run["settings"].get("quality", {})
    its = workspace.changed({f"quality.{name}": value for name, value in told.items()})
    return set(candidate_flags(its, connection, [row["candidate_id"] for row in rows]))
