from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotation.answers import DECISIONS, Answer, Decision
from annotation.consensus import REASON_ORDER, Consensus, consensus, weight
from curate.choices import Voting
from curate.errors import UnknownNameError

NOON = datetime(2026, 3, 1, 12)
VOTINGS = get_args(Voting)


def said(*decisions: str, **more: Any) -> list[Answer]:
    """An answer of a different annotator each: a0, a1, …"""
    return [
        Answer("c", f"a{i}", Decision(d), NOON, f"e{i}", **more) for i, d in enumerate(decisions)
    ]


@pytest.mark.parametrize(
    ("decisions", "voting", "status", "reason"),
    [
        (["valid"], "unanimous", "waiting", None),
        (["valid", "skipped"], "unanimous", "waiting", None),
        (["valid", "valid"], "unanimous", "accepted", None),
        (["valid", "unclear"], "unanimous", "disputed", None),
        (["unclear", "wrong-label"], "unanimous", "rejected", "wrong-label"),
        (["unclear", "unclear", "wrong-label"], "unanimous", "rejected", "unclear"),
        (["valid", "valid", "unclear"], "unanimous", "disputed", None),
        (["valid", "valid", "unclear"], "majority", "accepted", None),
        (["valid", "unclear", "not-a-photo"], "majority", "rejected", "not-a-photo"),
        (["valid", "unclear"], "majority", "disputed", None),
        (["valid", "unclear"], "weighted", "disputed", None),
        (["valid", "valid", "unclear"], "weighted", "accepted", None),
    ],
)
def test_what_answers_add_up_to(
    decisions: list[str], voting: Voting, status: str, reason: str | None
) -> None:
    found = consensus(said(*decisions), 2, voting)
    assert (found.status, found.reason) == (status, reason)


def test_every_rejecting_decision_has_its_place_in_the_order_of_reasons() -> None:
    rejecting = set(Decision) - {Decision.VALID, Decision.SKIPPED}
    assert set(REASON_ORDER) == rejecting
    assert len(REASON_ORDER) == len(rejecting)


def test_no_answer_at_all_waits() -> None:
    assert consensus([], 2) == Consensus("", "waiting")


def test_one_annotator_never_counts_twice() -> None:
    first, second = said("valid", "valid")
    again = replace(first, entry="e9", made=NOON + timedelta(hours=1))
    assert consensus([first, again], 2).status == "waiting"
    changed = replace(again, decision=Decision.UNCLEAR)
    assert consensus([first, second, changed], 2).status == "disputed"


def test_a_valid_photo_with_another_class_in_view_is_rejected_for_several_classes() -> None:
    answers = said("valid", "valid", also=("n07", "n01"))
    found = consensus(answers, 2, claimed="n01")
    assert (found.status, found.reason) == ("rejected", "several-classes")
    assert found.also == ("n07",)
    assert found.votes == {Decision.SEVERAL_CLASSES: 2}
    outlier = consensus(answers, 2, question="outlier")
    assert (outlier.reason, outlier.also) == ("class-visible", ("n01", "n07"))


def test_a_corrected_label_needs_all_who_name_one_to_agree() -> None:
    first, second, third = said("wrong-label", "wrong-label", "wrong-label")
    named = replace(first, corrected="n05")
    assert consensus([named, second, third], 3).corrected == "n05"
    assert consensus([named, replace(second, corrected="n05"), third], 3).corrected == "n05"
    assert consensus([named, replace(second, corrected="n06"), third], 3).corrected is None
    # What the form kept from before the decision was changed names nothing.
    stale = replace(second, decision=Decision.UNCLEAR, corrected="n06")
    assert consensus([named, third, stale], 3).corrected == "n05"
    # No new candidate of a photo that is rejected for another reason.
    _, fourth, fifth = said("valid", "unclear", "unclear")
    assert consensus([named, fourth, fifth], 3).corrected is None


