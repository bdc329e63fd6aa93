"""What all tests share: where real photos come from."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The shared set of real photos, awkward files and true values, where it is at hand."""
    folder = Path(os.environ.get("CURATE_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("the shared data (../shared/data) is absent; set CURATE_SHARED_DATA")
    return folder


@pytest.fixture(scope="session")
def package_photos() -> list[tuple[Path, int]]:
    """Twenty real photos with their ImageNet-1k class index, from the package foolbox."""
    spec = importlib.util.find_spec("foolbox")
    assert spec is not None, "the package foolbox is a test dependency"
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "data"
    photos = sorted(folder.glob("imagenet_*.jpg"))
    assert len(photos) == 20
    return [(path, int(path.stem.split("_")[2])) for path in photos]
