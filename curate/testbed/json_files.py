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
