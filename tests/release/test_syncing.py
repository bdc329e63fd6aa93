"""A release gets its name only when all of it is on the disk, whatever the file system."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from curate.errors import StorageError
from curate.release import syncing
from curate.release.build import Item
from tests.release.test_build import _Images, build, files_of, images, items

__all__ = ["images", "items"]

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def _all_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in [folder, *folder.rglob("*")]}


@LINUX
def test_elsewhere_every_file_and_every_folder_is_synced_before_the_name_is_given(
    tmp_path: Path, items: list[Item], images: _Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        if place.is_relative_to(tmp_path / ".partial-0.1.0"):
            synced.add(place.relative_to(tmp_path / ".partial-0.1.0").as_posix())
        fsync(descriptor)

    monkeypatch.setattr(syncing, "syncs_as_a_whole", lambda folder: False)
    monkeypatch.setattr(os, "fsync", noting)
    build(tmp_path / "0.1.0", items, images)
    assert synced == _all_below(tmp_path / "0.1.0")


def test_where_one_call_syncs_all_it_comes_after_the_last_byte_and_before_the_name(
    tmp_path: Path, items: list[Item], images: _Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, bytes]] = []

    def noting(descriptor: int) -> None:
        assert not (tmp_path / "0.1.0").exists()
        seen.append(files_of(tmp_path / ".partial-0.1.0"))

    monkeypatch.setattr(syncing, "syncs_as_a_whole", lambda folder: True)
    monkeypatch.setattr(syncing, "_sync_whole", noting)
    build(tmp_path / "0.1.0", items, images)
    assert seen[-1] == files_of(tmp_path / "0.1.0")


@pytest.mark.parametrize("call", [1, 2])
def test_a_disk_that_fails_while_syncing_leaves_nothing(
    tmp_path: Path,
    items: list[Item],
    images: _Images,
    monkeypatch: pytest.MonkeyPatch,
    call: int,
) -> None:
    calls: list[int] = []

    def failing(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == call:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(syncing, "syncs_as_a_whole", lambda folder: True)
    monkeypatch.setattr(syncing, "_sync_whole", failing)
    with pytest.raises(StorageError, match=r"cannot write .*0\.1\.0: Input/output error"):
        build(tmp_path / "0.1.0", items, images)
    assert os.listdir(tmp_path) == []


@LINUX
def test_a_failure_that_linux_would_not_tell_makes_each_file_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncing, "_file_system", lambda folder: "ext4")
    monkeypatch.setattr(syncing.platform, "release", lambda: "5.4.0-generic")
    assert not syncing.syncs_as_a_whole(tmp_path)
    monkeypatch.setattr(syncing.platform, "release", lambda: "6.1.0")
    assert syncing.syncs_as_a_whole(tmp_path)
    monkeypatch.setattr(syncing, "_file_system", lambda folder: "fuse.sshfs")
    assert not syncing.syncs_as_a_whole(tmp_path)


@LINUX
def test_the_file_system_is_the_one_that_linux_says() -> None:
    assert syncing._file_system(Path("/proc")) == "proc"
