"""What hits are made of, taken from answers that may hold anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator

from curate.errors import UnknownNameError
from curate.files import printable, sha256_bytes
from curate.sources.protocol import LONGEST_TEXT, Query, clean


def _whole(text: str) -> str:
    text = text.strip()
    if not text or len(text) > LONGEST_TEXT or "\0" in text or printable(text) != text:
        raise ValueError("empty, too long, or with characters that no address has")
    return text


#: An id or an address as a record holds it; never cut, since half an address leads elsewhere.
Whole = Annotated[str, AfterValidator(_whole)]


def web_page(address: str | None) -> str | None:
    """The address of a page that people may follow; None for any other text."""
    if address and address.startswith("//"):
        address = f"https:{address}"
    if not address or not address.lower().startswith(("http://", "https://")):
        return None
    return clean(address)


def unnamed(record: Any) -> str:
    """A name for a record without a readable id, which depends on its content alone."""
    content = json.dumps(record, sort_keys=True).encode("utf-8", "backslashreplace")
    return f"unnamed-{sha256_bytes(content)[:16]}"


def options_of(query: Query, defaults: Mapping[str, str], source: str) -> dict[str, str]:
    """The options of a query by name, with the defaults of those that it leaves out.

    Raises:
        UnknownNameError: one that the source does not have.
    """
    for name, _ in query.options:
        if name not in defaults:
            has = f"it has {', '.join(defaults)}" if defaults else "it has none"
            raise UnknownNameError(f"option of {source}", name, defaults, note=has)
    return {**defaults, **dict(query.options)}
