"""`curate release pack`: with and without a workspace, and through kills and second commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from curate.choices import PACK_FORMS
from curate.errors import BusyError, UnknownNameError, UsageError, VerificationError
from curate.files import hold, sha256_bytes
from curate.release.manifest import ManifestRow
from pipelines.release_forms import find_release, pack_release
from pipelines.release_verify import verify
from tests.release.packing import Photos, build, files_of, rows_of, sum_up
from tests.waiting import interrupt

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Path:
    return build(tmp_path_factory.mktemp("workspace"), package_photos)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, built: Path) -> dict[str, str]:
    out = tmp_path_factory.mktemp("expected")
    pack_release(built, out, PACK_FORMS, shard_images=3)
    return _visible(out)


def _visible(out: Path) -> dict[str, str]:
    """What stands there but hidden files, and its SHA-256."""
    files = files_of(out).items()
    return {path: sha256_bytes(data) for path, data in files if not path.startswith(".")}


def _of(form: str, expected: dict[str, str]) -> dict[str, str]:
    """What a form consists of."""
    name = "0.1.0.tar" if form == "tar" else f"0.1.0-{form}/"
    return {path: digest for path, digest in expected.items() if path.startswith(name)}


def test_the_summary_names_every_file_with_its_checksum(built: Path, tmp_path: Path) -> None:
    summary = pack_release(built, tmp_path / "new" / "out", PACK_FORMS, shard_images=3)
    json.dumps(summary, allow_nan=False)
    assert (summary["version"], summary["images"], summary["classes"]) == ("0.1.0", 8, 3)
    assert summary["sha256"] == sha256_bytes((built / "manifest.parquet").read_bytes())
    assert summary["problems"] == ["unreviewed: nobody has confirmed these labels"]
    assert list(summary["forms"]) == list(PACK_FORMS)
    for form, made in summary["forms"].items():
        folder = Path(made["path"]).parent if form == "tar" else Path(made["path"])
        assert sum(one["images"] for one in made["files"]) == 8
        for one in made["files"]:
            data = (folder / one["path"]).read_bytes()
            assert (len(data), sha256_bytes(data)) == (one["bytes"], one["sha256"])
        assert not made["known"]


@pytest.mark.parametrize("form", ["webdataset", "parquet"])
def test_a_form_is_checked_by_its_checksums_and_counts(
    built: Path, tmp_path: Path, form: str
) -> None:
    made = pack_release(built, tmp_path, [form], shard_images=3)["forms"][form]
    folder, file = Path(made["path"]), made["files"][0]["path"]
    told = verify(None, str(folder))
    assert (told["problems"], told["dataset"], told["version"]) == ([], "form", "0.1.0")
    assert (told["images"], told["classes"]) == (8, 3)
    assert "packed form" in told["warnings"][0]
    data = (folder / file).read_bytes()
    (folder / file).write_bytes(data[:600] + b"x" + data[601:])
    (folder / "more").write_bytes(b"")
    assert verify(None, str(folder))["problem_counts"] == {"altered": 1, "stranger": 1}
    (folder / file).unlink()
    assert verify(None, str(folder))["problem_counts"]["missing"] == 1
    (folder / "index.json").write_bytes(b"[" * 100_000)
    (folder / "release.json").write_bytes(b"[")
    assert verify(None, str(folder))["problem_counts"]["record"] == 1


def test_photos_that_may_not_be_passed_on_are_told(built: Path, tmp_path: Path) -> None:
    release = Path(shutil.copytree(built, tmp_path / "release"))
    from curate.release.manifest import manifest_parquet

    rows = [ManifestRow(**row | {"licence": "LicenseRef-unknown"}) for row in rows_of(release)]
    (release / "manifest.parquet").write_bytes(manifest_parquet(rows, {}))
    sum_up(release)
    summary = pack_release(release, tmp_path / "out", ["tar"])
    assert "passing them on: 8 of 8; do not publish" in summary["problems"][1]


def test_a_second_time_nothing_changes(
    built: Path, tmp_path: Path, expected: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    pack_release(built, tmp_path, ["parquet"], shard_images=3)
    summary = pack_release(built, tmp_path, ["parquet", "tar"], shard_images=3)
    assert "stood there already" in capsys.readouterr().err
    assert summary["forms"]["parquet"]["known"]
    assert not summary["forms"]["tar"]["known"]
    assert _visible(tmp_path) == _of("parquet", expected) | _of("tar", expected)


def test_a_second_pack_into_one_folder_is_told_who_packs(built: Path, tmp_path: Path) -> None:
    with (
        hold(tmp_path / ".curate-pack", "curate release pack"),
        pytest.raises(BusyError, match=f"process {os.getpid()} .* holds {tmp_path}"),
    ):
        pack_release(built, tmp_path, ["tar"])


def test_unusable_arguments_pack_nothing(built: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean parquet"):
        pack_release(built, tmp_path / "out", ["parket"])
    with pytest.raises(UsageError, match="at least one form"):
        pack_release(built, tmp_path / "out", [])
    with pytest.raises(UsageError, match="--shard-images"):
        pack_release(built, tmp_path / "out", ["tar"], shard_images=0)
    for inside in (built, built / "packed", tmp_path / "link" / "packed"):
        if inside.parent.name == "link":
            inside.parent.symlink_to(built)
        with pytest.raises(UsageError, match="lies within the release"):
            pack_release(built, inside, ["tar"])
    with pytest.raises(UsageError, match="is no release"):
        pack_release(built.parent, tmp_path / "out", ["tar"])
    assert not (tmp_path / "out").exists()
    assert not (built / "packed").exists()


def test_a_version_is_the_workspace_s_and_anything_else_a_folder(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = built.parent.parent
    assert find_release("0.1.0", workspace) == built
    assert find_release(str(built), None) == built
    monkeypatch.chdir(built.parent)
    assert find_release("0.1.0", None) == Path("0.1.0")
    assert find_release("0.1.0", tmp_path) == Path("0.1.0")
    assert find_release("./0.1.0", workspace) == Path("./0.1.0")
    with pytest.raises(UsageError, match=r"no release 0\.2\.0: not in"):
        find_release("0.2.0", workspace)
    with pytest.raises(UsageError, match="no workspace is here"):
        find_release("0.2.0", None)
    with pytest.raises(UsageError, match="neither a version nor"):
        find_release("../0.2.0", workspace)


# Forks one process a moment, each of which is killed there, and tells how far it came. With a fault
# the forms are written under their final names.
KILLS = """
import os, signal, sys
from pathlib import Path
import filelock, pyarrow.parquet
import curate.release.embedded, curate.release.forms as forms
from pipelines.release_forms import pack_release

