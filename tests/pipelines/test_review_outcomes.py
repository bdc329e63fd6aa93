"""What people's answers add up to, as everybody who asks gets to know it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select, update

from annotation.answers import Decision, standing
from curate.catalog import listing
from curate.catalog.review_tables import answers, review_projects
from curate.catalog.tables import now, runs
from curate.files import sha256_bytes
from pipelines.review_export import answer_rows
from pipelines.review_outcomes import (
    accepted,
    answers_needed,
    rejected_keys,
    remember_needed,
    review_counts,
    reviewed,
)
from pipelines.status import status
from tests.pipelines.reviewing import RUN, START, Rows, made_rows


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    made = made_rows(tmp_path / "w", 8, 6)
    yield made
    made.workspace.close()


def outcomes(rows: Rows) -> dict[int, str]:
    found = reviewed(rows.workspace).outcomes
    return {n: found[key].status for n, key in enumerate(rows.keys) if key in found}


def test_what_was_never_given_out_has_no_outcome_and_what_was_waits(rows: Rows) -> None:
    assert outcomes(rows) == {}
    rows.give([0, 1])
    rows.say(1, 0, "valid")
    assert outcomes(rows) == {0: "waiting", 1: "waiting"}
    rows.say(1, 1, "valid")
    assert outcomes(rows) == {0: "waiting", 1: "accepted"}
    assert reviewed(rows.workspace).claimed == {rows.keys[n]: rows.wnids[n] for n in (0, 1)}


def test_so_many_answers_are_needed_as_a_push_said_last(rows: Rows) -> None:
    rows.give([0, 1])
    rows.say(0, 0, "valid")
    assert outcomes(rows) == {0: "waiting", 1: "waiting"}
    remember_needed(rows.workspace, 1)
    assert outcomes(rows) == {0: "accepted", 1: "waiting"}
    remember_needed(rows.workspace, 3)
    rows.say(0, 1, "valid")
    assert answers_needed(rows.workspace) == 3
    assert outcomes(rows) == {0: "waiting", 1: "waiting"}


def test_two_people_accept_reject_and_differ(rows: Rows) -> None:
    rows.give([0, 1, 2, 3])
    for number, both in enumerate(
        (("valid",) * 2, ("unclear", "wrong-label"), ("valid", "unclear"))
    ):
        for person, decision in enumerate(both):
            rows.say(number, person, decision)
    rows.say(3, 0, "valid")
    rows.say(3, 1, "valid", also=[rows.workspace.label_space.wnids[9]])
    assert outcomes(rows) == {0: "accepted", 1: "rejected", 2: "disputed", 3: "disputed"}
    assert rejected_keys(reviewed(rows.workspace)) == {rows.keys[1]}
    counts = review_counts(rows.workspace)
    told = {name: counts[name] for name in ("accepted", "rejected", "disputed", "waiting")}
    assert told == {
        "accepted": 1,
        "rejected": {"wrong-label": 1},
        "disputed": 2,
        "waiting": 0,
    }


def test_answers_are_to_the_question_that_was_asked_whatever_rule_the_settings_name(
    rows: Rows,
) -> None:
    rows.give([0, 1])
    with rows.workspace.catalogue.write() as connection:
        connection.execute(update(review_projects).values(record={"question": "misclassified"}))
    for person in (0, 1):
        rows.say(0, person, "wrong-label", corrected=rows.wnids[1])
        rows.say(1, person, "several-classes")
    before = reviewed(rows.workspace)
    changed = rows.workspace.changed({"filter.rule": "outlier"})
    assert reviewed(changed) == before
    assert outcomes(rows) == {0: "rejected", 1: "rejected"}
    assert review_counts(changed) == review_counts(rows.workspace)
    assert list(answer_rows(changed)) == list(answer_rows(rows.workspace))


def test_an_edit_counts_instead_of_what_was_said_before(rows: Rows) -> None:
    rows.give([0])
    entry = rows.say(0, 0, "valid")
    rows.say(0, 1, "valid")
    rows.say(0, 0, "unclear", entry=entry, event="edited")
    assert outcomes(rows) == {0: "disputed"}


@pytest.mark.parametrize("event", ["deleted", "unusable"])
def test_an_entry_that_is_gone_or_cannot_be_read_any_more_says_nothing(
    rows: Rows, event: str
) -> None:
    rows.give([0])
    rows.say(0, 0, "unclear")
    rows.say(0, 1, "valid")
    second = rows.say(0, 0, "valid")
    assert outcomes(rows) == {0: "accepted"}
    rows.say(0, 0, "valid", entry=second, event=event)
    # What was said before it stands again.
    assert outcomes(rows) == {0: "disputed"}
    rows.say(0, 0, "valid", entry=second, event="edited")
    assert outcomes(rows) == {0: "accepted"}


def test_a_skip_takes_back_all_that_its_annotator_said(rows: Rows) -> None:
    rows.give([0])
    rows.say(0, 0, "valid")
    rows.say(0, 1, "valid")
    rows.say(0, 0, "skipped", event="skipped")
    assert outcomes(rows) == {0: "waiting"}


def test_gold_items_judge_annotators_and_have_no_outcome(rows: Rows) -> None:
    rows.set_gold(5, "wrong-label")
    rows.give([0, 5])
    rows.say(5, 0, "valid")
    rows.say(5, 1, "unclear")
    found = reviewed(rows.workspace)
    assert set(found.outcomes) == {rows.keys[0]}
    assert found.answers == ()
    assert {answer.candidate for answer in found.gold_answers} == {rows.keys[5]}
    assert found.gold == {rows.keys[5]: Decision.WRONG_LABEL}


def test_weighted_answers_weigh_by_gold_items(rows: Rows) -> None:
    for number in (4, 5):
        rows.set_gold(number, "wrong-label")
    rows.give([0, 4, 5])
    for number in (4, 5):
        rows.say(number, 0, "unclear")
        rows.say(number, 1, "valid")
    rows.say(0, 0, "valid")
    rows.say(0, 1, "unclear")
    assert outcomes(rows) == {0: "disputed"}
    rows.workspace = rows.workspace.changed({"review.consensus": "weighted"})
    assert outcomes(rows) == {0: "accepted"}


def test_an_adjudicator_decides_a_dispute(rows: Rows) -> None:
    rows.give([0])
    rows.say(0, 0, "valid")
    rows.say(0, 1, "unclear")
    rows.give([0], [None], "adjudication")
    entry = rows.say(0, 0, "unclear", purpose="adjudication")
    found = reviewed(rows.workspace).outcomes[rows.keys[0]]
    assert (found.status, found.reason, found.adjudicated) == ("rejected", "unclear", True)
    rows.say(0, 0, "unclear", purpose="adjudication", entry=entry, event="deleted")
    assert outcomes(rows) == {0: "disputed"}


def test_the_accepted_are_survivors_in_the_runs_order_within_its_cap(tmp_path: Path) -> None:
    rows = made_rows(tmp_path / "w", 8, 6, cap=3)
    rows.give(range(8))
    for number in range(8):
        for person in (0, 1):
            rows.say(number, person, "valid")
    found = accepted(rows.workspace)
    order = sorted(range(6), key=lambda n: sha256_bytes(f"0:{rows.keys[n]}".encode()))
    assert [one.key for one in found] == [rows.keys[n] for n in order[:3]]
    assert [one.candidate_id for one in found] == [rows.ids[n] for n in order[:3]]
    rows.workspace.close()


def test_the_control_sample_is_counted_apart(rows: Rows) -> None:
    rows.set_controls([5, 6, 7])
    rows.give(range(8))
    for number in range(8):
        for person in (0, 1):
            rows.say(number, person, "valid" if number < 7 else "unclear")
    counts = review_counts(rows.workspace)
    # The sixth survived the filter: it is of both.
    assert (counts["accepted"], counts["rejected"]) == (6, {})
    assert (counts["control"]["accepted"], counts["control"]["rejected"]) == (2, {"unclear": 1})
    assert review_counts(rows.workspace, RUN) == counts
    assert len(accepted(rows.workspace, RUN)) == 6


def test_of_a_run_its_own_control_sample_is_counted_alone(rows: Rows) -> None:
    other = "fedcba987654"
    with rows.workspace.catalogue.write() as connection:
        row = connection.execute(select(runs).where(runs.c.id == RUN)).mappings().one()
        connection.execute(insert(runs).values({**row, "id": other, "scores_run": other}))
        listing.set_controls(connection, other, [rows.ids[6]])
    rows.set_controls([7])
    rows.give(range(8))
    for number in range(8):
        for person in (0, 1):
            rows.say(number, person, "valid")
    told = {
        run: (counts["accepted"], counts["control"]["accepted"])
        for run in (None, RUN, other)
        for counts in [review_counts(rows.workspace, run)]
    }
    assert told == {None: (6, 2), RUN: (6, 1), other: (0, 1)}


def test_agreement_has_intervals_and_none_where_it_is_undefined(rows: Rows) -> None:
    nothing = review_counts(rows.workspace)["agreement"]
    assert nothing["raw"] == {"value": None, "low": None, "high": None, "n": 0}
    rows.give(range(6))
    for number in range(6):
        rows.say(number, 0, "valid")
        rows.say(number, 1, "valid" if number < 4 else "unclear")
    found = review_counts(rows.workspace)["agreement"]
    assert found["raw"]["value"] == pytest.approx(4 / 6)
    assert found["raw"]["n"] == 6
    assert found["raw"]["low"] <= found["raw"]["value"] <= found["raw"]["high"]
    assert found["kappa"]["kind"] == "cohen"
    assert found["kappa"]["value"] == pytest.approx(0.0)
    for number in range(3):
        rows.say(number, 2, "valid")
    assert review_counts(rows.workspace)["agreement"]["kappa"]["kind"] == "fleiss"


def test_the_funnel_tells_what_was_reviewed_and_accepted_by_class(tmp_path: Path) -> None:
    labels = made_labels()
    rows = made_rows(tmp_path / "w", 6, 4, labels=labels)
    assert status(rows.workspace)["funnel"]["reviewed"] == 0
    rows.set_controls([4])
    rows.give(range(6))
    for number, decision in enumerate(("valid", "unclear", "valid", "valid", "valid")):
        rows.say(number, 0, decision)
        rows.say(number, 1, decision if number != 2 else "unclear")
    funnel = status(rows.workspace)["funnel"]
    assert (funnel["reviewed"], funnel["accepted"]) == (4, 2)
    told = [(funnel["by_class"][w]["reviewed"], funnel["by_class"][w]["accepted"]) for w in labels]
    assert told == [(2, 1), (2, 1)]
    rows.workspace.close()


def made_labels() -> list[str]:
    from curate.labels.space import load_label_space

    return list(load_label_space("imagenet-a").wnids[:2])


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 2),
        st.sampled_from(["valid", "unclear", "skipped", "deleted", "unusable"]),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(EVENTS)
def test_what_stands_is_the_newest_entry_of_each_annotator_that_still_says_something(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[int, int, str]]
) -> None:
    from pipelines.review_outcomes import _answers

    rows = [
        {
            "candidate": "c",
            "annotator": f"annotator-{person}",
            "entry": f"{person}.{entry}",
            "event": what if what in ("skipped", "deleted", "unusable") else "answered",
            "decision": what if what in ("valid", "unclear") else "skipped",
            "reasons": [],
            "corrected": None,
            "also": [],
            "note": "",
            "seconds": None,
            "made": START + timedelta(seconds=place),
        }
        for place, (person, entry, what) in enumerate(told)
    ]
    found = {a.annotator: a.decision for a in standing(_answers(rows))}  # type: ignore[arg-type]
    for person in (0, 1):
        # By the words alone: entries as they are now, the newest first.
        now_: dict[int, tuple[int, str]] = {}
        for place, (who, entry, what) in enumerate(told):
            if who == person:
                now_[entry] = (place, what)
        left = sorted(v for v in now_.values() if v[1] not in ("deleted", "unusable"))
        expected = left[-1][1] if left and left[-1][1] != "skipped" else None
        assert found.get(f"annotator-{person}") == expected


def said_of_many(rows: Rows, count: int) -> None:
    """Give the first candidates to two people, and let both answer."""
    rows.give(range(count))
    said: list[dict[str, Any]] = []
    for person in (0, 1):
        project = rows.project("review", person)
        said += [
            {
                "key": sha256_bytes(f"{person} {number}".encode()),
                "entry": f"{person} {number}",
                "project_id": project,
                "task": number,
                "annotation": number,
                "candidate": rows.keys[number],
                "annotator_id": person + 1,
                "purpose": "review",
                "event": "answered",
                "decision": "valid" if (number * 7 + person) % 5 else "unclear",
                "reasons": ["blurred"],
                "corrected": None,
                "also": [],
                "picked": None,
                "note": "",
                "seconds": 3.0,
                "made": START + timedelta(seconds=number),
                "pulled": now(),
            }
            for number in range(count)
        ]
    with rows.workspace.catalogue.write() as connection:
        connection.execute(insert(answers), said)


@pytest.mark.slow
def test_ten_thousand_answers_add_up_in_a_second(tmp_path: Path) -> None:
    def seconds(what: Callable[[], Any]) -> float:
        taken = []
        for _ in range(3):
            started = time.process_time()
            what()
            taken.append(time.process_time() - started)
        return min(taken)

    rows = made_rows(tmp_path / "w", 5000, labels=made_labels(), cap=10_000)
    before = seconds(lambda: status(rows.workspace))
    said_of_many(rows, 5000)
    assert len(reviewed(rows.workspace).outcomes) == 5000
    alone = seconds(lambda: reviewed(rows.workspace))
    counted = seconds(lambda: review_counts(rows.workspace))
    funnel = seconds(lambda: status(rows.workspace)) - before
    print(f"reviewed {alone:.3f} s, counts {counted:.3f} s, status {funnel:.3f} s more")
    assert alone < 1.0
    # Twice as many answers as the funnel shall take 0.3 s for.
    assert funnel < 1.0
    rows.workspace.close()
