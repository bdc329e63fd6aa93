"""Parquet files that hold the images themselves, as Hugging Face's datasets read and show them."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.errors import VerificationError
from curate.files import canonical_json
from curate.progress import Bar
from curate.release.archive import PackedFile, packed
from curate.release.hashed import HashedFile
from curate.release.packable import DTYPES, Packable, PackableRows, PackedImage
from curate.release.shards import balanced

if TYPE_CHECKING:
    import pyarrow as pa

# A row group is what readers hold at once. A hundred images is what Hugging Face's viewer asks for.
_GROUP_IMAGES, _GROUP_BYTES = 100, 64_000_000


def write_parquet(release: Packable, folder: Path, most: int, bar: Bar) -> list[PackedFile]:
    """Write `data/SPLIT-00000-of-00001.parquet` and so on, images in the order of their paths.

    The columns are `image` (bytes and path), `label` (the place of the class folder in the class
    map) and those of the manifest. The schema says so in Hugging Face's terms as well.

    Args:
        release: what to pack.
        folder: where to.
        most: images of one file.
        bar: advanced by one an image.
    """
    (folder / "data").mkdir()
    schema = _schema(release)
    written = []
    with release.rows(folder) as rows:
        for split, images in release.splits().items():
            parts = balanced(images, most)
            for number, part in enumerate(parts):
                path = folder / "data" / f"{split}-{number:05}-of-{len(parts):05}.parquet"
                with HashedFile(path, apart=True) as stream:
                    _write_file(release, rows, stream, schema, part, bar)
                written.append(packed(stream, folder, len(part), split))
    return written


def _write_file(
    release: Packable,
    rows: PackableRows,
    stream: HashedFile,
    schema: pa.Schema,
    part: Sequence[PackedImage],
    bar: Bar,
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    read = release.read(part)
    # Photos are compressed already, and the smallest and the largest of them say nothing.
    plain = [name for name in schema.names if name != "image"]
    compression = dict.fromkeys(plain, "zstd") | {
        "image.bytes": "none",
        "image.path": "zstd",
    }
    with pq.ParquetWriter(
        stream,
        schema,
        compression=compression,
        use_dictionary=[name for name in plain if pa.types.is_string(schema.field(name).type)],
        write_statistics=plain,
    ) as writer:
        for group in _groups(part):
            columns = {
                **rows.columns([image.number for image in group]),
                "label": [image.label for image in group],
            }
            embedded = _embedded(group, read, bar)
            table = pa.Table.from_arrays(
                [
                    embedded if field.name == "image" else pa.array(columns[field.name], field.type)
                    for field in schema
                ],
                schema=schema,
            )
            writer.write_table(table, row_group_size=len(group))


def _embedded(
    group: Sequence[PackedImage], read: Iterator[tuple[PackedImage, bytes]], bar: Bar
) -> pa.StructArray:
    """The next images, put where Arrow wants them as they come: they are in memory once."""
    import pyarrow as pa

    content = pa.allocate_buffer(sum(image.size for image in group))
    room, ends = memoryview(content).cast("B"), array("i", [0])
    for image in group:
        _, data = next(read)
        if len(data) != image.size:
            raise VerificationError(f"{image.path!r} changed while it was packed; run again")
        room[ends[-1] : ends[-1] + len(data)] = data
        ends.append(ends[-1] + len(data))
        bar.advance()
    buffers = [None, pa.py_buffer(ends), content]
    images = pa.Array.from_buffers(pa.binary(), len(group), buffers, null_count=0)
    paths = pa.array([image.path for image in group], pa.string())
    return pa.StructArray.from_arrays([images, paths], ["bytes", "path"])


def _groups(part: Sequence[PackedImage]) -> Iterator[list[PackedImage]]:
    group: list[PackedImage] = []
    size = 0
    for image in part:
        if group and (len(group) == _GROUP_IMAGES or size + image.size > _GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(image)
        size += image.size
    yield group


def _schema(release: Packable) -> pa.Schema:
    import pyarrow as pa

    own = [
        pa.field("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        pa.field("label", pa.int64()),
    ]
    # Hugging Face's schemas know no columns that must not be empty.
    fields = own + [
        field.remove_metadata().with_nullable(True)
        for field in release.schema
        if field.name not in ("image", "label")
    ]
    features: dict[str, Any] = {
        "image": {"_type": "Image"},
        "label": {"names": list(release.space.wnids), "_type": "ClassLabel"},
    }
    for field in fields[len(own) :]:
        features[field.name] = {"dtype": DTYPES[str(field.type)], "_type": "Value"}
    about = {
        # In the order of the columns, not sorted: some readers take theirs from here.
        "huggingface": json.dumps({"info": {"features": features}}),
        "curate": canonical_json(release.record).decode(),
    }
    return pa.schema(fields, metadata=about)
