"""ImageNet-R (Hendrycks et al., ICCV 2021): renditions of 200 classes, told apart among these."""

from __future__ import annotations

from collections.abc import Sequence

from curate.testbed.setting import Asked, Part, Setting, alone, class_folders, listed


def opens(asked: Asked) -> Sequence[Part]:
    """Class folders."""
    space = listed("imagenet-r")
    layout = class_folders(asked, space)
    return [Part(asked.name, layout, space, alone(layout), published=(200, 30_000))]


SETTING = Setting(("imagenet-r",), "ImageNet-R: class folders", opens)
