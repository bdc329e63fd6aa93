"""Connections that go to checked addresses alone, and that no server can hold for long.

The pools are urllib3's. Two things differ. A connection goes to the very address that
`curate.sources.addresses.resolve` has checked; there is no second look-up that could answer
otherwise, and nobody waits for that one longer than for a connection. And every read of a socket
looks at the clock and at a count of bytes: a read timeout alone is never met by a server that sends
one byte a second.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from ipaddress import ip_address
from typing import Any, cast

import certifi
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError, SSLError

from curate.settings import NetworkSettings
from curate.sources.addresses import AddressInfo, HostPort, parse_allow_host, resolve
from curate.sources.failures import FetchFailed
from curate.sources.lookups import Lookups

#: Most bytes of one answer before its body: interim answers, status and headers.
HEADER_BYTES = 256 * 1024

#: Pools of connections that are kept at a time, one a host and port.
_HOSTS = 128

Resolver = Callable[[str, int, Iterable[HostPort]], Sequence[AddressInfo]]


class Limits:
    """What one exchange with a server may still take.

    Args:
        seconds: time until everything must have arrived.
    """

    __slots__ = ("bytes", "connected", "deadline", "in_body")

    def __init__(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds
        self.bytes = HEADER_BYTES
        self.in_body = False
        self.connected = False

    def begin_answer(self) -> None:
        """From now on headers are read."""
        self.bytes, self.in_body, self.connected = HEADER_BYTES, False, False

    def begin_piece(self, size: int) -> None:
        """From now on a piece of a body is read.

        What carries it (chunk sizes, trailers, bytes read ahead) may be seven times as much. The
        standard library reads all that comes for a chunk of size -1: this is what ends it.
        """
        self.bytes, self.in_body = 8 * size + 2**20, True

    def left(self) -> float:
        """Seconds left.

        Raises:
            FetchFailed: "timeout": there are none.
        """
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise FetchFailed("timeout", "not finished within network.total_seconds")
        return seconds

    def take(self, count: int) -> None:
        """Count bytes that arrived.

        Raises:
            FetchFailed: "bad_answer" or "too_large": more than may come.
        """
        self.bytes -= count
        if self.bytes < 0:
            raise FetchFailed("too_large" if self.in_body else "bad_answer", "it does not end")


class _Watched:
    """A socket that keeps to the limits of the exchange it serves."""

    limits: Limits
    pools: GuardedPools

    def recv_into(self, buffer: Any, nbytes: Any = 0, flags: int = 0) -> int:
        left = self.limits.left()
        silence = self.gettimeout()  # type: ignore[attr-defined]
        if silence is None or left < silence:
            self.settimeout(left)  # type: ignore[attr-defined]
        try:
            count: int = super().recv_into(buffer, nbytes, flags)  # type: ignore[misc]
        except OSError:
            self.pools.refuse_if_aborted()
            raise
        if count == 0:
            self.pools.refuse_if_aborted()
        self.limits.take(count)
        return count


class _Socket(_Watched, socket.socket):
    pass


class _TlsSocket(_Watched, ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        # Known before its handshake: a server that falls silent there can be hung up on as well.
        self.context.watched(self)  # type: ignore[attr-defined]
        try:
            super().do_handshake(block)
        except OSError:
            self.pools.refuse_if_aborted()
            raise


class _TlsContext(ssl.SSLContext):
    sslsocket_class = _TlsSocket
    watched: Callable[[_TlsSocket], None]


class _GuardedConnection(HTTPConnection):
    pools: GuardedPools

    def _new_conn(self) -> socket.socket:
        return self.pools.connect(self.host, self.port)

    def request(self, *args: Any, **kwargs: Any) -> None:
        limits = self.pools.limits
        if self.sock is None:
            self.connect()
        cast(_Watched, self.sock).limits = limits
        super().request(*args, **kwargs)


class _GuardedTlsConnection(_GuardedConnection, HTTPSConnection):
    def connect(self) -> None:
        self.ssl_context = self.pools.tls_context()
        super().connect()


class GuardedPools(urllib3.PoolManager):
    """Pools of connections to public hosts; those that a user names may be others.

    Proxies of the environment are not used: a proxy would resolve the names by itself.

    Args:
        settings: time limits, exempt hosts, connections kept to each host.
        resolver: gives the addresses to connect to, all checked. Tests show with another one that
            the check is what keeps connections off.

    Raises:
        UsageError: `settings.allow_hosts` cannot be read.
    """

    def __init__(self, settings: NetworkSettings, resolver: Resolver = resolve) -> None:
        # Its messages hold whole addresses, which may hold keys.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        self._settings = settings
        self._resolver = resolver
        self._allow = tuple(parse_allow_host(text) for text in settings.allow_hosts)
        self._lookups = Lookups()
        self._aborted = False
        self._lock = threading.Lock()
        self._live: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._local = threading.local()
        self._context: ssl.SSLContext | None = None
        super().__init__(
            num_pools=_HOSTS,
            maxsize=settings.per_host,
            retries=False,
            timeout=urllib3.Timeout(connect=settings.connect_seconds, read=settings.read_seconds),
        )
        plain = type("_Plain", (_GuardedConnection,), {"pools": self})
        tls = type("_Tls", (_GuardedTlsConnection,), {"pools": self})
        self.pool_classes_by_scheme = {
            "http": type("_PlainPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
            "https": type("_TlsPool", (HTTPSConnectionPool,), {"ConnectionCls": tls}),
        }

    def tls_context(self) -> ssl.SSLContext:
        """What verifies certificates; made when it is first needed, since that takes a while."""
        with self._lock:
            if self._context is None:
                self._context = self._new_context()
            return self._context

    def _new_context(self) -> ssl.SSLContext:
        context = _TlsContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_default_certs()
        # Slim systems come without certificates of their own.
        context.load_verify_locations(certifi.where())
        reference = weakref.ref(self)

        def watched(sock: _TlsSocket) -> None:
            if (pools := reference()) is not None:
                pools.watch(sock)

        context.watched = watched
        return context

    @property
    def limits(self) -> Limits:
        """The limits of the exchange that this thread is in (see `limited`)."""
        found: Limits | None = getattr(self._local, "limits", None)
        return found or Limits(self._settings.total_seconds)

    @contextmanager
    def limited(self, limits: Limits) -> Iterator[None]:
        """Hold what this thread asks meanwhile to `limits`.

        They stay with the connection until its next request, for the reading of the body.
        """
        self._local.limits = limits
        try:
            yield
        finally:
            self._local.limits = None

    def connect(self, host: str, port: int) -> socket.socket:
        """A connection to one of the host's checked addresses.

        Raises:
            FetchFailed: none may be used, or none answers.
        """
        limits = self.limits
        limits.connected = True
        failure = FetchFailed("connection", f"{host}: no address answers")
        for family, kind, protocol, _, address in self._addresses(host, port, limits):
            sock = _Socket(family, kind, protocol)
            sock.limits = limits
            self.watch(sock)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(min(self._settings.connect_seconds, limits.left()))
                sock.connect(address)
                # The handshake of TLS, which follows, gets its own time.
                sock.settimeout(min(self._settings.connect_seconds, limits.left()))
                return sock
            except TimeoutError:
                failure = FetchFailed("timeout", f"{host}: no connection in time")
            except OSError as error:
                failure = FetchFailed("connection", f"{host}: {error.strerror or error}")
            except BaseException:
                sock.close()
                raise
            sock.close()
            self.refuse_if_aborted()
        raise failure

    def _addresses(self, host: str, port: int, limits: Limits) -> Sequence[AddressInfo]:
        def ask() -> Sequence[AddressInfo]:
            return self._resolver(host, port, self._allow)

        with suppress(ValueError):
            ip_address(host)
            return ask()
        seconds = min(self._settings.connect_seconds, limits.left())
        try:
            return self._lookups.run(ask, seconds, self.refuse_if_aborted)
        except TimeoutError:
            detail = f"{host}: the look-up of its name takes too long"
            raise FetchFailed("dns", detail, retryable=True) from None

    def watch(self, sock: socket.socket) -> None:
        """Let `abort` know of a socket."""
        self.refuse_if_aborted()
        if not hasattr(sock, "limits"):
            sock.limits = self.limits  # type: ignore[attr-defined]
        sock.pools = self  # type: ignore[attr-defined]
        with self._lock:
            self._live.add(sock)

    def abort(self) -> None:
        """Hang up on all servers, for good; what is being fetched fails with "waiting".

        May be called from any thread.
        """
        self._aborted = True
        with self._lock:
            live = list(self._live)
        for sock in live:
            with suppress(OSError):
                # Not the method of TLS sockets, which forgets its state under a reader's feet.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def refuse_if_aborted(self) -> None:
        """Raise the failure that `abort` asks for.

        Raises:
            FetchFailed: "waiting".
        """
        if self._aborted:
            raise FetchFailed("waiting", "stopped")


def failure_of(error: BaseException) -> FetchFailed:
    """What an error of urllib3, http.client or the socket means for the hit."""
    cause = error.args[-1] if isinstance(error, ProtocolError | SSLError) and error.args else error
    if isinstance(error, ReadTimeoutError | TimeoutError) or isinstance(cause, TimeoutError):
        return FetchFailed("timeout", "the server fell silent")
    if isinstance(error, SSLError | ssl.SSLError):
        trusted = not isinstance(cause, ssl.SSLCertVerificationError)
        detail = getattr(cause, "verify_message", None) or getattr(cause, "reason", None)
        return FetchFailed("tls", str(detail or cause), retryable=trusted)
    if isinstance(cause, IncompleteRead):
        return FetchFailed("truncated", "the body ended early")
    if isinstance(cause, OSError | RemoteDisconnected):
        what = getattr(cause, "strerror", None) or "the server hung up"
        return FetchFailed("connection", str(what))
    if isinstance(cause, HTTPException | HTTPError | ValueError):
        return FetchFailed("bad_answer", _plain(f"{type(cause).__name__}: {cause}"))
    return FetchFailed("connection", _plain(f"{type(cause).__name__}: {cause}"))


def _plain(text: str) -> str:
    """Text of which a server may have written a part."""
    return re.sub(r"[^\x20-\x7e]+", "?", text)[:200]
