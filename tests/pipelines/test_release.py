"""`curate release build` on real photos that real classifiers get wrong."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image, features

from curate.catalog import judging, listing, overview
from curate.errors import BusyError, StorageError, UnknownNameError, UsageError
from curate.labels.space import load_label_space
from curate.release.layout import read_layout
from pipelines.collect import collect_folder
from pipelines.filter import run_filter
from pipelines.release import build_release, list_releases
from pipelines.release_diff import diff_releases
from pipelines.release_verify import verify
from pipelines.retractions import retract
from pipelines.workspace import Workspace, create_workspace, open_workspace

pytestmark = pytest.mark.slow

Photos = list[tuple[Path, int]]

SPACE = load_label_space("imagenet-1k")

#: Text as it comes from outside.
HOSTILE = '=HYPERLINK("http://x")\n<script>alert(1)</script>, \\0'
#: What the catalogue holds of it: one line.
HELD = " ".join(HOSTILE.split())


def _wrong(index: int) -> str:
    """A class that a photo of class `index` does not show, so that the photo survives."""
    return SPACE.wnids[(index + 500) % 1000]


def _make_photos(folder: Path, photos: Photos) -> None:
    """Photos under wrong labels, two under right ones; one in two places, one under two labels."""
    rows = []

    def add(name: str, wnid: str, licence: str = "CC BY 4.0", author: str = HOSTILE) -> None:
        rows.append([name, wnid, "a set", licence, author, "-1+1", "https://example.org/?a=1&b=2"])

    folder.mkdir()
    for number, (path, index) in enumerate(photos[:4]):
        name = f"{number}.jpg"
        shutil.copyfile(path, folder / name)
        add(name, _wrong(index), licence="CC BY 4.0" if number else "")
    shutil.copyfile(photos[1][0], folder / "again.jpg")
    add("again.jpg", _wrong(photos[1][1]), author="somebody else")
    add("2.jpg", _wrong(photos[2][1] + 7))
    for number, form in [(4, "gif"), (5, "avif")]:
        if form == "gif" or features.check("avif"):
            with Image.open(photos[number][0]) as image:
                image.save(folder / f"{number}.{form}")
            add(f"{number}.{form}", _wrong(photos[number][1]))
    for number in (8, 9):
        shutil.copyfile(photos[number][0], folder / f"{number}.jpg")
        add(f"{number}.jpg", SPACE.wnids[photos[number][1]])
    with (folder / "labels.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "label", "source", "licence", "author", "title", "page"])
        writer.writerows(rows)
    (folder / "folders" / _wrong(photos[6][1])).mkdir(parents=True)
    name = os.fsdecode(b"=\xe9\n<img src=x>.jpg") if sys.platform != "darwin" else "=\n<img>.jpg"
    shutil.copyfile(photos[6][0], folder / "folders" / _wrong(photos[6][1]) / name)


def _make_workspace(root: Path, photos: Path) -> None:
    workspace = create_workspace(root, "imagenet-1k")
    try:
        collect_folder(workspace, photos, photos / "labels.csv")
        collect_folder(workspace, photos / "folders")
        run_filter(workspace)
    finally:
        workspace.close()


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Path:
    folder = tmp_path_factory.mktemp("photos") / "photos"
    _make_photos(folder, package_photos)
    return folder


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """A workspace with a finished run; a test works on a copy."""
    root = tmp_path_factory.mktemp("filtered") / "workspace"
    _make_workspace(root, photos)
    return root


@pytest.fixture
def workspace(tmp_path: Path, filtered: Path) -> Iterator[Workspace]:
    shutil.copytree(filtered, tmp_path / "workspace")
    opened = open_workspace(tmp_path / "workspace")
    yield opened
    opened.close()


def _shortlist(workspace: Workspace) -> list[listing.Shortlisted]:
    with workspace.catalogue.read() as connection:
        run = judging.newest_run(connection)
        assert run is not None
        return listing.shortlist(connection, run["id"])


def _manifest(workspace: Workspace, version: str = "0.1.0") -> list[dict[str, Any]]:
    table = pq.read_table(workspace.root / "releases" / version / "manifest.parquet")
    return table.to_pylist()


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _nothing_was_built(workspace: Workspace) -> bool:
    folder = workspace.root / "releases"
    return not list_releases(workspace) and (not folder.exists() or not os.listdir(folder))


def test_the_shortlist_becomes_a_dataset_that_imagefolder_loads(workspace: Workspace) -> None:
    from torchvision.datasets import ImageFolder

    listed = _shortlist(workspace)
    assert len(listed) >= 6
    summary = build_release(workspace, "0.1.0", unreviewed=True)
    folder = workspace.root / "releases" / "0.1.0"
    wnids = sorted({entry.wnid for entry in listed})
    assert summary["version"] == "0.1.0"
    assert summary["images"] == len(listed)
    assert summary["classes"] == len(wnids)
    assert summary["path"] == str(folder)
    assert summary["reviewed"] is False
    json.dumps(summary, allow_nan=False)
    dataset = ImageFolder(str(folder))
    assert dataset.classes == wnids
    assert len(dataset) == len(listed)
    assert all(image.mode == "RGB" for image, _ in dataset)
    assert len(read_layout(folder)) == len(listed)
    (row,) = list_releases(workspace)
    assert {key: row[key] for key in ("version", "images", "classes", "sha256", "run")} == {
        key: summary[key] for key in ("version", "images", "classes", "sha256", "run")
    }
    with workspace.catalogue.read() as connection:
        by_class = overview.funnel(connection, summary["run"])
    assert sum(counts.get("released", 0) for counts in by_class.values()) == len(listed)


def test_coreutils_find_every_checksum_right(workspace: Workspace) -> None:
    summary = build_release(workspace, "0.1.0", unreviewed=True)
    tool = shutil.which("sha256sum")
    if tool is None:
        pytest.skip("sha256sum of coreutils is not installed")
    done = subprocess.run(
        [tool, "--check", "--strict", "SHA256SUMS"], cwd=summary["path"], capture_output=True
    )
    assert done.returncode == 0, done.stderr
    sums = (Path(summary["path"]) / "SHA256SUMS").read_text()
    assert f"{summary['sha256']}  manifest.parquet\n" in sums


def test_the_manifest_says_what_the_catalogue_knows(workspace: Workspace) -> None:
    summary = build_release(workspace, "0.1.0", unreviewed=True)
    rows = {row["candidate"]: row for row in _manifest(workspace)}
    listed = _shortlist(workspace)
    assert set(rows) == {entry.candidate for entry in listed}
    for entry in listed:
        row = rows[entry.candidate]
        for key in ("place", "wnid", "predicted_wnid", "confidence", "p_true", "borderline"):
            assert row[key] == getattr(entry, key)
        assert row["name"] == SPACE.get(entry.wnid).name
        assert row["predicted_name"] == SPACE.get(entry.predicted_wnid).name
        assert row["original_sha256"] == entry.sha256
        assert row["reviewed"] is False
        data = workspace.store.read(entry.sha256, entry.extension)
        released = (Path(summary["path"]) / row["path"]).read_bytes()
        assert (released == data) is not row["reencoded"]
    by_locator = {row["locator"]: row for row in rows.values()}
    plain = by_locator["photos/1.jpg"]
    assert plain["licence"] == "CC-BY-4.0"
    assert plain["licence_url"] == "https://creativecommons.org/licenses/by/4.0/"
    assert plain["licence_text"] == "CC BY 4.0"
    assert (plain["author"], plain["title"], plain["collection"]) == (HELD, "-1+1", "a set")
    (other,) = json.loads(plain["other_origins"])
    assert (other["locator"], other["author"]) == ("photos/again.jpg", "somebody else")
    assert json.loads(by_locator["photos/3.jpg"]["other_origins"]) == []
    unlicensed = by_locator["photos/0.jpg"]
    assert (unlicensed["licence"], unlicensed["licence_text"]) == ("LicenseRef-unknown", None)
    (odd,) = [row for locator, row in by_locator.items() if "<img" in locator]
    odd["locator"].encode()
    assert odd["licence"] == "LicenseRef-unknown"
    assert by_locator["photos/4.gif"]["reencoded"]
    assert by_locator["photos/4.gif"]["path"].endswith(".png")


def test_the_csv_is_the_parquet_without_formulas(workspace: Workspace) -> None:
    build_release(workspace, "0.1.0", unreviewed=True)
    path = workspace.root / "releases" / "0.1.0" / "manifest.csv"
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, strict=True))
    assert [row["path"] for row in rows] == [row["path"] for row in _manifest(workspace)]
    assert not [cell for row in rows for cell in row.values() if cell[:1] in set("=+-@\t\r")]
    assert "'" + HELD in {row["author"] for row in rows}


def test_what_must_be_known_before_publishing_is_said(workspace: Workspace) -> None:
    summary = build_release(workspace, "0.1.0", unreviewed=True)
    formats = 2 if features.check("avif") else 1
    assert summary["licence_unknown"] == 2
    assert summary["reencoded"] == formats
    told = "\n".join(summary["problems"])
    assert "nobody has confirmed" in told
    assert f"that allows passing them on: 2 of {summary['images']}; do not publish" in told
    assert "images under several labels: 1, the first as n" in told
    folder = Path(summary["path"])
    readme = (folder / "README.md").read_text()
    assert "UNREVIEWED" in readme.splitlines()[0]
    assert "Do not publish" in readme
    record = json.loads((folder / "release.json").read_bytes())
    assert record["reviewed"] is False
    assert record["run"] == summary["run"]
    assert record["label_space"]["fingerprint"] == SPACE.fingerprint
    for model in record["models"]:
        assert f"{model['name']}  {model['fingerprint']}" in readme
    with (folder / "classes.csv").open(newline="") as stream:
        classes = list(csv.DictReader(stream))
    assert [row["wnid"] for row in classes] == list(SPACE.wnids)
    assert [int(row["position"]) for row in classes] == list(range(1000))


def test_another_workspace_on_one_core_builds_the_same_bytes(
    workspace: Workspace, photos: Path, tmp_path: Path
) -> None:
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    try:
        if cores:
            os.sched_setaffinity(0, {min(cores)})
        _make_workspace(tmp_path / "other", photos)
        other = open_workspace(tmp_path / "other")
        build_release(other, "0.1.0", unreviewed=True)
        other.close()
    finally:
        if cores:
            os.sched_setaffinity(0, cores)
    build_release(workspace, "0.1.0", unreviewed=True)
    ours = _files(workspace.root / "releases" / "0.1.0")
    assert ours == _files(tmp_path / "other" / "releases" / "0.1.0")


def test_names_as_in_the_paper_hold_both_models_predictions(workspace: Workspace) -> None:
    summary = build_release(workspace, "0.1.0", unreviewed=True, naming="paper")
    scores = pq.read_table(workspace.run_folder(summary["run"]) / "scores.parquet").to_pylist()
    second = {
        row["candidate"]: row["predicted_wnid"]
        for row in scores
        if (row["model"], row["view"]) == (1, 0)
    }
    for row in _manifest(workspace):
        found = re.fullmatch(
            r"n\d{8}/(0\.\d{6})_(.*) _ (.*)_([01]\.\d{8})(_[0-9a-f]{16,})?\.(jpg|png)",
            row["path"],
        )
        assert found, row["path"]
        assert float(found[1]) == pytest.approx(row["p_true"], abs=5e-7)
        assert float(found[4]) == pytest.approx(row["confidence"], abs=5e-9)
        assert found[2] == row["predicted_name"]
        assert found[3] == SPACE.get(second[row["candidate"]]).name
    assert len(read_layout(Path(summary["path"]))) == summary["images"]


def test_a_release_needs_the_word_unreviewed(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="add --unreviewed") as caught:
        build_release(workspace, "0.1.0", unreviewed=False)
    assert "\n" not in str(caught.value)
    assert _nothing_was_built(workspace)


def test_a_version_is_built_once(workspace: Workspace) -> None:
    build_release(workspace, "0.9.0", unreviewed=True)
    build_release(workspace, "0.10.0", unreviewed=True)
    with pytest.raises(UsageError, match="0.9.0 exists .* above 0.10.0") as caught:
        build_release(workspace, "0.9.0", unreviewed=True)
    assert caught.value.exit_code == 2
    folder = workspace.root / "releases" / "0.9.0"
    before = _files(folder)
    shutil.rmtree(folder)
    assert build_release(workspace, "0.9.0", unreviewed=True)["rebuilt"]
    assert _files(folder) == before
    assert [row["version"] for row in list_releases(workspace)] == ["0.9.0", "0.10.0"]


def test_a_folder_in_the_way_is_left_alone(workspace: Workspace) -> None:
    folder = workspace.root / "releases" / "0.1.0"
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="exists and is not what this command builds"):
        build_release(workspace, "0.1.0", unreviewed=True)
    assert _files(folder) == {"mine.txt": b"mine"}
    assert not list_releases(workspace)


@pytest.mark.parametrize(
    ("version", "arguments", "error"),
    [
        ("1.0", {}, UsageError),
        ("../1.0.0", {}, UsageError),
        ("1.0.0", {"naming": "papr"}, UnknownNameError),
        ("1.0.0", {"run_id": "no such run"}, UnknownNameError),
    ],
)
def test_unusable_arguments_build_nothing(
    workspace: Workspace, version: str, arguments: dict[str, Any], error: type[UsageError]
) -> None:
    with pytest.raises(error) as caught:
        build_release(workspace, version, unreviewed=True, **arguments)
    assert "\n" not in str(caught.value)
    assert _nothing_was_built(workspace)


def test_without_a_run_the_next_command_is_named(tmp_path: Path) -> None:
    workspace = create_workspace(tmp_path / "new", "imagenet-1k")
    with pytest.raises(UsageError, match="begin with: curate filter"):
        build_release(workspace, "0.1.0", unreviewed=True)
    workspace.close()


def test_a_run_without_survivors_makes_no_release(
    workspace: Workspace, package_photos: Photos
) -> None:
    right = [SPACE.wnids[index] for _, index in (package_photos[8], package_photos[9])]
    summary = run_filter(workspace, right)
    assert (summary["candidates"], summary["shortlisted"]) == (2, 0)
    with pytest.raises(UsageError, match="has no survivors"):
        build_release(workspace, "0.1.0", unreviewed=True)
    assert _nothing_was_built(workspace)


@pytest.mark.parametrize("fault", ["missing", "altered"])
def test_a_lost_or_altered_image_is_named_and_nothing_is_built(
    workspace: Workspace, fault: str
) -> None:
    entry = _shortlist(workspace)[-1]
    path = workspace.store.path(entry.sha256, entry.extension)
    data = path.read_bytes()
    path.unlink()
    if fault == "altered":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(StorageError, match=f"images/../{entry.sha256}.* is {fault}"):
        build_release(workspace, "0.1.0", unreviewed=True)
    assert _nothing_was_built(workspace)
    path.write_bytes(data)
    build_release(workspace, "0.1.0", unreviewed=True)


def test_a_run_is_released_within_the_label_space_that_it_was_judged_in(
    workspace: Workspace,
) -> None:
    opened = open_workspace(workspace.root, {"label_space": "imagenet-a"})
    build_release(opened, "0.1.0", unreviewed=True)
    opened.close()
    record = json.loads((workspace.root / "releases" / "0.1.0" / "release.json").read_text())
    assert record["label_space"]["name"] == "imagenet-1k"


def test_a_second_build_at_the_same_time_is_told_who_builds(workspace: Workspace) -> None:
    with (
        workspace.held("release"),
        pytest.raises(BusyError, match=f"curate release .process {os.getpid()}"),
    ):
        build_release(workspace, "0.1.0", unreviewed=True)


def _build_and_be_killed(workspace: Workspace, where: str) -> None:
    code = f"""
