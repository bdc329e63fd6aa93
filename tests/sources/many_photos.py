"""A server in a process of its own, whose every address is another image of the same size.

    python many_photos.py SIZE

It tells its port in a line, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys


def content(path: str, size: int) -> bytes:
    """What the server answers for a path: bytes that begin as JPEG does, and all differ."""
    return (b"\xff\xd8\xff\xe0" + hashlib.sha256(path.encode()).digest() * (size // 32))[:size]


class _Answering(asyncio.Protocol):
    size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._read = transport, b""

    def data_received(self, data: bytes) -> None:
        self._read += data
        while b"\r\n\r\n" in self._read:
            head, self._read = self._read.split(b"\r\n\r\n", 1)
            body = content(head.split(b" ", 2)[1].decode(), self.size)
            told = f"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nContent-Length: {len(body)}"
            self._transport.write(told.encode() + b"\r\n\r\n" + body)  # type: ignore[attr-defined]


async def _main(size: int) -> None:
    _Answering.size = size
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Answering, "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
