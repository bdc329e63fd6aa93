"""Effective robustness over a table: the same whatever the order, and no line where none can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from curate.errors import UnknownNameError, UsageError
from curate.metrics.shift import LogitLine, PiecewiseLogitFit
from curate.testbed.cells import read_cells
from curate.testbed.known_shifts import known_testbed
from curate.testbed.model_table import ModelTable, read_table
from curate.testbed.shift_analysis import (
    Pivot,
    Shift,
    ShiftAnalysis,
    analyse_shift,
    check_pivot,
    find_pivot,
)
from curate.testbed.shift_beside import correlate, intervals, relative

SHIFT = Shift("shift", "x", "y")


def made(x: Any, y: Any, names: Any = None, **more: Any) -> ModelTable:
    settings = {"x": np.asarray(x, float), "y": np.asarray(y, float)}
    settings |= {name: np.asarray(column, float) for name, column in more.items()}
    models = tuple(names) if names is not None else tuple(f"m{n:03}" for n in range(len(x)))
    return ModelTable("table", models, (), settings, {}, "percent", True)


def everyone(table: ModelTable) -> Any:
    return np.ones(len(table), np.bool_)


def on_line(x: Any, slope: float = 0.9, intercept: float = -0.5) -> Any:
    return 100 * expit(slope * logit(np.asarray(x) / 100) + intercept)


@st.composite
def tables(draw: st.DrawFn) -> tuple[ModelTable, Any]:
    """Models, most of them sound and standard, some at 0 or without an accuracy."""
    n = draw(st.integers(8, 24))
    columns = []
    for _ in range(3):
        column = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).uniform(0.5, 99.5, n)
        for row in draw(st.lists(st.integers(0, n - 1), max_size=4)):
            column[row] = draw(st.sampled_from([0.0, 100.0, np.nan]))
        columns.append(column)
    standard = np.ones(n, np.bool_)
    standard[draw(st.lists(st.integers(0, n - 1), max_size=n // 2))] = False
    return made(columns[0], columns[1], z=columns[2]), standard


def told(analysis: ShiftAnalysis) -> Any:
    """All that an analysis says of its shift and not of single models."""
    bands = [vars(one.band) | {"x": one.x} for one in analysis.bands]
    return (
        analysis.fit,
        analysis.no_fit,
        [{name: np.asarray(value).tobytes() for name, value in band.items()} for band in bands],
        sorted(analysis.missing),
        sorted(analysis.excluded, key=lambda one: one.model),
    )


@settings(max_examples=40, deadline=None)
@given(made_of=tables(), seed=st.integers(0, 2**32 - 1), pivot=st.sampled_from([None, 40.0]))
def test_permuting_models_changes_no_bit(made_of: Any, seed: int, pivot: float | None) -> None:
    table, standard = made_of
    order = np.random.default_rng(seed).permutation(len(table))
    other = made(
        table.settings["x"][order],
        table.settings["y"][order],
        [table.models[n] for n in order],
        z=table.settings["z"][order],
    )
    pair = Shift("shift", "x", "y", Pivot(pivot) if pivot else None), Shift("further", "x", "z")
    before = [analyse_shift(table, one, standard, resamples=20) for one in pair]
    after = [analyse_shift(other, one, standard[order], resamples=20) for one in pair]
    for first, second in zip(before, after, strict=True):
        assert told(first) == told(second)
        assert first.effective[order].tobytes() == second.effective.tobytes()
        assert first.expected[order].tobytes() == second.expected.tobytes()
    among = ~standard
    assert correlate(table, before, among) == correlate(other, after, among[order])


def test_the_order_of_models_would_change_bits_if_they_were_not_sorted() -> None:
    values = np.random.default_rng(0).uniform(1, 99, 50)
    sums = {float(np.sum(np.random.default_rng(seed).permutation(values))) for seed in range(20)}
    assert len(sums) > 1


@settings(max_examples=40, deadline=None)
@given(
    x=st.lists(st.floats(1, 99), min_size=3, max_size=12, unique_by=lambda one: round(one, 2)),
    slope=st.floats(0.2, 3),
    intercept=st.floats(-3, 1),
)
def test_a_model_on_the_line_has_no_effective_robustness(
    x: list[float], slope: float, intercept: float
) -> None:
    table = made(x, on_line(x, slope, intercept))
    found = analyse_shift(table, SHIFT, everyone(table), resamples=0)
    np.testing.assert_allclose(found.effective, 0.0, atol=1e-9)


def test_models_that_are_not_standard_do_not_move_the_line() -> None:
    x = [40.0, 50, 60, 70, 80]
    y = on_line(x)
    y[4] += 7
    table = made(x, y)
    found = analyse_shift(table, SHIFT, np.array([True] * 4 + [False]))
    assert isinstance(found.fit, LogitLine)
    assert found.fit.slope == pytest.approx(0.9)
    np.testing.assert_allclose(found.effective, [0, 0, 0, 0, 7], atol=1e-9)
    assert found.fitted.tolist() == [True] * 4 + [False]
    (band,) = found.bands
    assert band.x[0] == pytest.approx(40)
    assert band.x[-1] == pytest.approx(80)


def test_models_at_either_end_are_excluded_and_named() -> None:
    table = made([40, 50, 60, 100, 55, 65], [20, 30, 40, 90, 0, np.nan], "fedcba")
    standard = np.array([True] * 5 + [False])
    found = analyse_shift(table, SHIFT, standard)
    assert isinstance(found.fit, LogitLine)
    assert found.fit.n == 3
    assert [(one.model, one.reason) for one in found.excluded] == [
        ("c", "100 % on x"),
        ("b", "0 % on y"),
    ]
    assert found.missing == ("a",)
    assert np.isnan(found.effective).tolist() == [False, False, False, True, False, True]
    assert found.effective[4] == -found.expected[4]


@pytest.mark.parametrize(
    ("standard", "said"),
    [
        ([0, 0, 0, 0], "0 standard models have"),
        ([1, 0, 0, 0], "1 standard model has"),
        ([1, 1, 0, 1], "2 standard models have both accuracies strictly between 0 and 100 %"),
    ],
)
def test_fewer_than_three_standard_models_give_no_line(standard: list[int], said: str) -> None:
    table = made([40, 50, 60, 70], [20, 30, 40, 0])
    found = analyse_shift(table, SHIFT, np.array(standard, np.bool_))
    assert found.fit is None
    assert said in found.no_fit
    assert np.isnan(found.effective).all()
    assert found.bands == ()
    assert not found.fitted.any()


def test_equal_standard_accuracies_give_no_line() -> None:
    table = made([40, 40, 40], [20, 30, 40])
    found = analyse_shift(table, SHIFT, everyone(table))
    assert found.no_fit == "all standard models have the same accuracy in x"


def test_both_sides_of_a_pivot_have_a_line_and_the_filters_own_model_has_none() -> None:
    x = np.array([30.0, 40, 50, 60.000002, 70, 80, 90])
    y = np.where(x < 60, on_line(x, 0.3, -4), on_line(x, 3, -6))
    y[3] = 0.0
    table = made(x, y)
    pivot = find_pivot(table, "x", "m003")
    assert pivot == Pivot(60.000002, "m003")
    for one in (pivot, find_pivot(table, "x", "60")):
        found = analyse_shift(table, Shift("s", "x", "y", one), everyone(table))
        assert isinstance(found.fit, PiecewiseLogitFit)
        assert (found.fit.low.n, found.fit.high.n) == (3, 3)
        assert found.fit.low.slope == pytest.approx(0.3)
        assert found.fit.high.slope == pytest.approx(3)
        assert found.at_pivot == ("m003",)
        assert not found.fitted[3]
        low, high = found.bands
        assert low.x[-1] == pytest.approx(60) == high.x[0]
        # The filter's own model is held against the lower line.
        assert found.effective[3] == pytest.approx(-on_line(60.0, 0.3, -4), abs=1e-5)


def test_too_few_models_on_a_side_of_the_pivot_give_no_line() -> None:
    table = made([30, 40, 50, 70, 80], [20, 30, 40, 50, 60])
    found = analyse_shift(table, Shift("s", "x", "y", Pivot(60.0)), everyone(table))
    assert "2 standard models have both" in found.no_fit
    assert "above the pivot" in found.no_fit


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("20", "the pivot 20 % is outside the data: no standard model is below it in 'x'"),
        ("95", "no standard model is above it in 'x' (30 … 50 %)"),
        ("100", "must lie between 0 and 100 %"),
        ("nan", "must lie between 0 and 100 %"),
        ("m004", "the pivot 'm004' has no accuracy in 'x'"),
    ],
)
def test_a_pivot_outside_the_data_is_refused(named: str, said: str) -> None:
    table = made([30, 40, 50, 45, np.nan], [20, 30, 40, 50, 60])
    with pytest.raises(UsageError) as error:
        shift = Shift("s", "x", "y", find_pivot(table, "x", named))
        check_pivot(table, shift, everyone(table))
    assert said in str(error.value)


def test_a_pivot_that_is_no_model_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean m001"):
        find_pivot(made([30, 40], [20, 30]), "x", "m0001")


def test_relative_robustness_is_what_the_baseline_lacks() -> None:
    table = made([50, 60, 70, 80], [20.5, 30, np.nan, 60], ["base", "better", "unknown", "alone"])
    tau = relative(table, "y", {"better": "base", "unknown": "base"})
    np.testing.assert_array_equal(tau, [np.nan, 9.5, np.nan, np.nan])
    with pytest.raises(UnknownNameError, match="did you mean base"):
        relative(table, "y", {"better": "bse"})


def test_intervals_hold_the_accuracy_and_need_the_number_of_images() -> None:
    accuracies = np.array([0.0, 76.13, 100.0, np.nan])
    low, high = intervals(accuracies, 50_000)
    np.testing.assert_allclose(low[:2], [0, 75.5910], atol=1e-4)
    np.testing.assert_allclose(high[1:3], [76.6632, 100], atol=1e-4)
    assert np.isnan(low[3])
    assert np.isnan(high[3])
    assert np.isnan(intervals(accuracies, None)).all()


def test_correlations_are_over_the_models_asked_for(shared_data: Path) -> None:
    found = {(one.first, one.second): one for one in paper(shared_data)[2]}
    assert round(found["ImageNetV2", "Corruptions"].r or 0, 2) == 0.24
    assert round(found["ImageNetV2", "Lp attacks"].r or 0, 2) == -0.05
    # Figure 12 of the paper, printed before some models were evaluated anew.
    for shift, corruptions, attacks in (
        ("ObjectNet", -0.01, -0.26),
        ("ImageNet-Vid-Robust anchors", 0.61, 0.30),
        ("YTBB-Robust anchors", 0.52, 0.36),
    ):
        assert found[shift, "Corruptions"].r == pytest.approx(corruptions, abs=0.08)
        assert found[shift, "Lp attacks"].r == pytest.approx(attacks, abs=0.08)
    assert found["ImageNetV2", "Corruptions"].n == 115
    assert found["ImageNetV2", "Lp attacks"].n == 105


def paper(shared_data: Path) -> tuple[ModelTable, dict[str, ShiftAnalysis], Any]:
    known = known_testbed()
    cells = read_cells(shared_data / "testbed_top1.csv")
    table = read_table(cells, list(known.labels), kind="type")
    standard = np.all([cells.flags(name) for name in known.standard], axis=0)
    analyses = {}
    for one in known.shifts_in(table.settings):
        pivot = find_pivot(table, one.x, one.pivot_model) if one.pivot_model else None
        shift = Shift(one.name, one.x, one.y, pivot)
        analyses[one.name] = analyse_shift(table, shift, standard, resamples=0)
    among = np.array(cells.flags("in_table1")) & (np.array(table.types) != "STANDARD")
    return table, analyses, correlate(table, list(analyses.values()), among)


def test_what_is_known_of_the_testbeds_table_fits_it(shared_data: Path) -> None:
    known = known_testbed()
    cells = read_cells(shared_data / "testbed_top1.csv")
    assert known.is_own(cells.columns)
    assert set(known.labels) == set(cells.columns[5:])
    assert set(known.types) == set(cells.column("type"))
    assert len(known.shifts_in(cells.columns)) == len(known.shifts)
    assert {*known.baselines, *known.baselines.values()} <= set(cells.column("model"))
    table = read_table(cells, list(known.labels))
    for setting, images in known.sizes.items():
        right = table.column(setting) / 100 * images
        # The table holds numbers of 32 bits, which tell images of 50,000 apart to a hundredth.
        np.testing.assert_allclose(right, np.round(right), atol=0.01, err_msg=setting)
