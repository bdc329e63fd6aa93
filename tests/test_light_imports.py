"""What judges photos imports no catalogue, settings or command line: it runs beside any of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

MODULES = (
    "curate.images.views",
    "curate.images.decode",
    "curate.labels.space",
    "curate.models.classifier",
    "curate.models.forwards",
    "curate.models.memory",
    "curate.models.runtime",
    "curate.models.timm_zoo",
    "curate.models.torchvision_zoo",
    "curate.filtration.cascade",
    "curate.filtration.crops",
    "curate.filtration.margins",
    "curate.filtration.plan",
    "curate.filtration.rules",
    "curate.filtration.scores",
)

# Heavy imports happen in functions, so that not even PyTorch is there when these are imported.
ALONE = """
import sys

KNOWN = {*sys.stdlib_module_names, "curate", "numpy", "PIL"}

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in KNOWN:
            raise ModuleNotFoundError(f"{name} is absent here", name=name)

sys.meta_path.insert(0, Nothing())
import importlib
importlib.import_module(sys.argv[1])
"""


@pytest.mark.parametrize("module", MODULES)
def test_a_module_that_judges_photos_imports_with_numpy_and_pillow_alone(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, module], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_this_test_can_fail() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, "curate.settings"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "pydantic is absent here" in done.stderr
