"""Status: the funnel, by stage and class."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from curate.catalog import hits, judging, overview, twins
from curate.choices import STAGES
from curate.labels.space import LabelSpace
from pipelines.quality import count_unmeasured, flag_counts
from pipelines.review_outcomes import by_class as review_by_class
from pipelines.runs import finished_run
from pipelines.workspace import Workspace


def status(
    workspace: Workspace, run_id: str | None = None, *, quality: bool = False
) -> dict[str, Any]:
    """The funnel of a workspace.

    Args:
        workspace: the workspace.
        run_id: the run whose verdicts count; the newest finished one by default.
        quality: count the candidates by quality flag, which takes a look at each.

    Returns:
        `funnel` (a count a stage, and the same by class, or by concept under the rule outlier, in
        the order of the label space or the list of concepts), `run`,
        `running` (a run that was cut off), `refused` (files by reason), `sources` (for each public
        source and list, what became of its hits), `duplicates` (candidates that `curate dedup`
        keeps out of the filter), `quality` where asked for.

    Raises:
        UnknownNameError: no run has this id.
    """
    if run_id is not None:
        run_id = finished_run(workspace, run_id)["id"]
    with workspace.catalogue.read() as connection:
        if run_id is None:
            newest = judging.newest_run(connection)
            run_id = newest["id"] if newest else None
        running = judging.newest_run(connection, "running")
        by_class = overview.funnel(connection, run_id)
        refused = overview.refusal_counts(connection)
        sources = hits.counts_by_source(connection)
        dropped = twins.count_dropped(connection)
        flagged: dict[str, Any] = {}
        if quality:
            flagged = {"quality": flag_counts(workspace, connection)}
    if run_id is not None:
        for wnid, stages in review_by_class(workspace, run_id).items():
            by_class.setdefault(wnid, {}).update(stages)
    if quality:
        flagged["unmeasured"] = count_unmeasured(workspace)
    space = workspace.weak_labels
    ordered = _ordered(space, by_class)
    funnel: dict[str, Any] = {
        stage: sum(by_class[wnid].get(stage, 0) for wnid in ordered) for stage in STAGES
    }
    funnel["by_class"] = {
        wnid: {
            "name": space.name_of(wnid),
            **{stage: by_class[wnid].get(stage, 0) for stage in STAGES},
        }
        for wnid in ordered
    }
    return {
        "funnel": funnel,
        "run": run_id,
        "running": running["id"] if running else None,
        "refused": refused,
        "sources": sources,
        "duplicates": dropped,
        **flagged,
    }


def run_by_class(workspace: Workspace, run_id: str) -> dict[str, dict[str, Any]]:
    """The funnel of each class, over a run's own candidates alone."""
    by_class: dict[str, dict[str, Any]] = {}
    with workspace.catalogue.read() as connection:
        counts = overview.run_counts(connection, run_id)
    for row in counts:
        mine = by_class.setdefault(
            row["wnid"], dict.fromkeys(("candidates", "scored", "survivors", "shortlisted"), 0)
        )
        mine["candidates"] += row["count"]
        mine["scored"] += row["count"] * (row["outcome"] != "failed")
        mine["survivors"] += row["count"] * (row["outcome"] == "survivor")
        mine["shortlisted"] += row["listed"]
    space = workspace.weak_labels
    return {w: {"name": space.name_of(w), **by_class[w]} for w in _ordered(space, by_class)}


def _ordered(space: LabelSpace, wnids: Collection[str]) -> list[str]:
    """Ids in the order of a list of classes; those that it lacks since it was edited come last."""
    known = [wnid for wnid in space.wnids if wnid in wnids]
    return known + sorted(set(wnids) - set(known))
