"""What speaks against concepts, and against two classes of one label space."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.labels.concepts import load_concepts
from curate.labels.overlaps import KINDS, OVERLAPS, Problem, Trained, space_problems
from curate.labels.space import PRESETS, LabelClass, LabelSpace, load_label_space
from curate.labels.wordnet import wordnet

CONCEPTS = load_concepts("wordnet")
THOUSAND = load_label_space("imagenet-1k")
TRAINED = Trained([THOUSAND])


def kinds(wnid: str) -> dict[str, str]:
    """Kind to severity of what speaks against a concept of WordNet."""
    return {problem.kind: problem.severity for problem in TRAINED.problems(CONCEPTS.get(wnid))}


def only(problems: list[Problem]) -> Problem:
    (problem,) = problems
    return problem


# The rule: outside every trained class, all above it and all below it


@pytest.mark.parametrize(
    ("wnid", "kind", "text"),
    [
        ("n02123394", "same", "n02123394 (Persian cat) is a trained class"),
        (
            "n02084071",
            "ancestor",
            "n02084071 (dog) is above 118 trained classes, such as n02085620 (Chihuahua)",
        ),
        (
            "n02691156",
            "ancestor",
            "n02691156 (airplane) is above the trained class n02690373 (airliner)",
        ),
        (
            "n07739125",
            "ancestor",
            "n07739125 (apple) is above the trained class n07742313 (Granny Smith)",
        ),
    ],
)
def test_a_trained_class_and_what_is_above_it_are_refused(wnid: str, kind: str, text: str) -> None:
    problem = only(TRAINED.problems(CONCEPTS.get(wnid)))
    assert (problem.kind, problem.severity, problem.text) == (kind, "refused", text)
    assert problem.other in THOUSAND


def test_what_is_below_a_trained_class_is_refused() -> None:
    problem = only(TRAINED.problems(CONCEPTS.match("silver fox")))
    assert (problem.kind, problem.severity, problem.other) == ("descendant", "refused", "n02119022")
    assert problem.text.endswith("(silver fox) is a kind of the trained class n02119022 (red fox)")


@pytest.mark.parametrize("wnid", ["n09391386", "n04528079", "n04576002", "n02420828"])
def test_a_good_concept_is_not_spoken_against(wnid: str) -> None:
    assert [p for p in TRAINED.problems(CONCEPTS.get(wnid)) if p.kind != "near"] == []


@settings(deadline=None)  # the highest ones have 20,000 below them
@given(st.sampled_from(CONCEPTS.classes))
def test_an_overlap_is_exactly_what_the_definition_says(concept: LabelClass) -> None:
    wnid, trained = concept.wnid, set(THOUSAND.wnids)
    above, below = wordnet().ancestors(wnid), wordnet().descendants(wnid)
    legal = wnid not in trained and not above & trained and not below & trained
    assert (TRAINED.overlap(concept) is None) == legal


def test_the_outputs_of_every_classifier_count() -> None:
    extra = LabelSpace("own.csv", [LabelClass("n02420828", "gerenuk")])
    assert TRAINED.overlap(CONCEPTS.get("n02420828")) is None
    assert Trained([THOUSAND, extra]).overlap(CONCEPTS.get("n02420828")) is not None
    assert Trained([extra]).overlap(CONCEPTS.get("n02123394")) is None


def test_own_trained_classes_stand_where_they_say() -> None:
    mine = Trained([LabelSpace("own.csv", [LabelClass("doggy", "doggy", wordnet=("n02084071",))])])
    found = mine.overlap(CONCEPTS.get("n02085620"))
    assert found is not None
    assert (found.kind, found.other) == ("descendant", "doggy")


# The user's own concepts


def test_an_own_concept_is_placed_by_what_it_says_it_is() -> None:
    hound = LabelClass("my-hound", "snoopy", wordnet=("n02088364",))
    assert only(TRAINED.problems(hound)).kind == "same"
    two = LabelClass("two", "two things", wordnet=("n04576002", "n02084071"))
    assert only(TRAINED.problems(two)).kind == "ancestor", "one place that overlaps is enough"


def test_an_own_concept_without_a_place_but_with_a_trained_name_is_taken_for_it() -> None:
    problem = only(TRAINED.problems(LabelClass("mine", "Persian-Cat")))
    assert (problem.kind, problem.severity, problem.other) == ("same", "refused", "n02123394")
    assert "name its WordNet id in the column wordnet" in problem.text


def test_an_own_concept_without_a_place_is_warned_of_with_what_it_may_be() -> None:
    problem = only(TRAINED.problems(LabelClass("dog", "dog")))
    assert (problem.kind, problem.severity) == ("unplaced", "warned")
    assert problem.text == (
        "dog has no place in WordNet: only its names are compared; the column wordnet may say that "
        "it is n02084071 (dog) or n02710044 (andiron)"
    )
    assert only(TRAINED.problems(LabelClass("snoopy", "Snoopy"))).text == (
        "snoopy (Snoopy) has no place in WordNet: only its names are compared"
    )


# What else speaks against a concept


def test_a_name_shared_with_a_trained_class_is_refused() -> None:
    assert kinds("n12607456") == {"shared-name": "refused", "part-or-whole": "warned"}, "pineapple"
    assert kinds("n01893825")["shared-name"] == "refused", "hedgehog: a name of the porcupine"


def test_people_are_refused() -> None:
    assert kinds("n10340312") == {"person": "refused"}


def test_a_part_or_whole_a_sibling_a_general_and_an_abstract_concept_are_warned_of() -> None:
    assert kinds("n02807731")["part-or-whole"] == "warned", "a bathroom has a bathtub"
    assert kinds("n02807616") == {"near": "warned"}, "bathrobe and abaya are robes"
    assert kinds("n13104059")["general"] == "warned", "tree"
    assert kinds("n01314388") == {"general": "warned"}, "pest: right below animal"
    assert kinds("n00433216")["abstract"] == "warned", "sport is an act"


def test_no_class_of_imagenet_is_too_general_for_a_concept() -> None:
    nothing = Trained([LabelSpace("own.csv", [LabelClass("none", "nothing")])])
    told = {p.kind for item in THOUSAND for p in nothing.problems(CONCEPTS.get(item.wnid))}
    assert "general" not in told


def test_every_problem_is_of_a_known_kind_and_has_a_sentence() -> None:
    found = [p for concept in CONCEPTS.classes[::7] for p in TRAINED.problems(concept)]
    assert {p.kind for p in found} <= KINDS.keys()
    assert all(p.severity == KINDS[p.kind][0] and p.wnid in p.text for p in found)
    assert all((p.other is None) == (p.other_name is None) for p in found)


# The counts of the whole of ImageNet-21k


@pytest.fixture(scope="module")
def everything() -> dict[str, list[Problem]]:
    return {
        concept.wnid: TRAINED.problems(concept)
        for concept in CONCEPTS
        if wordnet()[concept.wnid].in_imagenet
    }


def test_the_counts_of_imagenet_21k(everything: dict[str, list[Problem]]) -> None:
    legal = {w for w, found in everything.items() if not {p.kind for p in found} & {*OVERLAPS}}
    # ImageNet's release of autumn 2011 lacks three of the synsets: two of these are legal.
    assert len(legal) == 18_836 + 2
    counts = Counter(kind for wnid in legal for kind in {p.kind for p in everything[wnid]})
    assert counts["person"] == 2_815 + 1, "the third synset that it lacks is a person"
    assert counts["part-or-whole"] == 183
    assert counts["near"] == 4_013


def test_the_pool_of_legal_concepts_is_that_of_an_independent_count(
    everything: dict[str, list[Problem]], shared_data: Path
) -> None:
    with (shared_data / "ood_pool_fall11.csv").open(encoding="utf-8", newline="") as stream:
        pool = {row["wnid"]: row for row in csv.DictReader(stream)}
    assert len(pool) == 14_798
    bad = {kind for kind, (severity, _) in KINDS.items() if severity == "refused"}
    bad |= {"abstract", "part-or-whole"}
    good = {wnid for wnid, found in everything.items() if not {p.kind for p in found} & bad}
    assert good ^ pool.keys() == {"n03931044"}, "a picture, which came after autumn 2011"
    near = {wnid for wnid in pool if any(p.kind == "near" for p in everything[wnid])}
    assert near == {wnid for wnid, row in pool.items() if row["near_ood_shares_parent"] == "1"}
    assert len(pool) - len(near) == 10_998


# A label space against itself


def test_the_presets_of_the_paper_have_no_pair_that_is_hard_to_tell_apart() -> None:
    assert space_problems(load_label_space("imagenet-a")) == []
    assert space_problems(load_label_space("imagenet-o")) == []


def test_the_thousand_classes_have_shared_names_and_look_alikes_and_no_ancestors() -> None:
    found = space_problems(THOUSAND)
    counts = Counter(problem.kind for problem in found)
    assert counts == {"shared-name": 19, "look-alike": 30, "part-or-whole": 5}
    assert {problem.severity for problem in found} == {"warned"}
    names = [p.text for p in found if p.kind == "shared-name"]
    assert "n02012849 (crane) and n03126707 (crane) are both called 'crane'" in names


def test_a_class_above_another_is_refused() -> None:
    space = LabelSpace(
        "own.csv",
        [LabelClass("n02088364", "beagle"), LabelClass("n02084071", "dog"), LabelClass("x", "x")],
    )
    problem = only(space_problems(space))
    assert (problem.kind, problem.severity) == ("ancestor", "refused")
    assert (problem.wnid, problem.other) == ("n02084071", "n02088364")


def test_two_classes_of_one_synset_are_refused() -> None:
    space = LabelSpace(
        "own.csv",
        [LabelClass("n02084071", "dog"), LabelClass("hound", "hound", wordnet=("n02084071",))],
    )
    assert only(space_problems(space)).kind == "same"


def test_own_classes_that_share_a_name_are_warned_of() -> None:
    space = LabelSpace(
        "own.csv",
        [LabelClass("a", "Oak"), LabelClass("b", "quercus", ("oak",)), LabelClass("c", "c")],
    )
    problem = only(space_problems(space))
    assert (problem.kind, problem.severity) == ("shared-name", "warned")


@pytest.mark.parametrize("preset", PRESETS)
def test_look_alikes_are_classes_of_imagenet_each_pair_once(preset: str) -> None:
    pairs = [{p.wnid, p.other} for p in space_problems(load_label_space(preset))]
    assert all(pairs.count(pair) <= 3 for pair in pairs)
    look = [
        frozenset((p.wnid, p.other)) for p in space_problems(THOUSAND) if p.kind == "look-alike"
    ]
    assert len(look) == len(set(look)) == 30
