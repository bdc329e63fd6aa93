from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.testbed.corruption_beside import compare, text_comparison
from curate.testbed.corruption_results import measure_setting, table_from_record
from curate.testbed.predictions import Predictions

rights = st.lists(st.integers(0, 50), min_size=5, max_size=5)
tables = st.dictionaries(st.sampled_from(["fog", "frost", "own"]), rights, min_size=1)


def setting(right: int, severity: int = 0) -> dict[str, Any]:
    predictions = Predictions(
        [f"{n}.jpg" for n in range(50)],
        ["n1"] * 50,
        ["n1"] * right + ["n2"] * (50 - right),
        np.full(50, 0.6),
    )
    return {"severity": severity, **measure_setting(predictions)}


def result(rows: dict[str, list[int]], clean: int | None = 40, **conditions: Any) -> dict[str, Any]:
    return {
        "model": {"name": "m"},
        "classes": 10,
        "clean": None if clean is None else setting(clean),
        "conditions": conditions,
        "rows": [
            {"corruption": name, "severities": [setting(k, s + 1) for s, k in enumerate(right)]}
            for name, right in rows.items()
        ],
    }


@settings(deadline=None, max_examples=50)
@given(first=tables, second=tables)
def test_the_other_order_turns_every_difference_round(
    first: dict[str, list[int]], second: dict[str, list[int]]
) -> None:
    there, back = compare(result(first), result(second)), compare(result(second), result(first))
    assert {row["corruption"] for row in there["rows"]} == set(first) & set(second)
    assert there["only_one"] == back["only_one"] == sorted(set(first) ^ set(second))
    by_name = {row["corruption"]: row for row in back["rows"]}
    for row in there["rows"]:
        other = by_name[row["corruption"]]
        for key in ("mean_error", "relative_error"):
            assert row[key]["difference"] == -other[key]["difference"]
        errors = [1 - sum(rows[row["corruption"]]) / 250 for rows in (first, second)]
        assert row["mean_error"]["first"] == pytest.approx(errors[0])
        assert row["mean_error"]["difference"] == pytest.approx(errors[1] - errors[0])
    assert (there["better"], there["worse"]) == (back["worse"], back["better"])
    assert there["better"] + there["worse"] + there["equal"] == len(there["rows"])
    assert len(text_comparison(there)) >= 2


def test_a_table_survives_its_record() -> None:
    table = table_from_record(result({"fog": [40, 30, 20, 10, 5]}))
    (row,) = table.rows
    assert table.clean == 0.8
    assert list(row.accuracies.values()) == [0.8, 0.6, 0.4, 0.2, 0.1]
    assert row.near_chance == (5,), "five of fifty may be guessing among ten"
    assert row.relative == pytest.approx(0.58 / 0.2)


def test_what_was_not_measured_alike_is_said() -> None:
    row = {"fog": [1, 2, 3, 4, 5]}
    told = compare(result(row, at="crop", seed=1), result(row, None, at="camera", seed=1))
    assert told["differs"] == ["place of the corruption (--at)"]
    assert told["clean"] == {"first": 0.8, "second": None, "difference": None}
    assert told["rows"][0]["relative_error"]["difference"] is None


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("content_sha256", "images"),
        ("label_space", "label space"),
        ("at", "place of the corruption (--at)"),
        ("jpeg", "JPEG (--jpeg)"),
        ("frost", "frost"),
        ("seed", "seed"),
        ("scale", "scale of the constants"),
    ],
)
def test_each_condition_of_its_own_is_said(key: str, said: str) -> None:
    told = compare(result({"fog": [1] * 5}, **{key: 1}), result({"fog": [1] * 5}, **{key: 2}))
    assert told["differs"] == [said]
    assert f"not measured alike: {said}" in text_comparison(told)


def test_calibration_of_a_setting_leaves_out_what_failed() -> None:
    predictions = Predictions(
        ["a", "b", "c"],
        ["n1", "n1", "n1"],
        ["n1", "n2", None],
        np.array([0.9, 0.7, np.nan]),
        failed={2: "corruption-failed: ValueError: no"},
    )
    told = measure_setting(predictions)
    assert (told["n"], told["failed"]) == (2, 1)
    assert told["accuracy"]["value"] == 0.5
    assert told["mean_confidence"] == pytest.approx(0.8)
    assert told["overconfidence"] == pytest.approx(0.3)
    assert told["rms_calibration_error"] == pytest.approx(0.3)
    nothing = measure_setting(
        Predictions(["a"], ["n1"], [None], np.array([np.nan]), failed={0: "truncated"})
    )
    assert nothing["n"] == 0
    assert nothing["accuracy"]["value"] is nothing["rms_calibration_error"] is None
