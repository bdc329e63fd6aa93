"""Features of pictures: copies are near one another, different photos are not."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from curate.errors import WeightsError
from curate.models import Classifier, load_classifier
from curate.models.features import FeatureReader

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def lite0() -> FeatureReader:
    return FeatureReader(load_classifier("lite/efficientnet_lite0"))


def test_the_last_layer_on_the_features_gives_the_logits(
    lite0: FeatureReader, views: np.ndarray
) -> None:
    seen = lite0.features(views[:2])
    assert seen.shape == (2, 1280)
    with torch.inference_mode():
        assert torch.equal(
            lite0.classifier.module.classifier(seen), lite0.classifier.logits(views[:2])
        )


def test_inceptions_features_are_those_that_fid_is_told_of(
    toy: Callable[..., Classifier], views: np.ndarray
) -> None:
    """Its second head, for training, is not the last layer."""
    from torchvision.models import inception_v3

    one = toy(outputs=1000)
    torch.manual_seed(0)
    one.module = inception_v3(init_weights=False, transform_input=True).eval()
    # Its own input is 299 pixels wide.
    pictures = np.pad(views[:2], ((0, 0), (0, 75), (0, 75), (0, 0)))
    seen = FeatureReader(one).features(pictures)
    assert seen.shape == (2, 2048)
    with torch.inference_mode():
        assert torch.equal(one.module.fc(seen), one.logits(pictures))


def test_copies_are_nearer_than_different_photos(
    lite0: FeatureReader, package_photos: list[tuple[Path, int]]
) -> None:
    photos = [Image.open(path).convert("RGB") for path, _ in package_photos[:8]]
    seen = np.stack([lite0.of_picture(photo) for photo in photos])
    assert np.allclose(np.linalg.norm(seen, axis=1), 1, atol=1e-5)
    others = (seen @ seen.T)[~np.eye(len(seen), dtype=bool)]
    for photo, own in zip(photos, seen, strict=True):
        width, height = photo.size
        for copy, least in (
            (ImageOps.mirror(photo), 0.999),
            (photo.crop((width // 40, height // 40, width - width // 40, height)), 0.9),
            (ImageEnhance.Brightness(photo).enhance(1.3), 0.75),
        ):
            assert own @ lite0.of_picture(copy) > max(least, others.max())


def test_a_network_without_a_last_layer_to_look_at_is_told(
    toy: Callable[..., Classifier],
) -> None:
    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Conv2d(3, 5, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).mean((2, 3))

    one = toy(outputs=5)
    one.module = Pooled()
    with pytest.raises(WeightsError, match="not fully connected"):
        FeatureReader(one)


def test_threads_do_not_see_one_another_s_features(
    lite0: FeatureReader, package_photos: list[tuple[Path, int]]
) -> None:
    photos = [Image.open(path).convert("RGB") for path, _ in package_photos[:8]]
    alone = [lite0.of_picture(photo) for photo in photos]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lite0.of_picture, photos))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))
