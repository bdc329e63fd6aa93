"""The demo: real photos of installed packages, and the user's own, the whole way."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from curate.errors import MissingExtraError, UsageError, WorkspaceError
from curate.files import csv_plain, read_csv, sha256_file
from curate.labels.space import load_label_space
from curate.licences import parse
from curate.release.layout import read_layout
from curate.settings import data_file
from pipelines.demo import find_bundled, run_demo
from pipelines.workspace import create_workspace, open_workspace

PACKAGES = ("foolbox", "matplotlib", "skimage")

#: The contract: those of filter.
FILTER_KEYS = {
    "run",
    "candidates",
    "removed",
    "survivors",
    "shortlisted",
    "capped",
    "failed",
    "forwards",
    "forwards_naive",
    "seconds",
}


@pytest.fixture(scope="module")
def table() -> list[dict[str, str]]:
    rows = read_csv(data_file("demo/photos.csv"), ["package"])
    return [{name: csv_plain(cell) for name, cell in row.items()} for _, row in rows]


@pytest.fixture(scope="module")
def on_packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("demo") / "packages"
    return folder, run_demo(folder)


@pytest.fixture(scope="module")
def own_photos(
    tmp_path_factory: pytest.TempPathFactory, package_photos: list[tuple[Path, int]]
) -> Path:
    """Six photos; two of them are labelled as something that no classifier sees in them."""
    folder = tmp_path_factory.mktemp("own")
    labels = ["bull mastiff", "folding chair", "beaker", "banana", "n07745940", "volcano"]
    for label, (path, _) in zip(labels, package_photos[:6], strict=True):
        (folder / label).mkdir()
        shutil.copy(path, folder / label)
    return folder


@pytest.fixture(scope="module")
def on_own(
    tmp_path_factory: pytest.TempPathFactory, own_photos: Path
) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("demo") / "own"
    return folder, run_demo(folder, photos=own_photos)


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The packages with photos as if they were not installed."""
    for name in PACKAGES:
        monkeypatch.setitem(sys.modules, name, None)
    return monkeypatch


def test_the_table_names_known_classes_and_each_photo_once(table: list[dict[str, str]]) -> None:
    space = load_label_space("imagenet-1k")
    assert len(table) >= 20
    assert len({row["sha256"] for row in table}) == len(table)
    for row in table:
        assert space.get(row["wnid"]).name == row["name"]
        assert row["title"]
        assert row["page"].startswith("https://")


def test_the_labels_of_foolbox_are_those_of_its_file_names(table: list[dict[str, str]]) -> None:
    wnids = load_label_space("imagenet-1k").wnids
    ours = {row["file"]: row["wnid"] for row in table if row["package"] == "foolbox"}
    assert len(ours) == 20
    for file, wnid in ours.items():
        assert wnids[int(Path(file).stem.rpartition("_")[2])] == wnid


def test_a_licence_that_is_not_stated_counts_as_unknown(table: list[dict[str, str]]) -> None:
    for row in table:
        assert parse(row["licence"]).redistributable == (row["package"] != "foolbox")


def test_every_photo_of_the_table_comes_with_the_test_dependencies(
    table: list[dict[str, str]],
) -> None:
    found = find_bundled()
    assert [dict(photo.row) for photo in found.photos] == table
    assert not found.absent
    assert not found.altered


