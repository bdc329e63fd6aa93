"""What Label Studio hands over becomes an answer, or is set aside with its number."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from annotation.answers import DECISIONS, Decision, Question
from annotation.interface import NONE, OUTSIDE, REASONS, Purpose
from annotation.interface_taxonomy import groups
from annotation.parsing import LONGEST_NOTE, Parsed, Unusable, read_annotation
from curate.labels.space import load_label_space

SPACE = load_label_space("imagenet-a")
ONE, TWO, THREE = SPACE.wnids[:3]
GROUP = groups(SPACE)[0].key
QUESTIONS: tuple[Question, ...] = get_args(Question)
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)


def choices(name: str, *values: Any) -> dict[str, Any]:
    value = {"choices": list(values)}
    return {"from_name": name, "to_name": "image", "type": "choices", "value": value}


def taxonomy(name: str, *paths: Any) -> dict[str, Any]:
    value = {"taxonomy": [list(path) for path in paths]}
    return {"from_name": name, "to_name": "image", "type": "taxonomy", "value": value}


def note(*texts: str) -> dict[str, Any]:
    value = {"text": list(texts)}
    return {"from_name": "note", "to_name": "image", "type": "textarea", "value": value}


def annotation(*items: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": 7,
        "completed_by": 3,
        "unique_id": "5f0c7a2e-0000-4000-8000-000000000000",
        "was_cancelled": False,
        "lead_time": 4.5,
        "created_at": "2026-11-30T10:00:00.000000Z",
        "updated_at": "2026-11-30T10:00:05.250000Z",
        "result": list(items),
        **more,
    }


def read(
    *items: Any,
    question: Question = "misclassified",
    purpose: Purpose = "review",
    **more: Any,
) -> Parsed | Unusable:
    made = annotation(*items, **more)
    return read_annotation(made, question=question, space=SPACE, purpose=purpose)


def parsed(*items: Any, **more: Any) -> Parsed:
    found = read(*items, **more)
    assert isinstance(found, Parsed), found
    return found


def why(*items: Any, **more: Any) -> str:
    found = read(*items, **more)
    assert isinstance(found, Unusable), found
    assert found.number == 7
    return found.why


VALID = (choices("decision", "valid"), choices("also", NONE))


def test_a_valid_answer_says_all_that_it_holds() -> None:
    assert parsed(*VALID, note("clear")) == Parsed(
        number=7,
        account_id=3,
        decision=Decision.VALID,
        reasons=(),
        corrected=None,
        also=(),
        note="clear",
        seconds=4.5,
        made=datetime(2026, 11, 30, 10, 0, 5, 250000),
        picked=None,
        unique_id="5f0c7a2e-0000-4000-8000-000000000000",
    )


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_decision_of_its_question_is_read_and_no_other(question: Question) -> None:
    for decision in Decision:
        items = (choices("decision", decision.value), choices("also", NONE))
        found = read(*items, question=question)
        if decision in DECISIONS[question] and decision is not Decision.SKIPPED:
            assert isinstance(found, Parsed)
            assert found.decision is decision
        else:
            made = datetime(2026, 11, 30, 10, 0, 5, 250000)
            assert found == Unusable(7, "its decision is none of the page's", made)


def test_classes_that_are_also_there_are_sorted_and_each_once() -> None:
    decision = choices("decision", "valid")
    assert parsed(decision, choices("also", TWO, ONE)).also == (ONE, TWO)
    found = parsed(
        decision,
        choices("also", NONE),
        taxonomy("other", [GROUP, THREE]),
        question="outlier",
    )
    assert found.also == (THREE,)
    seen = choices("decision", "class-visible")
    found = parsed(seen, choices("also", ONE), taxonomy("other", [GROUP, ONE]), question="outlier")
    assert found.also == (ONE,)


def test_a_correction_and_reasons_go_with_their_decisions_alone() -> None:
    rest = (choices("reasons", "too-small"), taxonomy("corrected", [GROUP, TWO]))
    found = parsed(choices("decision", "wrong-label"), *rest, choices("also", ONE))
    assert (found.reasons, found.corrected, found.also) == (("too-small",), TWO, ())
    found = parsed(choices("decision", "unclear"), *rest)
    assert (found.reasons, found.corrected) == (("too-small",), None)
    found = parsed(*VALID, *rest)
    assert (found.reasons, found.corrected) == ((), None)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_valid_photo_may_be_outside_the_centre_crop(question: Question) -> None:
    outside, reasons = choices("centre", OUTSIDE), choices("reasons", "too-small", OUTSIDE)
    assert parsed(*VALID, outside, question=question).reasons == (OUTSIDE,)
    assert parsed(*VALID, choices("centre"), question=question).reasons == ()
    # What is ticked before another decision is hidden after it.
    assert parsed(*VALID, reasons, question=question).reasons == ()
    assert parsed(choices("decision", "unclear"), outside, question=question).reasons == ()
    # Nothing is hidden from an adjudicator.
    ruled = parsed(VALID[0], reasons, question=question, purpose="adjudication")
    assert ruled.reasons == (OUTSIDE,)
    told = why(*VALID, choices("centre", "too-small"), question=question)
    assert told == "it says of the centre crop what the page does not offer"


def test_a_group_corrects_nothing_and_is_not_taken_for_a_visible_class() -> None:
    assert (
        parsed(choices("decision", "wrong-label"), taxonomy("corrected", [GROUP])).corrected is None
    )
    told = why(*VALID, taxonomy("other", [GROUP]), question="outlier")
    assert told == "it names a group, no class"


def test_an_adjudicator_need_not_answer_the_follow_up() -> None:
    assert parsed(VALID[0], purpose="adjudication").also == ()
    several = choices("decision", "several-classes")
    assert parsed(several, choices("also", TWO), purpose="adjudication").also == (TWO,)
    assert why(VALID[0]) == "its follow-up is not answered"
    assert why(VALID[0], choices("also")) == "its follow-up is not answered"


@pytest.mark.parametrize("purpose", PURPOSES)
def test_a_skip_is_a_skip_whatever_else_it_holds(purpose: Purpose) -> None:
    for items in ((), VALID, (choices("odd", "x"),), (None,)):
        found = parsed(*items, was_cancelled=True, purpose=purpose)
        assert (found.decision, found.also, found.note) == (Decision.SKIPPED, (), "")


def test_a_blind_answer_picks_a_class_or_says_that_it_is_none() -> None:
    found = parsed(taxonomy("picked", [GROUP, TWO]), note("sure"), purpose="blind")
    assert (found.decision, found.picked, found.note) == (None, TWO, "sure")
    assert parsed(choices("unknown", NONE), purpose="blind").picked is None
    both = (taxonomy("picked", [GROUP, TWO]), choices("unknown", NONE))
    assert parsed(*both, purpose="blind").picked is None


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ((), "it picks no class"),
        ((taxonomy("picked", [GROUP]),), "it names a group, no class"),
        ((taxonomy("picked", [GROUP, ONE], [GROUP, TWO]),), "it picks two classes"),
        ((taxonomy("picked", [GROUP, "n00000000"]),), "it names an unknown class"),
        ((choices("unknown", "maybe"),), "it picks what the page does not offer"),
        ((choices("decision", "valid"),), "it answers what the page does not ask"),
    ],
)
def test_a_blind_answer_that_says_nothing_is_set_aside(items: Any, told: str) -> None:
    assert why(*items, purpose="blind") == told


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ((), "it has no decision"),
        ((choices("decision"),), "it has no decision"),
        ((choices("decision", "valid", "unclear"),), "it has two decisions"),
        ((*VALID, choices("decision", "valid")), "it has two items for decision"),
        ((choices("decision", "Valid"),), "its decision is none of the page's"),
        ((*VALID, choices("verdict", "valid")), "it answers what the page does not ask"),
        ((*VALID, taxonomy("other", [GROUP, ONE])), "it answers what the page does not ask"),
        ((*VALID, choices("picked", ONE)), "it answers what the page does not ask"),
        ((*VALID, choices("reasons", "bored")), "a reason is none of the page's"),
        ((VALID[0], choices("also", "n00000000")), "it names an unknown class"),
        ((VALID[0], choices("also", NONE, ONE)), "it names classes, and none of them"),
        ((VALID[0], choices("also", 5)), "its also holds something that is no text"),
        ((VALID[0], choices("also", *[ONE] * 99)), "its also is no short list"),
        ((VALID[0], taxonomy("also", [ONE])), "its also has another form"),
        ((VALID[0] | {"type": "labels"},), "its decision has another form"),
        ((VALID[0] | {"value": ["valid"]},), "its decision has another form"),
        ((VALID[0] | {"value": {"choices": "valid"}},), "its decision is no short list"),
        ((*VALID, taxonomy("corrected", [])), "its corrected is no list of paths"),
        ((*VALID, taxonomy("corrected", [GROUP, [ONE]])), "its corrected holds something"),
        ((*VALID, taxonomy("corrected", ["n00000000"])), "it names an unknown class"),
        ((*VALID, taxonomy("corrected", [ONE], [TWO])), "it has two corrected classes"),
        ((*VALID, note(5)), "its note holds something that is no text"),  # type: ignore[arg-type]
        ((None,), "an item of its result is no object"),
        ((*VALID, *[note()] * 60), "its result is no short list"),
    ],
)
def test_what_is_not_understood_is_set_aside(items: Any, told: str) -> None:
    assert why(*items).startswith(told)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("lead_time", math.nan, "its lead_time"),
        ("lead_time", math.inf, "its lead_time"),
        ("lead_time", -1, "its lead_time"),
        ("lead_time", 1e300, "its lead_time"),
        ("lead_time", 10**400, "its lead_time"),
        ("lead_time", True, "its lead_time"),
        ("lead_time", "4", "its lead_time"),
        ("completed_by", None, "who made it"),
        ("completed_by", {"email": "x"}, "who made it"),
        ("completed_by", 0, "who made it"),
        ("completed_by", 2**63, "who made it"),
        ("completed_by", True, "who made it"),
        ("updated_at", "yesterday", "it does not say when"),
        ("updated_at", "2026-11-30T10:00:05", "it does not say when"),
        ("updated_at", "0001-01-01T00:00:00+14:00", "it does not say when"),
        ("updated_at", 5, "it does not say when"),
        ("updated_at", "2" * 5000, "it does not say when"),
        ("unique_id", "", "its unique_id"),
        ("unique_id", "x" * 65, "its unique_id"),
        ("unique_id", 5, "its unique_id"),
        ("was_cancelled", 1, "its was_cancelled"),
        ("was_cancelled", "true", "its was_cancelled"),
        ("result", None, "its result"),
        ("result", {}, "its result"),
    ],
)
def test_a_field_of_another_kind_sets_the_answer_aside(field: str, value: Any, told: str) -> None:
    found = read_annotation(
        annotation(*VALID) | {field: value},
        question="misclassified",
        space=SPACE,
        purpose="review",
    )
    assert isinstance(found, Unusable)
    assert found.number == 7
    assert found.why.startswith(told)


def test_who_made_it_may_be_a_number_or_an_account() -> None:
    assert parsed(*VALID, completed_by={"id": 12, "email": "a@b.c"}).account_id == 12


def test_an_answer_without_times_takes_them_as_unknown() -> None:
    assert parsed(*VALID, lead_time=None).seconds is None
    found = parsed(*VALID, updated_at=None, unique_id=None, was_cancelled=None)
    assert (found.made, found.unique_id) == (datetime(2026, 11, 30, 10), None)


def test_a_note_is_bounded_and_loses_what_cannot_be_stored() -> None:
    assert parsed(*VALID, note("one\r\ntwo\x00\x1b[31m", "\u202ethree\ud800")).note == (
        "one\ntwo[31m\nthree"
    )
    assert parsed(*VALID, note("é" * 50_000)).note == "é" * LONGEST_NOTE
    assert parsed(*VALID, note("\x00" * 50_000)).note == ""
    (item,) = [note()]
    assert parsed(*VALID, item | {"value": {"text": "alone"}}).note == "alone"


@pytest.mark.parametrize("value", [None, 5, "text", [], [[]], {}, {"id": "7"}, {"id": True}])
def test_what_is_no_annotation_has_no_number(value: Any) -> None:
    found = read_annotation(value, question="misclassified", space=SPACE, purpose="review")
    assert isinstance(found, Unusable)
    assert found.number is None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["valid", "wrong-label", NONE, ONE, GROUP, *REASONS]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["choices", "taxonomy", "text", "id", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "from_name": st.sampled_from(["decision", "also", "centre", "other", "corrected", "note"])
        | JSON,
        "type": st.sampled_from(["choices", "taxonomy", "textarea"]) | JSON,
        "value": JSON,
    },
)


@settings(max_examples=300)
@given(
    JSON
    | st.fixed_dictionaries(
        {"id": st.just(7) | JSON},
        optional={
            "completed_by": st.just(3) | JSON,
            "was_cancelled": st.booleans() | JSON,
            "lead_time": st.floats() | JSON,
            "updated_at": st.just("2026-11-30T10:00:05Z") | st.text(max_size=30) | JSON,
            "unique_id": JSON,
            "result": st.lists(ITEM | JSON, max_size=5) | JSON,
        },
    ),
    st.sampled_from(QUESTIONS),
    st.sampled_from(PURPOSES),
)
@example(annotation(*VALID), "misclassified", "review")
@example(
    {"id": 7, "completed_by": 3, "updated_at": "9999-12-31T23:59:59-14:00"}, "outlier", "blind"
)
def test_any_json_gives_an_answer_or_is_set_aside(
    value: Any, question: Question, purpose: Purpose
) -> None:
    found = read_annotation(value, question=question, space=SPACE, purpose=purpose)
    if isinstance(found, Unusable):
        assert found.why.isprintable()
        return
    assert set(found.also) | ({found.corrected, found.picked} - {None}) <= set(SPACE.wnids)
    assert set(found.reasons) <= REASONS.keys()
    assert (found.decision is None) == (purpose == "blind" and found.decision != "skipped")
    assert found.decision is None or found.decision in DECISIONS[question]
    assert len(found.note) <= LONGEST_NOTE
    json.dumps(found.note, ensure_ascii=False).encode()


@given(
    st.sampled_from([d.value for d in DECISIONS["misclassified"] if d != "skipped"]),
    st.lists(st.sampled_from(sorted(REASONS)), unique=True),
    st.none() | st.sampled_from(SPACE.wnids),
    st.lists(st.sampled_from(SPACE.wnids), unique=True),
    st.floats(0, 1e6),
)
def test_what_the_page_can_say_is_read_back(
    decision: str, reasons: list[str], corrected: str | None, also: list[str], seconds: float
) -> None:
    items = [choices("decision", decision)]
    items += [choices("also", *also or [NONE])] if decision == "valid" else []
    items += [choices("reasons", *reasons)] if decision != "valid" and reasons else []
    if decision == "wrong-label" and corrected:
        items += [taxonomy("corrected", [GROUP, corrected])]
    found = parsed(*items, lead_time=seconds)
    assert found.decision == decision
    assert found.reasons == (tuple(reasons) if decision != "valid" else ())
    assert found.corrected == (corrected if decision == "wrong-label" else None)
    assert found.also == (tuple(sorted(also)) if decision == "valid" else ())
    assert found.seconds == seconds
