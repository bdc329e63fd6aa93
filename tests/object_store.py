"""Object stores on loopback: moto's server, which speaks S3, and one that answers as it is told."""

from __future__ import annotations

import importlib.util
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Keys that nobody may print.
KEY, SECRET = "AKIA" + "TESTTESTTEST", "geheim/" + "0123456789+abcdef"


def installed() -> bool:
    """Whether there is what the server and its clients need."""
    return all(importlib.util.find_spec(name) for name in ("moto", "flask_cors", "s3fs"))


class ObjectStore:
    """A running server of S3, with what it was asked for.

    Attributes:
        url: where it answers.
        environ: what a process needs to use it.
        client: for tests to look into it, and to do harm there.
    """

    def __init__(self) -> None:
        import boto3
        from botocore.config import Config
        from moto.server import ThreadedMotoServer

        self._made = 0
        self._said: list[str] = []
        log = logging.getLogger("werkzeug")
        log.setLevel(logging.INFO)
        log.addFilter(self._keep)
        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        self.environ = environ(self.url)
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            # As programs did that told no check of what they sent.
            config=Config(request_checksum_calculation="when_required"),
        )

    def make_bucket(self) -> str:
        """The name of a new bucket."""
        self._made += 1
        name = f"photos-{self._made}"
        self.client.create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """The names of all objects."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [one["Key"] for page in pages for one in page.get("Contents", ())]

    @contextmanager
    def asked(self) -> Iterator[list[str]]:
        """What is asked for meanwhile: "PUT /bucket/key" and so on."""
        self._said.clear()
        found: list[str] = []
        yield found
        found += self._said

    def close(self) -> None:
        """End the server."""
        self._server.stop()
        logging.getLogger("werkzeug").removeFilter(self._keep)

    def _keep(self, record: logging.LogRecord) -> bool:
        """Keep what the server would print of a request."""
        if asked := re.search(r"[A-Z]+ /.*(?= HTTP/)", record.getMessage()):
            self._said.append(asked[0])
        return False


def environ(url: str) -> dict[str, str]:
    """What a process needs to use the server at an address, and nothing of this machine's user."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }


class Answers:
    """A server that answers each request with the next answer, and the last one ever after.

    Args:
        answers: status, body, and the length that is told of it (None for the true one). A status
            of 0 is silence until the server ends.
    """

    def __init__(self, *answers: tuple[int, bytes, int | None]) -> None:
        self.requests: list[str] = []
        self._over = over = threading.Event()
        requests, left = self.requests, list(answers)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                requests.append(f"{self.command} {self.path}")
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, body, length = left.pop(0) if len(left) > 1 else left[0]
                self.close_connection = True
                if not status:
                    over.wait(600)
                    return
                self.send_response(status)
                self.send_header("Content-Type", "application/xml")
                self.send_header("Content-Length", str(len(body) if length is None else length))
                self.send_header("Connection", "close")
                if status == 301:
                    self.send_header("x-amz-bucket-region", "eu-central-1")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Answers:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def error(code: str, status: int) -> tuple[int, bytes, None]:
    """An answer as S3 tells an error."""
    said = f"<Error><Code>{code}</Code><Message>{code} it is</Message></Error>"
    return status, b'<?xml version="1.0" encoding="UTF-8"?>\n' + said.encode(), None
