"""A server that answers as DuckDuckGo's image search does, from a collection of its own."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tests.sources.answering import AnsweringServer, Reply
from tests.sources.servers import Request

PAGE = 100


def image(number: int, **changed: Any) -> dict[str, Any]:
    """One record; `changed` replaces fields."""
    return {
        "height": 768,
        "width": 1024,
        "image": f"https://images.example.org/{number}.jpg",
        "image_token": "aaaa",
        "source": "Bing",
        "thumbnail": f"https://thumbnails.example.org/{number}",
        "title": f"Heron {number}",
        "url": f"https://pages.example.org/{number}",
        **changed,
    }


class DuckDuckGoServer(AnsweringServer):
    """Attributes:
    images: the collection, in the order that every search finds it in.
    page: the text around the token, which stands for {}.
    """

    def __init__(self, images: list[Any], page: str = '<script>vqd="{}";</script>') -> None:
        super().__init__()
        self.images = images
        self.page = page

    def answer(self, asked: Request) -> Reply:
        words = asked.query.get("q", "")
        token = f"4-{sum(words.encode()):030}"
        if asked.path == "/":
            return Reply(f"<!DOCTYPE html><html>{self.page.format(token)}</html>")
        if asked.path != "/i.js":
            return Reply("<html>404</html>", 404)
        if asked.query.get("vqd") != token or asked.headers.get("Referer") != self.url("/"):
            return Reply("<html>403 Forbidden</html>", 403)
        skip = int(asked.query.get("s", 0))
        told: dict[str, Any] = {
            "ads": None,
            "query": words,
            "response_type": "places",
            "results": self.images[skip : skip + PAGE],
            "vqd": {words: token},
        }
        if skip + PAGE < len(self.images):
            told["next"] = f"i.js?q={quote(words)}&o=json&p=1&s={skip + PAGE}&u=bing&l=wt-wt"
        return Reply(told)
