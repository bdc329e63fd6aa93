"""The APIs of the public sources and a host of photos, all on loopback, with the same photos.

Words find what lies on their shelf: dragonflies under two queries that share a photo, goldfinches
under others.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from tests.sources import duckduckgo_server as duckduckgo
from tests.sources import flickr_server as flickr
from tests.sources import inaturalist_server as inaturalist
from tests.sources import openverse_server as openverse
from tests.sources import wikimedia_server as wikimedia
from tests.sources.answering import Reply
from tests.sources.servers import Exchange, LoopbackServer, Request

DRAGONFLY, GOLDFINCH, ACCORDION = "n02268443", "n01531178", "n02672831"

#: What the label space asks for, and the numbers of the photos that it finds.
SHELVES: dict[str, tuple[int, ...]] = {
    "dragonfly": (1, 2, 3, 4),
    "Anisoptera": (4, 5, 6),
    "European goldfinch": (11, 12),
    "Carduelis carduelis": (12, 13, 14),
    "goldfinch bird": (),
}
DRAGONFLIES, GOLDFINCHES = (1, 2, 3, 4, 5, 6), (11, 12, 13, 14)

_PHOTO = re.compile(r"/(?:photos|65535)/(\d+)[/_]")


class PhotoHost(LoopbackServer):
    """Serves a real photo, different from all others, for each number.

    Args:
        photos: files that the photos are cut from.
    """

    def __init__(self, photos: Sequence[Path]) -> None:
        # A host of its own: what an API asks for must not hold up the photos.
        super().__init__("127.0.0.2")
        self._photos = list(photos)
        self._bodies: dict[int, bytes] = {}
        for path in ("/photos/*", "/65535/*"):
            self.on(path, self._serve)

    def numbers(self) -> list[int]:
        """The photos that were asked for, in that order."""
        found = (_PHOTO.match(request.path) for request in self.requests)
        return [int(one[1]) for one in found if one]

    def photo(self, number: int) -> bytes:
        """The bytes of a photo."""
        if number not in self._bodies:
            turn, which = divmod(number, len(self._photos))
            with Image.open(self._photos[which]) as image:
                cut = image.convert("RGB").crop((0, 0, image.width - turn, image.height - turn))
            stream = io.BytesIO()
            cut.save(stream, "JPEG", quality=90)
            self._bodies[number] = stream.getvalue()
        return self._bodies[number]

    def _serve(self, exchange: Exchange) -> None:
        found = _PHOTO.match(exchange.request.path)
        assert found is not None
        exchange.send(body=self.photo(int(found[1])), content_type="image/jpeg")


class _Inaturalist(inaturalist.InaturalistServer):
    """Shows five observations a page, as it may: a page is never larger than the owner wants."""

    def _observations(self, query: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        return super()._observations({**query, "per_page": "5"})


class _Flickr(flickr.FlickrServer):
    shelves: Mapping[str, list[Any]]

    def _search(self, query: dict[str, str]) -> dict[str, Any]:
        self.photos = self.shelves.get(query["text"], [])
        return super()._search(query)


class _Openverse(openverse.OpenverseServer):
    shelves: Mapping[str, list[Any]]

    def _images(self, params: dict[str, str], anonymous: bool) -> tuple[Any, int]:
        self.images = self.shelves.get(params["q"], [])
        return super()._images(params, anonymous)


class _Wikimedia(wikimedia.WikimediaServer):
    shelves: Mapping[str, list[Any]]

    def _search(self, params: dict[str, str]) -> Reply:
        words = params["gsrsearch"].removeprefix("filetype:bitmap ")
        self.files = self.shelves.get(words, [])
        return super()._search(params)


class _DuckDuckGo(duckduckgo.DuckDuckGoServer):
    shelves: Mapping[str, list[Any]]

    def answer(self, asked: Request) -> Reply:
        self.images = self.shelves.get(asked.query.get("q", ""), [])
        return super().answer(asked)


@dataclass(frozen=True)
class Told:
    """What an origin must say of a photo.

    Attributes:
        licence, licence_url: SPDX id and address.
        credit: the line to print beside photo 2, as people would write it.
    """

    licence: str
    licence_url: str
    credit: str


@dataclass
class World:
    """A source's API with photos behind it.

    Attributes:
        source: the source's name.
        api: answers questions.
        address: what `sources.SOURCE` is set to.
        search: the path of the questions that find photos.
        photos: where the photos lie.
        told: what origins say.
        record: what the API tells of a photo of dragonflies.
        environ: keys.
    """

    source: str
    api: LoopbackServer
    address: str
    search: str
    photos: PhotoHost
    told: Told
    record: Callable[[int], Any]
    environ: dict[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """Settings by dotted name."""
        return {
            f"sources.{self.source}": self.address,
            "network.allow_hosts": (self.api.allow_host, self.photos.allow_host),
            "network.per_second": 1000.0,
            "network.per_host": 8,
            "network.tries": 2,
            "collect.contact": "somebody@example.org",
        }

    def variables(self) -> dict[str, str]:
        """The same as environment variables, but for the hosts, which options allow."""
        variables = {
            "CURATE_" + name.upper().replace(".", "__"): str(value)
            for name, value in self.settings().items()
            if name != "network.allow_hosts"
        }
        return variables | self.environ

    def allow_hosts(self) -> list[str]:
        """The options that allow both hosts."""
        return ["--allow-host", self.api.allow_host, "--allow-host", self.photos.allow_host]

    def fill(self, numbers: Iterable[int]) -> None:
        """Let the API hold these photos of dragonflies, and no others."""
        records = [self.record(number) for number in numbers]
        if isinstance(self.api, inaturalist.InaturalistServer):
            self.api.observations = records
        else:
            self.api.shelves = {"dragonfly": records}  # type: ignore[attr-defined]

    def questions(self) -> list[dict[str, str]]:
        """The searches that were asked so far."""
        return [one.query for one in self.api.requests if one.path == self.search]

    def answerer(self) -> Callable[[Exchange], None]:
        """What answers searches."""
        return self.api._answerer(self.search)

    def disturb(self, number: int, answer: Callable[[Exchange], None]) -> None:
        """Let one search, counted from 0, be answered otherwise."""
        usual = self.answerer()

        def disturbed(exchange: Exchange) -> None:
            (answer if exchange.request.number == number else usual)(exchange)

        self.api.on(self.search, disturbed)


def _shelves(record: Callable[[int], Any]) -> dict[str, list[Any]]:
    return {words: [record(number) for number in numbers] for words, numbers in SHELVES.items()}


def inaturalist_world(photos: PhotoHost) -> World:
    host = photos.url("").rstrip("/")

    def record(number: int, taxon: Any = inaturalist.TAXA[1]) -> Any:
        photo = inaturalist.photo(number, "cc-by", host)
        return inaturalist.observation(1000 + number, [photo], taxon)

    api = _Inaturalist([record(number) for number in DRAGONFLIES])
    api.observations += [record(number, inaturalist.TAXA[4]) for number in GOLDFINCHES]
    credit = (
        "“Anisoptera” by Observer One (https://www.inaturalist.org/observations/1002) is licensed "
        "under CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/)."
    )
    told = Told("CC-BY-4.0", "https://creativecommons.org/licenses/by/4.0/", credit)
    return World("inaturalist", api, api.api, "/v1/observations", photos, told, record)


def flickr_world(photos: PhotoHost) -> World:
    host = photos.url("").rstrip("/")

    def record(number: int) -> Any:
        return flickr.photo(number, 1_400_000_000 + number, 5, host)

    api = _Flickr()
    api.shelves = _shelves(record)
    credit = (
        "“squirrel 2” by Owner One (https://www.flickr.com/photos/owner_one/2) is licensed under "
        "CC BY-SA 2.0 (https://creativecommons.org/licenses/by-sa/2.0/)."
    )
    told = Told("CC-BY-SA-2.0", "https://creativecommons.org/licenses/by-sa/2.0/", credit)
    key = {"FLICKR_API_KEY": flickr.KEY}
    return World("flickr", api, api.api, "/services/rest/", photos, told, record, key)


def openverse_world(photos: PhotoHost) -> World:
    def record(number: int) -> Any:
        return openverse.image(number, "by-nd", url=photos.url(f"/photos/{number}/b.jpg"))

    api = _Openverse([])
    api.shelves = _shelves(record)
    credit = (
        "“Heron 2” by owner_2 (https://photos.example.org/2) is licensed under CC BY-ND 2.0 "
        "(https://creativecommons.org/licenses/by-nd/2.0/)."
    )
    told = Told("CC-BY-ND-2.0", "https://creativecommons.org/licenses/by-nd/2.0/", credit)
    return World("openverse", api, api.url("/v1"), "/v1/images/", photos, told, record)


def wikimedia_world(photos: PhotoHost) -> World:
    def record(number: int) -> Any:
        return commons_file(photos, number)

    api = _Wikimedia([])
    api.shelves = _shelves(record)
    credit = (
        "“Heron 2.jpg” by Owner 2 (https://commons.example.org/wiki/File:Heron_2.jpg) is licensed "
        "under CC BY-SA 4.0 (https://creativecommons.org/licenses/by-sa/4.0/)."
    )
    told = Told("CC-BY-SA-4.0", "https://creativecommons.org/licenses/by-sa/4.0/", credit)
    return World("wikimedia", api, api.url("/w/api.php"), "/w/api.php", photos, told, record)


def commons_file(photos: PhotoHost, number: int, categories: tuple[str, ...] = ()) -> Any:
    """A file of Commons whose thumbnail is at the host of photos."""
    thumb = photos.url(f"/photos/{number}/960px.jpg")
    return wikimedia.file(number, categories, thumburl=thumb)


def duckduckgo_world(photos: PhotoHost) -> World:
    def record(number: int) -> Any:
        return duckduckgo.image(number, image=photos.url(f"/photos/{number}/x.jpg"))

    api = _DuckDuckGo([])
    api.shelves = _shelves(record)
    credit = "“Heron 2” (https://pages.example.org/2) has an unknown licence."
    told = Told("LicenseRef-unknown", "", credit)
    return World("duckduckgo", api, api.url("/").rstrip("/"), "/i.js", photos, told, record)


#: Each source's world.
WORLDS: dict[str, Callable[[PhotoHost], World]] = {
    "inaturalist": inaturalist_world,
    "flickr": flickr_world,
    "openverse": openverse_world,
    "wikimedia": wikimedia_world,
    "duckduckgo": duckduckgo_world,
}
