"""Fetching what a page at Label Studio shows, as an annotator's browser does."""

from __future__ import annotations

import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError

from annotation.client_errors import ReviewServerError
from annotation.client_faults import on_loopback, reason_of
from annotation.server_accounts import Account

_LOGIN = "/user/login/"
_SECONDS = 60.0
_PIECE = 65_536


@dataclass(frozen=True)
class Fetched:
    """What came.

    Attributes:
        status: of the answer; 0 where none came.
        type: its media type, in small letters.
        content: its bytes, cut off where they are too many.
        why: what went wrong on the way, else empty.
        shared: whether pages of Label Studio may use it: it comes from there, or says so.
    """

    status: int
    type: str = ""
    content: bytes = b""
    why: str = ""
    shared: bool = True


class Browser:
    """Somebody's browser on a page of a Label Studio; use it as a context manager.

    Args:
        url: of the server.
        who: logs in with this account; or what authorises requests to the server.

    Raises:
        ReviewServerError: the server does not let the account in.
    """

    def __init__(self, url: str, who: Account | AuthBase) -> None:
        self.url = url
        self._session = requests.Session()
        self._session.trust_env = not on_loopback(url)
        self._auth = None
        if isinstance(who, Account):
            self._log_in(who)
        else:
            self._auth = who

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def fetch(self, address: str, most: int) -> Fetched:
        """Fetch a file.

        Args:
            address: as in a task's data: a path of the server's, or a whole one.
            most: bytes that are read at most.
        """
        if address.startswith("/") and not address.startswith("//"):
            return self._get(self._session, self.url + address, most, self._auth)
        parts = urlsplit(self.url)
        origin = f"{parts.scheme}://{parts.netloc}"
        # Another host gets neither cookie nor token.
        with requests.Session() as elsewhere:
            elsewhere.headers["Origin"] = origin
            elsewhere.trust_env = not on_loopback(address)
            return self._get(elsewhere, address, most, None, origin)

    def _get(
        self,
        session: requests.Session,
        url: str,
        most: int,
        auth: AuthBase | None,
        origin: str | None = None,
    ) -> Fetched:
        until = time.monotonic() + _SECONDS
        try:
            with session.get(
                url,
                auth=auth,
                timeout=_SECONDS,
                stream=True,
                # Within the server a redirect leads to its log-in page.
                allow_redirects=origin is not None,
            ) as answer:
                content = bytearray()
                while len(content) <= most and time.monotonic() < until:
                    if not (piece := answer.raw.read(_PIECE, decode_content=True)):
                        break
                    content += piece
                kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
                allowed = answer.headers.get("Access-Control-Allow-Origin", "")
                shared = origin is None or allowed in ("*", origin)
                return Fetched(answer.status_code, kind, bytes(content[:most]), "", shared)
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            return Fetched(0, why=reason_of(error))

    def _log_in(self, account: Account) -> None:
        page = self.url + _LOGIN
        failed = f"Label Studio at {self.url} does not let {account.email} in"
        try:
            self._session.get(page, timeout=_SECONDS, allow_redirects=False)
            form = {
                "csrfmiddlewaretoken": self._session.cookies.get("csrftoken", ""),
                "email": account.email,
                "password": account.password,
            }
            answer = self._session.post(
                page,
                data=form,
                headers={"Referer": page},
                timeout=_SECONDS,
                allow_redirects=False,
            )
        except requests.RequestException as error:
            raise ReviewServerError(f"{failed} ({reason_of(error)})") from None
        if answer.status_code != 302:
            raise ReviewServerError(f"{failed}: was its password changed there?")
