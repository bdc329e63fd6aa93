"""Folders as a source like the others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from curate.errors import UsageError
from curate.sources.folder import Folder, read_image
from curate.sources.protocol import Query, Source


@pytest.fixture
def photos(tmp_path: Path, package_photos: list[tuple[Path, int]]) -> Path:
    root, names = tmp_path / "photos", ("n02268443/b", "n02268443/a", "goldfinch/c")
    for name, (path, _) in zip(names, package_photos, strict=False):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / f"{name}.jpg")
    return root


def test_class_folders_are_a_source(photos: Path) -> None:
    (photos / "n02268443" / "link.jpg").symlink_to("a.jpg")
    source: Source = Folder(photos)
    hits = list(source.search(Query()))
    assert source.name == "folder"
    assert [(hit.source, hit.locator, hit.label) for hit in hits] == [
        ("folder", "photos/goldfinch/c.jpg", "goldfinch"),
        ("folder", "photos/n02268443/a.jpg", "n02268443"),
        ("folder", "photos/n02268443/b.jpg", "n02268443"),
        ("folder", "photos/n02268443/link.jpg", "n02268443"),
    ]
    assert [hit.refusal.reason for hit in hits if hit.refusal] == ["symlink"]
    for hit in hits[:3]:
        assert hit.path is not None
        assert read_image(hit.path, 10**7) == hit.path.read_bytes()
        assert (hit.url, hit.data) == (None, None)
    assert hits[3].path is None


def test_a_table_of_paths_is_a_source(photos: Path, tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(
        "path,label,title,author,license\n"
        "n02268443/a.jpg,kite,'=1+1 ,Ann,CC BY 4.0\n"
        "../labels.csv,kite,,,\n",
        encoding="utf-8",
    )
    first, second = Folder(photos, table).search(Query())
    assert (first.path, first.label) == (photos / "n02268443/a.jpg", "kite")
    assert (first.title, first.author, first.licence) == ("=1+1", "Ann", "CC BY 4.0")
    assert second.refusal is not None
    assert (second.path, second.refusal.reason) == (None, "outside")


def test_searching_again_begins_at_the_front(photos: Path) -> None:
    source = Folder(photos)
    hits = list(source.search(Query()))
    assert list(source.search(Query(cursor=hits[1].cursor))) == hits


def test_what_is_no_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        list(Folder(tmp_path / "absent").search(Query()))
