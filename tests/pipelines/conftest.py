"""Workspaces on real photos that come with a package: some labels right, some wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from curate.labels.space import load_label_space


@pytest.fixture(scope="session")
def weak_folder(
    tmp_path_factory: pytest.TempPathFactory, package_photos: list[tuple[Path, int]]
) -> Path:
    """Class folders with 12 rightly and 8 wrongly labelled photos; the wrong ones survive."""
    root = tmp_path_factory.mktemp("weak") / "photos"
    wnids = load_label_space("imagenet-1k").wnids
    right = package_photos[:12]
    wrong = [(path, package_photos[n + 7][1]) for n, (path, _) in enumerate(package_photos[:8])]
    for path, label in right + wrong:
        (root / wnids[label]).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / wnids[label])
    return root
