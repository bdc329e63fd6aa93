"""Building a release: a folder that stands whole under its version's name, or not at all.

Everything is written into a hidden folder beside the target, synced, and renamed at the end. The
bytes depend on the items, the record and the label space alone: no clock, no order of arrival.
"""

from __future__ import annotations

import io
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from curate.errors import ImageRefused, Interrupted, UsageError, VerificationError
from curate.files import (
    TEMPORARY,
    canonical_json,
    csv_text,
    printable,
    sha256_bytes,
    sha256_file,
    storage_errors,
    sync_folder,
)
from curate.labels.space import LabelSpace
from curate.licences import parse
from curate.progress import Bar, Stop
from curate.release.layout import CLASS_MAP, IMAGE_EXTENSIONS, RELEASE_RECORD
from curate.release.manifest import ManifestRow, manifest_csv, manifest_parquet
from curate.release.naming import hash_stems, unique_stems
from curate.release.readme import readme

#: Names of the files beside the class folders that nobody but people and tools for checksums read.
README, CHECKSUMS = "README.md", "SHA256SUMS"


_SYNCING_THREADS = 16


@dataclass(frozen=True)
class Item:
    """One image to release.

    Attributes:
        row: its row of the manifest; `path`, `sha256` and `reencoded` are filled in by the build.
        folder: the class folder: in ImageNet-A style that of the true class, in ImageNet-O style
            that of the class it is taken for.
        extension: what the original bytes call for, without a dot.
        stem: the file's name without extension; None names it by content.
        notes: what was noticed when it was decoded (`curate.images.decode.NOTES`).
    """

    row: ManifestRow
    folder: str
    extension: str
    stem: str | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Built:
    """A release that stands on the disk.

    Attributes:
        rows: of the manifest, sorted by path.
        record: what `release.json` holds.
        manifest_sha256: of `manifest.parquet`.
        adopted: whether the very same release stood there already.
    """

    rows: Sequence[ManifestRow]
    record: Mapping[str, Any]
    manifest_sha256: str
    adopted: bool


@dataclass
class _Written:
    item: Item
    row: ManifestRow
    extension: str


def build_folder(
    target: Path,
    items: Sequence[Item],
    read: Callable[[str, str], bytes],
    record: Mapping[str, Any],
    space: LabelSpace,
    *,
    bar: Bar,
    stop: Stop,
) -> Built:
    """Build a release at `target`. Only one build at a time may work in the folder above it.

    Images whose format torchvision's ImageFolder does not list are re-encoded as PNG: the upright
    sRGB pixels that the filter saw, without metadata. All others keep their bytes.

    Args:
        target: where the release shall stand; what a killed build left beside it is removed.
        items: at least one, no image twice in a class folder; their order does not matter.
        read: gives the original bytes for (SHA-256, extension).
        record: what `release.json` shall hold; counts are added under `counts`.
        space: the label space, for the class map.
        bar: advanced by one an image.
        stop: asks to stop.

    Raises:
        UsageError: another release, or anything else, stands at `target`.
        VerificationError: an image cannot be re-encoded, or two items are one image.
        StorageError: the disk is full or refuses.
        Interrupted: stopped by the user; nothing is left.
    """
    with storage_errors(printable(target)), _temporary_folder(target) as folder:
        written = _write_images(folder, items, read, bar, stop)
        rows = _name_images(folder, written)
        known = record.get("counts", {})
        record = {**record, "counts": known | _counts(rows, written)}
        texts = {
            "manifest.parquet": manifest_parquet(rows, {"curate": canonical_json(record).decode()}),
            "manifest.csv": manifest_csv(rows),
            CLASS_MAP: class_map(space),
            RELEASE_RECORD: canonical_json(record, indent=2) + b"\n",
            README: readme(record, rows, space),
        }
        sums = {row.path: row.sha256 for row in rows}
        sums |= {name: sha256_bytes(data) for name, data in texts.items()}
        texts[CHECKSUMS] = checksums(sums)
        for name, data in texts.items():
            (folder / name).write_bytes(data)
        adopted = os.path.lexists(target)
        if adopted:
            _compare(target, sums | {CHECKSUMS: sha256_bytes(texts[CHECKSUMS])})
        else:
            _sync(folder, [*sums, CHECKSUMS])
            folder.rename(target)
        sync_folder(target.parent)
    return Built(rows, record, sums["manifest.parquet"], adopted)


def class_map(space: LabelSpace) -> bytes:
    """`classes.csv`: every class of the label space in order, with names and numbers."""
    columns = ("wnid", "name", "position", "column")
    return csv_text(
        columns, [row | {"position": n} for n, row in enumerate(space.to_rows())]
    ).encode()


