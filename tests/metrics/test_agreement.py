"""Agreement against published examples, brute force over pairs of answers, and by properties."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.metrics import cohen_kappa_score

from curate.metrics import (
    cohen_kappa,
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    raw_agreement,
)
from curate.metrics.agreement import Agreement

Measure = Callable[..., Agreement]
MANY: tuple[Measure, ...] = (raw_agreement, fleiss_kappa, gwet_ac1, krippendorff_alpha)
BEYOND_CHANCE: tuple[Measure, ...] = MANY[1:]

#: Fleiss 1971, table 1: how many of six psychiatrists gave each of five diagnoses to 30 patients.
FLEISS_1971 = """00060 03003 01401 00006 03030 20400 00402 20310 20040 00006 10050 11040 03300 10050
02031 00501 30012 51000 02040 10203 00006 01050 02013 20040 10041 05010 40002 02040 10500 00006"""

#: Krippendorff 2011: four observers, twelve units, five categories, missing answers. Gwet's
#: Handbook (2014) gives the other coefficients of the same data.
KRIPPENDORFF_2011 = ["1233214 12...", "1233224 125.3", ".333234 2251.", "1233244 1251."]


def from_counts(text: str) -> list[list[int]]:
    return [[c for c, n in enumerate(item) for _ in range(int(n))] for item in text.split()]


def from_observers(lines: list[str]) -> list[list[str | None]]:
    columns = [[None if c == "." else c for c in line.replace(" ", "")] for line in lines]
    return [list(item) for item in zip(*columns, strict=True)]


def from_matrix(matrix: list[list[int]]) -> list[tuple[int, int]]:
    return [(i, j) for i, row in enumerate(matrix) for j, n in enumerate(row) for _ in range(n)]


def value(measure: Measure, table: Any, **options: Any) -> float:
    return measure(table, resamples=1, **options).value


def test_the_psychiatrists_of_fleiss() -> None:
    table = from_counts(FLEISS_1971)
    assert value(raw_agreement, table) == pytest.approx(0.5556, abs=5e-5)
    assert value(fleiss_kappa, table) == pytest.approx(0.430, abs=5e-4)


def test_the_missing_answers_of_krippendorff_and_gwet() -> None:
    table = from_observers(KRIPPENDORFF_2011)
    assert value(krippendorff_alpha, table) == pytest.approx(0.743, abs=5e-4)
    assert value(raw_agreement, table) == pytest.approx(0.81818, abs=5e-6)
    assert value(fleiss_kappa, table) == pytest.approx(0.76117, abs=5e-6)
    assert value(gwet_ac1, table) == pytest.approx(0.77544, abs=5e-6)
    counted = krippendorff_alpha(table, resamples=1)
    # The twelfth unit has one answer, which pairs with none.
    assert (counted.items, counted.answers) == (11, 40)


@pytest.mark.parametrize(
    ("first", "second", "alpha"),
    [("0100000010", "1110010000", 0.095), ("aabbdcccedda", "babbbccceddd", 0.692)],
)
def test_the_two_observers_of_krippendorff(first: str, second: str, alpha: float) -> None:
    assert value(krippendorff_alpha, list(zip(first, second, strict=True))) == pytest.approx(
        alpha, abs=5e-4
    )


@pytest.mark.parametrize(
    ("matrix", "cohen", "fleiss", "ac1"),
    [
        # Gwet 2008: high agreement, one category prevails, and kappa says there is none.
        ([[118, 5], [2, 0]], -0.0234, -0.0288, 0.9408),
        # Gwet 2014, ectopic pregnancies.
        ([[13, 0, 0], [0, 20, 7], [0, 4, 56]], 0.7964, 0.7962, 0.8493),
        # Fleiss, Levin and Paik 2003, table 18.1.
        ([[75, 1, 4], [5, 4, 1], [0, 0, 10]], 0.6765, None, None),
    ],
)
def test_published_tables_of_two_annotators(
    matrix: list[list[int]], cohen: float, fleiss: float | None, ac1: float | None
) -> None:
    table = from_matrix(matrix)
    assert value(cohen_kappa, table) == pytest.approx(cohen, abs=5e-5)
    if fleiss is not None:
        assert value(fleiss_kappa, table) == pytest.approx(fleiss, abs=5e-5)
        assert value(gwet_ac1, table) == pytest.approx(ac1, abs=5e-5)


CATEGORIES = ["valid", "unclear", "wrong-label", "not-a-photo"]


@st.composite
def tables(draw: st.DrawFn, annotators: int | None = None) -> list[list[str | None]]:
    width = annotators or draw(st.integers(2, 5))
    cell = st.one_of(st.none(), st.sampled_from(CATEGORIES))
    return draw(st.lists(st.lists(cell, min_size=width, max_size=width), min_size=1, max_size=12))


def pairs(item: list[str | None]) -> list[tuple[str, str]]:
    return list(combinations([a for a in item if a is not None], 2))


@given(tables())
def test_raw_agreement_counts_pairs(table: list[list[str | None]]) -> None:
    shares = [np.mean([a == b for a, b in pairs(item)]) for item in table if pairs(item)]
    result = raw_agreement(table, resamples=1)
    assert result.items == len(shares)
    if shares:
        assert result.value == pytest.approx(np.mean(shares), abs=1e-12)
    else:
        assert math.isnan(result.value)
        assert result.reason == "no item has two answers"


@given(tables())
def test_alpha_is_that_of_the_coincidence_matrix(table: list[list[str | None]]) -> None:
    coincidences: Counter[tuple[str, str]] = Counter()
    for item in table:
        for a, b in pairs(item):
            each = 1 / (sum(c is not None for c in item) - 1)
            coincidences[a, b] += each  # type: ignore[assignment]
            coincidences[b, a] += each  # type: ignore[assignment]
    of: Counter[str] = Counter()
    for (a, _), n in coincidences.items():
        of[a] += n
    total = sum(of.values())
    expected = sum(of[a] * of[b] for a in of for b in of if a != b) / max(total - 1, 1)
    result = value(krippendorff_alpha, table)
    if expected < 1e-9:
        assert math.isnan(result)
    else:
        observed = sum(n for (a, b), n in coincidences.items() if a != b)
        assert result == pytest.approx(1 - observed / expected, abs=1e-9)


@settings(deadline=None)
@given(tables(annotators=2))
def test_cohens_kappa_agrees_with_scikit_learn(table: list[list[str | None]]) -> None:
    both = [item for item in table if None not in item]
    assume(len({answer for item in both for answer in item}) > 1)
    first, second = zip(*both, strict=True)
    assert value(cohen_kappa, table) == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)


@given(tables(annotators=2))
def test_cohens_kappa_is_the_same_for_annotators_swapped(table: list[list[str | None]]) -> None:
    swapped = [item[::-1] for item in table]
    assert value(cohen_kappa, swapped) == pytest.approx(value(cohen_kappa, table), nan_ok=True)


@settings(max_examples=40, deadline=None)
@given(tables(), st.permutations(range(4)), st.randoms(use_true_random=False))
def test_names_of_categories_and_order_of_items_and_annotators_do_not_matter(
    table: list[list[str | None]], names: list[int], shuffle: Random
) -> None:
    renamed = [[None if a is None else names[CATEGORIES.index(a)] for a in row] for row in table]
    shuffle.shuffle(renamed)
    for row in renamed:
        shuffle.shuffle(row)
    for measure in MANY:
        assert value(measure, renamed) == pytest.approx(
            value(measure, table), abs=1e-12, nan_ok=True
        )


@settings(max_examples=40, deadline=None)
@given(tables(), st.randoms(use_true_random=False))
def test_the_interval_does_not_depend_on_the_order_of_items(
    table: list[list[str | None]], shuffle: Random
) -> None:
    shuffled = list(table)
    shuffle.shuffle(shuffled)
    for measure in MANY:
        first, second = measure(table, resamples=20), measure(shuffled, resamples=20)
        assert (first.low, first.high) == pytest.approx(
            (second.low, second.high), abs=1e-12, nan_ok=True
        )


@settings(max_examples=40, deadline=None)
@given(tables(), st.sampled_from([1, 20]))
def test_values_are_at_most_one_and_their_interval_holds_them(
    table: list[list[str | None]], resamples: int
) -> None:
    for measure in MANY:
        result = measure(table, resamples=resamples)
        assert math.isnan(result.value) or result.value <= 1.0 + 1e-12
        if math.isnan(result.low):
            assert result.reason
        else:
            assert result.low <= result.value <= result.high
            assert result.undefined < resamples


@settings(max_examples=40, deadline=None)
@given(tables())
def test_an_item_that_nobody_answered_changes_nothing(table: list[list[str | None]]) -> None:
    longer: list[list[str | None]] = [*table, [None] * len(table[0])]
    for measure in MANY:
        assert repr(measure(longer, resamples=20)) == repr(measure(table, resamples=20))


@given(st.lists(st.sampled_from(CATEGORIES), min_size=2, max_size=12), st.integers(2, 4))
def test_who_always_agree_over_several_categories_agree_perfectly(
    items: list[str], annotators: int
) -> None:
    assume(len(set(items)) > 1)
    table = [[category] * annotators for category in items]
    for measure in (*MANY, *((cohen_kappa,) if annotators == 2 else ())):
        result = measure(table, resamples=20)
        assert (result.value, result.low, result.high) == (1.0, 1.0, 1.0)


def test_answers_by_chance_agree_no_more_than_chance() -> None:
    table = np.random.RandomState(0).choice(CATEGORIES, (4000, 3), p=[0.7, 0.1, 0.1, 0.1])
    for measure in (fleiss_kappa, krippendorff_alpha):
        assert value(measure, table) == pytest.approx(0.0, abs=0.02)
    assert value(cohen_kappa, table[:, :2]) == pytest.approx(0.0, abs=0.03)


def test_one_category_alone_leaves_nothing_to_agree_on_beyond_chance() -> None:
    table = [["valid", "valid"]] * 5
    assert raw_agreement(table).value == 1.0
    for measure in (*BEYOND_CHANCE, cohen_kappa):
        result = measure(table)
        assert math.isnan(result.value)
        assert math.isnan(result.low)
        assert result.reason.startswith("all answers are of one category")
    # AC1 knows better once it is told what else could have been answered.
    assert gwet_ac1(table, categories=CATEGORIES).value == 1.0


def test_more_categories_to_choose_from_leave_less_to_chance() -> None:
    table = from_matrix([[118, 5], [2, 0]])
    assert value(gwet_ac1, table, categories=[0, 1]) == value(gwet_ac1, table)
    assert value(gwet_ac1, table, categories=range(5)) > value(gwet_ac1, table)


def test_one_item_has_a_value_and_no_interval() -> None:
    result = fleiss_kappa([["valid", "unclear", "valid"], ["valid", None, None]])
    assert not math.isnan(result.value)
    assert math.isnan(result.low)
    assert result.reason == "one item alone has no interval"


def test_resamples_without_the_one_rare_answer_are_left_out_and_counted() -> None:
    table = [["valid", "valid"]] * 11 + [["valid", "unclear"]]
    result = krippendorff_alpha(table, resamples=500)
    # (11/12)¹² = 0.35 of all resamples miss the twelfth item.
    assert 130 < result.undefined < 220
    assert result.low <= result.value <= result.high


def test_the_same_seed_gives_the_same_interval_and_more_items_a_narrower_one() -> None:
    table = from_counts(FLEISS_1971)
    first = fleiss_kappa(table)
    assert fleiss_kappa(table) == first
    assert fleiss_kappa(table, seed=1) != first
    assert fleiss_kappa(table, confidence=0.5).high < first.high
    more = fleiss_kappa(table * 8)
    assert more.high - more.low < (first.high - first.low) / 2


def test_the_ends_are_quantiles_of_the_agreement_on_items_drawn_anew() -> None:
    result = raw_agreement([["a", "a"]] * 30 + [["a", "b"]] * 10, resamples=10_000, confidence=0.9)
    assert (result.low, result.high) == tuple(binom.ppf([0.05, 0.95], 40, 0.75) / 40)


def test_intervals_hold_the_true_value_about_as_often_as_they_say() -> None:
    def answers(n: int, seed: int) -> np.ndarray:
        random = np.random.RandomState(seed)
        genuine = random.random_sample((n, 1)) < 0.4
        return genuine ^ (random.random_sample((n, 2)) < 0.15)

    true = value(fleiss_kappa, answers(100_000, 0))
    held = 0
    for seed in range(1, 61):
        result = fleiss_kappa(answers(100, seed), resamples=200)
        held += result.low <= true <= result.high
    assert 52 <= held <= 60


@pytest.mark.parametrize(
    ("table", "options", "fault"),
    [
        ([], {}, "table is empty: no item"),
        ([[], []], {}, "table is empty: 2 items, no annotator"),
        ([["a", "b"], ["a"]], {}, r"table\[1\] has 1 annotators, table\[0\] has 2"),
        ([["a", math.nan]], {}, r"table\[0\]\[1\] is nan: write None where there is no answer"),
        (np.array([[1.0, np.nan]]), {}, r"table\[0\]\[1\] is nan"),
        ([["a", ["b"]]], {}, r"table\[0\]\[1\] is \['b'\]: that is no category"),
        (["ab", "aa"], {}, r"table\[0\] is 'ab': expected a row"),
        (np.zeros(3), {}, r"table must be items by annotators, not shape \(3,\)"),
        ([["a", "b"]], {"resamples": 0}, "resamples is 0"),
        ([["a", "b"]], {"confidence": 95}, "confidence is 95"),
        ([["a", "b"]], {"seed": -1}, "seed is -1"),
    ],
)
def test_bad_input_is_named(table: Any, options: dict[str, Any], fault: str) -> None:
    for measure in (*MANY, cohen_kappa):
        with pytest.raises(ValueError, match=fault):
            measure(table, **options)


def test_the_number_of_annotators_and_unknown_categories_are_named() -> None:
    with pytest.raises(ValueError, match="Cohen's kappa takes two annotators, not 3"):
        cohen_kappa([["a", "b", "a"]])
    with pytest.raises(ValueError, match="is 'c': that is not among the categories"):
        gwet_ac1([["a", "c"]], categories=["a", "b"])
