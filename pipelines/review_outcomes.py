"""What people's answers add up to: read from the catalogue, computed anew each time.

Nothing of it is stored, so that an answer pulled late, an edit or another consensus rule counts at
once, and everybody who asks gets the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Connection, RowMapping

from annotation.answers import Answer, Decision, Question, decision_named
from annotation.consensus import REASON_ORDER, Consensus, consensus, weight
from curate.catalog import answers as kept
from curate.catalog import facts, judging
from pipelines.review_agreement import agreement
from pipelines.review_cap import within_cap
from pipelines.review_withdrawn import withdrawn_keys
from pipelines.runs import finished_run
from pipelines.workspace import Workspace

#: Events that take back an entry as a whole, so that what its annotator had said before it stands
#: again; and all those that say nothing of the candidate.
GONE = frozenset(("deleted", "unusable"))
TAKEN_BACK = GONE | {"skipped"}

# The fact that tells how many answers a candidate needs, where a push has said so.
_OVERLAP = "overlap"


@dataclass(frozen=True)
class Reviewed:
    """All that people have said, and what it adds up to.

    Attributes:
        question: what was asked.
        answers: about candidates and not gold items, each as it was edited last, skips among them;
            annotators by the names of their roles. One that was deleted at the server, or edited
            into what cannot be read, is not there: it says nothing, as if it had never been given.
        gold_answers: the same about gold items.
        gold: the right decision on each gold item, by key.
        adjudications: answers given in adjudication.
        claimed: the label under which each candidate was shown, gold items included.
        outcomes: the consensus on every candidate that was ever given out for review, but for those
            whose image was taken back.
        withdrawn: the consensus on these.
    """

    question: Question
    answers: tuple[Answer, ...]
    gold_answers: tuple[Answer, ...]
    gold: Mapping[str, Decision]
    adjudications: tuple[Answer, ...]
    claimed: Mapping[str, str]
    outcomes: Mapping[str, Consensus]
    withdrawn: Mapping[str, Consensus]


@dataclass(frozen=True)
class Accepted:
    """A candidate that people have accepted.

    Attributes:
        candidate_id, key: of the candidate.
        wnid: its label.
        predicted_wnid: what the first classifier takes it for.
        outcome: what people said.
    """

    candidate_id: int
    key: str
    wnid: str
    predicted_wnid: str
    outcome: Consensus


def reviewed(
    workspace: Workspace, run_id: str | None = None, needed: int | None = None
) -> Reviewed:
    """All that people have said.

    Args:
        workspace: its settings say by which rule answers add up.
        run_id: give the outcomes of this run's survivors and its control sample alone.
        needed: how many different annotators each candidate needs; by default as `answers_needed`.

    Raises:
        UnknownNameError, UsageError: no such run, or it has not ended.
    """
    settings = workspace.settings.review
    if run_id is not None:
        run_id = finished_run(workspace, run_id)["id"]
    with workspace.catalogue.read() as connection:
        rows = kept.said(connection, "review")
        adjudicated = kept.said(connection, "adjudication")
        question = question_of(workspace, connection)
        claimed = kept.asked(connection, "review")
        gold = {key: decision_named(d) for key, d in kept.gold_items(connection).items()}
        wanted = claimed.keys() - gold.keys()
        if run_id is not None:
            wanted = (
                kept.survivors_among(connection, run_id, wanted).keys()
                | kept.control_keys(connection, run_id) & wanted
            )
        gone = withdrawn_keys(connection, "review")
        needed = needed or _needed(connection, settings.overlap)
    given = _answers(rows)
    answers = tuple(answer for answer in given if answer.candidate not in gold)
    gold_answers = tuple(answer for answer in given if answer.candidate in gold)
    adjudications = _answers(adjudicated)
    weights = {}
    if settings.consensus == "weighted":
        weights = _weights(gold_answers, question, gold, claimed)
    about, ruled = _by_candidate(answers), _by_candidate(adjudications)
    outcomes = {
        key: consensus(
            about.get(key, ()),
            needed,
            settings.consensus,
            question=question,
            claimed=wnid,
            weights=weights,
            certainty=settings.certainty,
            adjudications=ruled.get(key, ()),
        )
        if key in about or key in ruled
        else Consensus(key, "waiting")
        for key, wnid in claimed.items()
        if key in wanted
    }
    withdrawn = {key: outcomes.pop(key) for key in gone & outcomes.keys()}
    return Reviewed(
        question, answers, gold_answers, gold, adjudications, claimed, outcomes, withdrawn
    )


def question_of(workspace: Workspace, connection: Connection) -> Question:
    """The question that answers are about: the one that people were asked, whatever rule the
    settings name since; before anybody was asked that of the settings."""
    return cast(Question, kept.question_asked(connection) or workspace.settings.filter.rule)


def answers_needed(workspace: Workspace) -> int:
    """How many different annotators each candidate needs: what a push said last, else that of the
    settings."""
    with workspace.catalogue.read() as connection:
        return _needed(connection, workspace.settings.review.overlap)


def remember_needed(workspace: Workspace, overlap: int) -> None:
    """Keep how many different annotators each candidate needs from now on."""
    with workspace.catalogue.write() as connection:
        facts.forget(connection, _OVERLAP)
        facts.remember(connection, _OVERLAP, str(overlap))


def rejected_keys(found: Reviewed) -> frozenset[str]:
    """The candidates that people have rejected: each frees its place under the cap."""
    return frozenset(key for key, what in found.outcomes.items() if what.status == "rejected")


def accepted(
    workspace: Workspace, run_id: str | None = None, found: Reviewed | None = None
) -> list[Accepted]:
    """The survivors of a run that people have accepted, in review order, within the run's cap.

    Where more were accepted than the cap lets in (a rejection that was taken back, or a run with a
    smaller cap) the first ones in the run's order stay. Candidates of a control sample that did not
    survive are never among them.

    Args:
        workspace: the workspace.
        run_id: a finished run; the newest one by default.
        found: what `reviewed` gives, where it is at hand.

    Raises:
        UnknownNameError, UsageError: no such run, none has ended, or this one has not.
    """
    run = finished_run(workspace, run_id)
    outcomes = (found or reviewed(workspace, run["id"])).outcomes
    keys = [key for key, what in outcomes.items() if what.status == "accepted"]
    with workspace.catalogue.read() as connection:
        rows = kept.survivors_among(connection, run["id"], keys)
        listed = within_cap(workspace, connection, run, list(rows.values()))
    return [Accepted(s.arrival, s.key, s.true, s.predicted, outcomes[s.key]) for s in listed]


def outcomes_of(workspace: Workspace, run_id: str) -> dict[str, Consensus]:
    """What people say of a run's candidates, by key, as far as enough of them have answered."""
    with workspace.catalogue.read() as connection:
        if not kept.any_asked(connection):
            return {}
    found = reviewed(workspace, run_id).outcomes
    return {key: what for key, what in found.items() if what.status != "waiting"}


