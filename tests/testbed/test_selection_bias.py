"""What selecting does to accuracies, on models whose bias is known because it was planted."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from curate.metrics.shift import LogitLine, PiecewiseLogitFit
from curate.release.bias_words import bias_columns, bias_rows, bias_sentences, left_out_rows
from curate.testbed.model_table import ModelTable
from curate.testbed.selection_bias import (
    FAMILY,
    FILTER,
    OTHER,
    Bias,
    bias_record,
    strongest,
    weigh,
)
from curate.testbed.shift_analysis import Pivot, Shift

SEEDS = st.integers(0, 999)


def made(x: np.ndarray, y: np.ndarray, names: list[str] | None = None) -> ModelTable:
    names = names or [f"m{place:02}" for place in range(len(x))]
    return ModelTable("t.csv", tuple(names), (), {"x": x, "y": y}, {}, "percent", False)


def told(bias: Bias) -> dict[str, Any]:
    nothing = np.full(len(bias.table), np.nan)
    record = bias_record(bias, {"x": (nothing, nothing), "y": (nothing, nothing)}, {})
    json.dumps(record, allow_nan=False)
    about = {"file": "t.csv"}
    more = {"release": None, "standard": None, "table": about, "line": "", "unmeasured": []}
    return {**record, **more}


#: Ten models below the pivot of 75 %, ten above, the filter's own there, and a relative of it.
LOGITS = np.concatenate([np.linspace(-0.5, 0.9, 10), np.linspace(1.3, 3.0, 10)])
PIVOT = float(np.log(3.0))
BENT = np.where(LOGITS < PIVOT, 0.5, 2.5) * (LOGITS - PIVOT) - 3.0
X = np.append(100.0 * expit(LOGITS), [75.0, 80.0])
Y = np.append(100.0 * expit(BENT), [0.0, 2.0])
GROUPS = [OTHER] * 20 + [FILTER, FAMILY]


def test_the_line_is_that_of_models_that_took_no_part_on_both_sides_of_the_strongest() -> None:
    table = made(X, Y)
    pivot = strongest(table, "x", GROUPS)
    assert pivot == Pivot(75.0, "m20")
    bias = weigh(table, GROUPS, Shift("bias", "x", "y", pivot), resamples=50)
    fit = bias.analysis.fit
    assert isinstance(fit, PiecewiseLogitFit)
    assert (fit.low.slope, fit.high.slope) == pytest.approx((0.5, 2.5))
    assert bias.knee is not None
    assert bias.knee.percent == pytest.approx(75.0, abs=0.5)
    record = told(bias)
    assert record["bends_at_pivot"] is True
    expected = 100.0 * expit(-3.0)
    left = record["left"]
    assert (left["expected"], left["model_drop"]) == pytest.approx((expected, 75.0))
    assert left["share"] == pytest.approx((75.0 - expected) / 75.0)
    assert record["groups"][FILTER]["beyond_line"] == pytest.approx(-expected)
    assert record["groups"][FAMILY]["beyond_line"] < 0.0
    assert [one["group"] for one in record["models"][:3]] == [FILTER, FAMILY, OTHER]
    text = " ".join(bias_sentences(record))
    assert "So 93.7% of the difficulty is left for models that took no part" in text
    assert "the curve bends between them" in text


@settings(max_examples=10, deadline=None)
@given(st.floats(0.5, 2.0), st.floats(0.2, 1.0), st.floats(2.0, 4.0), st.floats(-4.0, -2.0), SEEDS)
def test_a_planted_selection_is_found(
    place: float, below: float, above: float, height: float, seed: int
) -> None:
    random = np.random.RandomState(seed)
    at = random.uniform(-0.5, 3.5, 120)
    bent = height + np.where(at < place, below, above) * (at - place)
    x = 100.0 * expit(np.append(at, place))
    y = np.append(100.0 * expit(bent + 0.02 * random.normal(size=120)), 0.0)
    groups = [*[OTHER] * 120, FILTER]
    table = made(x, y, [f"m{place:03}" for place in range(121)])
    pivot = strongest(table, "x", groups)
    record = told(weigh(table, groups, Shift("bias", "x", "y", pivot), resamples=20))
    assert record["fit"]["low"]["slope"] == pytest.approx(below, abs=0.1)
    assert record["fit"]["high"]["slope"] == pytest.approx(above, abs=0.1)
    assert record["knee"]["percent"] == pytest.approx(x[-1], abs=2.0)
    assert record["bends_at_pivot"] is True
    planted = 100.0 * expit(height)
    assert record["left"]["expected"] == pytest.approx(planted, rel=0.05)
    assert record["left"]["share"] == pytest.approx(1.0 - planted / x[-1], abs=0.01)


def test_the_pivot_is_the_most_accurate_model_that_selected() -> None:
    table = made(np.array([60.0, 75.0, 70.0, 90.0, 100.0]), np.full(5, 1.0))
    groups = [FILTER, FILTER, FILTER, OTHER, FILTER]
    assert strongest(table, "x", groups) == Pivot(75.0, "m01")
    assert strongest(table, "x", [OTHER] * 5) is None


def test_the_order_of_models_changes_nothing() -> None:
    shift = Shift("bias", "x", "y", Pivot(75.0, "m20"))
    table = made(X, Y)
    order = np.random.RandomState(3).permutation(len(X))
    names = [table.models[row] for row in order]
    other = made(X[order], Y[order], names)
    one = told(weigh(table, GROUPS, shift, resamples=20))
    two = told(weigh(other, [GROUPS[row] for row in order], shift, resamples=20))
    assert one == two


def test_the_selecting_models_and_their_family_move_no_line() -> None:
    shift = Shift("bias", "x", "y", Pivot(75.0))
    one = weigh(made(X, Y), GROUPS, shift, resamples=20)
    changed = Y.copy()
    changed[20:] = [9.0, 60.0]
    other = weigh(made(X, changed), GROUPS, shift, resamples=20)
    assert one.analysis.fit == other.analysis.fit
    assert one.knee == other.knee
    left_out = np.zeros(22, np.bool_)
    left_out[19] = True
    changed[19] = 5.0
    without = weigh(made(X, changed), GROUPS, shift, left_out=left_out, resamples=20)
    assert isinstance(without.analysis.fit, PiecewiseLogitFit)
    assert without.analysis.fit.high.slope == pytest.approx(2.5)
    assert without.analysis.effective[19] < -50.0


def test_one_line_is_drawn_where_a_side_has_too_few_models() -> None:
    rows = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 18, 19, 20]
    groups = [GROUPS[row] for row in rows]
    table = made(X[rows], Y[rows])
    bias = weigh(table, groups, Shift("bias", "x", "y", Pivot(75.0)), resamples=20)
    assert isinstance(bias.analysis.fit, LogitLine)
    assert bias.analysis.fit.n == 12
    record = told(bias)
    assert record["bends_at_pivot"] is None
    assert record["left"]["share"] is None
    assert record["line_range"] == pytest.approx([X[0], X[19]])
    text = " ".join(bias_sentences(record))
    assert "One line stands for both of its sides, since above it 2 models that took no" in text
    assert "expected at" in text


def test_nothing_is_told_of_a_place_where_no_other_model_is() -> None:
    rows = [*range(10, 20), 20]
    groups = [GROUPS[row] for row in rows]
    x = X[rows]
    x[-1] = 60.0
    table = made(x, Y[rows])
    pivot = strongest(table, "x", groups)
    record = told(weigh(table, groups, Shift("bias", "x", "y", pivot), resamples=20))
    assert record["fit"]["kind"] == "line"
    assert record["left"] is None
    text = " ".join(bias_sentences(record))
    assert f"({x[0]:.1f} … {x[9]:.1f} %), so nothing is told of what is left" in text
    assert "expected" not in text


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([20, 21], "no model was measured that took no part: a line needs 3"),
        ([0, 20], "1 model that took no part has both accuracies"),
        ([0, 19, 20, 21], "2 models that took no part have both accuracies"),
        ([16, 17, 18, 20], "are too close together"),
    ],
)
def test_too_few_models_or_too_much_alike_give_no_line_and_say_so(
    rows: list[int], why: str
) -> None:
    x, y = X[rows], Y[rows]
    if "close" in why:
        x = np.array([70.0, 71.0, 72.0, 75.0])
    groups = [GROUPS[row] for row in rows]
    table = made(x, y)
    bias = weigh(table, groups, Shift("bias", "x", "y", strongest(table, "x", groups)))
    assert bias.analysis.fit is None
    assert bias.knee is None
    record = told(bias)
    assert why in record["fit"]["no_fit"]
    assert record["left"] is None
    text = " ".join(bias_sentences(record))
    assert "No line is drawn" in text
    assert "slope" not in text
    assert {len(row) for row in [bias_columns(record), *bias_rows(record)]} == {4}


def test_a_model_without_one_of_both_accuracies_is_told_without_it() -> None:
    y = Y.copy()
    y[3], y[20] = np.nan, 100.0
    bias = weigh(made(X, y), GROUPS, Shift("bias", "x", "y", Pivot(75.0)), resamples=20)
    record = told(bias)
    found = {one["model"]: one for one in record["models"]}
    assert found["m03"]["release"]["value"] is None
    assert found["m03"]["beyond_line"] is None
    assert found["m20"]["release"]["value"] == 100.0
    assert len(bias_rows(record)) == 22
    assert len(bias_rows(record, 5)) == 7
    assert left_out_rows(record, 5) == 15
