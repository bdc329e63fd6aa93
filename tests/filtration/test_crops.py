"""Views cut on a device are those cut on the host, which are torchvision's, bit for bit."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import TenCrop

from curate.filtration.cascade import judge_chunk
from curate.filtration.crops import Crops, DeviceCrops, HostCrops, make_crops
from curate.filtration.plan import make_plan, prepare
from curate.filtration.rules import Misclassified
from curate.images.views import PAPER, resize_short_side, view
from curate.labels.space import load_label_space
from curate.models import Classifier, Ensemble, Preprocessing, bound_threads

# torchvision gives the corners first and the centre last, and then the same of the mirrored photo.
CENTRE_FIRST = (4, 0, 1, 2, 3, 9, 5, 6, 7, 8)

DEVICES = [
    torch.device(name)
    for name, present in (
        ("cpu", True),
        ("cuda", torch.cuda.is_available()),
        ("mps", torch.backends.mps.is_available()),
    )
    if present
]


def noise(width: int, height: int) -> np.ndarray:
    rng = np.random.default_rng(width * 10_000 + height)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def array(views: np.ndarray | torch.Tensor) -> np.ndarray:
    """[B, S, S, 3], wherever the views are."""
    if isinstance(views, torch.Tensor):
        assert views.dtype == torch.uint8
        return views.permute(0, 2, 3, 1).cpu().numpy()
    return views


def all_crops(photos: list[np.ndarray], crop: int) -> list[Crops]:
    return [HostCrops(photos, crop), *(DeviceCrops(photos, crop, device) for device in DEVICES)]


@st.composite
def chunks(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]], list[tuple[int, int]]]:
    """A crop, the sizes of some photos that it fits, and views asked of them."""
    crop = draw(st.integers(1, 24))
    side = st.integers(crop, crop + 17)
    sizes = draw(st.lists(st.tuples(side, side), min_size=1, max_size=5))
    asked = st.tuples(st.integers(0, len(sizes) - 1), st.integers(0, 9))
    return crop, sizes, draw(st.lists(asked, min_size=1, max_size=24))


@settings(max_examples=150, deadline=None)
@given(chunks())
@example((4, [(7, 4), (4, 7), (5, 9)], [(0, 0), (0, 5), (1, 0), (1, 5), (2, 5), (2, 9), (0, 7)]))
def test_any_batch_of_any_photos_is_torchvisions_on_every_device(
    chunk: tuple[int, list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    crop, sizes, asked = chunk
    photos = [noise(*size) for size in sizes]
    expected = [
        np.stack([np.asarray(v) for v in TenCrop(crop)(Image.fromarray(p))])[list(CENTRE_FIRST)]
        for p in photos
    ]
    items, views = [item for item, _ in asked], [number for _, number in asked]
    for crops in all_crops(photos, crop):
        batch = array(crops.batch(items, views))
        assert batch.shape == (len(asked), crop, crop, 3)
        for row, (item, number) in enumerate(asked):
            np.testing.assert_array_equal(batch[row], expected[item][number])
            np.testing.assert_array_equal(batch[row], view(photos[item], number, crop))
        for item in range(len(photos)):
            np.testing.assert_array_equal(array(crops.ten(item)), expected[item])


def toy(seed: int, device: torch.device) -> Classifier:
    torch.manual_seed(seed)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 5, stride=3),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 1000),
    )
    return Classifier(
        name=f"toy {seed}",
        architecture="toy",
        module=module,
        output=load_label_space("imagenet-1k"),
        preprocessing=Preprocessing(PAPER, (0.5,) * 3, (0.5,) * 3, "by hand"),
    ).to(device)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_a_real_photo_gives_one_classifiers_logits_to_the_bit(
    device: torch.device, package_photos: list[tuple[Path, int]]
) -> None:
    classifier = toy(0, device)
    photos = [
        resize_short_side(Image.open(path).convert("RGB"), PAPER) for path, _ in package_photos[:3]
    ]
    assert not photos[0].flags.writeable
    host, there = HostCrops(photos, 224), DeviceCrops(photos, 224, device)
    for item in range(3):
        assert torch.equal(classifier.logits(host.ten(item)), classifier.logits(there.ten(item)))


def test_the_cascade_says_the_same_of_photos_that_are_cut_on_a_device(
    package_photos: list[tuple[Path, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the device is the CPU, so that even the last bits of all scores agree."""
    space = load_label_space("imagenet-1k")
    ensemble = Ensemble([toy(0, torch.device("cpu")), toy(1, torch.device("cpu"))])
    plan = replace(make_plan(ensemble, space, Misclassified(0.00102)), share_all=True)
    photos = [prepare(path.read_bytes(), plan) for path, _ in package_photos[:8]]
    # Half of them are labelled as what the first network takes them for.
    logits = ensemble[0].logits(np.stack([view(p.resized[PAPER], 0, 224) for p in photos]))
    targets = [
        int(row.argmax()) if number % 2 else column
        for number, (row, (_, column)) in enumerate(zip(logits, package_photos, strict=False))
    ]

    def judged() -> tuple[list[object], list[tuple[object, ...]]]:
        with bound_threads(1):
            result = judge_chunk(photos, targets, plan)
        keys = [str(number) for number in range(len(photos))]
        rows = result.scores.table(keys, space.wnids).to_pylist()
        return list(result.verdicts), [tuple(row.values()) for row in rows]

    on_host = judged()
    monkeypatch.setattr(
        "curate.filtration.cascade.make_crops",
        lambda resized, crop, device: DeviceCrops(resized, crop, device),
    )
    assert judged() == on_host
    outcomes = {verdict.outcome for verdict in on_host[0]}  # type: ignore[attr-defined]
    assert outcomes == {"survivor", "removed"}


