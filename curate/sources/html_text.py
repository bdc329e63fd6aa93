"""The text that a piece of HTML shows."""

from __future__ import annotations

from html.parser import HTMLParser

from curate.sources.protocol import clean

#: Longer HTML is cut before it is read.
_LONGEST = 100_000

_UNSEEN = frozenset(("script", "style", "template"))
_BREAKS = frozenset(("br", "p", "div", "li", "td", "th", "tr", "dd", "dt", "hr"))


def html_text(html: str) -> tuple[str | None, str | None]:
    """What a reader sees of a piece of HTML, and where its first link leads.

    Args:
        html: as an API gives it; tags may be left open, entities are resolved.

    Returns:
        The text in one line, and the first http or https address that a link leads to; None for
        what is not there.
    """
    reader = _Reader()
    reader.feed(html[:_LONGEST])
    reader.close()
    return clean(" ".join("".join(reader.parts).split())), clean(reader.link)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.link: str | None = None
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN:
            self._unseen += 1
        if tag in _BREAKS:
            self.parts.append(" ")
        if tag == "a" and self.link is None:
            target = (dict(attrs).get("href") or "").strip()
            if target.startswith("//"):
                target = f"https:{target}"
            if target.startswith(("http://", "https://")):
                self.link = target

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN and self._unseen:
            self._unseen -= 1
        if tag in _BREAKS:
            self.parts.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.parts.append(data)
