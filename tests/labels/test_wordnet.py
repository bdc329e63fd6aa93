"""WordNet: what is a kind of what, and the table that says it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.labels.space import load_label_space
from curate.labels.wordnet import PERSON, Synset, wordnet

NET = wordnet()
SYNSETS = list(NET)
IMAGENET = load_label_space("imagenet-1k").wnids

DOG, TERRIER, CHIHUAHUA, DOMESTIC_CAT = "n02084071", "n02092468", "n02085620", "n02121808"

synsets = st.sampled_from(SYNSETS)
# The highest ones have 20,000 below them.
unhurried = settings(deadline=None)


# What holds for every synset


@unhurried
@given(synsets, synsets)
def test_what_is_not_above_a_synset_does_not_have_it_below(a: Synset, b: Synset) -> None:
    assert (a.wnid in NET.ancestors(b.wnid)) == (b.wnid in NET.descendants(a.wnid))


@unhurried
@given(synsets)
def test_all_above_a_synset_have_it_below_them(one: Synset) -> None:
    for above in NET.ancestors(one.wnid):
        assert one.wnid in NET.descendants(above)


@unhurried
@given(synsets)
def test_what_is_above_is_the_parents_and_what_is_above_them(one: Synset) -> None:
    told = set(one.parents)
    for parent in one.parents:
        told |= NET.ancestors(parent)
    assert NET.ancestors(one.wnid) == told


@unhurried
@given(synsets)
def test_part_and_whole_are_linked_both_ways(one: Synset) -> None:
    assert all(one.wnid in NET.linked(other) for other in NET.linked(one.wnid))


def test_nothing_is_above_itself() -> None:
    assert [one.wnid for one in SYNSETS if one.wnid in NET.ancestors(one.wnid)] == []


def test_everything_ends_in_the_one_root() -> None:
    roots = [one.names for one in SYNSETS if not one.parents]
    assert roots == [("entity",)]
    assert all(parent in NET for one in SYNSETS for parent in one.parents)
    assert all(part in NET for one in SYNSETS for part in one.parts)


# What WordNet 3.0 says


def test_118_of_the_thousand_classes_are_kinds_of_dog() -> None:
    assert len(NET.descendants(DOG) & set(IMAGENET)) == 118
    assert len(NET.descendants(TERRIER) & set(IMAGENET)) == 26
    assert len(NET.descendants(DOMESTIC_CAT) & set(IMAGENET)) == 5


def test_38_of_the_thousand_classes_have_several_parents() -> None:
    assert sum(len(NET[wnid].parents) > 1 for wnid in IMAGENET) == 38


def test_the_thousand_classes_are_called_and_placed_as_their_own_table_says() -> None:
    for item in load_label_space("imagenet-1k"):
        synset = NET[item.wnid]
        assert synset.in_imagenet
        assert synset.names[0] == item.name
        assert set(synset.names) == set(item.names)
        assert tuple(NET[parent].names[0] for parent in synset.parents) == item.parents


def test_a_synset_is_found_through_its_second_parent() -> None:
    # A dog is a canine, and a domestic animal.
    assert len(NET[DOG].parents) == 2
    assert {"n02083346", "n01317541"} <= NET.ancestors(CHIHUAHUA)


def test_a_bathtub_is_part_of_a_bathroom() -> None:
    bathroom, bathtub = "n02807731", "n02808440"
    assert bathtub in NET[bathroom].parts
    assert bathroom in NET.linked(bathtub)


def test_instances_count_as_kinds() -> None:
    (belt,) = NET.named("Kuiper belt")
    assert [NET[parent].names[0] for parent in belt.parents] == ["region"]


def test_people_are_told_from_things() -> None:
    assert NET.is_person(PERSON)
    assert NET.is_person("n09835506"), "ballplayer"
    assert not NET.is_person("n02088364"), "beagle"


def test_species_carry_their_scientific_name() -> None:
    assert NET["n01518878"].names[0] == "ostrich"
    assert NET["n01518878"].taxon == "Struthio camelus"
    assert NET[DOG].taxon == "Canis familiaris"
    assert NET["n02110185"].taxon is None, "Siberian husky: two words are no species"


def test_a_name_finds_all_that_bear_it_in_any_case() -> None:
    assert [one.wnid for one in NET.named("CRANE")] == ["n02012849", "n03126707"]
    assert NET.named("no such thing") == []


def test_an_unknown_id_is_a_key_error() -> None:
    for ask in (NET.ancestors, NET.descendants, NET.linked, NET.is_person):
        with pytest.raises(KeyError):
            ask("n99999999")


def test_the_table_holds_imagenet_21k_and_what_is_above_it() -> None:
    assert len(NET) == 23_548
    assert sum(one.in_imagenet for one in SYNSETS) == 21_844
    below = {above for one in SYNSETS if one.in_imagenet for above in NET.ancestors(one.wnid)}
    assert all(one.in_imagenet or one.wnid in below for one in SYNSETS)


def test_the_table_agrees_with_an_independent_one(shared_data: Path) -> None:
    with (shared_data / "wordnet_parents.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {one.wnid for one in SYNSETS} - {row["wnid"] for row in rows} == {"n09859684"}
    for row in rows:
        synset = NET[row["wnid"]]
        assert "; ".join(synset.names) == row["names"]
        assert set(synset.parents) == set(row["parents"].split())
