"""The benchmark of corruptions runs, and prints a row for each that it was asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
def test_the_benchmark_tells_both_times_of_a_corruption(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "corruptions.py"
    wanted = ["--corruption", "brightness", "--corruption", "frost", "--repeats", "1"]
    done = subprocess.run(
        [sys.executable, str(script), *wanted],
        cwd=tmp_path,
        env={"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()[2:]]
    assert [row[0].strip() for row in rows] == ["brightness", "frost"]
    assert all(float(one) > 0 for row in rows for one in row[1:])
    # 1 would say that a row was slower than its formula: timing is no matter of this test.
    assert done.returncode in (0, 1)
    assert list(tmp_path.iterdir()) == []
