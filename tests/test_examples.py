"""The examples that property tests try where CURATE_CI=1: the same each time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.running import ROOT
from tests.waiting import PATIENCE

DRAWING = """
import hypothesis, tests.conftest
from hypothesis import strategies as st
if {first}:
    import curate.licences
drawn = []
@hypothesis.given(st.tuples(st.text(), st.floats(), st.integers(), st.binary()))
def draw(example):
    drawn.append(example)
draw()
print(tests.conftest.ARE_THE_SAME, drawn)
"""

#: By which Hypothesis knows some services that run tests.
SERVICE = {"CI": "true"}


def drawn(first: bool, ci: str, **env: str) -> str:
    """Whether the examples are said to be the same each time, and what they are."""
    told = subprocess.run(
        [sys.executable, "-c", DRAWING.format(first=first)],
        cwd=ROOT,
        env={**os.environ, "CURATE_CI": ci, **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    ).stdout
    assert told.count("(") > 50
    return told


def test_ci_tries_the_same_examples_whatever_was_imported_before() -> None:
    first = drawn(True, "1")
    if first.startswith("False"):
        pytest.skip("this Hypothesis has its constants from elsewhere: see tests/conftest.py")
    assert first == drawn(False, "1", **SERVICE)


@pytest.mark.parametrize("env", [{}, SERVICE], ids=["at home", "on a service"])
def test_others_try_others_each_time(env: dict[str, str]) -> None:
    assert drawn(False, "0", **env) != drawn(False, "0", **env)
