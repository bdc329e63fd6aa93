"""Text from anyone's file: as a number, and as an error quotes it."""

from __future__ import annotations


def number_of(text: str) -> float:
    """What a cell says, as a number.

    Python reads 7_6 as 76; no file means that by it.

    Args:
        text: without blanks around it.

    Raises:
        ValueError: it is no number.
    """
    if "_" in text:
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def first_line(error: BaseException) -> str:
    """The first line of what a library says of a broken file."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")[:200]


def short(text: str) -> str:
    """What an error quotes of foreign text."""
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
