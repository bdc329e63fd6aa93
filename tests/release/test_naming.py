"""File names: by content and as in the paper, always distinct, always possible."""

from __future__ import annotations

import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from curate.release.naming import hash_stems, paper_stem, unique_stems

#: Digests over two digits: they share long beginnings.
DIGESTS = st.text("0f", min_size=64, max_size=64)
NAMES = st.text(st.characters(blacklist_categories=()), max_size=300)


def test_a_name_is_the_first_16_digits_of_the_sha256() -> None:
    digests = ["a" * 64, "b" * 64]
    assert hash_stems(digests) == {"a" * 64: "a" * 16, "b" * 64: "b" * 16}
    assert hash_stems([]) == {}


def test_colliding_names_grow_until_they_differ_and_no_further() -> None:
    one, two = "0" * 20 + "1" + "0" * 43, "0" * 20 + "2" + "0" * 43
    assert hash_stems([two, one, "f" * 64]) == {
        one: one[:21],
        two: two[:21],
        "f" * 64: "f" * 16,
    }


@given(st.lists(DIGESTS, max_size=8))
@example(["0" * 64, "0" * 63 + "f"])
def test_names_are_distinct_beginnings_whatever_the_order(digests: list[str]) -> None:
    stems = hash_stems(digests, 2)
    assert len(set(stems.values())) == len(set(digests))
    assert all(digest.startswith(stem) and len(stem) >= 2 for digest, stem in stems.items())
    assert hash_stems(reversed(digests), 2) == stems


def test_a_paper_name_is_that_of_imagenet_a() -> None:
    stem = paper_stem(0.000348, "chameleon", "box turtle", 0.55540705)
    assert stem == "0.000348_chameleon _ box turtle_0.55540705"


@given(NAMES, NAMES)
@example("../../etc/passwd", "a\nb\0c")
@example("con", "\ud800")
@example("é" * 200, "<b>|?*:\\")
def test_any_class_names_make_a_file_name(first: str, second: str) -> None:
    stem = paper_stem(0.1, first, second, 0.9)
    assert not set(stem) & set('<>:"/\\|?*')
    assert not any(unicodedata.category(sign) == "Cc" for sign in stem)
    name = unique_stems([stem, stem], ["0" * 64, "0" * 63 + "f"])[0] + ".jpeg"
    assert len(name.encode()) <= 255


def test_equal_paper_names_get_digits_of_their_content() -> None:
    digests = ["a" * 64, "b" * 64, "c" * 64]
    assert unique_stems(["0.1_Fly", "0.1_fly", "0.2_fly"], digests) == [
        f"0.1_Fly_{'a' * 16}",
        f"0.1_fly_{'b' * 16}",
        "0.2_fly",
    ]


@given(st.lists(st.tuples(st.sampled_from(["0.1_a", "0.1_A", "0.2_b"]), DIGESTS), max_size=6))
def test_names_differ_even_where_case_does_not_count(images: list[tuple[str, str]]) -> None:
    images = list({digest: (stem, digest) for stem, digest in images}.values())
    names = unique_stems([stem for stem, _ in images], [digest for _, digest in images])
    assert len({name.casefold() for name in names}) == len(images)
