"""A real Label Studio for the tests that need one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from annotation import venv
from annotation.client_errors import GoneError
from annotation.server_accounts import OWNER
from curate.errors import CurateError
from tests.annotation.serving import (
    CONFIG,
    Served,
    logged_in,
    processes,
)
from tests.running import run_curate
from tests.waiting import PATIENCE, reserved_port


@pytest.fixture(scope="session")
def installed() -> venv.Installed:
    """Label Studio; where it cannot be installed tests are skipped, but fail where CURATE_CI=1."""
    try:
        return venv.install()
    except CurateError as error:
        if os.environ.get("CURATE_CI") == "1":
            pytest.fail(f"CURATE_CI=1 wants a Label Studio: {error}")
        pytest.skip(f"there is no Label Studio to start: {error}")


@pytest.fixture(scope="session")
def make_served(
    installed: venv.Installed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Served]]:
    """Makes workspaces whose servers end with the tests."""
    made: list[Served] = []

    def make() -> Served:
        root = tmp_path_factory.mktemp("served") / "workspace"
        run_curate("init", root, "--preset", "imagenet-a")
        made.append(Served(root, reserved_port(), []))
        return made[-1]

    yield make
    for each in made:
        each.curate("--stop", expect=None)
        for process in processes(each.root):
            process.kill()


@pytest.fixture(scope="session")
def running(make_served: Callable[[], Served]) -> Served:
    """A workspace whose server runs; one annotator has an account."""
    made = make_served()
    told = made.serve("--annotator", "Ann@example.org")
    assert told["state"] == "started"
    assert [account["email"] for account in told["accounts"]] == [OWNER, "ann@example.org"]
    return made


@pytest.fixture
def project(running: Served) -> Iterator[int]:
    client = running.client()
    made = client.create_project("review of a test", CONFIG, maximum_annotations=2)
    yield made["id"]
    with suppress(GoneError):
        client.delete_project(made["id"])


@pytest.fixture(scope="session")
def personal_token(running: Served) -> str:
    """The annotator's personal access token; nobody has two."""
    url = f"http://127.0.0.1:{running.port}"
    with logged_in(url, **running.kept["accounts"][1]) as browser:
        headers = {"X-CSRFToken": browser.cookies["csrftoken"], "Referer": f"{url}/"}
        answer = browser.post(f"{url}/api/token/", headers=headers, timeout=PATIENCE)
    return str(answer.json()["token"])
