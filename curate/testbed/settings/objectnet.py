"""ObjectNet (Barbu et al., NeurIPS 2019), whose folders are classes of its own.

The folder is that of the download: `images/` with class folders, and `mappings/` with the two files
that say which ImageNet classes a folder shows. Other folders are passed over. A red border of two
pixels, which marks the set as one for tests, is cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.files import printable
from curate.labels.classes import fold
from curate.release.layout import LabelledImage, Layout
from curate.testbed.json_files import read_json
from curate.testbed.setting import Asked, Part, Setting, imagenet, images_in, subset

BORDER = 2

_FOLDERS, _CLASSES = "folder_to_objectnet_label.json", "objectnet_to_imagenet_1k.json"


def opens(asked: Asked) -> Sequence[Part]:
    """Images of folders that show ImageNet classes, right if any of these is predicted."""
    folders = read_folders(asked.root / "mappings")
    items, right = [], []
    root = asked.root / "images"
    for path in images_in(root, asked.name):
        found = folders.get(path.relative_to(root).parts[0])
        if found is not None:
            items.append(LabelledImage(path, found[0]))
            right.append(found)
    if not items:
        raise UsageError(
            f"{asked.name}: no folder of {printable(root)} is one of the {len(folders)} that "
            f"{_CLASSES} gives ImageNet classes"
        )
    together = {wnid: group for group in folders.values() for wnid in group}
    space = subset(frozenset(together), asked.name)
    layout = Layout(root, tuple(items))
    return [
        Part(
            "objectnet-1.0-beta",
            layout,
            space,
            tuple(right),
            together,
            border=BORDER,
            published=(113, 18_514),
        )
    ]


def read_folders(mappings: Path) -> dict[str, tuple[str, ...]]:
    """From a folder of ObjectNet to the ImageNet classes that it shows.

    Args:
        mappings: the folder with both files.

    Raises:
        UsageError: a file that cannot be read, or a name that means no class.
    """
    names, classes = _texts(mappings / _FOLDERS), _texts(mappings / _CLASSES)
    where = printable(mappings / _CLASSES)
    found: dict[str, tuple[str, ...]] = {}
    seen: dict[str, str] = {}
    for folder, name in names.items():
        if name in classes:
            found[folder] = tuple(_class(one, where) for one in classes[name].split(";"))
            for wnid in found[folder]:
                if (other := seen.setdefault(wnid, folder)) != folder:
                    raise UsageError(f"{where}: both {other!r} and {folder!r} show {wnid}")
    if not found:
        raise UsageError(f"{where} and {_FOLDERS} have no class in common")
    return found


def _texts(path: Path) -> Mapping[str, str]:
    told: Any = read_json(path)
    if not isinstance(told, dict) or not all(isinstance(one, str) for one in told.values()):
        raise UsageError(f"{printable(path)}: expected an object of texts")
    return told


def _class(text: str, where: str) -> str:
    """The class that all names of a text, with commas between, are those of."""
    text = text.strip()
    parts = {fold(one) for one in text.split(",")}
    fitting = [item.wnid for item in imagenet() if parts == {fold(one) for one in item.names}]
    return fitting[0] if len(fitting) == 1 else imagenet().match(text, where=where).wnid


SETTING = Setting(
    ("objectnet",), "ObjectNet: the download's folder, with images/ and mappings/", opens
)
