"""Which column of a list of addresses holds what, by the names that such lists use."""

from __future__ import annotations

import re
from collections.abc import Sequence

from curate.errors import UsageError
from curate.sources.protocol import clean

#: What a column may be called, in groups. Case, blanks and signs do not matter. The first group
#: that a header has something of counts: a list with `identifier` and `url` means the latter.
_NAMES: dict[str, tuple[tuple[str, ...], ...]] = {
    "url": (
        (
            "url",
            "image_url",
            "img_url",
            "photo_url",
            "original_url",
            "download_url",
            "content_url",
            "file_url",
            "access_uri",
        ),
        ("identifier",),
        ("image", "img", "link", "uri"),
    ),
    "label": (
        ("wnid", "synset", "synset_id"),
        ("label", "class", "class_name", "class_label", "category", "category_name"),
    ),
    "page": (
        ("page", "page_url"),
        ("landing_url", "foreign_landing_url", "original_landing_url", "landing_page"),
        ("references", "source_url"),
    ),
    "title": (("title",), ("caption",)),
    "author": (("author",), ("creator",), ("photographer",), ("rights_holder",), ("owner_name",)),
    "licence": (("licence",), ("license",), ("licence_name", "license_name"), ("rights",)),
    "licence_version": (("licence_version", "license_version"),),
    "licence_url": (("licence_url", "license_url"),),
    "collection": (("collection",), ("source",), ("provider",), ("dataset",), ("publisher",)),
}

#: Where two columns of one group leave it open which is meant, the list is refused: a wrong
#: address or label spoils every row.
_DECISIVE = ("url", "label")


def has_url(header: Sequence[str]) -> bool:
    """Whether a column of this header is known to hold addresses."""
    folded = {_fold(name) for name in header}
    return any(_fold(name) in folded for group in _NAMES["url"] for name in group)


def find_columns(header: Sequence[str], where: str, *, labelled: bool) -> dict[str, int]:
    """The place of each column that is understood.

    Args:
        header: the columns' names.
        where: what to call the list in errors.
        labelled: whether there must be a column of labels.

    Returns:
        Places by what they hold: url, label, page, title, author, licence, licence_version,
        licence_url, collection.

    Raises:
        UsageError: there is no column of addresses or labels, or more than one.
    """
    folded = [_fold(name) for name in header]
    found: dict[str, int] = {}
    for role, groups in _NAMES.items():
        for group in groups:
            names = {_fold(name) for name in group}
            places = [place for place, name in enumerate(folded) if name in names]
            if len(places) > 1 and role in _DECISIVE:
                told = " and ".join(repr(header[place]) for place in places)
                raise UsageError(f"{where}: {told} may both hold the {role}; rename one of them")
            if places:
                found[role] = places[0]
                break
    if "url" not in found:
        raise UsageError(
            f"{where}: no column is called url, image_url or identifier (the first row must name "
            f"the columns); the header has {_listed(header)}"
        )
    if labelled and "label" not in found:
        raise UsageError(
            f"{where}: no column is called label, class or wnid; give one label for all with "
            f"--label, or name the column so; the header has {_listed(header)}"
        )
    return found


def _fold(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())


def _listed(header: Sequence[str]) -> str:
    told = ", ".join(filter(None, (clean(name, 50) for name in header[:30]))) or "nothing"
    return told if len(header) <= 30 else f"{told}, and {len(header) - 30} more"
