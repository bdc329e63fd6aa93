"""Addresses of servers, and what went wrong on the way to them, in words without a secret."""

from __future__ import annotations

from urllib.parse import urlsplit

import requests
from urllib3.exceptions import ConnectTimeoutError, MaxRetryError, NewConnectionError

from curate.errors import UsageError


def checked_url(url: str) -> str:
    """The address of a server without a slash at its end.

    Raises:
        UsageError: it is none, or one that holds a password; the text does not repeat it.
    """
    try:
        parts = urlsplit(url.strip())
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or not url.strip().isprintable() or parts.query or parts.fragment:
        raise UsageError("review.url is no address of a server; for example https://labels.org")
    if "@" in parts.netloc:
        raise UsageError("review.url must hold no password; the token goes to CURATE_REVIEW_TOKEN")
    return url.strip().rstrip("/")


def on_loopback(url: str) -> bool:
    """Whether an address is on this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def was_sent(error: requests.RequestException) -> bool:
    """Whether the request may have reached the server."""
    if isinstance(error, requests.ConnectTimeout | requests.exceptions.InvalidURL):
        return False
    inner = error.args[0] if error.args else None
    reason = inner.reason if isinstance(inner, MaxRetryError) else inner
    if isinstance(error, requests.exceptions.SSLError | requests.exceptions.ProxyError):
        return False
    return not isinstance(reason, NewConnectionError | ConnectTimeoutError)


def reason_of(error: BaseException) -> str:
    """What went wrong in a word or two: the errors' own texts hold addresses and objects."""
    if isinstance(error, requests.Timeout) or "timed out" in str(error).lower():
        return "timed out"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not trusted"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy refuses"
    text = str(error).lower()
    for sign, told in (
        ("refused", "connection refused"),
        ("resolve", "nobody knows its name"),
        ("name or service", "nobody knows its name"),
        ("reset", "connection reset"),
        ("without response", "it hung up"),
        ("unreachable", "network unreachable"),
        ("bytes read", "the answer ended early"),
        ("over ", "the answer is too long"),
        ("not whole", "the answer takes too long"),
    ):
        if sign in text:
            return told
    return "the connection failed"
