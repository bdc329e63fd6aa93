"""Building a release: whole or absent, the same bytes each time, proved by other people's tools."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image, features

from curate.choices import Metadata
from curate.errors import ImageRefused, Interrupted, StorageError, UsageError, VerificationError
from curate.files import sha256_bytes
from curate.images.decode import decode
from curate.labels.space import load_label_space
from curate.progress import Stop
from curate.release.build import Built, Item, build_folder, checksums
from curate.release.layout import read_layout
from curate.release.manifest import ManifestRow
from tests.images.test_cleaning import tiff_of_a_camera

SPACE = load_label_space("imagenet-1k")
RECORD: dict[str, Any] = {
    "version": "0.1.0",
    "reviewed": False,
    "label_space": {"name": SPACE.name, "fingerprint": SPACE.fingerprint},
    "models": [{"name": "lite/efficientnet_lite0", "fingerprint": "57934424"}],
    "counts": {"funnel": {"candidates": 20}},
}


class _Images(dict[str, bytes]):
    """Bytes by SHA-256, as the store gives them."""

    def read(self, sha256: str, extension: str) -> bytes:
        return self[sha256]

    def add(self, data: bytes) -> str:
        digest = sha256_bytes(data)
        self[digest] = data
        return digest


class _NoBar:
    def advance(self, count: int = 1) -> None:
        pass


def _item(images: _Images, data: bytes, wnid: str, **changes: Any) -> Item:
    image, info = decode(data)
    digest = images.add(data)
    row = ManifestRow(
        path="",
        candidate=sha256_bytes(f"{digest}:{wnid}".encode())[:32],
        place=1,
        wnid=wnid,
        name=SPACE.get(wnid).name,
        predicted_wnid="n01498041",
        predicted_name="stingray",
        confidence=0.5,
        p_true=0.01,
        borderline=False,
        reviewed=False,
        width=image.width,
        height=image.height,
        sha256="",
        original_sha256=digest,
        reencoded=False,
        licence=changes.pop("licence", "CC-BY-4.0"),
        licence_url=None,
        licence_text=None,
        author=changes.pop("author", None),
        title=None,
        page=None,
        source="folder",
        locator="photos/x",
        collection=None,
        other_origins="[]",
    )
    return Item(row, wnid, info.extension, changes.pop("stem", None), info.notes)


def _encoded(path: Path, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with Image.open(path) as image:
        image.convert("RGB").save(buffer, form, **options)
    return buffer.getvalue()


@pytest.fixture
def images() -> _Images:
    return _Images()


@pytest.fixture
def items(images: _Images, package_photos: list[tuple[Path, int]]) -> list[Item]:
    """Six real photos in three classes."""
    return [
        _item(images, path.read_bytes(), SPACE.wnids[10 + number % 3])
        for number, (path, _) in enumerate(package_photos[:6])
    ]


def build(
    target: Path,
    items: Sequence[Item],
    images: _Images,
    stop: Stop | None = None,
    metadata: Metadata = "clean",
    **record: Any,
) -> Built:
    return build_folder(
        target,
        items,
        images.read,
        RECORD | record,
        SPACE,
        metadata=metadata,
        bar=_NoBar(),
        stop=stop or Stop(),
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _check_sums(folder: Path) -> None:
    tool = shutil.which("sha256sum")
    if tool is None:
        pytest.skip("sha256sum of coreutils is not installed")
    done = subprocess.run(
        [tool, "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    listed = [line[66:] for line in (folder / "SHA256SUMS").read_text().splitlines()]
    assert listed == sorted(set(files_of(folder)) - {"SHA256SUMS"})


def test_imagefolder_loads_every_photo_and_the_bytes_are_the_originals(
    tmp_path: Path, items: list[Item], images: _Images
) -> None:
    from torchvision.datasets import ImageFolder

    built = build(tmp_path / "0.1.0", items, images)
    dataset = ImageFolder(str(tmp_path / "0.1.0"))
    wnids = sorted({item.folder for item in items})
    assert dataset.class_to_idx == {wnid: number for number, wnid in enumerate(wnids)}
    assert len(dataset) == len(items) == len(built.rows)
    assert all(image.mode == "RGB" and image.width for image, _ in dataset)
    assert {Path(path).read_bytes() for path, _ in dataset.samples} == set(images.values())
    by_path = {row.path: row for row in built.rows}
    for path, wnid in read_layout(tmp_path / "0.1.0"):
        row = by_path[f"{wnid}/{path.name}"]
        assert path.stem == row.sha256[:16]
        assert row.wnid == wnid
        assert row.sha256 == row.original_sha256 == sha256_bytes(path.read_bytes())


def test_coreutils_find_every_checksum_right(
    tmp_path: Path, items: list[Item], images: _Images
) -> None:
    build(tmp_path / "0.1.0", items, images)
    _check_sums(tmp_path / "0.1.0")


def test_the_release_is_marked_unreviewed_everywhere(
    tmp_path: Path, items: list[Item], images: _Images
) -> None:
    build(tmp_path / "0.1.0", items, images)
    folder = tmp_path / "0.1.0"
    assert "UNREVIEWED" in (folder / "README.md").read_text().splitlines()[0]
    assert json.loads((folder / "release.json").read_bytes())["reviewed"] is False
    table = pq.read_table(folder / "manifest.parquet")
    assert table["reviewed"].to_pylist() == [False] * len(items)
    about = json.loads(table.schema.metadata[b"curate"])
    assert about == json.loads((folder / "release.json").read_bytes())
    with (folder / "manifest.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["reviewed"] for row in rows] == ["false"] * len(items)
    assert [row["path"] for row in rows] == table["path"].to_pylist()
    assert [row["path"] for row in rows] == sorted(row["path"] for row in rows)


def test_counts_are_those_of_the_folder(tmp_path: Path, items: list[Item], images: _Images) -> None:
    unlicensed = replace(items[0], row=replace(items[0].row, licence="LicenseRef-unknown"))
    built = build(tmp_path / "0.1.0", [unlicensed, *items[1:]], images)
    counts = built.record["counts"]
    assert counts["images"] == 6
    assert counts["by_class"] == dict.fromkeys(sorted(SPACE.wnids[10:13]), 2)
    assert (counts["licence_unknown"], counts["reencoded"]) == (1, 0)
    assert counts["funnel"] == {"candidates": 20}
    readme = (tmp_path / "0.1.0" / "README.md").read_text()
    assert "allows passing them on: 1 of 6." in readme
    built = build(tmp_path / "0.2.0", items, images)
    assert built.record["counts"]["licence_unknown"] == 0
    assert "Do not publish" not in (tmp_path / "0.2.0" / "README.md").read_text()


def test_the_bytes_do_not_depend_on_the_order_of_the_items(
    tmp_path: Path, items: list[Item], images: _Images
) -> None:
    build(tmp_path / "a" / "0.1.0", items, images)
    expected = files_of(tmp_path / "a" / "0.1.0")
    for seed in range(3):
        shuffled = random.Random(seed).sample(items, len(items))
        build(tmp_path / str(seed) / "0.1.0", shuffled, images)
        assert files_of(tmp_path / str(seed) / "0.1.0") == expected


@pytest.mark.parametrize("form", ["GIF", "AVIF"])
def test_what_loaders_do_not_list_becomes_a_png_of_the_same_pixels(
    tmp_path: Path, images: _Images, package_photos: list[tuple[Path, int]], form: str
) -> None:
    if form == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow reads no AVIF")
    options = (
        {"comment": b"=1+1"}
        if form == "GIF"
        else {"exif": _turned_exif(), "icc_profile": _srgb_profile()}
    )
    data = _encoded(package_photos[0][0], form, **options)
    item = _item(images, data, "n01498041")
    built = build(tmp_path / "0.1.0", [item], images)
    (row,) = built.rows
    assert row.reencoded
    assert row.original_sha256 == sha256_bytes(data) != row.sha256
    path = tmp_path / "0.1.0" / row.path
    assert path.name == f"{row.sha256[:16]}.png"
    assert sha256_bytes(path.read_bytes()) == row.sha256
    with Image.open(path) as image:
        image.load()
        assert image.format == "PNG"
        assert not image.info
        assert image.tobytes() == decode(data)[0].tobytes()
        assert image.size == (row.width, row.height)
    assert built.record["counts"]["reencoded"] == 1
    assert built.record["counts"]["notes"] == {}
    assert "here as PNG: 1." in (tmp_path / "0.1.0" / "README.md").read_text()


def test_what_the_metadata_hold_is_said(
    tmp_path: Path, items: list[Item], images: _Images, package_photos: list[tuple[Path, int]]
) -> None:
    exif = _turned_exif()
    exif.get_ifd(0x8825).update({1: "N", 2: (48.0, 8.0, 14.0), 3: "E", 4: (11.0, 34.0, 31.0)})
    turned = _item(images, _encoded(package_photos[9][0], "JPEG", exif=exif), "n01498041")
    built = build(tmp_path / "0.1.0", [*items, turned], images, metadata="keep")
    notes = built.record["counts"]["notes"]
    assert (notes["exif-orientation-applied"], notes["has-gps"]) == (1, 1)
    readme = (tmp_path / "0.1.0" / "README.md").read_text()
    assert "Photos with an EXIF orientation: 1." in readme
    assert "say where they were taken: 1." in readme
    build(tmp_path / "0.2.0", items, images)
    assert "EXIF" not in (tmp_path / "0.2.0" / "README.md").read_text()


@pytest.mark.parametrize("metadata", ["clean", "strip"])
def test_where_a_photo_was_taken_is_not_released_and_its_pixels_are_the_same(
    tmp_path: Path, images: _Images, package_photos: list[tuple[Path, int]], metadata: Metadata
) -> None:
    exif = _turned_exif()
    exif[0x8298] = "(c) somebody"
    exif.get_ifd(0x8825).update({1: "N", 2: (48.0, 8.0, 14.0), 3: "E", 4: (11.0, 34.0, 31.0)})
    data = _encoded(package_photos[9][0], "JPEG", exif=exif)
    built = build(tmp_path / "0.1.0", [_item(images, data, "n01498041")], images, metadata=metadata)
    (row,) = built.rows
    released = (tmp_path / "0.1.0" / row.path).read_bytes()
    assert (row.cleaned, row.reencoded) == (True, False)
    assert row.original_sha256 == sha256_bytes(data) != row.sha256 == sha256_bytes(released)
    image, info = decode(released)
    assert info.notes == ("exif-orientation-applied",)
    assert image.tobytes() == decode(data)[0].tobytes()
    assert (b"somebody" in released) is (metadata == "clean")
    assert built.record["metadata"] == metadata
    assert built.record["counts"]["cleaned"] == 1
    assert built.record["counts"]["notes"] == {"exif-orientation-applied": 1}


@pytest.mark.parametrize("metadata", ["clean", "strip"])
def test_a_tiff_whose_metadata_cannot_go_alone_is_released_as_a_png_without_them(
    tmp_path: Path, images: _Images, metadata: Metadata
) -> None:
    data = tiff_of_a_camera(camera_at=2**31)
    assert "has-gps" in decode(data)[1].notes
    built = build(tmp_path / "0.1.0", [_item(images, data, "n01498041")], images, metadata=metadata)
    (row,) = built.rows
    image, info = decode((tmp_path / "0.1.0" / row.path).read_bytes())
    assert (row.reencoded, info.format, info.notes) == (True, "PNG", ())
    assert image.tobytes() == decode(data)[0].tobytes()
    assert built.record["counts"]["notes"] == {}


def _srgb_profile() -> bytes:
    from PIL import ImageCms

    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def _turned_exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def test_equal_paper_names_stay_apart(tmp_path: Path, items: list[Item], images: _Images) -> None:
    named = [replace(item, stem="0.1_a _ b_0.9", folder="n01498041") for item in items]
    built = build(tmp_path / "0.1.0", named, images)
    assert len({row.path for row in built.rows}) == 6
    assert all(row.path.startswith("n01498041/0.1_a _ b_0.9_") for row in built.rows)
    _check_sums(tmp_path / "0.1.0")


def test_one_image_under_two_labels_stands_in_both_folders(
    tmp_path: Path, images: _Images, package_photos: list[tuple[Path, int]]
) -> None:
    data = package_photos[0][0].read_bytes()
    items = [_item(images, data, wnid) for wnid in SPACE.wnids[:2]]
    built = build(tmp_path / "0.1.0", items, images)
    assert [row.path for row in built.rows] == sorted(
        f"{wnid}/{sha256_bytes(data)[:16]}.jpg" for wnid in SPACE.wnids[:2]
    )


def test_one_image_twice_in_a_class_is_refused(
    tmp_path: Path, items: list[Item], images: _Images
) -> None:
    with pytest.raises(VerificationError, match="two candidates of class .* are one image"):
        build(tmp_path / "0.1.0", [*items, items[0]], images)
    assert os.listdir(tmp_path) == []


def test_text_from_outside_cannot_leave_its_place(
    tmp_path: Path, images: _Images, package_photos: list[tuple[Path, int]]
) -> None:
    hostile = '=cmd|calc\n,"\r<script>alert(1)</script>\0\ud800'
    item = _item(images, package_photos[0][0].read_bytes(), "n01498041", author=hostile)
    build(tmp_path / "0.1.0", [item], images)
    folder = tmp_path / "0.1.0"
    _check_sums(folder)
    (row,) = pq.read_table(folder / "manifest.parquet").to_pylist()
    told = hostile.replace("\ud800", "\\ud800")
    assert row["author"] == told
    with (folder / "manifest.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert row["author"] == "'" + told
    assert "script" not in (folder / "README.md").read_text()


def test_an_image_that_cannot_be_read_leaves_nothing(
    tmp_path: Path, items: list[Item], images: _Images
) -> None:
    def read(sha256: str, extension: str) -> bytes:
        if sha256 == items[3].row.original_sha256:
            raise StorageError("gone")
        return images[sha256]

    with pytest.raises(StorageError, match="gone"):
        build_folder(tmp_path / "0.1.0", items, read, RECORD, SPACE, bar=_NoBar(), stop=Stop())
    assert os.listdir(tmp_path) == []


def test_an_image_that_cannot_be_reencoded_leaves_nothing(
    tmp_path: Path, items: list[Item]
) -> None:
    broken = _Images()
    digest = broken.add(b"GIF89a and no more")
    item = replace(items[0], row=replace(items[0].row, original_sha256=digest), extension="gif")
    with pytest.raises(VerificationError, match="cannot be re-encoded as PNG") as caught:
        build(tmp_path / "0.1.0", [item], broken)
    assert isinstance(caught.value.__cause__, ImageRefused)
    assert os.listdir(tmp_path) == []


def test_a_request_to_stop_leaves_nothing(
    tmp_path: Path, items: list[Item], images: _Images
) -> None:
    stop = Stop()
    stop.request()
    with pytest.raises(Interrupted, match="no release was built"):
        build(tmp_path / "0.1.0", items, images, stop)
    assert os.listdir(tmp_path) == []


def test_the_same_release_is_adopted_and_stays_as_it_is(
    tmp_path: Path, items: list[Item], images: _Images
) -> None:
    first = build(tmp_path / "0.1.0", items, images)
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "0.1.0").rglob("*")}
    again = build(tmp_path / "0.1.0", items, images)
    assert (first.adopted, again.adopted) == (False, True)
    assert again.manifest_sha256 == first.manifest_sha256
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "0.1.0").rglob("*")} == stamps
    assert os.listdir(tmp_path) == ["0.1.0"]


def _alter(folder: Path) -> None:
    (folder / "manifest.csv").write_bytes(b"x")


def _remove(folder: Path) -> None:
    next(folder.glob("n*/*")).unlink()


def _add(folder: Path) -> None:
    (folder / "more.txt").write_bytes(b"")


def _link(folder: Path) -> None:
    path = next(folder.glob("n*/*"))
    path.rename(folder.parent / "elsewhere")
    path.symlink_to(folder.parent / "elsewhere")


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _replace_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_bytes(b"")


def _dangle(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to("nowhere")


@pytest.mark.parametrize(
    "tamper", [_alter, _remove, _add, _link, _empty, _replace_by_file, _dangle]
)
def test_anything_else_under_the_versions_name_is_refused_and_left_alone(
    tmp_path: Path, items: list[Item], images: _Images, tamper: Any
) -> None:
    target = tmp_path / "0.1.0"
    build(target, items, images)
    tamper(target)
    before = files_of(target)
    with pytest.raises(UsageError, match="exists and is not what this command builds") as caught:
        build(target, items, images)
    assert "\n" not in str(caught.value)
    assert files_of(target) == before
    assert os.path.lexists(target)
    assert not list(tmp_path.glob(".partial-*"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 128 kB."""
    folder = tmp_path / "releases"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs the rights of root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_nothing_under_the_versions_name(
    small_disk: Path, items: list[Item], images: _Images
) -> None:
    assert sum(map(len, images.values())) > 128 * 1024
    with pytest.raises(StorageError, match=r"the disk is full while writing .*0\.1\.0; ") as caught:
        build(small_disk / "0.1.0", items, images)
    assert "\n" not in str(caught.value)
    assert os.listdir(small_disk) == []
    build(small_disk / "0.1.0", [_item(images, _tiny(), "n01498041")], images)
    assert os.listdir(small_disk) == ["0.1.0"]


