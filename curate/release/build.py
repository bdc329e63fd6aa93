"""Building a release: a folder that stands whole under its version's name, or not at all.

Everything is written into a hidden folder beside the target, synced, and renamed at the end. The
bytes depend on the items, the record and the label space alone: no clock, no order of arrival.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.choices import Metadata
from curate.errors import UsageError, VerificationError
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
from curate.release.attribution import ATTRIBUTION, attribution_head, attribution_lines
from curate.release.card import card, citation
from curate.release.croissant import CROISSANT, croissant
from curate.release.hashed import HashedFile
from curate.release.image_folder import metadata_lines
from curate.release.layout import CLASS_MAP, RELEASE_RECORD
from curate.release.manifest import (
    COLUMNS,
    ManifestParquet,
    ManifestRow,
    csv_header,
    csv_rows,
    table_of,
)
from curate.release.reading import manifest_rows
from curate.release.readme import readme
from curate.release.rows import Released, WaitingRows
from curate.release.syncing import Syncing
from curate.release.writing import Images, Item

__all__ = ["CHECKSUMS", "CITATION", "README", "Built", "Item", "build_folder"]

#: Names of the files beside the class folders that nobody but people and tools for checksums read.
README, CITATION, CHECKSUMS = "README.md", "CITATION.cff", "SHA256SUMS"


@dataclass(frozen=True)
class Built:
    """A release that stands on the disk.

    Attributes:
        path: where.
        images: what is kept in memory of each, sorted by path.
        record: what `release.json` holds.
        manifest_sha256: of `manifest.parquet`.
        checksums_sha256: of `SHA256SUMS`, which stands for the bytes of all files.
        adopted: whether the very same release stood there already.
    """

    path: Path
    images: Sequence[Released]
    record: Mapping[str, Any]
    manifest_sha256: str
    checksums_sha256: str
    adopted: bool

    @property
    def rows(self) -> list[ManifestRow]:
        """The whole manifest, read from the disk: kilobytes an image."""
        return [ManifestRow(**row) for row in manifest_rows(self.path, COLUMNS)]


def build_folder(
    target: Path,
    items: Iterable[Item],
    read: Callable[[str, str], bytes],
    record: Mapping[str, Any],
    space: LabelSpace,
    *,
    metadata: Metadata = "clean",
    further: Mapping[str, bytes] | None = None,
    expected: Mapping[str, str] | None = None,
    bar: Bar,
    stop: Stop,
) -> Built:
    """Build a release at `target`. Only one build at a time may work in the folder above it.

    Images whose format torchvision's ImageFolder does not list are re-encoded as PNG: the upright
    sRGB pixels that the filter saw, without metadata. All others keep their bytes, but for metadata
    that tell of people and places.

    Args:
        target: where the release shall stand; what a killed build left beside it is removed.
        items: at least one, no image twice in a class folder; their order does not matter. Only
            some of them are in memory at a time.
        read: gives the original bytes for (SHA-256, extension), to many threads at once.
        record: what `release.json` shall hold; counts are added under `counts`.
        space: the label space, for the class map.
        metadata: what becomes of the files' metadata (see `curate.release.content`).
        further: files to put beside the class folders, by name.
        expected: the SHA-256 that files beside the class folders must turn out to have, by name.
        bar: advanced by one an image.
        stop: asks to stop.

    Raises:
        UsageError: another release, or anything else, stands at `target`.
        VerificationError: an image cannot be re-encoded or cleaned, two items are one image, or a
            file is not what is expected.
        StorageError: the disk is full or refuses.
        Interrupted: stopped by the user; nothing is left.
    """
    with (
        storage_errors(printable(target)),
        _temporary_folder(target) as folder,
        WaitingRows(folder) as waiting,
        Syncing(folder) as syncing,
    ):
        written = Images(folder, waiting)
        written.write(items, read, metadata, bar, stop)
        images = written.named()
        # While the tables are written, the disk is busy with the images.
        syncing.begin()
        counts = _counts(images, written.notes)
        record = {
            **record,
            "metadata": metadata,
            "counts": record.get("counts", {}) | counts,
        }
        sums = {image.path: image.sha256 for image in images}
        _write_tables(folder, images, waiting, record, sums)
        reviewed = bool(record["reviewed"])
        texts = {
            CLASS_MAP: class_map(space),
            RELEASE_RECORD: canonical_json(record, indent=2) + b"\n",
            README: (card if reviewed else readme)(record, images, space),
            CITATION: citation(record, images),
            **(further or {}),
            CROISSANT: croissant(record, images, sums["manifest.csv"]),
        }
        for name, data in texts.items():
            (folder / name).write_bytes(data)
            sums[name] = sha256_bytes(data)
        listed = checksums(sums)
        (folder / CHECKSUMS).write_bytes(listed)
        made = sums | {CHECKSUMS: sha256_bytes(listed)}
        if other := [name for name, digest in (expected or {}).items() if made[name] != digest]:
            raise VerificationError(
                f"{printable(target)} was not built: {other[0]} would have other bytes than it had"
            )
        adopted = os.path.lexists(target)
        if adopted:
            _compare(target, made)
        else:
            syncing.finish()
            folder.rename(target)
        sync_folder(target.parent)
    return Built(target, images, record, made["manifest.parquet"], made[CHECKSUMS], adopted)


def _write_tables(
    folder: Path,
    images: Sequence[Released],
    waiting: WaitingRows,
    record: Mapping[str, Any],
    sums: dict[str, str],
) -> None:
    """Write the files that tell of each image, some rows at a time to each of them."""
    files: dict[str, HashedFile] = {}
    with ExitStack() as opened:

        def file(name: str) -> HashedFile:
            if name not in files:
                files[name] = opened.enter_context(HashedFile(folder / name))
            return files[name]

        about = {"curate": canonical_json(record).decode()}
        manifest = ManifestParquet(file("manifest.parquet"), about)
        file("manifest.csv").write(csv_header())
        licences = Counter(image.licence for image in images)
        file(ATTRIBUTION).write(attribution_head(licences, bool(record["reviewed"])))
        for rows in waiting.tables(images):
            file(ATTRIBUTION).write(attribution_lines(rows))
            table = table_of(rows)
            manifest.write(table)
            file("manifest.csv").write(csv_rows(table))
            for name, lines in metadata_lines(table):
                file(name).write(lines)
        manifest.close()
    sums |= {name: file.sha256 for name, file in files.items()}


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


def _counts(images: Sequence[Released], notes: Mapping[str, int]) -> dict[str, Any]:
    by_class = Counter(image.path.split("/")[-2] for image in images)
    by_split = Counter(image.split for image in images if image.split)
    return {
        "images": len(images),
        "classes": len(by_class),
        "by_class": dict(sorted(by_class.items())),
        **({"by_split": dict(sorted(by_split.items()))} if by_split else {}),
        "reencoded": sum(image.reencoded for image in images),
        "cleaned": sum(image.cleaned for image in images),
        "licence_unknown": sum(not parse(image.licence).redistributable for image in images),
        "notes": dict(sorted(notes.items())),
    }


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
