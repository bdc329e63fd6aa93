from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.metrics import corruption_errors
from curate.metrics.corruption import IMAGENET_C, row_errors

FRACTION = st.floats(0.01, 1.0)
TABLE = st.fixed_dictionaries(
    {name: st.lists(FRACTION, min_size=5, max_size=5) for name in IMAGENET_C}
)


def flat(value: Any) -> dict[str, Any]:
    return dict.fromkeys(IMAGENET_C, value)


@given(TABLE, TABLE)
def test_the_mean_is_of_ratios_of_sums_over_severities(
    errors: dict[str, list[float]], baseline: dict[str, list[float]]
) -> None:
    result = corruption_errors(errors, baseline)
    ratios = [100 * sum(errors[c]) / sum(baseline[c]) for c in IMAGENET_C]
    np.testing.assert_allclose([result.ce[c] for c in IMAGENET_C], ratios, rtol=1e-12)
    assert result.mce == pytest.approx(sum(ratios) / 15, rel=1e-12)
    assert result.relative_mce is None
    assert result.relative_ce is None


@given(TABLE, st.permutations(list(IMAGENET_C)))
def test_the_order_of_the_table_changes_nothing(
    errors: dict[str, list[float]], order: list[str]
) -> None:
    baseline = flat(0.8)
    shuffled = {name: errors[name] for name in order}
    first, second = (corruption_errors(table, baseline, 0.1, 0.4) for table in (errors, shuffled))
    assert first == second
    assert list(second.ce) == order


@given(TABLE)
def test_a_model_against_itself_is_100(errors: dict[str, list[float]]) -> None:
    result = corruption_errors(errors, errors, 0.0, 0.0)
    assert result.mce == pytest.approx(100.0)
    assert result.relative_mce == pytest.approx(100.0)


@given(TABLE)
def test_five_errors_and_their_mean_are_the_same_input(errors: dict[str, list[float]]) -> None:
    means = {name: float(np.mean(values)) for name, values in errors.items()}
    first, second = corruption_errors(errors, flat(0.7)), corruption_errors(means, flat(0.7))
    assert first.mce == pytest.approx(second.mce, rel=1e-12)


def test_relative_errors_subtract_each_models_own_clean_error() -> None:
    errors, baseline = flat(0.5) | {"fog": [0.2] * 5}, flat([0.9, 0.9, 0.9, 0.9, 0.9])
    result = corruption_errors(errors, baseline, clean=0.2, baseline_clean=0.4)
    assert result.relative_ce is not None
    assert result.relative_ce["snow"] == pytest.approx(100 * 0.3 / 0.5)
    assert result.relative_ce["fog"] == pytest.approx(0.0)
    assert result.relative_mce == pytest.approx(60 * 14 / 15)


def test_further_corruptions_have_an_error_of_their_own_and_stay_out_of_the_mean() -> None:
    result = corruption_errors(flat(0.5) | {"spatter": 1.0}, flat(0.5) | {"spatter": 0.5})
    assert result.ce["spatter"] == 200.0
    assert result.mce == 100.0
    assert corruption_errors(flat(0.5), flat(0.5) | {"spatter": 0.5}).mce == 100.0


def test_the_result_can_be_written_as_json() -> None:
    result = asdict(corruption_errors(flat(np.float32(0.5)), flat(0.5), 0.1, 0.2))
    assert json.loads(json.dumps(result))["mce"] == 100.0


def without(name: str) -> dict[str, Any]:
    return {other: 0.5 for other in IMAGENET_C if other != name}


@pytest.mark.parametrize(
    ("errors", "baseline", "clean", "fault"),
    [
        (without("fog"), flat(0.5), (), "corruption missing from errors: fog"),
        (flat(0.5), without("snow"), (), "corruption missing from baseline: snow"),
        ({}, flat(0.5), (), "corruption missing from errors: gaussian_noise"),
        (flat(0.5) | {"own": 0.5}, flat(0.5), (), "corruption missing from baseline: own"),
        (flat([0.5] * 4), flat(0.5), (), r"errors\['gaussian_noise'\] needs five severities"),
        (flat(50.0), flat(0.5), (), r"is 50.0: outside \[0, 1\], a fraction"),
        (flat([0.5, 0.5, 0.5, 0.5, math.nan]), flat(0.5), (), r"\[4\] is nan"),
        (flat(0.5), flat(0.0), (), "makes no error"),
        (flat(0.5), flat(0.5), (0.1, None), "both clean and baseline_clean"),
        (flat(0.5), flat(0.5), (None, 0.1), "both clean and baseline_clean"),
        (flat(0.5), flat(0.5), (0.1, 0.5), "not above baseline_clean"),
        (flat(0.5), flat(0.5), (10.0, 0.1), "clean is 10.0: outside"),
        (flat(0.5), flat(0.5), ([0.1], 0.1), "clean must be one number"),
    ],
)
def test_bad_input_is_named(errors: Any, baseline: Any, clean: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        corruption_errors(errors, baseline, *clean)


ROWS = st.dictionaries(
    st.sampled_from([*IMAGENET_C, "greyscale", "mine"]),
    st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5),
)


@given(ROWS, ROWS, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_each_row_has_its_ratio_exactly_where_the_baseline_has_something_to_divide_by(
    errors: dict[str, list[float]], baseline: dict[str, list[float]], clean: float, other: float
) -> None:
    ce, relative = row_errors(errors, baseline, clean, other)
    both = [name for name in errors if name in baseline]
    assert list(ce) == [name for name in both if np.mean(baseline[name]) > 0.0]
    assert list(relative) == [name for name in both if np.mean(baseline[name]) > other]
    for name in ce:
        assert ce[name] * np.mean(baseline[name]) == pytest.approx(100 * np.mean(errors[name]))
    for name in relative:
        lost = float(np.mean(errors[name]) - clean)
        assert relative[name] * (np.mean(baseline[name]) - other) == pytest.approx(100 * lost)


@given(TABLE)
def test_rows_are_those_of_the_whole_table(errors: dict[str, list[float]]) -> None:
    whole = corruption_errors(errors, flat(0.8), 0.1, 0.4)
    assert row_errors(errors, flat(0.8), 0.1, 0.4) == (whole.ce, whole.relative_ce)
    assert row_errors(errors, flat(0.8)) == (whole.ce, {})


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (({"fog": [0.1] * 4}, {}), r"errors\['fog'\] needs five severities"),
        (({}, {"fog": math.nan}), r"baseline\['fog'\] is nan"),
        (({"fog": 50.0}, {"fog": 0.5}), r"outside \[0, 1\], a fraction"),
        (({"fog": 0.5}, {"fog": 0.5}, 0.1), "both clean and baseline_clean"),
        (({"fog": 0.5}, {"fog": 0.5}, 0.1, 40.0), r"baseline_clean is 40.0: outside"),
    ],
)
def test_a_row_that_is_none_is_named(arguments: tuple[Any, ...], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        row_errors(*arguments)
