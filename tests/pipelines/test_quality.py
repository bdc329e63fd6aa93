"""Quality flags order and select candidates, and lose none."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image, ImageFilter
from sqlalchemy import update

from curate.catalog import intake, qualities
from curate.catalog.tables import candidates, images
from curate.choices import QUALITY_FLAGS
from curate.errors import UsageError
from curate.files import csv_text
from curate.images.quality import Quality
from pipelines.collect import collect_folder
from pipelines.doctor import examine
from pipelines.filter import run_filter
from pipelines.quality import candidate_flags, count_unmeasured, flag_counts, measure_missing
from pipelines.report import write_report
from pipelines.runs import read_shortlist, shortlist_flags
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.pipelines.stored import stored_files
from tests.running import run_curate

pytestmark = pytest.mark.slow

#: What the first photos of the workspace are made into; the others stay as they are.
CHANGES = {
    0: ("blurred",),
    1: ("dark",),
    2: ("dark", "blurred"),
    3: ("small",),
}


@pytest.fixture(autouse=True)
def one_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CURATE_FILTER__MODELS", '["lite/efficientnet_lite0"]')


def changed(photo: Image.Image, what: tuple[str, ...]) -> Image.Image:
    if "dark" in what:
        photo = photo.point([level // 6 for level in range(256)] * 3)
    if "blurred" in what:
        photo = photo.filter(ImageFilter.GaussianBlur(8))
    return photo.resize((140, 140)) if "small" in what else photo


@pytest.fixture(scope="module")
def flagged_root(
    tmp_path_factory: pytest.TempPathFactory, package_photos: list[tuple[Path, int]]
) -> Path:
    """Ten photos labelled wrong, so that they survive; four of them are flagged."""
    folder = tmp_path_factory.mktemp("flagged") / "photos"
    folder.mkdir()
    rows = []
    for number, (path, _) in enumerate(package_photos[:10]):
        name = f"{number}.png"
        with Image.open(path) as image:
            changed(image.convert("RGB"), CHANGES.get(number, ())).save(folder / name)
        rows.append([name, "strawberry" if number % 2 else "jeep"])
    table = folder.parent / "labels.csv"
    table.write_text(csv_text(["path", "label"], rows), encoding="utf-8")
    workspace = create_workspace(folder.parent / "workspace", "imagenet-1k")
    collect_folder(workspace, folder, table)
    measure_missing(workspace)
    workspace.close()
    return workspace.root


@pytest.fixture
def root(flagged_root: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(flagged_root, tmp_path / "workspace"))


def numbers(workspace: Workspace) -> dict[int, int]:
    """Candidate id to the number of its photo."""
    ids = range(1, 11)
    with workspace.catalogue.read() as connection:
        found = intake.origins_of(connection, ids)
    return {number: int(Path(found[number][0]["locator"]).stem) for number in ids}


def forget_quality(workspace: Workspace) -> None:
    with workspace.catalogue.write() as connection:
        connection.execute(update(images).values(quality=None))


def test_candidates_have_the_flags_of_their_pictures(root: Path) -> None:
    workspace = open_workspace(root)
    photos = numbers(workspace)
    with workspace.catalogue.read() as connection:
        found = candidate_flags(workspace, connection)
        counts = flag_counts(workspace, connection)
    assert {photos[n]: set(noted) for n, noted in found.items()} == {
        number: set(noted) for number, noted in CHANGES.items()
    }
    assert counts == dict.fromkeys(QUALITY_FLAGS, 0) | {"small": 1, "dark": 2, "blurred": 2}


def test_status_counts_flags_where_asked_for(root: Path) -> None:
    told = json.loads(run_curate("status", "--quality", "--json", workspace=root).stdout)
    counted = {"small": 1, "dark": 2, "blurred": 2, "uniform": 0, "bright": 0, "odd-aspect": 0}
    assert told["quality"] == counted
    text = run_curate("status", "--quality", workspace=root).stdout
    assert "flagged candidates: blurred 2, dark 2, small 1\n" in text + "\n"
    assert "quality" not in json.loads(run_curate("status", "--json", workspace=root).stdout)


def test_flags_follow_the_settings_without_measuring_again(root: Path) -> None:
    shutil.rmtree(root / "images")
    workspace = open_workspace(root, {"quality.dark_below": 0, "quality.small_below": 10_000})
    with workspace.catalogue.read() as connection:
        counts = flag_counts(workspace, connection)
    assert (counts["dark"], counts["small"], counts["blurred"]) == (0, 10, 2)


def test_without_leaves_candidates_out_and_counts_each_once(root: Path) -> None:
    everything = run_filter(open_workspace(root))
    assert (everything["candidates"], everything["set_aside"]) == (10, {})
    options = {"filter.without": ("blurred", "dark")}
    some = run_filter(open_workspace(root, options))
    assert some["candidates"] == 7
    assert some["set_aside"] == {"dark": 2, "blurred": 1}
    assert some["run"] != everything["run"]
    workspace = open_workspace(root)
    photos = numbers(workspace)
    listed = {photos[e.candidate_id] for e in read_shortlist(workspace, some["run"])[1]}
    assert listed.isdisjoint({0, 1, 2})
    assert 3 in listed
    with workspace.catalogue.read() as connection:
        assert len(connection.execute(candidates.select()).all()) == 10


def test_runs_that_leave_out_the_same_for_other_reasons_share_scores(root: Path) -> None:
    first = run_filter(open_workspace(root, {"filter.without": ("blurred", "dark")}))
    every = {"filter.without": ("dark", "blurred", "bright")}
    second = run_filter(open_workspace(root, every))
    assert second["run"] != first["run"]
    assert second["scores_run"] == first["run"]
    swapped = run_filter(open_workspace(root, {"filter.without": ("dark", "blurred")}))
    assert swapped == first


def test_what_nobody_has_looked_at_is_measured_where_its_flags_decide(root: Path) -> None:
    workspace = open_workspace(root, {"filter.without": ("blurred", "dark")})
    forget_quality(workspace)
    assert run_filter(workspace)["candidates"] == 7
    assert count_unmeasured(workspace) == 0


def test_what_stands_on_the_shortlist_is_measured(root: Path) -> None:
    workspace = open_workspace(root)
    forget_quality(workspace)
    listed = run_filter(workspace)["shortlisted"]
    assert count_unmeasured(workspace) == 10 - listed


def test_nothing_left_is_said_in_one_line(root: Path) -> None:
    options = {"filter.without": ("small",), "quality.small_below": 10_000}
    with pytest.raises(UsageError, match="all 10 candidates have a flag that is left out"):
        run_filter(open_workspace(root, options))


def test_the_order_quality_puts_the_flagged_last_and_is_a_run_of_its_own(root: Path) -> None:
    plain = run_filter(open_workspace(root))
    workspace = open_workspace(root, {"filter.cap_order": "quality"})
    ordered = run_filter(workspace)
    before, after = (read_shortlist(workspace, s["run"])[1] for s in (plain, ordered))
    flags = shortlist_flags(workspace, before)
    assert 1 <= sum(e.candidate_id in flags for e in before) < len(before)
    assert [e.candidate for e in after] == [
        *(e.candidate for e in before if e.candidate_id not in flags),
        *(e.candidate for e in before if e.candidate_id in flags),
    ]
    assert before != after
    limits = {"filter.cap_order": "quality", "quality.dark_below": 0, "quality.blurred_below": 0}
    other = run_filter(open_workspace(root, limits))
    assert other["run"] not in (plain["run"], ordered["run"])
    assert other["scores_run"] == plain["run"]


def test_shortlist_and_page_show_the_flags(root: Path) -> None:
    workspace = open_workspace(root)
    summary = run_filter(workspace)
    run_id, rows = read_shortlist(workspace)
    flags = shortlist_flags(workspace, rows)
    printed = run_curate("shortlist", "--json", workspace=root).stdout
    cells = json.loads(printed)["shortlist"]
    assert [c["quality"] for c in cells] == [
        ";".join(flags.get(row.candidate_id, ())) for row in rows
    ]
    assert {"dark;blurred", "small", ""} <= {c["quality"] for c in cells}
    stored = (root / "runs" / run_id / "shortlist.csv").read_text(encoding="utf-8")
    assert stored == run_curate("shortlist", workspace=root).stdout
    assert stored.splitlines()[0].endswith(",quality")
    page = Path(write_report(workspace)["path"]).read_text(encoding="utf-8")
    badges = re.findall(r'<span class="badge">([a-z-]+)</span>', page)
    shown = [badge for badge in badges if badge in QUALITY_FLAGS]
    assert sorted(shown) == sorted(flag for noted in flags.values() for flag in noted)
    assert summary["shortlisted"] == len(rows)


def test_the_page_says_what_was_left_out_before(root: Path) -> None:
    workspace = open_workspace(root, {"filter.without": ("small", "dark")})
    run_filter(workspace)
    page = Path(write_report(workspace)["path"]).read_text(encoding="utf-8")
    assert "<dt>Left out before, by quality</dt><dd><bdi>small 1, dark 2</bdi></dd>" in page


def test_the_command_takes_flags_and_names_the_nearest_of_a_wrong_one(root: Path) -> None:
    done = run_curate("filter", "--without", "blurred,dark", "--json", workspace=root)
    assert json.loads(done.stdout)["set_aside"] == {"dark": 2, "blurred": 1}
    told = run_curate("filter", "--without", "blurred, dark", workspace=root)
    assert "set aside           3  (dark 2, blurred 1)" in told.stdout
    wrong = run_curate("filter", "--without", "blured", workspace=root, expect=2)
    assert "did you mean blurred?" in wrong.stderr


def test_doctor_tells_of_images_without_numbers_and_measures_them(root: Path) -> None:
    workspace = open_workspace(root)
    before = measured(workspace)
    forget_quality(workspace)
    told = run_curate("doctor", workspace=root)
    assert "quality not known of 10 images; --repair measures them" in told.stdout
    assert examine(workspace)["unmeasured"] == count_unmeasured(workspace) == 10
    assert examine(workspace, repair=True)["unmeasured"] == 0
    assert measured(workspace) == before


def test_an_image_that_is_lost_stays_without_numbers(root: Path) -> None:
    workspace = open_workspace(root)
    forget_quality(workspace)
    (first, *_) = (path for _, path in stored_files(workspace))
    first.unlink()
    assert measure_missing(workspace) == 1
    assert count_unmeasured(workspace) == 1
    assert sum(quality is None for quality in measured(workspace).values()) == 1


def measured(workspace: Workspace) -> dict[str, Quality | None]:
    with workspace.catalogue.read() as connection:
        rows = qualities.of_images_after(connection, "", 100)
    return {sha256: Quality.from_dict(told) for sha256, _, told in rows}
