"""What to call classes and classifiers on a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from curate.labels.space import LabelSpace


def display_names(space: LabelSpace, wnids: Collection[str] | None = None) -> dict[str, str]:
    """What to call each class on a page, by id, in the label space's order.

    Two classes of one name (crane, maillot) are told apart: by the name made for that where there
    is one, else by the id.

    Args:
        space: the classes, or concepts.
        wnids: the ids that the page speaks of; all by default.
    """
    classes = [item for item in space if wnids is None or item.wnid in wnids]
    often = Counter(item.name for item in classes)
    names = {}
    for item in classes:
        names[item.wnid] = item.name
        if often[item.name] > 1:
            told = item.clip_name if item.clip_name and often[item.clip_name] == 0 else None
            names[item.wnid] = told or f"{item.name} ({item.wnid})"
    return names


def short_names(models: Sequence[str]) -> list[str]:
    """Names short enough for a caption ("lite0"); whole names where that is ambiguous."""
    shorts = [
        name.partition("/")[2].rpartition("?")[0] or name.partition("/")[2] or name
        for name in models
    ]
    shorts = [
        short.removeprefix("efficientnet_") if name.startswith("lite/") else short
        for name, short in zip(models, shorts, strict=True)
    ]
    return shorts if len(set(shorts)) == len(shorts) else list(models)
