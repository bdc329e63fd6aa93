"""A server on loopback that answers as Flickr's API does: loose types, a cap, no stable order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.sources.servers import Exchange, LoopbackServer

Json = dict[str, Any]

IMAGES = "https://live.staticflickr.com"
KEY = "0123456789abcdef0123456789abcdef"


def photo(number: int, uploaded: int, licence: int = 4, host: str = IMAGES, **more: Any) -> Json:
    """One photo; types change from one to the next, as they do there."""
    loose = number % 2 == 0
    base = f"{host}/65535/{number}_abcdef0123"
    return {
        "id": number if number % 5 == 0 else str(number),
        "owner": "10000001@N01",
        "secret": "abcdef0123",
        "farm": 66,
        "title": {"_content": f"squirrel {number}"} if loose else f"squirrel {number}",
        "license": licence if loose else str(licence),
        "dateupload": str(uploaded),
        "datetakengranularity": 0 if loose else "0",
        "ownername": "Owner One",
        "media": "photo",
        "url_m": f"{base}.jpg",
        "height_m": 375 if loose else "375",
        "url_z": f"{base}_z.jpg",
        "url_l": f"{base}_b.jpg",
        "url_o": f"{host}/65535/{number}_0123456789_o.png",
        "pathalias": "owner_one" if loose else None,
        **more,
    }


def fail(code: int, message: str) -> Json:
    """An error, which comes with status 200."""
    return {"stat": "fail", "code": code, "message": message}


class FlickrServer(LoopbackServer):
    """Answers at `/services/rest/`.

    Attributes:
        photos: everything that it holds.
        most: how many photos one search shows; pages behind them repeat the last one.
        deep_error: whether those pages are an error instead.
        shuffles: how many of the next answers come with the photos at the borders of pages in
            exchanged places.
        faults: answers that come first, in this order.
    """

    def __init__(self, photos: Sequence[Json] = (), most: int = 4000) -> None:
        super().__init__()
        self.photos, self.most = list(photos), most
        self.deep_error = False
        self.shuffles = 0
        self.faults: list[Any] = []
        self.on("/services/rest/", self._answer)

    @property
    def api(self) -> str:
        return self.url("/services/rest/")

    def asked(self) -> list[dict[str, str]]:
        """The parameters of each question so far."""
        return [request.query for request in self.requests]

    def _answer(self, exchange: Exchange) -> None:
        query = exchange.request.query
        if self.faults:
            exchange.json(self.faults.pop(0))
        elif query.get("api_key") != KEY:
            exchange.json(fail(100, f"Invalid API Key ({query.get('api_key')} is unknown)"))
        elif query.get("method") != "flickr.photos.search":
            exchange.json(fail(112, f'Method "{query.get("method")}" not found'))
        elif not query.get("text") and not query.get("tags"):
            exchange.json(fail(3, "Parameterless searches have been disabled."))
        else:
            exchange.json(self._search(query))

    def _search(self, query: dict[str, str]) -> Json:
        since = int(query.get("min_upload_date", 0))
        until = int(query.get("max_upload_date", 1 << 40))
        licences = set(query["license"].split(",")) if "license" in query else None
        found = [
            one
            for one in self.photos
            if since <= int(one["dateupload"]) <= until
            and (licences is None or str(one.get("license")) in licences)
            and (query.get("media") != "photos" or one["media"] == "photo")
        ]
        found.sort(key=lambda one: int(one["dateupload"]), reverse="asc" not in query["sort"])
        total = len(found)
        size = min(int(query.get("per_page", 100)), 500)
        page = int(query.get("page", 1))
        deepest = max(1, -(-min(total, self.most) // size))
        if page > deepest:
            if self.deep_error:
                return fail(20, "Excessive photo offset in search")
            page = deepest
        if self.shuffles:
            self.shuffles -= 1
            for at in range(size - 1, len(found) - 1, size):
                found[at], found[at + 1] = found[at + 1], found[at]
        photos = {
            "page": page,
            "pages": -(-total // size),
            "perpage": size,
            "total": str(total) if total % 2 else total,
            "photo": found[(page - 1) * size : min(page * size, self.most)],
        }
        return {"photos": photos, "stat": "ok"}
