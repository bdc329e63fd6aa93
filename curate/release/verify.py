"""Checking a release against what it says of itself; it needs no workspace.

Every file is held against the checksums, both manifests against each other and against the files,
folders against the class map, rows against what a release promises: one picture once, a licence
that allows passing it on, and the word of people where the release says that they were asked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from curate.errors import CurateError, UsageError
from curate.files import candidate_key, canonical_json, csv_plain, read_csv
from curate.labels.space import LabelSpace
from curate.licences import parse
from curate.release.contents import Seen, is_inside
from curate.release.findings import Findings
from curate.release.layout import IMAGENET_A, IMAGENET_O, RELEASE_RECORD, release_label_space
from curate.release.reading import (
    CHECKSUMS,
    LARGEST_TABLE,
    LARGEST_TEXT,
    MANIFEST,
    MANIFEST_CSV,
    TOMBSTONES,
    manifest_about,
    manifest_rows,
    read_tombstones,
    release_record,
)
from curate.release.version import parse_version
from curate.sources.protocol import LOCAL_SOURCES

_SUM = re.compile(r"([0-9a-f]{64})  (.+)")
_LONGEST_LINE = 8192


def verify_release(
    texts: Path,
    files: Mapping[str, Seen],
    findings: Findings,
    retracted: Mapping[str, tuple[str, str]],
) -> None:
    """Check a release.

    Args:
        texts: the folder that holds its `contents.TEXTS`.
        files: everything that lies in it, by path.
        findings: what is found is added here.
        retracted: SHA-256 of images that were taken back since, to date and reason.
    """
    record = _record(texts, files, findings)
    space = _class_map(texts, findings) if record else None
    check_sums(texts, files, findings)
    _check_pixels(files, findings, reviewed=bool(record.get("reviewed")))
    images = {path: seen for path, seen in files.items() if seen.is_image and not seen.fault}
    findings.images = len(images)
    check = _Rows(images, record, space, findings, {**retracted}, _own_tombstones(texts, findings))
    try:
        for row, told in _both(texts, findings):
            check.row(row, told)
    except CurateError as error:
        findings.add("manifest", str(error))
    check.end()
    _check_about(texts, record, findings)


def _record(texts: Path, files: Mapping[str, Seen], findings: Findings) -> dict[str, Any]:
    record: dict[str, Any] = {}
    path = texts / RELEASE_RECORD
    try:
        if path.stat().st_size > LARGEST_TEXT:
            raise UsageError(f"{RELEASE_RECORD} is too large")
        record = release_record(path.read_bytes(), RELEASE_RECORD)
        findings.version = str(parse_version(str(record.get("version"))))
    except OSError:
        findings.add("record", f"there is no readable {RELEASE_RECORD}")
    except CurateError as error:
        findings.add("record", str(error))
    if MANIFEST in files:
        findings.manifest_sha256 = files[MANIFEST].sha256 or None
    return record


def _class_map(texts: Path, findings: Findings) -> LabelSpace | None:
    try:
        space = release_label_space(texts)
        if space is None:
            findings.add("record", "there is no class map")
        return space
    except CurateError as error:
        findings.add("record", str(error))
        return None


def _own_tombstones(texts: Path, findings: Findings) -> dict[str, tuple[str, str]]:
    path = texts / TOMBSTONES
    if not path.is_file():
        return {}
    try:
        return read_tombstones(path)
    except CurateError as error:
        findings.add("record", str(error))
        return {}


def check_sums(texts: Path, files: Mapping[str, Seen], findings: Findings) -> None:
    """Hold every file against `SHA256SUMS`; the arguments are those of `verify_release`."""
    named: set[str] = set()
    try:
        for number, line in _lines(texts / CHECKSUMS):
            found = _SUM.fullmatch(line)
            if found is None or not is_inside(found[2]):
                findings.add("checksums", f"line {number} of {CHECKSUMS} names no file")
                continue
            digest, path = found.groups()
            if path in named:
                findings.add("checksums", f"{CHECKSUMS} names {path} twice")
                continue
            seen = files.get(path)
            if seen is None:
                findings.add("missing", path)
                continue
            named.add(path)
            if not seen.fault and seen.sha256 != digest:
                findings.add("altered", path)
    except OSError:
        findings.add("checksums", f"there is no readable {CHECKSUMS}")
    except (UnicodeDecodeError, ValueError) as error:
        findings.add("checksums", f"{CHECKSUMS} is no list of checksums: {error}")
    for path in sorted(files.keys() - named - {CHECKSUMS}):
        findings.add("stranger", f"{path}{_faulty(files[path])}")
    if links := sum(files[path].linked for path in named):
        findings.warnings.append(
            f"links to files elsewhere, as caches of datasets have them: {links:,}; what they lead "
            "to was read and held against the checksums"
        )
    for path in sorted(files.keys() & (named | {CHECKSUMS})):
        seen = files[path]
        if seen.fault:
            kind = "unreadable" if seen.fault == "unreadable" else "altered"
            findings.add(kind, f"{path}{_faulty(seen)}")


def _faulty(seen: Seen) -> str:
    fault = seen.fault or ("symlink" if seen.linked else "")
    return f" ({fault})" if fault else ""


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    if path.stat().st_size > LARGEST_TABLE:
        raise ValueError("it is too large")
    with path.open(encoding="utf-8", newline="\n") as stream:
        number = 0
        while line := stream.readline(_LONGEST_LINE):
            number += 1
            if not line.endswith("\n"):
                raise ValueError(f"line {number} has no end")
            yield number, line[:-1]


def _check_pixels(files: Mapping[str, Seen], findings: Findings, *, reviewed: bool) -> None:
    """Whether images decode, and whether each is there once.

    Nobody has looked which of several weak labels is right; people who have accept one.
    """
    first: dict[tuple[str, str], str] = {}
    labels: dict[str, str] = {}
    several = 0
    for path, seen in sorted(files.items()):
        if not seen.is_image or seen.fault:
            continue
        if seen.refusal:
            findings.add("not-an-image", f"{path}: {seen.refusal}")
        folder = path.rpartition("/")[0]
        label = folder.rpartition("/")[2]
        if (other := first.setdefault((seen.sha256, label), path)) != path:
            findings.add("duplicate", f"{path} is {other} again")
        elif labels.setdefault(seen.sha256, label) != label:
            several += 1
            if reviewed:
                findings.add("duplicate", f"{path} stands under {labels[seen.sha256]} as well")
    if several and not reviewed:
        findings.warnings.append(
            f"images that stand under several labels: {several:,}; nobody has looked which is right"
        )


def _both(texts: Path, findings: Findings) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """The rows of the manifest with those of its CSV."""
    if not (texts / MANIFEST).is_file():
        raise UsageError(f"there is no {MANIFEST}")
    rows = manifest_rows(texts)
    if not (texts / MANIFEST_CSV).is_file():
        findings.add("manifest", f"there is no {MANIFEST_CSV}")
        for row in rows:
            yield row, {}
        return
    if (texts / MANIFEST_CSV).stat().st_size > LARGEST_TABLE:
        raise UsageError(f"{MANIFEST_CSV} is too large")
    for row, told in zip_longest(rows, read_csv(texts / MANIFEST_CSV, ("path",))):
        if row is None or told is None:
            raise UsageError(f"{MANIFEST} and {MANIFEST_CSV} have different numbers of rows")
        yield row, told[1]


def _as_told(value: Any) -> str:
    """A value as the manifest in CSV tells it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Rows:
    """Holds rows of the manifest against files, folders and promises."""

    def __init__(
        self,
        images: Mapping[str, Seen],
        record: Mapping[str, Any],
        space: LabelSpace | None,
        findings: Findings,
        retracted: Mapping[str, tuple[str, str]],
        own: Mapping[str, tuple[str, str]],
    ) -> None:
        self._images, self._record, self._space = images, record, space
        self._findings, self._retracted, self._own = findings, retracted, own
        self._listed: set[str] = set()
        self._by_class: Counter[str] = Counter()
        self._unknown = self._taken_back = 0
        self._depths: set[int] = set()

    def row(self, row: Mapping[str, Any], told: Mapping[str, str]) -> None:
        """Check one row."""
        add = self._findings.add
        path = _text(row, "path")
        if told:
            differing = [
                name for name in row if csv_plain(told.get(name, "\0")) != _as_told(row[name])
            ]
            if differing or len(told) != len(row):
                names = ", ".join(differing[:3]) or "columns"
                add("manifest", f"{path}: {MANIFEST} and {MANIFEST_CSV} differ ({names})")
        if path in self._listed:
            add("manifest", f"{path} has two rows")
            return
        self._listed.add(path)
        seen = self._images.get(path)
        if seen is None:
            add("manifest", f"{path} is no image of this release")
        else:
            if seen.sha256 != row.get("sha256"):
                add("manifest", f"{path} has other bytes than its row says")
            if seen.size and seen.size != (row.get("width"), row.get("height")):
                add("manifest", f"{path} has another size than its row says")
        self._folder(row, path)
        self._promises(row, path)

    def _folder(self, row: Mapping[str, Any], path: str) -> None:
        parts, split = path.split("/"), row.get("split")
        self._depths.add(len(parts))
        outlier = self._record.get("layout", IMAGENET_A) == IMAGENET_O
        wanted = _text(row, "predicted_wnid" if outlier else "wnid")
        expected = [split, wanted] if split else [wanted]
        if parts[:-1] != expected:
            self._findings.add("layout", f"{path} belongs into {'/'.join(map(str, expected))}")
        elif self._space is not None and wanted not in self._space:
            self._findings.add("layout", f"{path}: {wanted} is not in the class map")
        self._by_class[wanted] += 1

    def _promises(self, row: Mapping[str, Any], path: str) -> None:
        add = self._findings.add
        original, wnid = _text(row, "original_sha256"), _text(row, "wnid")
        if candidate_key(original, wnid) != row.get("candidate"):
            add("manifest", f"{path}: its key is not that of its image and label")
        if not (row.get("reencoded") or row.get("cleaned")) and original != row.get("sha256"):
            add("manifest", f"{path}: its bytes are said to be the original ones, and are not")
        if not parse(row.get("licence")).redistributable:
            if row.get("source") in LOCAL_SOURCES:
                self._unknown += 1
            else:
                add("licence", f"{path}: {row.get('licence')}")
        reviewed = bool(self._record.get("reviewed"))
        if reviewed and not (row.get("reviewed") and row.get("consensus") == "accepted"):
            add("consensus", f"{path}: {row.get('consensus') or 'nobody has confirmed its label'}")
        if not reviewed and row.get("reviewed"):
            add("manifest", f"{path} is marked as reviewed in a release that is not")
        hashes = {original, _text(row, "sha256")}
        if hashes & self._own.keys():
            add("retracted", path)
        elif gone := sorted(hashes & self._retracted.keys()):
            self._taken_back += 1
            day, reason = self._retracted[gone[0]]
            self._findings.warnings.append(f"{path} was taken back on {day} ({reason})")

    def end(self) -> None:
        """Check what only all rows tell."""
        findings, record = self._findings, self._record
        findings.classes = len(self._by_class)
        for path in sorted(self._images.keys() - self._listed):
            findings.add("unlisted", path)
        if len(self._depths) > 1:
            findings.add("layout", "some class folders lie within splits, and some do not")
        counts = record.get("counts")
        counts = counts if isinstance(counts, dict) else {}
        said = (counts.get("images"), counts.get("by_class"))
        if record and said != (len(self._listed), dict(sorted(self._by_class.items()))):
            findings.add("record", f"{RELEASE_RECORD} counts other images than the manifest")
        if self._unknown:
            findings.warnings.append(
                "images from the makers' own folders without a licence that allows passing them "
                f"on: {self._unknown:,} of {len(self._listed):,}"
            )
        if record and not record.get("reviewed"):
            findings.warnings.append("unreviewed: nobody has confirmed these labels")
        if self._taken_back:
            findings.warnings.append(
                f"images that were taken back: {self._taken_back:,}; use a later version"
            )


def _check_about(texts: Path, record: Mapping[str, Any], findings: Findings) -> None:
    """The manifest holds the record too, for those who have nothing else."""
    if not record:
        return
    try:
        about = manifest_about(texts)
    except CurateError:
        return
    if about is not None and about != canonical_json(record):
        findings.add("record", f"{RELEASE_RECORD} is not the record that {MANIFEST} holds")


def _text(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    return value if isinstance(value, str) else ""
