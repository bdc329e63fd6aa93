"""Splits share nothing that must stay together, and lots depend on content and seed alone."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import UsageError
from curate.release.selection import check_limits, falling_short, ranks
from curate.release.splits import Groups, author_key, deal, parse_splits

KEYS = [f"{number:03x}" for number in range(60)]
SHARES = {"dev": Decimal("0.1"), "test": Decimal("0.9")}


@settings(max_examples=60, deadline=None)
@given(
    ties=st.lists(
        st.tuples(st.sampled_from(KEYS), st.sampled_from([*KEYS, "a", "b"])), max_size=40
    ),
    classes=st.lists(st.integers(0, 3), min_size=60, max_size=60),
    order=st.permutations(KEYS),
    seed=st.integers(0, 5),
)
def test_what_is_tied_is_never_split_whatever_the_order(
    ties: list[tuple[str, str]], classes: list[int], order: list[str], seed: int
) -> None:
    def dealt(keys: list[str], pairs: list[tuple[str, str]]) -> dict[str, str]:
        groups = Groups(keys)
        for pair in pairs:
            groups.join(*pair)
        named = {key: str(number) for key, number in zip(KEYS, classes, strict=True)}
        return deal(groups.of(keys), named, SHARES, seed)

    found = dealt(KEYS, ties)
    assert found.keys() == set(KEYS)
    through: dict[str, str] = {}
    for key, other in ties:
        assert found[key] == found.get(other, found[key])
        assert through.setdefault(other, found[key]) == found[key]
    assert dealt(order, list(reversed(ties))) == found


def test_classes_keep_their_shares() -> None:
    keys = [f"{number:04x}" for number in range(2000)]
    classes = {key: str(number % 4) for number, key in enumerate(keys)}
    found = deal([[key] for key in keys], classes, SHARES, 0)
    counts = Counter((found[key], classes[key]) for key in keys)
    assert all(counts["dev", str(number)] == 50 for number in range(4))
    other = deal([[key] for key in keys], classes, SHARES, 1)
    assert {k for k in keys if found[k] == "dev"} != {k for k in keys if other[k] == "dev"}


@settings(max_examples=40, deadline=None)
@given(
    here=st.sets(st.sampled_from(KEYS), min_size=1),
    later=st.sets(st.sampled_from(KEYS), min_size=1),
    seed=st.integers(0, 3),
)
def test_what_was_dealt_stays_where_it_is_whatever_comes_or_goes(
    here: set[str], later: set[str], seed: int
) -> None:
    classes = {key: key[-1] for key in KEYS}
    first = deal([[key] for key in sorted(here)], classes, SHARES, seed)
    second = deal([[key] for key in sorted(later)], classes, SHARES, seed, first)
    assert second.keys() == later
    assert all(second[key] == first[key] for key in here & later)


def test_what_has_come_together_goes_where_most_of_it_was() -> None:
    before = {"a": "dev", "b": "test", "c": "test", "d": "gone"}
    classes = dict.fromkeys("abcde", "x")
    found = deal([["a", "b", "c"], ["d", "e"]], classes, SHARES, 0, before)
    assert {found[key] for key in "abc"} == {"test"}
    assert found["d"] == found["e"]


def test_small_classes_together_still_fill_a_small_split() -> None:
    keys = [f"{number:04x}" for number in range(300)]
    classes = {key: str(number % 100) for number, key in enumerate(keys)}
    found = Counter(deal([[key] for key in keys], classes, SHARES, 0).values())
    assert abs(found["dev"] - 30) <= 3


def test_what_the_fractions_leave_is_the_test_split() -> None:
    assert parse_splits([]) == {}
    assert parse_splits(["dev=0.1"]) == SHARES
    assert parse_splits(["a=0.1", "b=0.2", "c=0.7"]) == {
        "a": Decimal("0.1"),
        "b": Decimal("0.2"),
        "c": Decimal("0.7"),
    }
    with pytest.raises(UsageError, match=r"add up to 1\.1"):
        parse_splits(["a=0.4", "b=0.7"])


@pytest.mark.parametrize(
    "text",
    [
        "con=0.1",
        "lpt1=0.1",
        "all=0.1",
        "sha256sums=0.1",
        "control=0.1",
        "../x=0.1",
        "-x=0.1",
        "a/b=0.1",
        "a\nb=0.1",
        "=0.1",
        "Dev=0.1",
        f"{'a' * 33}=0.1",
        "dev",
        "dev=0",
        "dev=nan",
        "dev=1.5",
        "dev=-0.1",
    ],
)
def test_a_split_that_is_no_folder_or_no_fraction_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="--split") as caught:
        parse_splits([text])
    assert "\n" not in str(caught.value)


def test_authors_are_told_apart_by_source_and_nobody_is_no_author() -> None:
    assert author_key("flickr", " Ann  B ") == author_key("flickr", "ann b")
    assert author_key("flickr", "ann") != author_key("wikimedia", "ann")
    assert author_key("flickr", None) is None
    assert author_key("flickr", "Unknown") is None


def test_lots_depend_on_content_and_seed_alone() -> None:
    classes = {key: str(int(key, 16) % 2) for key in KEYS}
    found = ranks(classes, 3)
    assert found == ranks(dict(reversed(classes.items())), 3)
    assert sorted(found[key] for key in KEYS if classes[key] == "0") == list(range(1, 31))
    # What is chosen stays so where other classes change.
    assert found.items() >= ranks({k: c for k, c in classes.items() if c == "1"}, 3).items()
    assert found != ranks(classes, 4)


def test_classes_without_an_image_fall_short_too() -> None:
    assert falling_short({"a": 3, "b": 1}, ["a", "c"], 2) == {"b": 1, "c": 0}
    check_limits(2, 2)
    with pytest.raises(UsageError, match="must not be the larger"):
        check_limits(3, 2)
