"""Runs that have ended: their rows, scores and shortlists, for whoever reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import RowMapping

from curate.catalog import judging
from curate.errors import UnknownNameError, UsageError
from curate.files import canonical_json, csv_text
from pipelines.quality import Flags, candidate_flags
from pipelines.workspace import Workspace

_COLUMNS = (
    "candidate",
    "sha256",
    "wnid",
    "predicted_wnid",
    "confidence",
    "p_true",
    "borderline",
    "name",
    "predicted_name",
    "locator",
    "quality",
)


def finished_run(workspace: Workspace, run_id: str | None = None) -> RowMapping:
    """The row of a finished run: the newest one, or the one named.

    Raises:
        UsageError: there is none, or it has not ended.
        UnknownNameError: no run has this id.
    """
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


def scores_path(workspace: Workspace, run: RowMapping) -> Path:
    """The scores of a finished run; runs that differ in caps alone share one file."""
    return workspace.run_folder(run["scores_run"]) / "scores.parquet"


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


def shortlist_flags(workspace: Workspace, rows: Sequence[judging.Shortlisted]) -> Flags:
    """The quality flags of a shortlist's candidates."""
    with workspace.catalogue.read() as connection:
        return candidate_flags(workspace, connection, [row.candidate_id for row in rows])


def shortlist_cells(row: judging.Shortlisted, workspace: Workspace, flags: Flags) -> dict[str, Any]:
    """One row of the shortlist in the words of the contract, with the names of its classes, where
    the photo was first seen, and its quality flags joined by semicolons."""
    told = {
        "name": workspace.weak_labels.name_of(row.wnid),
        "predicted_name": workspace.label_space.get(row.predicted_wnid).name,
        "quality": ";".join(flags.get(row.candidate_id, ())),
    }
    return {column: told.get(column, getattr(row, column, None)) for column in _COLUMNS}


def shortlist_text(
    rows: Sequence[judging.Shortlisted], workspace: Workspace, flags: Flags, form: str
) -> str:
    """The shortlist in review order, as CSV or JSON Lines, the same bytes each time.

    Args:
        rows: the shortlist.
        workspace: for the names of classes.
        flags: the quality flags of candidates.
        form: "csv" or "jsonl".
    """
    cells = [shortlist_cells(row, workspace, flags) for row in rows]
    if form == "jsonl":
        return "".join(canonical_json(row).decode() + "\n" for row in cells)
    return csv_text(
        _COLUMNS, [row | {"borderline": str(row["borderline"]).lower()} for row in cells]
    )
