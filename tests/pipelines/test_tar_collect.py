"""Collecting tar files: from archives to candidates, and what a stop or a kill leaves."""

from __future__ import annotations

import csv
import gzip
import io
import tarfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image
from sqlalchemy import select

from curate.catalog import intake
from curate.catalog.tables import candidates, images, origins, searches
from curate.errors import Interrupted, UsageError
from curate.files import sha256_bytes, sha256_file
from curate.sources.tar_members import Members
from pipelines.collect import collect_tar
from pipelines.workspace import Workspace, create_workspace
from tests.pipelines.stored import stored_files
from tests.running import dying, killed_until_done, run_curate
from tests.waiting import interrupt

TENCH, GOLDFISH, EAGLE = WNIDS = ("n01440764", "n01443537", "n01614925")

#: More than two batches of a collect.
MANY = 600


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return create_workspace(tmp_path / "workspace", "imagenet-1k")


@pytest.fixture(scope="session")
def photos(package_photos: list[tuple[Path, int]]) -> list[bytes]:
    return [path.read_bytes() for path, _ in package_photos]


@pytest.fixture(scope="session")
def many_photos(photos: list[bytes]) -> list[bytes]:
    """Small pieces of real photos, all different."""
    made = []
    for number in range(MANY):
        turn, place = divmod(number, len(photos))
        with Image.open(io.BytesIO(photos[place])) as photo:
            left, top = 4 * (turn % 6), 4 * (turn // 6)
            piece = photo.convert("RGB").crop((left, top, left + 80, top + 80))
        stream = io.BytesIO()
        piece.save(stream, "JPEG")
        made.append(stream.getvalue())
    assert len(set(made)) == MANY
    return made


def tar_of(members: Sequence[tuple[str | tarfile.TarInfo, bytes]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name) if isinstance(name, str) else name
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def class_tar(wnid: str, photos: Sequence[bytes]) -> bytes:
    return tar_of([(f"{wnid}_{number}.JPEG", photo) for number, photo in enumerate(photos)])


@pytest.fixture
def whole(tmp_path: Path, photos: list[bytes]) -> Path:
    """Three tar files of a class in one, as ImageNet-21k comes."""
    path = tmp_path / "winter21_whole.tar.gz"
    inner = [
        (f"winter21_whole/{wnid}.tar", class_tar(wnid, photos[3 * n : 3 * n + 3]))
        for n, wnid in enumerate(WNIDS)
    ]
    path.write_bytes(gzip.compress(tar_of(inner)))
    return path


@pytest.fixture
def pool(tmp_path: Path, many_photos: list[bytes]) -> Path:
    """A folder of a tar file of a class, one of tar files, and a bad file among them."""
    folder = tmp_path / "pool"
    folder.mkdir()
    third = MANY // 3
    bad = ("bad.JPEG", b"<html>blocked</html>")
    first = [(f"{n}.JPEG", photo) for n, photo in enumerate(many_photos[:third])]
    (folder / f"{TENCH}.tar").write_bytes(tar_of([*first[:50], bad, *first[50:], first[0]]))
    inner = [
        (f"{GOLDFISH}.tar", class_tar(GOLDFISH, many_photos[third : 2 * third])),
        (f"{EAGLE}.tar", class_tar(EAGLE, many_photos[2 * third :])),
    ]
    (folder / "others.tar").write_bytes(tar_of(inner))
    return folder


def places(workspace: Workspace) -> dict[str, tuple[str, str]]:
    """Locator to class and image of what became candidates."""
    query = select(origins.c.locator, candidates.c.wnid, candidates.c.sha256, origins.c.source)
    with workspace.catalogue.read() as connection:
        rows = connection.execute(query.join_from(origins, candidates)).all()
    assert {row.source for row in rows} <= {"tar"}
    return {row.locator: (row.wnid, row.sha256) for row in rows}


def content(workspace: Workspace) -> tuple[object, ...]:
    """Everything in the catalogue and the store that does not speak of time."""
    with workspace.catalogue.read() as connection:
        tables = [
            [
                tuple(v for c, v in row._mapping.items() if c not in ("seen", "taken_in"))
                for row in connection.execute(select(table).order_by(*table.primary_key))
            ]
            for table in (images, candidates, origins)
        ]
        refused = sorted((row["locator"], row["reason"]) for row in intake.refused(connection))
    stored = [(name, sha256_file(path)) for name, path in stored_files(workspace)]
    return (*tables, refused, stored)


class Reading:
    """Counts the images that are read out of archives, and calls something at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.at = 0, -1
        self.action = lambda: None
        read = Members.read

        def counted(members: Members, info: tarfile.TarInfo) -> bytes:
            self.count += 1
            if self.count == self.at:
                self.action()
            return read(members, info)

        monkeypatch.setattr(Members, "read", counted)


def test_an_outer_tar_gives_candidates_with_class_and_place(
    workspace: Workspace, whole: Path, photos: list[bytes]
) -> None:
    collected = collect_tar(workspace, whole)
    assert (collected.found, collected.new, collected.rejected) == (9, 9, Counter())
    assert places(workspace) == {
        f"winter21_whole.tar.gz/winter21_whole/{wnid}.tar/{wnid}_{number}.JPEG": (
            wnid,
            sha256_bytes(photos[3 * n + number]),
        )
        for n, wnid in enumerate(WNIDS)
        for number in range(3)
    }
    assert {path.read_bytes() for _, path in stored_files(workspace)} == set(photos[:9])


def test_a_class_tar_and_class_folders_in_a_tar_give_candidates(
    workspace: Workspace, tmp_path: Path, photos: list[bytes]
) -> None:
    single = tmp_path / f"{TENCH}.tar"
    single.write_bytes(class_tar(TENCH, photos[:2]))
    folders = tmp_path / "train.tar"
    members = [
        (f"train/{GOLDFISH}/a.JPEG", photos[2]),
        ("train/Bald Eagle/b.JPEG", photos[3]),
        ("train/no such class/c.JPEG", photos[4]),
    ]
    folders.write_bytes(tar_of(members))
    assert collect_tar(workspace, single).new == 2
    collected = collect_tar(workspace, folders)
    assert (collected.new, dict(collected.rejected)) == (2, {"no-label": 1})
    assert {locator: wnid for locator, (wnid, _) in places(workspace).items()} == {
        f"{TENCH}.tar/{TENCH}_0.JPEG": TENCH,
        f"{TENCH}.tar/{TENCH}_1.JPEG": TENCH,
        f"train.tar/train/{GOLDFISH}/a.JPEG": GOLDFISH,
        "train.tar/train/Bald Eagle/b.JPEG": EAGLE,
    }


def test_classes_that_are_not_asked_for_are_passed_over_and_can_be_had_later(
    workspace: Workspace, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(monkeypatch)
    collected = collect_tar(workspace, whole, [GOLDFISH])
    assert (collected.found, collected.new) == (3, 3)
    assert reading.count == 3, "the others are not even read"
    assert {wnid for wnid, _ in places(workspace).values()} == {GOLDFISH}
    collected = collect_tar(workspace, whole)
    assert (collected.new, collected.known) == (6, 3)


def test_members_that_are_refused_are_counted_and_listed(
    workspace: Workspace, tmp_path: Path, photos: list[bytes]
) -> None:
    link = tarfile.TarInfo("link.JPEG")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    path = tmp_path / f"{TENCH}.tar"
    members: list[tuple[str | tarfile.TarInfo, bytes]] = [
        ("good.JPEG", photos[0]),
        ("again.JPEG", photos[0]),
        ("page.JPEG", b"<html>blocked</html>"),
        ("cut.JPEG", photos[1][:900]),
        (link, b""),
        ("../outside.JPEG", photos[2]),
        ("last.JPEG", photos[3]),
    ]
    path.write_bytes(tar_of(members))
    expected = {
        "again.JPEG": "duplicate-exact",
        "page.JPEG": "not-an-image",
        "cut.JPEG": "truncated",
        "link.JPEG": "symlink",
        "../outside.JPEG": "outside",
    }
    for new, known in ((2, 0), (0, 2)):
        collected = collect_tar(workspace, path)
        assert (collected.new, collected.known) == (new, known)
        assert collected.rejected == Counter(expected.values())
        assert collected.list is not None
        with (workspace.root / collected.list).open(encoding="utf-8", newline="") as stream:
            listed = {row["locator"]: row["reason"] for row in csv.DictReader(stream)}
        assert listed == {f"{TENCH}.tar/{name}": reason for name, reason in expected.items()}


def test_an_archive_that_breaks_off_gives_what_is_whole_and_is_listed(
    workspace: Workspace, tmp_path: Path, photos: list[bytes]
) -> None:
    path = tmp_path / f"{TENCH}.tar"
    data = class_tar(TENCH, photos[:4])
    path.write_bytes(data[: len(data) * 3 // 5])
    collected = collect_tar(workspace, path)
    assert 0 < collected.new < 4
    assert collected.rejected["truncated"] == 1
    path.write_bytes(data)
    assert collect_tar(workspace, path).known == collected.new
    assert len(places(workspace)) == 4


def test_a_second_start_finds_everything_known_and_puts_back_what_the_store_lost(
    workspace: Workspace, whole: Path
) -> None:
    collect_tar(workspace, whole)
    before = content(workspace)
    stored = stored_files(workspace)
    stored[0][1].unlink()
    stored[1][1].write_bytes(bytes(stored[1][1].stat().st_size))
    assert content(workspace) != before
    collected = collect_tar(workspace, whole)
    assert (collected.found, collected.new, collected.known) == (9, 0, 9)
    assert content(workspace) == before


def test_an_interrupt_ends_after_the_batch_and_the_next_start_goes_on_there(
    workspace: Workspace, tmp_path: Path, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(monkeypatch)
    undisturbed = create_workspace(tmp_path / "undisturbed", "imagenet-1k")
    collect_tar(undisturbed, pool)
    everything, reading.count = reading.count, 0
    assert everything == MANY + 2
    reading.at, reading.action = 350, interrupt
    with pytest.raises(Interrupted, match="run again to go on"):
        collect_tar(workspace, pool)
    first = reading.count
    assert 350 <= first < 360
    done = len(places(workspace))
    assert done > 300
    collected = collect_tar(workspace, pool)
    assert everything <= reading.count <= everything + 1, "only what was in hand is read twice"
    assert collected.found in (everything - first, everything - first + 1)
    assert content(workspace) == content(undisturbed)


def test_an_archive_that_has_changed_since_is_read_from_its_start(
    workspace: Workspace, pool: Path, many_photos: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(monkeypatch)
    path = pool / f"{TENCH}.tar"
    path.write_bytes(class_tar(TENCH, many_photos[:60]))
    reading.at, reading.action = 40, interrupt
    with pytest.raises(Interrupted):
        collect_tar(workspace, path)
    path.write_bytes(class_tar(TENCH, many_photos[1:61]))
    reading.count, reading.at = 0, -1
    collect_tar(workspace, path)
    assert reading.count == 60
    taken = {sha256 for _, sha256 in places(workspace).values()}
    assert taken >= {sha256_bytes(photo) for photo in many_photos[1:61]}


def test_what_is_no_archive_is_one_line(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*absent\.tar: No such file"):
        collect_tar(workspace, tmp_path / "absent.tar")
    (tmp_path / "page.tar").write_bytes(b"<html>" * 200)
    with pytest.raises(UsageError, match="no tar file"):
        collect_tar(workspace, tmp_path / "page.tar")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no tar files"):
        collect_tar(workspace, tmp_path / "empty")


def test_the_command_takes_classes_and_refuses_an_absent_path(
    workspace: Workspace, whole: Path, tmp_path: Path
) -> None:
    workspace.close()
    done = run_curate(
        "--json", "collect", "tar", whole, "--classes", f"tench,{EAGLE}", workspace=workspace.root
    )
    assert '"new": 6' in done.stdout
    absent = run_curate(
        "collect", "tar", tmp_path / "absent.tar", workspace=workspace.root, expect=2
    )
    assert absent.stderr.strip().count("\n") == 0
    assert "absent.tar" in absent.stderr


@pytest.mark.thorough
@pytest.mark.slow
def test_a_collect_killed_again_and_again_ends_as_one_never_killed(
    tmp_path: Path, pool: Path
) -> None:
    undisturbed = create_workspace(tmp_path / "undisturbed", "imagenet-1k")
    collect_tar(undisturbed, pool)
    killed = create_workspace(tmp_path / "killed", "imagenet-1k")
    killed.close()
    command = ["-w", killed.root, "collect", "tar", pool]
    moments = ["replace:1", "fsync:9", "commit:2", "replace:300", "fsync:700", "unlink:1"]
    killed_until_done(command, [*moments, "commit:5"])
    assert content(killed) == content(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [0, 40])
def test_a_start_after_a_kill_reads_all_that_was_not_recorded_and_nothing_else(
    tmp_path: Path, pool: Path, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """Where the planted fault notes a place further on than what is recorded, images are lost."""
    undisturbed = create_workspace(tmp_path / "undisturbed", "imagenet-1k")
    collect_tar(undisturbed, pool)
    killed = create_workspace(tmp_path / "killed", "imagenet-1k")
    killed.close()
    assert dying("-w", killed.root, "collect", "tar", pool, at="replace:700") is None
    assert len(places(killed)) == 254, "one batch, with two refused members"
    with killed.catalogue.write() as connection:
        cursor = connection.execute(select(searches.c.cursor)).scalar_one()
        cursor["members"][-1] += ahead
        connection.execute(searches.update().values(cursor=cursor))
    reading = Reading(monkeypatch)
    collected = collect_tar(killed, pool)
    assert reading.count == collected.found == MANY + 2 - 256 - ahead
    assert (content(killed) == content(undisturbed)) == (ahead == 0)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "direct"])
def test_the_kill_test_finds_files_that_are_written_in_place(
    tmp_path: Path, pool: Path, fault: str
) -> None:
    killed = create_workspace(tmp_path / "killed", "imagenet-1k")
    killed.close()
    command = ["-w", killed.root, "collect", "tar", pool]
    if fault:
        assert dying("--fault", fault, *command, at="half:100") is None
    else:
        assert dying(*command, at="replace:100") is None
    torn = [name for name, path in stored_files(killed) if sha256_file(path) != name]
    assert bool(torn) == bool(fault)
