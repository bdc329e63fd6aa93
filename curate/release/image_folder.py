"""`metadata.jsonl`: what Hugging Face's ImageFolder reads beside the class folders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from curate.release.manifest import COLUMNS, ManifestRow, Table, tables_of

METADATA = "metadata.jsonl"

_TOLD = sorted({"file_name", "label", *COLUMNS} - {"path"})

# As `curate.files.canonical_json` writes: the names are sorted already.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def metadata_files(rows: Sequence[ManifestRow]) -> dict[str, Iterator[bytes]]:
    """The file, or one for each split, by its path within the release, piece by piece.

    That loader reads a split's own folder, and wants the names there relative to it.

    Args:
        rows: of the manifest, in their order; paths are CLASS/NAME or SPLIT/CLASS/NAME.
    """
    by_folder: dict[str, list[ManifestRow]] = {}
    for row in rows:
        by_folder.setdefault(metadata_path(row.path), []).append(row)
    return {path: metadata_jsonl(rows) for path, rows in by_folder.items()}


def metadata_jsonl(rows: Sequence[ManifestRow]) -> Iterator[bytes]:
    """One JSON object an image: `file_name` from the folder above the class folders, `label` (the
    class folder, which that loader does not add where this file stands), and the manifest's columns
    but `path`.

    Args:
        rows: of one split, or of a release without splits.
    """
    for table in tables_of(rows):
        for _, lines in metadata_lines(table):
            yield lines


def metadata_lines(table: Table) -> Iterator[tuple[str, bytes]]:
    """Some lines of the files: the path of one, and what follows in it."""
    ends = [path.split("/")[-2:] for path in table["path"]]
    columns = {
        **table,
        "file_name": ["/".join(end) for end in ends],
        "label": [folder for folder, _ in ends],
    }
    rows = zip(table["path"], *(columns[name] for name in _TOLD), strict=True)
    for path, some in groupby(rows, key=lambda row: metadata_path(row[0])):
        lines = [_encode(dict(zip(_TOLD, told, strict=True))) for _, *told in some]
        yield path, ("\n".join(lines) + "\n").encode()


def metadata_path(path: str) -> str:
    """Which of the files tells of an image."""
    return "/".join([*path.split("/")[:-2], METADATA])
