from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from curate.files import sha256_file
from curate.images.views import ViewRecipe
from curate.models.finetune_photos import Photo, Photos, in_order, random_box

RECIPE = ViewRecipe(40, 32, "bilinear")


@pytest.fixture(scope="module")
def items(package_photos: list[tuple[Path, int]]) -> list[Photo]:
    return [Photo(path, sha256_file(path), n % 5) for n, (path, _) in enumerate(package_photos)]


def opened(photo: Photo) -> Image.Image:
    return Image.open(photo.path).convert("RGB")


def batches(photos: Photos, epoch: int, workers: int, first: int = 0) -> list[np.ndarray]:
    with ThreadPoolExecutor(workers) as pool:
        return [views for views, _ in photos.training(epoch, 6, pool, first)]


def test_batches_are_the_same_whatever_the_threads_and_wherever_an_epoch_begins(
    items: list[Photo],
) -> None:
    photos = Photos(items, opened, RECIPE, smallest_crop=0.25, seed=3)
    one = batches(photos, 1, 1)
    for other in (batches(photos, 1, 5), batches(photos, 1, 2)):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    rest = batches(photos, 1, 2, first=2)
    assert all(np.array_equal(a, b) for a, b in zip(one[2:], rest, strict=True))
    assert not np.array_equal(one[0], batches(photos, 2, 1)[0])
    other_seed = Photos(items, opened, RECIPE, smallest_crop=0.25, seed=4)
    assert not np.array_equal(one[0], batches(other_seed, 1, 1)[0])


def test_every_photo_is_seen_once_an_epoch_with_its_own_class(items: list[Photo]) -> None:
    # Photos of one colour each tell which they are.
    plain = {photo.sha256: (10 * n, 0, 0) for n, photo in enumerate(items)}
    photos = Photos(items, lambda one: Image.new("RGB", (50, 60), plain[one.sha256]), RECIPE)
    seen = []
    with ThreadPoolExecutor(3) as pool:
        for views, targets in photos.training(0, 6, pool):
            assert views.dtype == np.uint8
            assert views.shape[1:] == (32, 32, 3)
            seen += [(int(view[0, 0, 0]) // 10, int(t)) for view, t in zip(views, targets)]  # noqa: B905
    assert sorted(seen) == [(n, n % 5) for n in range(20)]
    assert seen != sorted(seen)


def test_half_of_the_views_are_mirrored(items: list[Photo]) -> None:
    half = Image.new("RGB", (64, 64))
    half.paste((255, 255, 255), (0, 0, 32, 64))
    photos = Photos(items * 20, lambda _: half, RECIPE, smallest_crop=1.0)
    seen = {}
    for epoch in range(12):
        with ThreadPoolExecutor(2) as pool:
            for views, _ in photos.training(epoch, 20, pool):
                seen |= {(epoch, v.tobytes()): v[16, 0, 0] > v[16, -1, 0] for v in views}
    share = np.mean(list(seen.values()))
    assert 0.35 < share < 0.65


def test_validation_sees_the_centre_view_of_each_photo_in_order(items: list[Photo]) -> None:
    from torchvision import transforms

    cut = transforms.Compose([transforms.Resize(40), transforms.CenterCrop(32)])
    photos = Photos(items, opened, RECIPE)
    with ThreadPoolExecutor(2) as pool:
        found = list(photos.validation(8, pool))
    assert [len(views) for views, _ in found] == [8, 8, 4]
    expected = np.stack([np.asarray(cut(opened(photo))) for photo in items])
    assert np.array_equal(np.concatenate([views for views, _ in found]), expected)
    assert [int(t) for _, targets in found for t in targets] == [n % 5 for n in range(20)]


@given(many=st.integers(2, 400), batch=st.integers(2, 64))
def test_an_epoch_is_cut_into_few_batches_of_nearly_equal_sizes(many: int, batch: int) -> None:
    parts = Photos([Photo(Path(), "", 0)] * many, opened, RECIPE).parts(batch)
    assert [place for part in parts for place in part] == list(range(many))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 2
    assert max(sizes) <= max(batch, 3)


@given(
    width=st.integers(1, 3000),
    height=st.integers(1, 3000),
    smallest=st.floats(0.01, 1.0),
    seed=st.integers(0, 2**32),
)
def test_a_random_box_lies_in_the_photo_and_is_no_smaller_than_asked(
    width: int, height: int, smallest: float, seed: int
) -> None:
    left, top, right, bottom = random_box(width, height, smallest, Random(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    wide, high = right - left, bottom - top
    if min(width, height) >= 200 and max(width, height) <= 4 / 3 * min(width, height):
        # Rounding to whole pixels changes a side by half of one.
        assert (wide + 1) * (high + 1) >= smallest * width * height
        assert (wide + 0.5) / (high - 0.5) >= 3 / 4
        assert (wide - 0.5) / (high + 0.5) <= 4 / 3


def test_boxes_are_distributed_as_torchvision_draws_them() -> None:
    import torch
    from scipy.stats import ks_2samp
    from torchvision.transforms import RandomResizedCrop

    random = Random(0)
    ours = np.array([random_box(400, 300, 0.25, random) for _ in range(3000)], float)
    ours[:, 2:] -= ours[:, :2]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        grey = torch.zeros(3, 300, 400)
        drawn = [
            RandomResizedCrop.get_params(grey, [0.25, 1.0], [3 / 4, 4 / 3]) for _ in range(3000)
        ]
    theirs = np.array([(left, top, w, h) for top, left, h, w in drawn], float)
    for column in range(4):
        assert ks_2samp(ours[:, column], theirs[:, column]).pvalue > 0.001, column


def test_results_come_in_order_few_ahead_and_an_error_in_its_turn() -> None:
    made: list[int] = []
    lock = threading.Lock()

    def work(item: int) -> int:
        time.sleep(0.002 * (item % 3))
        with lock:
            made.append(item)
        if item == 20:
            raise ValueError("twenty")
        return item * item

    with ThreadPoolExecutor(4) as pool:
        results = in_order(pool, work, range(1000), 6)
        assert [next(results) for _ in range(20)] == [n * n for n in range(20)]
        with pytest.raises(ValueError, match="twenty"):
            next(results)
    assert max(made) <= 26
