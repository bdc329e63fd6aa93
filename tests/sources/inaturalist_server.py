"""A server on loopback that answers as iNaturalist's API does: filters, paging, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.sources.servers import Exchange, LoopbackServer

Json = dict[str, Any]

TOO_DEEP = (
    "Result window is too large, page x size must be less than or equal to [10000]. Please narrow "
    "your search, or use a sliding window approach with id_above or id_below params."
)
THROTTLED = (
    b"<html>\n<head><title>429 Too Many Requests</title></head>\n<body>\n"
    b"<center><h1>429 Too Many Requests</h1></center>\n<hr><center>nginx</center>\n"
    b"</body>\n</html>\n"
)
HIDDEN = "https://www.inaturalist.org/assets/media-hidden-square.png"

ODONATA, ANISOPTERA, TREES = 47792, 59010, 159020


def taxon(number: int, name: str, rank: str, *above: int, **more: Any) -> Json:
    """One taxon; `above` are the numbers of those that hold it, the widest first."""
    return {
        "id": number,
        "name": name,
        "rank": rank,
        "ancestor_ids": [48460, *above, number],
        "is_active": True,
        "preferred_common_name": None,
        "matched_term": name,
        **more,
    }


TAXA = (
    taxon(ODONATA, "Odonata", "order", preferred_common_name="Dragonflies and Damselflies"),
    taxon(ANISOPTERA, "Anisoptera", "suborder", ODONATA, preferred_common_name="Dragonflies"),
    taxon(TREES, "Anisoptera", "genus", preferred_common_name="Mersawa"),
    taxon(9398, "Spinus tristis", "species", preferred_common_name="American Goldfinch"),
    taxon(9424, "Carduelis carduelis", "species", preferred_common_name="European Goldfinch"),
    taxon(9400, "Carduelis tristis", "species", is_active=False),
    taxon(8010, "Lestes", "genus", ODONATA, preferred_common_name="Spreadwings"),
    taxon(8020, "Muscari", "genus", preferred_common_name="Grape Hyacinths"),
    taxon(8021, "Muscari", "subgenus", 8020, preferred_common_name="Spreadwings"),
)


def photo(number: int, licence: str | None, host: str, ext: str = "jpg", **more: Any) -> Json:
    """One photo as an observation lists it; only the square size has an address."""
    return {
        "id": number,
        "license_code": licence,
        "original_dimensions": {"width": 2048, "height": 1536},
        "url": f"{host}/photos/{number}/square.{ext}",
        "attribution": "(c) quelqu'un, certains droits réservés (CC BY-ND)",
        "flags": [],
        "moderator_actions": [],
        "hidden": False,
        **more,
    }


def observation(number: int, photos: Sequence[Any], of: Json = TAXA[1], **more: Any) -> Json:
    """One observation; its own licence is none of its photos' business."""
    return {
        "id": number,
        "quality_grade": "research",
        "captive": False,
        "license_code": "cc0",
        "taxon": {"id": of["id"], "name": of["name"], "ancestor_ids": of["ancestor_ids"]},
        "user": {"id": 1, "login": "observer_one", "name": "Observer One"},
        "photos": list(photos),
        "observation_photos": [{"position": i, "photo": p} for i, p in enumerate(photos)],
        **more,
    }


class InaturalistServer(LoopbackServer):
    """Answers below `/v1`.

    Attributes:
        observations: everything that it holds; a field `_id` is its place, where `id` is broken,
            and is not shown.
        faults: answers that come first, in this order: status, headers, and JSON or HTML.
    """

    def __init__(self, observations: Sequence[Json] = ()) -> None:
        super().__init__()
        self.observations = list(observations)
        self.faults: list[tuple[int, dict[str, str], Any]] = []
        self.on("/v1/*", self._answer)

    @property
    def api(self) -> str:
        return self.url("/v1")

    def asked(self, path: str = "/v1/observations") -> list[dict[str, str]]:
        """The parameters of each question so far."""
        return [request.query for request in self.requests if request.path == path]

    def _answer(self, exchange: Exchange) -> None:
        request = exchange.request
        if self.faults:
            status, headers, body = self.faults.pop(0)
        elif request.path == "/v1/taxa":
            status, headers, body = 200, {}, self._taxa(request.query)
        elif request.path == "/v1/observations":
            status, headers, body = self._observations(request.query)
        else:
            status, headers, body = 404, {}, {"error": "Not Found", "status": 404}
        if isinstance(body, bytes):
            exchange.send(status, body, headers, "text/html")
        else:
            exchange.json(body, status, headers)

    def _taxa(self, query: dict[str, str]) -> Json:
        words = query["q"].casefold()
        found = []
        for one in TAXA:
            names = [n for n in (one["name"], one["preferred_common_name"]) if n]
            matched = [name for name in names if words in name.casefold()]
            if one["id"] == 9398 and words in "yellowbird, wild canary":
                matched.append(query["q"])
            if not matched or (query.get("is_active") == "true" and not one["is_active"]):
                continue
            if query.get("rank") in (None, one["rank"]):
                found.append({**one, "matched_term": matched[0]})
        return {"total_results": len(found), "page": 1, "per_page": len(found), "results": found}

    def _observations(self, query: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        size = min(int(query.get("per_page", 30)), 200)
        page = int(query.get("page", 1))
        if page * size > 10_000:
            return 403, {}, {"error": TOO_DEEP, "status": 403}
        wanted = int(query.get("taxon_id", 48460))
        if wanted not in {48460, *(one["id"] for one in TAXA)}:
            return 422, {}, {"error": "Unprocessable Entity", "status": 422}
        found = [one for one in self.observations if _matches(one, wanted, query)]
        if query.get("order_by") == "id":
            found.sort(key=_rank, reverse=query.get("order", "desc") == "desc")
        shown = found[(page - 1) * size : page * size]
        return (
            200,
            {},
            {
                "total_results": len(found),
                "page": page,
                "per_page": min(size, len(found)),
                "results": [_shown(one) for one in shown],
            },
        )


def _rank(one: Any) -> int:
    """Where it stands; a broken record says so in a field that is not shown."""
    return int(one.get("_id", one.get("id", 0)))


def _shown(one: Json) -> Json:
    return {name: value for name, value in one.items() if name != "_id"}


def _matches(one: Json, wanted: int, query: dict[str, str]) -> bool:
    if "_id" in one:
        return _rank(one) > int(query.get("id_above", 0))
    licences = {p.get("license_code") for p in one["photos"] if isinstance(p, dict)}
    asked = query.get("photo_license")
    grade = query.get("quality_grade", one["quality_grade"])
    return (
        wanted in one["taxon"]["ancestor_ids"]
        and one["id"] > int(query.get("id_above", 0))
        and (query.get("photos") != "true" or bool(one["photos"]))
        and (asked is None or bool(licences & set(asked.split(","))))
        and one["quality_grade"] in grade.split(",")
        and query.get("captive") in (None, str(one["captive"]).lower())
    )
