"""What changed between two versions of a release, and which step of the version that calls for.

As Croissant's rules have it: where records changed or went, what was computed on the version before
is no longer comparable (major); where some were added, all that was there still is (minor); the
same records in other bytes are the same dataset (patch). A record is an image under a label, in a
split, under a licence. What else a manifest tells of it (scores, places, votes, authors) may be
told anew without that being another dataset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from curate.errors import UsageError
from curate.files import printable
from curate.release.version import Version

Step = Literal["major", "minor", "patch"]

#: The columns of a manifest that are compared.
COMPARED = (
    "path",
    "candidate",
    "wnid",
    "name",
    "predicted_wnid",
    "predicted_name",
    "sha256",
    "original_sha256",
    "reviewed",
    "licence",
    "split",
)

#: Why an image is no longer there, where it was not taken back.
NOT_CHOSEN = "no longer chosen"

# What makes it another record, besides the label and the class folder.
_OF_THE_RECORD = ("split", "licence", "reviewed")

# Most images that a changelog names.
_MOST_NAMED = 50

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Pair:
    """An image in both versions; `what` names what differs, for people."""

    before: Row
    after: Row
    what: str


@dataclass(frozen=True)
class Changes:
    """What differs between two versions, image by image, each in the order of the SHA-256.

    Attributes:
        added: rows of the later version.
        removed: rows of the earlier version, each with why it went.
        relabelled: the same image under another label, or taken for another class.
        changed: the same image in another split, under another licence, or reviewed only in one.
        reencoded: the same image in other bytes.
        renamed: the same bytes at another path.
        kept: how many rows say the same of the same bytes at the same path.
    """

    added: Sequence[Row] = ()
    removed: Sequence[tuple[Row, str]] = ()
    relabelled: Sequence[Pair] = ()
    changed: Sequence[Pair] = ()
    reencoded: Sequence[Pair] = ()
    renamed: Sequence[Pair] = ()
    kept: int = 0

    @property
    def step(self) -> Step:
        """The step of the version that this calls for."""
        if self.removed or self.relabelled or self.changed:
            return "major"
        return "minor" if self.added else "patch"

    def counts(self) -> dict[str, int]:
        """How many of each, without what is kept."""
        return {
            name: len(getattr(self, name))
            for name in ("added", "removed", "relabelled", "changed", "reencoded", "renamed")
        }


@dataclass
class _Image:
    before: dict[str, Row] = field(default_factory=dict)
    after: dict[str, Row] = field(default_factory=dict)


def compare(
    before: Iterable[Row], after: Iterable[Row], retracted: Mapping[str, str] | None = None
) -> Changes:
    """Compare the manifests of two versions.

    Args:
        before: rows of the earlier one, with the columns `COMPARED`; None or absent is unknown, and
            what is unknown on one side is not compared.
        after: rows of the later one.
        retracted: SHA-256 of images that were taken back, to the reason.
    """
    images: dict[str, _Image] = {}
    for row in before:
        images.setdefault(_content(row), _Image()).before[str(row["wnid"])] = row
    for row in after:
        images.setdefault(_content(row), _Image()).after[str(row["wnid"])] = row
    retracted = retracted or {}
    added: list[Row] = []
    removed: list[tuple[Row, str]] = []
    pairs: list[tuple[Row, Row]] = []
    for digest in sorted(images):
        image = images[digest]
        gone = [image.before[wnid] for wnid in sorted(image.before.keys() - image.after.keys())]
        come = [image.after[wnid] for wnid in sorted(image.after.keys() - image.before.keys())]
        pairs += [
            (image.before[wnid], image.after[wnid])
            for wnid in sorted(image.before.keys() & image.after.keys())
        ]
        both = min(len(gone), len(come))
        pairs += list(zip(gone[:both], come[:both], strict=True))
        added += come[both:]
        reason = f"retracted: {retracted[digest]}" if digest in retracted else NOT_CHOSEN
        removed += [(row, reason) for row in gone[both:]]
    kinds: dict[str, list[Pair]] = {
        name: [] for name in ("relabelled", "changed", "reencoded", "renamed")
    }
    for old, new in pairs:
        kind, what = _difference(old, new)
        if kind:
            kinds[kind].append(Pair(old, new, what))
    kept = len(pairs) - sum(map(len, kinds.values()))
    told = {name: tuple(some) for name, some in kinds.items()}
    return Changes(tuple(added), tuple(removed), **told, kept=kept)


def check_step(wanted: Version, previous: Version, changes: Changes, newest: Version) -> None:
    """Refuse a version whose step is not the one that the changes call for.

    Leaving 0.x behind is always allowed: 1.0.0 says that a dataset is meant to be relied on.

    Args:
        wanted: the version to be built.
        previous: the one that it follows.
        changes: between these two.
        newest: the highest version that there is; what is proposed lies above it.

    Raises:
        UsageError: another step is right; the text names the version.
    """
    step = changes.step
    if _step(previous, wanted) == step or (previous.major == 0 and wanted.major == 1):
        return
    told = changes.counts()
    if step == "major":
        some = ("removed", "relabelled", "changed")
        why = " and ".join(f"{name} ({told[name]:,})" for name in some if told[name])
        why = f"since {previous} images were {why}"
    elif step == "minor":
        why = f"since {previous} images were only added ({told['added']:,})"
    else:
        why = f"it holds the same records as {previous}"
    raise UsageError(
        f"release {wanted}: {why}, which makes a {step} step: build {following(newest, step)}"
    )


def following(version: Version, step: Step) -> Version:
    """The version that follows by a step."""
    if step == "major":
        return Version(version.major + 1, 0, 0)
    if step == "minor":
        return Version(version.major, version.minor + 1, 0)
    return Version(version.major, version.minor, version.patch + 1)


def changelog(version: str, previous: str, changes: Changes) -> str:
    """What a version changes, as Markdown: a heading, counts, and the images by name.

    Names are SHA-256 and class ids alone, so that nothing in it is markup.

    Args:
        version: the later one.
        previous: the earlier one.
        changes: between them.
    """
    lines = [f"### {version}, after {previous}", ""]
    told = changes.counts()
    reasons = Counter(reason for _, reason in changes.removed)
    for name, count in told.items():
        if count:
            line = f"- {name}: {count:,} {'image' if count == 1 else 'images'}"
            if name == "removed":
                line += f" ({', '.join(f'{n:,} {why}' for why, n in sorted(reasons.items()))})"
            lines.append(line)
    if not any(told.values()):
        lines.append("- the same images, described anew")
    lines.append(f"- unchanged: {changes.kept:,}")
    named = [
        *(f"- `{_short(row)}` removed; {reason}" for row, reason in changes.removed),
        *(
            f"- `{_short(pair.before)}` relabelled from `{_id(pair.before)}` to `{_id(pair.after)}`"
            for pair in changes.relabelled
        ),
    ]
    if named:
        lines += ["", *named[:_MOST_NAMED]]
        if len(named) > _MOST_NAMED:
            lines.append(f"- {len(named) - _MOST_NAMED:,} more: `curate release diff` lists them")
    return "\n".join(lines) + "\n"


def _content(row: Row) -> str:
    return str(row.get("original_sha256") or row.get("sha256") or row["path"])


def _difference(old: Row, new: Row) -> tuple[str, str]:
    if old["wnid"] != new["wnid"]:
        return "relabelled", f"{_label(old)} → {_label(new)}"
    was, is_now = _folder(old), _folder(new)
    if was and is_now and was != is_now:
        return "relabelled", f"taken for {was} → {is_now}"
    for column in _OF_THE_RECORD:
        if column in old and column in new and old[column] != new[column]:
            return "changed", f"{column}: {_told(old[column])} → {_told(new[column])}"
    if old.get("sha256") and new.get("sha256") and old["sha256"] != new["sha256"]:
        return "reencoded", "other bytes of the same image"
    if old["path"] and new["path"] and old["path"] != new["path"]:
        return "renamed", f"{printable(str(old['path']))} → {printable(str(new['path']))}"
    return "", ""


def _folder(row: Row) -> str | None:
    """The class folder; a row that is not written yet may tell it without a path."""
    if row.get("folder"):
        return str(row["folder"])
    parts = str(row["path"] or "").split("/")
    return parts[-2] if len(parts) > 1 else None


def _label(row: Row) -> str:
    name = row.get("name")
    return f"{name} ({row['wnid']})" if name else str(row["wnid"])


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _short(row: Row) -> str:
    return _content(row)[:16]


def _id(row: Row) -> str:
    return str(row["wnid"])


def _step(previous: Version, wanted: Version) -> Step:
    if wanted.major != previous.major:
        return "major"
    return "minor" if wanted.minor != previous.minor else "patch"
