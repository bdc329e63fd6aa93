"""A small server of a folder of images on 127.0.0.1, for benchmarks of downloaders.

    python benchmarks/image_server.py FOLDER

It prints its port, keeps connections open, and ends when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path


async def answer(folder: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection."""
    loop = asyncio.get_running_loop()
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            target = head.split(b" ", 2)[1].decode("ascii")
            closing = b"connection: close" in head.lower()
            path = folder / target.lstrip("/")
            found = ".." not in target and path.suffix == ".jpg" and path.is_file()
            size = path.stat().st_size if found else 0
            status = "200 OK" if found else "404 Not Found"
            kind = "image/jpeg" if found else "text/plain"
            after = "close" if closing else "keep-alive"
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n"
                f"Connection: {after}\r\n\r\n".encode()
            )
            if found:
                with path.open("rb") as stream:
                    await loop.sendfile(writer.transport, stream)
            await writer.drain()
            if closing:
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def serve(folder: Path) -> None:
    """Serve until standard input is closed."""
    server = await asyncio.start_server(
        lambda reader, writer: answer(folder, reader, writer), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    # Connections that are still open are no reason to stay.
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
