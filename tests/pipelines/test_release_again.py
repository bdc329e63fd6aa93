"""A version whose folder was lost is built again with the very same bytes, or not at all."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from curate.catalog.tables import origins
from curate.cli.common import shared
from curate.cli.main import app
from curate.errors import UsageError, VerificationError
from pipelines.release import build_release, list_releases
from pipelines.release_verify import verify
from pipelines.retractions import retract
from pipelines.workspace import open_workspace
from tests.pipelines.releasing import accept, photo_rows
from tests.pipelines.reviewing import Rows

WNIDS = ("n01498041", "n01531178", "n01534433")

Photos = list[tuple[Path, int]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Rows:
    """Twelve accepted photos of three classes; a test works on a copy."""
    photos: list[tuple[Path, str, str | None]] = [
        (path, WNIDS[n % 3], f"author {n}") for n, (path, _) in enumerate(package_photos[:14])
    ]
    rows = photo_rows(tmp_path_factory.mktemp("made") / "w", photos)
    accept(rows, range(12))
    return rows


@pytest.fixture
def rows(tmp_path: Path, made: Rows) -> Iterator[Rows]:
    shutil.copytree(made.workspace.root, tmp_path / "w")
    copy = Rows(open_workspace(tmp_path / "w"), made.keys, made.sha256s, made.wnids, made.ids)
    copy.answered = made.answered
    yield copy
    copy.workspace.close()


def build(rows: Rows, version: str, **options: Any) -> dict[str, Any]:
    return build_release(rows.workspace, version, **{"unreviewed": False, **options})


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def lose(summary: dict[str, Any]) -> dict[str, bytes]:
    """Delete a release by hand; gives what it was."""
    files = files_of(Path(summary["path"]))
    shutil.rmtree(summary["path"])
    return files


def test_each_version_comes_back_as_it_was_whatever_was_built_since(rows: Rows) -> None:
    options = {"splits": ["dev=0.4"], "seed": 3, "per_class_max": 4}
    first = build(rows, "1.0.0", **options)
    retract(rows.workspace, rows.sha256s[0], "privacy")
    second = build(rows, "2.0.0", metadata="strip", **options)
    assert "tombstones.csv" in files_of(Path(second["path"]))
    retract(rows.workspace, rows.sha256s[13], "licence")
    build(rows, "3.0.0", naming="paper", unreviewed=True)
    rows.workspace = rows.workspace.changed({"release.title": "Told otherwise since"})
    before = list_releases(rows.workspace)

    expected = lose(second)
    # Nothing need be asked for, and what is may be what was asked for then.
    for asked in ({}, {"metadata": "strip", **options}):
        told = build(rows, "2.0.0", **asked)
        assert told["rebuilt"]
        assert told["sha256"] == second["sha256"]
        assert {k: told[k] for k in ("images", "splits")} == {
            k: second[k] for k in ("images", "splits")
        }
        assert files_of(Path(told["path"])) == expected
        assert verify(rows.workspace, "2.0.0")["problems"] == []
        lose(told)
    assert list_releases(rows.workspace) == before
    # An image that was taken back since is in no build any more.
    lose(first)
    with pytest.raises(VerificationError, match="1 of its 12 .*1 of them taken back since"):
        build(rows, "1.0.0")
    assert sorted(os.listdir(Path(first["path"]).parent)) == ["3.0.0"]


def _more_accepted(rows: Rows) -> None:
    accept(rows, [12])


def _told_anew(rows: Rows) -> None:
    with rows.workspace.catalogue.write() as connection:
        connection.execute(update(origins).values(title="another"))


def _another_card(rows: Rows) -> None:
    from curate.release import build as module

    usual = module.card
    module.card = lambda *arguments: usual(*arguments) + b"\n"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (_more_accepted, "0 of its 12 images would be left out, and 1 others come in"),
        (_told_anew, r"manifest\.parquet would have other bytes"),
        (_another_card, "SHA256SUMS would have other bytes"),
    ],
)
def test_what_would_have_other_bytes_is_not_built(
    rows: Rows, change: Any, match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from curate.release import build as module

    monkeypatch.setattr(module, "card", module.card)
    summary = build(rows, "1.0.0")
    lose(summary)
    change(rows)
    with pytest.raises(VerificationError, match=match) as caught:
        build(rows, "1.0.0")
    assert "\n" not in str(caught.value)
    assert os.listdir(Path(summary["path"]).parent) == []


def test_other_options_than_the_versions_own_are_refused(rows: Rows) -> None:
    lose(build(rows, "1.0.0", splits=["dev=0.4"]))
    others: list[tuple[dict[str, Any], str]] = [
        ({"splits": ["dev=0.2"]}, "--split"),
        ({"unreviewed": True}, "--unreviewed"),
        ({"naming": "paper"}, "--naming"),
        ({"metadata": "keep"}, "--strip-metadata or --keep-metadata"),
        ({"per_class_max": 1}, "--per-class-max"),
        ({"run_id": "0" * 12}, "--run"),
    ]
    for options, named in others:
        with pytest.raises(UsageError, match=f"another {named};"):
            build(rows, "1.0.0", **options)
    assert os.listdir(rows.workspace.root / "releases") == []


def test_a_version_that_stands_there_is_never_built_again(rows: Rows) -> None:
    folder = Path(build(rows, "1.0.0")["path"])
    (folder / "README.md").write_text("damaged")
    before = files_of(folder)
    with pytest.raises(UsageError, match="exists and never changes"):
        build(rows, "1.0.0")
    assert files_of(folder) == before


def test_the_command_says_that_it_builds_again_and_exits_with_1_where_it_cannot(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = lose(build(rows, "1.0.0"))
    with pytest.raises(UsageError, match="or build it again: curate release build 1.0.0"):
        verify(rows.workspace, "1.0.0")
    root = rows.workspace.root

    def call(*command: str) -> Any:
        monkeypatch.setattr(shared, "workspace", None)
        return CliRunner().invoke(app, ["-w", str(root), *command])

    done = call("release", "build", "1.0.0")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("release 1.0.0 again: 12 images")
    assert "its folder is gone" in done.stderr
    assert files_of(root / "releases" / "1.0.0") == expected
    shutil.rmtree(root / "releases" / "1.0.0")
    accept(rows, [12])
    done = call("release", "build", "1.0.0")
    assert (done.exit_code, done.stdout) == (1, "")
    assert isinstance(done.exception, VerificationError)


KILLED = """
import os, signal, sys
from pathlib import Path
from pipelines.release import build_release
from pipelines.workspace import open_workspace

