"""From bytes of unknown origin to an image's row in the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from curate.catalog import intake
from curate.catalog.tables import now
from curate.images.decode import ImageInfo, decode, examine
from curate.images.hashing import perceptual_hash, pixel_sha256
from curate.images.quality import measure
from pipelines.workspace import Workspace

if TYPE_CHECKING:
    from PIL import Image


class KnownImages:
    """The images that were taken in before a command began; any thread may ask.

    Nearly all images are new, so that one question to the catalogue each would be in vain: eight
    bytes of each known image's hash are kept, eight megabytes a million.

    Args:
        workspace: its stage "collect" is held, so that no other command adds images.
    """

    def __init__(self, workspace: Workspace) -> None:
        import numpy as np

        self._workspace = workspace
        with workspace.catalogue.read() as connection:
            hashes = intake.image_hashes(connection)
            heads = np.fromiter((int(sha256[:16], 16) for sha256 in hashes), np.uint64)
        self._heads = np.sort(heads)

    def row(self, sha256: str) -> dict[str, Any] | None:
        """The row of an image, or None."""
        import numpy as np

        head = np.uint64(int(sha256[:16], 16))
        place = int(self._heads.searchsorted(head))
        if place == len(self._heads) or self._heads[place] != head:
            return None
        with self._workspace.catalogue.read() as connection:
            stored = intake.known_image(connection, sha256)
        return None if stored is None else dict(stored)


def image_row(workspace: Workspace, data: bytes, sha256: str, name: str | None) -> dict[str, Any]:
    """Check and decode an image, and measure what the catalogue keeps of it.

    Args:
        workspace: its limits hold.
        data: the original bytes.
        sha256: of `data`.
        name: the file's name, if it has one.

    Raises:
        ImageRefused: the image cannot be used.
    """
    image, info = decode(data, workspace.settings.images, name)
    return _row(info, data, sha256, looks_of(image))


def examined_row(workspace: Workspace, data: bytes, sha256: str) -> dict[str, Any]:
    """Check an image; what it looks like is left for those who need it (see `looks_of`).

    Raises:
        ImageRefused: the image cannot be used, for the reasons that `image_row` gives.
    """
    return _row(examine(data, workspace.settings.images), data, sha256, _NO_LOOKS)


def looks_of(image: Image.Image) -> dict[str, Any]:
    """What a picture looks like, for its row: hashes of its pixels and shapes, and its quality.

    Args:
        image: upright, of mode RGB.
    """
    return {
        "pixel_sha256": pixel_sha256(image),
        "perceptual_hash": str(perceptual_hash(image)),
        "quality": measure(image).to_dict(),
    }


_NO_LOOKS: dict[str, Any] = {"pixel_sha256": "", "perceptual_hash": "", "quality": None}


def _row(info: ImageInfo, data: bytes, sha256: str, looks: dict[str, Any]) -> dict[str, Any]:
    return {
        "sha256": sha256,
        "extension": info.extension,
        "format": info.format,
        "mode": info.mode,
        "bytes": len(data),
        "width": info.width,
        "height": info.height,
        "notes": list(info.notes),
        **looks,
        "taken_in": now(),
    }
