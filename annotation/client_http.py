"""Asking Label Studio: bounded answers, one-line errors, and nothing sent twice.

Only questions are repeated. What changes something there goes once; where its answer does not come
it may have been stored all the same (a timed-out import was, whole), and `Unanswered` says so.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError

from annotation.client_errors import (
    AlreadyStored,
    GoneError,
    ReviewServerError,
    ServerAway,
    TokenRefused,
    Unanswered,
)
from annotation.client_faults import checked_url, on_loopback, reason_of, was_sent
from curate._version import __version__
from curate.errors import Interrupted, UsageError
from curate.retries import backoff, retry_after, wait

#: Most bytes of one answer.
MAX_BYTES = 100_000_000

#: How often a question is asked.
TRIES = 4

#: Longest pause that a server may ask for, in seconds.
PATIENCE = 60.0

#: A personal access token buys access for 300 s; it is bought anew before that.
ACCESS_SECONDS = 240.0

_BUSY = frozenset((408, 425, 429, 502, 503, 504))
_TOKEN = re.compile(r"[!-~]{8,10000}")
_PIECE = 65_536


class Connection:
    """Talks to one Label Studio under one token; not to be shared between threads.

    Args:
        url: its address, as people open it.
        token: a legacy token (40 hexadecimal digits) or a personal access token.
        seconds: longest silence, and longest time for one answer.
        stop: asked about ten times a second, while waiting, whether to give up.

    Raises:
        UsageError: the address or the token cannot be one.
    """

    def __init__(
        self,
        url: str,
        token: str,
        seconds: float = 60.0,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self.url = checked_url(url)
        self._token = token.strip()
        if not _TOKEN.fullmatch(self._token):
            raise UsageError("the token for Label Studio is no token: copy it again from there")
        self._personal = self._token.count(".") == 2
        self._access, self._bought = "", float("-inf")
        self._seconds, self._stop = seconds, stop
        self._session = requests.Session()
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        # A proxy has no way to this machine.
        self._session.trust_env = not on_loopback(self.url)
        # Having one keeps requests from looking for another in ~/.netrc.
        self.auth: AuthBase = _Header(lambda: self._authorization)
        self._session.auth = self.auth
        self._session.headers.update(
            {"User-Agent": f"natadv-curate/{__version__}", "Accept-Encoding": "identity"}
        )
        #: What the server's clock said in its newest answer, in UTC; None before the first one.
        self.server_time: datetime | None = None

    def ask(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Ask a question that changes nothing, repeatedly where that may help.

        Args:
            path: below the server's address, for example "/api/version".
            params: of the query.

        Returns:
            What the answer's JSON says.

        Raises:
            ServerAway, GoneError, TokenRefused, ReviewServerError: as their names say.
            Interrupted: `stop` said so.
        """
        for attempt in range(TRIES):
            try:
                return self._once("GET", path, params, None)
            except ServerAway as error:
                seconds = backoff(attempt) if error.pause is None else error.pause
                if attempt == TRIES - 1 or seconds > PATIENCE:
                    raise
                if not wait(seconds, self._stop):
                    raise Interrupted("stopped while waiting for Label Studio") from None
        raise AssertionError

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> Any:
        """Send what changes something, once.

        Args:
            method: "POST", "PATCH" or "DELETE".
            path: below the server's address.
            body: sent as JSON.
            params: of the query.
            files: names and contents, sent as a form's instead of a body.

        Returns:
            What the answer's JSON says; None where it is empty.

        Raises:
            Unanswered: it may have been stored.
            ServerAway: nothing was stored.
            GoneError, AlreadyStored, TokenRefused, ReviewServerError: as their names say.
        """
        if files is not None:
            body = _Files((name, (name, content)) for name, content in files.items())
        return self._once(method, path, params, body)

    def _once(self, method: str, path: str, params: Mapping[str, Any] | None, body: Any) -> Any:
        if self._personal and time.monotonic() - self._bought > ACCESS_SECONDS:
            self._buy_access()
        bought = self._bought
        try:
            return self._request(method, path, params, body)
        except TokenRefused:
            # A clock that jumped, or a machine that slept: refused, and so not stored.
            if not self._personal or time.monotonic() - bought < 1:
                raise
        self._buy_access()
        return self._request(method, path, params, body)

    def _buy_access(self) -> None:
        self._access = ""
        told = self._request("POST", "/api/token/refresh/", None, {"refresh": self._token}, "GET")
        access = told.get("access") if isinstance(told, dict) else None
        if not isinstance(access, str) or not _TOKEN.fullmatch(access):
            raise ReviewServerError(f"{self._name} gives no access for the token")
        self._access, self._bought = access, time.monotonic()

    @property
    def _authorization(self) -> str | None:
        if not self._personal:
            return f"Token {self._token}"
        return f"Bearer {self._access}" if self._access else None

    @property
    def _name(self) -> str:
        return f"Label Studio at {self.url}"

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        body: Any,
        counts_as: str | None = None,
    ) -> Any:
        """One exchange. `counts_as` "GET" is for what may be repeated though it is none."""
        repeatable = (counts_as or method) == "GET"
        lost: type[ReviewServerError] = ServerAway if repeatable else Unanswered
        note = "" if repeatable else "; what was sent may have been stored"
        files = body if isinstance(body, _Files) else None
        try:
            response = self._session.request(
                method,
                self.url + path,
                params=params,
                json=None if files else body,
                files=files,
                timeout=(min(self._seconds, 10.0), self._seconds),
                allow_redirects=False,
                stream=True,
            )
            with response:
                self._hear_time(response.headers.get("Date"))
                content = self._read(response)
        except requests.RequestException as error:
            if not was_sent(error):
                raise ServerAway(
                    f"{self._name} cannot be reached ({reason_of(error)}); is it running?"
                ) from None
            raise lost(f"{self._name} does not answer ({reason_of(error)}){note}") from None
        except (HTTPError, OSError) as error:
            raise lost(f"{self._name} breaks off ({reason_of(error)}){note}") from None
        if response.status_code >= 400 or 300 <= response.status_code < 400:
            raise self._error(response, content, lost, note)
        if not content.strip():
            return None
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise lost(
                f"{self._name} answers with something else than JSON{note}", response.status_code
            ) from None

    def _read(self, response: requests.Response) -> bytes:
        until = time.monotonic() + self._seconds
        content = bytearray()
        while piece := response.raw.read1(_PIECE):
            content += piece
            if len(content) > MAX_BYTES:
                raise HTTPError(f"over {MAX_BYTES:,} bytes")
            if time.monotonic() > until:
                raise HTTPError(f"not whole after {self._seconds:.0f} s")
        return bytes(content)

    def _hear_time(self, date: str | None) -> None:
        try:
            self.server_time = parsedate_to_datetime(date or "").astimezone(UTC)
        except (ValueError, TypeError, IndexError, OverflowError):
            return

    def _error(
        self, response: requests.Response, content: bytes, lost: type[ReviewServerError], note: str
    ) -> Exception:
        status = response.status_code
        told = self._told(content)
        answer = f"HTTP {status}: {told}" if told else f"HTTP {status}"
        if status == 401 or (status == 403 and told):
            return TokenRefused(
                f"{self._name} refuses the token ({told or answer}); make a new one on its page "
                "Account & Settings"
            )
        if status == 404:
            return GoneError(f"{self._name} has no such thing ({told or answer})", status)
        if status == 409:
            return AlreadyStored(f"{self._name} has it already ({told or answer})", status)
        if status < 400:
            return ReviewServerError(
                f"{self._name} leads elsewhere (HTTP {status}); set review.url to where it is",
                status,
            )
        if status in _BUSY and lost is ServerAway:
            headers = response.headers
            pause = retry_after(headers.get("Retry-After"), headers.get("Date"))
            return ServerAway(f"{self._name} is busy ({answer})", status, pause)
        if status >= 500 and lost is Unanswered:
            return Unanswered(f"{self._name} failed ({answer}){note}", status)
        return ReviewServerError(f"{self._name} answers with {answer}", status)

    def _told(self, content: bytes) -> str:
        """What an error's JSON says for people; empty for pages of HTML."""
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            return ""
        if not isinstance(value, dict):
            return ""
        parts = [str(value.get("detail") or "")]
        invalid = value.get("validation_errors")
        for name, faults in (invalid if isinstance(invalid, dict) else {}).items():
            parts.append(f"{name}: {faults[0] if isinstance(faults, list) and faults else faults}")
        text = "; ".join(part for part in parts if part)
        for secret in (self._token, self._access):
            text = text.replace(secret, "…") if secret else text
        return "".join(c if c.isprintable() else " " for c in text)[:300].strip()


class _Files(list[tuple[str, tuple[str, bytes]]]):
    """What a form uploads, as requests takes it."""


class _Header(AuthBase):
    def __init__(self, value: Callable[[], str | None]) -> None:
        self._value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if value := self._value():
            request.headers["Authorization"] = value
        return request
