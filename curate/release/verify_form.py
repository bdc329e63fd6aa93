"""Checking shards or Parquet files that a release was packed as, by the checksums beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curate.errors import CurateError, UsageError
from curate.release.contents import Seen
from curate.release.findings import Findings
from curate.release.layout import RELEASE_RECORD
from curate.release.reading import CHECKSUMS, LARGEST_TEXT, MANIFEST, release_record
from curate.release.shards import INDEX
from curate.release.verify import check_sums
from curate.release.version import parse_version

#: What the release's own card is called beside that of a form.
_CARD = "CARD.md"


def is_form(files: Mapping[str, Seen]) -> bool:
    """Whether a folder is a form that `curate release pack` makes, and no release itself."""
    return {CHECKSUMS, RELEASE_RECORD, _CARD} <= files.keys() and MANIFEST not in files


def verify_form(folder: Path, files: Mapping[str, Seen], findings: Findings) -> None:
    """Check a form, as far as that can be.

    Args:
        folder: where it lies.
        files: everything that lies in it, by path.
        findings: what is found is added here.
    """
    check_sums(folder, files, findings)
    try:
        record = release_record(_text(folder, RELEASE_RECORD), RELEASE_RECORD)
        findings.version = str(parse_version(str(record.get("version"))))
        findings.images = _images(folder, files)
        counts = record.get("counts")
        said: dict[str, Any] = counts if isinstance(counts, dict) else {}
        findings.classes = len(said.get("by_class") or ())
        if said.get("images") != findings.images:
            findings.add("record", f"{RELEASE_RECORD} counts other images than the files")
    except CurateError as error:
        findings.add("record", str(error))
    findings.warnings.append(
        "a packed form: its files were held against their checksums, and the images in them were "
        "not looked at; curate release verify does that with the release itself"
    )


def _images(folder: Path, files: Mapping[str, Seen]) -> int:
    """How many images the files say that they hold."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if INDEX in files:
            return int(json.loads(_text(folder, INDEX))["images"])
        tables = [path for path, seen in files.items() if _is_table(path, seen)]
        return sum(pq.read_metadata(folder / path).num_rows for path in tables)
    except (OSError, ValueError, LookupError, TypeError, RecursionError, pa.ArrowException):
        raise UsageError("it does not tell how many images it holds") from None


def _is_table(path: str, seen: Seen) -> bool:
    return path.startswith("data/") and path.endswith(".parquet") and not seen.fault


def _text(folder: Path, name: str) -> bytes:
    try:
        if (folder / name).stat().st_size > LARGEST_TEXT:
            raise UsageError(f"{name} is too large")
        return (folder / name).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from error
