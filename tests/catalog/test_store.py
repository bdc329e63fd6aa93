"""The image store keeps bytes unchanged and finds out when they are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.catalog.store import ImageStore
from curate.errors import ImageRefused
from curate.files import sha256_bytes


@given(st.binary(max_size=200))
def test_bytes_come_back_unchanged(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    store = ImageStore(tmp_path_factory.mktemp("store") / "images")
    sha256 = sha256_bytes(data)
    assert store.put(data, sha256, "jpg")
    assert not store.put(data, sha256, "jpg")
    store.sync()
    assert store.read(sha256, "jpg") == data
    assert list(store) == [(sha256, store.path(sha256, "jpg"))]


def test_an_altered_or_missing_image_is_told(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images")
    sha256 = sha256_bytes(b"photo")
    store.put(b"photo", sha256, "jpg")
    store.path(sha256, "jpg").write_bytes(b"phota")
    with pytest.raises(ImageRefused, match="altered"):
        store.read(sha256, "jpg")
    with pytest.raises(ImageRefused, match="missing"):
        store.read("0" * 64, "jpg")


def test_a_short_file_left_by_a_power_cut_is_stored_again(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images")
    sha256 = sha256_bytes(b"photo")
    store.put(b"photo", sha256, "jpg")
    store.path(sha256, "jpg").write_bytes(b"")
    assert store.put(b"photo", sha256, "jpg")
    assert store.read(sha256, "jpg") == b"photo"


def test_leftovers_of_a_kill_are_removed(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images")
    sha256 = sha256_bytes(b"photo")
    store.put(b"photo", sha256, "jpg")
    (store.path(sha256, "jpg").parent / ".partial-1-abc").write_bytes(b"ph")
    assert store.remove_leftovers() == 1
    assert store.read(sha256, "jpg") == b"photo"
