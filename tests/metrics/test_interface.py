from __future__ import annotations

import subprocess
import sys

import curate.metrics


def test_every_exported_name_is_there_and_explains_itself() -> None:
    for name in curate.metrics.__all__:
        assert getattr(curate.metrics, name).__doc__, name


def test_importing_the_measures_imports_no_heavy_library() -> None:
    code = "import sys, curate.metrics; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "numpy" in loaded
    assert not {"scipy", "torch", "pandas", "sklearn", "matplotlib"} & set(loaded)
