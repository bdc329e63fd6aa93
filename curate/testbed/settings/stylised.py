"""Stylised ImageNet (Geirhos et al., ICLR 2019), or other pictures that took on another style."""

from __future__ import annotations

from collections.abc import Sequence

from curate.testbed.setting import Asked, Part, Setting, alone, class_folders, imagenet


def opens(asked: Asked) -> Sequence[Part]:
    """Class folders, as ImageFolder has them."""
    layout = class_folders(asked, imagenet())
    return [Part(asked.name, layout, imagenet(), alone(layout), published=(1000, 50_000), each=50)]


SETTING = Setting(("stylized_imagenet",), "stylised images: class folders", opens)
