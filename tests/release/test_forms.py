"""Forms of a release, each loaded back by the library that it is meant for, bytes and all."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.choices import PACK_FORMS, PackForm
from curate.errors import CurateError, Interrupted, StorageError, UsageError, VerificationError
from curate.files import canonical_json, sha256_bytes
from curate.progress import Stop
from curate.release import shards
from curate.release.forms import Packed, pack
from curate.release.image_folder import metadata_files, metadata_jsonl
from curate.release.manifest import ManifestRow, manifest_parquet
from curate.release.opening import open_packable
from curate.release.packable import PackedImage
from tests.release.packing import (
    LONG,
    SPACE,
    NoBar,
    Photos,
    build,
    files_of,
    rows_of,
    split_up,
    sum_up,
)

#: Without splits the whole way of a release shows the same.
SPLITS = pytest.mark.parametrize(
    "splits", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["whole", "splits"]
)


def packed(
    release: Path, form: PackForm, out: Path, shard_images: int = 3, stop: Stop | None = None
) -> Packed:
    return pack(
        open_packable(release),
        form,
        out,
        shard_images=shard_images,
        bar=NoBar(),
        stop=stop or Stop(),
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Path:
    return build(tmp_path_factory.mktemp("built"), package_photos)


@pytest.fixture(scope="module")
def split_built(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Path:
    release = tmp_path_factory.mktemp("split") / "0.1.0"
    shutil.copytree(built, release)
    split_up(release)
    return release


@pytest.fixture
def release(tmp_path: Path, built: Path) -> Path:
    """One that a test may tamper with."""
    return Path(shutil.copytree(built, tmp_path / "release"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_the_archive_holds_every_file_and_tells_nothing_of_who_made_it(
    built: Path, out: Path
) -> None:
    made = packed(built, "tar", out)
    assert made.path == out / "0.1.0.tar"
    assert sha256_bytes(made.path.read_bytes()) == made.files[0].sha256
    with tarfile.open(made.path) as archive:
        members = archive.getmembers()
        contents = {m.name: archive.extractfile(m).read() for m in members}  # type: ignore[union-attr]
    assert contents == {f"0.1.0/{path}": data for path, data in files_of(built).items()}
    assert any(LONG in name for name in contents)
    assert list(contents) == sorted(contents, key=str.encode)
    for member in members:
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
        assert (member.mtime, member.mode, member.type) == (0, 0o644, tarfile.REGTYPE)


def test_the_system_s_tar_unpacks_what_coreutils_find_right(built: Path, out: Path) -> None:
    tar, sums = shutil.which("tar"), shutil.which("sha256sum")
    if tar is None or sums is None:
        pytest.skip("tar or sha256sum is not installed")
    packed(built, "tar", out)
    subprocess.run([tar, "-xf", "0.1.0.tar"], cwd=out, check=True)
    command = [sums, "--check", "--strict", "--quiet", "SHA256SUMS"]
    subprocess.run(command, cwd=out / "0.1.0", check=True)
    assert files_of(out / "0.1.0") == files_of(built)


@pytest.mark.slow
@SPLITS
def test_webdataset_loads_every_photo_with_its_label(
    built: Path, split_built: Path, out: Path, splits: bool
) -> None:
    webdataset = pytest.importorskip("webdataset")
    release = split_built if splits else built
    made = packed(release, "webdataset", out)
    index = json.loads((made.path / "index.json").read_bytes())
    loaded = {}
    for split, told in index["splits"].items():
        names = [shard["file"] for shard in told["shards"]]
        assert names == [f"0.1.0-{split}-{n:06}.tar" for n in range(len(names))]
        urls = [str(made.path / name) for name in names]
        for url, shard in zip(urls, told["shards"], strict=True):
            assert sha256_bytes(Path(url).read_bytes()) == shard["sha256"]
            assert Path(url).stat().st_size == shard["bytes"]
            there = len(list(webdataset.WebDataset(url, shardshuffle=False)))
            assert there == shard["images"] <= 3
        samples = list(webdataset.WebDataset(urls, shardshuffle=False, empty_check=False))
        assert len(samples) == told["images"]
        loaded |= {(split, sample["__key__"]): sample for sample in samples}
        decoded = webdataset.WebDataset(urls, shardshuffle=False).decode("pil").to_tuple("jpg;png")
        assert all(photo.mode == "RGB" and photo.width for (photo,) in decoded)
    rows = rows_of(release)
    assert len(loaded) == index["images"] == len(rows) == 8
    for row in rows:
        *outer, wnid, name = row["path"].split("/")
        sample = loaded[outer[0] if outer else "test", row["candidate"]]
        assert sample[name.rpartition(".")[2]] == (release / row["path"]).read_bytes()
        assert int(sample["cls"]) == SPACE.wnids.index(wnid)
        assert json.loads(sample["json"]) == row | {"label": int(sample["cls"]), "class": wnid}
    sizes = [shard["images"] for told in index["splits"].values() for shard in told["shards"]]
    assert sorted(sizes) == ([2, 3, 3] if not splits else sorted(sizes))
    assert index["reviewed"] is False
    assert index["classes"] == list(SPACE.wnids)


@pytest.mark.slow
@SPLITS
def test_hugging_face_loads_the_parquet_files_with_images_and_class_names(
    built: Path, split_built: Path, out: Path, monkeypatch: pytest.MonkeyPatch, splits: bool
) -> None:
    datasets = hugging_face(monkeypatch, out)
    release = split_built if splits else built
    made = packed(release, "parquet", out)
    loaded = datasets.load_dataset(str(made.path))
    # It calls a split dev by its own name, whatever the files are called.
    assert set(loaded) == ({"dev", "test"} if splits else {"test"})
    found = {}
    for part in loaded.values():
        assert part.features["label"] == datasets.ClassLabel(names=list(SPACE.wnids))
        assert part.features["image"] == datasets.Image()
        assert part[0]["image"].convert("RGB").size == (part[0]["width"], part[0]["height"])
        raw = part.cast_column("image", datasets.Image(decode=False))
        found |= {row["path"]: row for row in raw}
    rows = rows_of(release)
    assert len(found) == len(rows) == 8
    for row in rows:
        sample = found[row["path"]]
        assert sample.pop("image")["bytes"] == (release / row["path"]).read_bytes()
        assert SPACE.wnids[sample.pop("label")] == row["path"].split("/")[-2]
        assert sample == row


def hugging_face(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    for name, value in {"HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, value)
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "cache" / "datasets")
    datasets.disable_progress_bars()
    return datasets


@pytest.mark.slow
@pytest.mark.parametrize(("form", "library"), [("webdataset",) * 2, ("parquet", "datasets")])
@pytest.mark.parametrize("most", [1, 100], ids=["many files", "one file"])
def test_a_form_s_own_text_loads_all_of_the_split_to_evaluate_with(
    split_built: Path,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: PackForm,
    library: str,
    most: int,
) -> None:
    pytest.importorskip(library)
    if library == "datasets":
        hugging_face(monkeypatch, out)
    made = packed(split_built, form, out, shard_images=most)
    text = (made.path / "README.md").read_text()
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    monkeypatch.chdir(made.path)
    names: dict[str, Any] = {}
    exec("\n".join(line for line in lines if "sha256sum" not in line), names)
    loaded = list(names["dataset"])
    keys = [one.get("__key__") or one["candidate"] for one in loaded]
    rows = rows_of(split_built)
    wanted = [row["candidate"] for row in rows if row["path"].startswith("test/")]
    assert sorted(keys) == sorted(wanted)
    assert 1 < len(wanted) < len(rows)
    assert f"dev ({len(rows) - len(wanted)}), test ({len(wanted)})" in text


@pytest.mark.slow
@SPLITS
def test_hugging_face_s_imagefolder_loads_the_folders_with_the_manifest_s_columns(
    built: Path, split_built: Path, out: Path, monkeypatch: pytest.MonkeyPatch, splits: bool
) -> None:
    datasets = hugging_face(monkeypatch, out)
    release = Path(shutil.copytree(split_built if splits else built, out / "release"))
    rows = {row["path"]: row for row in rows_of(release)}
    for path, lines in metadata_files([ManifestRow(**row) for row in rows.values()]).items():
        (release / path).write_bytes(b"".join(lines))
    folders = {"dev": release / "dev", "test": release / "test"} if splits else {"test": release}
    found = {}
    for split, folder in folders.items():
        files = {split: [f"{folder}/**"]}
        part = datasets.load_dataset("imagefolder", data_files=files, split=split)
        assert part[0]["image"].size == (part[0]["width"], part[0]["height"])
        for row in part.cast_column("image", datasets.Image(decode=False)):
            found[Path(row["image"]["path"]).relative_to(release).as_posix()] = row
    assert found.keys() == rows.keys()
    assert len(rows) == 8
    for path, row in rows.items():
        sample = found[path]
        assert (release / path).read_bytes() == Path(sample["image"]["path"]).read_bytes()
        assert sample["label"] == path.split("/")[-2]
        assert {key: sample[key] for key in row if key != "path"} == {
            key: value for key, value in row.items() if key != "path"
        }


def test_arrow_reads_row_groups_of_bounded_size(
    built: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curate.release.embedded._GROUP_IMAGES", 3)
    made = packed(built, "parquet", out, 100)
    (path,) = (made.path / "data").iterdir()
    assert path.name == "test-00000-of-00001.parquet"
    file = pq.ParquetFile(path)
    groups = range(file.num_row_groups)
    assert [file.metadata.row_group(n).num_rows for n in groups] == [3, 3, 2]
    rows = file.read().to_pylist()
    assert [row["path"] for row in rows] == [row["path"] for row in rows_of(built)]
    for row in rows:
        assert row["image"] == {
            "bytes": (built / row["path"]).read_bytes(),
            "path": row["path"],
        }


@pytest.mark.parametrize("form", ["webdataset", "parquet"])
def test_card_classes_and_checksums_go_with_the_images(
    built: Path, out: Path, form: PackForm
) -> None:
    made = packed(built, form, out)
    files = files_of(made.path)
    assert files["CARD.md"] == files_of(built)["README.md"]
    assert files["classes.csv"] == files_of(built)["classes.csv"]
    assert files["README.md"].startswith(b"# UNREVIEWED: release 0.1.0")
    sums = dict(line.split("  ")[::-1] for line in files.pop("SHA256SUMS").decode().splitlines())
    assert sums == {path: sha256_bytes(data) for path, data in files.items()}


@pytest.mark.parametrize("form", PACK_FORMS)
def test_the_bytes_are_the_same_whatever_the_clock_the_threads_and_the_place(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: PackForm
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    elsewhere = shutil.copytree(built, tmp_path / "elsewhere", copy_function=shutil.copyfile)
    for path in elsewhere.rglob("*"):
        os.utime(path, (1, 1))
    packed(built, form, tmp_path / "a")
    monkeypatch.setattr("curate.release.packable._READERS", 7)
    monkeypatch.setattr("curate.release.packable._AHEAD", 1)
    monkeypatch.setattr("time.time", lambda: 4e9)
    packed(elsewhere, form, tmp_path / "b")
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    again = packed(built, form, tmp_path / "a")
    assert again.adopted
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


@pytest.mark.parametrize("form", PACK_FORMS)
def test_what_stands_there_already_is_left_alone(built: Path, out: Path, form: PackForm) -> None:
    made = packed(built, form, out)
    if form == "tar":
        made.path.write_bytes(b"mine")
    else:
        (made.path / "mine").write_bytes(b"mine")
    before = files_of(out)
    with pytest.raises(UsageError, match="exists and is not what this command makes"):
        packed(built, form, out)
    assert files_of(out) == before


def _alter(release: Path) -> None:
    path = next(release.glob("n*/*"))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def _remove(release: Path) -> None:
    next(release.glob("n*/*")).unlink()


def _add(release: Path) -> None:
    (release / SPACE.wnids[0] / "more.jpg").write_bytes(b"")


def _add_with_sums(release: Path) -> None:
    _add(release)
    sum_up(release)


def _link(release: Path) -> None:
    path = next(release.glob("n*/*"))
    path.rename(release.parent / "elsewhere")
    path.symlink_to(release.parent / "elsewhere")


def _link_folder(release: Path) -> None:
    path = next(release.glob("n*"))
    path.rename(release.parent / "elsewhere")
    path.symlink_to(release.parent / "elsewhere")


def _point_outside(release: Path) -> None:
    with (release / "SHA256SUMS").open("a") as stream:
        stream.write(f"{sha256_bytes(b'')}  ../../secret\n")


def _cut_sums(release: Path) -> None:
    path = release / "SHA256SUMS"
    path.write_bytes(path.read_bytes()[:-5])


def _no_manifest(release: Path) -> None:
    (release / "manifest.parquet").unlink()


def _broken_manifest(release: Path) -> None:
    (release / "manifest.parquet").write_bytes(b"PAR1 and no more PAR1")
    sum_up(release)


def _change_rows(release: Path, **changes: Any) -> None:
    rows = [ManifestRow(**row) for row in rows_of(release)]
    rows[2] = replace(rows[2], **changes)
    (release / "manifest.parquet").write_bytes(manifest_parquet(rows, {}))
    sum_up(release)


def _same_key(release: Path) -> None:
    _change_rows(release, candidate=rows_of(release)[0]["candidate"])


def _odd_key(release: Path) -> None:
    _change_rows(release, candidate="../../x.jpg")


def _row_elsewhere(release: Path) -> None:
    _change_rows(release, path="README.md", sha256=sha256_bytes(files_of(release)["README.md"]))


def _manifest_lies(release: Path) -> None:
    _change_rows(release, sha256="0" * 64)


def _odd_version(release: Path) -> None:
    record = json.loads((release / "release.json").read_bytes())
    record["version"] = "../../1.0.0"
    (release / "release.json").write_bytes(canonical_json(record))
    sum_up(release)


def _endless_texts(release: Path) -> None:
    """A few kilobytes that stand for gigabytes."""
    table = pq.read_table(release / "manifest.parquet")
    row = table.slice(0, 1).to_pylist()[0] | {"author": "x" * 2_000_000}
    endless = {
        name: pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), [value])
        if isinstance(value, str)
        else pa.array([value] * 5000, table.schema.field(name).type)
        for name, value in row.items()
    }
    pq.write_table(pa.table(endless), release / "manifest.parquet", compression="zstd")
    assert (release / "manifest.parquet").stat().st_size < 200_000
    sum_up(release)


def _record_without_end(release: Path) -> None:
    (release / "release.json").write_bytes(b"[" * 100_000)
    sum_up(release)


@pytest.mark.parametrize(
    "tamper",
    [
        _alter,
        _remove,
        _add,
        _add_with_sums,
        _link,
        _link_folder,
        _point_outside,
        _cut_sums,
        _no_manifest,
        _broken_manifest,
        _same_key,
        _odd_key,
        _row_elsewhere,
        _manifest_lies,
        _odd_version,
        _endless_texts,
        _record_without_end,
    ],
)
def test_a_tampered_release_is_not_packed(release: Path, out: Path, tamper: Any) -> None:
    tamper(release)
    for form in PACK_FORMS:
        with pytest.raises((VerificationError, UsageError)) as caught:
            packed(release, form, out)
        assert "\n" not in str(caught.value)
    assert os.listdir(out) == []


def test_what_a_host_adds_is_not_packed(release: Path, out: Path, tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    before = packed(release, "tar", tmp_path / "before").path.read_bytes()
    (release / ".gitattributes").write_text("*.parquet filter=lfs\n")
    folder = release / ".cache" / "huggingface" / "download"
    folder.mkdir(parents=True)
    (folder / "README.md.metadata").write_text("etag")
    assert packed(release, "tar", out).path.read_bytes() == before
    (folder / "more.jpg").write_bytes(b"")
    with pytest.raises(VerificationError, match=r"more\.jpg' is missing from SHA256SUMS"):
        packed(release, "webdataset", out)


def test_a_column_of_an_unknown_kind_is_named(release: Path, out: Path) -> None:
    table = pq.read_table(release / "manifest.parquet")
    table = table.append_column("when", pa.array([None] * 8, pa.timestamp("s")))
    pq.write_table(table, release / "manifest.parquet")
    sum_up(release)
    with pytest.raises(UsageError, match="column 'when' of the type timestamp"):
        packed(release, "parquet", out)


@pytest.mark.parametrize("form", PACK_FORMS)
def test_a_request_to_stop_leaves_nothing(built: Path, out: Path, form: PackForm) -> None:
    stop = Stop()
    stop.request()
    with pytest.raises(Interrupted, match="was not packed"):
        packed(built, form, out, stop=stop)
    assert os.listdir(out) == []


@pytest.mark.skipif(sys.platform == "win32", reason="limits of processes are POSIX")
@pytest.mark.parametrize("form", PACK_FORMS)
def test_a_disk_that_fills_leaves_nothing(built: Path, out: Path, form: PackForm) -> None:
    # A limit on the length of files refuses writes as a full disk does, with an error of its own.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StorageError, match="disk is full while writing") as caught:
            packed(built, form, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert "\n" not in str(caught.value)
    assert os.listdir(out) == []


def test_an_unknown_form_is_refused(built: Path, out: Path) -> None:
    with pytest.raises((ValueError, CurateError)):
        packed(built, "zip", out)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 3_000_000_000), min_size=1, max_size=40), st.integers(1, 50))
def test_shards_are_balanced_and_lose_nothing(sizes: Sequence[int], most: int) -> None:
    images = [PackedImage(n, "", "", "", "", 0, size) for n, size in enumerate(sizes)]
    parts = shards.balanced(images, most)
    assert [image for part in parts for image in part] == images
    lengths = [len(part) for part in parts]
    assert max(lengths) <= most
    assert 1 <= min(lengths) >= max(lengths) - 1


def test_metadata_is_one_object_a_line_whatever_the_texts(built: Path) -> None:
    rows = [ManifestRow(**row) for row in rows_of(built)]
    rows[0] = replace(rows[0], author="\udce9\u2028\n", confidence=None)
    lines = b"".join(metadata_jsonl(rows)).decode().split("\n")
    assert lines.pop() == ""
    assert len(lines) == 8
    first = json.loads(lines[0])
    assert first["author"] == "\\udce9\u2028\n"
    assert first["file_name"] == rows[0].path
    assert "path" not in first


@pytest.fixture(autouse=True)
def _only_whole_files(tmp_path: Path) -> Iterator[None]:
    """Nothing unfinished is ever left behind."""
    yield
    assert not list(tmp_path.rglob(".partial-*"))
