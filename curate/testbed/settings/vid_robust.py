"""ImageNet-Vid-Robust (Shankar et al., ICCV 2021): frames of videos, and those around them.

The folder is that of the download: `metadata/pmsets.json` names the neighbours of each anchor,
`metadata/labels.json` the classes of each frame, as numbers; `misc/imagenet_vid_class_index.json`
and `misc/wnid_map.json` say which ImageNet classes they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from curate.errors import UsageError
from curate.files import printable
from curate.release.layout import LabelledImage, Layout
from curate.testbed.json_files import read_json, whole
from curate.testbed.setting import Asked, Part, Setting, imagenet, subset


def opens(asked: Asked) -> Sequence[Part]:
    """Anchors and their neighbours, each frame once."""
    metadata = asked.root / "metadata"
    sets, labels = read_json(metadata / "pmsets.json"), read_json(metadata / "labels.json")
    groups = read_classes(asked.root / "misc")
    try:
        anchors = {str(one): [str(frame) for frame in near] for one, near in sets.items()}
        frames = list(dict.fromkeys([*anchors, *(f for near in anchors.values() for f in near)]))
        right = [_right(groups, labels[frame]) for frame in frames]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{asked.name}: {printable(metadata)}: pmsets.json and labels.json do not go together "
            f"({type(error).__name__}: {printable(str(error))[:80]})"
        ) from error
    together = {wnid: group for group in groups.values() for wnid in group}
    return [
        frames_part(
            "imagenet-vid-robust", asked.root, frames, right, anchors, together, (30, 1_109)
        )
    ]


def frames_part(
    name: str,
    root: Path,
    frames: Sequence[str],
    right: Sequence[tuple[str, ...]],
    anchors: dict[str, list[str]],
    together: dict[str, tuple[str, ...]],
    published: tuple[int, int],
) -> Part:
    """The part that frames make.

    Args:
        name: of the setting; the columns add _pm0 and _pm10.
        root: the folder that they lie in.
        frames: path of each within it, with slashes.
        right: of each, the ids that count as right.
        anchors: from an anchor to its neighbours.
        together: from a class to all that count as right with it.
        published: classes and anchors.

    Raises:
        UsageError: no anchor, a path that leaves the folder, or a frame that is absent.
    """
    if not anchors:
        raise UsageError(f"{name}: {printable(root)} names no anchor")
    rows = {frame: row for row, frame in enumerate(frames)}
    items = []
    for frame, ids in zip(frames, right, strict=True):
        parts = PurePosixPath(frame).parts
        if not parts or ".." in parts or parts[0] == "/":
            raise UsageError(f"{name}: {printable(frame)!r} is no path within the folder")
        path = root.joinpath(*parts)
        if path.is_symlink() or not path.is_file():
            raise UsageError(f"{name}: {printable(path)} is named but not there")
        items.append(LabelledImage(path, ids[0] if ids else ""))
    return Part(
        name,
        Layout(root, tuple(items)),
        subset(frozenset(together), name),
        tuple(right),
        together,
        neighbours={rows[one]: tuple(rows[f] for f in near) for one, near in anchors.items()},
        published=published,
    )


def read_classes(misc: Path) -> dict[int, tuple[str, ...]]:
    """From the number of a class of videos to the ImageNet classes that it merges.

    Args:
        misc: the folder with both files.

    Raises:
        UsageError: they cannot be read, or name a class that ImageNet-1k lacks.
    """
    index, pairs = misc / "imagenet_vid_class_index.json", misc / "wnid_map.json"
    numbers, merged = read_json(index), read_json(pairs)
    try:
        place = {str(told[0]): whole(number) for number, told in numbers.items()}
        found: dict[int, list[str]] = {}
        for wnid, video in merged.items():
            found.setdefault(place[str(video)], []).append(str(wnid))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise UsageError(f"{printable(pairs)} and {index.name} do not go together") from error
    for wnids in found.values():
        for wnid in wnids:
            if wnid not in imagenet():
                raise UsageError(
                    f"{printable(pairs)}: {printable(wnid)!r} is no class of imagenet-1k"
                )
    return {number: tuple(sorted(wnids)) for number, wnids in found.items()}


def _right(groups: dict[int, tuple[str, ...]], labels: Any) -> tuple[str, ...]:
    """All ids that count as right for a frame, which may show several classes."""
    numbers = labels if isinstance(labels, list) else [labels]
    found = tuple(dict.fromkeys(wnid for one in numbers for wnid in groups[whole(one)]))
    if not found:
        raise ValueError("a frame without a class")
    return found


SETTING = Setting(
    ("imagenet-vid-robust",),
    "ImageNet-Vid-Robust: the download's folder, with metadata/ and misc/; gives pm-0 and pm-10",
    opens,
)