def by_class(workspace: Workspace, run_id: str) -> dict[str, dict[str, int]]:
    """The funnel's stages `reviewed` and `accepted` of a run's survivors, by label.

    Reviewed is what enough people have answered, whatever they said.
    """
    with workspace.catalogue.read() as connection:
        if not kept.any_asked(connection):
            return {}
    found = reviewed(workspace, run_id)
    done = [key for key, what in found.outcomes.items() if what.status != "waiting"]
    with workspace.catalogue.read() as connection:
        survivors = kept.survivors_among(connection, run_id, done)
    counts: dict[str, dict[str, int]] = defaultdict(lambda: {"reviewed": 0, "accepted": 0})
    for row in survivors.values():
        counts[row["wnid"]]["reviewed"] += 1
    for one in accepted(workspace, run_id, found):
        counts[one.wnid]["accepted"] += 1
    return dict(counts)


def controls_among(
    connection: Connection, run_id: str | None, found: Reviewed
) -> tuple[set[str], set[str]]:
    """The candidates of control samples among the outcomes, and those of them that did not survive.

    Args:
        connection: a transaction.
        run_id: of a run's sample; None: of all samples, and survivors are those of the newest run.
        found: the outcomes.
    """
    control = kept.control_keys(connection, run_id) & found.outcomes.keys()
    if run_id is None and (newest := judging.newest_run(connection)) is not None:
        run_id = newest["id"]
    survived = kept.survivors_among(connection, run_id, control) if run_id else {}
    return control, control - survived.keys()


