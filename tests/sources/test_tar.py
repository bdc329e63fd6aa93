"""Tar files as a source: layouts, hostile members, broken archives, going on after a stop."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import re
import tarfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.errors import UsageError
from curate.files import canonical_json
from curate.sources import packed, tar_members
from curate.sources.protocol import Hit, Query
from curate.sources.tar import TarFiles

Item = tuple[str | tarfile.TarInfo, bytes]

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes,
    "tar.gz": gzip.compress,
    "tar.bz2": bz2.compress,
    "tar.xz": lzma.compress,
}


def tar_of(items: list[Item], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, data in items:
            info = tarfile.TarInfo(name) if isinstance(name, str) else name
            info.size = len(data) if info.isreg() else info.size
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def special(name: str, kind: bytes, target: str = "") -> Item:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def found(source: TarFiles, query: Query | None = None) -> list[Hit]:
    return list(source.search(query or Query()))


def told(hits: list[Hit]) -> dict[str, str]:
    return {hit.locator: hit.refusal.reason if hit.refusal else "" for hit in hits}


@pytest.fixture(scope="module")
def photos(package_photos: list[tuple[Path, int]]) -> list[bytes]:
    return [path.read_bytes() for path, _ in package_photos]


@pytest.fixture(scope="module")
def inner(photos: list[bytes]) -> list[Item]:
    """Three tar files of a class, as ImageNet-21k has them."""
    wnids = ("n01440764", "n01443537", "n01614925")
    return [
        (
            f"winter21_whole/{wnid}.tar",
            tar_of([(f"{wnid}_{n}.JPEG", photos[3 * k + n]) for n in range(3)]),
        )
        for k, wnid in enumerate(wnids)
    ]


@pytest.mark.parametrize("ending", PACKERS)
def test_a_tar_of_tars_gives_photos_with_the_class_of_the_tar_that_holds_them(
    tmp_path: Path, inner: list[Item], photos: list[bytes], ending: str
) -> None:
    path = tmp_path / f"whole.{ending}"
    path.write_bytes(PACKERS[ending](tar_of(inner)))
    hits = found(TarFiles(path))
    assert [hit.data for hit in hits] == photos[:9]
    assert [hit.label for hit in hits[::3]] == ["n01440764", "n01443537", "n01614925"]
    assert hits[4].locator == f"whole.{ending}/winter21_whole/n01443537.tar/n01443537_1.JPEG"
    assert all(hit.source == "tar" and hit.refusal is None for hit in hits)


def test_a_folder_of_tars_is_read_in_the_order_of_its_names(
    tmp_path: Path, inner: list[Item], photos: list[bytes]
) -> None:
    folder = tmp_path / "pool"
    folder.mkdir()
    for name, data in reversed(inner):
        (folder / Path(str(name)).name).write_bytes(data)
    (folder / "n01614925.tar").rename(folder / "n01614925.tar.gz")
    (folder / "n01614925.tar.gz").write_bytes(gzip.compress(inner[2][1]))
    (folder / "n01629819.tar").write_bytes(b"<html>" * 200)
    (folder / "n01630670.tar").symlink_to(folder / "n01440764.tar")
    (folder / "n01631663.tar").mkdir()
    (folder / "README").write_bytes(b"no tar file")
    hits = found(TarFiles(folder))
    assert [hit.data for hit in hits[:9]] == photos[:9]
    assert hits[8].label == "n01614925"
    assert hits[8].locator == "pool/n01614925.tar.gz/n01614925_2.JPEG"
    assert told(hits[9:]) == {
        "pool/n01629819.tar": "corrupt-data",
        "pool/n01630670.tar": "symlink",
        "pool/n01631663.tar": "not-a-file",
    }


def test_class_folders_in_a_tar_and_a_tar_named_by_a_class_give_labels(
    tmp_path: Path, photos: list[bytes]
) -> None:
    path = tmp_path / "dragonfly.tar"
    items: list[Item] = [
        ("train/n01440764/a.JPEG", photos[0]),
        ("./n01443537/deep/b.JPEG", photos[1]),
        ("c.JPEG", photos[2]),
        special("train", tarfile.DIRTYPE),
        ("train/.DS_Store", b"litter"),
    ]
    path.write_bytes(tar_of(items))
    assert [(hit.locator, hit.label) for hit in found(TarFiles(path))] == [
        ("dragonfly.tar/train/n01440764/a.JPEG", "n01440764"),
        ("dragonfly.tar/n01443537/deep/b.JPEG", "deep"),
        ("dragonfly.tar/c.JPEG", "dragonfly"),
    ]


def test_other_classes_are_passed_over_unread(tmp_path: Path, inner: list[Item]) -> None:
    path = tmp_path / "whole.tar"
    broken = bytearray(inner[0][1])
    broken[:512] = b"x" * 512
    path.write_bytes(tar_of([(inner[0][0], bytes(broken)), *inner[1:], ("names/a.JPEG", b"abc")]))
    hits = found(TarFiles(path, wnids=frozenset(["n01614925"])))
    assert [hit.label for hit in hits] == ["n01614925"] * 3 + ["names"]
    assert told(found(TarFiles(path)))["whole.tar/winter21_whole/n01440764.tar"] == "corrupt-data"


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_hostile_members_are_refused_and_the_others_taken(
    tmp_path: Path, photos: list[bytes], form: int
) -> None:
    path = tmp_path / "n01440764.tar"
    items: list[Item] = [
        ("good.JPEG", photos[0]),
        special("link.JPEG", tarfile.SYMTYPE, "/etc/hostname"),
        special("hard.JPEG", tarfile.LNKTYPE, "good.JPEG"),
        special("device.JPEG", tarfile.CHRTYPE),
        special("pipe.JPEG", tarfile.FIFOTYPE),
        ("/etc/passwd", photos[1]),
        ("a/../../b.JPEG", photos[1]),
        ("empty.JPEG", b""),
        ("large.JPEG", bytes(2_000_000)),
        ("latin1_\udce9.JPEG", photos[2]),
        ("new\nline.JPEG", photos[3]),
        ("last.JPEG", photos[4]),
    ]
    path.write_bytes(tar_of(items, form))
    hits = found(TarFiles(path, max_bytes=1_000_000))
    assert told(hits) == {
        "n01440764.tar/good.JPEG": "",
        "n01440764.tar/link.JPEG": "symlink",
        "n01440764.tar/hard.JPEG": "not-a-file",
        "n01440764.tar/device.JPEG": "not-a-file",
        "n01440764.tar/pipe.JPEG": "not-a-file",
        "n01440764.tar//etc/passwd": "outside",
        "n01440764.tar/a/../../b.JPEG": "outside",
        "n01440764.tar/empty.JPEG": "empty-file",
        "n01440764.tar/large.JPEG": "too-many-bytes",
        r"n01440764.tar/latin1_\udce9.JPEG": "",
        "n01440764.tar/new\nline.JPEG": "",
        "n01440764.tar/last.JPEG": "",
    }
    assert all((hit.data is None) == (hit.refusal is not None) for hit in hits)
    assert hits[-1].data == photos[4]


def test_long_names_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "n01440764.tar"
    names = [f"{'long' * 500}/{n}.JPEG" for n in range(2)]
    path.write_bytes(tar_of([(name, b"abc") for name in names]))
    locators = {hit.locator for hit in found(TarFiles(path))}
    assert len(locators) == 2
    assert all(len(locator) <= 500 for locator in locators)


def test_a_tar_deeper_than_two_is_not_opened(tmp_path: Path, inner: list[Item]) -> None:
    path = tmp_path / "outer.tar"
    path.write_bytes(tar_of([("n01440764.tar", tar_of([("n01443537.tar", inner[0][1])]))]))
    (hit,) = found(TarFiles(path))
    assert (hit.locator, hit.data) == ("outer.tar/n01440764.tar/n01443537.tar", inner[0][1])


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("share", [0.15, 0.5, 0.9])
def test_a_truncated_archive_gives_what_is_whole_and_says_so(
    tmp_path: Path, inner: list[Item], photos: list[bytes], ending: str, share: float
) -> None:
    data = PACKERS[ending](tar_of(inner))
    path = tmp_path / f"whole.{ending}"
    path.write_bytes(data[: int(len(data) * share)])
    if ending == "tar.bz2":
        # One block holds the whole archive: none of it can be read.
        with pytest.raises(UsageError, match="ends early"):
            found(TarFiles(path))
        return
    hits = found(TarFiles(path))
    whole = [hit.data for hit in hits if hit.refusal is None]
    assert whole == photos[: len(whole)]
    assert 0 < len(whole) < 9
    assert hits[-1].locator == f"whole.{ending}"
    assert {hit.refusal.reason for hit in hits if hit.refusal} == {"truncated"}


def test_every_place_to_break_off_is_told(tmp_path: Path) -> None:
    items: list[Item] = [(f"{'long' * 30}{n}.JPEG", bytes([n + 1]) * 700) for n in range(2)]
    data = tar_of(items)
    path = tmp_path / "n01440764.tar"
    end = data.rstrip(b"\0")
    for length in range(513, len(end) + 400, 37):
        path.write_bytes(data[:length])
        try:
            hits = found(TarFiles(path))
        except UsageError:
            assert length < 2048, "the first header is not whole"
            continue
        assert [hit.refusal.reason for hit in hits if hit.refusal] == ["truncated"], length


def test_a_damaged_header_ends_an_archive_with_a_refusal(tmp_path: Path) -> None:
    data = bytearray(tar_of([("a.JPEG", b"abc"), ("b.JPEG", b"def"), ("c.JPEG", b"ghi")]))
    data[1024:1100] = b"\xff" * 76
    path = tmp_path / "n01440764.tar"
    path.write_bytes(data)
    assert told(found(TarFiles(path))) == {
        "n01440764.tar/a.JPEG": "",
        "n01440764.tar": "corrupt-data",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "0 bytes"),
        (b"\x89PNG\r\n" * 300, "no tar file"),
        (gzip.compress(b"text" * 1000), "no tar file"),
        (b"\x1f\x8b" + bytes(600), "compressed data is damaged"),
        (b"BZh9" + bytes(600), "compressed data is damaged"),
        (b"\xfd7zXZ\0" + bytes(600), "compressed data is damaged"),
    ],
    ids=["absent", "empty", "a picture", "gzip of text", "bad gzip", "bad bzip2", "bad xz"],
)
def test_what_is_no_tar_file_is_one_line(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "n01440764.tar"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        found(TarFiles(path))
    assert "\n" not in str(caught.value)


def test_a_folder_without_tars_and_a_pipe_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no tar files"):
        found(TarFiles(tmp_path))
    os.mkfifo(tmp_path / "pipe.tar")
    with pytest.raises(UsageError, match="no regular file"):
        found(TarFiles(tmp_path / "pipe.tar"))


def test_an_empty_archive_has_no_hits(tmp_path: Path) -> None:
    path = tmp_path / "n01440764.tar"
    path.write_bytes(tar_of([]))
    assert found(TarFiles(path)) == []


@pytest.fixture(scope="module")
def resumable(tmp_path_factory: pytest.TempPathFactory, inner: list[Item]) -> Path:
    """A folder with a tar of tars that has odd members, a tar that breaks off, and a plain one."""
    folder = tmp_path_factory.mktemp("pool")
    odd: list[Item] = [
        ("n01440764/loose.JPEG", b"loose"),
        special("n01440764", tarfile.DIRTYPE),
        special("link.JPEG", tarfile.SYMTYPE, "x"),
    ]
    garbage: Item = ("n01629819.tar", b"<html>")
    short: Item = ("n01630670.tar", inner[1][1][:4000])
    outer = tar_of([odd[0], inner[0], odd[1], garbage, short, odd[2], inner[2]])
    (folder / "a.tar.gz").write_bytes(gzip.compress(outer))
    (folder / "n01443537.tar").write_bytes(inner[1][1][:30_000])
    (folder / "n01614925.tar").write_bytes(inner[2][1])
    return folder


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_search_goes_on_from_any_hit_and_leaves_none_out(
    resumable: Path, data: st.DataObject
) -> None:
    hits = found(TarFiles(resumable))
    at = data.draw(st.integers(0, len(hits) - 1))
    cursor = hits[at].cursor
    assert cursor is not None
    rest = found(TarFiles(resumable), Query(cursor=json.loads(canonical_json(cursor))))
    expected = hits[at + 1 :]
    taken = [hit.locator for hit in rest if hit.data is not None]
    assert taken == [hit.locator for hit in expected if hit.data is not None]
    assert {hit.locator for hit in expected} <= {hit.locator for hit in rest}


def test_a_file_that_has_changed_is_read_from_its_start(tmp_path: Path, inner: list[Item]) -> None:
    path = tmp_path / "n01440764.tar"
    path.write_bytes(inner[0][1])
    cursor = found(TarFiles(path))[-1].cursor
    path.write_bytes(inner[0][1] + bytes(512))
    assert len(found(TarFiles(path), Query(cursor=cursor))) == 3


@contextmanager
def peak_below(limit: int) -> Iterator[None]:
    """Python's allocations must stay below so many bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def headers_claiming(size: int) -> bytes:
    """A tar file whose first header claims further headers of `size` bytes, zeros follow."""
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, size
    return info.tobuf(tarfile.USTAR_FORMAT) + bytes(size)