def test_an_adjudicator_decides_alone_and_may_change_their_mind() -> None:
    answers = said("valid", "unclear")
    ruled = Answer("c", "lead", Decision.WRONG_LABEL, NOON, "r1", corrected="n05")
    found = consensus(answers, 2, adjudications=[ruled])
    assert (found.status, found.reason, found.corrected) == ("rejected", "wrong-label", "n05")
    assert found.adjudicated
    assert found.votes == {Decision.VALID: 1, Decision.UNCLEAR: 1}
    later = Answer("c", "other lead", Decision.VALID, NOON + timedelta(seconds=1), "r2")
    assert consensus(answers, 2, adjudications=[later, ruled]).status == "accepted"
    assert consensus([], 2, adjudications=[ruled]).status == "rejected"
    taken_back = replace(later, decision=Decision.SKIPPED)
    undone = consensus(answers, 2, adjudications=[ruled, taken_back])
    assert (undone.status, undone.adjudicated) == ("disputed", False)


def test_one_person_may_have_answered_and_adjudicate() -> None:
    answers = said("valid", "unclear")
    ruled = Answer("c", "a1", Decision.VALID, NOON, "r1")
    found = consensus(answers, 2, adjudications=[ruled])
    assert (found.status, found.votes[Decision.UNCLEAR]) == ("accepted", 1)


def test_weights_are_log_odds_of_smoothed_gold_accuracy() -> None:
    assert weight(0, 0) == pytest.approx(math.log(4))
    assert weight(20, 20) == pytest.approx(math.log(24))
    assert weight(0, 20) == weight(6, 15) == 0.0 < weight(7, 15)
    with pytest.raises(ValueError, match="3 of 2 gold items right"):
        weight(3, 2)


def test_the_same_weights_on_both_sides_are_a_dispute() -> None:
    answers = said("valid", "valid", "valid", "unclear", "unclear", "unclear")
    weights = {"a0": 0.1, "a1": 0.2, "a2": 0.3, "a3": 0.3, "a4": 0.2, "a5": 0.1}
    assert consensus(answers, 6, "weighted", weights=weights).status == "disputed"


@settings(deadline=None)
@given(st.integers(0, 500), st.data())
def test_a_weight_grows_with_each_gold_item_right_and_falls_with_each_one_wrong(
    asked: int, data: st.DataObject
) -> None:
    right = data.draw(st.integers(0, asked))
    assert 0.0 <= weight(right, asked + 1) <= weight(right, asked) <= weight(right + 1, asked + 1)


def test_a_trusted_annotator_outweighs_two_who_err_often() -> None:
    answers = said("valid", "unclear", "unclear")
    weights = {"a0": weight(40, 40), "a1": weight(12, 20), "a2": weight(12, 20)}
    assert consensus(answers, 3, "majority").status == "rejected"
    assert consensus(answers, 3, "weighted", weights=weights).status == "accepted"
    # 41 to 1 against 16/9 twice over: odds of 14.
    within = consensus(answers, 3, "weighted", weights=weights, certainty=0.9)
    beyond = consensus(answers, 3, "weighted", weights=weights, certainty=0.95)
    assert (within.status, beyond.status) == ("accepted", "disputed")


def test_the_main_reason_is_that_with_most_weight() -> None:
    answers = said("not-a-photo", "not-a-photo", "unclear")
    weights = {"a0": 0.5, "a1": 0.5, "a2": 2.0}
    assert consensus(answers, 3, "weighted", weights=weights).reason == "unclear"
    assert consensus(answers, 3, "majority").reason == "not-a-photo"


def test_who_is_wrong_half_the_time_has_no_say() -> None:
    found = consensus(said("valid", "valid"), 2, "weighted", weights={"a0": 0.0, "a1": 0.0})
    assert found.status == "disputed"


