"""Concepts: those of WordNet and the user's own, how they are found, what finds their photos."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.errors import AmbiguousNameError, LabelSpaceError, UnknownNameError
from curate.labels.concepts import Concepts, load_concepts, with_queries
from curate.labels.space import LabelClass

ALL = load_concepts("wordnet")

HEDGEHOG, PORCUPINE, WHEELCHAIR, SNOOPY = "n01893825", "n02346627", "n04576002", "snoopy"


def own(tmp_path: Path, text: str) -> Concepts:
    (tmp_path / "own.csv").write_text(text, encoding="utf-8")
    return load_concepts("own.csv", tmp_path)


# WordNet's


def test_every_synset_of_the_table_is_a_concept_with_its_names_and_no_column() -> None:
    assert len(ALL) == 23_548
    assert ALL.get(HEDGEHOG).names[:2] == ("hedgehog", "Erinaceus europaeus")
    assert ALL.get("n01440764").name == "tench"
    assert {item.column for item in ALL} == {None}


def test_a_concept_is_found_by_its_id_and_by_an_unambiguous_name() -> None:
    assert ALL.match(WHEELCHAIR) is ALL.match("Wheelchair")
    assert ALL.match("water_buffalo").wnid == "n02408429"


def test_an_ambiguous_name_lists_the_ids_with_what_tells_them_apart() -> None:
    with pytest.raises(AmbiguousNameError) as caught:
        ALL.match("hedgehog")
    assert str(caught.value) == (
        "concept 'hedgehog' is ambiguous: write one of n01893825 (Erinaceus europaeus, a kind of "
        "insectivore), n02346627 (porcupine, a kind of rodent)"
    )


def test_an_unknown_concept_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown concept 'whelchair'; did you mean wheelc"):
        ALL.match("whelchair")


# The user's own


def test_a_table_of_wordnet_ids_has_wordnet_s_names(tmp_path: Path) -> None:
    space = own(tmp_path, f"wnid\n{HEDGEHOG}\nn01440764\n")
    assert space.name == "own.csv"
    assert [item.name for item in space] == ["hedgehog", "tench"]
    assert space.match("hedgehog").wnid == HEDGEHOG, "the table has but one"


def test_an_own_concept_may_say_where_it_stands(tmp_path: Path) -> None:
    space = own(
        tmp_path,
        "id,name,names,wordnet,column\n"
        "pants,trousers,,n04489008 n02854739,7\n"
        "snoopy,Snoopy,cartoon beagle,,8\n",
    )
    assert space.get("pants").synsets == ("n04489008", "n02854739")
    assert space.get(SNOOPY).synsets == (SNOOPY,)
    assert space.match("cartoon beagle").wnid == SNOOPY
    assert [item.column for item in space] == [None, None], "a column means nothing for concepts"


def test_a_place_that_wordnet_lacks_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(LabelSpaceError, match=r"own.csv, line 3: .*'n00000001'"):
        own(tmp_path, "id,wordnet\na,n04489008\nb,n00000001\n")


def test_what_an_own_table_lacks_is_named(tmp_path: Path) -> None:
    space = own(tmp_path, f"wnid\n{WHEELCHAIR}\n")
    with pytest.raises(UnknownNameError) as caught:
        space.match("gerenuk")
    assert str(caught.value) == (
        "unknown concept 'gerenuk'; own.csv lacks WordNet's n02420828 (gerenuk)"
    )
    with pytest.raises(UnknownNameError, match="did you mean wheelchair"):
        space.match("wheelchiar")


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("wordnett", UnknownNameError, "did you mean wordnet"),
        ("absent.csv", LabelSpaceError, "cannot read the concepts .*absent.csv: no such file"),
    ],
)
def test_concepts_that_are_not_there_are_one_clear_line(
    tmp_path: Path, name: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        load_concepts(name, tmp_path)


# What finds photos


def test_a_name_of_several_synsets_is_asked_with_its_parent() -> None:
    assert with_queries(ALL.get("n02012849")).queries == ("crane wading bird",)
    assert with_queries(ALL.get(WHEELCHAIR)).queries == ("wheelchair",)


def test_a_species_is_asked_for_by_its_scientific_name() -> None:
    emu = with_queries(ALL.get("n01519873"))
    assert emu.scientific_names == ("Dromaius novaehollandiae",)
    assert emu.taxon_ranks == ("species",)
    assert "Dromaius novaehollandiae" not in emu.queries
    assert with_queries(ALL.get(WHEELCHAIR)).scientific_names == ()


def test_an_own_concept_is_asked_by_its_names_and_the_taxon_of_its_place() -> None:
    mine = LabelClass("my-bird", "big bird", ("crane",), wordnet=("n01519873",))
    asked = with_queries(mine)
    assert asked.queries == ("big bird", "crane ratite")
    assert asked.scientific_names == ("Dromaius novaehollandiae",)
    assert with_queries(LabelClass(SNOOPY, "Snoopy")).queries == ("Snoopy",)
