"""Verifying releases: a sound one passes, and each way of tampering with it is found."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import scan_cache_dir
from PIL import Image

from curate.errors import SourceError, UsageError
from curate.files import candidate_key, canonical_json, sha256_bytes, sha256_file
from curate.labels.space import load_label_space
from curate.release import verify_folder
from curate.release.build import Item, checksums
from curate.release.findings import KINDS
from curate.release.manifest import ManifestRow, manifest_csv, manifest_parquet
from pipelines.release_verify import verify
from tests.release.test_build import SPACE, _Images, _item, build

Photos = list[tuple[Path, int]]
Rows = list[ManifestRow]


def small(path: Path, side: int = 128) -> bytes:
    """A small real photo."""
    buffer = io.BytesIO()
    with Image.open(path) as image:
        image.convert("RGB").resize((side, side)).save(buffer, "JPEG")
    return buffer.getvalue()


def item(images: _Images, data: bytes, wnid: str, **changes: Any) -> Item:
    made = _item(images, data, wnid)
    return replace(made, row=replace(made.row, **changes))


@pytest.fixture(scope="module")
def sound(
    tmp_path_factory: pytest.TempPathFactory, package_photos: Photos
) -> tuple[Path, Rows, dict[str, Any]]:
    """A release of four small photos in two classes; tests work on copies."""
    root = tmp_path_factory.mktemp("sound") / "1.0.0"
    images = _Images()
    items = [
        item(images, small(path), SPACE.wnids[10 + number % 2])
        for number, (path, _) in enumerate(package_photos[:4])
    ]
    built = build(root, items, images, version="1.0.0")
    return root, list(built.rows), dict(built.record)


class Release:
    """A copy of the sound release, to be tampered with."""

    def __init__(self, root: Path, rows: Rows, record: dict[str, Any]) -> None:
        self.root, self.rows, self.record = root, rows, record

    @property
    def image(self) -> Path:
        return self.root / self.rows[0].path

    def write(self) -> None:
        """Write manifests and record anew, so that they agree."""
        about = {"curate": canonical_json(self.record).decode()}
        (self.root / "manifest.parquet").write_bytes(manifest_parquet(self.rows, about))
        (self.root / "manifest.csv").write_bytes(b"".join(manifest_csv(self.rows)))
        (self.root / "release.json").write_bytes(canonical_json(self.record, indent=2) + b"\n")
        self.seal()

    def seal(self) -> None:
        """Make the checksums agree, as somebody would who tampers with care."""
        files = [p for p in self.root.rglob("*") if p.is_file() and p.name != "SHA256SUMS"]
        sums = {p.relative_to(self.root).as_posix(): sha256_file(p) for p in files}
        (self.root / "SHA256SUMS").write_bytes(checksums(sums))

    def first(self, **changes: Any) -> None:
        """Change the first row, in both manifests."""
        self.rows[0] = replace(self.rows[0], **changes)
        self.write()

    def replace_image(self, data: bytes) -> None:
        """Put another image in the place of the first, with its row and key."""
        self.image.write_bytes(data)
        digest = sha256_bytes(data)
        key = candidate_key(digest, self.rows[0].wnid)
        self.first(sha256=digest, original_sha256=digest, candidate=key)


@pytest.fixture
def release(tmp_path: Path, sound: tuple[Path, Rows, dict[str, Any]]) -> Release:
    root, rows, record = sound
    shutil.copytree(root, tmp_path / "1.0.0")
    return Release(tmp_path / "1.0.0", list(rows), json.loads(json.dumps(record)))


def kinds(root: Path, **options: Any) -> set[str]:
    return set(verify(None, str(root), **options)["problem_counts"])


def test_a_sound_release_passes_without_a_workspace(release: Release) -> None:
    told = verify(None, str(release.root))
    assert (told["problems"], told["problem_counts"]) == ([], {})
    assert (told["version"], told["images"], told["classes"]) == ("1.0.0", 4, 2)
    assert told["sha256"] == sha256_file(release.root / "manifest.parquet")
    assert told["warnings"] == ["unreviewed: nobody has confirmed these labels"]
    release.write()
    assert kinds(release.root) == set(), "what tests write anew is sound"


def _flip(release: Release) -> None:
    data = bytearray(release.image.read_bytes())
    data[-40] ^= 1
    release.image.write_bytes(data)


def _link(release: Release) -> None:
    release.image.unlink()
    release.image.symlink_to(release.root / release.rows[-1].path)


def _link_folder(release: Release) -> None:
    folder = release.image.parent.rename(release.root.parent / "elsewhere")
    release.image.parent.symlink_to(folder)


def _among_the_hosts(release: Release) -> None:
    folder = release.root / ".cache" / "huggingface"
    folder.mkdir(parents=True)
    shutil.copy(release.image, folder / "more.jpg")


def _bomb() -> bytes:
    """A PNG whose header names more pixels than any machine holds."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(bytes(100_000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


