"""The wheel works outside the checkout: label data, presets, migrations and templates travel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.running import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("natadv_curate-*.whl")
    return built


@pytest.mark.slow
def test_the_installed_wheel_makes_a_workspace_and_uses_nothing_of_the_checkout(
    wheel: Path, tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    env = {**os.environ, "PYTHONPATH": str(site)}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import curate, curate.settings as s; print(curate.__file__, s.data_file('{}'))"
    for data in (
        "labels/imagenet-1k.csv",
        "labels/wordnet.csv.gz",
        "presets/imagenet-a.yaml",
        "demo/photos.csv",
        "testbed/class-subsets.yaml",
        "testbed/imagenet-testbed.yaml",
    ):
        for path in run("-c", where.format(data)).split():
            assert Path(path).is_relative_to(site)
    for preset in ("imagenet-a", "imagenet-o", "imagenet-1k"):
        run("-m", "curate", "init", preset, "--preset", preset)
    folder = tmp_path / "photos" / "bald eagle"
    folder.mkdir(parents=True)
    (folder / "a.jpg").write_bytes(package_photos[17][0].read_bytes())
    told = run("-m", "curate", "-w", "imagenet-a", "collect", "folder", "photos", "--json")
    assert json.loads(told)["new"] == 1
    run("-m", "curate", "-w", "imagenet-a", "filter")
    run("-m", "curate", "-w", "imagenet-a", "report", "--out", "page.html")
    assert "None of 1 photo survived" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_wheel_carries_no_more_than_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {
        "curate",
        "annotation",
        "pipelines",
        f"natadv_curate-{wheel.name.split('-')[1]}.dist-info",
    }
