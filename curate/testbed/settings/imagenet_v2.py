"""ImageNetV2 (Recht et al., ICML 2019), whose folders are numbers of classes.

Sorted as text, 10 would come before 2 and nearly every class would be another one: the numbers are
taken as numbers, the places of classes in ImageNet-1k's order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from curate.errors import UsageError
from curate.files import printable
from curate.release.layout import LabelledImage, Layout
from curate.testbed.setting import Asked, Part, Setting, alone, imagenet, images_in, listed

#: How settings end that take an eighth of the classes, and what that list is called.
EIGHTH = "subsampled_class_1_8"

_NUMBER = re.compile(r"0|[1-9][0-9]{0,2}")


def opens(asked: Asked) -> Sequence[Part]:
    """Folders 0 … 999, or those of an eighth of the classes, told apart among these."""
    wnids = imagenet().wnids
    space = listed(EIGHTH) if asked.name.endswith(EIGHTH) else imagenet()
    items = []
    for path in images_in(asked.root, asked.name):
        folder = path.relative_to(asked.root).parts[0]
        if not _NUMBER.fullmatch(folder):
            raise UsageError(
                f"{asked.name}: {printable(asked.root)} holds {printable(folder)!r}, which is no "
                "folder named by a class's number, 0 … 999"
            )
        if wnids[int(folder)] in space:
            items.append(LabelledImage(path, wnids[int(folder)]))
    if not items:
        raise UsageError(f"{asked.name}: no folder of {printable(asked.root)} is of its classes")
    layout = Layout(asked.root, tuple(items))
    published = len(space), 10 * len(space)
    return [Part(asked.name, layout, space, alone(layout), published=published, each=10)]


SETTING = Setting(
    (
        "imagenetv2-matched-frequency-format-val",
        "imagenetv2-threshold-0.7-format-val",
        "imagenetv2-top-images-format-val",
        f"imagenetv2-matched-frequency-format-val_{EIGHTH}",
    ),
    "ImageNetV2: folders 0 … 999",
    opens,
)
