"""Kept logits under a rule that judges the mean: the verdicts of a run from the start, or none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from curate.filtration.rules import Outlier
from curate.filtration.stored import judge_stored, rewritten, scores_from_logits
from curate.filtration.terms import Plan
from tests.filtration.small import SPACE, Noisy, judged, place, plan_for, small_network

COUNT = 8
KEYS = [f"{n:02}" for n in range(COUNT)]
NONE = np.full(COUNT, -1)


def plan_of(seed: int, sharpness: float, order: tuple[int, int], *, quick: bool = False) -> Plan:
    networks = [small_network(seed + n, sharpness) for n in range(2)]
    plan = plan_for(networks, Outlier("centre", 0.6), order=order, keep_logits=True)
    if not quick:
        return plan
    forwards = [Noisy(network, 0.02) for network in networks]
    return replace(plan, forwards=forwards, margins=[0.04, 0.04], share_all=True)


@given(
    seed=st.integers(0, 10_000),
    sharpness=st.sampled_from([0.05, 0.2, 0.6, 2.0]),
    least=st.sampled_from([0.3, 0.6, 0.8, 0.95]),
    order=st.sampled_from([(0, 1), (1, 0)]),
    way=st.sampled_from(["complete", "cascade", "quick"]),
)
@settings(max_examples=20, deadline=None)
def test_kept_logits_tell_the_verdicts_of_the_mean(
    pictures: list[Image.Image],
    seed: int,
    sharpness: float,
    least: float,
    order: tuple[int, int],
    way: str,
) -> None:
    plan = plan_of(seed, sharpness, order, quick=way == "quick")
    first = judged(pictures[:COUNT], NONE, replace(plan, complete=way == "complete"))
    table = first.scores.table(KEYS, SPACE.wnids)
    stored = scores_from_logits(table, KEYS, NONE, plan.columns, trust_margins=True, of_mean=True)
    rule = Outlier("mean", least)
    again = judge_stored(stored, NONE, rule, order)
    afresh = judged(pictures[:COUNT], NONE, replace(plan_of(seed, sharpness, order), rule=rule))
    assert way != "complete" or None not in again
    for mine, theirs in zip(again, afresh.verdicts, strict=True):
        if mine is not None:
            assert place(mine) == place(theirs)
            assert mine.outcome != "survivor" or mine == theirs


@pytest.mark.parametrize("complete", [False, True])
def test_rows_told_anew_for_the_mean_are_those_of_its_own_run(
    pictures: list[Image.Image], complete: bool
) -> None:
    plan = replace(plan_of(3, 0.3, (0, 1)), complete=True)
    table = judged(pictures[:COUNT], NONE, plan).scores.table(KEYS, SPACE.wnids)
    if not complete:
        # Of a candidate whose second view is absent only the first one has a ceiling.
        view = table["view"].to_numpy()
        table = table.filter((view != 2) | (table["candidate"].to_numpy(False) != KEYS[4]))
    stored = scores_from_logits(table, KEYS, NONE, plan.columns, trust_margins=True, of_mean=True)
    chosen = [(key, key, item) for item, key in enumerate(KEYS)]
    told = rewritten(table, chosen, stored, SPACE.wnids)
    own = judged(pictures[:COUNT], NONE, replace(plan, rule=Outlier("mean", 0.6)))
    expected = own.scores.table(KEYS, SPACE.wnids)
    if complete:
        assert told.equals(expected)
        return
    assert told.column_names == expected.column_names
    gone = [row["ceiling"] for row in told.to_pylist() if row["candidate"] == KEYS[4]]
    assert [ceiling is None for ceiling in gone] == [False, *[True] * 8] * 2
