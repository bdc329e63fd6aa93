"""What docs/ says can be typed can be typed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.collect import collect_folder
from pipelines.workspace import create_workspace
from tests.running import ROOT, run_curate

FILTERING = (ROOT / "docs" / "filtering.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    (found,) = re.findall(rf"<!-- test: {kind} -->\n```\n(.*?)```", FILTERING, re.DOTALL)
    return str(found)


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def test_every_link_of_the_docs_is_there() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            there = target.startswith("https://") or (page.parent / target).is_file()
            assert there, f"{page.name}: {target}"


def commands(page: Path) -> list[str]:
    """Every command of a page: a line of a fenced block, or between backticks."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    lines = [line for one in fenced for line in one.splitlines()]
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    told = [line.partition("#")[0].partition(">")[0].strip() for line in [*lines, *inline]]
    return [line for line in told if line.startswith("curate ")]


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_every_command_of_the_docs_is_understood(page: Path) -> None:
    import click
    import typer

    from curate.cli.main import app

    for command in commands(page):
        group: click.Command = typer.main.get_command(app)
        words = [word for word in shlex.split(command)[1:] if word != "--help"]
        parents: list[click.Context] = []
        while True:
            settings = {"resilient_parsing": not words, "parent": parents[-1] if parents else None}
            context = group.make_context(words[0] if words else "", list(words), **settings)
            parents.append(context)
            if not isinstance(group, click.Group):
                break
            left = [*context.protected_args, *context.args]
            if not left:
                break
            _, found, words = group.resolve_command(context, left)
            assert found is not None, command
            group, words = found, list(words)


def test_a_workspace_for_outliers_is_made_and_a_dog_is_refused(tmp_path: Path) -> None:
    done = shell(block("outlier"), tmp_path)
    assert done.returncode == 1
    assert (tmp_path / "outliers" / "curate.yaml").is_file()
    assert "n02084071" in done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.slow
def test_scores_are_judged_again_as_the_page_says(
    tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    workspace = create_workspace(tmp_path / "workspace", "imagenet-1k")
    for path, label in package_photos[:4]:
        folder = tmp_path / "photos" / workspace.label_space.wnids[label + 1]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder)
    collect_folder(workspace, tmp_path / "photos")
    root = workspace.root
    done = shell(f"set -e\n{block('again')}", root)
    assert done.returncode == 0, done.stderr
    run = json.loads(run_curate("--json", "status", workspace=root).stdout)["run"]
    for command in re.findall(r"`curate (filter [^`]*\bID\b[^`]*)`", FILTERING):
        arguments = ["--json", *command.replace("ID", run).split()]
        again = json.loads(run_curate(*arguments, workspace=root).stdout)
        assert again["candidates"] == 4
    wider = ("--json", "filter", "--from-run", run, "--label-space", "imagenet-1k")
    assert json.loads(run_curate(*wider, workspace=root).stdout)["forwards"] == 0
    drawn = json.loads(run_curate("--json", "filter", "--control", "2", workspace=root).stdout)
    assert drawn["control"] == 2
    listed = run_curate("shortlist", "--control", workspace=root).stdout.splitlines()
    assert len(listed) == 1 + 2
    assert (root / "runs" / drawn["run"] / "control.csv").is_file()
    command = ("release", "build", "0.0.1", "--unreviewed", "--control")
    assert json.loads(run_curate("--json", *command, workspace=root).stdout)["images"] == 2
