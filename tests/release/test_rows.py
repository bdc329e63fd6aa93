"""Rows come back in any order, whatever they hold, and few of them are in memory at a time."""

from __future__ import annotations

import tarfile
import tempfile
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.choices import PACK_FORMS, PackForm
from curate.files import canonical_json, printable
from curate.progress import Stop
from curate.release import archive, hashed, reading, rows
from curate.release.build import Item, build_folder
from curate.release.forms import pack
from curate.release.image_folder import metadata_lines
from curate.release.manifest import COLUMNS, ManifestRow, table_of
from curate.release.opening import open_packable
from curate.release.rows import Released, WaitingRows
from tests.release.packing import SPACE, NoBar
from tests.release.test_build import RECORD, _Images, _item
from tests.release.test_manifest import ROW

TEXT = st.text(st.characters(blacklist_categories=()), max_size=30)
NUMBER = st.none() | st.floats(allow_nan=False, allow_infinity=False)
ROWS = st.builds(
    lambda **changes: replace(ROW, **changes),
    name=TEXT,
    author=st.none() | TEXT,
    confidence=NUMBER,
    p_true=NUMBER,
    place=st.integers(0, 2**31 - 1),
    borderline=st.booleans(),
    split=st.sampled_from(["dev", "test"]),
)


def _released(row: ManifestRow, number: int) -> Released:
    return Released(
        path=f"{row.split}/n02268443/{number:04}.jpg",
        candidate=row.candidate,
        wnid=row.wnid,
        name=row.name,
        licence=row.licence,
        split=row.split,
        sha256=f"{number:064}",
        original_sha256=row.original_sha256,
        reencoded=number % 2 == 0,
        cleaned=number % 3 == 0,
        number=number,
    )


@settings(deadline=None, max_examples=50)
@given(st.lists(ROWS, min_size=1, max_size=12), st.randoms(), st.integers(1, 5))
def test_rows_come_back_as_they_were_in_the_order_that_is_asked_for(
    given_rows: list[ManifestRow], random: Any, together: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(rows, "ROWS", together)
        with WaitingRows(Path(folder)) as waiting:
            images = [_released(row, waiting.add(row)) for row in given_rows]
            random.shuffle(images)
            tables = list(waiting.tables(images))
    assert all(len(table["path"]) <= together for table in tables)
    found = [
        ManifestRow(**dict(zip(COLUMNS, values, strict=True)))
        for table in tables
        for values in zip(*(table[name] for name in COLUMNS), strict=True)
    ]
    late = ("path", "sha256", "reencoded", "cleaned")
    assert found == [
        replace(given_rows[one.number], **{name: getattr(one, name) for name in late})
        for one in images
    ]


@settings(deadline=None, max_examples=50)
@given(st.lists(ROWS, min_size=1, max_size=6))
def test_a_line_of_json_is_the_canonical_one_and_each_split_has_its_own(
    given_rows: list[ManifestRow],
) -> None:
    named = [
        replace(row, path=f"{row.split}/n02268443/{number}.jpg")
        for number, row in enumerate(given_rows)
    ]
    named.sort(key=lambda row: row.path)
    table = table_of({name: [getattr(row, name) for row in named] for name in COLUMNS})
    found = dict(metadata_lines(table))
    for split in ("dev", "test"):
        lines = []
        for row in named:
            told = {k: printable(v) if isinstance(v, str) else v for k, v in asdict(row).items()}
            path = told.pop("path").removeprefix(f"{row.split}/")
            told |= {"file_name": path, "label": "n02268443"}
            if row.split == split:
                lines.append(canonical_json(told) + b"\n")
        assert found.get(f"{split}/metadata.jsonl", b"") == b"".join(lines)


@given(
    st.text(min_size=1, max_size=110).filter(lambda name: name.strip("/\0") == name),
    st.integers(0, 2**20) | st.integers(0, 2**36),
)
def test_a_header_is_the_one_that_tarfile_writes(name: str, size: int) -> None:
    assert archive._header(name, size) == archive._by_tarfile(name, size)
    found = tarfile.TarInfo.frombuf(archive._header("a/é.jpg", 7)[-512:], "utf-8", "strict")
    assert (found.size, found.mode, found.mtime) == (7, 0o644, 0)


@pytest.mark.slow
def test_memory_does_not_grow_with_what_a_manifest_tells_of_an_image(
    tmp_path: Path, package_photos: list[tuple[Path, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "ROWS", 50)
    photo = min((path.read_bytes() for path, _ in package_photos), key=len)
    images = _Images()
    first = _item(images, photo, SPACE.wnids[0])
    length = 20_000

    def made(count: int) -> Iterator[Item]:
        for number in range(count):
            # A JPEG may hold comments behind its first two bytes.
            data = photo[:2] + b"\xff\xfe\0\x0a" + f"{number:08}".encode() + photo[2:]
            digest = images.add(data)
            row = replace(first.row, original_sha256=digest, views=f"{number:0{length}}")
            yield replace(first, row=replace(row, candidate=digest[:32]))

    def read(sha256: str, extension: str) -> bytes:
        return images.pop(sha256)

    def peak(count: int) -> int:
        target = tmp_path / f"{count}.0.0"
        tracemalloc.start()
        try:
            built = build_folder(target, made(count), read, RECORD, SPACE, bar=NoBar(), stop=Stop())
            assert len(built.images) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # The first one imports; what is read ahead and written together is in memory at every size.
    _, few, many = peak(1), peak(300), peak(1000)
    assert many - few < 700 * length / 4

    monkeypatch.setattr(reading, "_ROWS_AT_ONCE", 50)
    # How much of a file is being hashed at the peak is chance: here it is little.
    monkeypatch.setattr(hashed, "_HELD_APART", 1 << 18)
    (tmp_path / "packed").mkdir()

    def peak_of_packing(count: int, form: PackForm) -> int:
        release = open_packable(tmp_path / f"{count}.0.0")
        usual = pa.default_memory_pool()
        counted = pa.proxy_memory_pool(usual)
        pa.set_memory_pool(counted)
        tracemalloc.start()
        try:
            out = tmp_path / "packed" / str(count)
            out.mkdir(exist_ok=True)
            pack(release, form, out, shard_images=2000, bar=NoBar(), stop=Stop())
            return tracemalloc.get_traced_memory()[1] + counted.max_memory()
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(usual)

    for form in PACK_FORMS:
        _, few, many = (peak_of_packing(count, form) for count in (1, 300, 1000))
        assert many - few < 700 * length / 4, form
