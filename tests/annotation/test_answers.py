from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotation.answers import DECISIONS, Answer, Decision, Question, standing, table
from curate.errors import UnknownNameError
from curate.metrics import krippendorff_alpha

NOON = datetime(2026, 3, 1, 12)
SAID = Answer("c1", "anna", Decision.VALID, NOON, "e1")


def test_every_decision_answers_some_question_and_the_two_that_accept_or_skip_answer_both() -> None:
    assert {d for decisions in DECISIONS.values() for d in decisions} == set(Decision)
    for question in get_args(Question):
        assert {Decision.VALID, Decision.SKIPPED} <= set(DECISIONS[question])
    assert Decision.CLASS_VISIBLE not in DECISIONS["misclassified"]
    assert Decision.WRONG_LABEL not in DECISIONS["outlier"]


def test_a_decision_is_known_by_its_name_and_an_unknown_one_is_refused() -> None:
    assert Answer("c1", "anna", "not-a-photo", NOON, "e1").decision is Decision.NOT_A_PHOTO  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="unknown decision 'wrong-lable'.*wrong-label"):
        replace(SAID, decision="wrong-lable")


def test_times_are_utc_without_zone() -> None:
    east = timezone(timedelta(hours=5))
    assert replace(SAID, made=datetime(2026, 3, 1, 17, tzinfo=east)) == SAID
    assert replace(SAID, made=datetime(2026, 3, 1, 12, tzinfo=UTC)) == SAID


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"candidate": ""}, "an answer needs candidate"),
        ({"annotator": ""}, "an answer needs annotator"),
        ({"entry": ""}, "an answer needs entry"),
        ({"also": "n07"}, "also is 'n07': expected a list of words"),
        ({"seconds": -1.0}, "took -1.0 seconds"),
        ({"seconds": math.nan}, "took nan seconds"),
        ({"seconds": math.inf}, "took inf seconds"),
    ],
)
def test_bad_entries_are_named(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        replace(SAID, **change)


def test_a_valid_photo_with_another_class_in_view_counts_as_several_classes() -> None:
    said = replace(SAID, also=("n02", "n01", "n02"))
    assert said.counts_as("misclassified", "n01") is Decision.SEVERAL_CLASSES
    assert said.counts_as("outlier") is Decision.CLASS_VISIBLE
    assert said.others("n01") == ("n02",)
    # The weak label itself is no other class.
    assert replace(SAID, also=("n01",)).counts_as("misclassified", "n01") is Decision.VALID
    assert replace(said, decision="unclear").counts_as("misclassified") is Decision.UNCLEAR


def test_an_answer_to_another_question_is_refused() -> None:
    with pytest.raises(ValueError, match=r"anna answered wrong-label of c1, .* rule outlier"):
        replace(SAID, decision="wrong-label").counts_as("outlier")
    with pytest.raises(UnknownNameError, match="unknown question 'outliers'; did you mean outlier"):
        SAID.counts_as("outliers")  # type: ignore[arg-type]


ANSWERS = st.lists(
    st.builds(
        Answer,
        candidate=st.sampled_from(["c1", "c2"]),
        annotator=st.sampled_from(["anna", "ben", "cleo"]),
        decision=st.sampled_from(Decision),
        made=st.integers(0, 3).map(lambda n: NOON + timedelta(seconds=n)),
        entry=st.sampled_from(["e1", "e2"]),
        note=st.sampled_from(["", "a"]),
        seconds=st.sampled_from([None, 1.0]),
    ),
    max_size=12,
)


@given(ANSWERS, st.randoms(use_true_random=False))
def test_the_newest_entry_of_each_annotator_stands_in_whatever_order_they_come(
    answers: list[Answer], shuffle: Random
) -> None:
    found = standing(answers)
    shuffled = list(answers)
    shuffle.shuffle(shuffled)
    assert standing(shuffled) == found
    assert standing(found) == found
    for candidate, annotator in {(a.candidate, a.annotator) for a in answers}:
        mine = [a for a in answers if (a.candidate, a.annotator) == (candidate, annotator)]
        stands = [a for a in found if (a.candidate, a.annotator) == (candidate, annotator)]
        last = max(a.made for a in mine)
        assert len(stands) <= 1
        if stands:
            assert stands[0].made == last
            assert stands[0].decision is not Decision.SKIPPED
        else:
            assert any(a.made == last and a.decision is Decision.SKIPPED for a in mine)


def test_a_skip_takes_back_what_was_answered_and_a_later_answer_stands_again() -> None:
    skipped = replace(SAID, decision="skipped", made=NOON + timedelta(seconds=1))
    again = replace(SAID, decision="unclear", made=NOON + timedelta(seconds=2))
    assert standing([SAID, skipped]) == []
    assert standing([SAID, skipped, again]) == [again]


def test_the_table_of_answers_is_what_measures_of_agreement_read() -> None:
    ben, cleo = replace(SAID, annotator="ben", decision="unclear"), replace(SAID, annotator="cleo")
    both = replace(cleo, candidate="c0", also=("n07",))
    skipped = replace(ben, candidate="c0", decision="skipped")
    answers = [cleo, both, skipped, SAID, ben]
    assert table(answers, claimed={"c1": "n01"}) == [
        [None, None, Decision.SEVERAL_CLASSES],
        [Decision.VALID, Decision.UNCLEAR, Decision.VALID],
    ]
    assert krippendorff_alpha(table(answers), resamples=1).answers == 3
    assert table([skipped]) == []