def _append(name: str, text: str) -> Callable[[Release], None]:
    def tamper(release: Release) -> None:
        with (release.root / name).open("a") as stream:
            stream.write(text)

    return tamper


def _sealed(tamper: Callable[[Release], None]) -> Callable[[Release], None]:
    def both(release: Release) -> None:
        tamper(release)
        release.seal()

    return both


def _moved(release: Release) -> None:
    release.image.rename(release.root / release.rows[-1].path.split("/")[0] / release.image.name)


def _twice(release: Release) -> None:
    row = release.rows[0]
    path = row.path.replace(".jpg", "x.jpg")
    shutil.copy(release.image, release.root / path)
    release.rows.insert(1, replace(row, path=path))
    counts = release.record["counts"]
    counts["images"] += 1
    counts["by_class"][row.wnid] += 1
    release.write()


def _dropped(release: Release) -> None:
    row = release.rows.pop(0)
    counts = release.record["counts"]
    counts["images"] -= 1
    counts["by_class"][row.wnid] -= 1
    release.write()


def _said(**record: Any) -> Callable[[Release], None]:
    def tamper(release: Release) -> None:
        release.record |= record
        release.write()

    return tamper


def _record_alone(release: Release) -> None:
    told = release.record | {"models": []}
    (release.root / "release.json").write_bytes(canonical_json(told, indent=2) + b"\n")


def _csv_alone(release: Release) -> None:
    path = release.root / "manifest.csv"
    path.write_text(path.read_text().replace("CC-BY-4.0", "CC0-1.0", 1))


def _tombstone(release: Release) -> None:
    (release.root / "tombstones.csv").write_text(
        f"sha256,retracted,reason\n{release.rows[0].original_sha256},2026-01-02,privacy\n"
    )


