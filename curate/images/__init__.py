"""Images: safe decoding, fingerprints, and the ten views.

Everything takes and gives upright 8-bit RGB, whatever a file held.
"""

from curate.images.decode import DECODER, NOTES, ImageInfo, decode, decode_trusted, examine
from curate.images.hashing import (
    NEAR_DISTANCE,
    NearIndex,
    PerceptualHash,
    distance,
    perceptual_hash,
    pixel_sha256,
)
from curate.images.quality import Quality, measure
from curate.images.views import (
    PAPER,
    VIEW_NAMES,
    ViewRecipe,
    resize_short_side,
    ten_views,
    view,
)

__all__ = [
    "DECODER",
    "NEAR_DISTANCE",
    "NOTES",
    "PAPER",
    "VIEW_NAMES",
    "ImageInfo",
    "NearIndex",
    "PerceptualHash",
    "Quality",
    "ViewRecipe",
    "decode",
    "decode_trusted",
    "distance",
    "examine",
    "measure",
    "perceptual_hash",
    "pixel_sha256",
    "resize_short_side",
    "ten_views",
    "view",
]
