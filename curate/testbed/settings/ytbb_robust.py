"""YTBB-Robust (Shankar et al., ICCV 2021): frames of YouTube-BB videos, and those around them.

The folder holds `ytbb_videos/` and `metadata/`: which anchors people found good
(`anchor_labels.json`), which frames within ten of them similar (`pmk_labels.json`), the class of
each video (`ytbb_robustness_test_anchors_full.csv`), and the ImageNet classes that a class merges
(`rev_class_idx_map.json`, numbers by `ytbb_class_index.json`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from curate.errors import UsageError
from curate.files import printable, read_csv
from curate.testbed.json_files import read_json, whole
from curate.testbed.setting import Asked, Part, Setting, imagenet
from curate.testbed.settings.vid_robust import frames_part

#: How far a neighbour is from its anchor, in frames.
DISTANCE = 10

#: Any of these makes a frame none that must be answered like its anchor.
_UNLIKE = frozenset(
    {
        "dissimilar",
        "problematic",
        "incorrect",
        "dont know",
        "deformation",
        "background-change",
        "occlusion-increased",
        "blur-increase",
        "bad-anchor",
    }
)

# In the table of videos these two classes bear each other's number.
_SWAPPED = {22: 23, 23: 22}

_SET = (24, 2_030)


@dataclass(frozen=True)
class _Frame:
    """A frame by its clip, "<video>_<milliseconds>", and its number."""

    clip: str
    number: int

    @property
    def path(self) -> str:
        return f"{self.clip}/frame-{self.number}.jpg"


def opens(asked: Asked) -> Sequence[Part]:
    """Reviewed anchors, and the reviewed frames within ten of each."""
    metadata = asked.root / "metadata"
    try:
        anchors, near = _reviewed(metadata)
        videos = _videos(metadata / "ytbb_robustness_test_anchors_full.csv")
        index = {str(n): whole(k) for k, n in _object(metadata / "ytbb_class_index.json").items()}
        groups = _groups(metadata / "rev_class_idx_map.json")
        classes = {
            anchor: {videos[anchor.clip], *(index[name] for name in names if name in index)}
            for anchor, names in anchors.items()
        }
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{asked.name}: the files of {printable(metadata)} do not go together "
            f"({type(error).__name__}: {printable(str(error))[:80]})"
        ) from error
    together = {wnid: group for group in groups.values() for wnid in group}
    right: dict[str, tuple[str, ...]] = {}
    sets: dict[str, list[str]] = {}
    for anchor, numbers in classes.items():
        ids = tuple(dict.fromkeys(w for one in sorted(numbers) for w in groups.get(one, ())))
        frames = [one for one in near.get(anchor, ()) if one.clip == anchor.clip]
        sets[anchor.path] = [
            one.path
            for one in sorted(frames, key=lambda one: one.number)
            if 0 < abs(one.number - anchor.number) <= DISTANCE
        ]
        for path in (anchor.path, *sets[anchor.path]):
            right[path] = ids
    root = asked.root / "ytbb_videos"
    return [frames_part(asked.name, root, list(right), list(right.values()), sets, together, _SET)]


def _reviewed(metadata: Path) -> tuple[dict[_Frame, list[str]], dict[_Frame, set[_Frame]]]:
    """Good anchors with the words that people gave them, and the frames similar to each."""
    anchors = {}
    for key, words in _annotations(metadata / "anchor_labels.json").items():
        if "good" in words and not {"bad", "unsure"} & set(words):
            anchors[_frame(key)] = words
    near: dict[_Frame, set[_Frame]] = {}
    bad = set()
    for key, words in _annotations(metadata / "pmk_labels.json").items():
        first, second = (_frame(one) for one in key.split(","))
        if "bad-anchor" in words:
            bad.add(first)
        elif "similar" in words and not _UNLIKE & set(words):
            near.setdefault(first, set()).add(second)
    return {one: words for one, words in anchors.items() if one not in bad}, near


def _annotations(path: Path) -> dict[str, list[str]]:
    """From what was reviewed to the words that it was given last."""
    told = _object(path)
    words = told["labels"]
    return {
        str(row["key"]): [str(words[whole(number)]) for number in row["labels"]]
        for row in told["annotations"]
    }


def _frame(key: str) -> _Frame:
    path = PurePosixPath(key.strip())
    return _Frame(path.parent.name, int(path.stem.removeprefix("frame-")))


def _videos(path: Path) -> dict[str, int]:
    """From a clip to the number of its class."""
    found = {}
    for _, row in read_csv(path, ["ytid", "time_ms", "label"]):
        number = int(row["label"])
        found[f"{row['ytid']}_{row['time_ms']}"] = _SWAPPED.get(number, number)
    return found


def _groups(path: Path) -> dict[int, tuple[str, ...]]:
    wnids = imagenet().wnids
    found = {
        whole(number): tuple(wnids[whole(column)] for column in columns)
        for number, columns in _object(path).items()
    }
    return {number: group for number, group in found.items() if group}


def _object(path: Path) -> Mapping[str, Any]:
    told: Any = read_json(path)
    if not isinstance(told, dict):
        raise UsageError(f"{printable(path)}: expected a JSON object")
    return told


SETTING = Setting(
    ("ytbb-robust",),
    "YTBB-Robust: a folder with ytbb_videos/ and metadata/; gives pm-0 and pm-10",
    opens,
)
