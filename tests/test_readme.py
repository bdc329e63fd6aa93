"""The README is true: each of its commands is run, and its two first ones are what CI runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.workspace import create_workspace
from tests.pipelines.public_apis import World
from tests.running import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def fenced(kind: str) -> list[str]:
    return re.findall(rf"<!-- test: {kind} -->\n```\w*\n(.*?)```", README, re.DOTALL)


def test_the_two_commands_stand_at_the_top_and_exist() -> None:
    blocks = re.findall(r"```\w*\n(.*?)```", README, re.DOTALL)
    assert blocks[:2] == ["make demo\n", "make test\n"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^demo:", makefile, re.MULTILINE)
    assert re.search(r"^test:", makefile, re.MULTILINE)


def test_every_block_is_run_by_a_test() -> None:
    # Those on review: tests/annotation/test_whole_way.py
    kinds = ("activate", "commands", "review", "public", "python")
    run = [block for kind in kinds for block in fenced(kind)]
    assert README.count("```") == 2 * (2 + len(run))


def test_the_environment_is_activated_where_make_has_made_it() -> None:
    (command,) = fenced("activate")
    if not (ROOT / ".venv").is_dir():
        pytest.skip("the tests run in an environment that make has not made")
    script = f"{command}\ncurate --version"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, check=False)
    assert done.stdout.startswith(b"curate "), done.stderr


def test_every_link_and_picture_is_there() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).is_file(), target


@pytest.mark.slow
def test_the_commands_work_as_they_stand(
    tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    """In a shell, in one folder, one block after the other."""
    for name, numbers in {"dragonfly": (0, 1, 2), "n01614925": (17, 3), "goldfinch": (4,)}.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in numbers:
            shutil.copy(package_photos[number][0], tmp_path / "photos" / name)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    script = "set -e\n" + "".join(fenced("commands"))
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
    assert (tmp_path / "dragonflies" / "releases" / "0.1.0" / "manifest.csv").is_file()
    assert list((tmp_path / "dragonflies" / "runs").glob("*/report.html"))


@pytest.mark.slow
def test_the_commands_for_public_sources_work_as_they_stand(
    tmp_path: Path, make_world: Callable[[str], World]
) -> None:
    """In a workspace; the source's API and the host of photos are on loopback."""
    world = make_world("inaturalist")
    root = create_workspace(tmp_path / "workspace", "imagenet-a").root
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    allowed = [world.api.allow_host, world.photos.allow_host]
    env |= {**world.variables(), "CURATE_NETWORK__ALLOW_HOSTS": json.dumps(allowed)}
    del env["CURATE_COLLECT__CONTACT"]
    script = "set -e\n" + "".join(fenced("public"))
    done = subprocess.run(
        ["bash", "-c", script], cwd=root, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "found 10: 10 new" in done.stdout
    agents = {request.headers["User-Agent"] for request in world.api.requests}
    assert all("you@example.org" in agent for agent in agents)


@pytest.mark.slow
def test_the_python_example_works_as_it_stands(
    tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    for name, number in {"dragonfly": 0, "bald eagle": 17}.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        shutil.copy(package_photos[number][0], tmp_path / "photos" / name / "a.jpg")
    (example,) = fenced("python")
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"photos/dragonfly/a\.jpg: taken for .+ \(0\.\d\d\)\n", done.stdout)
