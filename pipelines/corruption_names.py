"""Which corruptions a run is about: the published ones, a user's own, and the pictures of frost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from curate.corruptions import (
    EXTRA_NAMES,
    FURTHER_NAMES,
    NAMES,
    FrostPictures,
    Scale,
    describe,
    load_file,
)
from curate.corruptions import names as all_names
from curate.errors import UnknownNameError
from curate.files import printable

#: Names that stand for several corruptions.
GROUPS = {
    "imagenet-c": NAMES,
    "extra": EXTRA_NAMES,
    "all": (*NAMES, *EXTRA_NAMES, *FURTHER_NAMES),
}


class Corruptions:
    """The corruptions of a run.

    Args:
        wanted: names, groups of names (see `GROUPS`), or Python files with a user's own; the
            fifteen of ImageNet-C where there are none.
        frost: a folder with pictures of frost; None draws it.
        folder: an ImageNet-C folder, which may hold corruptions of other names; None without one.

    Attributes:
        names: each once, in the order in which they were asked for.
        files: the user's files.
        frost: pictures of frost; None where it is drawn.

    Raises:
        UsageError: a file or a folder that cannot be used.
        UnknownNameError: no such corruption; the nearest are told.
    """

    def __init__(
        self, wanted: Sequence[str], frost: Path | None, folder: Path | None = None
    ) -> None:
        self.frost = None if frost is None else FrostPictures.open(frost)
        self.files = tuple(one for one in wanted if one.endswith(".py"))
        # Files first, so that what they hold can be named before them.
        held = {one: load_file(one) for one in self.files}
        found: dict[str, None] = {}
        for one in wanted or ("imagenet-c",):
            if one in held:
                found |= dict.fromkeys(held[one])
            elif one in GROUPS:
                found |= dict.fromkeys(GROUPS[one])
            elif one in all_names() or one in _folders(folder):
                found[one] = None
            else:
                known = (*all_names(), *GROUPS, *_folders(folder))
                raise UnknownNameError("corruption", one, known)
        self.names = tuple(found)

    @property
    def frost_kind(self) -> str:
        """Where frost comes from: "published", "procedural" or "pictures of the user's"."""
        if self.frost is None:
            return "procedural"
        return "published" if self.frost.are_published else "pictures of the user's"

    def definition(self, name: str, scale: str) -> dict[str, Any]:
        """What a record says of a corruption, see `curate.corruptions.describe`."""
        told = describe(name, scale=cast(Scale, scale), frost=self.frost)
        if Path(told["origin"]).is_absolute():
            # A folder of this machine says nothing elsewhere; the hash does.
            told["origin"] = Path(told["origin"]).name
        return told


def _folders(folder: Path | None) -> list[str]:
    """What the folders of an ImageNet-C folder are called."""
    if folder is None or not folder.is_dir():
        return []
    return [printable(one.name) for one in sorted(folder.iterdir()) if one.is_dir()]
