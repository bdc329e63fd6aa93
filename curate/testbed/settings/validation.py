"""ImageNet's validation images, or any others of ImageNet-1k's classes that stand for them."""

from __future__ import annotations

from collections.abc import Sequence

from curate.testbed.setting import Asked, Part, Setting, alone, class_folders, imagenet


def opens(asked: Asked) -> Sequence[Part]:
    """All thousand classes, whichever of them have images."""
    layout = class_folders(asked, imagenet())
    return [Part(asked.name, layout, imagenet(), alone(layout), published=(1000, 50_000), each=50)]


SETTING = Setting(
    ("val",), "ImageNet's validation set: class folders, or flat with --labels", opens
)
