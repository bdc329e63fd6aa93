"""Every error that a user may see, as one tree.

Each error is one line that says what is wrong, where, and what to do. The command line prints
that line and exits with `exit_code`; a traceback appears only with `--debug`.

    CurateError                    exit 1   the work failed, or something was found wrong
    ├── BusyError                           another command holds what this one needs
    ├── StorageError                        a disk is full, a stored file is missing or altered
    ├── VerificationError                   a check found a fault
    ├── DeviceError                         a GPU failed, or its memory is full
    ├── SourceError                         a source of images does not answer as it should
    │   └── QuotaExhausted                  it wants no further question before a time
    ├── UsageError                 exit 2   the command, a setting or an input is unusable
    │   ├── UnknownNameError                no such class, model, preset, rule …
    │   ├── AmbiguousNameError              one name, several classes
    │   ├── MissingExtraError               an optional package is not installed
    │   ├── SettingsError                   `curate.yaml` or the environment is wrong
    │   ├── WorkspaceError                  no workspace, or one that this version cannot read
    │   ├── LabelSpaceError                 a label space is malformed or does not fit a model
    │   └── WeightsError                    weights are absent, corrupt or of another architecture
    ├── ImageRefused               (data)   one image cannot be used; `reason` is from REASONS
    └── Interrupted                exit 130 stopped by the user, with state saved
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from datetime import datetime


class CurateError(Exception):
    """The root of the tree; its text is one line for the user."""

    exit_code = 1


class BusyError(CurateError):
    """Another running command holds what this one needs; the text names the holder."""


class StorageError(CurateError):
    """The disk refused, or a stored file is missing or altered."""


class VerificationError(CurateError):
    """A check found a fault."""


class DeviceError(CurateError):
    """A GPU failed or is gone, or its memory does not hold what must be computed at once."""


class SourceError(CurateError):
    """A source of images answers with an error, or in a form that is not understood."""


class QuotaExhausted(SourceError):
    """A source wants no further question before a time; a rerun after it goes on.

    Args:
        source: which one.
        until: when to come back, in UTC without zone; None where it does not say.
        detail: what it said.
    """

    def __init__(self, source: str, until: datetime | None, detail: str = "") -> None:
        self.source, self.until = source, until
        when = f"after {until:%Y-%m-%d %H:%M:%S} UTC" if until else "later"
        told = f" ({detail})" if detail else ""
        super().__init__(f"{source} wants a pause{told}; run the same command again {when}")


class UsageError(CurateError):
    """The command, a setting or an input is unusable."""

    exit_code = 2


class SettingsError(UsageError):
    """A settings file or an environment variable is wrong."""


class WorkspaceError(UsageError):
    """There is no workspace, or this version cannot read it."""


class LabelSpaceError(UsageError):
    """A label space is malformed, or does not fit a model's output."""


class WeightsError(UsageError):
    """A model's weights are absent, corrupt, or belong to another architecture."""


class UnknownNameError(UsageError, ValueError):
    """A name that is not in the list of what there is; the nearest ones are suggested.

    Args:
        kind: what was looked for, for example "class" or "model".
        name: what the user wrote.
        choices: everything that would have been accepted.
        where: the file and line that hold the name, if a file does.
        note: what to say instead where nothing is near.
    """

    def __init__(
        self, kind: str, name: str, choices: Iterable[str], *, where: str = "", note: str = ""
    ) -> None:
        self.kind, self.name = kind, name
        self.nearest = nearest(name, choices)
        place = f"{where}: " if where else ""
        hint = f"; did you mean {' or '.join(self.nearest)}?" if self.nearest else ""
        if not hint and note:
            hint = f"; {note}"
        super().__init__(f"{place}unknown {kind} {name!r}{hint}")


