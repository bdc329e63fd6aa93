"""ImageNet-O (Hendrycks et al., CVPR 2021): images of something else, against validation images.

Its number is no accuracy: the AUPR of telling both apart by the confidence among its 200 classes,
images of something else being the positive ones. Guessing gives their share among all images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from curate.errors import UsageError
from curate.labels.space import LabelSpace, load_label_space
from curate.release.layout import LabelledImage, Layout
from curate.testbed.setting import Asked, Part, Setting, alone, images_in


def opens(asked: Asked) -> Sequence[Part]:
    """Any folder of images; the validation images are those of the setting `val`."""
    return [replace(outside(asked, load_label_space("imagenet-o")), published=(200, 2_000))]


def outside(asked: Asked, space: LabelSpace, name: str = "") -> Part:
    """Images of something else, and those of `val` that are of a class of a label space.

    Args:
        asked: with the folder.
        space: the label space.
        name: of the column, where it is not that of the setting.
    """
    paths = images_in(asked.root, asked.name)
    layout = Layout(asked.root, tuple(LabelledImage(path, "") for path in paths))
    val = asked.other("val")[0]
    inside = replace(val.layout, items=tuple(item for item in val.layout if item.wnid in space))
    if not len(inside):
        raise UsageError(f"{asked.name}: none of the images of val is of a class of {space.name}")
    return Part(
        name or asked.name,
        layout,
        space,
        ((),) * len(layout),
        inside=Part("val", inside, space, alone(inside)),
    )


SETTING = Setting(
    ("imagenet-o",), "ImageNet-O: any folder of images; the AUPR against the setting val", opens
)
