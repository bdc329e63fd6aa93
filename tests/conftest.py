"""What all tests share: where real photos come from."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pipelines.public_apis import WORLDS, PhotoHost, World

# Before torch is imported: several test processes share the cores, and threads that wait for each
# other on oversubscribed cores cost tenfold. The processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

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


@pytest.fixture(scope="session")
def browser_path() -> str:
    """A Chromium to open pages with; its absence skips, but fails where CURATE_CI=1."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if (found := shutil.which(name)) is not None:
            return found
    if os.environ.get("CURATE_CI") == "1":
        pytest.fail("there is no Chromium, and CURATE_CI=1 wants the pages to be opened in one")
    pytest.skip("there is no Chromium to open pages with")


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