@pytest.mark.parametrize("guarded", [True, False])
def test_headers_without_end_are_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    path = tmp_path / "n01440764.tar.gz"
    bomb = tar_of([("a.JPEG", b"abc")])[:1024] + headers_claiming(60_000_000)
    path.write_bytes(gzip.compress(bomb, 1))
    del bomb
    if guarded:
        with peak_below(5_000_000):
            hits = found(TarFiles(path))
        assert told(hits) == {
            "n01440764.tar.gz/a.JPEG": "",
            "n01440764.tar.gz": "metadata-bomb",
        }
        return
    monkeypatch.setattr(tar_members, "_LONGEST_HEADERS", 1 << 40)
    with pytest.raises(AssertionError), peak_below(5_000_000):
        found(TarFiles(path))


def test_a_number_without_end_does_not_keep_the_reader_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "n01440764.tar"
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 60_416
    head = info.tobuf(tarfile.USTAR_FORMAT) + b"1" * info.size
    path.write_bytes(tar_of([("a.JPEG", b"abc")])[:1024] + head + tar_of([("b.JPEG", b"abc")]))
    started = time.process_time()
    hits = found(TarFiles(path))
    assert list(told(hits).values()) == ["", "metadata-bomb"]
    assert time.process_time() - started < 0.3
    monkeypatch.setattr(tar_members, "_ENDLESS_NUMBER", re.compile(rb"\d{1000000}"))
    assert list(told(found(TarFiles(path))).values()) != ["", "metadata-bomb"]


