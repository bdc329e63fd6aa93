"""Asking the APIs of sources: paced, patient, within limits, and never telling a key to anybody."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import quote, quote_plus

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from curate.errors import QuotaExhausted, SourceError, UsageError
from curate.retries import backoff, naive_utc, retry_after
from curate.settings import NetworkSettings
from curate.sources.addresses import parse_url
from curate.sources.connections import GuardedPools, Limits, failure_of
from curate.sources.failures import RETRYABLE_STATUSES, FetchFailed
from curate.sources.http import Answer
from curate.sources.manners import Manners
from curate.sources.protocol import clean

#: Most bytes of one answer.
MAX_BYTES = 20_000_000

_SECRET = re.compile(r"key|secret|token|passw|auth|cookie|signature|vqd|client_id", re.IGNORECASE)
_MESSAGES = ("error", "detail", "message", "error_description", "errors", "info", "title")

Check = Callable[[Any, Mapping[str, str]], None]


class TryAgain(Exception):
    """What a `check` raises where an answer says that another try may do better.

    Args:
        seconds: when, as far as the source says.
        detail: what it said.
    """

    def __init__(self, seconds: float | None, detail: str) -> None:
        self.seconds, self.detail = seconds, detail
        super().__init__(detail)


class ApiError(SourceError):
    """An API answered with an error that another try does not better.

    Args:
        text: one line.
        status: the number of the answer.
    """

    def __init__(self, text: str, status: int) -> None:
        self.status = status
        super().__init__(text)


class ApiClient:
    """Asks one source's API, one question at a time.

    Answers 408, 425, 429 and 5xx, broken connections and answers that are no JSON are tried again,
    `settings.tries` times in all, after what Retry-After says or a random wait. Redirects are not
    followed, cookies not kept.

    Args:
        name: the source's name, for errors.
        settings: time limits, tries, patience, exempt hosts.
        user_agent: what `curate.sources.http.user_agent` gives.
        manners: whose turn it is; by default as `settings` has it for hosts without a rule.
        pools: the connections; new ones if None.
        stop: asked about ten times a second, while waiting, whether to give up.
        sleep: what sleeps.

    Attributes:
        last_headers: of the newest answer, whatever its status, without regard to case.
    """

    def __init__(
        self,
        name: str,
        settings: NetworkSettings,
        user_agent: str,
        manners: Manners | None = None,
        pools: GuardedPools | None = None,
        *,
        stop: Callable[[], bool] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self.last_headers: Mapping[str, str] = {}
        self._settings = settings
        self._manners = manners or Manners((), settings)
        self._stop, self._sleep = stop, sleep
        self._pools = pools or GuardedPools(settings)
        self._session = _session(self._pools, user_agent)

    def get_json(
        self,
        url: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        check: Check | None = None,
    ) -> Any:
        """Ask, and read the answer as JSON.

        Args:
            url: the address, without the parameters.
            params: the query; None values are left out.
            headers: more headers.
            check: called with the value and the headers; raises `TryAgain` or an error of its own
                where the value tells of one.

        Raises:
            QuotaExhausted: the source wants a pause longer than `settings.patience_seconds`.
            ApiError: it answers with an error.
            SourceError: it does not answer, or not with JSON.
            UsageError: the address is unusable.
            Interrupted: `stop` said so.
        """
        return self._ask("GET", url, params, None, headers, check, _json)

    def get_text(
        self,
        url: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Ask, and take the answer as text, whatever is not UTF-8 replaced.

        Raises:
            SourceError, UsageError, Interrupted: as `get_json` does.
        """
        return str(self._ask("GET", url, params, None, headers, None, _text))

    def post_form(
        self,
        url: str,
        data: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        check: Check | None = None,
    ) -> Any:
        """Send a form, for a token for example, and read the answer as JSON.

        Raises:
            SourceError, UsageError, Interrupted: as `get_json` does.
        """
        return self._ask("POST", url, None, data, headers, check, _json)

    def _ask(
        self,
        method: str,
        url: str,
        params: Mapping[str, Any] | None,
        data: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        check: Check | None,
        read: Callable[[bytes], Any],
    ) -> Any:
        try:
            host = parse_url(url).host
        except FetchFailed as failure:
            raise UsageError(f"{self.name}: its address is unusable: {failure.detail}") from None
        hide = _Hider(params, data, headers)
        request = requests.Request(
            method,
            url,
            params=params,
            data=data,
            headers={**self._session.headers, **(headers or {})},
        )
        for attempt in range(self._settings.tries):
            self._wait_turn(host)
            status = None
            try:
                status, body = self._send(request, host)
                if status == 200:
                    value = read(body)
                    if check is not None:
                        check(value, self.last_headers)
                    return value
                told = hide(_told(status, body))
                if status not in RETRYABLE_STATUSES:
                    raise ApiError(f"{self.name} answers with {told}", status)
                asked = self.last_headers.get("Retry-After")
                again = TryAgain(retry_after(asked, self.last_headers.get("Date")), told)
            except FetchFailed as failure:
                if failure.state == "dns" and not failure.retryable:
                    raise SourceError(
                        f"{self.name} cannot be reached: nobody knows {host}; is this machine "
                        "online? The same command goes on later"
                    ) from None
                if not failure.retryable:
                    raise SourceError(f"{self.name}: {hide(str(failure))}") from None
                again = TryAgain(failure.retry_after, hide(str(failure)))
            except TryAgain as raised:
                again = TryAgain(raised.seconds, hide(raised.detail))
            seconds = backoff(attempt) if again.seconds is None else again.seconds
            self._manners.pause(host, seconds)
            last = attempt == self._settings.tries - 1
            if seconds > self._settings.patience_seconds or (last and status == 429):
                until = None if again.seconds is None else naive_utc(time.time() + seconds)
                raise QuotaExhausted(self.name, until, again.detail)
        times = f"{attempt + 1} times" if attempt else "once"
        raise SourceError(f"{self.name}: {again.detail} (tried {times})")

    def _wait_turn(self, host: str) -> None:
        try:
            self._manners.wait_turn(host, self._stop, self._settings.patience_seconds, self._sleep)
        except QuotaExhausted as pause:
            raise QuotaExhausted(self.name, pause.until) from None

    def _send(self, request: requests.Request, host: str) -> tuple[int, bytes]:
        """One question and the whole of its answer."""
        limits = Limits(self._settings.total_seconds)
        failed: bool | None = True
        try:
            prepared = self._session.prepare_request(request)
            with self._pools.limited(limits):
                response = self._session.send(
                    prepared,
                    stream=True,
                    allow_redirects=False,
                    timeout=(self._settings.connect_seconds, self._settings.read_seconds),
                )
            with response:
                self.last_headers = response.headers
                answer = Answer(response.raw, host, limits, MAX_BYTES)
                body = b"".join(answer.chunks())
            failed = response.status_code >= 500
            return response.status_code, body
        except requests.RequestException as error:
            inner = error.args[0] if error.args else error
            raise failure_of(inner if isinstance(inner, Exception) else error) from None
        except FetchFailed as failure:
            failed = True if failure.state == "truncated" else failure.out_of_reach
            raise
        finally:
            self._manners.tell(host, failed)


