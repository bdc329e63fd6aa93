"""Pictures that stand in for missing ones: known addresses and known contents."""

from __future__ import annotations

import re
from fnmatch import translate
from pathlib import Path
from urllib.parse import unquote, urlsplit

from curate.errors import UsageError
from curate.files import printable, read_csv
from curate.settings import data_file

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Placeholders:
    """Addresses and contents that are no photo, with a word on each.

    Args:
        addresses: patterns of host and path in lower case, with * and ?, such as
            "i.imgur.com/removed.png".
        contents: SHA-256 in 64 lower-case digits.
    """

    def __init__(self, addresses: dict[str, str], contents: dict[str, str]) -> None:
        self._contents = contents
        self._notes = list(addresses.values())
        # One expression for all: it is asked twice for every image.
        self._address = re.compile("|".join(f"({translate(one)})" for one in addresses) or r"(?!)")

    @classmethod
    def load(cls, *further: Path) -> Placeholders:
        """Those that come with the project, and those of other files.

        Args:
            further: CSV files with the columns kind ("url" or "sha256"), pattern and note.

        Raises:
            UsageError: a file cannot be read, or a row is neither.
        """
        addresses: dict[str, str] = {}
        contents: dict[str, str] = {}
        for path in (data_file("placeholders.csv"), *further):
            for line, row in read_csv(path, ["kind", "pattern", "note"]):
                pattern = row["pattern"].strip().lower()
                if row["kind"] == "url" and pattern.partition("/")[0].strip("*?."):
                    addresses[pattern] = row["note"]
                elif row["kind"] == "sha256" and _SHA256.fullmatch(pattern):
                    contents[pattern] = row["note"]
                else:
                    raise UsageError(
                        f"{printable(path)}, line {line}: expected url with a host and a path, or "
                        f"sha256 with 64 hexadecimal digits, got {row['kind']!r}, {pattern!r}"
                    )
        return cls(addresses, contents)

    def by_url(self, url: str) -> str | None:
        """What an address is known to show instead of a photo; None for any other.

        Args:
            url: the address, after redirects; its port and query do not matter.
        """
        parts = urlsplit(url)
        place = f"{parts.hostname or ''}{unquote(parts.path)}".lower()
        found = self._address.match(place)
        return self._notes[found.lastindex - 1] if found and found.lastindex else None

    def by_sha256(self, sha256: str) -> str | None:
        """What a content is known to show instead of a photo; None for any other."""
        return self._contents.get(sha256)