import os, signal
from pathlib import Path
from curate.catalog import releases
from curate.catalog.store import FolderStore
from pipelines.release import build_release
from pipelines.workspace import open_workspace

calls, read = [], FolderStore.read

def killing(*arguments):
    calls.append(0)
    if {where!r} == "catalogue" or len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return read(*arguments)

if {where!r} == "catalogue":
    releases.add_release = killing
else:
    FolderStore.read = killing
build_release(open_workspace(Path({str(workspace.root)!r})), "0.1.0", unreviewed=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_killed_build_shows_nothing_and_the_next_one_succeeds(workspace: Workspace) -> None:
    _build_and_be_killed(workspace, "store")
    assert not (workspace.root / "releases" / "0.1.0").exists()
    assert not list_releases(workspace)
    build_release(workspace, "0.1.0", unreviewed=True)
    assert os.listdir(workspace.root / "releases") == ["0.1.0"]


def test_a_kill_before_the_catalogue_knows_is_healed(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    _build_and_be_killed(workspace, "catalogue")
    folder = workspace.root / "releases" / "0.1.0"
    before = _files(folder)
    assert before
    assert not list_releases(workspace)
    summary = build_release(workspace, "0.1.0", unreviewed=True)
    assert "stood there already" in capsys.readouterr().err
    assert [row["sha256"] for row in list_releases(workspace)] == [summary["sha256"]]
    assert _files(folder) == before
    assert os.listdir(workspace.root / "releases") == ["0.1.0"]


@pytest.mark.photos
def test_the_survivors_of_the_real_photos_are_released(tmp_path: Path, shared_data: Path) -> None:
    from torchvision.datasets import ImageFolder

    with (shared_data / "photos" / "reference.csv").open() as stream:
        kept = [row["path"] for row in csv.DictReader(stream) if row["outcome"] == "survivor"]
    with (tmp_path / "labels.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "label"])
        writer.writerows([path, path.split("/")[2]] for path in kept)
    workspace = create_workspace(tmp_path / "workspace", "imagenet-a")
    collect_folder(workspace, shared_data / "photos", tmp_path / "labels.csv")
    run_filter(workspace)
    summary = build_release(workspace, "0.1.0", unreviewed=True)
    workspace.close()
    assert (summary["images"], summary["classes"]) == (18, 8)
    dataset = ImageFolder(summary["path"])
    originals = {(shared_data / "photos" / path).read_bytes() for path in kept}
    assert {Path(path).read_bytes() for path, _ in dataset.samples} == originals


def test_what_was_taken_back_is_left_out_of_the_next_build_which_is_a_major_one(
    workspace: Workspace,
) -> None:
    first = build_release(workspace, "0.1.0", unreviewed=True)
    rows = pq.read_table(f"{first['path']}/manifest.parquet").to_pylist()
    told = retract(workspace, f"0.1.0/{rows[0]['path']}", "person-request")
    gone = {row["path"] for row in rows if row["original_sha256"] == told["image"]}
    assert set(told["versions"]["0.1.0"]) == gone
    with pytest.raises(UsageError, match=r"build 1\.0\.0$"):
        build_release(workspace, "0.2.0", unreviewed=True)
    second = build_release(workspace, "1.0.0", unreviewed=True)
    assert second["images"] == first["images"] - len(gone)
    assert f"images left out because they were taken back: {len(gone)}" in second["problems"]
    folder = Path(second["path"])
    assert (folder / "tombstones.csv").read_text().splitlines()[1:] == [
        f"{told['image']},{told['retracted']},person-request"
    ]
    for name in ("README.md", "release.json"):
        text = (folder / name).read_text()
        assert "### 1.0.0, after 0.1.0" in text
        assert "retracted: person-request" in text
    for version, warned in (("0.1.0", len(gone) + 1), ("1.0.0", 0)):
        checked = verify(workspace, version)
        assert checked["problems"] == []
        assert sum("taken back" in line for line in checked["warnings"]) == warned
    listed = {row["version"]: row["retracted"] for row in list_releases(workspace)}
    assert listed == {"0.1.0": 1, "1.0.0": 0}
    told = diff_releases(workspace, "0.1.0", "1.0.0")
    assert told["counts"] | {"removed": 0} == dict.fromkeys(told["counts"], 0)
    assert {one["reason"] for one in told["removed"]} == {"retracted: person-request"}
