"""A set that is measured is measured whole, however little an image of it shows."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from curate.corruptions import corrupt
from curate.errors import ImageRefused
from curate.images.decode import decode
from curate.images.views import PAPER
from pipelines.corruption_pictures import Stored, decoded
from pipelines.predict import centre_crop

RANDOM = np.random.RandomState(0)


def fog_over_snow() -> np.ndarray:
    """A pale photo under the strongest loss of contrast that ImageNet-C has."""
    pale = np.clip(RANDOM.normal(225, 12, (224, 224, 3)), 0, 255).astype(np.uint8)
    return corrupt(pale, "contrast", 5, 0)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize(
    "pixels",
    [
        fog_over_snow(),
        np.zeros((224, 224, 3), np.uint8),
        np.where(RANDOM.rand(224, 224, 1) < 0.5, 0, 255).astype(np.uint8).repeat(3, 2),
    ],
    ids=["faint", "black", "drawing"],
)
def test_what_collecting_refuses_is_measured(tmp_path: Path, pixels: np.ndarray, kind: str) -> None:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, quality=85)
    data = stream.getvalue()
    (tmp_path / "x").write_bytes(data)
    if kind == "PNG" or np.ptp(pixels) < 255:
        with pytest.raises(ImageRefused):
            decode(data)
    with Image.open(tmp_path / "x") as image:
        expected = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(decoded(Stored(tmp_path / "x", "")), expected)
    assert centre_crop(data, "x", PAPER).shape == (224, 224, 3)