def test_without_any_of_the_packages_the_error_says_what_to_install_and_makes_nothing(
    hidden: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'natadv-curate\[demo\]'"):
        run_demo(tmp_path / "demo")
    assert not (tmp_path / "demo").exists()


def test_photos_of_an_absent_package_are_left_out_aloud(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "foolbox", None)
    found = find_bundled()
    assert list(found.absent) == ["foolbox"]
    assert {photo.row["package"] for photo in found.photos} == {"scikit-image", "matplotlib"}
    found.announce()
    told = capsys.readouterr().err
    assert "left out: the photos of foolbox" in told
    assert "natadv-curate[demo]" in told


def test_a_file_that_another_version_of_a_package_changed_is_left_out_aloud(
    hidden: pytest.MonkeyPatch,
    tmp_path: Path,
    package_photos: list[tuple[Path, int]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = tmp_path / "foolbox" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise AssertionError('imported')")
    (first, _), (second, _) = package_photos[:2]
    shutil.copy(first, data)
    shutil.copy(first, data / second.name)
    hidden.delitem(sys.modules, "foolbox")
    hidden.syspath_prepend(tmp_path)

    found = find_bundled()

    assert [photo.path for photo in found.photos] == [data / first.name]
    assert found.altered[0] == f"foolbox/data/{second.name}"
    assert len(found.altered) == 19
    found.announce()
    assert "left out: 19 photos" in capsys.readouterr().err


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(WorkspaceError, match="is not empty and was not made by the demo"):
        run_demo(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_workspace_that_is_not_the_demos_is_refused(tmp_path: Path) -> None:
    create_workspace(tmp_path / "ws", "imagenet-1k").close()
    with pytest.raises(WorkspaceError, match="was not made by the demo"):
        run_demo(tmp_path / "ws")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="is not a folder"):
        run_demo(tmp_path / "file")


def test_photos_that_are_no_folder_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere is not a folder"):
        run_demo(tmp_path / "demo", photos=tmp_path / "nowhere")
    assert not (tmp_path / "demo").exists()


def test_own_photos_without_a_class_are_refused_with_the_reason(
    tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    shutil.copy(package_photos[0][0], photos)
    with pytest.raises(UsageError, match=r"can be used \(no-label 1\).*dragonfly"):
        run_demo(tmp_path / "demo", photos=photos)


@pytest.mark.slow
def test_the_demo_goes_the_whole_way_on_the_photos_of_packages(
    on_packages: tuple[Path, dict[str, Any]], table: list[dict[str, str]]
) -> None:
    folder, summary = on_packages
    assert summary.keys() >= FILTER_KEYS
    assert summary["candidates"] == len(table)
    assert summary["failed"] == 0
    assert summary["survivors"] + sum(summary["removed"].values()) == len(table)
    # Every view of so few photos is scored, so that the nearest misses are exact.
    assert summary["forwards"] == summary["forwards_naive"] == 20 * len(table)
    assert summary["workspace"] == str(folder)
    assert Path(summary["report"]).is_relative_to(folder)
    assert summary["nearest_misses"] > 0
    assert summary["doubtful"]["all"] == sum(bool(row["doubt"]) for row in table)
    evaluation = summary["evaluation"]
    assert evaluation["model"] == "lite/efficientnet_lite2"
    assert evaluation["all"]["n"] == len(table)
    assert evaluation["all"]["low"] < evaluation["all"]["value"] < evaluation["all"]["high"]
    assert (folder / evaluation["path"]).is_file()
    assert (evaluation["release"] is None) == (summary["shortlisted"] == 0)


@pytest.mark.slow
def test_origin_and_licence_travel_with_the_photos_of_packages(
    on_packages: tuple[Path, dict[str, Any]], table: list[dict[str, str]]
) -> None:
    from sqlalchemy import select

    from curate.catalog.tables import candidates, origins

    workspace = open_workspace(on_packages[0])
    query = select(candidates.c.sha256, candidates.c.wnid, origins).join(
        origins, origins.c.candidate_id == candidates.c.id
    )
    with workspace.catalogue.read() as connection:
        found = {row.sha256: row for row in connection.execute(query)}
    workspace.close()
    assert len(found) == len(table)
    for row in table:
        origin = found[row["sha256"]]
        assert origin.wnid == row["wnid"]
        assert origin.collection == row["package"]
        assert origin.title.startswith(row["title"])
        assert origin.title.endswith(
            f"(the label is doubtful: {row['doubt']})" * bool(row["doubt"])
        )
        assert origin.page == row["page"]
        assert (origin.author or "") == row["author"]
        assert origin.licence == parse(row["licence"]).id


@pytest.mark.slow
def test_the_page_of_the_demo_is_there_and_shows_the_nearest_misses(
    on_packages: tuple[Path, dict[str, Any]],
) -> None:
    page = Path(on_packages[1]["report"]).read_text(encoding="utf-8")
    assert "Nearest misses" in page
    assert page.count("data:image/jpeg;base64,") >= on_packages[1]["nearest_misses"]


@pytest.mark.slow
def test_nothing_temporary_stays_in_the_workspace(
    on_packages: tuple[Path, dict[str, Any]], on_own: tuple[Path, dict[str, Any]]
) -> None:
    for folder, _ in (on_packages, on_own):
        assert not [path for path in (folder / ".curate").iterdir() if path.is_dir()]


@pytest.mark.slow
def test_the_same_demo_again_gives_the_same_and_changes_nothing(
    on_own: tuple[Path, dict[str, Any]], own_photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, first = on_own
    kept = [path for path in folder.rglob("*") if path.is_file() and path.parts[-3] == "runs"]
    before = {path: sha256_file(path) for path in kept}
    again = run_demo(folder, photos=own_photos)
    assert again["collected"] == first["collected"] | {"new": 0, "known": 6}
    assert {**again, "collected": None} == {**first, "collected": None}
    assert {path: sha256_file(path) for path in kept} == before
    assert "has ended before" in capsys.readouterr().err


@pytest.mark.slow
def test_own_photos_that_survive_are_released_and_evaluated(
    on_own: tuple[Path, dict[str, Any]],
) -> None:
    folder, summary = on_own
    assert summary["candidates"] == 6
    assert summary["shortlisted"] == summary["survivors"] == 2
    assert summary["doubtful"] is None
    assert summary["release"] == str(folder / "releases" / "0.1.0")
    release = read_layout(Path(summary["release"]))
    space = load_label_space("imagenet-1k")
    assert [space.get(item.wnid).name for item in release] == ["banana", "volcano"]
    evaluation = summary["evaluation"]
    assert evaluation["all"]["n"] == 6
    assert evaluation["release"]["n"] == 2
    # Both stand under a wrong label.
    assert evaluation["release"]["value"] == 0
    assert evaluation["all"]["value"] == pytest.approx(4 / 6)


@pytest.mark.thorough
@pytest.mark.slow
def test_more_own_photos_make_another_run_and_the_next_release(
    on_own: tuple[Path, dict[str, Any]],
    own_photos: Path,
    package_photos: list[tuple[Path, int]],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "demo"
    shutil.copytree(on_own[0], folder)
    photos = tmp_path / "photos"
    shutil.copytree(own_photos, photos)
    (photos / "teapot").mkdir()
    shutil.copy(package_photos[13][0], photos / "teapot")
    summary = run_demo(folder, photos=photos)
    assert summary["collected"]["new"] == 1
    assert summary["run"] != on_own[1]["run"]
    assert summary["survivors"] == 3
    assert summary["release"] == str(folder / "releases" / "0.2.0")


@pytest.mark.slow
def test_the_demo_on_other_photos_takes_another_folder(
    on_own: tuple[Path, dict[str, Any]],
) -> None:
    with pytest.raises(WorkspaceError, match="holds the demo on photos of your own"):
        run_demo(on_own[0])


@pytest.mark.thorough
@pytest.mark.slow
def test_a_demo_that_was_killed_early_goes_on(
    own_photos: Path, on_own: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """What a kill leaves between making the folder and making the workspace."""
    from curate.catalog.engine import open_catalogue

    folder = tmp_path / "demo"
    shutil.copytree(on_own[0] / ".curate", folder / ".curate")
    (folder / ".curate" / "all-photos" / "n01440764").mkdir(parents=True)
    open_catalogue(folder / "catalogue.sqlite", create=True).close()
    summary = run_demo(folder, photos=own_photos)
    assert summary["run"] == on_own[1]["run"]
    assert not (folder / ".curate" / "all-photos").exists()
