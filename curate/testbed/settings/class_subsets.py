"""Validation images of another set's classes alone, told apart among these.

A set of few classes is compared with them: among few, standard accuracy is higher as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from curate.errors import UsageError
from curate.files import printable
from curate.labels.space import LabelSpace, load_label_space
from curate.testbed.setting import Asked, Part, Setting, class_folders, imagenet, listed
from curate.testbed.settings.imagenet_v2 import EIGHTH

#: Sets whose classes are known without their images, and how.
KNOWN: dict[str, Callable[[str], LabelSpace]] = {
    "imagenet-a": load_label_space,
    "imagenet-o": load_label_space,
    "imagenet-r": listed,
    EIGHTH: listed,
}

#: From the name of a setting to the set whose classes it means.
NAMED = {
    "val-on-imagenet-a-classes": "imagenet-a",
    "val-on-imagenet-o-classes": "imagenet-o",
    "val-on-imagenet-r-classes": "imagenet-r",
    "val-on-objectnet-classes": "objectnet",
    "val-on-vid-robust-classes": "imagenet-vid-robust",
    "val-on-ytbb-robust-classes": "ytbb-robust",
    "val-on-release-classes": "release",
    f"val_{EIGHTH}": EIGHTH,
}


def opens(asked: Asked) -> Sequence[Part]:
    """Those of the classes of the set in the name; merged where videos merge them."""
    setting = NAMED[asked.name]
    space, together, wanted = _classes(asked, setting)
    whole = class_folders(asked, imagenet())
    items = tuple(item for item in whole if item.wnid in wanted)
    if not items:
        raise UsageError(
            f"{asked.name}: none of the {len(whole)} images of {printable(asked.root)} is of a "
            f"class of {setting}"
        )
    layout = replace(whole, items=items)
    right = tuple(together.get(item.wnid, (item.wnid,)) for item in items)
    groups = len({together.get(wnid, (wnid,)) for wnid in space.wnids})
    published = (groups, 50 * len(space)) if len(wanted) == len(space) else None
    return [Part(asked.name, layout, space, right, together, published=published, each=50)]


def _classes(
    asked: Asked, setting: str
) -> tuple[LabelSpace, dict[str, tuple[str, ...]], frozenset[str]]:
    """A set's label space, which of its classes are merged, and those whose images count."""
    if setting in KNOWN:
        space = KNOWN[setting](setting)
        return space, {}, frozenset(space.wnids)
    first = asked.other(setting)[0]
    whole = frozenset(first.space.wnids)
    if setting == "release":
        # It may have photos of some classes of its label space alone, harder or easier ones.
        return first.space, {}, frozenset(wnid for ids in first.right for wnid in ids) or whole
    # As published: ObjectNet's folders merge classes, and validation images do not.
    return first.space, {} if setting == "objectnet" else dict(first.together), whole


SETTING = Setting(
    tuple(NAMED),
    "validation images of some classes alone; ObjectNet, videos and releases are needed beside it",
    opens,
)
