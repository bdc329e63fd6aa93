from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.metrics import pm_k


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.booleans(), max_size=4)), min_size=1, max_size=20)
)
def test_pm_k_agrees_with_a_loop_over_anchors(frames: list[tuple[bool, list[bool]]]) -> None:
    result = pm_k([anchor for anchor, _ in frames], [around for _, around in frames])
    assert result.pm0 == pytest.approx(sum(a for a, _ in frames) / len(frames))
    assert result.pmk == pytest.approx(sum(a and all(r) for a, r in frames) / len(frames))
    assert result.pmk <= result.pm0
    assert result.anchors == len(frames)
    assert result.neighbours == sum(len(around) for _, around in frames)


def test_pm_k_takes_a_full_table_of_neighbours() -> None:
    result = pm_k([1, 1, 0], np.array([[1, 1], [1, 0], [1, 1]]))  # type: ignore[arg-type]
    assert (result.pm0, result.pmk) == pytest.approx((2 / 3, 1 / 3))


@pytest.mark.parametrize(
    ("anchors", "neighbours", "fault"),
    [
        ([], [], "anchor_correct is empty"),
        ([1, 0], [[1]], "differ in length: 2 and 1"),
        ([1, 2], [[1], [1]], r"anchor_correct\[1\] is 2"),
        ([1, 0], [[1], [1, 3]], r"neighbours_correct\[1\]\[1\] is 3"),
        ([1], [[math.nan]], r"neighbours_correct\[0\]\[0\] is nan"),
    ],
)
def test_pm_k_names_the_fault(anchors: Any, neighbours: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        pm_k(anchors, neighbours)