def review_counts(
    workspace: Workspace, run_id: str | None = None, found: Reviewed | None = None
) -> dict[str, Any]:
    """What people's answers add up to, counted.

    Args:
        workspace: the workspace.
        run_id: count this run's survivors and its control sample alone; else all that was ever
            given out.
        found: what `reviewed` gives for the same run, where it is at hand.

    Returns:
        `accepted`, `rejected` (by main reason), `disputed`, `waiting`; `control`, the same of the
        control samples (those of them that did not survive the filter count there alone);
        `agreement`: `raw`, `kappa` (its `kind` is cohen where two people answered, else fleiss),
        `ac1` and `alpha`, each with `value`, `low`, `high` (None where undefined) and `n`
        candidates; `set_aside`, answers that cannot be read; `warnings`, a line each about
        annotators.

    Raises:
        UnknownNameError, UsageError: no such run, or it has not ended.
    """
    from annotation.annotators import annotators

    found = found or reviewed(workspace, run_id)
    with workspace.catalogue.read() as connection:
        control, only_control = controls_among(connection, run_id, found)
        set_aside = kept.count_set_aside(connection)
    work = annotators(
        [*found.answers, *found.gold_answers],
        question=found.question,
        gold=found.gold,
        claimed=found.claimed,
    )
    return {
        **_counted(what for key, what in found.outcomes.items() if key not in only_control),
        "control": _counted(found.outcomes[key] for key in control),
        "agreement": agreement(
            [answer for answer in found.answers if answer.candidate in found.outcomes],
            found.question,
            found.claimed,
        ),
        "set_aside": set_aside,
        "warnings": [f"{one.annotator} {text}" for one in work for text in one.warnings],
    }


def _counted(outcomes: Iterable[Consensus]) -> dict[str, Any]:
    statuses: Counter[str] = Counter()
    reasons: Counter[Decision] = Counter()
    for what in outcomes:
        statuses[what.status] += 1
        if what.reason is not None:
            reasons[what.reason] += 1
    return {
        "accepted": statuses["accepted"],
        "rejected": {reason.value: reasons[reason] for reason in REASON_ORDER if reasons[reason]},
        "disputed": statuses["disputed"],
        "waiting": statuses["waiting"],
    }


def _needed(connection: Connection, default: int) -> int:
    return int(facts.recall(connection, _OVERLAP) or default)


def _answers(rows: Sequence[RowMapping]) -> tuple[Answer, ...]:
    """What each entry says now, oldest entry first; those that say nothing are left out.

    By the order in which they were pulled, not by their times: a server that was put back to an
    earlier state tells earlier ones.
    """
    last = {row["entry"]: row for row in rows}
    return tuple(
        Answer(
            row["candidate"],
            row["annotator"],
            Decision.SKIPPED if row["event"] == "skipped" else row["decision"],
            row["made"],
            row["entry"],
            tuple(row["reasons"]),
            row["corrected"],
            tuple(row["also"]),
            row["note"],
            row["seconds"],
        )
        for row in last.values()
        if row["event"] not in GONE
    )


def _by_candidate(answers: Iterable[Answer]) -> dict[str, list[Answer]]:
    found: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        found[answer.candidate].append(answer)
    return found


def _weights(
    answers: Sequence[Answer],
    question: Question,
    gold: Mapping[str, Decision],
    claimed: Mapping[str, str],
) -> dict[str, float]:
    from annotation.annotators import annotators

    work = annotators(answers, question=question, gold=gold, claimed=claimed)
    return {one.annotator: weight(one.gold_right, one.gold_asked) for one in work}
