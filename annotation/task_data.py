"""What a task holds: the data that the pages of `annotation.interface` show.

Names and definitions may come from a user's table, and votes from anybody: each is text, and
becomes HTML here alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from annotation.definitions import definition
from annotation.interface import NONE, NONE_KEY, OFFERED_KEYS, Purpose
from annotation.interface_taxonomy import entries
from annotation.interface_taxonomy import shown as plain
from curate.labels.classes import LabelClass

#: Most examples of a class on a page: one row.
EXAMPLES = 5

#: Longest name, definition and list of votes.
NAME, DEFINITION, VOTES = 200, 1500, 4000


@dataclass(frozen=True)
class Shown:
    """What a page shows of one candidate.

    Attributes:
        candidate: its key, which tells nothing of its label.
        image: address of the photo, as Label Studio takes it.
        claimed: the class or concept that it is labelled with; None on a blind page.
        examples: addresses of accepted photos of that; the first `EXAMPLES` are shown.
        boxes: where the evaluated views lie, squares, the centre first: left, top, width and
            height as parts of the photo; none where nobody knows.
        offered: the follow-up's classes in their order, see `annotation.offered`.
        votes: who said what, a line each, for an adjudicator.

    Raises:
        ValueError: no candidate or image, or a box that is not within the photo.
    """

    candidate: str
    image: str
    claimed: LabelClass | None = None
    examples: Sequence[str] = ()
    boxes: Sequence[tuple[float, float, float, float]] = ()
    offered: Sequence[LabelClass] = ()
    votes: str = ""

    def __post_init__(self) -> None:
        if not self.candidate or not self.image:
            raise ValueError("a task needs a candidate and an image")
        for box in self.boxes:
            left, top, width, height = box
            # Rounded, a view at the edge may end a little outside.
            sides = ((left, width), (top, height))
            if not all(0 <= a <= 1 and 0 < b <= 1 and a + b <= 1.001 for a, b in sides):
                raise ValueError(f"the view {box} does not lie in the photo")


def task(shown: Shown, purpose: Purpose) -> dict[str, Mapping[str, Any]]:
    """A task for `annotation.client.Client.import_tasks`.

    Args:
        shown: what the page shows.
        purpose: which page it is for; a blind one holds no label, whatever is given.

    Returns:
        `{"data": …}` with every key that the page asks for, and nothing that it does not show.

    Raises:
        ValueError: no claimed class for a page that tells one, or more classes to offer than keys.
    """
    data: dict[str, Any] = {"candidate": shown.candidate, "image": shown.image}
    if purpose == "blind":
        return {"data": data}
    if shown.claimed is None:
        raise ValueError(f"a task for {purpose} needs the class that is claimed")
    data |= {
        "claim": plain(shown.claimed.name, NAME),
        "definition": _line(_cut(definition(shown.claimed), DEFINITION)),
        "examples": _examples(shown.examples),
        "crops": _crops(shown.image, shown.boxes),
        "offered": _offered(shown.offered, shown.claimed),
    }
    if purpose == "adjudication":
        data["votes"] = "".join(map(_line, _cut(shown.votes, VOTES).splitlines()))
    return {"data": data}


def _offered(classes: Sequence[LabelClass], claimed: LabelClass) -> list[dict[str, str]]:
    if len(classes) > len(OFFERED_KEYS):
        raise ValueError(f"{len(classes)} classes to offer, and {len(OFFERED_KEYS)} keys for them")
    # One that bears the claimed one's name is told from it.
    told = entries([*classes, claimed], longest=40)
    found = [
        {"value": text, "alias": item.wnid, "hotkey": key}
        for item, text, key in zip(classes, told, OFFERED_KEYS, strict=False)
    ]
    return [*found, {"value": "none of these", "alias": NONE, "hotkey": NONE_KEY}]


def _examples(addresses: Iterable[str]) -> str:
    style = "height:72px;max-width:128px;object-fit:cover;border-radius:3px;margin:0 4px 4px 0"
    return "".join(
        f'<img alt="an accepted photo" style="{style}" src="{escape(address)}">'
        for address, _ in zip(addresses, range(EXAMPLES), strict=False)
    )


def _crops(image: str, boxes: Sequence[tuple[float, float, float, float]]) -> str:
    """The photo with the views drawn on it, closed at first; open it lies where the photo is."""
    if not boxes:
        return ""
    # A view is a square, so that its sides tell the photo's. Of the page Label Studio leaves the
    # photo this much, with its tools beside it.
    _, _, width, height = boxes[0]
    ratio = f"{height / width:.4f}"
    frame = f"aspect-ratio:{ratio};width:min(100% - 42px,(100vh - 194px)*{ratio})"
    squares = "".join(
        f'<div class="curate-{kind}" style="left:{100 * left:.2f}%;top:{100 * top:.2f}%;'
        f'width:{100 * width:.2f}%;height:{100 * height:.2f}%"></div>'
        for (left, top, width, height), kind in zip(
            boxes[::-1], ["corner"] * (len(boxes) - 1) + ["centre"], strict=True
        )
    )
    # Lazy: the photo is asked for once more only where somebody opens this.
    return (
        "<details><summary>What the models saw: is the object visible in the centre crop?"
        f'</summary><div class="curate-frame" style="{frame}">'
        f'<img alt="" loading="lazy" src="{escape(image)}">{squares}</div>'
        "<p>Yellow: the centre crop. Dashed: the four corners.</p></details>"
    )


def _line(text: str) -> str:
    return f"<p>{escape(plain(text, len(text)))}</p>" if text.strip() else ""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
