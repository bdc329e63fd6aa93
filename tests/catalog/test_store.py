"""The image store keeps bytes unchanged and finds out when they are not."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.catalog.store import FolderStore, key_of, open_store
from curate.errors import ImageRefused, SettingsError, StorageError
from curate.files import sha256_bytes

PHOTO = (sha256_bytes(b"photo"), "jpg")


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    store = FolderStore(tmp_path / "images")
    store.put(b"photo", *PHOTO)
    store.sync()
    return store


@given(st.binary(max_size=200))
def test_bytes_come_back_unchanged(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    store = FolderStore(tmp_path_factory.mktemp("store") / "images")
    sha256 = sha256_bytes(data)
    store.put(data, sha256, "jpg")
    store.sync()
    assert store.read(sha256, "jpg") == data
    assert list(store) == [key_of(sha256, "jpg")]


def test_what_is_there_is_not_written_again(store: FolderStore, tmp_path: Path) -> None:
    before = store.path(*PHOTO).stat()
    store.put(b"photo", *PHOTO)
    (tmp_path / "download").write_bytes(b"photo")
    store.adopt(tmp_path / "download", *PHOTO)
    assert store.path(*PHOTO).stat() == before
    assert not (tmp_path / "download").exists()


def test_an_altered_or_missing_image_is_told(store: FolderStore, tmp_path: Path) -> None:
    store.path(*PHOTO).write_bytes(b"phota")
    assert not store.check(*PHOTO)
    with pytest.raises(ImageRefused, match="altered"):
        store.read(*PHOTO)
    for ask in (store.read, lambda *image: store.copy_to(*image, tmp_path / "copy")):
        with pytest.raises(ImageRefused, match="missing"):
            ask("0" * 64, "jpg")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are POSIX")
@pytest.mark.timeout(120)
def test_what_is_no_file_is_told_at_once(store: FolderStore) -> None:
    path = store.path(*PHOTO)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ImageRefused, match="not-a-file"):
        store.read(*PHOTO)
    path.unlink()
    path.mkdir()
    with pytest.raises(ImageRefused, match="unreadable"):
        store.read(*PHOTO)


def test_a_short_file_left_by_a_power_cut_is_stored_again(store: FolderStore) -> None:
    store.path(*PHOTO).write_bytes(b"")
    store.put(b"photo", *PHOTO)
    assert store.read(*PHOTO) == b"photo"


def test_leftovers_of_a_kill_are_told_and_removed(store: FolderStore) -> None:
    (store.path(*PHOTO).parent / ".partial-1-abc").write_bytes(b"ph")
    place = f"images/{PHOTO[0][:2]}"
    assert store.leftovers(remove=False) == {place: 1}
    assert store.leftovers(remove=True) == {place: 1}
    assert store.leftovers(remove=False) == {}
    assert store.read(*PHOTO) == b"photo"


def test_a_download_on_another_disk_is_taken_in(tmp_path: Path, store: FolderStore) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")
    file = memory / f"curate-test-{os.getpid()}"
    try:
        file.write_bytes(b"other")
        store.adopt(file, sha256_bytes(b"other"), "png")
        assert store.read(sha256_bytes(b"other"), "png") == b"other"
        assert not file.exists()
    finally:
        file.unlink(missing_ok=True)


def test_a_download_that_is_gone_is_no_image(tmp_path: Path, store: FolderStore) -> None:
    with pytest.raises(StorageError):
        store.adopt(tmp_path / "gone", "0" * 64, "jpg")


def test_what_is_not_named_as_an_image_is_left_alone(store: FolderStore) -> None:
    (store.root / "notes").mkdir()
    (store.root / "notes" / f"{'0' * 64}.jpg").touch()
    (store.root / PHOTO[0][:2] / "notes.txt").touch()
    (store.root / "README").touch()
    assert list(store) == [key_of(*PHOTO)]


def test_a_copy_has_the_same_bytes(store: FolderStore, tmp_path: Path) -> None:
    store.copy_to(*PHOTO, tmp_path / "copy.jpg")
    assert (tmp_path / "copy.jpg").read_bytes() == b"photo"


def test_a_moved_workspace_keeps_its_images(store: FolderStore, tmp_path: Path) -> None:
    moved = Path(shutil.move(store.root, tmp_path / "moved with space" / "images"))
    assert open_store("images", moved.parent).read(*PHOTO) == b"photo"


def test_an_address_and_a_pickled_store_serve_another_process(store: FolderStore) -> None:
    assert open_store(store.address).read(*PHOTO) == b"photo"
    assert pickle.loads(pickle.dumps(store)).read(*PHOTO) == b"photo"


def test_a_folder_anywhere_is_written_as_a_url(tmp_path: Path) -> None:
    folder = tmp_path / "a disk, 100% full of ü" / "images"
    store = open_store(folder.as_uri(), tmp_path / "workspace")
    store.put(b"photo", *PHOTO)
    assert (folder / key_of(*PHOTO)).read_bytes() == b"photo"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("", "no folder in the workspace"),
        (".", "no folder in the workspace"),
        ("../images", "no folder in the workspace"),
        ("/mnt/images", "file:///"),
        ("runs", "holds other things"),
        ("file://host/images", "file:///"),
    ],
)
def test_an_address_that_is_no_place_for_images_is_refused(
    tmp_path: Path, address: str, told: str
) -> None:
    with pytest.raises(SettingsError, match=told):
        open_store(address, tmp_path)
