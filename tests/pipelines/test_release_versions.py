"""Taking images back and comparing versions, in real workspaces with real photos."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from sqlalchemy import insert, select, update
from typer.testing import CliRunner

from curate.catalog import releases, retractions
from curate.catalog.review_tables import review_tasks
from curate.catalog.tables import candidates, images, now, runs
from curate.cli.common import shared
from curate.cli.main import app
from curate.errors import AmbiguousNameError, UnknownNameError, UsageError, VerificationError
from curate.release.version import parse_version
from pipelines.barred import retracted_among
from pipelines.collect import collect_folder
from pipelines.release import list_releases
from pipelines.release_diff import diff_releases, diff_text
from pipelines.release_verify import verify
from pipelines.release_versions import check_release_step, version_before
from pipelines.retractions import retract, tombstones_csv
from pipelines.workspace import create_workspace, open_workspace
from tests.pipelines.releasing import photo_rows
from tests.release.test_build import SPACE, _Images, _item, build
from tests.running import ROOT, copy_of

Photos = list[tuple[Path, int]]

WNID = SPACE.wnids[10]
RUN = "0123456789ab"
HOSTILE = "</script><img src=x onerror=alert(1)>"


def photo(path: Path, quality: int = 90, side: int = 160) -> bytes:
    """A small real photo."""
    buffer = io.BytesIO()
    with Image.open(path) as image:
        image.convert("RGB").resize((side, side)).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


class Here:
    """A workspace that has collected photos, and releases that stand on its disk."""

    def __init__(self, root: Path, photos: Photos) -> None:
        self.workspace = create_workspace(root / "workspace", "imagenet-1k")
        self.photos = [path for path, _ in photos]
        self.folder = root / "photos" / WNID
        self.folder.mkdir(parents=True)
        self.images = _Images()
        for number in range(4):
            self.add(f"{number}.jpg", photo(self.photos[number]))
        self.collect()
        run: dict[str, Any] = {"id": RUN, "scoring": RUN, "scores_run": RUN, "rule": "none"}
        run |= {"state": "finished", "settings": {}, "record": {}, "summary": {}}
        columns = {"started": now(), "finished": now()}
        with self.workspace.catalogue.write() as connection:
            known = runs.c.keys()
            connection.execute(
                insert(runs).values(run | {k: v for k, v in columns.items() if k in known})
            )

    def add(self, name: str, data: bytes) -> str:
        (self.folder / name).write_bytes(data)
        return self.images.add(data)

    def collect(self) -> dict[str, Any]:
        return collect_folder(self.workspace, self.folder.parent).to_dict()

    def sha256s(self) -> list[str]:
        with self.workspace.catalogue.read() as connection:
            return list(connection.scalars(select(candidates.c.sha256).order_by(candidates.c.id)))

    def release(self, version: str, sha256s: list[str], **row: Any) -> Path:
        """Build a version of some images, and record it as `build_release` does."""
        target = self.workspace.root / "releases" / version
        items = [_item(self.images, self.images[each], WNID, **row) for each in sha256s]
        built = build(target, items, self.images, version=version)
        with self.workspace.catalogue.write() as connection:
            found = connection.execute(select(candidates.c.key, candidates.c.id))
            ids = {row.key: row.id for row in found}
            release = {
                "version": version,
                "run_id": RUN,
                "manifest_sha256": built.manifest_sha256,
                "images": len(built.rows),
                "classes": 1,
                "reviewed": False,
                "record": dict(built.record),
                "built": now(),
            }
            rows = [
                {"version": version, "candidate_id": ids[one.candidate], "path": one.path}
                for one in built.rows
            ]
            releases.add_release(connection, release, rows)
        return target


@pytest.fixture
def here(tmp_path: Path, package_photos: Photos) -> Iterator[Here]:
    made = Here(tmp_path, package_photos)
    yield made
    made.workspace.close()


def planned(here: Here, sha256s: list[str], **changes: Any) -> list[dict[str, Any]]:
    row = {"path": "", "folder": WNID, "wnid": WNID, "licence": "CC-BY-4.0", "split": None}
    return [row | {"original_sha256": each, "reviewed": False} | changes for each in sha256s]


def test_a_retracted_image_is_told_with_its_versions_and_once(here: Here) -> None:
    all_of_them = here.sha256s()
    folder = here.release("1.0.0", all_of_them)
    here.release("1.0.1", all_of_them)
    gone = all_of_them[1]
    path = f"{WNID}/{gone[:16]}.jpg"
    told = retract(here.workspace, gone[:12].upper(), "privacy")
    assert (told["image"], told["already"], told["copies"]) == (gone, False, 0)
    assert told["versions"] == {"1.0.0": [path], "1.0.1": [path]}
    again = retract(here.workspace, str(folder / path), "other")
    assert again == told | {"already": True}, "the first reason stands"
    assert [row["retracted"] for row in list_releases(here.workspace)] == [1, 1]
    assert tombstones_csv(here.workspace).decode() == (
        f"sha256,retracted,reason\n{gone},{told['retracted']},privacy\n"
    )
    checked = verify(here.workspace, "1.0.0")
    assert checked["problems"] == []
    assert any(line.startswith(f"{path} was taken back on") for line in checked["warnings"])


def test_a_retracted_image_and_its_copies_are_not_collected_again(here: Here) -> None:
    gone = here.sha256s()[0]
    retract(here.workspace, gone, "person-request")
    again = here.collect()
    assert again["rejected"] == {"retracted": 1}
    other = here.folder.parent / SPACE.wnids[20]
    other.mkdir()
    (other / "resaved.jpg").write_bytes(photo(here.photos[0], quality=60, side=120))
    (other / "label.jpg").write_bytes((here.folder / "0.jpg").read_bytes())
    assert here.collect()["rejected"] == {"retracted": 3}
    assert len(here.sha256s()) == 4
    unseen = here.add("later.jpg", photo(here.photos[5]))
    assert retract(here.workspace, unseen, "copyright")["versions"] == {}
    assert here.collect()["rejected"] == {"retracted": 4}, "barred before it was ever collected"


def test_a_copy_under_other_bytes_is_barred_and_told(here: Here) -> None:
    copy = here.add("copy.jpg", photo(here.photos[0], quality=70))
    here.collect()
    all_of_them = here.sha256s()
    assert copy in all_of_them
    here.release("1.0.0", all_of_them)
    told = retract(here.workspace, all_of_them[0], "licence")
    assert (told["copies"], len(told["versions"]["1.0.0"])) == (1, 2)
    assert set(retracted_among(here.workspace, all_of_them)) == {all_of_them[0], copy}
    assert len(tombstones_csv(here.workspace).splitlines()) == 3


def test_the_build_after_a_retraction_is_a_major_one_even_among_drafts(here: Here) -> None:
    all_of_them = here.sha256s()
    here.release("0.1.0", all_of_them)
    wanted = parse_version("0.1.1")
    before = version_before(here.workspace, wanted, control=False)
    assert before is not None
    check_release_step(before, wanted, planned(here, all_of_them[1:]), reviewed=False)
    with pytest.raises(UsageError, match=r"build 1\.0\.0$"):
        check_release_step(before, wanted, planned(here, all_of_them[1:]), reviewed=True)
    retract(here.workspace, all_of_them[0], "other")
    before = version_before(here.workspace, wanted, control=False)
    with pytest.raises(
        UsageError, match=r"removed \(1\), which makes a major step: build 1\.0\.0$"
    ):
        check_release_step(before, wanted, planned(here, all_of_them[1:]), reviewed=False)
    major = parse_version("1.0.0")
    check_release_step(before, major, planned(here, all_of_them[1:]), reviewed=False)
    with pytest.raises(UsageError, match=r"versions only go up; build 0\.1\.1"):
        version_before(here.workspace, parse_version("0.0.9"), control=False)
    assert version_before(here.workspace, parse_version("0.0.9"), control=True) is None


@pytest.mark.parametrize("change", ["gone", "altered"])
def test_a_step_is_checked_although_the_folder_of_the_version_before_is_lost(
    here: Here, change: str
) -> None:
    all_of_them = here.sha256s()
    folder = here.release("1.0.0", all_of_them)
    if change == "gone":
        shutil.rmtree(folder)
    else:
        (folder / "manifest.parquet").write_bytes(b"PAR1 no more")
    wanted = parse_version("1.0.1")
    before = version_before(here.workspace, wanted, control=False)
    check_release_step(before, wanted, planned(here, all_of_them), reviewed=False)
    with pytest.raises(UsageError, match=r"build 2\.0\.0$"):
        check_release_step(before, wanted, planned(here, all_of_them[1:]), reviewed=False)


@pytest.mark.parametrize(
    ("image", "reason", "error", "match"),
    [
        ("abcdef", "privacy", UsageError, "too short"),
        ("0123456789abcdef", "privacy", UsageError, "no image"),
        ("n01440764/absent.jpg", "privacy", UsageError, "no image"),
        ("1.0.0/../../x.jpg", "privacy", UsageError, "no image"),
        ("%", "privacy", UsageError, "no image"),
        ("0" * 64, "because", UnknownNameError, "write one of person-request"),
    ],
)
def test_what_names_no_image_takes_nothing_back(
    here: Here, image: str, reason: str, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match) as caught:
        retract(here.workspace, image, reason)
    assert "\n" not in str(caught.value)
    assert retracted_among(here.workspace, here.sha256s()) == {}


def test_a_damaged_version_keeps_no_image_from_being_taken_back(
    here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = here.release("1.0.0", here.sha256s())
    (folder / "manifest.parquet").write_bytes(b"PAR1 no more")
    unknown = "ab" * 32
    assert retract(here.workspace, unknown, "privacy")["image"] == unknown
    assert "release 1.0.0 was not looked through" in capsys.readouterr().err
    gone = here.sha256s()[0]
    told = retract(here.workspace, gone[:12], "privacy")
    assert list(told["versions"]) == ["1.0.0"]


def test_digits_that_two_images_share_are_ambiguous(here: Here) -> None:
    with here.workspace.catalogue.write() as connection:
        row = dict(connection.execute(select(images)).first()._mapping)  # type: ignore[union-attr]
        twin = row["sha256"][:20] + "0" * 44
        connection.execute(insert(images).values(row | {"sha256": twin}))
    with pytest.raises(AmbiguousNameError):
        retract(here.workspace, twin[:16], "other")
    assert retract(here.workspace, row["sha256"], "other")["image"] == row["sha256"]


def _compared(here: Here, page: Path) -> dict[str, Any]:
    all_of_them = here.sha256s()
    here.release("1.0.0", all_of_them[:3], author=HOSTILE)
    here.release("2.0.0", all_of_them[1:], author=HOSTILE)
    retract(here.workspace, all_of_them[0], "privacy")
    return diff_releases(here.workspace, "1.0.0", "2.0.0", page)


def test_two_versions_are_compared_image_by_image(here: Here, tmp_path: Path) -> None:
    told = _compared(here, tmp_path / "diff.html")
    gone, *_, come = here.sha256s()
    assert (told["before"], told["after"], told["step"], told["kept"]) == (
        "1.0.0",
        "2.0.0",
        "major",
        2,
    )
    assert [(one["image"], one["reason"]) for one in told["removed"]] == [
        (gone, "retracted: privacy")
    ]
    assert [one["image"] for one in told["added"]] == [come]
    assert diff_text(told).splitlines()[0] == (
        "1.0.0 → 2.0.0: added 1, removed 1, unchanged 2; a major step"
    )
    page = (tmp_path / "diff.html").read_text(encoding="utf-8")
    assert page.count("<img ") == 1, "the one that was added; what was taken back is not shown"
    assert "taken back: no picture" in page
    assert HOSTILE not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    folders = [here.workspace.root / "releases" / name for name in ("1.0.0", "2.0.0")]
    apart = diff_releases(None, *map(str, folders))
    assert apart["counts"] == told["counts"]
    assert [one["reason"] for one in apart["removed"]] == ["no longer chosen"]


def test_a_manifest_that_points_outside_shows_nothing_from_there(
    here: Here, tmp_path: Path
) -> None:
    from tests.release.test_verify import Release

    all_of_them = here.sha256s()
    here.release("1.0.0", all_of_them[:1])
    folder = here.release("2.0.0", all_of_them)
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(photo(here.photos[7]))
    record = json.loads((folder / "release.json").read_text())
    rows = [_item(here.images, here.images[each], WNID, author=None).row for each in all_of_them]
    outside = ["../../../../secret.jpg", str(secret), f"{WNID}/link.jpg", f"{WNID}/absent.jpg"]
    (folder / WNID / "link.jpg").symlink_to(secret)
    Release(
        folder, [replace(r, path=p) for r, p in zip(rows, outside, strict=True)], record
    ).write()
    diff_releases(None, str(folder.parent / "1.0.0"), str(folder), tmp_path / "diff.html")
    page = (tmp_path / "diff.html").read_text(encoding="utf-8")
    assert "<img " not in page
    assert all(f"no picture: {why}" in page for why in ("outside", "symlink", "missing"))


def test_a_version_that_is_not_what_was_built_here_is_found(here: Here) -> None:
    from tests.release.test_verify import Release

    folder = here.release("1.0.0", here.sha256s())
    assert verify(here.workspace, "1.0.0")["problems"] == []
    record = json.loads((folder / "release.json").read_text())
    Release(folder, [], record).write()
    told = verify(here.workspace, str(folder))
    assert "manifest: manifest.parquet is not the one that was built here" in told["problems"]


def test_the_commands_tell_what_they_find_and_exit_with_1_where_something_is_wrong(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_of_them = here.sha256s()
    folder = here.release("1.0.0", all_of_them)

    def called(*arguments: str | Path) -> Any:
        monkeypatch.setattr(shared, "json", False)
        monkeypatch.setattr(shared, "workspace", None)
        return CliRunner().invoke(app, list(map(str, arguments)))

    here_is = ("-w", here.workspace.root)
    done = called(*here_is, "release", "verify", "1.0.0")
    assert "release 1.0.0: 4 images of 1 classes" in done.stdout
    assert done.stdout.endswith("nothing is wrong\n")
    command = ("release", "retract", all_of_them[0][:12], "--reason", "privacy")
    done = called(*here_is, *command)
    assert f"image {all_of_them[0]} is taken back (privacy)" in done.stdout
    assert "version 1.0.0 holds it" in done.stdout
    assert "nothing changed" in called(*here_is, *command).stdout
    done = called(*here_is, "release", "pack", "1.0.0", "--form", "tar", "--out", tmp_path / "out")
    assert "images that were taken back since: 1; publish a later version" in done.stdout
    next(folder.glob("n*/*.jpg")).unlink()
    monkeypatch.chdir(folder)
    done = called("--json", "release", "verify", folder)
    told = json.loads(done.stdout)
    assert set(told) >= {"version", "images", "classes", "sha256", "problems"}
    assert told["problem_counts"] == {"manifest": 1, "missing": 1}
    assert isinstance(done.exception, VerificationError)
    assert str(done.exception).startswith("problems found: 2 in ")


def test_a_version_that_is_not_there_is_told_with_those_that_are(here: Here) -> None:
    here.release("1.0.0", here.sha256s())
    with pytest.raises(UsageError, match="no release 'x'; versions here: 1.0.0"):
        diff_releases(here.workspace, "x", "1.0.0")
    shutil.rmtree(here.workspace.root / "releases" / "1.0.0")
    with pytest.raises(UsageError, match=r"its folder releases/1\.0\.0 is gone .* a copy"):
        verify(here.workspace, "1.0.0")


# Forks a process for each moment, which works in a workspace of its own and is killed there; says
# how many came to their end.
KILLS = """
import os, sys
import tests.dying, curate.cli.main, pipelines.retractions
import numpy, PIL.Image, sqlalchemy.dialects.sqlite  # what it imports at first, once for all

