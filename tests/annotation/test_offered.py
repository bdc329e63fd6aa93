"""The classes of the follow-up: predictions and others, and nothing that tells them apart."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotation.interface_taxonomy import groups
from annotation.offered import offered
from curate.errors import UnknownNameError
from curate.labels.classes import LabelClass
from curate.labels.overlaps import space_problems
from curate.labels.space import LabelSpace, load_label_space
from curate.labels.wordnet import wordnet

SPACE = load_label_space("imagenet-1k")
SMALL = load_label_space("imagenet-a")
KEYS = st.text(max_size=40)


@given(
    st.lists(st.sampled_from(SPACE.wnids), max_size=20),
    st.none() | st.sampled_from(SPACE.wnids) | st.just("n02084071"),
    KEYS,
    st.integers(0, 6),
    st.integers(6, 14),
)
def test_predictions_come_first_to_their_places_and_distractors_fill_up(
    predicted: list[str], claimed: str | None, key: str, distractors: int, most: int
) -> None:
    found = offered(predicted, claimed, SPACE, key, distractors, most)
    wanted = [wnid for wnid in dict.fromkeys(predicted) if wnid != claimed][: most - distractors]
    assert set(wanted) <= set(found) <= set(SPACE.wnids)
    assert claimed not in found
    assert len(found) == len(set(found)) == len(wanted) + distractors
    assert found == offered(predicted, claimed, SPACE, key, distractors, most)


@given(st.lists(st.sampled_from(SMALL.wnids), max_size=8), st.sampled_from(SMALL.wnids), KEYS)
def test_no_distractor_is_related_to_the_claimed_class(
    predicted: list[str], claimed: str, key: str
) -> None:
    net = wordnet()
    related = {claimed} | net.ancestors(claimed) | net.descendants(claimed) | net.linked(claimed)
    for wnid in set(offered(predicted, claimed, SMALL, key)) - set(predicted):
        assert wnid not in related


def test_no_distractor_looks_like_the_claimed_class_or_bears_its_name() -> None:
    pairs = [(p.wnid, p.other) for p in space_problems(SPACE) if p.other is not None]
    assert len(pairs) > 10
    for a, b in [*pairs, *((b, a) for a, b in pairs)]:
        # All that there is, so that whatever may be drawn is.
        assert b not in offered([], a, SPACE, "key", 900, 900)
        assert b in offered([b], a, SPACE, "key")


def test_part_and_whole_of_a_kind_are_related_as_well() -> None:
    cab, wheel = "n02930766", "n02974003"
    assert SPACE.name_of(cab) == "cab"
    assert SPACE.name_of(wheel) == "car wheel"
    assert wheel not in offered([], cab, SPACE, "key", 900, 900)
    assert cab not in offered([], wheel, SPACE, "key", 900, 900)


def test_a_concepts_own_kinds_are_no_distractors() -> None:
    dog = "n02084071"
    found = offered([], dog, SPACE, "key", 800, 800)
    assert not {wnid for wnid in found if dog in wordnet().ancestors(wnid)}


def test_the_order_depends_on_which_classes_there_are_and_not_on_their_nature() -> None:
    three = SPACE.wnids[10:13]
    for key in ("a", "b", "c"):
        found = offered(three, None, SPACE, key, 2, 12)
        for again in itertools.permutations(found, 3):
            drawn = offered(again, None, SPACE, key, 0, 12)
            assert drawn == tuple(wnid for wnid in found if wnid in again)


def test_predictions_are_in_every_place_equally_often() -> None:
    # Four of eight a key; the mean place of 2,000 is 3.5 ± 0.05.
    places = [
        found.index(wnid)
        for number in range(500)
        for found in [offered(SPACE.wnids[:8:2], None, SPACE, f"key {number}")]
        for wnid in SPACE.wnids[:8:2]
    ]
    assert sum(places) / len(places) == pytest.approx(3.5, abs=0.2)
    assert min(places.count(place) for place in range(8)) > 200


def test_distractors_are_of_the_predictions_kinds() -> None:
    kind = {item.wnid: group.key for group in groups(SPACE) for item in group.classes}
    terrier, car = "n02093428", "n02814533"
    found = offered([terrier, car], "n07753592", SPACE, "key")
    added = [kind[wnid] for wnid in found if wnid not in (terrier, car)]
    assert sorted(added) == sorted([kind[terrier], kind[car]] * 2)


def test_without_predictions_distractors_are_of_the_claimed_kind() -> None:
    kind = {item.wnid: group.key for group in groups(SPACE) for item in group.classes}
    tabby = "n02123045"
    assert {kind[wnid] for wnid in offered([], tabby, SPACE, "key")} == {kind[tabby]}


def test_a_label_space_that_has_no_more_offers_what_there_is() -> None:
    two = LabelSpace("two", [LabelClass("a", "a"), LabelClass("b", "b")])
    assert offered([], "a", two, "key") == ("b",)
    assert offered(["b"], "a", two, "key") == ("b",)
    assert offered([], "a", LabelSpace("one", [LabelClass("a", "a")]), "key") == ()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UnknownNameError):
        offered(["n00000000"], None, SPACE, "key")
    with pytest.raises(ValueError, match="5 distractors among at most 4"):
        offered([], None, SPACE, "key", 5, 4)
    with pytest.raises(ValueError, match="-1 distractors"):
        offered([], None, SPACE, "key", -1)
