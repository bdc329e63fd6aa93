"""Versions of a release: MAJOR.MINOR.PATCH."""

from __future__ import annotations

import re
from dataclasses import dataclass

from curate.errors import UsageError

# Nine digits a part keep a version within the catalogue's 32 characters.
_PART = r"(0|[1-9][0-9]{0,8})"
_VERSION = re.compile(rf"{_PART}\.{_PART}\.{_PART}")
_LOOSE = re.compile(r"\s*[vV]?0*([0-9]{1,9})(?:\.0*([0-9]{1,9}))?(?:\.0*([0-9]{1,9}))?\s*")


@dataclass(frozen=True, order=True)
class Version:
    """A version; versions compare by number, so 0.9.0 comes before 0.10.0."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def parse_version(text: str) -> Version:
    """The version that a text spells, in the one spelling that there is.

    Args:
        text: three numbers without leading zeros, joined by dots, and nothing else.

    Raises:
        UsageError: it is spelt otherwise; the text suggests what may be meant.
    """
    if found := _VERSION.fullmatch(text):
        return Version(*map(int, found.groups()))
    hint = "write MAJOR.MINOR.PATCH, for example 0.1.0"
    if loose := _LOOSE.fullmatch(text):
        hint = f"did you mean {Version(*(int(part or 0) for part in loose.groups()))}?"
    raise UsageError(f"{text!r} is no version; {hint}")
