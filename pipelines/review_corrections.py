"""A corrected label makes a new candidate: the same image under the class that people saw.

What they said confirms nothing of it: it goes through the filter and is reviewed like any other.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, RowMapping

from annotation.answers import Decision
from curate.catalog import intake
from curate.catalog import review_queues as queues
from curate.errors import BusyError
from curate.files import candidate_key
from curate.sources.protocol import Hit
from pipelines.admission import Admission, Decided, Ready
from pipelines.review_outcomes import Reviewed
from pipelines.workspace import OUTLIER, Workspace

#: New candidates that are written in one transaction, about.
_AT_ONCE = 200


class _NoLedger:
    """What is refused here, as a picture that is there already, is in no list of anybody's."""

    def record(self, connection: Connection, decided: Decided, moment: datetime) -> None:
        """Record nothing further."""


def make_corrections(workspace: Workspace, found: Reviewed) -> tuple[int, list[str]]:
    """Make a candidate of each rejected one whose corrected class people agree on.

    It has the origins of the old one. Where the same picture is a candidate of that class already
    there is no other. Under the rule outlier labels are concepts, and nothing is corrected.

    Args:
        workspace: where to.
        found: what people have said.

    Returns:
        How many are new, and lines for the user.
    """
    wanted = {
        key: outcome.corrected
        for key, outcome in found.outcomes.items()
        if outcome.status == "rejected"
        and outcome.reason is Decision.WRONG_LABEL
        and outcome.corrected is not None
    }
    if not wanted or found.question == OUTLIER:
        return 0, []
    with workspace.catalogue.read() as connection:
        old = queues.candidates_named(connection, list(wanted))
        new = {candidate_key(old[key]["sha256"], wanted[key]): key for key in sorted(old)}
        there = intake.candidate_ids(connection, list(new))
    missing = [(old[new[key]], wanted[new[key]]) for key in sorted(new) if key not in there]
    missing = [(row, wnid) for row, wnid in missing if wnid in workspace.weak_labels]
    if not missing:
        return 0, []
    try:
        with workspace.held("collect"):
            count = sum(
                _admit(workspace, missing[start : start + _AT_ONCE])
                for start in range(0, len(missing), _AT_ONCE)
            )
    except BusyError:
        return 0, [
            f"{len(missing):,} corrected labels wait until curate collect or curate dedup has "
            "ended: pull again then"
        ]
    if not count:
        return 0, []
    return count, [f"{count:,} new candidates under corrected labels: curate filter judges them"]


def _admit(workspace: Workspace, rows: list[tuple[RowMapping, str]]) -> int:
    keys = [row["key"] for row, _ in rows]
    with workspace.catalogue.read() as connection:
        ids = intake.candidate_ids(connection, keys)
        origins = intake.origins_of(connection, list(ids.values()))
        images = intake.images_of(connection, [row["sha256"] for row, _ in rows])
    batch = [
        Ready(_hit(origin, wnid), wnid, dict(images[row["sha256"]]), None, seen=origin["seen"])
        for row, wnid in rows
        for origin in origins[ids[row["key"]]]
    ]
    return len(Admission(workspace, _NoLedger()).admit(batch).accepted)


def _hit(origin: RowMapping, wnid: str) -> Hit:
    return Hit(
        source=origin["source"],
        locator=origin["locator"],
        label=wnid,
        collection=origin["collection"],
        page=origin["page"],
        title=origin["title"],
        author=origin["author"],
        licence=origin["licence_text"],
    )
