"""What to call classes and classifiers on a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from curate.labels.space import LabelSpace


def display_names(space: LabelSpace) -> dict[str, str]:
    """What to call each class on a page, by id, in the label space's order.

    Two classes of one name (crane, maillot) are told apart: by the name made for that where there
    is one, else by the id.
    """
    often = Counter(item.name for item in space)
    names = {}
    for item in space:
        names[item.wnid] = item.name
        if often[item.name] > 1:
            told = item.clip_name if item.clip_name and often[item.clip_name] == 0 else None
            names[item.wnid] = told or f"{item.name} ({item.wnid})"
    return names


def public_name(model: str) -> str:
    """A model's name without the folders of this machine that a checkpoint's files lie in."""
    if not model.startswith("checkpoint/"):
        return model
    path, _, query = model.removeprefix("checkpoint/").rpartition("?")
    parts = [part.partition("=") for part in query.split("&")]
    told = "&".join(f"{k}={PurePath(v).name if k == 'labels' else v}" for k, _, v in parts)
    return f"checkpoint/{PurePath(path).name}?{told}"


def short_names(models: Sequence[str]) -> list[str]:
    """Names short enough for a caption ("lite0"); public names where that is ambiguous."""
    public = [public_name(model) for model in models]
    shorts = [
        name.partition("/")[2].rpartition("?")[0] or name.partition("/")[2] for name in public
    ]
    shorts = [
        short.removeprefix("efficientnet_") if name.startswith("lite/") else short
        for name, short in zip(public, shorts, strict=True)
    ]
    return shorts if len(set(shorts)) == len(shorts) else public
