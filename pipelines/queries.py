"""What to search for, class by class."""

from __future__ import annotations

from collections.abc import Sequence

from curate.labels.classes import LabelClass

#: Sources that are asked for a taxon instead of words.
TAXON_SOURCES = frozenset(("inaturalist",))


def queries_of(item: LabelClass, source: str) -> list[tuple[str, dict[str, str]]]:
    """What a source is asked to find a class.

    A source of living things is asked for the taxa of the class. The others are asked for its
    search terms where the label space has them; else for the name that tells it from others, then
    for its names. Scientific names come last: few people write them, but those who do are right.

    Args:
        item: the class.
        source: the source's name.

    Returns:
        Questions with their options in the order in which they are asked; none where the source
        cannot know the class.
    """
    if source in TAXON_SOURCES:
        ranks = item.taxon_ranks or ("",) * len(item.scientific_names)
        return [
            (name, {"taxon_rank": rank} if rank else {})
            for name, rank in zip(item.scientific_names, ranks, strict=False)
        ]
    words: Sequence[str] = item.queries or tuple(filter(None, (item.clip_name, *item.names)))
    first = {text.casefold(): text for text in (*words, *item.scientific_names)}
    return [(text, {}) for text in first.values()]