ANSWERS = st.lists(
    st.builds(
        Answer,
        candidate=st.just("c"),
        annotator=st.sampled_from(["a0", "a1", "a2", "a3", "a4"]),
        decision=st.sampled_from(DECISIONS["misclassified"]),
        made=st.integers(0, 2).map(lambda n: NOON + timedelta(seconds=n)),
        entry=st.sampled_from(["e1", "e2", "e3"]),
        corrected=st.sampled_from([None, "n05", "n06"]),
        also=st.sampled_from([(), (), (), ("n07",)]),
    ),
    max_size=10,
)
WEIGHTS = st.dictionaries(st.sampled_from(["a0", "a1", "a2"]), st.floats(0, 4))
RULES = {"voting": st.sampled_from(VOTINGS), "needed": st.integers(1, 4), "weights": WEIGHTS}


@settings(deadline=None)
@given(ANSWERS, ANSWERS, st.fixed_dictionaries(RULES), st.randoms(use_true_random=False))
def test_the_order_of_answers_never_matters(
    answers: list[Answer], rulings: list[Answer], rule: dict[str, Any], shuffle: Random
) -> None:
    found = consensus(answers, adjudications=rulings, **rule)
    shuffle.shuffle(answers)
    shuffle.shuffle(rulings)
    again = consensus(answers, adjudications=rulings, **rule)
    assert again == found


@settings(deadline=None)
@given(ANSWERS, st.fixed_dictionaries(RULES))
def test_another_answer_that_agrees_never_turns_a_consensus_over(
    answers: list[Answer], rule: dict[str, Any]
) -> None:
    found = consensus(answers, **rule)
    if found.status == "accepted":
        more = Answer("c", "new", Decision.VALID, NOON, "e9")
    elif found.status == "rejected":
        assert found.reason is not None
        more = Answer("c", "new", found.reason, NOON, "e9")
    else:
        return
    after = consensus([*answers, more], **rule)
    assert (after.status, after.reason) == (found.status, found.reason)


@settings(deadline=None)
@given(ANSWERS, st.fixed_dictionaries(RULES))
def test_a_unanimous_consensus_is_one_of_the_majority_too(
    answers: list[Answer], rule: dict[str, Any]
) -> None:
    rule["voting"] = "unanimous"
    strict = consensus(answers, **rule)
    loose = consensus(answers, **{**rule, "voting": "majority"})
    if strict.status != "disputed":
        assert loose == strict


@settings(deadline=None)
@given(ANSWERS, st.fixed_dictionaries(RULES))
def test_a_result_is_whole(answers: list[Answer], rule: dict[str, Any]) -> None:
    found = consensus(answers, **rule)
    assert (found.reason is not None) == (found.status == "rejected")
    assert (found.status == "waiting") == (sum(found.votes.values()) < rule["needed"])
    if found.reason is not None:
        assert found.votes[found.reason] > 0
    if found.corrected is not None:
        assert found.reason is Decision.WRONG_LABEL
    if found.status == "accepted":
        assert found.votes[Decision.VALID] > 0


@pytest.mark.parametrize(
    ("answers", "options", "fault"),
    [
        (said("valid"), {"needed": 0}, "0 answers are needed"),
        (said("valid"), {"certainty": 1.0}, "certainty is 1.0"),
        (said("valid"), {"certainty": 0.4}, "certainty is 0.4"),
        (
            said("valid"),
            {"voting": "weighted", "weights": {"a0": -1.0}},
            "the weight of a0 is -1.0",
        ),
        (
            said("valid"),
            {"voting": "weighted", "weights": {"a0": math.nan}},
            "the weight of a0 is nan",
        ),
        (
            [*said("valid"), replace(said("valid")[0], candidate="d")],
            {},
            "answers about several candidates: c, d",
        ),
        (said("class-visible"), {}, "a0 answered class-visible of c"),
    ],
)
def test_bad_input_is_named(answers: list[Answer], options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        consensus(answers, **{"needed": 1, **options})


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(
        UnknownNameError, match="unknown consensus rule 'majorty'; did you mean maj"
    ):
        consensus([], 1, "majorty")  # type: ignore[arg-type]


def test_a_candidate_that_everybody_skipped_waits_under_its_name() -> None:
    assert consensus(said("skipped", "skipped"), 2) == Consensus("c", "waiting")