root, image, *moments = sys.argv[1:]
ended = 0
for number, moment in enumerate(moments):
    at, _, fault = moment.partition("/")
    planted = ["--fault", fault] if fault else []
    workspace = f"{root}{number}"
    child = os.fork()
    if child == 0:
        command = ["-w", workspace, "release", "retract", image, "--reason", "privacy"]
        sys.argv = ["dying", at, *planted, *command]
        tests.dying.main()
        os._exit(0)
    ended += os.waitpid(child, 0)[1] == 0
print(f"ended {ended}")
"""


def _killed(root: Path, image: str, moments: list[str]) -> int:
    for number in range(len(moments)):
        copy_of(root, root.with_name(f"{root.name}{number}"))
    done = subprocess.run(
        [sys.executable, "-c", KILLS, root, image, *moments],
        capture_output=True,
        cwd=ROOT,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.rpartition("ended ")[2])


def _assert_whole(root: Path, image: str) -> bool:
    """An image is taken back with its tasks, or neither; gives which, and takes it back anew."""
    workspace = open_workspace(root)
    told = []
    for _ in range(2):
        with workspace.catalogue.read() as connection:
            stones = retractions.all_tombstones(connection)
            query = select(review_tasks.c.state).order_by(review_tasks.c.candidate)
            states = sorted(connection.scalars(query))
        told.append((stones, states))
        assert (len(stones), states) in [
            (0, ["open"] * 4),
            (1, ["open", "open", "withdrawn", "withdrawn"]),
        ]
        again = retract(workspace, image, "other")
    workspace.close()
    (before, _), (after, _) = told
    assert len(after) == 1, "once, however often it is asked for"
    assert again["reason"] == ("privacy" if before else "other")
    assert not before or before == after
    return bool(before)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_a_retraction_killed_at_any_moment_is_whole_or_was_never_begun(
    tmp_path: Path, package_photos: Photos
) -> None:
    root = tmp_path / "w"
    rows = photo_rows(root, [(path, "n01531178", None) for path, _ in package_photos[:2]])
    rows.give([0, 1])
    unknown = {"perceptual_hash": "", "pixel_sha256": "", "quality": None}
    with rows.workspace.catalogue.write() as connection:
        connection.execute(update(images).values(**unknown))
    rows.workspace.close()
    image = rows.sha256s[0]
    # The planted fault is found.
    fault = tmp_path / "fault"
    copy_of(root, fault)
    assert _killed(fault, image, ["half:1/parted"]) == 0
    with pytest.raises(AssertionError, match="1, "):
        _assert_whole(tmp_path / "fault0", image)
    # All there are, and one more.
    moments = [f"any:{number}" for number in range(1, 15)]
    ended = _killed(root, image, moments)
    taken = [_assert_whole(tmp_path / f"w{number}", image) for number in range(len(moments))]
    assert taken == sorted(taken), "not before some moment, and after it always"
    assert not taken[0]
    assert sum(taken) > ended > 0, "kills before and after the transaction, and some to the end"
