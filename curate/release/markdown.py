"""Text from outside in a page of Markdown, where nothing of it may be markup."""

from __future__ import annotations

import re
import unicodedata

# All that begins markup somewhere: CommonMark, tables, and what GitHub and Hugging Face add (names
# after @, numbers after #, formulas, bare addresses, emoji).
# Lines never begin with such text, so signs that mean something there alone may stay.
_MARKUP = re.compile(r"([\\`*_\[\]<>#|~$&@:^]|(?<=www)\.)", re.IGNORECASE)

_ADDRESS = re.compile(r"https?://[!-;=?-~]+")

# Signs that turn the direction of what follows.
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def one_line(text: str | None) -> str:
    """A text as one line of printable signs; empty for None."""
    if text is None or text.isprintable():
        return " ".join((text or "").split())
    kept = (
        " " if unicodedata.category(sign)[0] in "CZ" else sign
        for sign in text
        if sign not in _TURNING
    )
    return " ".join("".join(kept).split())


def escaped(text: str | None) -> str:
    """A text as one line that no reader of Markdown takes for anything else."""
    return _MARKUP.sub(r"\\\1", one_line(text))


def linked(address: str | None) -> str:
    """A web address as a link; any other text as text."""
    text = one_line(address)
    return f"<{text}>" if _ADDRESS.fullmatch(text) else escaped(text)
