"""Collecting a folder: what becomes a candidate, what is refused and why, what a kill leaves."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from sqlalchemy import func, select

from curate.catalog import intake
from curate.catalog.tables import candidates, images, origins, refusals
from curate.errors import BusyError, StorageError, UsageError
from curate.files import csv_plain, hold, printable, sha256_file
from pipelines.collect import collect_folder
from pipelines.workspace import Workspace, create_workspace, open_workspace
from tests.pipelines.stored import stored_files
from tests.running import dying, killed_until_done


@pytest.fixture
def workspace(tmp_path: Path, on_database: Callable[[str], str]) -> Workspace:
    return create_workspace(tmp_path / "workspace", on_database("imagenet-1k"))


def counted(workspace: Workspace) -> dict[str, int]:
    with workspace.catalogue.read() as connection:
        return {
            table.name: connection.scalar(select(func.count()).select_from(table)) or 0
            for table in (images, candidates, origins, refusals)
        }


def refused(workspace: Workspace) -> dict[str, str]:
    with workspace.catalogue.read() as connection:
        return {row["locator"]: row["reason"] for row in intake.refused(connection)}


def content(workspace: Workspace) -> tuple[list[tuple[object, ...]], ...]:
    """Everything in the catalogue that does not speak of time.

    Numbers are told by their order: a transaction that PostgreSQL takes back leaves a gap.
    """
    with workspace.catalogue.read() as connection:
        rows = {
            table.name: [
                dict(row)
                for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()
            ]
            for table in (images, candidates, origins)
        }
    order = {row["id"]: place for place, row in enumerate(rows["candidates"])}
    for place, row in enumerate(rows["origins"]):
        row |= {"id": place, "candidate_id": order[row["candidate_id"]]}
    for row in rows["candidates"]:
        row["id"] = order[row["id"]]
    tables = [
        [tuple(v for c, v in row.items() if c not in ("seen", "taken_in")) for row in some]
        for some in rows.values()
    ]
    return (*tables, sorted(refused(workspace).items()))


def test_class_folders_become_candidates_with_their_bytes_unchanged(
    workspace: Workspace, weak_folder: Path
) -> None:
    collected = collect_folder(workspace, weak_folder)
    assert (collected.found, collected.new, collected.known) == (20, 20, 0)
    assert counted(workspace) == {"images": 12, "candidates": 20, "origins": 20, "refusals": 0}
    stored = {path.read_bytes() for _, path in stored_files(workspace)}
    assert stored == {path.read_bytes() for path in weak_folder.rglob("*.jpg")}


def test_collecting_again_changes_nothing(workspace: Workspace, weak_folder: Path) -> None:
    collect_folder(workspace, weak_folder)
    before = content(workspace)
    again = collect_folder(workspace, weak_folder)
    assert (again.found, again.new, again.known, again.rejected) == (20, 0, 20, Counter())
    assert content(workspace) == before


def test_folders_may_be_named_by_class_and_an_unknown_name_says_so(
    workspace: Workspace, tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    root = tmp_path / "photos"
    names = ["Bald Eagle", "bald_eagel", "crane", "n02950826", "deep/er"]
    for name, (path, _) in zip(names, package_photos, strict=False):
        (root / name).mkdir(parents=True)
        shutil.copy(path, root / name)
    shutil.copy(package_photos[9][0], root)
    collected = collect_folder(workspace, root)
    assert (collected.new, dict(collected.rejected)) == (2, {"no-label": 4})
    with workspace.catalogue.read() as connection:
        details = {
            row["locator"].split("/")[1]: row["detail"] for row in intake.refused(connection)
        }
        labels = set(connection.scalars(select(candidates.c.wnid)))
    assert labels == {"n01614925", "n02950826"}
    assert "bald eagle" in details["bald_eagel"]
    assert "n02012849" in details["crane"]
    assert "n03126707" in details["crane"]


def test_a_table_gives_labels_origin_and_licence(
    workspace: Workspace, tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    for number, (path, _) in enumerate(package_photos[:3]):
        shutil.copy(path, root / f"{number}.jpg")
    table = tmp_path / "labels.csv"
    table.write_text(
        "path,label,source,page,author,licence\n"
        "0.jpg,dragonfly,A set,https://example.org/0,Ann,CC BY 4.0\n"
        "1.jpg,n01531178,,,,\n"
        "2.jpg,no such class,,,,\n"
        "3.jpg,dragonfly,,,,\n"
        "../labels.csv,dragonfly,,,,\n"
        "/etc/hostname,dragonfly,,,,\n",
        encoding="utf-8",
    )
    collected = collect_folder(workspace, root, table)
    assert collected.new == 2
    assert dict(collected.rejected) == {"no-label": 1, "missing": 1, "outside": 2}
    with workspace.catalogue.read() as connection:
        first, second = connection.execute(select(origins).order_by(origins.c.id)).all()
    assert (first.collection, first.page, first.author) == ("A set", "https://example.org/0", "Ann")
    assert (first.licence, first.licence_text) == ("CC-BY-4.0", "CC BY 4.0")
    assert second.licence == "LicenseRef-unknown"


def test_a_table_may_name_one_file_under_several_labels_even_an_unusable_one(
    workspace: Workspace, tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "bad.jpg").write_bytes(b"<html>")
    shutil.copy(package_photos[0][0], tmp_path / "photos" / "good.jpg")
    table = tmp_path / "labels.csv"
    names = [
        f"{f}.jpg,{c}" for f in ("bad", "good") for c in ("dragonfly", "goldfinch", "dragonfly")
    ]
    table.write_text("path,label\n" + "\n".join(names) + "\n", encoding="utf-8")
    for new in (2, 0):
        collected = collect_folder(workspace, tmp_path / "photos", table)
        assert (collected.new, collected.rejected["not-an-image"]) == (new, 3)
    assert counted(workspace)["refusals"] == 2


def test_the_list_of_refused_files_goes_when_nothing_is_refused_any_more(
    workspace: Workspace, tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    photo = tmp_path / "photos" / "n01614925" / "a.jpg"
    photo.parent.mkdir(parents=True)
    shutil.copy(package_photos[0][0], photo)
    collect_folder(workspace, tmp_path / "photos")
    photo.write_bytes(b"")
    assert collect_folder(workspace, tmp_path / "photos").list == "lists/refused.csv"
    shutil.copy(package_photos[0][0], photo)
    assert collect_folder(workspace, tmp_path / "photos").known == 1
    assert refused(workspace) == {}
    assert not (workspace.root / "lists" / "refused.csv").exists()


def test_one_image_under_two_labels_is_two_candidates(
    workspace: Workspace, tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    for name in ("n01614925", "n02950826"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        shutil.copy(package_photos[0][0], tmp_path / "photos" / name / "a.jpg")
    assert collect_folder(workspace, tmp_path / "photos").new == 2
    assert counted(workspace)["images"] == 1


def test_links_folders_and_pipes_are_refused_and_hidden_folders_passed_over(
    workspace: Workspace, tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    folder = tmp_path / "photos" / "n01614925"
    (folder / "folder.jpg").mkdir(parents=True)
    (folder / ".git").mkdir()
    shutil.copy(package_photos[0][0], folder / ".hidden.jpg")
    shutil.copy(package_photos[1][0], folder / ".git" / "passed-over.jpg")
    (folder / "outside.jpg").symlink_to("/etc/hostname")
    (folder / "dangling.jpg").symlink_to("nothing")
    (tmp_path / "photos" / "n02950826").symlink_to(folder)
    os.mkfifo(folder / "pipe.jpg")
    collected = collect_folder(workspace, tmp_path / "photos")
    assert collected.new == 1
    assert dict(collected.rejected) == {"symlink": 3, "not-a-file": 2}


@pytest.mark.parametrize("reject", [False, True])
def test_near_duplicates_are_flagged_or_rejected(
    workspace: Workspace, tmp_path: Path, package_photos: list[tuple[Path, int]], reject: bool
) -> None:
    folder = tmp_path / "photos" / "n01614925"
    folder.mkdir(parents=True)
    photo = Image.open(package_photos[17][0]).convert("RGB")
    photo.save(folder / "a.png")
    photo.resize((200, 200)).save(folder / "b.jpg", quality=70)
    photo.save(folder / "c.bmp")
    shutil.copy(folder / "a.png", folder / "d.png")
    policy = "reject" if reject else "flag"
    workspace = workspace.changed({"collect.near_duplicates": policy})
    collected = collect_folder(workspace, tmp_path / "photos")
    exact = {"duplicate-pixels": 1, "duplicate-exact": 1}
    if reject:
        assert collected.new == 1
        assert dict(collected.rejected) == exact | {"duplicate-near": 1}
    else:
        assert (collected.new, collected.near_duplicates) == (2, 1)
        assert dict(collected.rejected) == exact
        with workspace.catalogue.read() as connection:
            rows = connection.execute(select(candidates).order_by(candidates.c.id)).all()
        assert [row.near_key for row in rows] == [None, rows[0].key]
    before = content(workspace)
    again = collect_folder(workspace, tmp_path / "photos")
    assert again.rejected == collected.rejected
    assert content(workspace) == before


def test_refused_files_are_listed_safely(workspace: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "photos" / "n01614925"
    folder.mkdir(parents=True)
    (folder / '=1+1,"q".jpg').write_bytes(b"<html>")
    (folder / "new\nline.jpg").write_bytes(b"")
    (folder / os.fsdecode(b"latin1_\xe9\xff.jpg")).write_bytes(b"{}")
    collected = collect_folder(workspace, tmp_path / "photos")
    assert collected.list is not None
    with (workspace.root / collected.list).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    listed = {csv_plain(row["locator"]): row["reason"] for row in rows}
    assert listed == {
        'photos/n01614925/=1+1,"q".jpg': "not-an-image",
        "photos/n01614925/new\nline.jpg": "empty-file",
        r"photos/n01614925/latin1_\udce9\udcff.jpg": "not-an-image",
    }


def test_a_file_that_was_refused_and_mended_is_taken(
    workspace: Workspace, tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    photo = tmp_path / "photos" / "n01614925" / "a.jpg"
    photo.parent.mkdir(parents=True)
    photo.write_bytes(package_photos[0][0].read_bytes()[:900])
    assert collect_folder(workspace, tmp_path / "photos").rejected == {"truncated": 1}
    shutil.copy(package_photos[0][0], photo)
    assert collect_folder(workspace, tmp_path / "photos").new == 1
    assert refused(workspace) == {}


def test_collecting_again_puts_back_what_the_store_has_lost(
    workspace: Workspace, weak_folder: Path
) -> None:
    collect_folder(workspace, weak_folder)
    before = content(workspace)
    stored = stored_files(workspace)
    stored[0][1].unlink()
    stored[1][1].write_bytes(bytes(stored[1][1].stat().st_size))
    assert collect_folder(workspace, weak_folder).known == 20
    assert all(sha256_file(path) == name for name, path in stored_files(workspace))
    assert stored_files(workspace) == stored
    assert content(workspace) == before


def test_a_licence_that_is_told_later_is_recorded(
    workspace: Workspace, tmp_path: Path, package_photos: list[tuple[Path, int]]
) -> None:
    (tmp_path / "photos").mkdir()
    shutil.copy(package_photos[0][0], tmp_path / "photos" / "a.jpg")
    table = tmp_path / "labels.csv"
    for text in (
        "path,label,author\na.jpg,dragonfly,Ann\n",
        "path,label,licence\na.jpg,dragonfly,CC0\n",
    ):
        table.write_text(text, encoding="utf-8")
        collect_folder(workspace, tmp_path / "photos", table)
    with workspace.catalogue.read() as connection:
        (origin,) = connection.execute(select(origins)).all()
    assert (origin.author, origin.licence) == ("Ann", "CC0-1.0")


def test_what_is_no_folder_or_table_is_one_line(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent: No such file|cannot read .*absent"):
        collect_folder(workspace, tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a folder"):
        collect_folder(workspace, tmp_path / "file")
    (tmp_path / "t.csv").write_text("file,label\n", encoding="utf-8")
    with pytest.raises(UsageError, match="column 'path' is missing"):
        collect_folder(workspace, tmp_path, tmp_path / "t.csv")


def test_a_label_space_that_changed_after_collecting_is_refused(
    workspace: Workspace, weak_folder: Path
) -> None:
    collect_folder(workspace, weak_folder)
    workspace.close()
    settings = workspace.root / "curate.yaml"
    text = settings.read_text(encoding="utf-8").replace("imagenet-1k", "imagenet-a")
    settings.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="is not the one that this workspace's candidates"):
        collect_folder(open_workspace(workspace.root), weak_folder)


def test_a_second_collect_is_told_who_is_at_work(workspace: Workspace, weak_folder: Path) -> None:
    (workspace.root / ".curate").mkdir()
    with (
        hold(workspace.root / ".curate" / "collect", "curate collect"),
        pytest.raises(BusyError, match=f"process {os.getpid()} on"),
    ):
        collect_folder(workspace, weak_folder)


def test_a_full_disk_is_told_and_the_next_start_ends_as_if_nothing_had_been(
    tmp_path: Path, weak_folder: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("making a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=680k", "tmpfs", disk], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip("this system does not let tests mount a small disk")
    try:
        small = create_workspace(disk / "workspace", "imagenet-1k")
        with pytest.raises(StorageError, match="disk is full"):
            collect_folder(small, weak_folder)
        subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
        collect_folder(small, weak_folder)
        whole = create_workspace(tmp_path / "whole", "imagenet-1k")
        collect_folder(whole, weak_folder)
        assert content(small) == content(whole)
        assert list(small.store) == list(whole.store)
        small.close()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.slow
def test_a_collect_killed_at_every_moment_ends_as_one_never_killed(
    tmp_path: Path, weak_folder: Path, on_database: Callable[[str], str]
) -> None:
    whole = create_workspace(tmp_path / "whole", "imagenet-1k")
    collect_folder(whole, weak_folder)
    killed = create_workspace(tmp_path / "killed", on_database("imagenet-1k"))
    killed.close()
    command = ["-w", killed.root, "collect", "folder", weak_folder]
    moments = ["replace:1", "fsync:7", "fsync:20", "replace:5", "commit:3", "fsync:40"]
    killed_until_done(command, moments)
    assert content(killed) == content(whole)
    assert list(killed.store) == list(whole.store)
    assert all(killed.store.read(name, path.suffix[1:]) for name, path in stored_files(killed))
    assert not list((killed.root / "images").rglob(".partial*"))


@pytest.mark.slow
def test_the_kill_test_finds_files_that_are_not_written_atomically(
    tmp_path: Path, weak_folder: Path
) -> None:
    killed = create_workspace(tmp_path / "killed", "imagenet-1k")
    killed.close()
    command = ["--fault", "direct", "-w", killed.root, "collect", "folder", weak_folder]
    assert dying(*command, at="half:3") is None
    assert len([path for name, path in stored_files(killed) if sha256_file(path) != name]) == 1


#: Rows of nasty.csv that speak of copies of one photo; the others show some photos twice on
#: purpose, so each of them gets a class of its own.
COPIES = ("dup_a.jpg", "dup_b.jpg", "dup_c.png", "dup_d.jpg", "dup_e_flip.jpg")


def test_every_awkward_file_is_taken_or_refused_as_the_table_says(
    workspace: Workspace, tmp_path: Path, shared_data: Path
) -> None:
    source, photos = tmp_path / "nasty", tmp_path / "photos"
    source.mkdir()
    subprocess.run(["tar", "-xf", shared_data / "nasty.tar", "-C", source], check=True)
    wnids = iter(workspace.label_space.wnids)
    copies = photos / next(wnids)
    for name in sorted(os.listdir(source)):
        folder = copies if name in COPIES else photos / next(wnids)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.move(source / name, folder / name)
    with (shared_data / "nasty.csv").open(encoding="utf-8", newline="") as stream:
        expected = {printable(row["file"]): row["reason"] for row in csv.DictReader(stream)}
    assert len(expected) == 83
    collected = collect_folder(workspace.changed({"collect.near_duplicates": "reject"}), photos)
    got = {locator.split("/", 2)[2]: reason for locator, reason in refused(workspace).items()}
    with workspace.catalogue.read() as connection:
        taken = {
            locator.split("/", 2)[2] for locator in connection.scalars(select(origins.c.locator))
        }
    got |= {name: "" for name in taken if name not in got}
    assert got == expected
    assert collected.new == sum(reason == "" for reason in expected.values())