def checksums(sums: Mapping[str, str]) -> bytes:
    """`SHA256SUMS` as coreutils write and check it, sorted by path.

    Args:
        sums: path within the release to SHA-256; paths hold neither line ends nor backslashes.
    """
    ordered = sorted(sums, key=str.encode)
    return "".join(f"{sums[path]}  {path}\n" for path in ordered).encode()


@contextmanager
def _temporary_folder(target: Path) -> Iterator[Path]:
    target.parent.mkdir(exist_ok=True)
    for leftover in target.parent.glob(f"{TEMPORARY}*"):
        shutil.rmtree(leftover)
    folder = target.with_name(f"{TEMPORARY}{target.name}")
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_images(
    folder: Path,
    items: Sequence[Item],
    read: Callable[[str, str], bytes],
    bar: Bar,
    stop: Stop,
) -> list[_Written]:
    """Write the images, each under its whole SHA-256: shorter names need all of them."""
    written = []
    for name in {item.folder for item in items}:
        (folder / name).mkdir()
    for item in items:
        if stop.requested:
            raise Interrupted("stopped; no release was built, and the same command starts anew")
        data = read(item.row.original_sha256, item.extension)
        row, extension = replace(item.row, sha256=item.row.original_sha256), item.extension
        if f".{extension}" not in IMAGE_EXTENSIONS:
            data, extension = _as_png(data, item), "png"
            row = replace(row, sha256=sha256_bytes(data), reencoded=True)
        path = folder / item.folder / row.sha256
        try:
            with path.open("xb") as stream:
                stream.write(data)
        except FileExistsError:
            raise VerificationError(
                f"no release was built: two candidates of class {item.folder} are one image, "
                f"{row.sha256}; the second is {row.candidate}"
            ) from None
        written.append(_Written(item, row, extension))
        bar.advance()
    return written


def _as_png(data: bytes, item: Item) -> bytes:
    from curate.images.decode import decode_trusted
    from curate.settings import ImageLimits

    try:
        # Its pixels were counted when it was taken in, by limits that only the workspace knows.
        image = decode_trusted(data, ImageLimits(max_pixels=2**31))
    except ImageRefused as refusal:
        raise VerificationError(
            f"no release was built: candidate {item.row.candidate} ({item.extension}) cannot be "
            f"re-encoded as PNG: {refusal}"
        ) from refusal
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _name_images(folder: Path, written: Sequence[_Written]) -> list[ManifestRow]:
    """Give the images their names; gives the manifest's rows, sorted by path."""
    by_content = hash_stems(one.row.sha256 for one in written)
    by_folder: dict[str, list[_Written]] = {}
    for one in written:
        by_folder.setdefault(one.item.folder, []).append(one)
    rows = []
    for name, images in by_folder.items():
        digests = [one.row.sha256 for one in images]
        stems = [one.item.stem or by_content[one.row.sha256] for one in images]
        for one, stem in zip(images, unique_stems(stems, digests), strict=True):
            path = f"{name}/{stem}.{one.extension}"
            (folder / name / one.row.sha256).rename(folder / path)
            rows.append(replace(one.row, path=path))
    return sorted(rows, key=lambda row: row.path.encode())


def _counts(rows: Sequence[ManifestRow], written: Sequence[_Written]) -> dict[str, Any]:
    # A re-encoded image is upright and has lost its metadata.
    kept = [one.item for one in written if not one.row.reencoded]
    by_class = Counter(row.path.partition("/")[0] for row in rows)
    return {
        "images": len(rows),
        "classes": len(by_class),
        "by_class": dict(sorted(by_class.items())),
        "reencoded": sum(row.reencoded for row in rows),
        "licence_unknown": sum(not parse(row.licence).redistributable for row in rows),
        "notes": dict(sorted(Counter(note for item in kept for note in item.notes).items())),
    }


def _sync(folder: Path, names: Sequence[str]) -> None:
    paths = [folder / name for name in names]
    # File systems answer many requests at once with one write of their journal: with 16 threads
    # 10,000 files took a third of the time of one after the other.
    with ThreadPoolExecutor(_SYNCING_THREADS, thread_name_prefix="sync") as pool:
        list(pool.map(_sync_file, paths))
    for inner in {path.parent for path in paths} | {folder}:
        sync_folder(inner)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _compare(target: Path, sums: Mapping[str, str]) -> None:
    """Refuse what stands at `target`, unless it is the very release with these checksums."""
    found = {
        Path(root, name).relative_to(target).as_posix()
        for root, folders, files in os.walk(target)
        for name in files + [f for f in folders if Path(root, f).is_symlink()]
    }
    same = found == set(sums) and not target.is_symlink()
    for name, digest in sums.items():
        path = target / name
        if not same or path.is_symlink() or not path.is_file() or sha256_file(path) != digest:
            raise UsageError(
                f"{printable(target)} exists and is not what this command builds; "
                "choose another version, or move it away"
            )
