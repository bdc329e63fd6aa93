"""Opening a release to pack it: its files are those of its checksums and its manifest.

The folder may have come from anywhere, so nothing in it is believed: names stay within it, links
are not followed, and what differs from the checksums or the manifest is refused.
"""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.errors import UsageError
from curate.files import printable
from curate.labels.space import LabelSpace
from curate.release.layout import (
    IMAGE_EXTENSIONS,
    RELEASE_RECORD,
    is_of_host,
    release_label_space,
)
from curate.release.packable import (
    DTYPES,
    Packable,
    PackedImage,
    altered,
    manifest_values,
    read_whole,
)
from curate.release.reading import CHECKSUMS, MANIFEST, release_record
from curate.release.version import parse_version

if TYPE_CHECKING:
    import pyarrow as pa

#: What the images of a release without splits are called: it is made to evaluate with.
ONLY_SPLIT = "test"

_SUM = re.compile(r"([0-9a-f]{64})  ([^\x00-\x1f\\]+)")
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,63}")
_KEY = re.compile(r"[0-9A-Za-z_-]{1,128}")
_NEEDED = ("path", "sha256", "candidate")
_ABSENT = -1


def open_packable(root: Path) -> Packable:
    """Open a release to pack it. The images' bytes are checked as they are read.

    Raises:
        UsageError: it is no release, or one that this version cannot pack.
        VerificationError: its files are not those of its checksums and its manifest.
        StorageError: it cannot be read.
    """
    space = release_label_space(root)
    if space is None or not (root / CHECKSUMS).is_file() or not (root / MANIFEST).is_file():
        raise UsageError(
            f"{printable(root)} is no release: {RELEASE_RECORD}, {MANIFEST} or {CHECKSUMS} is "
            "missing; name a folder that curate release build made"
        )
    record = release_record(read_whole(root / RELEASE_RECORD), RELEASE_RECORD)
    version = parse_version(str(record.get("version")))
    sums = _sums(root)
    sizes = _sizes(root, sums)
    data = read_whole(root / MANIFEST)
    schema = _schema(root, data)
    images = _images(root, space, manifest_values(root, data, _NEEDED), sums, sizes)
    del data
    listed = {image.path for image in images}
    others = {path: digest for path, digest in sums.items() if path not in listed}
    for path in others:
        inner, _, name = path.rpartition("/")
        if inner and name.lower().endswith(IMAGE_EXTENSIONS):
            raise altered(root, f"{path!r} is missing from {MANIFEST}")
    release = Packable(root, version, record, space, schema, images, others, sums, sizes)
    for path in others:
        for _ in release.pieces_of(path):
            pass
    return release


def _sums(root: Path) -> dict[str, str]:
    sums = {}
    try:
        lines = read_whole(root / CHECKSUMS).decode().split("\n")
    except UnicodeDecodeError:
        raise altered(root, f"{CHECKSUMS} is no text") from None
    for number, line in enumerate(lines[:-1], 1):
        found = _SUM.fullmatch(line)
        if found is None or not _is_name(found[2]) or found[2] in sums:
            raise altered(root, f"{CHECKSUMS}, line {number}, is none of a release")
        sums[found[2]] = found[1]
    if lines[-1] or not sums:
        raise altered(root, f"{CHECKSUMS} is cut short")
    return sums


def _is_name(path: str) -> bool:
    parts = path.split("/")
    ours = path != CHECKSUMS and len(parts) <= 3
    return ours and not any(part in ("", ".", "..") for part in parts)


def _sizes(root: Path, sums: Mapping[str, str]) -> dict[str, int]:
    """The files' sizes by path; they are those of the checksums and no others."""
    # Its names are those of the checksums, each held once.
    sizes: dict[str, int] = dict.fromkeys(sums, _ABSENT)
    for folder, folders, files in os.walk(root):
        inner = Path(folder).relative_to(root).as_posix()
        for name in [*files, *(one for one in folders if Path(folder, one).is_symlink())]:
            path = name if inner == "." else f"{inner}/{name}"
            if is_of_host(path) and path not in sums:
                continue
            about = os.lstat(f"{folder}/{name}")
            if path not in sums and path != CHECKSUMS:
                raise altered(root, f"{printable(path)!r} is missing from {CHECKSUMS}")
            if not stat.S_ISREG(about.st_mode):
                raise altered(root, f"{path!r} is no regular file")
            sizes[path] = about.st_size
    if missing := [path for path, size in sizes.items() if size == _ABSENT]:
        raise altered(root, f"{len(missing)} files are missing, the first is {min(missing)!r}")
    return sizes


def _schema(root: Path, data: bytes) -> pa.Schema:
    """The types of the manifest's columns, each of which every form can hold."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(io.BytesIO(data))
    except (pa.ArrowException, OSError) as error:
        raise altered(root, f"{MANIFEST} is no Parquet file") from error
    for field in schema:
        if str(field.type) not in DTYPES:
            raise UsageError(
                f"{printable(root)}: {MANIFEST} has the column {field.name!r} of the type "
                f"{field.type}, which this version cannot pack; update curate"
            )
    if absent := [name for name in _NEEDED if name not in schema.names]:
        raise altered(root, f"{MANIFEST} lacks the column {absent[0]!r}")
    return schema


def _images(
    root: Path,
    space: LabelSpace,
    rows: Iterable[tuple[Any, ...]],
    sums: Mapping[str, str],
    sizes: Mapping[str, int],
) -> list[PackedImage]:
    labels = {wnid: number for number, wnid in enumerate(space.wnids)}
    images = []
    seen: set[Any] = set()
    # Texts that are held already are held once.
    known = {path: path for path in sums}
    for number, (path, sha256, key) in enumerate(rows):
        where = f"{MANIFEST}, row {number + 1}"
        if path not in sums or sums[path] != sha256:
            raise altered(root, f"{where}: {path!r} with this SHA-256 is missing from {CHECKSUMS}")
        outer, _, folder = path.rpartition("/")[0].rpartition("/")
        split = outer or ONLY_SPLIT
        if folder not in labels or not _SPLIT.fullmatch(split):
            raise altered(root, f"{where}: {path!r} lies in no class folder")
        if not _KEY.fullmatch(str(key)):
            raise altered(root, f"{where}: {key!r} is no candidate's key")
        if (split, key) in seen or path in seen:
            raise altered(root, f"{where}: {path!r} is there twice")
        seen |= {(split, key), path}
        split, path = known.setdefault(split, split), known[path]
        images.append(
            PackedImage(number, path, sums[path], key, split, labels[folder], sizes[path])
        )
    if not images:
        raise altered(root, f"{MANIFEST} lists no images")
    return sorted(images, key=lambda image: image.path.encode())
