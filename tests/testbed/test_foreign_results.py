"""An earlier report may have been altered by anyone: it is compared, or refused in one line."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.errors import UsageError
from curate.testbed.corruption_beside import compare, read_results, text_comparison
from tests.testbed.test_corruption_beside import result

BASE = result({"fog": [40, 30, 20, 10, 5], "own": [40, 40, 40, 40, 0]}, seed=0, at="camera")
WRONG: list[Any] = [
    None,
    -1,
    2,
    1e308,
    10**400,
    float("nan"),
    float("inf"),
    "x",
    [],
    {},
    [[]],
    True,
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything within a value."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*path, key)
            yield from places(inner, (*path, key))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(where=st.sampled_from(list(places(BASE))), what=st.sampled_from([*WRONG, "gone"]))
def test_whatever_stands_in_a_results_file(
    tmp_path: Path, where: tuple[Any, ...], what: Any
) -> None:
    altered = copy.deepcopy(BASE)
    holder: Any = altered
    for key in where[:-1]:
        holder = holder[key]
    if what == "gone":
        del holder[where[-1]]
    else:
        holder[where[-1]] = what
    (tmp_path / "results.json").write_text(json.dumps({"results": [altered]}))
    try:
        (found,) = read_results(tmp_path)
    except UsageError as error:
        told = str(error)
        assert "\n" not in told
        assert str(tmp_path) in told
    else:
        text_comparison(compare(found, BASE, origin="elsewhere"))


@pytest.mark.parametrize("conditions", [None, 1.5, "camera", [1], [[]]])
def test_conditions_that_are_none_are_refused(tmp_path: Path, conditions: Any) -> None:
    written = {"results": [{**BASE, "conditions": conditions}]}
    (tmp_path / "results.json").write_text(json.dumps(written))
    with pytest.raises(UsageError, match=r"is no results\.json of curate robustness corruptions"):
        read_results(tmp_path)