class AmbiguousNameError(UsageError, ValueError):
    """A name that several classes carry.

    Args:
        kind: what was looked for, for example "class".
        name: what the user wrote.
        matches: one unambiguous spelling a match, with its explanation.
        where: the file and line that hold the name, if a file does.
    """

    def __init__(self, kind: str, name: str, matches: Sequence[str], *, where: str = "") -> None:
        self.kind, self.name, self.matches = kind, name, tuple(matches)
        place = f"{where}: " if where else ""
        super().__init__(f"{place}{kind} {name!r} is ambiguous: write one of {', '.join(matches)}")


class MissingExtraError(UsageError):
    """An optional package is absent.

    Args:
        requirement: what to give to pip, for example "ray>=2.60".
        purpose: what needs it, for example "--engine ray".
    """

    def __init__(self, requirement: str, purpose: str) -> None:
        self.requirement = requirement
        super().__init__(f"{purpose} needs a package that is absent: pip install '{requirement}'")


class Interrupted(CurateError):
    """The user stopped the command; everything finished so far is saved."""

    exit_code = 130


#: Why an image is refused. The names are part of the contract: scripts filter on them.
REASONS: dict[str, str] = {
    "empty-file": "0 bytes",
    "too-many-bytes": "larger than images.max_bytes",
    "not-an-image": "the content is no image format",
    "unsupported-format": "an image format that is not on the list of accepted ones",
    "unsupported-mode": "pixels of a kind with no defined conversion to 8-bit RGB",
    "truncated": "the data ends early",
    "corrupt-data": "the data is damaged",
    "metadata-bomb": "a metadata block unpacks to more than its limit",
    "too-many-pixels": "more pixels than images.max_pixels, by the header",
    "too-small": "a side shorter than images.min_side",
    "aspect-ratio": "longer than images.max_aspect_ratio times its width, or the reverse",
    "animated": "several frames that play",
    "multi-frame": "several pages",
    "no-visible-content": "one colour, or fully transparent",
    "not-a-photo": "one bit a pixel",
    "duplicate-exact": "the same bytes are there already",
    "duplicate-pixels": "the same pixels are there already in another file",
    "duplicate-near": "nearly the same picture is there already",
    "symlink": "a symbolic link",
    "not-a-file": "a folder, a device or the like",
    "unreadable": "the file system refused to read it",
    "no-label": "no known class: the folder or the table names none",
    "in-distribution": "its concept is a class that models were trained on, or above or below one",
    "missing": "the table names a file that is not there",
    "outside": "the table names a path outside the folder",
    "malformed-record": "the source's record of it is not understood",
    "licence": "its licence is not among collect.licences",
    "retracted": "it, or a copy of it, was taken back from the releases for good",
    "placeholder": "a picture that stands in for a missing one",
    "altered": "a stored file no longer has the content it was stored with",
    "nan-logits": "a model's output for it is not a number",
}


class ImageRefused(CurateError):
    """One image cannot be used. It is counted and listed; the run goes on.

    Args:
        reason: a key of `REASONS`.
        detail: what was seen, for the list of refusals.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        if reason not in REASONS:
            raise KeyError(reason)
        self.reason = reason
        self.detail = detail or REASONS[reason]
        super().__init__(f"{reason}: {self.detail}")

    def __reduce__(self) -> tuple[type[ImageRefused], tuple[str, str]]:
        return type(self), (self.reason, self.detail)


def nearest(name: str, choices: Iterable[str], count: int = 2) -> list[str]:
    """The entries of `choices` that look most like `name`, best first, regardless of case."""
    by_folded: dict[str, str] = {}
    for choice in choices:
        by_folded.setdefault(choice.casefold(), choice)
    folded = difflib.get_close_matches(name.casefold(), list(by_folded), n=count, cutoff=0.6)
    return [by_folded[key] for key in folded]


def few(names: Sequence[str], most: int = 3) -> str:
    """The first of some names, for a message, and how many more there are; "none" of none."""
    told = ", ".join(names[:most]) or "none"
    return told if len(names) <= most else f"{told} and {len(names) - most:,} more"
