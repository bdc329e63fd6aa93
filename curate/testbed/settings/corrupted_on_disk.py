"""ImageNet-C as it was published: CORRUPTION/SEVERITY/WNID, pictures that are crops already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from curate.corruptions import EXTRA_NAMES, NAMES
from curate.errors import UsageError
from curate.files import printable
from curate.testbed.corruption_errors import SEVERITIES
from curate.testbed.setting import Asked, Part, Setting, alone, class_folders, imagenet


def opens(asked: Asked) -> Sequence[Part]:
    """Every corruption that is there; one with all five severities has a mean."""
    parts = []
    for name in (*NAMES, *EXTRA_NAMES):
        there = [one for one in SEVERITIES if (asked.root / name / str(one)).is_dir()]
        for level in there:
            place = asked.root / name / str(level)
            layout = class_folders(replace(asked, root=place), imagenet())
            parts.append(
                Part(
                    f"imagenet-c.{name}.{level}_on-disk",
                    layout,
                    imagenet(),
                    alone(layout),
                    is_cut=True,
                    mean=f"imagenet-c.{name}.mean5_on-disk" if len(there) == 5 else "",
                    published=(1000, 50_000),
                    each=50,
                )
            )
    if not parts:
        raise UsageError(
            f"{asked.name}: {printable(asked.root)} holds no {NAMES[0]}/1 with class folders, nor "
            "any other corruption: name the folder above the corruptions"
        )
    return parts


SETTING = Setting(
    ("imagenet-c",), "ImageNet-C on the disk: CORRUPTION/SEVERITY/class folders", opens
)