def test_entries_that_hold_for_all_members_do_not_pile_up(tmp_path: Path) -> None:
    path = tmp_path / "n01440764.tar"
    buffer = io.BytesIO()
    for n in range(300):
        head = tarfile.TarInfo.create_pax_global_header({f"key{n}": "x" * 100})
        buffer.write(head + tar_of([(f"{n}.JPEG", b"abc")])[:1024])
    path.write_bytes(buffer.getvalue())
    hits = found(TarFiles(path))
    assert 50 < len(hits) < 150
    assert hits[-1].refusal is not None
    assert hits[-1].refusal.reason == "metadata-bomb"


def test_a_bomb_is_unpacked_in_bounded_pieces(tmp_path: Path) -> None:
    path = tmp_path / "n01440764.tar.bz2"
    path.write_bytes(bz2.compress(tar_of([("a.JPEG", bytes(60_000_000)), ("b.JPEG", b"abc")])))
    assert path.stat().st_size < 1000
    with peak_below(5_000_000):
        hits = found(TarFiles(path))
    assert list(told(hits).values()) == ["too-many-bytes", ""]
    with (
        pytest.raises(AssertionError),
        peak_below(5_000_000),
        tarfile.open(path, "r|*") as archive,
    ):
        assert archive.next() is not None


def test_what_unpacks_to_many_times_its_size_is_not_unpacked_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "n01440764.tar.gz"
    items: list[Item] = [
        ("a.JPEG", b"abc"),
        ("bomb.JPEG", bytes(50_000_000)),
        ("b.JPEG", b"abc"),
    ]
    path.write_bytes(gzip.compress(tar_of(items)))
    assert list(told(found(TarFiles(path))).values()) == ["", "too-many-bytes", ""]
    monkeypatch.setattr(packed, "_HARMLESS", 10_000_000)
    assert list(told(found(TarFiles(path))).values()) == ["", "too-many-bytes", "corrupt-data"]


