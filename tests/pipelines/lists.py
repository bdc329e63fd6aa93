"""Lists of addresses of real photos on a server of loopback, well behaved and not."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from tests.sources.servers import LoopbackServer

#: What makes tests fast and polite to nobody: loopback needs no manners.
HASTE = {"CURATE_NETWORK__PER_SECOND": "100000", "CURATE_NETWORK__PER_HOST": "8"}

_HEADER = "url,label,licence,author,title,page"


def distinct_photos(photos: Sequence[Path], count: int) -> list[bytes]:
    """JPEGs of different content that are no near-duplicates of each other."""
    made = []
    for number in range(count):
        turn, place = divmod(number, len(photos))
        with Image.open(photos[place]) as photo:
            upright = photo.convert("RGB")
        # Another part of the photo each turn.
        side = min(upright.size) * 3 // 4
        left = turn * 17 % max(1, upright.width - side)
        top = turn * 29 % max(1, upright.height - side)
        part = upright.crop((left, top, left + side, top + side))
        if turn % 2:
            part = part.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
        stream = io.BytesIO()
        part.resize((160 + number % 7, 160)).save(stream, "JPEG", quality=85)
        made.append(stream.getvalue())
    return made


class PhotoList:
    """A CSV list, row by row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = [_HEADER]

    def add(
        self, url: str, label: str = "dragonfly", licence: str = "CC BY 4.0", author: str = "Ann"
    ) -> None:
        number = len(self.rows)
        page = f"https://example.org/{number}"
        self.rows.append(f'"{url}",{label},{licence},{author},photo {number},{page}')
        self.path.write_text("\n".join(self.rows) + "\n", encoding="utf-8")


def awkward_list(server: LoopbackServer, path: Path, photos: Sequence[bytes]) -> PhotoList:
    """All of `photos`, and between them what goes wrong in a deterministic way."""
    made = PhotoList(path)
    labels = ("dragonfly", "goldfinch", "n02206856")
    for number, photo in enumerate(photos):
        made.add(server.serve(f"/{number}.jpg", photo), labels[number % 3])
    server.serve("/page.jpg", b"<html>blocked</html>")
    server.serve("/cut.jpg", photos[0][:-400])
    server.serve("/copy.jpg", photos[0])
    for name in ("page", "cut", "copy", "gone"):
        made.add(server.url(f"/{name}.jpg"))
    made.add(server.url("/1.jpg"), "no such class")
    made.add(server.url("/2.jpg"), "dragonfly", licence="")
    made.add("http://127.0.0.1:1/private.jpg")
    made.add("file:///etc/passwd")
    made.add("")
    return made
