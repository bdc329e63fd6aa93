"""Sets to compare with: the same hashes from folders, tar files and hash files, and going on."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from curate.errors import Interrupted, UsageError
from curate.images.hash_sets import HashSet, read_hash_file
from curate.progress import Stop
from curate.settings import ImageLimits
from pipelines import picture_sets
from pipelines.picture_sets import hash_pictures, read_set
from tests.running import dying
from tests.waiting import interrupt

LIMITS = ImageLimits()


@pytest.fixture
def folder(tmp_path: Path, package_photos: list[tuple[Path, int]]) -> Path:
    """Ten photos in three folders, a small one, and two files of no use."""
    root = tmp_path / "train"
    for n, (path, _) in enumerate(package_photos[:9]):
        inside = root / f"n{n % 3:08d}"
        inside.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, inside / path.name)
    with Image.open(package_photos[9][0]) as photo:
        photo.convert("RGB").resize((60, 20)).save(root / "n00000001" / "small.png")
    (root / "n00000001" / "page.jpg").write_bytes(b"<html>")
    (root / "synsets.txt").write_bytes(b"n00000001 one\n")
    return root


def content(one: HashSet) -> list[tuple[str, bytes, bytes, int, int]]:
    assert one.pixels is not None
    return sorted(
        (
            one.picture(n).rsplit("/", 1)[1],
            one.sha256[n].tobytes(),
            one.pixels[n].tobytes(),
            int(one.hashes.picture[n]),
            int(one.hashes.mirror[n]),
        )
        for n in range(len(one))
    )


def packed(folder: Path, target: Path, *, nested: bool) -> Path:
    with tarfile.open(target, "w") as outer:
        if not nested:
            outer.add(folder, "train")
            return target
        for inside in sorted(path for path in folder.iterdir() if path.is_dir()):
            held = io.BytesIO()
            with tarfile.open(fileobj=held, mode="w") as inner:
                for path in sorted(inside.iterdir()):
                    inner.add(path, path.name)
            info = tarfile.TarInfo(f"{inside.name}.tar")
            info.size = held.tell()
            held.seek(0)
            outer.addfile(info, held)
    return target


def test_folders_tars_and_hash_files_give_the_same_hashes(tmp_path: Path, folder: Path) -> None:
    plain = read_set(folder, LIMITS, Stop())
    assert len(plain.hashes) == 10
    assert plain.refused == {"not-an-image": 2}
    flat = read_set(packed(folder, tmp_path / "flat.tar", nested=False), LIMITS, Stop())
    nested = read_set(packed(folder, tmp_path / "nested.tar", nested=True), LIMITS, Stop())
    assert flat.refused == plain.refused
    assert nested.refused == {"not-an-image": 1}
    for ending in ("parquet", "csv"):
        out = tmp_path / "made" / f"train.{ending}"
        told = hash_pictures(folder, out, LIMITS)
        assert told == {"images": 10, "refused": {"not-an-image": 2}, "path": str(out)}
        read = read_set(out, LIMITS, Stop())
        assert read.is_hash_file
        assert content(read.hashes) == content(plain.hashes)
    assert content(flat.hashes) == content(nested.hashes) == content(plain.hashes)
    assert sorted(os.listdir(tmp_path / "made")) == ["train.csv", "train.parquet"]


def test_a_folder_of_tar_files_is_read_and_what_lies_beside_them(
    tmp_path: Path, folder: Path
) -> None:
    tars = tmp_path / "tars"
    tars.mkdir()
    packed(folder, tars / "one.tar", nested=False)
    assert len(read_set(tars, LIMITS, Stop()).hashes) == 10
    shutil.copy(next(folder.rglob("*.jpg")), tars / "beside.jpg")
    read = read_set(tars, LIMITS, Stop())
    assert len(read.hashes) == 11
    assert read.refused == {"not-an-image": 2}


@pytest.mark.parametrize("content", [b"", b"no tar file" * 100, None])
def test_what_is_no_set_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "set"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"cannot read .*set|holds no picture"):
        read_set(path, LIMITS, Stop())
    with pytest.raises(UsageError):
        hash_pictures(path, tmp_path / "out.parquet", LIMITS)


def test_a_hash_file_is_not_hashed_and_a_folder_is_no_file_to_write(
    tmp_path: Path, folder: Path
) -> None:
    out = tmp_path / "train.parquet"
    hash_pictures(folder, out, LIMITS)
    with pytest.raises(UsageError, match="is a hash file already"):
        hash_pictures(out, tmp_path / "again.parquet", LIMITS)
    with pytest.raises(UsageError, match="is a folder"):
        hash_pictures(folder, folder, LIMITS)


@pytest.mark.parametrize("damage", ["none", "torn", "nonsense", "changed"])
def test_what_was_hashed_before_is_not_hashed_again(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    whole = tmp_path / "whole.parquet"
    hash_pictures(folder, whole, LIMITS)
    plain, looked = picture_sets._look, []

    def look(hit: picture_sets.Hit, limits: ImageLimits) -> object:
        looked.append(hit.locator)
        if len(looked) == 5:
            interrupt()
        return plain(hit, limits)

    out = tmp_path / "train.parquet"
    monkeypatch.setattr(picture_sets, "usable_cores", lambda: 1)
    monkeypatch.setattr(picture_sets, "_look", look)
    with pytest.raises(Interrupted, match="run again to go on"):
        hash_pictures(folder, out, LIMITS)
    assert not out.exists()
    journal = tmp_path / ".train.parquet.unfinished"
    lines = journal.read_bytes().splitlines(keepends=True)
    assert 5 <= len(lines) < 12
    if damage == "torn":
        journal.write_bytes(b"".join(lines[:4]) + lines[4][:30])
    elif damage == "nonsense":
        journal.write_bytes(b"".join(lines[:4]) + b'{"a": 1}\n[1]\nnull\n' + lines[4])
    elif damage == "changed":
        os.utime(folder / "n00000001" / "page.jpg", (1, 1))
    looked.clear()
    monkeypatch.setattr(picture_sets, "_look", lambda *a: (looked.append(a), plain(*a))[1])
    hash_pictures(folder, out, LIMITS)
    assert out.read_bytes() == whole.read_bytes()
    assert not journal.exists()
    if damage == "none":
        assert len(looked) == 12 - len(lines)
    elif damage != "changed":
        assert len(looked) == 8
    else:
        assert len(looked) > 12 - len(lines)


@pytest.mark.slow
def test_hashing_that_is_killed_goes_on(tmp_path: Path, folder: Path) -> None:
    whole, out = tmp_path / "whole.parquet", tmp_path / "train.parquet"
    hash_pictures(folder, whole, LIMITS)
    command = ["dedup", "hashes", folder, "--out", out]
    assert dying(*command, at="replace:1") is None
    assert not out.exists()
    assert dying(*command, at="replace:2") is None
    assert read_hash_file(out).picture(0)
    assert dying(*command, at="any:1000000") is not None
    assert out.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob(".train*"))
