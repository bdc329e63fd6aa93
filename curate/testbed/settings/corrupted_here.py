"""The corruptions of ImageNet-C (Hendrycks and Dietterich, ICLR 2019), made in memory.

They are made where the camera would have made them, on the whole photo, before it is resized and
cut; no JPEG comes after them. `curate robustness corruptions` can do otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from curate.corruptions import EXTRA_NAMES, NAMES
from curate.testbed.corruption_errors import SEVERITIES
from curate.testbed.setting import Asked, Part, Setting
from curate.testbed.settings.validation import opens as clean

PREFIX = "imagenet-c."


def opens(asked: Asked) -> Sequence[Part]:
    """One severity, or all five and their mean."""
    corruption, _, severity = asked.name.removeprefix(PREFIX).partition(".")
    (base,) = clean(asked)
    levels = [int(severity)] if severity else list(SEVERITIES)
    return [
        replace(
            base,
            name=f"{PREFIX}{corruption}.{level}_in-memory",
            corruption=(corruption, level),
            mean="" if severity else f"{PREFIX}{corruption}.mean5_in-memory",
        )
        for level in levels
    ]


SETTING = Setting(
    tuple(
        f"{PREFIX}{name}{level}"
        for name in (*NAMES, *EXTRA_NAMES)
        for level in ("", *(f".{one}" for one in SEVERITIES))
    ),
    "a corruption of validation images in memory, at one severity (imagenet-c.fog.3) or all five "
    "(imagenet-c.fog)",
    opens,
)
