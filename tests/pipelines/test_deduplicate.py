"""Duplicates: copies are found, the best is kept, groups hold, and nothing is lost on the way."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from sqlalchemy import Connection, delete, insert, select, update

from curate.catalog import judging, twins
from curate.catalog.tables import candidates, duplicates, images, now
from curate.errors import BusyError, Interrupted, UsageError
from curate.files import hold
from curate.images.hashing import PerceptualHash, distance
from pipelines import deduplicate as deduplicating
from pipelines import picture_sets
from pipelines.collect import collect_folder
from pipelines.deduplicate import deduplicate
from pipelines.duplicates import Found
from pipelines.filter import run_filter
from pipelines.picture_sets import hash_pictures
from pipelines.status import status
from pipelines.workspace import Workspace, create_workspace
from tests.running import dying
from tests.waiting import interrupt

Photo = Image.Image

ONE, TWO = "n01614925", "n02950826"


def saved(photo: Photo, path: Path, **how: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    photo.save(path, **how)
    return path


#: For what takes long and asks nothing of the catalogue that the other tests do not ask.
ON_SQLITE = pytest.mark.parametrize("make_database", ["sqlite"], indirect=True)


@pytest.fixture
def workspace(tmp_path: Path, on_database: Callable[[str], str]) -> Workspace:
    return create_workspace(tmp_path / "workspace", on_database("imagenet-1k"))


@pytest.fixture(scope="session")
def photos(package_photos: list[tuple[Path, int]]) -> list[Photo]:
    return [Image.open(path).convert("RGB") for path, _ in package_photos]


@pytest.fixture
def copies(tmp_path: Path, photos: list[Photo]) -> Path:
    """Class folders: copies of one photo under one label, of another under two, and two alone."""
    root = tmp_path / "copies"
    first, second, third, fourth = photos[0], photos[1], photos[2], photos[3]
    saved(first, root / ONE / "a.png")
    saved(first, root / ONE / "b.jpg", quality=70)
    saved(first.resize((first.width // 2, first.height // 2)), root / ONE / "c.jpg", quality=90)
    saved(ImageOps.mirror(first), root / ONE / "d.jpg", quality=90)
    saved(second, root / ONE / "e.png")
    saved(second, root / TWO / "e.png")
    saved(third, root / TWO / "f.png")
    saved(fourth, root / TWO / "g.png")
    return root


def found(workspace: Workspace) -> dict[str, tuple[Any, ...]]:
    """What is recorded, by the key of the candidate, without times and numbers."""
    with workspace.catalogue.read() as connection:
        return {
            row["key"]: tuple(
                row[name] for name in ("kind", "distance", "kept_key", "against", "item", "dropped")
            )
            for row in twins.pairs(connection)
        }


def keys(workspace: Workspace) -> dict[str, str]:
    """The key of each candidate by the place where it was found."""
    with workspace.catalogue.read() as connection:
        rows = connection.exec_driver_sql(
            "SELECT c.key, o.locator FROM candidates c JOIN origins o ON o.candidate_id = c.id"
        )
        return {locator.split("/", 1)[1]: key for key, locator in rows}


def for_the_filter(workspace: Workspace) -> set[str]:
    with workspace.catalogue.read() as connection:
        return {key for key, _ in judging.candidate_keys(connection, None)}


def test_the_best_copy_is_kept_and_one_picture_under_two_labels_is_noted(
    workspace: Workspace, copies: Path
) -> None:
    collect_folder(workspace, copies)
    named = keys(workspace)
    summary = deduplicate(workspace)
    rows = found(workspace)
    best = named[f"{ONE}/a.png"]
    copied = {named[f"{ONE}/{name}.jpg"] for name in "bcd"}
    assert {key for key, row in rows.items() if row[5]} == copied
    assert all(rows[key][0] == "near" and rows[key][2] == best for key in copied)
    (noted,) = rows.keys() - copied
    assert {noted, rows[noted][2]} == {named[f"{ONE}/e.png"], named[f"{TWO}/e.png"]}
    assert rows[noted][:2] == ("exact", 0)
    assert for_the_filter(workspace) == set(named.values()) - copied
    told = summary.to_dict()
    assert {name: told[name] for name in ("checked", "exact", "near", "against")} == {
        "checked": 8,
        "exact": 1,
        "near": 3,
        "against": 0,
    }
    assert (told["dropped"], told["kept"], told["across_labels"]) == (3, 5, 1)
    assert status(workspace)["duplicates"] == 3
    assert status(workspace)["funnel"]["candidates"] == 8


def test_the_same_look_again_gives_the_same_and_no_duplicate_leaves_no_list(
    workspace: Workspace, copies: Path
) -> None:
    collect_folder(workspace, copies)
    summary = deduplicate(workspace)
    rows = found(workspace)
    assert summary.list is not None
    assert summary.page is not None
    table, page = (workspace.root / name for name in (summary.list, summary.page))
    before = table.read_bytes(), page.read_bytes()
    assert deduplicate(workspace).to_dict() == summary.to_dict()
    assert found(workspace) == rows
    assert (table.read_bytes(), page.read_bytes()) == before
    with workspace.catalogue.write() as connection:
        connection.execute(update(images).values(pixel_sha256=images.c.sha256))
        for place, row in enumerate(connection.execute(select(images.c.sha256)).all()):
            text = str(PerceptualHash(0xFFFF << place * 6, 0xFFFF << place * 6))
            other = images.c.sha256 == row.sha256
            connection.execute(update(images).where(other).values(perceptual_hash=text))
    third = deduplicate(workspace)
    assert (third.exact, third.near) == (1, 0)


def test_a_workspace_without_candidates_or_duplicates_has_nothing_to_list(
    workspace: Workspace, tmp_path: Path, photos: list[Photo]
) -> None:
    assert deduplicate(workspace).checked == 0
    saved(photos[0], tmp_path / "one" / ONE / "a.png")
    collect_folder(workspace, tmp_path / "one")
    summary = deduplicate(workspace)
    assert (summary.checked, summary.kept, summary.page, summary.list) == (1, 1, None, None)
    assert not list((workspace.root / "lists").glob("duplicates*"))


def test_across_labels_the_best_may_be_kept_alone(workspace: Workspace, copies: Path) -> None:
    collect_folder(workspace, copies)
    summary = deduplicate(workspace, across_labels="drop")
    assert (summary.dropped, summary.kept, summary.across_labels) == (4, 4, 1)
    assert len(for_the_filter(workspace)) == 4
    assert deduplicate(workspace).kept == 5


def test_what_is_kept_does_not_depend_on_the_order_of_arrival(
    tmp_path: Path, photos: list[Photo]
) -> None:
    for n in range(6):
        for quality in (95, 80, 60):
            saved(photos[n], tmp_path / str(quality) / ONE / f"{n}.jpg", quality=quality)
            half = photos[n].resize((photos[n].width // 2, photos[n].height // 2))
            saved(half, tmp_path / str(quality) / TWO / f"{n}.jpg", quality=quality)
    results = []
    for order in ([95, 80, 60], [60, 95, 80], [80, 60, 95]):
        workspace = create_workspace(tmp_path / f"workspace{order[0]}", "imagenet-1k")
        for quality in order:
            collect_folder(workspace, tmp_path / str(quality))
        deduplicate(workspace)
        results.append(found(workspace))
    assert results[0] == results[1] == results[2]
    assert sum(row[5] for row in results[0].values()) == 24


def packed(folder: Path, target: Path) -> Path:
    return Path(shutil.make_archive(str(target.with_suffix("")), "tar", folder))


@pytest.mark.parametrize("form", ["folder", "tar", "parquet", "csv"])
def test_candidates_that_another_set_has_are_dropped(
    workspace: Workspace, tmp_path: Path, copies: Path, photos: list[Photo], form: str
) -> None:
    collect_folder(workspace, copies)
    named = keys(workspace)
    train = tmp_path / "train"
    saved(photos[2].resize((400, 300)), train / "n1" / "near.jpg", quality=60)
    (train / "n2").mkdir()
    shutil.copy(copies / ONE / "b.jpg", train / "n2" / "bytes.jpg")
    saved(photos[1], train / "n2" / "pixels.bmp")
    saved(photos[9], train / "n2" / "other.png")
    (train / "n2" / "page.jpg").write_bytes(b"<html>")
    path = train
    if form == "tar":
        path = packed(train, tmp_path / "train.tar")
    elif form != "folder":
        path = tmp_path / f"train.{form}"
        hash_pictures(train, path, workspace.settings.images)
    summary = deduplicate(workspace, [path])
    rows = found(workspace)
    items = {key: row[4].rsplit("/", 1)[1] for key, row in rows.items()}
    # All copies of the first photo are near the one that the set has.
    assert items == {
        **{named[f"{ONE}/{name}"]: "bytes.jpg" for name in ("a.png", "b.jpg", "c.jpg", "d.jpg")},
        named[f"{ONE}/e.png"]: "pixels.bmp",
        named[f"{TWO}/e.png"]: "pixels.bmp",
        named[f"{TWO}/f.png"]: "near.jpg",
    }
    assert all(row[5] and row[2] is None and row[3] == path.name for row in rows.values())
    exact = {key for key, row in rows.items() if row[0] == "exact"}
    assert exact == {named[f"{ONE}/b.jpg"], named[f"{ONE}/e.png"], named[f"{TWO}/e.png"]}
    assert for_the_filter(workspace) == {named[f"{TWO}/g.png"]}
    assert (summary.against, summary.dropped, summary.across_labels) == (7, 7, 0)
    (told,) = summary.to_dict()["sets"]
    refused = {"not-an-image": 1} if form in ("folder", "tar") else {}
    assert told == {"set": path.name, "images": 4, "refused": refused, "matched": 7}


def test_the_filter_tells_that_all_candidates_were_dropped(
    workspace: Workspace, copies: Path
) -> None:
    collect_folder(workspace, copies)
    deduplicate(workspace, [copies])
    with pytest.raises(UsageError, match="left: curate dedup has dropped 8"):
        run_filter(workspace)


def test_of_several_sets_the_nearest_picture_is_told_and_the_first_of_equals(
    workspace: Workspace, tmp_path: Path, photos: list[Photo]
) -> None:
    saved(photos[0], tmp_path / "mine" / ONE / "a.png")
    collect_folder(workspace, tmp_path / "mine")
    saved(photos[0].resize((300, 300)), tmp_path / "near" / "x.jpg", quality=50)
    for name in ("exact", "again"):
        saved(photos[0], tmp_path / name / "y.png")
    order = [tmp_path / name for name in ("near", "exact", "again")]
    summary = deduplicate(workspace, order)
    ((kind, bits, kept, against, item, _),) = found(workspace).values()
    assert (kind, bits, kept, against, item) == ("exact", 0, None, "exact", "exact/y.png")
    assert [one.matched for one in summary.sets] == [0, 1, 0]


@settings(max_examples=12, deadline=None)
@given(
    centres=st.lists(
        st.sampled_from([0, 0x0F0F_F0F0_1234_5678, 2**64 - 1]), min_size=1, max_size=18
    ),
    data=st.data(),
)
def test_every_dropped_candidate_is_near_a_kept_one_of_its_label_and_kept_ones_are_apart(
    tmp_path_factory: pytest.TempPathFactory, centres: list[int], data: st.DataObject
) -> None:
    workspace = create_workspace(tmp_path_factory.mktemp("many") / "w", "imagenet-1k")
    with workspace.catalogue.write() as connection:
        for n, centre in enumerate(centres):
            flips = data.draw(st.sets(st.integers(0, 63), max_size=5))
            looks = PerceptualHash(centre ^ sum(1 << bit for bit in flips), centre)
            add_candidate(connection, n, data.draw(st.sampled_from([ONE, TWO])), looks)
    within = data.draw(st.integers(0, 8))
    deduplicate(workspace, distance=within)
    with workspace.catalogue.read() as connection:
        query = select(candidates, images.c.perceptual_hash).join(images)
        hashes = {
            row.id: (row.wnid, PerceptualHash.from_text(row.perceptual_hash))
            for row in connection.execute(query)
        }
        rows = {row.candidate_id: row for row in connection.execute(select(duplicates))}
    dropped = {number for number, row in rows.items() if row.dropped}
    for number, row in rows.items():
        assert row.kept_id not in dropped
        assert row.distance == distance(hashes[number][1], hashes[row.kept_id][1]) <= within
        assert row.dropped == (hashes[number][0] == hashes[row.kept_id][0])
    for wnid in (ONE, TWO):
        kept = [h for n, (label, h) in hashes.items() if label == wnid and n not in dropped]
        for place, one in enumerate(kept):
            assert all(distance(one, other) > within for other in kept[:place])
    workspace.close()


def add_candidate(connection: Connection, n: int, wnid: str, looks: PerceptualHash) -> None:
    row = {
        "sha256": f"{n:064x}",
        "extension": "png",
        "format": "PNG",
        "mode": "RGB",
        "bytes": 1000 + n % 3,
        "width": 100 + n % 2,
        "height": 100,
        "notes": [],
        "pixel_sha256": f"{n + 1000:064x}",
        "perceptual_hash": str(looks),
        "taken_in": now(),
    }
    connection.execute(insert(images).values(row))
    connection.execute(
        insert(candidates).values(key=f"{n * 7 % 31:032x}", sha256=row["sha256"], wnid=wnid)
    )


def give_hash_of(workspace: Workspace, taker: str, giver: str) -> None:
    """Give the picture of one candidate, by its key, the perceptual hash of another's."""
    with workspace.catalogue.write() as connection:
        query = select(images).join(candidates).where(candidates.c.key == giver)
        looks = connection.execute(query).one().perceptual_hash
        image = select(candidates.c.sha256).where(candidates.c.key == taker).scalar_subquery()
        values = {"perceptual_hash": looks}
        connection.execute(update(images).where(images.c.sha256 == image).values(values))


