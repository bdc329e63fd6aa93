"""ImageNet-Sketch (Wang et al., NeurIPS 2019): drawings of all thousand classes."""

from __future__ import annotations

from collections.abc import Sequence

from curate.testbed.setting import Asked, Part, Setting, alone, class_folders, imagenet


def opens(asked: Asked) -> Sequence[Part]:
    """Class folders."""
    layout = class_folders(asked, imagenet())
    return [Part(asked.name, layout, imagenet(), alone(layout), published=(1000, 50_889))]


SETTING = Setting(("imagenet-sketch",), "ImageNet-Sketch: class folders", opens)
