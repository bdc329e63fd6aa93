"""Where people's browsers find the photos.

What a browser draws as this program sees it is shown as it is: at the workspace's own server a link
leads to the store. Of everything else there is an upright PNG in sRGB, without metadata:

    review/served/derived/ab/abcdef….png        what a browser cannot draw, or draws otherwise
    review/served/derived/ab/abcdef….jpg        a copy, where the store is no folder
    review/served/derived/ab/abcdef…-200.jpg    a small one, as an example of its class

A team's own server gets what is not below `review.image_url` by upload.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from annotation.client import Client
from annotation.client_errors import Unanswered
from annotation.server import served
from curate.catalog.store import FolderStore, key_of
from curate.errors import ImageRefused
from curate.files import atomic_write, make_folder
from curate.images.decode import decode_trusted
from pipelines.review_projects import PATIENCE, PAUSE, photos_project
from pipelines.workspace import Workspace

#: Longest side of an example, in pixels.
SMALL = 200

#: What browsers draw; and of these what Label Studio takes by upload.
_DRAWN = frozenset(("JPEG", "PNG", "GIF", "WEBP", "BMP", "AVIF"))
_UPLOADED = _DRAWN - {"AVIF"}

#: What makes a browser's picture another one than this program's: what is transparent would lie on
#: the page's colour, damaged metadata are read by each in its own way, and CMYK has no one meaning.
_OTHERWISE = frozenset(
    ("alpha-flattened", "cmyk-converted", "icc-unreadable", "exif-unreadable", "16-bit-scaled")
)

#: Most files of one upload, and most bytes of them.
_FILES, _BYTES = 100, 32_000_000

_NAME = re.compile(r"([0-9a-f]{64}(?:-\d+)?\.[a-z]+)\Z")


def drawn_alike(image: Mapping[str, Any]) -> bool:
    """Whether browsers draw an image as `curate.images.decode` does.

    Args:
        image: `format`, `mode` and `notes` of its row.
    """
    notes = set(image["notes"])
    # Browsers turn JPEGs by their orientation; of other formats some do and some do not.
    turned = image["format"] != "JPEG" and "exif-orientation-applied" in notes
    alike = notes.isdisjoint(_OTHERWISE) and not image["mode"].startswith("CMYK")
    return image["format"] in _DRAWN and alike and not turned


class Photos:
    """The addresses of photos in tasks.

    Args:
        workspace: its settings say which server, and where people's browsers find the store.
        client: of that server.

    Attributes:
        refused: why there is no address for an image, by SHA-256.
    """

    def __init__(self, workspace: Workspace, client: Client) -> None:
        self.workspace, self.client = workspace, client
        self.refused: dict[str, ImageRefused] = {}
        review = workspace.settings.review
        self._own = not review.url
        self._below = review.image_url.rstrip("/") if review.url else ""
        self._derived = served(workspace.root) / "derived"
        self._uploads: dict[str, str] | None = None
        self._project = 0

    def addresses(self, images: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """Where browsers find photos, made or uploaded as far as that was not done before.

        Args:
            images: rows with `sha256`, `extension`, `format`, `mode` and `notes`.

        Returns:
            Addresses by SHA-256. Those that cannot be read are left out; `refused` has the reason.

        Raises:
            StorageError: the store is away, or the disk is full.
            ReviewServerError: as `annotation.client_errors` says.
        """
        found: dict[str, str] = {}
        wanted: dict[str, tuple[str, Callable[[], bytes]]] = {}
        for image in images:
            sha256 = image["sha256"]
            try:
                if (direct := self._direct(image)) is not None:
                    found[sha256] = direct
                    continue
            except ImageRefused as error:
                self.refused[sha256] = error
                continue
            taken = _DRAWN if self._own else _UPLOADED
            if drawn_alike(image) and image["format"] in taken:
                wanted[sha256] = (f"{sha256}.{image['extension']}", partial(self._read, image))
            else:
                wanted[sha256] = (f"{sha256}.png", partial(self._png, image))
        return found | self._placed(wanted)

    def examples(self, images: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """Where browsers find small ones of photos, as `addresses`."""
        wanted: dict[str, tuple[str, Callable[[], bytes]]] = {
            image["sha256"]: (f"{image['sha256']}-{SMALL}.jpg", partial(self._small, image))
            for image in images
        }
        return self._placed(wanted)

    def _direct(self, image: Mapping[str, Any]) -> str | None:
        """Where the stored file itself can be shown; None where it cannot."""
        if not drawn_alike(image):
            return None
        store, sha256, extension = self.workspace.store, image["sha256"], image["extension"]
        if self._own and isinstance(store, FolderStore):
            if not store.path(sha256, extension).is_file():
                raise ImageRefused("missing", f"{sha256} is not in the store")
            return _local(f"images/{key_of(sha256, extension)}")
        return f"{self._below}/{key_of(sha256, extension)}" if self._below else None

    def _placed(self, wanted: Mapping[str, tuple[str, Callable[[], bytes]]]) -> dict[str, str]:
        """Put files where they are shown; gives their addresses under the same keys."""
        if self._own:
            return dict(self._derive(wanted))
        return self._upload(wanted)

    def _derive(
        self, wanted: Mapping[str, tuple[str, Callable[[], bytes]]]
    ) -> Iterator[tuple[str, str]]:
        for sha256, (name, make) in wanted.items():
            path = self._derived / name[:2] / name
            if path.is_file() or self._write(sha256, path, make):
                yield sha256, _local(f"derived/{name[:2]}/{name}")

    def _write(self, sha256: str, path: Path, make: Callable[[], bytes]) -> bool:
        if (data := self._made(sha256, make)) is None:
            return False
        make_folder(path.parent)
        with atomic_write(path) as stream:
            stream.write(data)
        return True

    def _upload(self, wanted: Mapping[str, tuple[str, Callable[[], bytes]]]) -> dict[str, str]:
        if not wanted:
            return {}
        if self._uploads is None:
            self._project = photos_project(self.workspace, self.client)
            self._uploads = self._uploaded()
        batch: dict[str, bytes] = {}
        for sha256, (name, make) in wanted.items():
            if name in self._uploads or (data := self._made(sha256, make)) is None:
                continue
            if batch and (
                len(batch) >= _FILES or sum(map(len, batch.values())) + len(data) > _BYTES
            ):
                self._uploads |= self._send(batch)
                batch = {}
            batch[name] = data
        if batch:
            self._uploads |= self._send(batch)
        there = self._uploads
        return {sha: there[name] for sha, (name, _) in wanted.items() if name in there}

    def _send(self, batch: Mapping[str, bytes]) -> dict[str, str]:
        until = time.monotonic() + PATIENCE
        try:
            return _named(self.client.upload(self._project, batch))
        except Unanswered:
            while not batch.keys() <= (there := self._uploaded()).keys():
                if time.monotonic() >= until:
                    raise
                time.sleep(PAUSE)
        return there

    def _uploaded(self) -> dict[str, str]:
        return _named(self.client.uploads(self._project))

    def _made(self, sha256: str, make: Callable[[], bytes]) -> bytes | None:
        try:
            return make()
        except ImageRefused as error:
            self.refused[sha256] = error
            return None

    def _read(self, image: Mapping[str, Any]) -> bytes:
        return self.workspace.store.read(image["sha256"], image["extension"])

    def _png(self, image: Mapping[str, Any]) -> bytes:
        stream = io.BytesIO()
        decode_trusted(self._read(image), self.workspace.settings.images).save(stream, "PNG")
        return stream.getvalue()

    def _small(self, image: Mapping[str, Any]) -> bytes:
        from PIL import Image

        picture = decode_trusted(self._read(image), self.workspace.settings.images)
        picture.thumbnail((SMALL, SMALL), Image.Resampling.LANCZOS, reducing_gap=3.0)
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=80)
        return stream.getvalue()


def boxes(
    width: int, height: int, recipe: Mapping[str, Any]
) -> Sequence[tuple[float, float, float, float]]:
    """Where the evaluated views lie on a photo: the centre and the four corners.

    Args:
        width: of the upright photo, in pixels.
        height: of the upright photo.
        recipe: `resize` and `crop` of a `curate.images.views.ViewRecipe`.

    Returns:
        Left, top, width and height of each as parts of the photo.
    """
    from curate.images.views import window

    short, crop = min(width, height), recipe["crop"]
    # As `resize_short_side` rounds.
    long = int(recipe["resize"] * max(width, height) / short)
    across, down = (recipe["resize"], long) if width <= height else (long, recipe["resize"])
    places = [window(down, across, number, crop) for number in range(5)]
    return [(w.left / across, w.top / down, crop / across, crop / down) for w in places]


def _named(addresses: Iterable[str]) -> dict[str, str]:
    """Addresses of uploads by the names of their files; the oldest of one name."""
    found: dict[str, str] = {}
    for address in addresses:
        if name := _NAME.search(address):
            found.setdefault(name[1], address)
    return found


def _local(path: str) -> str:
    return f"/data/local-files/?d={path}"