def _endless(release: Release) -> None:
    """A few kilobytes that stand for 20 GB."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), ["x" * 2_000_000])
    pq.write_table(pa.table({"path": text}), release.root / "manifest.parquet")
    assert (release.root / "manifest.parquet").stat().st_size < 200_000


def _columns(**columns: Any) -> Callable[[Release], None]:
    def tamper(release: Release) -> None:
        pq.write_table(pa.table({"path": ["x"], **columns}), release.root / "manifest.parquet")

    return _sealed(tamper)


def _writing(name: str, data: bytes) -> Callable[[Release], None]:
    return lambda release: void((release.root / name).write_bytes(data))


def void(_: object) -> None:
    """Give nothing, as what tampers does."""


#: How somebody tampers, and what of it must be found.
FAULTS: Mapping[str, tuple[Callable[[Release], None], str]] = {
    "a bit": (_flip, "altered"),
    "an image is gone": (lambda r: r.image.unlink(), "missing"),
    "a file more": (_append("extra.txt", "x"), "stranger"),
    "a hidden file": (_append(".hidden", "x"), "stranger"),
    "an image more, sealed": (
        _sealed(lambda r: void(shutil.copy(r.image, r.image.with_name("z.jpg")))),
        "unlisted",
    ),
    "an empty folder": (lambda r: (r.root / "n01443537").mkdir(), "stranger"),
    "a pipe": (lambda r: os.mkfifo(r.root / "pipe"), "stranger"),
    "a link for an image": (_link, "altered"),
    "a link more": (lambda r: (r.root / "link").symlink_to("/etc"), "stranger"),
    "a link to a file more": (lambda r: (r.root / "link").symlink_to(r.image), "stranger"),
    "a link that leads nowhere": (lambda r: (r.root / "link").symlink_to("nowhere"), "stranger"),
    "a link to what is no file of a disk": (
        lambda r: (r.image.unlink(), r.image.symlink_to("/proc/self/status")),
        "altered",
    ),
    "a class folder that is a link": (_link_folder, "stranger"),
    "an image among the host's files": (_among_the_hosts, "stranger"),
    "no checksums": (lambda r: (r.root / "SHA256SUMS").unlink(), "checksums"),
    "checksums of a file outside": (
        _append("SHA256SUMS", f"{'0' * 64}  ../../etc/passwd\n"),
        "checksums",
    ),
    "checksums cut off": (_append("SHA256SUMS", "0123"), "checksums"),
    "checksums of no text": (_writing("SHA256SUMS", b"\xff\n"), "checksums"),
    "another image, sealed": (
        _sealed(lambda r: void(r.image.write_bytes((r.root / r.rows[-1].path).read_bytes()))),
        "manifest",
    ),
    "an image in another folder, sealed": (_sealed(_moved), "manifest"),
    "another label": (
        lambda r: r.first(
            wnid=SPACE.wnids[40], candidate=candidate_key(r.rows[0].sha256, SPACE.wnids[40])
        ),
        "layout",
    ),
    "a label outside the class map": (lambda r: r.first(wnid="n99999999"), "layout"),
    "a key of another image": (lambda r: r.first(candidate="0" * 32), "manifest"),
    "other original bytes": (lambda r: r.first(original_sha256="0" * 64), "manifest"),
    "another size": (lambda r: r.first(width=7), "manifest"),
    "a path outside": (lambda r: r.first(path="../../x.jpg"), "manifest"),
    "the CSV alone": (_sealed(_csv_alone), "manifest"),
    "no CSV": (_sealed(lambda r: (r.root / "manifest.csv").unlink()), "manifest"),
    "no manifest": (_sealed(lambda r: (r.root / "manifest.parquet").unlink()), "manifest"),
    "a manifest of nonsense": (_sealed(_writing("manifest.parquet", b"PAR1nonsPAR1")), "manifest"),
    "a manifest of one endless text": (_sealed(_endless), "manifest"),
    "a manifest of lists": (_columns(more=[["x"]]), "manifest"),
    "a manifest of numbers": (_columns(licence=[7]), "manifest"),
    "a row is gone": (_dropped, "unlisted"),
    "a picture twice": (_twice, "duplicate"),
    "no image": (lambda r: r.replace_image(b"no image"), "not-an-image"),
    "a cut off image": (lambda r: r.replace_image(r.image.read_bytes()[:-900]), "not-an-image"),
    "a bomb": (lambda r: r.replace_image(_bomb()), "not-an-image"),
    "a licence that forbids": (
        lambda r: r.first(licence="LicenseRef-all-rights-reserved", source="flickr"),
        "licence",
    ),
    "reviewed by nobody": (_said(reviewed=True), "consensus"),
    "a row that claims a review": (lambda r: r.first(reviewed=True), "manifest"),
    "another class map": (_sealed(_append("classes.csv", "n01443537,x,1000,\n")), "record"),
    "no class map": (_sealed(lambda r: (r.root / "classes.csv").unlink()), "record"),
    "another record": (_sealed(_record_alone), "record"),
    "no version": (_said(version="one"), "record"),
    "another version": (_said(version="1.0.1"), "record"),
    "a record without end": (_sealed(_writing("release.json", b"[" * 100_000)), "record"),
    "an image that was taken back": (_sealed(_tombstone), "retracted"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_tampering_is_found(release: Release, name: str) -> None:
    tamper, kind = FAULTS[name]
    tamper(release)
    told = verify(None, str(release.root))
    assert told["problem_counts"].get(kind), told["problems"]
    assert set(told["problem_counts"]) <= set(KINDS)
    assert all("\n" not in line for line in told["problems"])


def test_every_kind_of_problem_has_a_fault_that_shows_it() -> None:
    assert {kind for _, kind in FAULTS.values()} == set(KINDS) - {"unreadable"}


def test_the_accepted_of_a_reviewed_release_pass_and_a_disputed_one_does_not(
    release: Release,
) -> None:
    release.rows = [replace(row, reviewed=True, consensus="accepted") for row in release.rows]
    _said(reviewed=True)(release)
    assert kinds(release.root) == set()
    release.first(consensus="disputed")
    assert kinds(release.root) == {"consensus"}


def test_one_picture_under_two_labels_passes_only_while_nobody_has_looked(
    tmp_path: Path, package_photos: Photos
) -> None:
    images, data = _Images(), small(package_photos[0][0])
    items = [item(images, data, wnid) for wnid in SPACE.wnids[10:12]]
    built = build(tmp_path / "1.0.0", items, images, version="1.0.0")
    told = verify(None, str(tmp_path / "1.0.0"))
    assert told["problems"] == []
    assert any("under several labels: 1;" in line for line in told["warnings"])
    rows = [replace(row, reviewed=True, consensus="accepted") for row in built.rows]
    Release(tmp_path / "1.0.0", rows, {**built.record, "reviewed": True}).write()
    assert kinds(tmp_path / "1.0.0") == {"duplicate"}


def test_images_that_were_taken_back_since_are_warned_of(release: Release, tmp_path: Path) -> None:
    listed = tmp_path / "tombstones.csv"
    listed.write_text(
        f"sha256,retracted,reason\n{release.rows[0].original_sha256},2026-01-02,privacy\n"
    )
    told = verify(None, str(release.root), tombstones=listed)
    assert told["problems"] == []
    assert f"{release.rows[0].path} was taken back on 2026-01-02 (privacy)" in told["warnings"]


def test_a_release_in_hugging_faces_cache_is_checked_through_its_links(
    release: Release, tmp_path: Path
) -> None:
    repository = tmp_path / "hub" / "datasets--somebody--dragonflies"
    snapshot = repository / "snapshots" / ("c0ffee" * 7)[:40]
    (repository / "blobs").mkdir(parents=True)
    (release.root / ".gitattributes").write_text("*.parquet filter=lfs\n")
    for path in sorted(release.root.rglob("*")):
        if path.is_file():
            blob = repository / "blobs" / sha256_file(path)
            link = snapshot / path.relative_to(release.root)
            link.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, blob)
            link.symlink_to(os.path.relpath(blob, link.parent))
    (cached,) = scan_cache_dir(tmp_path / "hub").repos
    assert cached.nb_files == len(list((repository / "blobs").iterdir())), "it is such a cache"

    told = verify(None, str(snapshot))
    assert (told["problems"], told["images"], told["dataset"]) == ([], 4, "release")
    links = cached.nb_files - 2
    assert any(
        line.startswith(f"links to files elsewhere, as caches of datasets have them: {links};")
        for line in told["warnings"]
    )
    assert any("files that the host has put beside the release: 1" in w for w in told["warnings"])

    blob = (snapshot / release.rows[0].path).resolve()
    blob.write_bytes(blob.read_bytes()[:-1])
    (snapshot / "more.txt").symlink_to(blob)
    problems = verify(None, str(snapshot))["problems"]
    assert f"altered: {release.rows[0].path}" in problems
    assert "stranger: more.txt (symlink)" in problems


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives away")
def test_a_link_to_somebody_elses_file_is_not_read(release: Release, tmp_path: Path) -> None:
    theirs = release.image.rename(tmp_path / "theirs.jpg")
    os.chown(theirs, 65534, 65534)
    release.image.symlink_to(theirs)
    problems = verify(None, str(release.root))["problems"]
    assert f"altered: {release.rows[0].path} (symlink)" in problems


def test_links_in_class_folders_that_nothing_proves_are_told(foreign: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(foreign, tmp_path / "set")
    photo = next(copy.glob("n*/*.jpg"))
    photo.symlink_to(photo.rename(tmp_path / "elsewhere.jpg"))
    problems = verify(None, str(copy))["problems"]
    assert f"stranger: {photo.relative_to(copy)} (symlink)" in problems


def test_another_manifest_than_the_published_one_is_found(release: Release) -> None:
    digest = sha256_file(release.root / "manifest.parquet")
    assert kinds(release.root, sha256=digest.upper()) == set()
    assert kinds(release.root, sha256="0" * 64) == {"manifest"}


def test_a_release_in_a_tar_file_is_checked_without_unpacking_it(
    release: Release, tmp_path: Path
) -> None:
    for name, inner in [("1.tar", "1.0.0"), ("2.tar.gz", "."), ("3.tar", "./1.0.0")]:
        with tarfile.open(tmp_path / name, "w:gz" if name.endswith("gz") else "w") as archive:
            for path in sorted(release.root.rglob("*")):
                place = path.relative_to(release.root).as_posix()
                archive.add(path, place if inner == "." else f"{inner}/{place}", recursive=False)
        told = verify(None, str(tmp_path / name))
        assert (told["problems"], told["images"], told["version"]) == ([], 4, "1.0.0")
    (release.root / "dev").mkdir()
    (release.root / "dev" / "classes.csv").write_text("another one")
    release.seal()
    with tarfile.open(tmp_path / "4.tar", "w") as archive:
        archive.add(release.root, ".")
    assert kinds(tmp_path / "4.tar") == set(), "each text is read where it lies"
    cut = tmp_path / "cut.tar"
    cut.write_bytes((tmp_path / "1.tar").read_bytes()[:-20_000])
    assert "unreadable" in kinds(cut)
    packed = (tmp_path / "2.tar.gz").read_bytes()
    for half in (len(packed) // 4, len(packed) // 2, 3 * len(packed) // 4):
        cut.write_bytes(packed[:half])
        assert "unreadable" in kinds(cut)
        cut.write_bytes(packed[:half] + bytes(200) + packed[half + 200 :])
        assert "unreadable" in kinds(cut)


def test_a_release_at_an_address_is_fetched_by_the_rules_of_downloads(
    release: Release, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "1.0.0.tar", "w") as archive:
        archive.add(release.root, "1.0.0")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = f"127.0.0.1:{server.server_port}"
    try:
        with pytest.raises(SourceError, match="forbidden_address.*--allow-host"):
            verify(None, f"http://{host}/1.0.0.tar")
        told = verify(None, f"http://{host}/1.0.0.tar", allow_hosts=[host])
        with pytest.raises(SourceError, match="http_404"):
            verify(None, f"http://{host}/2.0.0.tar", allow_hosts=[host])
    finally:
        server.shutdown()
        server.server_close()
    assert (told["problems"], told["images"], told["version"]) == ([], 4, "1.0.0")
    assert told["path"] == f"http://{host}/1.0.0.tar"


@pytest.mark.parametrize(
    "name", ["../evil.txt", "/tmp/evil.txt", "a/../../evil.txt", "a\\evil.txt"]
)
def test_members_of_a_tar_file_that_point_outside_are_found_and_written_nowhere(
    release: Release, tmp_path: Path, name: str
) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(release.root, ".")
        member = tarfile.TarInfo(name)
        member.size = 4
        archive.addfile(member, io.BytesIO(b"evil"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert verify(None, str(tmp_path / "x.tar"))["problem_counts"] == {"stranger": 2}
    assert not list(tmp_path.rglob("evil*"))


def class_folders(root: Path, photos: Photos, name: str) -> Path:
    """The 200 class folders of a published set with one small piece of a real photo each."""
    with Image.open(photos[0][0]) as opened:
        photo = opened.convert("RGB")
    draw = random.Random(0)
    for wnid in load_label_space(name).wnids:
        (root / wnid).mkdir(parents=True)
        x, y = draw.randrange(photo.width - 64), draw.randrange(photo.height - 64)
        photo.crop((x, y, x + 64, y + 64)).save(root / wnid / "0.000_x _ y_0.5.jpg")
    (root / "README.txt").write_text("about")
    return root


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Path:
    return class_folders(tmp_path_factory.mktemp("foreign") / "set", package_photos, "imagenet-a")


def test_imagenet_o_is_known_by_its_classes_and_held_against_its_counts(
    tmp_path: Path, package_photos: Photos
) -> None:
    root = class_folders(tmp_path / "set", package_photos, "imagenet-o")
    told = verify(None, str(root))
    assert told["dataset"] == "imagenet-o"
    assert told["problems"] == ["record: imagenet-o has 2,000 images, and here are 200"]
    gone = sorted(path for path in root.iterdir() if path.is_dir())[:60]
    for folder in gone:
        shutil.rmtree(folder)
    told = verify(None, str(root))
    assert told["problem_counts"] == {"layout": 60, "record": 1}
    assert f"layout: class {gone[0].name} of imagenet-o has no images" in told["problems"]


def test_class_folders_of_others_are_checked_as_far_as_they_can_be(
    foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = verify(None, str(foreign))
    assert told["dataset"] == "imagenet-a"
    assert told["problems"] == ["record: imagenet-a has 7,500 images, and here are 200"]
    monkeypatch.setitem(verify_folder.PUBLISHED, "imagenet-a", 200)
    told = verify(None, str(foreign))
    assert (told["problems"], told["images"], told["classes"]) == ([], 200, 200)
    assert told["sha256"] is None
    assert "cannot be checked" in told["warnings"][0]
    copy = tmp_path / "imagenet-a"
    shutil.copytree(foreign, copy)
    first, second, third = sorted(path for path in copy.iterdir() if path.is_dir())[:3]
    first.rename(copy / "n02084071")
    shutil.copy(next(second.iterdir()), third)
    (second / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    problems = verify(None, str(copy))["problems"]
    assert f"layout: class {first.name} of imagenet-a has no images" in problems
    assert "layout: n02084071 is no class of imagenet-a" in problems
    assert any(line.startswith(f"not-an-image: {second.name}/broken.jpg") for line in problems)


def test_a_few_classes_of_ones_own_are_held_against_no_published_set(release: Release) -> None:
    for path in release.root.iterdir():
        if path.is_file():
            path.unlink()
    told = verify(None, str(release.root))
    assert (told["problems"], told["dataset"], told["images"]) == ([], "folder", 4)
    shutil.copy(release.image, release.image.with_name("again.jpg"))
    (release.root / "birds").mkdir()
    shutil.copy(release.root / release.rows[-1].path, release.root / "birds")
    assert kinds(release.root) == {"duplicate", "layout"}


def test_what_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no release") as caught:
        verify(None, str(tmp_path / "absent"))
    assert "\n" not in str(caught.value)
    (tmp_path / "x.bin").write_bytes(b"neither")
    assert "unreadable" in kinds(tmp_path / "x.bin")


def zipped(root: Path, target: Path, inner: str = "", packing: int = zipfile.ZIP_DEFLATED) -> Path:
    """A folder as a zip file, as hosts hand it out."""
    with zipfile.ZipFile(target, "w", packing) as archive:
        for path in sorted(root.rglob("*")):
            archive.write(path, inner + path.relative_to(root).as_posix())
    return target


def test_a_release_in_a_zip_file_is_checked_without_unpacking_it(
    release: Release, tmp_path: Path
) -> None:
    for number, inner in enumerate(("", "1.0.0/", "./1.0.0/")):
        told = verify(None, str(zipped(release.root, tmp_path / f"{number}.zip", inner)))
        assert (told["problems"], told["images"], told["version"]) == ([], 4, "1.0.0")
        assert told["sha256"] == sha256_file(release.root / "manifest.parquet")
    with zipfile.ZipFile(tmp_path / "1.zip", "a") as archive:
        archive.writestr("__MACOSX/1.0.0/._classes.csv", b"resources")
    told = verify(None, str(tmp_path / "1.zip"))
    assert told["problems"] == []
    assert "files that macOS has put beside the folder: 1" in told["warnings"]
    _flip(release)
    assert kinds(zipped(release.root, tmp_path / "x.zip")) == {"altered", "manifest"}


@pytest.mark.parametrize(
    "name", ["../evil.txt", "/tmp/evil.txt", "a/../../evil.txt", "a\\evil.txt", "evil\0.txt"]
)
def test_members_of_a_zip_file_that_point_outside_are_found_and_written_nowhere(
    release: Release, tmp_path: Path, name: str
) -> None:
    path = zipped(release.root, tmp_path / "x.zip")
    with zipfile.ZipFile(path, "a") as archive:
        outside, link = zipfile.ZipInfo("placeholder"), zipfile.ZipInfo("link")
        outside.filename = name
        archive.writestr(outside, b"evil")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archive.writestr(link, b"/etc/passwd")
    assert verify(None, str(path))["problem_counts"] == {"stranger": 2}
    assert not list(tmp_path.rglob("evil*"))


def test_members_that_cannot_be_read_are_told_and_the_others_checked(
    release: Release, tmp_path: Path
) -> None:
    path = zipped(release.root, tmp_path / "x.zip", packing=zipfile.ZIP_STORED)
    data = path.read_bytes()
    image = release.image.read_bytes()
    path.write_bytes(data.replace(image[-60:-40], bytes(20)))
    told = verify(None, str(path))
    assert f"unreadable: {release.rows[0].path} (unreadable)" in told["problems"]
    assert told["images"] == 3
    packed = zipped(release.root, tmp_path / "lzma.zip", packing=zipfile.ZIP_LZMA)
    told = verify(None, str(packed))
    assert sum(one.endswith("(unreadable)") for one in told["problems"]) > 4
    # Flag 1 in the list of members: it is encrypted.
    place = data.rindex(b"PK\x01\x02")
    path.write_bytes(data[: place + 8] + b"\1" + data[place + 9 :])
    assert verify(None, str(path))["problem_counts"] == {"record": 1, "unreadable": 1}
    for cut in (-20, len(data) // 2):
        path.write_bytes(data[:cut])
        assert "unreadable" in kinds(path), "its list of members is gone"


def test_zip_files_that_unpack_to_far_more_than_they_are_are_refused(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curate.sources.packed._HARMLESS", 1 << 22)
    path = zipped(release.root, tmp_path / "x.zip")
    assert kinds(path) == set()
    monkeypatch.setattr("curate.sources.packed._HARMLESS", 1 << 16)
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.bin", bytes(1 << 24))
    (line,) = [one for one in verify(None, str(bomb))["problems"] if one.startswith("unreadable")]
    assert "unpacks to over 100 times its size" in line
    # Members that share their bytes: none is a bomb by itself.
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.bin", bytes(1 << 16))
        archive.filelist *= 200
    assert "unreadable" in kinds(bomb)
    monkeypatch.setattr("curate.release.zipped._LONGEST_LIST", 1000)
    assert any("list of members is too long" in one for one in verify(None, str(path))["problems"])


def test_class_folders_of_others_in_a_zip_file_are_checked_as_far_as_they_can_be(
    foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(verify_folder.PUBLISHED, "imagenet-a", 200)
    told = verify(None, str(zipped(foreign, tmp_path / "some.zip", "imagenet-a/")))
    assert (told["problems"], told["dataset"], told["images"]) == ([], "imagenet-a", 200)
