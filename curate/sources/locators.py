"""What names an item in lists and in the catalogue, where its own name may be endless."""

from __future__ import annotations

from curate.files import printable, sha256_bytes

#: A longer name is cut; its hash at the end keeps it apart from others.
LONGEST_LOCATOR = 500


def locator_of(name: str) -> str:
    """A name from outside as any database, terminal and page takes it, the same each time.

    Args:
        name: an address, or a path within an archive; it may hold any bytes.

    Returns:
        Printable text of at most `LONGEST_LOCATOR` characters. Two names share one only if they
        differ in blanks around them, or in how bytes that are not text are spelt.
    """
    told = printable(name.strip()).replace("\0", "\\x00")
    if len(told) <= LONGEST_LOCATOR:
        return told
    digest = f"…{sha256_bytes(told.encode())[:32]}"
    return told[: LONGEST_LOCATOR - len(digest)] + digest
