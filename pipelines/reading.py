"""From bytes of unknown origin to an image's row in the catalogue."""

from __future__ import annotations

from typing import Any

from curate.catalog import intake
from curate.catalog.tables import now
from curate.images.decode import decode
from curate.images.hashing import perceptual_hash, pixel_sha256
from curate.images.quality import measure
from pipelines.workspace import Workspace


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
    return {
        "sha256": sha256,
        "extension": info.extension,
        "format": info.format,
        "mode": info.mode,
        "bytes": len(data),
        "width": info.width,
        "height": info.height,
        "notes": list(info.notes),
        "pixel_sha256": pixel_sha256(image),
        "perceptual_hash": str(perceptual_hash(image)),
        "quality": measure(image).to_dict(),
        "taken_in": now(),
    }