class _Hider:
    """Takes out of a text what nobody else may read: values of parameters that are keys."""

    def __init__(self, *groups: Mapping[str, Any] | None) -> None:
        secrets: set[str] = set()
        for group in groups:
            for name, value in (group or {}).items():
                if _SECRET.search(name):
                    text = str(value)
                    secrets.update((text, text.rpartition(" ")[2], quote(text), quote_plus(text)))
        self._secrets = sorted((s for s in secrets if len(s) > 3), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text


class _GuardedAdapter(HTTPAdapter):
    def __init__(self, pools: GuardedPools) -> None:
        self._pools = pools
        super().__init__(max_retries=Retry(False))

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        self.poolmanager = self._pools

    def get_connection_with_tls_context(
        self, request: Any, verify: Any, proxies: Any = None, cert: Any = None
    ) -> Any:
        url = parse_url(request.url)
        return self._pools.connection_from_host(url.host, url.port, url.scheme)

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Nothing to be done: the pools' own context verifies certificates."""

    def close(self) -> None:
        """The pools belong to whoever made them."""


def _session(pools: GuardedPools, user_agent: str) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    session.headers.clear()
    session.headers.update(
        {
            "User-Agent": user_agent,
            "Accept": "application/json, text/html;q=0.5, */*;q=0.1",
            "Accept-Encoding": "gzip, deflate",
        }
    )
    for scheme in ("http://", "https://"):
        session.mount(scheme, _GuardedAdapter(pools))
    return session


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise TryAgain(None, "the answer is no JSON") from None


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace")


def _told(status: int, body: bytes) -> str:
    if 300 <= status < 400:
        return f"HTTP {status}, a redirect; is its address in the settings right?"
    message = _message(body)
    return f"HTTP {status}: {message}" if message else f"HTTP {status}"


def _message(body: bytes) -> str | None:
    """What an error's JSON says for people; None for pages of HTML and the like."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    for _ in range(4):
        if isinstance(value, list) and value:
            value = value[0]
        elif isinstance(value, dict):
            told = next((value[name] for name in _MESSAGES if value.get(name)), None)
            # Some name the field at fault instead: {"license": ["…"]}.
            value = told or next(iter(value.values()), None)
    return clean(" ".join(value.split()), 200) if isinstance(value, str) else None
