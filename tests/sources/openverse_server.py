"""A server that answers as the API of Openverse does, from a collection of its own."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

from tests.sources.answering import AnsweringServer, Reply
from tests.sources.servers import Request

KNOWN = {
    *("q", "license", "category", "mature", "filter_dead", "source", "excluded_source"),
    *("extension", "size", "aspect_ratio", "page", "page_size"),
}
SLUGS = {
    *("by", "by-sa", "by-nd", "by-nc", "by-nc-sa", "by-nc-nd", "cc0", "pdm"),
    *("sampling+", "nc-sampling+"),
}
DEPTH = 240

#: What the network in front of the API answers to programs that it dislikes.
CLOUDFLARE = Reply(
    "<!DOCTYPE html><html><head><title>Attention Required! | Cloudflare</title></head></html>", 403
)


def throttled(seconds: int) -> Reply:
    detail = f"Request was throttled. Expected available in {seconds} seconds."
    return Reply({"detail": detail}, 429, {"Retry-After": str(seconds)})


def image(number: int, licence: str = "by", **changed: Any) -> dict[str, Any]:
    """One record; `changed` replaces fields."""
    path = {"cc0": "publicdomain/zero/1.0", "pdm": "publicdomain/mark/1.0"}.get(
        licence, f"licenses/{licence}/2.0"
    )
    return {
        "id": str(UUID(int=number)),
        "title": f"Heron {number}",
        "foreign_landing_url": f"https://photos.example.org/{number}",
        "url": f"https://images.example.org/{number}.jpg",
        "creator": f"owner_{number % 7}",
        "license": licence,
        "license_version": path[-3:],
        "license_url": f"https://creativecommons.org/{path}/",
        "source": "flickr",
        "category": "photograph",
        "filesize": None,
        "mature": False,
        "unstable__sensitivity": [],
        **changed,
    }


class OpenverseServer(AnsweringServer):
    """Attributes:
    images: the collection, in the order that every search finds it in.
    keys: ids to secrets.
    tokens: those that are valid now.
    expires_in: seconds that new ones are valid for, as told.
    most_anonymous: the largest page without a token.
    """

    def __init__(self, images: list[Any]) -> None:
        super().__init__()
        self.images = images
        self.keys = {"me": "hush"}
        self.tokens: set[str] = set()
        self.expires_in: float = 36000
        self.most_anonymous = 20

    def answer(self, asked: Request) -> Reply:
        if asked.path == "/v1/auth_tokens/token/" and asked.method == "POST":
            return self._token(asked)
        if asked.path != "/v1/images/":
            return Reply({"detail": "Not found."}, 404)
        bearer = asked.headers.get("Authorization", "").removeprefix("Bearer ")
        scope = "oauth2_client_credentials" if bearer in self.tokens else "anon"
        headers = {
            f"X-RateLimit-Limit-{scope}_burst": "5/hour",
            f"X-RateLimit-Available-{scope}_burst": "4",
        }
        return Reply(*self._images(asked.query, scope == "anon"), headers=headers)

    def _token(self, asked: Request) -> Reply:
        form = dict(parse_qsl(asked.body.decode()))
        secret = self.keys.get(form.get("client_id", ""))
        if form.get("grant_type") != "client_credentials" or secret != form.get("client_secret"):
            return Reply({"error": "invalid_client"}, 401)
        token = f"TOKEN{len(self.requests)}"
        self.tokens.add(token)
        told = {"access_token": token, "scope": "read", "token_type": "Bearer"}
        return Reply({**told, "expires_in": self.expires_in})

    def _images(self, params: dict[str, str], anonymous: bool) -> tuple[Any, int]:
        if unknown := set(params) - KNOWN:
            return {"detail": {name: ["Unknown parameter."] for name in unknown}}, 400
        page, size = int(params.get("page", 1)), int(params.get("page_size", 20))
        most = self.most_anonymous if anonymous else 50
        if size > most:
            who = "anonymous requests" if anonymous else "this token"
            return {"detail": f"page_size may not exceed {most} for {who}"}, 401
        if page * size > DEPTH:
            return {"detail": f"page_size * page may not exceed {DEPTH}"}, 401
        wanted = set(params["license"].split(",")) if "license" in params else SLUGS
        if wrong := wanted - SLUGS:
            texts = [f"License '{slug}' does not exist." for slug in sorted(wrong)]
            return {"detail": {"license": texts}}, 400
        found = [
            record
            for record in self.images
            if not isinstance(record, dict)
            or (
                (not isinstance(record["license"], str) or record["license"].lower() in wanted)
                and record.get("category") == params.get("category", record.get("category"))
                and record.get("source") == params.get("source", record.get("source"))
            )
        ]
        pages = min(-(-len(found) // size), DEPTH // size)
        if page > max(pages, 1):
            return {"detail": "Invalid page."}, 404
        results = found[(page - 1) * size : page * size]
        told = {"result_count": len(found), "page_count": pages, "page_size": size, "page": page}
        return {**told, "results": results}, 200
