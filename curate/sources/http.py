"""Fetching: one address, its redirects followed by hand, its body in pieces within limits."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from curate.errors import SettingsError
from curate.retries import retry_after
from curate.settings import NetworkSettings
from curate.sources.addresses import Url, parse_url
from curate.sources.connections import GuardedPools, Limits, failure_of
from curate.sources.failures import FetchFailed

__all__ = ["Answer", "FetchFailed", "Fetcher", "GuardedPools", "user_agent"]

#: The name that site owners know this program by, in User-Agent and robots.txt.
AGENT_TOKEN = "natadv-curate"

_CHUNK = 256 * 1024
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
# A refused answer's body is read to its end where it is that short, to keep the connection.
_SHORT_BODY = 8 * 1024
_CREDENTIALS = frozenset(("authorization", "cookie", "proxy-authorization"))
_PRINTABLE_LATIN_1 = re.compile(r"[\x20-\x7e\xa1-\xff]*")


class Answer:
    """A server's answer whose body has not been read.

    Attributes:
        status: 200 (or 203, where a proxy altered it).
        headers: without regard to case; `headers.getlist(name)` where one may come repeatedly.
        url: the address that answered, after redirects.
    """

    def __init__(
        self, response: BaseHTTPResponse, url: str, limits: Limits, max_bytes: int
    ) -> None:
        self.status = response.status
        self.headers = response.headers
        self.url = url
        self._response = response
        self._limits = limits
        self._max_bytes = max_bytes

    def chunks(self, size: int = _CHUNK) -> Iterator[bytes]:
        """The body, once, in pieces of at most about `size` bytes, unpacked if it came packed.

        Raises:
            FetchFailed: "too_large", "truncated", "timeout", "connection" or "bad_answer".
        """
        coding = self.headers.get("Content-Encoding", "").strip().lower()
        # Other codings that servers name (aws-chunked, utf-8) are mistakes, not codings.
        pieces = self._read(size)
        if coding in ("gzip", "x-gzip", "deflate"):
            pieces = _inflate(pieces, size)
        count = 0
        for piece in pieces:
            count += len(piece)
            if count > self._max_bytes:
                raise FetchFailed("too_large", f"over {self._max_bytes:,} bytes")
            yield piece

    def _read(self, size: int) -> Iterator[bytes]:
        read, limits = self._response.read, self._limits
        # Packed bytes may go on without ever unpacking to anything.
        left = 2 * self._max_bytes
        try:
            while left >= 0:
                limits.begin_piece(size)
                piece = read(size, decode_content=False)
                if not piece:
                    return
                left -= len(piece)
                yield piece
        except (HTTPError, OSError, ValueError) as error:
            raise failure_of(error) from error
        raise FetchFailed("too_large", f"over {self._max_bytes:,} bytes")


def _inflate(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    inflater = None
    try:
        for piece in pieces:
            if inflater is None:
                # "deflate" should be zlib's format, and is without its header from some servers.
                wrapped = piece[:2] == b"\x1f\x8b" or (piece[0] & 0x0F == 8 and piece[0] < 0x80)
                inflater = zlib.decompressobj(47 if wrapped else -15)
            while piece and not inflater.eof:
                if out := inflater.decompress(piece, size):
                    yield out
                piece = inflater.unconsumed_tail
    except zlib.error as error:
        raise FetchFailed("bad_answer", f"a damaged body: {error}") from None
    if inflater is not None and not inflater.eof:
        raise FetchFailed("truncated", "the packed body ended early")


class Fetcher:
    """Fetches addresses; may be used from any number of threads.

    Args:
        settings: time limits and redirects.
        user_agent: what `user_agent` gives.
        pools: the connections; new ones if None.
    """

    def __init__(
        self, settings: NetworkSettings, user_agent: str, pools: GuardedPools | None = None
    ) -> None:
        self.pools = pools or GuardedPools(settings)
        self._settings = settings
        self._headers = {"User-Agent": user_agent, "Accept": "*/*", "Accept-Encoding": "identity"}

    @contextmanager
    def open(
        self,
        url: str | Url,
        *,
        max_bytes: int,
        headers: Mapping[str, str] | None = None,
        on_hop: Callable[[Url], None] | None = None,
        seconds: float | None = None,
    ) -> Iterator[Answer]:
        """Ask for an address and follow its redirects.

        Args:
            url: the address.
            max_bytes: most bytes of the body, also after unpacking.
            headers: more headers. Credentials among them go to the first origin alone.
            on_hop: called before each request, the first and those of redirects, with its address;
                the place to wait for the host's turn and to ask its robots.txt. What it raises
                passes, and its time does not count.
            seconds: until all must have arrived; `settings.total_seconds` if None.

        Yields:
            The answer, of status 200 or 203. Leaving early hangs up.

        Raises:
            FetchFailed: the address may not be asked, or no such answer came.
        """
        limits = Limits(self._settings.total_seconds if seconds is None else seconds)
        response, at = self._follow(
            parse_url(url) if isinstance(url, str) else url, headers or {}, limits, on_hop
        )
        try:
            yield _checked(response, at, limits, max_bytes)
        finally:
            _dismiss(response)

    def _follow(
        self,
        at: Url,
        headers: Mapping[str, str],
        limits: Limits,
        on_hop: Callable[[Url], None] | None,
    ) -> tuple[BaseHTTPResponse, Url]:
        sent = {**self._headers, **headers}
        for _ in range(self._settings.redirects + 1):
            if on_hop is not None:
                began = time.monotonic()
                on_hop(at)
                limits.deadline += time.monotonic() - began
            response = self._ask(at, sent, limits)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or location is None:
                return response, at
            _dismiss(response)
            target = at.join(location)
            if at.scheme == "https" and target.scheme == "http":
                raise FetchFailed("bad_url", "redirected from https to http")
            if target.origin != at.origin:
                sent = {k: v for k, v in sent.items() if k.lower() not in _CREDENTIALS}
            at = target
        raise FetchFailed(
            "too_many_redirects", f"redirected more than {self._settings.redirects} times"
        )

    def _ask(self, at: Url, headers: dict[str, str], limits: Limits) -> BaseHTTPResponse:
        pool = self.pools.connection_from_host(at.host, at.port, at.scheme)
        for attempt in (1, 2):
            limits.begin_answer()
            limits.left()
            try:
                with self.pools.limited(limits):
                    return pool.urlopen(
                        "GET",
                        at.target,
                        headers=headers,
                        retries=False,
                        redirect=False,
                        preload_content=False,
                        decode_content=False,
                    )
            except (HTTPError, OSError, ValueError) as error:
                failure = failure_of(error)
                # A kept connection that the server closed meanwhile says nothing of the server.
                stale = failure.state == "connection" and not limits.connected
                if attempt == 2 or not stale:
                    raise failure from error
        raise AssertionError("unreachable")


def _checked(response: BaseHTTPResponse, at: Url, limits: Limits, max_bytes: int) -> Answer:
    if response.status not in (200, 203):
        date = response.headers.get("Date")
        pause = retry_after(response.headers.get("Retry-After"), date)
        raise FetchFailed(f"http_{response.status}", at.host, retry_after=pause)
    length = response.headers.get("Content-Length", "")
    if length.isdigit() and length.isascii() and int(length[:20]) > max_bytes:
        raise FetchFailed("too_large", f"{int(length[:20]):,} bytes, over {max_bytes:,}")
    return Answer(response, str(at), limits, max_bytes)


def _dismiss(response: BaseHTTPResponse) -> None:
    """Give the connection back if little is left to read, else hang up."""
    if response.closed:
        response.release_conn()
        return
    left = getattr(response, "length_remaining", None)
    if left is not None and left <= _SHORT_BODY:
        with suppress(FetchFailed):
            response.drain_conn()
    response.close()
    response.release_conn()


def user_agent(version: str, contact: str) -> str:
    """What this program says it is: its name, its version, and whom to ask about it.

    Args:
        version: of the program.
        contact: a page or a mail address; empty for none.

    Raises:
        SettingsError: the contact cannot stand in a header.
    """
    if not _PRINTABLE_LATIN_1.fullmatch(contact) or set("()\\") & set(contact):
        raise SettingsError(
            "collect.contact: write a mail address or the address of a page, without line ends, "
            f"brackets or letters outside Latin-1 (got {contact!r})"
        )
    contact = contact.strip()
    if not contact:
        return f"{AGENT_TOKEN}/{version}"
    mail = "@" in contact and "://" not in contact and not contact.startswith("mailto:")
    return f"{AGENT_TOKEN}/{version} (+{'mailto:' if mail else ''}{contact})"
