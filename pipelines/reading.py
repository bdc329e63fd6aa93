"""From bytes of unknown origin to an image's row in the catalogue."""

from __future__ import annotations

from typing import Any

from curate.catalog import intake
from curate.catalog.tables import now
from curate.images.decode import decode
from curate.images.hashing import perceptual_hash, pixel_sha256
from curate.images.quality import measure
from pipelines.workspace import Workspace


def stored_row(workspace: Workspace, sha256: str) -> dict[str, Any] | None:
    """The row of an image that was taken in before, or None."""
    with workspace.catalogue.read() as connection:
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