pyarrow.array([1])  # what it imports at first is imported once for all

source, out, fault = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
if fault:
    forms.TEMPORARY = ""

def killed_at(kind, number):
    left = [number]
    def moment(*_):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    advance, finish, rename = forms._StoppingBar.advance, forms.Syncing.finish, Path.rename
    if kind == "image":
        forms._StoppingBar.advance = lambda self, count=1: (moment(), advance(self, count))
    elif kind == "sync":
        forms.Syncing.finish = lambda self: (moment(), finish(self), moment())
    else:
        Path.rename = lambda self, to: (moment(), rename(self, to), moment())

for number, moment in enumerate(sys.argv[4:]):
    kind, place, form = moment.split(":")
    child = os.fork()
    if child == 0:
        killed_at(kind, int(place))
        pack_release(source, out / str(number), [form], shard_images=3)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, moment
"""

MOMENTS = [
    f"{moment}:{form}"
    for form in PACK_FORMS
    for moment in ("image:1", "image:5", "image:8", "sync:1", "sync:2", "rename:1", "rename:2")
]


def _kill(built: Path, out: Path, moments: list[str], fault: str = "") -> None:
    out.mkdir()
    for number in range(len(moments)):
        (out / str(number)).mkdir()
    done = subprocess.run(
        [sys.executable, "-c", KILLS, built, out, fault, *moments],
        capture_output=True,
        cwd=ROOT,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def _check(out: Path, moments: list[str], expected: dict[str, str]) -> None:
    """Each form is whole under its name, or not there."""
    for number, moment in enumerate(moments):
        found = _visible(out / str(number))
        assert found in ({}, _of(moment.rpartition(":")[2], expected)), moment
        assert bool(found) == moment.startswith("rename:2"), moment


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_a_kill_leaves_a_form_whole_or_absent_and_the_next_pack_ends_in_the_same_bytes(
    built: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    faulty = [moment for moment in MOMENTS if moment.startswith("image:5")]
    _kill(built, tmp_path / "fault", faulty, "direct")
    with pytest.raises(AssertionError, match="image:5"):
        _check(tmp_path / "fault", faulty, expected)
    out = tmp_path / "out"
    _kill(built, out, MOMENTS)
    _check(out, MOMENTS, expected)
    for number, moment in enumerate(MOMENTS):
        form = moment.rpartition(":")[2]
        pack_release(built, out / str(number), [form], shard_images=3)
        assert _visible(out / str(number)) == _of(form, expected)
        assert not list((out / str(number)).glob(".partial-*"))


@pytest.mark.slow
def test_the_command_packs_a_folder_without_a_workspace(
    built: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    def curate(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "curate", *arguments]
        environ = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ)

    pack = ("--json", "release", "pack", str(built), "--out", "out", "--shard-images", "3")
    done = curate(*pack, "--form", "webdataset", "--form", "tar")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert set(summary["forms"]) == {"tar", "webdataset"}
    assert _visible(tmp_path / "out") == _of("webdataset", expected) | _of("tar", expected)
    done = curate(*pack, "--form", "zip")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "unknown form 'zip'" in done.stderr


def test_a_photo_that_changes_under_the_work_is_found(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Path(shutil.copytree(built, tmp_path / "release"))
    path = sorted(release.glob("n*/*"))[-1]
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(VerificationError, match=f"{path.name} is not what SHA256SUMS says"):
        pack_release(release, tmp_path / "out", ["parquet"])
    assert _visible(tmp_path / "out") == {}


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals need a main thread"
)
def test_an_interrupt_stops_after_the_image_in_hand(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from curate.errors import Interrupted
    from curate.release.forms import _StoppingBar

    advance = _StoppingBar.advance

    def interrupted(self: _StoppingBar, count: int = 1) -> None:
        interrupt()
        advance(self, count)

    monkeypatch.setattr(_StoppingBar, "advance", interrupted)
    with pytest.raises(Interrupted, match="was not packed"):
        pack_release(built, tmp_path, PACK_FORMS)
    assert _visible(tmp_path) == {}