def test_a_member_that_claims_a_terabyte_is_passed_without_memory(
    tmp_path: Path, photos: list[bytes]
) -> None:
    path = tmp_path / "n01440764.tar"
    info = tarfile.TarInfo("claims.JPEG")
    info.size = 1 << 40
    path.write_bytes(tar_of([("a.JPEG", photos[0])])[:-1024].rstrip(b"\0"))
    whole = path.stat().st_size + -path.stat().st_size % 512
    with path.open("r+b") as stream:
        stream.truncate(whole)
        stream.seek(whole)
        stream.write(info.tobuf(tarfile.GNU_FORMAT))
        # The file has holes: it takes no room on the disk.
        with suppress(OSError):
            stream.truncate(whole + 512 + (1 << 40))
            stream.seek(0, 2)
            stream.write(tar_of([("b.JPEG", photos[1])]))
    with peak_below(5_000_000):
        hits = found(TarFiles(path))
    assert list(told(hits).values())[:2] == ["", "too-many-bytes"]
    assert hits[-1].data == photos[1] or told(hits)["n01440764.tar"] == "truncated"


@pytest.mark.parametrize("size", [-1, -512, -1024, -(1 << 40), 1 << 62])
def test_sizes_that_lead_backwards_or_nowhere_end_the_archive(tmp_path: Path, size: int) -> None:
    path = tmp_path / "n01440764.tar"
    info = tarfile.TarInfo("a.JPEG")
    info.size = size
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    path.write_bytes(tar_of([("b.JPEG", b"abc")])[:1024] + head + bytes(1024))
    hits = found(TarFiles(path))
    assert len(hits) <= 3
    assert hits[-1].refusal is not None
    assert hits[-1].refusal.reason in ("corrupt-data", "truncated")


