"""Who made each photo and under which licence it is passed on: title, author, source, licence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from curate.licences import parse
from curate.release.manifest import ManifestRow, Table
from curate.release.markdown import escaped, linked, one_line

ATTRIBUTION = "ATTRIBUTION.md"

_SAID = ("path", "title", "author", "page", "licence", "licence_url")


def attribution(
    title: str | None,
    author: str | None,
    page: str | None,
    licence: str,
    licence_url: str | None,
) -> str:
    """Title, author, place and licence as one line of plain text.

    Args:
        title, author, page: what is known of the photo.
        licence: SPDX id, or "LicenseRef-…".
        licence_url: of the licence's text.
    """
    return ", ".join(_parts(title, author, page, licence, licence_url, one_line, one_line))


def attribution_page(rows: Sequence[ManifestRow], reviewed: bool) -> Iterator[bytes]:
    """`ATTRIBUTION.md`, piece by piece: every image of a release with its author and licence.

    Args:
        rows: of the manifest, in their order.
        reviewed: whether people have confirmed the labels.
    """
    yield attribution_head(Counter(row.licence for row in rows), reviewed)
    yield attribution_lines({name: [getattr(row, name) for row in rows] for name in _SAID})


def attribution_head(licences: Mapping[str, int], reviewed: bool) -> bytes:
    """How the page begins.

    Args:
        licences: how many images have each.
        reviewed: whether people have confirmed the labels.
    """
    return _lines(
        [
            "# Attribution" if reviewed else "# Attribution (UNREVIEWED release)",
            "",
            "Each photo has its own author and licence. Whoever passes a photo on names both. The "
            "SPDX id stands in brackets; the same stands in the manifest, a row an image.",
            "",
            "| licence | images |",
            "| --- | ---: |",
            *(f"| {escaped(name)} | {count:,} |" for name, count in sorted(licences.items())),
            "",
        ]
    )


def attribution_lines(table: Table) -> bytes:
    """Further lines of the page, one an image."""
    rows = zip(*(table[name] for name in _SAID), strict=True)
    return _lines(
        f"- {escaped(path)}: {', '.join(_parts(*said, escaped, linked))}"  # type: ignore[call-arg]
        for path, *said in rows
    )


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def _parts(
    title: str | None,
    author: str | None,
    page: str | None,
    licence: str,
    licence_url: str | None,
    text: Callable[[str | None], str],
    address: Callable[[str | None], str],
) -> list[str]:
    known = parse(licence)
    name = licence if known.id.startswith("LicenseRef-") else f"{known.name} ({known.id})"
    where = address(licence_url or known.url)
    parts = [
        f"“{text(title)}”" if one_line(title) else "untitled",
        f"by {text(author)}" if one_line(author) else "author not known",
        address(page),
        " ".join(part for part in (text(name), where) if part),
    ]
    return [part for part in parts if part]
