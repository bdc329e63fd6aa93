"""The classes that a checkpoint itself tells of its outputs, held against those that are meant.

Training code often saves its list of classes beside the weights. Outputs in another order give
plausible numbers that are all wrong, so the list is never passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from curate.errors import LabelSpaceError
from curate.labels.space import LabelSpace

# What training code calls the list, in the order of the outputs, and the table of places.
_LISTS = ("classes", "class_names", "label_names", "labels", "wnids")
_TABLES = ("class_to_idx", "label2id")

_WNID = re.compile(r"n[0-9]{8}")


def refuse_other_classes(held: Mapping[str, Any], output: LabelSpace, where: str) -> None:
    """Refuse a checkpoint that tells other classes, or another order, than the outputs' own.

    Only ids count: names are spelt in many ways.

    Args:
        held: what `read_weights` gave.
        output: the classes of the outputs, in order.
        where: the file, for the error.

    Raises:
        LabelSpaceError: the text names the first output that differs.
    """
    for key, ids in _told(held):
        if not all(_WNID.fullmatch(wnid) or wnid in output for wnid in ids):
            continue
        if len(ids) != len(output):
            raise LabelSpaceError(
                f"{where}: its entry {key!r} tells {len(ids)} classes, but {output.name} has "
                f"{len(output)}: name the file of its classes with &labels=FILE"
            )
        for place, (told, meant) in enumerate(zip(ids, output.wnids, strict=True)):
            if told != meant:
                raise LabelSpaceError(
                    f"{where}: its entry {key!r} tells another order of classes than "
                    f"{output.name}: output {place} is {told}, not {meant}; name the file of its "
                    "classes in their order with &labels=FILE"
                )


def _told(held: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Every list of text that may be one of classes, with the name of its entry."""
    found: list[tuple[str, Sequence[Any]]] = []
    for key in _LISTS:
        value = held.get(key)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            found.append((key, value))
    for key in _TABLES:
        value = held.get(key)
        if isinstance(value, Mapping) and sorted(map(str, value.values())) == sorted(
            map(str, range(len(value)))
        ):
            places = {wnid: int(place) for wnid, place in value.items()}
            found.append((key, sorted(places, key=places.__getitem__)))
    return [
        (key, list(value))
        for key, value in found
        if value and all(isinstance(one, str) for one in value)
    ]
