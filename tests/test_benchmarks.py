"""The GPU's benchmark runs where only the networks' packages are, and its verdicts are right."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parent.parent

# Without site's .pth files this checkout is not installed; and of what is, only the five packages
# that the script needs can be imported, with what they need themselves.
ALONE = """
import re, sys
sys.path.append(sys.argv.pop(1))
from importlib import metadata
from importlib.machinery import PathFinder

def needs(name, seen):
    name = re.sub(r"[-_.]+", "-", name).lower()
    if name in seen:
        return
    seen.add(name)
    try:
        wanted = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    for one in wanted:
        if "extra ==" not in one:
            needs(re.match(r"[A-Za-z0-9._-]+", one)[0], seen)

allowed = set()
for name in ("torch", "torchvision", "timm", "numpy", "pillow"):
    needs(name, allowed)
refused = {
    top
    for top, owners in metadata.packages_distributions().items()
    if not any(re.sub(r"[-_.]+", "-", owner).lower() in allowed for owner in owners)
} - {"curate"}
for name in ("pydantic", "sqlalchemy", "scipy", "pyarrow", "simplejpeg"):
    assert name in refused, name

class Few:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in refused:
            return PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [*(one for one in sys.meta_path if one is not PathFinder), Few()]
import runpy
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
assert not {"pipelines", "curate.catalog", "curate.settings"} & set(sys.modules)
"""


def run(folder: Path, *options: str) -> tuple[int, str, Any]:
    script, out = str(ROOT / "benchmarks" / "gpu.py"), folder / "gpu.json"
    alone = [sys.executable, "-S", "-c", ALONE, sysconfig.get_path("purelib"), script]
    done = subprocess.run(
        [*alone, "--device", "cpu", "--quick", "--out", str(out), *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    found = json.loads(out.read_bytes()) if out.exists() else None
    return done.returncode, done.stdout + done.stderr, found


@pytest.mark.slow
def test_the_gpu_benchmark_runs_on_five_packages_and_agrees_with_the_plain_loop(
    tmp_path: Path,
) -> None:
    code, told, found = run(tmp_path)
    assert code == 0, told
    assert found["forward"]["bf16"]["best"] > 0
    assert found["decode"]["photos per second"] > 0
    paper = found["paper"]
    assert paper["plain loop"]["photos"] == 14
    for way in ("torch bf16", "torch fp32"):
        one = paper[f"cascade, {way}"]
        assert one["forwards"] == [way, way]
        assert one["verdicts"]["compared"] == 14
        assert one["verdicts"]["differing"] == 0
        assert one["photos per second"] > 0
        assert one["share of the limit"] > 0
        assert len(one["outcomes"]) > 1, "the photos must not all meet one fate"
    assert sum(paper["cascade, torch bf16"]["low precision"].values()) > 0


@pytest.mark.thorough
@pytest.mark.slow
def test_the_gpu_benchmark_writes_what_it_has_when_its_time_is_over(tmp_path: Path) -> None:
    code, told, found = run(tmp_path, "--seconds", "0.5", "--only", "decode,paper")
    assert code == 0, told
    assert "skipped" in found["decode"]
    assert "skipped" in found["paper"]["plain loop"]
    assert found["machine"]["torch"]
