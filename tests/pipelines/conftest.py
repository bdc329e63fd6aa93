"""Workspaces on real photos that come with a package: some labels right, some wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from curate.labels.space import load_label_space
from tests.pipelines.public_apis import WORLDS, PhotoHost, World


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


@pytest.fixture
def make_world(
    monkeypatch: pytest.MonkeyPatch, package_photos: list[tuple[Path, int]]
) -> Iterator[Callable[[str], World]]:
    """Makes a running API of a public source by name; all share one host of photos."""
    with ExitStack() as servers:
        photos = PhotoHost([path for path, _ in package_photos])
        servers.enter_context(photos)

        def make(source: str) -> World:
            world = WORLDS[source](photos)
            servers.enter_context(world.api)
            for name, value in world.environ.items():
                monkeypatch.setenv(name, value)
            return world

        yield make