def crops(photo: Photo) -> Photo:
    width, height = photo.size
    return photo.crop((width // 40, height // 40, width - width // 40, height - height // 40))


@ON_SQLITE
@pytest.mark.slow
def test_a_classifier_confirms_crops_and_brighter_copies_and_rejects_other_photos(
    workspace: Workspace, tmp_path: Path, photos: list[Photo]
) -> None:
    root = tmp_path / "photos"
    for n in range(6):
        saved(photos[n], root / ONE / f"{n}.png")
        saved(crops(photos[n]), root / ONE / f"{n}_crop.jpg", quality=90)
        brighter = ImageEnhance.Brightness(photos[n]).enhance(1.4)
        saved(brighter, root / ONE / f"{n}_bright.jpg", quality=90)
    saved(photos[10].resize((256, 256)), root / ONE / "other.png")
    collect_folder(workspace, root)
    named = keys(workspace)
    give_hash_of(workspace, named[f"{ONE}/other.png"], named[f"{ONE}/0.png"])
    plain = deduplicate(workspace)
    assert found(workspace)[named[f"{ONE}/other.png"]][0] == "near"
    looked = deduplicate(workspace, embedding="lite/efficientnet_lite0")
    rows = found(workspace)
    copied = {named[f"{ONE}/{n}_{how}.jpg"] for n in range(6) for how in ("crop", "bright")}
    originals = {named[f"{ONE}/{n}.png"] for n in range(6)}
    assert rows.keys() == copied
    assert {row[2] for row in rows.values()} == originals
    assert max(row[1] for row in rows.values()) > 4
    assert plain.near < looked.near == 12
    # A picture that is gone is left to the hashes.
    with workspace.catalogue.read() as connection:
        query = select(candidates.c.sha256).where(candidates.c.key == named[f"{ONE}/other.png"])
        workspace.store.path(connection.scalar(query) or "", "png").unlink()
    deduplicate(workspace, embedding="lite/efficientnet_lite0")
    assert named[f"{ONE}/other.png"] in found(workspace)


@ON_SQLITE
@pytest.mark.slow
@pytest.mark.parametrize("form", ["folder", "tar", "parquet"])
def test_a_classifier_looks_at_the_pictures_of_a_set_where_they_are_at_hand(
    workspace: Workspace, tmp_path: Path, photos: list[Photo], form: str
) -> None:
    for n in (0, 1):
        saved(photos[n], tmp_path / "mine" / ONE / f"{n}.png")
        saved(crops(photos[n]), tmp_path / "train" / "n1" / f"{n}.jpg", quality=90)
    saved(photos[2], tmp_path / "mine" / ONE / "2.png")
    saved(photos[10], tmp_path / "train" / "n2" / "other.png")
    collect_folder(workspace, tmp_path / "mine")
    named = keys(workspace)
    path = tmp_path / "train"
    if form == "tar":
        path = packed(path, tmp_path / "train.tar")
    if form == "parquet":
        path = tmp_path / "train.parquet"
        hash_pictures(tmp_path / "train", path, workspace.settings.images)
    deduplicate(workspace, [path])
    plain = found(workspace)
    deduplicate(workspace, [path], embedding="lite/efficientnet_lite0")
    rows = found(workspace)
    if form == "parquet":
        assert rows == plain
    else:
        assert rows.keys() == {named[f"{ONE}/0.png"], named[f"{ONE}/1.png"]} > plain.keys()


def wrongly_in_steps(connection: Connection, rows: Iterator[dict[str, Any]]) -> None:
    """Replaces what was found in two transactions instead of one."""
    connection.execute(delete(duplicates))
    connection.exec_driver_sql("COMMIT")
    on_sqlite = connection.dialect.name == "sqlite"
    connection.exec_driver_sql("BEGIN IMMEDIATE" if on_sqlite else "BEGIN")
    connection.execute(insert(duplicates), list(rows))


@pytest.mark.parametrize("fault", [False, True])
def test_a_failure_in_the_middle_leaves_what_was_found_before(
    workspace: Workspace, copies: Path, monkeypatch: pytest.MonkeyPatch, fault: bool
) -> None:
    collect_folder(workspace, copies)
    deduplicate(workspace)
    before = found(workspace)
    plain = Found.rows

    def breaks(*arguments: Any) -> Iterator[dict[str, Any]]:
        yield next(plain(*arguments))
        raise RuntimeError("broken")

    monkeypatch.setattr(Found, "rows", breaks)
    if fault:
        monkeypatch.setattr(twins, "replace", wrongly_in_steps)
    with pytest.raises(RuntimeError, match="broken"):
        deduplicate(workspace)
    assert (found(workspace) == before) == (not fault)


@pytest.mark.slow
def test_a_look_killed_at_any_moment_leaves_what_was_found_before_or_after(
    tmp_path: Path, copies: Path, photos: list[Photo]
) -> None:
    saved(photos[1], tmp_path / "train" / "e.png")
    workspace = create_workspace(tmp_path / "workspace", "imagenet-1k")
    collect_folder(workspace, copies)
    deduplicate(workspace, [tmp_path / "train"])
    after = found(workspace)
    deduplicate(workspace)
    before = found(workspace)
    assert before != after
    command = ["-w", workspace.root, "dedup", "--against", tmp_path / "train"]
    moments = [f"commit:{n}" for n in range(1, 6)] + ["replace:1", "replace:3"]
    killed = 0
    for moment in moments:
        killed += dying(*command, at=moment) is None
        assert found(workspace) in (before, after)
        with sqlite3.connect(workspace.root / "catalogue.sqlite") as raw:
            assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        deduplicate(workspace)
    assert killed >= 5
    assert dying(*command, at="any:1000000") is not None
    assert found(workspace) == after
    assert not list(workspace.root.rglob(".partial*"))


def test_an_interrupt_changes_nothing(
    workspace: Workspace, copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect_folder(workspace, copies)
    deduplicate(workspace)
    before = found(workspace)

    look, looked = picture_sets._look, []

    def interrupted(hit: Any, limits: Any) -> Any:
        looked.append(hit)
        if len(looked) == 1:
            interrupt()
        return look(hit, limits)

    monkeypatch.setattr(picture_sets, "usable_cores", lambda: 1)
    monkeypatch.setattr(picture_sets, "_look", interrupted)
    with pytest.raises(Interrupted, match="nothing was changed"):
        deduplicate(workspace, [copies])
    assert found(workspace) == before


def test_an_interrupt_while_comparing_changes_nothing(
    workspace: Workspace, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect_folder(workspace, copies)
    deduplicate(workspace)
    before = found(workspace)
    plain = deduplicating.clusters

    def interrupted(*arguments: Any, **named: Any) -> Any:
        interrupt()
        return plain(*arguments, **named)

    monkeypatch.setattr(deduplicating, "clusters", interrupted)
    with pytest.raises(Interrupted, match="nothing was changed"):
        deduplicate(workspace, distance=0)
    assert found(workspace) == before


def test_a_collect_at_work_and_a_distance_out_of_range_are_told(
    workspace: Workspace, tmp_path: Path
) -> None:
    (workspace.root / ".curate").mkdir()
    with (
        hold(workspace.root / ".curate" / "collect", "curate collect"),
        pytest.raises(BusyError, match="curate collect"),
    ):
        deduplicate(workspace)
    with pytest.raises(UsageError, match="0 to 12 bits"):
        deduplicate(workspace, distance=13)
    with pytest.raises(UsageError, match=r"cannot read .*absent"):
        deduplicate(workspace, [tmp_path / "absent"])