def _tiny() -> bytes:
    buffer = io.BytesIO()
    Image.linear_gradient("L").save(buffer, "JPEG")
    return buffer.getvalue()


def test_a_quota_leaves_nothing_either(tmp_path: Path, items: list[Item], images: _Images) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(StorageError, match="the disk is full"):
            build(tmp_path / "0.1.0", items, images)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import test_build as t

images, photos = t._Images(), sorted(Path({photos!r}).glob("imagenet_*.jpg"))[:6]
items = [t._item(images, p.read_bytes(), t.SPACE.wnids[10 + n % 3]) for n, p in enumerate(photos)]
events = 0

def count(event, arguments):
    global events
    if event in ("open", "os.rename", "os.mkdir") and {folder!r} in str(arguments[0]):
        events += 1
        if events == {moment}:
            os.kill(os.getpid(), signal.SIGKILL)

# Every file or folder that is opened, made or renamed is a moment to be killed at.
sys.addaudithook(count)
t.build(Path({folder!r}) / "0.1.0", items, images)
print(events)
"""


def _build_and_be_killed(
    folder: Path, photos: Path, moment: int
) -> subprocess.CompletedProcess[str]:
    code = KILLED.format(
        tests=str(Path(__file__).parent), photos=str(photos), folder=str(folder), moment=moment
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_all_or_nothing_and_the_next_build_succeeds(
    tmp_path: Path, items: list[Item], images: _Images, package_photos: list[tuple[Path, int]]
) -> None:
    photos = package_photos[0][0].parent
    whole = tmp_path / "whole"
    moments = int(_build_and_be_killed(whole, photos, 0).stdout)
    expected = files_of(whole / "0.1.0")
    visible = []
    for moment in sorted({1, 2, *range(3, moments, moments // 8), moments - 1, moments}):
        folder = tmp_path / str(moment)
        done = _build_and_be_killed(folder, photos, moment)
        assert done.returncode == -signal.SIGKILL, done.stderr
        if (folder / "0.1.0").exists():
            visible.append(moment)
            assert files_of(folder / "0.1.0") == expected
        build(folder / "0.1.0", items, images)
        assert os.listdir(folder) == ["0.1.0"]
        assert files_of(folder / "0.1.0") == expected
    # The last moment is the syncing of the folder above, after the rename.
    assert visible == [moments]


def test_checksums_are_sorted_by_bytes() -> None:
    sums: Mapping[str, str] = {"b": "1" * 64, "a/é": "2" * 64, "B": "3" * 64, "a.b": "4" * 64}
    assert checksums(sums).decode().splitlines() == [
        f"{'3' * 64}  B",
        f"{'4' * 64}  a.b",
        f"{'2' * 64}  a/é",
        f"{'1' * 64}  b",
    ]
