"""Which candidates people are asked about, and in which order.

The queue is computed anew for each push: from the run's survivors, what people have rejected, and
what a referee says. It never takes back what somebody has been given.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping

from annotation.order import referee_order
from curate.catalog import facts
from curate.catalog import review_queues as queues
from pipelines.barred import retracted_among
from pipelines.review_cap import within_cap
from pipelines.workspace import Workspace

#: The fact that names the referees which have ordered a queue, for the manifest.
REFEREES = "referees"


@dataclass(frozen=True)
class Queued:
    """A candidate that people are asked about.

    Attributes:
        key: of the candidate.
        candidate_id: its number.
        sha256: its image.
        extension: that of the image's file.
        wnid: its label.
        control: whether the control sample holds it. People are not told.
        predicted_wnid: what the first classifier takes it for; None in a control sample where
            nobody computed it.
    """

    key: str
    candidate_id: int
    sha256: str
    extension: str
    wnid: str
    control: bool = False
    predicted_wnid: str | None = None


def review_queue(workspace: Workspace, run: RowMapping, rejected: Collection[str]) -> list[Queued]:
    """The candidates of a run that people are to look at, in review order.

    Args:
        workspace: of the run.
        run: a finished run.
        rejected: keys of what takes no place under the cap: what people have rejected, whose
            place goes to the next survivor of that confusion, and gold items.

    Returns:
        The survivors within the run's cap in the run's order, and its control sample evenly among
        them. A survivor that is in the control sample as well stands at its own place. Nothing that
        was taken back is among them, and the next one has its place.
    """
    left_out = set(rejected)
    while True:
        queue = _queue(workspace, run, left_out)
        gone = retracted_among(workspace, (one.sha256 for one in queue))
        if not gone:
            return queue
        left_out |= {one.key for one in queue if one.sha256 in gone}


def _queue(workspace: Workspace, run: RowMapping, left_out: Collection[str]) -> list[Queued]:
    with workspace.catalogue.read() as connection:
        rows = {
            row["key"]: row
            for row in queues.survivors(connection, run["id"])
            if row["key"] not in left_out
        }
        drawn = queues.control_sample(connection, run["id"])
        listed = within_cap(workspace, connection, run, list(rows.values()))
    control = {row["key"] for row in drawn}
    main = [_queued(rows[one.key], one.key in control) for one in listed]
    there = {one.key for one in listed}
    others = [
        _queued(row, True)
        for row in drawn
        if row["key"] not in there and row["key"] not in left_out
    ]
    return interleaved(main, others)


def interleaved(main: Sequence[Queued], others: Sequence[Queued]) -> list[Queued]:
    """The others evenly among the first ones; both keep their order."""
    total = len(main) + len(others)
    # One of them in the middle of each of as many equal pieces.
    places = {(2 * n + 1) * total // (2 * len(others)) for n in range(len(others))}
    rest, some = iter(main), iter(others)
    return [next(some if place in places else rest) for place in range(total)]


def refereed(
    workspace: Workspace, run: RowMapping, queue: Sequence[Queued], referee: str
) -> tuple[list[Queued], dict[str, str]]:
    """The queue in a referee's order, controls among the others; and the referee's name and
    fingerprint, for `remember_referee`.

    Args:
        workspace: of the run.
        run: a finished run.
        queue: of `review_queue`.
        referee: name of a model that took no part in the run.

    Raises:
        UsageError: there is no such model, or it took part.
        Interrupted: stopped by the user; what it has said is kept.
    """
    from pipelines.referee import referee_probabilities

    said = referee_probabilities(workspace, referee, queue, run=run["id"])
    seed = workspace.settings.review.seed
    hashes = [hashlib.sha256(f"{seed}:{one.key}".encode()).hexdigest() for one in queue]
    order = referee_order(said.ordering(one.key for one in queue), hashes)
    told = {"name": said.name, "fingerprint": said.fingerprint}
    return [queue[place] for place in order], told


def referees(connection: Connection) -> list[dict[str, str]]:
    """The referees that have ordered a queue of this workspace: `name` and `fingerprint` of each.

    Whoever stops before a queue's end has let them select.
    """
    return list(json.loads(facts.recall(connection, REFEREES) or "[]"))


def remember_referee(workspace: Workspace, referee: Mapping[str, str]) -> None:
    """Keep that a referee has ordered what is given out, before it is."""
    with workspace.catalogue.write() as connection:
        known = referees(connection)
        if referee in known:
            return
        facts.forget(connection, REFEREES)
        facts.remember(connection, REFEREES, json.dumps([*known, dict(referee)], sort_keys=True))


def _queued(row: RowMapping, control: bool) -> Queued:
    return Queued(
        row["key"],
        row["candidate_id"],
        row["sha256"],
        row["extension"],
        row["wnid"],
        control,
        row["predicted_wnid"],
    )
