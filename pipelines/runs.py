"""Runs that have ended: their rows, scores and shortlists, for whoever reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import RowMapping

from curate.catalog import judging, listing, review_queues
from curate.errors import CurateError, UnknownNameError, UsageError
from curate.files import canonical_json, csv_text
from pipelines.barred import retracted_among
from pipelines.quality import Flags, candidate_flags
from pipelines.review_cap import within_cap
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

#: What is told of each candidate of a control sample.
CONTROL_COLUMNS = (*_COLUMNS[:3], "outcome", "reason", *_COLUMNS[3:])


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


def as_judged(workspace: Workspace, run: RowMapping) -> Workspace:
    """The workspace with the rule and the label space that a run was judged by (see `rejudge`).

    Raises:
        UsageError: that label space is gone, or has changed.
    """
    workspace = workspace.changed({"filter.rule": run["record"]["rule"]})
    its = run["record"]["label_space"]
    if its["fingerprint"] == workspace.label_space.fingerprint:
        return workspace
    other = workspace.changed({"label_space": run["settings"]["label_space"]})
    try:
        same = other.label_space.fingerprint == its["fingerprint"]
    except CurateError:
        same = False
    if not same:
        raise UsageError(
            f"run {run['id']} was judged within the label space {its['name']}, which is not there "
            "any more or has changed; undo the change, or filter again"
        )
    return other


def scores_path(workspace: Workspace, run: RowMapping) -> Path:
    """The scores of a finished run; runs that differ in caps alone share one file."""
    return workspace.run_folder(run["scores_run"]) / "scores.parquet"


def read_shortlist(
    workspace: Workspace, run_id: str | None = None
) -> tuple[str, list[listing.Shortlisted]]:
    """The id of a finished run (the newest by default) and its shortlist in review order, see
    `standing_shortlist`.

    Raises:
        UsageError: no run has ended, or this one has not.
        UnknownNameError: no run has this id.
    """
    row = finished_run(workspace, run_id)
    return row["id"], standing_shortlist(workspace, row)[0]


def standing_shortlist(
    workspace: Workspace, run: RowMapping
) -> tuple[list[listing.Shortlisted], int]:
    """The shortlist of a finished run without what was taken back since, whose places under the
    cap go to the next survivors of those confusions; and how many that are."""
    with workspace.catalogue.read() as connection:
        listed = its = listing.shortlist(connection, run["id"])
    gone: dict[str, Any] = {}
    while more := retracted_among(workspace, (one.sha256 for one in listed)):
        gone |= more
        with workspace.catalogue.read() as connection:
            survivors = review_queues.survivors(connection, run["id"])
            rows = [row for row in survivors if row["sha256"] not in gone]
            keys = [one.key for one in within_cap(workspace, connection, run, rows)]
            found = {
                one.candidate: one for one in listing.survivors_named(connection, run["id"], keys)
            }
        listed = [replace(found[key], place=place) for place, key in enumerate(keys, start=1)]
    return listed, sum(one.sha256 in gone for one in its)


def shortlist_flags(workspace: Workspace, rows: Sequence[listing.Shortlisted]) -> Flags:
    """The quality flags of a shortlist's candidates."""
    with workspace.catalogue.read() as connection:
        return candidate_flags(workspace, connection, [row.candidate_id for row in rows])


def shortlist_cells(row: listing.Shortlisted, workspace: Workspace, flags: Flags) -> dict[str, Any]:
    """One row of the shortlist in the words of the contract, with the names of its classes, where
    the photo was first seen, and its quality flags joined by semicolons."""
    told = {
        "name": workspace.weak_labels.name_of(row.wnid),
        "predicted_name": workspace.label_space.name_of(row.predicted_wnid),
        "quality": ";".join(flags.get(row.candidate_id, ())),
    }
    return {column: told.get(column, getattr(row, column, None)) for column in _COLUMNS}


def control_cells(workspace: Workspace, run_id: str) -> list[dict[str, Any]]:
    """The control sample of a run in review order, but for what was taken back since: a row a
    candidate, with `CONTROL_COLUMNS`.

    Drawn before the filter, it tells how much of what reviewers see in the survivors (wrong labels,
    a source's own manner) is the source's and not the filter's doing.
    """
    with workspace.catalogue.read() as connection:
        rows = listing.control_sample(connection, run_id)
    gone = retracted_among(workspace, (row["sha256"] for row in rows))
    rows = [row for row in rows if row["sha256"] not in gone]
    with workspace.catalogue.read() as connection:
        flags = candidate_flags(workspace, connection, [row["candidate_id"] for row in rows])
    cells = []
    for row in rows:
        predicted = row["predicted_wnid"]
        told = {
            "name": workspace.weak_labels.name_of(row["wnid"]),
            "predicted_name": workspace.label_space.name_of(predicted) if predicted else None,
            "quality": ";".join(flags.get(row["candidate_id"], ())),
        }
        cells.append({c: told[c] if c in told else row[c] for c in CONTROL_COLUMNS})
    return cells


def control_text(cells: Sequence[dict[str, Any]], form: str) -> str:
    """The control sample as CSV or JSON Lines, the same bytes each time.

    Args:
        cells: of `control_cells`.
        form: "csv" or "jsonl".
    """
    if form == "jsonl":
        return "".join(canonical_json(row).decode() + "\n" for row in cells)
    return csv_text(
        CONTROL_COLUMNS, [row | {"borderline": str(row["borderline"]).lower()} for row in cells]
    )


def shortlist_text(
    rows: Sequence[listing.Shortlisted], workspace: Workspace, flags: Flags, form: str
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
