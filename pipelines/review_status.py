"""How far people are: by class, by annotator, how they agree, and how long it will take.

Everything comes from what was pulled; no server is asked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from sqlalchemy import RowMapping

from annotation.annotators import Annotator, annotators
from annotation.answers import standing
from curate.catalog import review_log, reviews
from curate.catalog.tables import now
from pipelines.review_blind_accuracy import blind_accuracy
from pipelines.review_outcomes import Reviewed, controls_among, review_counts, reviewed
from pipelines.workspace import Workspace

#: Whoever has timed fewer answers is expected to take as long as all together.
FEWEST_TIMED = 10

_STAGES = ("waiting", "done", "accepted", "rejected", "disputed")


def review_status(
    workspace: Workspace, run_id: str | None = None, found: Reviewed | None = None
) -> dict[str, Any]:
    """How far the review is.

    Args:
        workspace: the workspace.
        run_id: count this run's survivors and control samples alone; else all that was ever given
            out. Annotators are told of with all that they have answered.
        found: what `reviewed` gives for the same run, where it is at hand.

    Returns:
        What `review_outcomes.review_counts` gives, and `run`; `pushed` (tasks that were ever at a
        server) and `pulled` (answers and edits); `by_class`: by label `name`, `waiting`, `done`
        (all others), `accepted`, `rejected` and `disputed`, in the order of the label space;
        `annotators`, see `_person`; `hours_left` of all together (None where nobody has been
        timed); `adjudication` (`open` and `done`); `unread`, the answers that are set aside, by
        `project`, `task` and `annotation`, and `why`; `blind`, what blind tests say, or None.

    Raises:
        UnknownNameError, UsageError: no such run, or it has not ended.
    """
    found = found or reviewed(workspace, run_id)
    counts = review_counts(workspace, run_id, found)
    with workspace.catalogue.read() as connection:
        waiting = review_log.open_tasks(connection, now())
        everybody = reviews.all_annotators(connection)
        totals = review_log.totals(connection)
        unread = review_log.unread(connection)
        left_out = controls_among(connection, run_id, found)[1]
    people = _people(found, everybody, waiting)
    hours = [person["hours_left"] for person in people]
    return {
        **counts,
        **totals,
        "run": run_id,
        "by_class": _by_class(workspace, found, left_out),
        "annotators": people,
        "hours_left": None if not hours or None in hours else sum(hours),
        "adjudication": {
            "open": waiting.get(("adjudication", None), 0),
            "done": sum(what.adjudicated for what in found.outcomes.values()),
        },
        "unread": [
            {
                "project": row["title"],
                "task": row["task"],
                "annotation": row["annotation"],
                "why": row["why"],
            }
            for row in unread
        ],
        "blind": blind_accuracy(workspace, run_id, found),
    }


def _by_class(
    workspace: Workspace, found: Reviewed, left_out: Iterable[str]
) -> dict[str, dict[str, Any]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    apart = frozenset(left_out)
    for key, what in found.outcomes.items():
        if key not in apart:
            counts[found.claimed[key]][what.status] += 1
    space = workspace.weak_labels
    known = [wnid for wnid in space.wnids if wnid in counts]
    told = {}
    for wnid in [*known, *sorted(counts.keys() - set(known))]:
        mine = counts[wnid]
        mine["done"] = sum(mine.values()) - mine["waiting"]
        told[wnid] = {"name": space.name_of(wnid), **{stage: mine[stage] for stage in _STAGES}}
    return told


@dataclass
class _Pace:
    """How long annotators take for an answer, by name."""

    seconds: Mapping[str, Sequence[float]]

    def of(self, name: str) -> float | None:
        """Seconds that an answer of somebody is expected to take; None where nobody was timed."""
        mine = self.seconds.get(name, ())
        if len(mine) < FEWEST_TIMED:
            mine = [taken for each in self.seconds.values() for taken in each]
        return median(mine) if mine else None


def _people(
    found: Reviewed,
    everybody: Sequence[RowMapping],
    waiting: Mapping[tuple[str, int | None], int],
) -> list[dict[str, Any]]:
    given = [*found.answers, *found.gold_answers]
    work = {
        one.annotator: one
        for one in annotators(
            given, question=found.question, gold=found.gold, claimed=found.claimed
        )
    }
    seconds: dict[str, list[float]] = defaultdict(list)
    for answer in standing(given):
        if answer.seconds is not None:
            seconds[answer.annotator].append(answer.seconds)
    pace = _Pace(seconds)
    return [
        _person(row["name"], work.get(row["name"]), waiting.get(("review", row["id"]), 0), pace)
        for row in everybody
        # Whoever only adjudicates, or is shown photos blind, has no queue.
        if ("review", row["id"]) in waiting or row["name"] in work
    ]


def _person(name: str, work: Annotator | None, waits: int, pace: _Pace) -> dict[str, Any]:
    """One annotator: `annotator` (the name of the role), `open`, `done`, `skipped`,
    `median_seconds`, `gold` and `accept_rate` (each `count`, `of`, `value`, `low` and `high`),
    `hours_left` (open tasks at their median, or at that of all where they have timed few) and
    `warnings`."""
    seconds = pace.of(name)
    return {
        "annotator": name,
        "open": waits,
        "done": work.answers if work else 0,
        "skipped": work.skipped if work else 0,
        "median_seconds": work.median_seconds if work else None,
        "gold": _share(
            work.gold_right if work else 0,
            work.gold_asked if work else 0,
            work.gold_interval if work else None,
        ),
        "accept_rate": _share(
            work.accepted if work else 0,
            work.judged if work else 0,
            work.accept_interval if work else None,
        ),
        "hours_left": None if seconds is None else waits * seconds / 3600,
        "warnings": list(work.warnings) if work else [],
    }


def _share(count: int, of: int, interval: tuple[float, float] | None) -> dict[str, Any]:
    low, high = interval or (None, None)
    return {
        "count": count,
        "of": of,
        "value": count / of if of else None,
        "low": low,
        "high": high,
    }
