from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotation.annotators import Annotator, annotators
from annotation.answers import Answer, Decision
from annotation.consensus import weight
from curate.metrics import clopper_pearson

NOON = datetime(2026, 3, 1, 12)


def said(who: str, decisions: Iterable[str], seconds: float | None = None) -> list[Answer]:
    return [
        Answer(f"c{i}", who, Decision(d), NOON, f"{who}{i}", seconds=seconds)
        for i, d in enumerate(decisions)
    ]


def only(answers: list[Answer], who: str = "anna", **options: Any) -> Annotator:
    (found,) = [a for a in annotators(answers, **options) if a.annotator == who]
    return found


def test_an_annotators_work_is_counted() -> None:
    answers = said("anna", ["valid", "unclear", "valid", "skipped", "valid", "wrong-label"])
    answers = [replace(a, seconds=float(i)) for i, a in enumerate(answers)]
    gold = {"c0": Decision.VALID, "c1": Decision.NOT_A_PHOTO, "c4": Decision.UNCLEAR}
    found = only(answers, gold=gold)
    assert (found.answers, found.skipped) == (5, 1)
    # Gold items stand apart; one rejected for another reason is rejected all the same.
    assert (found.accepted, found.judged) == (1, 2)
    assert (found.gold_right, found.gold_asked) == (2, 3)
    assert found.accept_rate == 0.5
    assert found.accept_interval == clopper_pearson(1, 2, 0.95)
    assert found.gold_accuracy == pytest.approx(2 / 3)
    assert found.gold_interval == clopper_pearson(2, 3, 0.95)
    assert found.median_seconds == 2.0
    assert weight(found.gold_right, found.gold_asked) == pytest.approx(1.0986, abs=1e-4)


def test_where_there_is_nothing_to_count_there_is_no_share() -> None:
    found = only(said("anna", ["skipped", "skipped"], 1.0))
    assert (found.answers, found.skipped) == (0, 2)
    assert found.accept_rate is found.gold_accuracy is found.median_seconds is None
    assert found.accept_interval is found.gold_interval is None
    assert annotators([]) == []


def test_an_edited_answer_counts_once_and_a_skip_takes_it_back() -> None:
    (first,) = said("anna", ["valid"])
    edited = replace(first, decision=Decision.UNCLEAR, made=NOON + timedelta(seconds=1))
    assert (only([edited, first]).answers, only([edited, first]).accepted) == (1, 0)
    taken = replace(first, decision=Decision.SKIPPED, made=NOON + timedelta(seconds=2))
    assert (only([first, edited, taken]).answers, only([first, edited, taken]).skipped) == (0, 1)


def test_a_valid_photo_with_another_class_in_view_is_not_accepted() -> None:
    answers = [replace(a, also=("n07",)) for a in said("anna", ["valid", "valid"])]
    assert only(answers).accepted == 0
    assert only(answers, claimed={"c0": "n07"}).accepted == 1


def test_who_accepts_nearly_all_is_warned_of() -> None:
    careful = said("ben", ["valid", "unclear"] * 50)
    all_of = said("anna", ["valid"] * 72)
    (warning,) = only([*all_of, *careful]).warnings
    assert warning == "accepts nearly all: 72 of 72; the others accepted 50 of 100"
    assert only([*all_of, *careful], "ben").warnings == ()
    # The lower end of 71 of 71 is below 0.95.
    assert only([*all_of[:71], *careful]).warnings == ()
    # Alone there is nobody to compare with, and it is as odd.
    assert only(all_of).warnings == ("accepts nearly all: 72 of 72",)


def test_where_all_accept_nearly_all_it_is_the_photos() -> None:
    answers = [*said("anna", ["valid"] * 200), *said("ben", ["valid"] * 199 + ["unclear"])]
    assert all(not found.warnings for found in annotators(answers))


def test_who_is_far_faster_than_the_others_is_warned_of() -> None:
    usual = [*said("ben", ["unclear"] * 15, 9.0), *said("cleo", ["unclear"] * 15, 12.0)]
    fast = said("anna", ["unclear"] * 20, 2.0)
    assert only([*fast, *usual]).warnings == (
        "is far faster than the others: a median of 2.0 s against 10.5 s",
    )
    assert only([*fast, *usual], "ben").warnings == ()
    assert only([*fast[:19], *usual]).warnings == ()
    assert only([*fast, *usual[:19]]).warnings == ()
    assert only([*said("anna", ["unclear"] * 20, 3.5), *usual]).warnings == ()
    assert only([*said("anna", ["unclear"] * 20), *usual]).warnings == ()


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            Answer,
            candidate=st.sampled_from(["c1", "c2", "c3"]),
            annotator=st.sampled_from(["anna", "ben"]),
            decision=st.sampled_from(["valid", "unclear", "skipped"]),
            made=st.integers(0, 3).map(lambda n: NOON + timedelta(seconds=n)),
            entry=st.sampled_from(["e1", "e2"]),
            seconds=st.sampled_from([None, 1.0, 2.0]),
        ),
        max_size=15,
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_of_answers_does_not_matter_and_counts_add_up(
    answers: list[Answer], shuffle: Random
) -> None:
    found = annotators(answers, gold={"c1": Decision.VALID})
    assert [a.annotator for a in found] == sorted({a.annotator for a in answers})
    for one in found:
        assert one.answers == one.judged + one.gold_asked
        mine = {a.candidate for a in answers if a.annotator == one.annotator}
        assert one.answers + one.skipped == len(mine)
        assert 0 <= one.accepted <= one.judged
        assert 0 <= one.gold_right <= one.gold_asked
    shuffle.shuffle(answers)
    assert annotators(answers, gold={"c1": Decision.VALID}) == found


def test_an_answer_to_another_question_is_refused() -> None:
    with pytest.raises(ValueError, match="no answer to the question of the rule outlier"):
        annotators(said("anna", ["wrong-label"]), question="outlier")
