"""What people have accepted becomes a release: chosen, dealt, told of, the same bytes each time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from curate.catalog import facts
from curate.errors import UsageError
from curate.files import sha256_file
from curate.release.card import card
from curate.release.card_words import Words
from curate.release.layout import IMAGENET_A, IMAGENET_O, read_layout, release_label_space
from curate.release.readme import readme
from curate.release.rows import Released
from pipelines.release import build_release
from pipelines.release_choice import Wanted, choose
from pipelines.runs import finished_run
from pipelines.workspace import open_workspace
from tests.pipelines.releasing import MODELS, PREDICTED, accept, photo_rows
from tests.pipelines.reviewing import Rows

WNIDS = ("n01498041", "n01531178", "n01534433")
HOSTILE = "<b>Ann</b> [x](http://evil.example) |@ann|"

Photos = list[tuple[Path, int]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Rows:
    """Fifteen survivors of three classes and three that were removed; a test works on a copy."""
    photos: list[tuple[Path, str, str | None]] = [
        (path, WNIDS[n % 3], HOSTILE if n < 6 else f"author {n}")
        for n, (path, _) in enumerate(package_photos[:18])
    ]
    return photo_rows(tmp_path_factory.mktemp("made") / "w", photos, survivors=15)


@pytest.fixture
def rows(tmp_path: Path, made: Rows) -> Iterator[Rows]:
    shutil.copytree(made.workspace.root, tmp_path / "w")
    copy = Rows(open_workspace(tmp_path / "w"), made.keys, made.sha256s, made.wnids, made.ids)
    yield copy
    copy.workspace.close()


def build(rows: Rows, version: str = "1.0.0", **options: Any) -> dict[str, Any]:
    return build_release(rows.workspace, version, unreviewed=False, **options)


def manifest(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    table = pq.read_table(Path(summary["path"]) / "manifest.parquet").to_pylist()
    return {row["candidate"]: row for row in table}


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


def numbers_of(rows: Rows, keys: Sequence[str]) -> set[int]:
    return {rows.keys.index(key) for key in keys}


def test_the_accepted_alone_are_released_with_their_votes_and_views(rows: Rows) -> None:
    accept(rows, [0, 1, 3])
    rows.give([2, 4, 5])
    for person, decision in enumerate(("valid", "unclear")):
        rows.say(2, person, decision)
        rows.say(4, person, decision)
    rows.give([4], [None], "adjudication")
    rows.say(4, 0, "valid", purpose="adjudication")
    summary = build(rows)
    assert summary["reviewed"] is True
    assert summary["problems"] == []
    found = manifest(summary)
    assert numbers_of(rows, list(found)) == {0, 1, 3, 4}
    one = found[rows.keys[4]]
    assert (one["reviewed"], one["consensus"], one["adjudicated"]) == (True, "accepted", True)
    votes = json.loads(one["votes"])
    assert [vote["decision"] for vote in votes] == ["valid", "unclear", "valid"]
    assert [vote.get("adjudication", False) for vote in votes] == [False, False, True]
    assert not found[rows.keys[0]]["adjudicated"]
    first, second = json.loads(one["views"])
    assert (first["model"], second["model"]) == tuple(model["name"] for model in MODELS)
    assert first["p_true"] == [view / 1000 for view in range(10)]
    assert first["predicted"] == [PREDICTED] * 10
    assert "“*a* title”, by " in one["attribution"]
    assert "CC BY 4.0 (CC-BY-4.0)" in one["attribution"]
    text = b"".join(files_of(Path(summary["path"])).values())
    assert b"ann@example.org" not in text
    assert b"bob@example.org" not in text


def test_nothing_accepted_is_told_with_what_to_do(rows: Rows) -> None:
    for waiting in (False, True):
        if waiting:
            rows.give([0])
        with pytest.raises(UsageError, match="nobody has accepted .* curate review push") as caught:
            build(rows)
        assert "\n" not in str(caught.value)
    assert not (rows.workspace.root / "releases").exists()


def test_a_class_gives_no_more_than_it_may_by_lot_and_small_ones_are_named(rows: Rows) -> None:
    accept(rows, [n for n in range(15) if n not in (2, 5, 8, 11)])
    summary = build(rows, per_class_min=2, per_class_max=3, seed=4)
    assert summary["images"] == 3 + 3 + 1
    assert summary["short"] == {WNIDS[2]: 1}
    assert summary["unselected"] == 4
    assert any("fewer than 2 images" in problem for problem in summary["problems"])
    card = (Path(summary["path"]) / "README.md").read_text()
    assert "Classes with fewer than 2 photos: 1: junco (1)." in card
    found = manifest(summary)
    assert sorted(row["rank"] for row in found.values() if row["wnid"] == WNIDS[0]) == [1, 2, 3]
    other = manifest(build(rows, "2.0.0", per_class_max=3, seed=5))
    assert found.keys() != other.keys()


def test_splits_share_no_author_and_the_control_sample_has_its_own(rows: Rows) -> None:
    rows.set_controls([0, 15, 16, 17])
    accept(rows, [*range(15), 16, 17])
    summary = build(rows, splits=["dev=0.3"], with_control=True)
    found = manifest(summary)
    control = [key for key, row in found.items() if row["split"] == "control"]
    assert numbers_of(rows, control) == {0, 16, 17}
    of_one = {found[key]["split"] for key in (rows.keys[n] for n in range(1, 6))}
    assert len(of_one) == 1
    assert summary["splits"]["dev"] + summary["splits"]["test"] == 14
    root = Path(summary["path"])
    for split, count in summary["splits"].items():
        assert len(read_layout(root / split)) == count
        space = release_label_space(root / split)
        assert space is not None
        assert space.fingerprint == rows.workspace.label_space.fingerprint
    with pytest.raises(UsageError, match="split dev would have no image"):
        build(rows, "2.0.0", splits=["dev=0.00001"])


def test_splits_share_no_near_duplicates_whatever_the_lot(
    tmp_path: Path, package_photos: Photos
) -> None:
    photos: list[tuple[Path, str, str | None]] = []
    for number, (path, _) in enumerate(package_photos[:6]):
        copy = tmp_path / f"{number}.jpg"
        with Image.open(path) as image:
            small = image.convert("RGB").resize((image.width * 9 // 10, image.height * 9 // 10))
        small.save(copy, quality=80)
        photos += [
            (path, WNIDS[number % 3], f"author {number}"),
            (copy, WNIDS[(number + 1) % 3], f"who took it from {number}"),
        ]
    made = photo_rows(tmp_path / "w", photos)
    accept(made, range(12))
    run = finished_run(made.workspace)
    for seed in range(5):
        choice = choose(made.workspace, run, Wanted(splits=("dev=0.5",), seed=seed))
        split = {one.entry.sha256: one.split for one in choice.chosen}
        assert set(split.values()) == {"dev", "test"}
        for (path, *_), (copy, *_) in zip(photos[::2], photos[1::2], strict=True):
            assert split[sha256_file(path)] == split[sha256_file(copy)]
    made.workspace.close()


def test_more_photos_leave_the_others_in_their_splits(rows: Rows) -> None:
    accept(rows, range(10))
    first = manifest(build(rows, splits=["dev=0.3"]))
    accept(rows, range(10, 16))
    second = manifest(build(rows, "1.1.0", splits=["dev=0.3"]))
    assert len(second) > len(first)
    assert {key: second[key]["split"] for key in first} == {
        key: row["split"] for key, row in first.items()
    }


def test_what_reviewers_see_outside_the_centre_crop_can_be_left_out(rows: Rows) -> None:
    rows.workspace = rows.workspace.changed({"review.consensus": "majority"})
    accept(rows, [0, 1, 2])
    rows.give([1], [2])
    rows.say(1, 2, "unclear", reasons=["outside-centre"])
    # A photo may be valid, and say so too.
    rows.say(2, 1, "valid", reasons=["outside-centre"])
    assert build(rows)["images"] == 3
    summary = build(rows, "2.0.0", require_visible=True)
    assert numbers_of(rows, list(manifest(summary))) == {0}
    assert any("outside the centre crop: 2" in problem for problem in summary["problems"])


def test_an_image_accepted_under_two_labels_is_under_none(
    tmp_path: Path, package_photos: Photos
) -> None:
    paths = [path for path, _ in package_photos]
    photos = [(paths[0], WNIDS[0], None), (paths[0], WNIDS[1], None), (paths[1], WNIDS[0], None)]
    made = photo_rows(tmp_path / "w", photos)
    accept(made, range(3))
    summary = build(made)
    assert summary["images"] == 1
    assert any("several labels" in problem for problem in summary["problems"])
    made.workspace.close()


@pytest.mark.parametrize(
    "options",
    [
        {"splits": ["dev=1.5"]},
        {"splits": ["dev=nan"]},
        {"splits": ["dev"]},
        {"splits": ["../x=0.1"]},
        {"splits": ["control=0.1"]},
        {"splits": [f"{WNIDS[0]}=0.5"]},
        {"splits": ["dev=0.5", "dev=0.2"]},
        {"splits": ["dev=0.7", "val=0.7"]},
        {"splits": ["test=0.7"]},
        {"per_class_max": 0},
        {"per_class_min": 3, "per_class_max": 2},
        {"with_control": True, "control": True},
    ],
    ids=str,
)
def test_what_cannot_be_had_is_refused_in_one_line(rows: Rows, options: dict[str, Any]) -> None:
    accept(rows, [0])
    with pytest.raises(UsageError) as caught:
        build(rows, **options)
    assert "\n" not in str(caught.value)


def test_the_card_tells_the_story_and_no_text_from_outside_is_markup(rows: Rows) -> None:
    with rows.workspace.catalogue.write() as connection:
        referee = {"name": "timm/some_referee", "fingerprint": "feedbeef"}
        facts.remember(connection, "referees", json.dumps([referee]))
    named = {"title": "Hard: birds & fish", "authors": ["A <b>lab</b>"], "url": "https://x.example"}
    rows.workspace = rows.workspace.changed({f"release.{k}": v for k, v in named.items()})
    accept(rows, range(15))
    summary = build(rows)
    root = Path(summary["path"])
    card = (root / "README.md").read_text()
    _, front, text = card.split("---\n", 2)
    told = yaml.safe_load(front)
    assert told["license"] == "cc-by-4.0"
    assert told["task_categories"] == ["image-classification"]
    assert told["size_categories"] == ["n<1K"]
    assert "| timm/some\\_referee | order of review | feedbeef |" in text
    assert text.lstrip().startswith("# Hard\\: birds \\& fish, version 1.0.0")
    for said in (
        "| released | 15 |",
        "| same decision | 1.000 |",
        "2 people answered in Label Studio on 2026-01-02",
        "The photos come from the makers' own folders and archives, under labels",
        "No file held positions",
    ):
        assert said in text
    page = (root / "ATTRIBUTION.md").read_text()
    for written in (card, page):
        for markup in ("<b>A", "<b>Ann", "[x](", "| @ann", " *a*"):
            assert markup not in written
    assert page.count("“\\*a\\* title”") == 15
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "dataset")
    assert (citation["title"], citation["url"]) == (named["title"], named["url"])
    assert citation["authors"] == [{"name": "A <b>lab</b>"}]
    assert (citation["version"], citation["license"]) == ("1.0.0", "CC-BY-4.0")


@pytest.mark.parametrize("write", [card, readme])
def test_the_texts_load_and_evaluate_the_split_that_is_made_for_it(
    rows: Rows, write: Callable[..., bytes]
) -> None:
    accept(rows, range(9))
    summary = build(rows, splits=["dev=0.3"])
    record = json.loads((Path(summary["path"]) / "release.json").read_bytes())
    images = [
        Released(**{name: row[name] for name in Released._fields if name != "number"}, number=n)
        for n, row in enumerate(manifest(summary).values())
    ]
    for layout, inside in ((IMAGENET_A, ""), (IMAGENET_O, "--in-distribution val ")):
        space = rows.workspace.label_space
        lines = write({**record, "layout": layout}, images, space).decode().splitlines()
        model = "--model lite/efficientnet_lite2"
        assert f"    curate evaluate 1.0.0/test {inside}{model}" in lines
        assert '    dataset = ImageFolder("1.0.0/test")' in lines


def test_the_words_say_where_photos_come_from_and_which_of_them_models_chose() -> None:
    folder = {"source": "folder", "first_seen": "2026-01-02", "last_seen": "2026-01-03"}
    flickr = {"source": "flickr", "first_seen": "2025-12-30", "last_seen": "2025-12-31"}
    counts = {"images": 9, "classes": 2, "by_class": {"a": 8, "b": 1}, "notes": {}}
    record = {"reviewed": False, "models": MODELS, "counts": counts, "version": "1.0.0"}
    own, found = "the makers' own folders", "people have published under open licences"
    for sources, has, lacks, kind in (
        ([folder], [own], [found], "Others"),
        ([flickr], [found, "(flickr)"], [own], "Web Scraping"),
        ([flickr, folder], [own, found], [], "Web Scraping"),
    ):
        told = Words(record | {"sources": sources}, []).responsible()
        assert all(text in told["dataCollection"] for text in has)
        assert not any(text in told["dataCollection"] for text in lacks)
        assert told["dataCollectionType"] == [kind]
        first, last = sources[0]["first_seen"], sources[-1]["last_seen"]
        assert told["dataCollectionTimeframe"] == [first, last]
    drawn = record | {"counts": counts | {"by_split": {"control": 5, "test": 4}}}
    told = Words(drawn, []).description
    assert "4 of them were chosen because" in told
    assert "the other 5 are a control sample" in told


def test_the_card_claims_no_more_than_what_people_were_asked(rows: Rows) -> None:
    accept(rows, range(3))
    summary = build(rows)
    record = json.loads((Path(summary["path"]) / "release.json").read_bytes())
    images = [
        Released(**{name: row[name] for name in Released._fields if name != "number"}, number=n)
        for n, row in enumerate(manifest(summary).values())
    ]
    alone = {name: {**one, "n": 0} for name, one in record["review"]["agreement"].items()}
    review = {**record["review"], "answers_needed": 1, "agreement": alone, "question": "outlier"}
    asked = {**record, "layout": IMAGENET_O, "review": review}
    told = card(asked, images, rows.workspace.label_space).decode()
    assert "confirmed" not in told
    assert "found no class that the models know" in Words(asked, images).description
    assert "and not whether a photo shows its concept" in told
    assert "Each candidate needs 1 answer;" in told
    assert "no photo was answered by two of them" in told
    assert "measure of agreement" not in told
    assert "judged by 1 person who does not" in str(Words(asked, images).responsible())
    ours = card(record, images, rows.workspace.label_space).decode()
    assert "People have confirmed the label of each." in ours
    assert "Each candidate needs 2 answers;" in ours
    assert "| same decision | 1.000 |" in ours


def test_terms_are_told_of_photos_whose_licence_has_them_and_of_no_others() -> None:
    licences = ["CC-BY-4.0", "CC-BY-NC-4.0", "CC-BY-NC-ND-2.0", "CC-BY-SA-3.0", "CC0-1.0"]
    licences += ["LicenseRef-unknown", "LicenseRef-all-rights-reserved"]
    licences += ["LicenseRef-Flickr-Commons"]
    rows = [Released(*[""] * 4, name, None, "", "", False, False, 0) for name in licences]
    assert Words({"reviewed": True}, rows).rights == {
        "not for commercial use": 2,
        "no altered copies": 1,
        "altered copies under the same licence": 1,
    }


def test_croissant_is_valid_and_gives_every_record(rows: Rows) -> None:
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed")
    accept(rows, range(15))
    summary = build(rows, splits=["dev=0.3"])
    described = mlcroissant.Dataset(jsonld=str(Path(summary["path"]) / "croissant.json"))
    assert not described.metadata.ctx.issues.errors
    records = list(described.records("images"))
    found = {row["path"]: row for row in manifest(summary).values()}
    assert {record["images/path"].decode() for record in records} == found.keys()
    for record in records:
        row = found[record["images/path"].decode()]
        for name in ("wnid", "sha256", "attribution", "split"):
            assert record[f"images/{name}"].decode() == row[name]
    pictures = list(described.records("files"))
    assert {record["files/path"].decode() for record in pictures} == found.keys()
    for record in pictures:
        row = found[record["files/path"].decode()]
        assert record["files/image"].size == (row["width"], row["height"])


@pytest.mark.slow
def test_another_process_with_more_threads_builds_the_same_bytes(rows: Rows) -> None:
    accept(rows, range(15))
    root = rows.workspace.root
    shutil.copytree(root, root.with_name("copy"))
    build(rows, splits=["dev=0.3"], metadata="strip")
    command = [sys.executable, "-m", "curate", "-w", str(root.with_name("copy")), "release"]
    command += ["build", "1.0.0", "--split", "dev=0.3", "--strip-metadata"]
    environment = {**os.environ, "OMP_NUM_THREADS": "3", "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    ours = files_of(root / "releases" / "1.0.0")
    assert ours == files_of(root.with_name("copy") / "releases" / "1.0.0")
    assert len(ours) > 15
