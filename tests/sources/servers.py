"""A real HTTP server on loopback whose paths behave as a test says, well or badly."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.waiting import PATIENCE, reserved_port


@dataclass(frozen=True)
class Request:
    """One request that arrived.

    Attributes:
        time: `time.monotonic()` when it did.
        method, path: as sent, the path without its query.
        query: the first value of each parameter.
        headers: without regard to case.
        host: the Host header.
        body: what was posted.
        peer: the client's address and port, the same for all requests of one connection.
        number: how many requests for this path came before.
    """

    time: float
    method: str
    path: str
    query: dict[str, str]
    headers: Message
    host: str
    body: bytes
    peer: tuple[str, int]
    number: int


class Exchange:
    """One request, and the ways to answer it."""

    def __init__(self, handler: BaseHTTPRequestHandler, request: Request, over: threading.Event):
        self.request = request
        self._handler = handler
        self._over = over

    def send(
        self,
        status: int = 200,
        body: bytes = b"",
        headers: Mapping[str, str | list[str] | None] | None = None,
        content_type: str = "application/octet-stream",
    ) -> None:
        """A whole answer as it should be.

        `headers` replace those that would be sent: a list for one that comes several times, None
        for one that shall be absent.
        """
        told: dict[str, str | list[str] | None] = {
            "Date": self._handler.date_time_string(),
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            **(headers or {}),
        }
        self._handler.send_response_only(status)
        for name, value in told.items():
            for each in [value] if isinstance(value, str) else value or ():
                self._handler.send_header(name, each)
        self._handler.end_headers()
        if self.request.method != "HEAD":
            self._handler.wfile.write(body)

    def json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.send(status, json.dumps(value).encode(), headers, "application/json")

    def redirect(self, location: str, status: int = 302) -> None:
        """Letters outside ASCII go as UTF-8, as many servers send them."""
        self.send(status, headers={"Location": location.encode().decode("latin-1")})

    def raw(self, data: bytes) -> None:
        """Bytes as they are, where a status line would stand or after it; then hang up."""
        self._handler.close_connection = True
        self._handler.wfile.write(data)
        self._handler.wfile.flush()

    def drip(self, data: bytes, seconds: float) -> None:
        """Byte by byte, with a pause after each, until the client or the test has enough."""
        self._handler.close_connection = True
        for number in range(len(data)):
            self._handler.wfile.write(data[number : number + 1])
            self._handler.wfile.flush()
            if self._over.wait(seconds):
                return

    def endless(self, piece: bytes) -> None:
        """The same piece again and again, until the client or the test has enough."""
        self._handler.close_connection = True
        while not self._over.is_set():
            self._handler.wfile.write(piece)

    def silence(self, seconds: float = 2 * PATIENCE) -> None:
        """Say nothing, and hang up at the end."""
        self._handler.close_connection = True
        self._over.wait(seconds)


Answerer = Callable[[Exchange], None]


class LoopbackServer:
    """A server on an ephemeral port; use it as a context manager.

    Args:
        host: an address of loopback: 127.0.0.1, or 127.0.0.2 for a second host.
        tls: serves https with this context.
    """

    def __init__(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self._answerers: dict[str, Answerer] = {}
        self._hits: dict[str, int] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._scheme = "https" if tls else "http"
        server = _Server6 if ":" in host else _Server
        self._server = server((host, 0), self._handler_class())
        if tls:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.host = host
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> LoopbackServer:
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()

    @property
    def allow_host(self) -> str:
        """What `network.allow_hosts` must name."""
        return f"{self.host}:{self.port}"

    def url(self, path: str = "/", host: str | None = None) -> str:
        return f"{self._scheme}://{host or self.host}:{self.port}{path}"

    def on(self, path: str, answerer: Answerer) -> None:
        """Answer `path` so; a path that ends in "*" stands for all that begin like it."""
        self._answerers[path] = answerer

    def serve(self, path: str, body: bytes, content_type: str = "image/jpeg") -> str:
        """Answer `path` with a body; returns its address."""
        self.on(path, lambda exchange: exchange.send(body=body, content_type=content_type))
        return self.url(path)

    def hits(self, path: str | None = None) -> int:
        """How many requests came, for one path or all."""
        with self._lock:
            return self._hits.get(path, 0) if path is not None else len(self.requests)

    def _answerer(self, path: str) -> Answerer:
        if path in self._answerers:
            return self._answerers[path]
        stems = [key for key in self._answerers if key.endswith("*") and path.startswith(key[:-1])]
        if stems:
            return self._answerers[max(stems, key=len)]
        return lambda exchange: exchange.send(404, b"not here", content_type="text/plain")

    def _handler_class(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Headers and body in one packet, and none waits for another's acknowledgement.
            wbufsize = -1
            disable_nagle_algorithm = True
            timeout = PATIENCE

            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else b""
                split = urlsplit(self.path)
                with outer._lock:
                    number = outer._hits.get(split.path, 0)
                    outer._hits[split.path] = number + 1
                    request = Request(
                        time.monotonic(),
                        self.command,
                        split.path,
                        {k: v[0] for k, v in parse_qs(split.query, True).items()},
                        self.headers,
                        self.headers.get("Host", ""),
                        body,
                        self.client_address[:2],
                        number,
                    )
                    outer.requests.append(request)
                outer._answerer(split.path)(Exchange(self, request, outer._over))
                self.wfile.flush()

            do_POST = do_HEAD = do_PATCH = do_DELETE = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Clients of tests hang up in the middle; that is what many of them are about.
        pass

    def shutdown_request(self, request: Any) -> None:
        with suppress(OSError):
            request.shutdown(socket.SHUT_WR)
        self.close_request(request)


class _Server6(_Server):
    address_family = socket.AF_INET6


def closed_port() -> int:
    """A port of 127.0.0.1 at which nothing listens."""
    return reserved_port()