def test_a_sparse_member_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "n01440764.tar"
    sparse = {"GNU.sparse.map": "0,3", "GNU.sparse.size": str(1 << 40)}
    info = tarfile.TarInfo("sparse.JPEG")
    info.pax_headers = sparse
    path.write_bytes(tar_of([(info, b"abc"), ("b.JPEG", b"abc")]))
    assert list(told(found(TarFiles(path))).values()) == ["not-a-file", ""]


@given(
    st.lists(st.tuples(st.integers(0, 6000), st.binary(min_size=1, max_size=12)), max_size=6),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT]),
    st.integers(1000, 9000),
)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_damage_anywhere_ends_in_hits_or_one_line(
    tmp_path: Path, edits: list[tuple[int, bytes]], form: int, length: int
) -> None:
    sparse = tarfile.TarInfo("sparse.JPEG")
    sparse.pax_headers = {"GNU.sparse.map": "0,3", "GNU.sparse.size": "99"}
    long = "long" * 24 if form == tarfile.USTAR_FORMAT else "long" * 40
    inner: Item = ("n01440764.tar", tar_of([("a.JPEG", b"abc")], form))
    data = bytearray(tar_of([(long, b"abc"), (sparse, b"abc"), inner], form))
    for at, edit in edits:
        data[at : at + len(edit)] = edit
    path = tmp_path / "x.tar"
    path.write_bytes(data[:length])
    with suppress(UsageError):
        for hit in TarFiles(path).search(Query()):
            assert (hit.data is None) == (hit.refusal is not None)
            hit.locator.encode()
            assert "\0" not in hit.locator
