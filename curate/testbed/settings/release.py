"""A release of `curate release build`, with its own label space."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from curate.errors import UsageError
from curate.files import printable
from curate.release.layout import (
    IMAGENET_O,
    RELEASE_RECORD,
    read_layout,
    release_label_space,
)
from curate.testbed.setting import Asked, Part, Setting, alone
from curate.testbed.settings.imagenet_o import outside


def opens(asked: Asked) -> Sequence[Part]:
    """One of either layout, or one of its splits; the column bears version and split."""
    space = release_label_space(asked.root)
    if space is None:
        raise UsageError(
            f"{asked.name}: {printable(asked.root)} is no release of `curate release build`"
        )
    path, split = asked.root / RELEASE_RECORD, ""
    if not path.is_file():
        path, split = asked.root.parent / RELEASE_RECORD, asked.root.name
    try:
        told = json.loads(path.read_bytes())
        name = "-".join(filter(None, (asked.name, printable(str(told["version"])), split)))
        layout_name = str(told["layout"])
        counts = told["counts"]
        splits = counts.get("by_split") or {}
        if not isinstance(splits, dict):
            raise TypeError("its splits are no object")
        images = splits[split] if split else counts.get("images")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{printable(path)} is no release's record; fetch it again") from error
    if not split and splits:
        raise UsageError(
            f"{asked.name}: {printable(asked.root)} has splits: name the folder of one, such as "
            f"{printable(asked.root / min(splits))}"
        )
    if layout_name == IMAGENET_O:
        part = outside(asked, space, name)
    else:
        layout = read_layout(asked.root, space)
        part = Part(name, layout, space, alone(layout))
    if not isinstance(images, int):
        return [part]
    classes = None if split else counts.get("classes")
    classes = classes if isinstance(classes, int) else len(set(part.right))
    return [replace(part, published=(classes, images))]


SETTING = Setting(
    ("release",), "a release, or one of its splits: its folder; the column bears its version", opens
)
