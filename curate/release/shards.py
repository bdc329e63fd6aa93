"""WebDataset: archives of about equal size that are read in parallel, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from curate.files import canonical_json
from curate.progress import Bar
from curate.release.archive import PackedFile, new_archive, packed
from curate.release.hashed import HashedFile
from curate.release.packable import Packable, PackableRows, PackedImage

INDEX = "index.json"

#: The format of the index.
_FORMAT = 1

#: Images of one shard at most, and about how many bytes.
SHARD_IMAGES, SHARD_BYTES = 1000, 1_000_000_000


def balanced(images: Sequence[PackedImage], most: int) -> list[Sequence[PackedImage]]:
    """Consecutive parts whose lengths differ by one at most.

    Args:
        images: at least one.
        most: of one part; where they are large, fewer make about `SHARD_BYTES`.
    """
    by_bytes = -(-sum(image.size for image in images) // SHARD_BYTES)
    parts = min(len(images), max(-(-len(images) // most), by_bytes))
    ends = [len(images) * part // parts for part in range(parts + 1)]
    return [images[start:end] for start, end in pairwise(ends)]


def write_shards(release: Packable, folder: Path, most: int, bar: Bar) -> list[PackedFile]:
    """Write `VERSION-SPLIT-000000.tar` and so on, with `index.json`.

    An image is three members named by its candidate's key: its bytes under the extension that they
    had, `.cls` (the place of its class folder in the class map) and `.json` (its row of the
    manifest, with `label` and `class`). They are in the order of their content's SHA-256, so that
    every shard holds a mixture of the classes.

    Args:
        release: what to pack.
        folder: where to.
        most: images of one shard.
        bar: advanced by one an image.
    """
    written = []
    with release.rows(folder) as rows:
        for split, images in release.splits().items():
            mixed = sorted(images, key=lambda image: (image.sha256, image.key))
            for number, part in enumerate(balanced(mixed, most)):
                path = folder / f"{release.version}-{split}-{number:06}.tar"
                stream = _write_shard(release, rows, path, part, bar)
                written.append(packed(stream, folder, len(part), split))
    (folder / INDEX).write_bytes(canonical_json(_index(release, written), indent=2) + b"\n")
    return written


def _write_shard(
    release: Packable, rows: PackableRows, path: Path, part: Sequence[PackedImage], bar: Bar
) -> HashedFile:
    with new_archive(path) as (archive, stream):
        for image, data in release.read(part):
            wnid = release.space.wnids[image.label]
            row = rows.row(image.number) | {"label": image.label, "class": wnid}
            extension = image.path.rpartition(".")[2].lower()
            archive.add(f"{image.key}.{extension}", data)
            archive.add(f"{image.key}.cls", str(image.label).encode())
            archive.add(f"{image.key}.json", canonical_json(row))
            bar.advance()
    return stream


def _index(release: Packable, written: Sequence[PackedFile]) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "version": str(release.version),
        "reviewed": bool(release.record.get("reviewed")),
        "manifest_sha256": release.sums["manifest.parquet"],
        "label_space": release.record["label_space"]["name"],
        "classes": list(release.space.wnids),
        "images": sum(shard.images for shard in written),
        "splits": {
            split: {
                "images": sum(shard.images for shard in shards),
                "shards": [
                    {
                        "file": shard.path,
                        "images": shard.images,
                        "bytes": shard.bytes,
                        "sha256": shard.sha256,
                    }
                    for shard in shards
                ],
            }
            for split, shards in _by_split(written)
        },
    }


def _by_split(written: Sequence[PackedFile]) -> Iterator[tuple[str, list[PackedFile]]]:
    for split in sorted({str(shard.split) for shard in written}):
        yield split, [shard for shard in written if shard.split == split]
