"""Status: the funnel, by stage and class."""

from __future__ import annotations

from typing import Any

from curate.catalog import judging, overview
from pipelines.filter import finished_run
from pipelines.workspace import Workspace

#: The funnel's stages in order.
STAGES = ("candidates", "scored", "survivors", "shortlisted", "reviewed", "accepted", "released")


def status(workspace: Workspace, run_id: str | None = None) -> dict[str, Any]:
    """The funnel of a workspace.

    Args:
        workspace: the workspace.
        run_id: the run whose verdicts count; the newest finished one by default.

    Returns:
        `funnel` (a count a stage, and the same by class in the label space's order), `run`,
        `running` (a run that was cut off), `refused` (items by reason).

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
    space = workspace.label_space
    ordered = sorted(by_class, key=space.position)
    funnel: dict[str, Any] = {
        stage: sum(by_class[wnid].get(stage, 0) for wnid in ordered) for stage in STAGES
    }
    funnel["by_class"] = {
        wnid: {"name": space.get(wnid).name, **by_class[wnid]} for wnid in ordered
    }
    return {
        "funnel": funnel,
        "run": run_id,
        "running": running["id"] if running else None,
        "refused": refused,
    }
