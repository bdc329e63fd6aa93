"""The example of the corruption table prints the numbers that the lesson prints."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.running import ROOT

# Accuracies at five severities, mean error, relative error; then the shape by our own words.
RAW = """
gaussian_noise 0.843 0.843 0.843 0.847 0.847 0.155 1.0 steady
blur           0.843 0.843 0.843 0.843 0.843 0.157 1.0 steady
contrast       0.880 0.827 0.807 0.643 0.407 0.287 1.8 cliff after s3
brightness     0.817 0.650 0.397 0.320 0.320 0.499 3.2 slope, floor from s4
pixelate       0.843 0.843 0.843 0.767 0.817 0.177 1.1 steady
jpeg           0.843 0.843 0.843 0.843 0.843 0.157 1.0 steady
"""
STANDARDISED = """
gaussian_noise 0.853 0.847 0.850 0.847 0.840 0.153 1.0 steady
blur           0.853 0.853 0.857 0.840 0.827 0.154 1.0 steady
contrast       0.853 0.853 0.853 0.853 0.853 0.147 1.0 steady
brightness     0.853 0.853 0.853 0.853 0.853 0.147 1.0 steady
pixelate       0.853 0.847 0.847 0.790 0.533 0.226 1.5 cliff after s4
jpeg           0.853 0.853 0.847 0.847 0.847 0.151 1.0 steady
"""


def test_the_example_prints_the_table_of_the_lesson_to_the_last_digit() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "lesson.py"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    blocks = done.stdout.strip().split("\n\n")
    assert len(blocks) == 2
    for block, expected, head, clean, mean in (
        (blocks[0], RAW, "raw pixels", "0.843  (error 0.157)", "1.5"),
        (
            blocks[1],
            STANDARDISED,
            "same model, each image standardised first",
            "0.853  (error 0.147)",
            "1.1",
        ),
    ):
        lines = block.splitlines()
        assert lines[0] == f"=== {head} ==="
        assert lines[1] == f"clean accuracy {clean}"
        assert " ".join(lines[2].split()) == "corruption s1 s2 s3 s4 s5 mean err relative"
        shapes = dict(re.findall(r"([a-z_]+) ((?:steady|cliff|slope)[^;]*)", lines[-1]))
        for line, row in zip(lines[3:9], expected.strip().splitlines(), strict=True):
            name, *numbers, shape = row.split(maxsplit=8)
            assert line.split() == [name, *numbers[:-1], f"{numbers[-1]}x"]
            assert shapes[name] == shape
        assert lines[9] == f"mean relative corruption error: {mean}x the clean error"
