"""ImageNet-A (Hendrycks et al., CVPR 2021): 200 classes, told apart among these."""

from __future__ import annotations

from collections.abc import Sequence

from curate.labels.space import load_label_space
from curate.testbed.setting import Asked, Part, Setting, alone, class_folders


def opens(asked: Asked) -> Sequence[Part]:
    """Class folders."""
    space = load_label_space("imagenet-a")
    layout = class_folders(asked, space)
    return [Part(asked.name, layout, space, alone(layout), published=(200, 7_500))]


SETTING = Setting(("imagenet-a",), "ImageNet-A: class folders", opens)
