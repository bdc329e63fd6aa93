"""The pages' descriptions and the data of their tasks."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotation.answers import DECISIONS, Decision, Question
from annotation.interface import (
    NONE,
    OFFERED_KEYS,
    Purpose,
    adjudication_interface,
    blind_interface,
    review_interface,
)
from annotation.interface_taxonomy import MOST, entries, groups, taxonomy
from annotation.offered import offered
from annotation.task_data import EXAMPLES, Shown, task
from curate.errors import UnknownNameError
from curate.labels.classes import LabelClass, first_fault
from curate.labels.space import PRESETS, LabelSpace, load_label_space

SPACE = load_label_space("imagenet-1k")
SMALL = load_label_space("imagenet-a")
QUESTIONS: tuple[Question, ...] = get_args(Question)

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    '"/><Choice value="x',
    "</script><script>alert(1)</script>",
    "$claim",
    "$votes and ${image}",
    "&lt;b&gt; &amp; ]]>",
    "a / b",
    "\ud800 half",
    "\u202egpj",
    "x" * 5000,
]


def page_of(question: Question, space: LabelSpace, purpose: Purpose) -> str:
    if purpose == "blind":
        return blind_interface(space)
    make = review_interface if purpose == "review" else adjudication_interface
    return make(question, space)


def shown(item: LabelClass, text: str = "plain", **more: Any) -> Shown:
    boxes = [(0.25, 0.2, 0.5, 0.6), (0.0, 0.0, 0.5, 0.6)]
    fields = {"examples": [text], "boxes": boxes, "offered": [item], "votes": text} | more
    return Shown("c" * 32, f"/data/local-files/?d=images/{text}", item, **fields)


@pytest.mark.parametrize("purpose", get_args(Purpose))
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_task_holds_what_its_page_asks_for_and_nothing_else(
    question: Question, purpose: Purpose
) -> None:
    page = ElementTree.fromstring(page_of(question, SMALL, purpose))
    asked = {
        value[1:] for tag in page.iter() for value in tag.attrib.values() if value.startswith("$")
    }
    data = task(shown(SMALL.classes[3]), purpose)["data"]
    assert set(data) == asked | {"candidate"}
    assert json.loads(json.dumps(data)) == data


@pytest.mark.parametrize("question", QUESTIONS)
def test_decisions_have_the_keys_of_their_order_and_their_own_names(question: Question) -> None:
    for purpose in ("review", "adjudication"):
        page = ElementTree.fromstring(page_of(question, SMALL, purpose))
        (decision,) = page.iterfind(".//Choices[@name='decision']")
        expected = [d for d in DECISIONS[question] if d is not Decision.SKIPPED]
        assert [tag.get("alias") for tag in decision] == expected
        assert [tag.get("hotkey") for tag in decision] == list("123456"[: len(expected)])
        assert decision.get("required") == "true"


@pytest.mark.parametrize("purpose", get_args(Purpose))
@pytest.mark.parametrize("question", QUESTIONS)
def test_no_key_means_two_things(question: Question, purpose: Purpose) -> None:
    page = ElementTree.fromstring(page_of(question, SMALL, purpose))
    keys = [tag.get("hotkey", "") for tag in page.iter("Choice") if tag.get("hotkey")]
    if purpose != "blind":
        many = shown(SMALL.classes[0], offered=SMALL.classes[: len(OFFERED_KEYS)])
        keys += [each["hotkey"] for each in task(many, purpose)["data"]["offered"]]
    assert len(keys) == len(set(keys))
    # Label Studio has these for itself.
    assert not set(keys) & set("uvh")


def test_what_follows_a_decision_is_shown_after_it_alone_but_to_an_adjudicator() -> None:
    page = ElementTree.fromstring(review_interface("misclassified", SMALL))
    after = {
        child.get("name"): box.get("whenChoiceValue", "").split(",")
        for box in page.iterfind(".//View[@visibleWhen='choice-selected']")
        for child in box
        if child.get("name")
    }
    rejections = [d for d in DECISIONS["misclassified"] if d not in ("valid", "skipped")]
    assert after == {
        "corrected": ["wrong-label"],
        "also": ["valid"],
        "centre": ["valid"],
        "reasons": rejections,
    }
    page = ElementTree.fromstring(review_interface("outlier", SMALL))
    (box,) = page.iterfind(".//View[@whenChoiceValue='valid,class-visible']")
    assert [child.get("name") for child in box if child.get("name")] == ["also", "other"]
    for question in QUESTIONS:
        page = ElementTree.fromstring(adjudication_interface(question, SMALL))
        assert not page.findall(".//*[@visibleWhen]")
        assert not page.findall(".//*[@name='also'][@required]")
        assert page.findall(".//*[@name='reasons']/*[@alias='outside-centre']")


def test_the_same_classes_make_the_same_bytes() -> None:
    again = LabelSpace("again", SMALL.classes)
    for question in QUESTIONS:
        assert review_interface(question, SMALL) == review_interface(question, again)
    assert blind_interface(SMALL) == blind_interface(again)


def test_an_unknown_question_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="question 'odd'"):
        review_interface("odd", SMALL)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PRESETS)
def test_every_class_is_in_one_small_group(name: str) -> None:
    space = load_label_space(name)
    found = [item.wnid for group in groups(space) for item in group.classes]
    assert sorted(found) == sorted(space.wnids)
    assert all(0 < len(group.classes) <= MOST for group in groups(space))
    keys = [group.key for group in groups(space)]
    assert len(set(keys)) == len(keys)
    assert not set(keys) & set(space.wnids)


def test_the_thousand_classes_are_found_by_each_of_their_first_names() -> None:
    tag = taxonomy(SPACE, name="corrected")
    texts = {leaf.get("alias"): leaf.get("value", "") for group in tag for leaf in group}
    assert all(texts[item.wnid].startswith(item.name) for item in SPACE)
    assert texts["n02123045"] == "tabby, tabby cat"
    cranes = [texts[wnid] for wnid in ("n02012849", "n03126707")]
    assert len(set(cranes)) == 2


def test_no_two_entries_beside_each_other_are_alike() -> None:
    twins = [LabelClass(f"t{n}", "twin", parents=("thing",)) for n in range(100)]
    space = LabelSpace("twins", twins)
    tag = taxonomy(space, name="corrected")
    assert sum(len(group) for group in tag) == 100
    for beside in (tag, *tag):
        texts = [child.get("value") for child in beside]
        assert len(set(texts)) == len(texts)


NAMES = st.text(min_size=1, max_size=80) | st.sampled_from(HOSTILE)


@given(st.lists(NAMES, min_size=1, max_size=12), st.integers(0, 2**32))
def test_whatever_classes_are_called_is_text(names: list[str], seed: int) -> None:
    classes = [LabelClass(f"c{n}", name) for n, name in enumerate(names)]
    if first_fault(classes) is not None:
        return
    space = LabelSpace("own", classes)
    for question in QUESTIONS:
        page = ElementTree.fromstring(review_interface(question, space))
        leaves = [leaf for group in page.iterfind(".//Taxonomy/Choice") for leaf in group]
        assert {leaf.get("alias") for leaf in leaves} == set(space.wnids)
        assert not [leaf for leaf in leaves if re.search(r"^\$|\$\w", leaf.get("value", ""))]
        assert all(leaf.get("value") for leaf in leaves)
    told = entries(classes)
    assert len(set(told)) == len(told)


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_from_outside_is_more_than_text(text: str) -> None:
    item = LabelClass("own", text, (text, f"other {text}"), parents=(text,))
    plain = task(shown(LabelClass("own", "a", ("a", "b"), parents=("c",))), "adjudication")
    data = task(shown(item, text), "adjudication")["data"]
    for key in ("definition", "examples", "crops", "votes"):
        found, expected = Tags(data[key]), Tags(plain["data"][key])
        assert found.tags == expected.tags
        assert found.attributes == expected.attributes
    assert not [each for each in data["offered"] if re.search(r"^\$|\$[\w{]", each["value"])]
    assert len(json.dumps(data)) < 60_000
    json.dumps(data, ensure_ascii=False).replace("\\ud800", "").encode("utf-8", "replace")


def test_a_blind_task_holds_no_label_and_no_task_says_what_is_predicted() -> None:
    item = SMALL.classes[3]
    assert set(task(shown(item), "blind")["data"]) == {"candidate", "image"}
    predicted = SMALL.wnids[10:14]
    classes = [SMALL.get(w) for w in offered(predicted, item.wnid, SMALL, "c" * 32)]
    data = task(shown(item, offered=classes), "review")["data"]
    named = [each["alias"] for each in data["offered"]]
    assert named == [*(each.wnid for each in classes), NONE]
    told = json.dumps(data | {"offered": []})
    assert not [wnid for wnid in predicted if wnid in told]


def test_examples_are_few_and_may_be_none() -> None:
    item = SMALL.classes[0]
    many = task(shown(item, examples=[f"/{n}" for n in range(50)]), "review")["data"]
    assert many["examples"].count("<img") == EXAMPLES
    assert task(shown(item, examples=[]), "review")["data"]["examples"] == ""


def test_the_crops_are_drawn_in_their_places_the_centre_on_top() -> None:
    boxes = [(0.25, 0.125, 0.5, 0.75), (0.0, 0.0, 0.5, 0.75)]
    html = task(shown(SMALL.classes[0], boxes=boxes), "review")["data"]["crops"]
    places = re.findall(r"left:([\d.]+)%;top:([\d.]+)%;width:([\d.]+)%;height:([\d.]+)%", html)
    assert places == [
        ("0.00", "0.00", "50.00", "75.00"),
        ("25.00", "12.50", "50.00", "75.00"),
    ]
    assert task(shown(SMALL.classes[0], boxes=[]), "review")["data"]["crops"] == ""


@pytest.mark.parametrize(
    "box", [(0.5, 0, 0.6, 1), (-0.1, 0, 0.5, 1), (0, 0, 0, 1), (float("nan"), 0, 0.5, 0.5)]
)
def test_a_view_outside_the_photo_is_refused(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match="does not lie in the photo"):
        shown(SMALL.classes[0], boxes=[box])


def test_a_task_that_lacks_what_its_page_tells_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the class that is claimed"):
        task(Shown("c", "/image"), "review")
    with pytest.raises(ValueError, match="needs a candidate and an image"):
        Shown("c", "")
    with pytest.raises(ValueError, match="13 classes to offer, and 12 keys"):
        task(shown(SMALL.classes[0], offered=SMALL.classes[:13]), "review")
