"""A server that answers as the API of Wikimedia Commons does, from files of its own."""

from __future__ import annotations

import re
from typing import Any

from tests.sources.answering import AnsweringServer, Reply
from tests.sources.servers import Request

WIDTHS = {20, 40, 60, 120, 250, 330, 500, 960, 1280, 1920, 3840}
DEPTH = 10_000

POLICY = Reply("<html>Please comply with the User-Agent policy</html>", 403)

MAXLAG = Reply(
    {
        "error": {
            "code": "maxlag",
            "info": "Waiting for 10.0.0.1: 6.2 seconds lagged.",
            "host": "10.0.0.1",
            "lag": 6.2,
            "type": "db",
            "*": "See the API's own page for its usage.",
        },
        "servedby": "mw0000",
    },
    headers={"Retry-After": "0", "X-Database-Lag": "6"},
)


def told(**texts: Any) -> dict[str, Any]:
    """What Commons tells of a file, in its wrapping."""
    return {name: {"value": text, "source": "commons-desc-page"} for name, text in texts.items()}


def file(number: int, categories: tuple[str, ...] = (), **changed: Any) -> dict[str, Any]:
    """One file; `changed` replaces fields of its imageinfo."""
    name = f"Heron_{number}.jpg"
    return {
        "pageid": number,
        "title": f"File:Heron {number}.jpg",
        "categories": categories,
        "info": {
            "size": 5_863_148,
            "width": 5514,
            "height": 3102,
            "url": f"https://upload.example.org/2/25/{name}",
            "descriptionurl": f"https://commons.example.org/wiki/File:{name}",
            "mime": "image/jpeg",
            "sha1": "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "extmetadata": told(
                License="cc-by-sa-4.0",
                LicenseShortName="CC BY-SA 4.0",
                LicenseUrl="https://creativecommons.org/licenses/by-sa/4.0",
                UsageTerms="Creative Commons Attribution-Share Alike 4.0",
                Artist=f'<a href="//commons.example.org/wiki/User:U{number}">Owner {number}</a>',
                Credit='<span class="int-own-work" lang="en">Own work</span>',
            ),
            **changed,
        },
    }


class WikimediaServer(AnsweringServer):
    """Attributes:
    files: the collection, in the order that every search finds it in.
    subcategories: names of categories to those directly below them.
    split: how many files' properties one answer holds; a batch of more takes several.
    old_shape: answers as for formatversion=1, whatever is asked.
    """

    def __init__(
        self,
        files: list[Any],
        subcategories: dict[str, list[str]] | None = None,
        *,
        split: int = 1000,
        old_shape: bool = False,
    ) -> None:
        super().__init__()
        self.files = files
        self.subcategories = subcategories or {}
        self.split = split
        self.old_shape = old_shape

    def answer(self, asked: Request) -> Reply:
        agent = asked.headers.get("User-Agent", "")
        if not re.search(r"\(.*(@|https?://).*\)", agent) or "Mozilla" in agent:
            return POLICY
        params = asked.query
        if params.get("action") != "query" or params.get("format") != "json":
            return self._error("badvalue", "Unrecognized value for parameter.")
        if "formatversion" not in params or "maxlag" not in params:
            return self._error("badvalue", "This server wants both.")
        if params.get("list") == "categorymembers":
            return self._subcategories(params)
        if params.get("generator") == "search":
            return self._search(params)
        if params.get("generator") == "categorymembers" and params.get("gcmtype") == "file":
            members = [f for f in self.files if params["gcmtitle"] in f["categories"]]
            return self._files(params, members, "gcm", "gcmcontinue")
        return self._error("badvalue", "Unrecognized generator.")

    def _error(self, code: str, info: str) -> Reply:
        body = {"error": {"code": code, "info": info}, "servedby": "mw0000"}
        return Reply(body, headers={"MediaWiki-API-Error": code})

    def _subcategories(self, params: dict[str, str]) -> Reply:
        below = self.subcategories.get(params["cmtitle"], [])
        begin = int(params.get("cmcontinue", "0"))
        # Two at a time, so that following takes more than one question.
        end = begin + 2
        members = [{"pageid": 1, "ns": 14, "title": title} for title in below[begin:end]]
        body: dict[str, Any] = {"batchcomplete": True, "query": {"categorymembers": members}}
        if end < len(below):
            body["continue"] = {"cmcontinue": str(end), "continue": "-||"}
        return Reply(body)

    def _search(self, params: dict[str, str]) -> Reply:
        if params.get("gsrnamespace") != "6" or "filetype:bitmap" not in params["gsrsearch"]:
            return self._error("badvalue", "This server holds bitmaps alone.")
        offset, limit = int(params.get("gsroffset", 0)), int(params["gsrlimit"])
        if offset + limit > DEPTH:
            return self._error("search-error", f"Only {DEPTH} results are supported.")
        return self._files(params, self.files, "gsr", "gsroffset")

    def _files(self, params: dict[str, str], found: list[Any], prefix: str, key: str) -> Reply:
        width, limit = int(params["iiurlwidth"]), int(params[f"{prefix}limit"])
        if width not in WIDTHS or limit > 50:
            return self._error("badvalue", "Use a standard width and batches of 50.")
        begin = int(params.get(key, 0))
        batch = found[begin : begin + limit]
        at = int(params.get("iistart", 0))
        with_info = range(at, at + self.split)
        pages = [self._page(f, i, begin, width, i in with_info) for i, f in enumerate(batch)]
        body: dict[str, Any] = {}
        if pages:
            # The order of a generator is lost on the way.
            pages.reverse()
            body["query"] = {"pages": pages}
            if self.old_shape:
                keyed = {str(p.get("pageid", f"-{i}")): p for i, p in enumerate(pages, 1)}
                body["query"] = {"pages": keyed}
        if at + self.split < len(batch):
            body["continue"] = {"iistart": at + self.split, "continue": f"||{key}"}
            if begin:
                body["continue"][key] = begin
            return Reply(body)
        body["batchcomplete"] = "" if self.old_shape else True
        if begin + limit < len(found):
            body["continue"] = {key: begin + limit, "continue": f"{key}||"}
        return Reply(body)

    def _page(
        self, file: Any, index: int, begin: int, width: int, with_info: bool
    ) -> dict[str, Any]:
        page = {k: v for k, v in file.items() if k not in ("info", "categories")}
        page |= {"ns": 6, "index": begin + index + 1, "imagerepository": "local"}
        if with_info and "info" in file:
            info = dict(file["info"])
            if isinstance(info.get("width"), int):
                small = info["width"] <= width
                thumb = f"https://upload.example.org/thumb/{file['pageid']}/{width}px-Heron.jpg"
                info = {"thumburl": info.get("url") if small else thumb, **info}
            page["imageinfo"] = [info]
        return page
