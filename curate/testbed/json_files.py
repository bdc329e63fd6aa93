"""JSON files that somebody else wrote: bounded, and told by name where they are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.files import printable

# The labels of all frames of a video set are a tenth of this.
_LARGEST = 256_000_000


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Args:
        path: the file.

    Raises:
        UsageError: it cannot be read, is too large or is no JSON.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("it is too large")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {printable(path)}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{printable(path)} is no JSON file: {error}") from error


def whole(told: Any) -> int:
    """A number of 0 or more that somebody else's JSON tells, to count or to look up by.

    Args:
        told: a JSON value: a number without a fraction, or its decimal digits as a text.

    Raises:
        ValueError: anything else; also a negative number, which would look up from the end.
    """
    if isinstance(told, str) and told.isascii() and told.isdecimal():
        return int(told)
    if isinstance(told, bool) or not isinstance(told, int | float) or told < 0 or told % 1 != 0:
        raise ValueError(f"{str(told)[:40]!r} is no number of 0 or more")
    return int(told)
