"""The examples that property tests try where CURATE_CI=1: the same each time."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.running import ROOT

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
print(drawn)
"""


def drawn(first: bool, ci: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", DRAWING.format(first=first)],
        cwd=ROOT,
        env={**os.environ, "CURATE_CI": ci},
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    ).stdout


def test_ci_tries_the_same_examples_whatever_was_imported_before() -> None:
    assert drawn(True, "1") == drawn(False, "1") != ""


def test_others_try_others_each_time() -> None:
    assert drawn(False, "0") != drawn(False, "0")
