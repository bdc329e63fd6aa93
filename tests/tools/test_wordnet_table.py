"""Deriving the table of WordNet: the format of data.noun, and what of it is taken."""

from __future__ import annotations

import csv
import io

from curate.labels.space import load_label_space
from tools.wordnet_table import COLUMNS, imagenet_21k, nouns, table

# In the form of WordNet's data.noun; the ids are made up.
DATA = """\
  1 This software and database is being provided to you, the LICENSEE, by
00000001 03 n 01 entity 0 001 ~ 00000002 n 0000 | that which exists
00000002 05 n 01 animal 0 002 @ 00000001 n 0000 ~ 00000003 n 0000 | a living thing
00000003 05 n 0a cat 0 b 0 c 0 d 0 e 0 f 0 g 0 h 0 house_cat 0 Felis_catus 0 \
004 @ 00000002 n 0000 %p 00000005 n 0000 + 00000009 v 0101 ;c 00000006 n 0000 | a pet; "a | b"
00000004 18 n 01 Garfield 0 002 @i 00000003 n 0000 @ 00000006 n 0000 | one cat
00000005 08 n 01 paw 0 001 #p 00000003 n 0000 | a foot
00000006 10 n 01 comics 0 001 @ 00000001 n 0000 | drawings
00000007 14 n 02 Felis 0 genus_Felis 0 002 @ 00000001 n 0000 #m 00000001 n 0000 | a genus
00000008 05 n 01 stray 0 001 @ 00000002 n 0000 | nobody's
"""


def rows(*chosen: str) -> dict[str, dict[str, str]]:
    text = table(nouns(io.StringIO(DATA)), set(chosen))
    assert text.splitlines()[0] == ",".join(COLUMNS)
    return {row["wnid"]: row for row in csv.DictReader(io.StringIO(text))}


def test_chosen_synsets_come_with_everything_above_them_and_nothing_else() -> None:
    assert list(rows("n00000004")) == [f"n0000000{n}" for n in (1, 2, 3, 4, 6)]
    assert list(rows("n00000008")) == ["n00000001", "n00000002", "n00000008"]


def test_the_number_of_words_is_read_as_hexadecimal_and_that_of_pointers_as_decimal() -> None:
    cat = rows("n00000003")["n00000003"]
    assert cat["names"] == "cat; b; c; d; e; f; g; h; house cat; Felis catus"
    assert cat["lexfile"] == "animal"


def test_kinds_and_instances_count_as_parents_and_other_pointers_do_not() -> None:
    found = rows("n00000004")
    assert found["n00000004"]["parents"] == "n00000003 n00000006"
    assert found["n00000003"]["parents"] == "n00000002"


def test_parts_are_told_where_they_are_in_the_table() -> None:
    assert rows("n00000003")["n00000003"]["parts"] == ""
    assert rows("n00000003", "n00000005")["n00000003"]["parts"] == "n00000005"


def test_only_the_chosen_ones_are_marked() -> None:
    marks = {wnid: row["imagenet_21k"] for wnid, row in rows("n00000003").items()}
    assert marks == {"n00000001": "0", "n00000002": "0", "n00000003": "1"}


def test_the_scientific_name_is_the_one_whose_first_word_is_a_genus() -> None:
    assert rows("n00000003")["n00000003"]["taxon"] == "10"
    assert rows("n00000008")["n00000008"]["taxon"] == ""


def test_timm_lists_the_synsets_of_imagenet_21k() -> None:
    listed = imagenet_21k()
    assert len(listed) == 21_844
    assert set(load_label_space("imagenet-1k").wnids) <= listed