def test_a_batch_on_a_device_is_in_channels_last_layout() -> None:
    batch = DeviceCrops([noise(40, 30)], 16, torch.device("cpu")).batch([0, 0], [0, 7])
    assert batch.shape == (2, 3, 16, 16)
    assert batch.is_contiguous(memory_format=torch.channels_last)


def test_a_photo_travels_once_and_is_let_go_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from curate.filtration import crops as module

    travelled: list[int] = []
    original = module._travelled

    def counting(photo: np.ndarray, device: torch.device) -> torch.Tensor:
        travelled.append(photo.shape[1])
        return original(photo, device)

    monkeypatch.setattr(module, "_travelled", counting)
    photos = [noise(31, 40), noise(32, 40), noise(33, 40)]
    crops = DeviceCrops(photos, 20, torch.device("cpu"))
    before = array(crops.ten(1))
    crops.batch([0, 1, 1], [0, 0, 6])
    crops.batch([1, 0], [2, 9])
    assert travelled == [32, 31]
    crops.drop(1)
    crops.drop(2)
    assert set(crops._there) == {0}
    np.testing.assert_array_equal(array(crops.ten(1)), before)
    assert travelled == [32, 31, 32]


def test_what_stays_after_drops_is_bounded_by_what_was_not_dropped() -> None:
    import gc
    import weakref

    crops = DeviceCrops([noise(40, 40)] * 3, 20, torch.device("cpu"))
    crops.batch([0, 1, 2], [0, 0, 0])
    alive = [weakref.ref(photo) for photo in crops._there.values()]
    crops.drop(0)
    crops.drop(1)
    gc.collect()
    assert [ref() is not None for ref in alive] == [False, False, True]


def test_the_device_decides_where_views_are_cut() -> None:
    photos = [noise(30, 30)]
    assert isinstance(make_crops(photos, 16, torch.device("cpu")), HostCrops)
    assert isinstance(make_crops(photos, 16, torch.device("cuda:1")), DeviceCrops)
    assert isinstance(make_crops(photos, 16, torch.device("mps")), DeviceCrops)


def test_what_cannot_be_cut_is_refused() -> None:
    for crops in all_crops([noise(30, 30), None], 16):  # type: ignore[list-item]
        with pytest.raises(ValueError, match="item 1 has no photo"):
            crops.batch([0, 1], [0, 0])
        with pytest.raises(ValueError, match="view 10 does not exist"):
            crops.batch([0], [10])
        with pytest.raises(ValueError, match="zip"):
            crops.batch([0], [0, 1])
    for crops in all_crops([noise(30, 15)], 16):
        with pytest.raises(ValueError, match="does not fit a photo of 30 x 15"):
            crops.ten(0)