events = 0

def count(event, arguments):
    global events
    if event in ("open", "os.rename", "os.mkdir") and "releases" in str(arguments[0]):
        events += 1
        if events == {moment}:
            os.kill(os.getpid(), signal.SIGKILL)

workspace = open_workspace(Path({root!r}))
# Every file or folder that is opened, made or renamed is a moment to be killed at.
sys.addaudithook(count)
build_release(workspace, "1.0.0", unreviewed=False)
print(events)
"""


@pytest.mark.slow
def test_a_kill_while_a_version_is_built_again_leaves_all_or_nothing(rows: Rows) -> None:
    summary = build(rows, "1.0.0")
    expected, folder = lose(summary), Path(summary["path"])
    known = list_releases(rows.workspace)

    def killed(moment: int) -> subprocess.CompletedProcess[str]:
        code = KILLED.format(root=str(rows.workspace.root), moment=moment)
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    moments = int(killed(0).stdout)
    visible = []
    for moment in (moments // 2, moments - 1, moments):
        shutil.rmtree(folder, ignore_errors=True)
        done = killed(moment)
        assert done.returncode == -signal.SIGKILL, done.stderr
        if folder.exists():
            visible.append(moment)
        else:
            build(rows, "1.0.0")
        assert files_of(folder) == expected
        assert os.listdir(folder.parent) == ["1.0.0"]
        assert list_releases(rows.workspace) == known
    assert visible == [moments]
