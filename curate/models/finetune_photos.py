"""Batches of photos for fine-tuning: cut and mirrored at random, in an order of their own.

Everything random comes from the seed, the epoch and the photo's content, never from a generator
that threads share: the batches are the same whatever the number of threads that make them, and
whatever epoch or batch a run goes on from.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TypeVar

from PIL import Image

from curate.images.views import ViewRecipe, resize_short_side, view

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Item = TypeVar("Item")
Result = TypeVar("Result")

#: One batch: views [B, S, S, 3] uint8 and the position of each one's class [B] int64.
Batch = tuple["NDArray[np.uint8]", "NDArray[np.int64]"]

# The range of a crop's width over its height, and how often one is drawn before the centre is
# taken: those of torchvision's RandomResizedCrop.
_RATIOS = (3 / 4, 4 / 3)
_DRAWS = 10

# Batches that are being made while one is trained on.
_AHEAD = 2


@dataclass(frozen=True)
class Photo:
    """One photo to learn from.

    Attributes:
        path: its file.
        sha256: of its bytes; what is random about it depends on this.
        target: position of its class in the label space.
    """

    path: Path
    sha256: str
    target: int


class Photos:
    """Photos as batches.

    Args:
        items: the photos; their order counts.
        picture: decodes one to mode RGB; called in threads.
        recipe: the view of validation; training's views have its side and interpolation.
        smallest_crop: least share of a photo's area that a random crop shows, in (0, 1].
        seed: of everything random.
    """

    def __init__(
        self,
        items: Sequence[Photo],
        picture: Callable[[Photo], Image.Image],
        recipe: ViewRecipe,
        *,
        smallest_crop: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.items, self.recipe = items, recipe
        self._picture, self._smallest_crop, self._seed = picture, smallest_crop, seed
        self._filter = Image.Resampling[recipe.interpolation.upper()]

    def __len__(self) -> int:
        return len(self.items)

    def parts(self, batch: int) -> list[range]:
        """The places of an epoch's batches: as few as hold all photos, of nearly equal sizes.

        None is of one photo alone, which normalisation could not take.
        """
        many = len(self.items)
        steps = -(-many // batch)
        if many // steps < 2:
            steps = max(1, many // 2)
        return [range(many * n // steps, many * (n + 1) // steps) for n in range(steps)]

    def order(self, epoch: int) -> list[int]:
        """The order of an epoch's photos."""
        order = list(range(len(self.items)))
        # Sorted by numbers that are drawn: shuffle's way of drawing may change between versions.
        random = Random(f"{self._seed}:{epoch}")
        keys = [random.random() for _ in order]
        return sorted(order, key=keys.__getitem__)

    def training(
        self, epoch: int, batch: int, pool: ThreadPoolExecutor, first: int = 0
    ) -> Iterator[Batch]:
        """The batches of an epoch.

        Args:
            epoch: from 0.
            batch: photos in one, at most.
            pool: threads that decode.
            first: the batch to begin with.
        """
        order, parts = self.order(epoch), self.parts(batch)[first:]
        batches = [[self.items[order[place]] for place in part] for part in parts]
        return self._made(batches, pool, lambda photo: self._random_view(photo, epoch))

    def validation(self, batch: int, pool: ThreadPoolExecutor) -> Iterator[Batch]:
        """The centre view of every photo, in order."""
        starts = range(0, len(self.items), batch)
        batches = [self.items[start : start + batch] for start in starts]
        return self._made(batches, pool, self._centre_view)

    def _made(
        self,
        batches: Sequence[Sequence[Photo]],
        pool: ThreadPoolExecutor,
        cut: Callable[[Photo], NDArray[np.uint8]],
    ) -> Iterator[Batch]:
        import numpy as np

        ahead = _AHEAD * max(map(len, batches), default=0)
        views = in_order(pool, cut, [photo for batch in batches for photo in batch], ahead)
        for batch in batches:
            targets = np.array([photo.target for photo in batch], np.int64)
            yield np.stack(list(islice(views, len(batch)))), targets

    def _random_view(self, photo: Photo, epoch: int) -> NDArray[np.uint8]:
        import numpy as np

        random = Random(f"{self._seed}:{epoch}:{photo.sha256}")
        image = self._picture(photo)
        box = random_box(*image.size, self._smallest_crop, random)
        side = self.recipe.crop
        pixels = np.asarray(image.crop(box).resize((side, side), self._filter))
        return pixels[:, ::-1] if random.random() < 0.5 else pixels

    def _centre_view(self, photo: Photo) -> NDArray[np.uint8]:
        resized = resize_short_side(self._picture(photo), self.recipe)
        return view(resized, 0, self.recipe.crop).copy()


def random_box(
    width: int, height: int, smallest: float, random: Random
) -> tuple[int, int, int, int]:
    """A crop with the distribution of torchvision's RandomResizedCrop.

    That one draws from PyTorch's generator, which all threads share.

    Args:
        width: of the photo, in pixels.
        height: of the photo, in pixels.
        smallest: least share of the area, in (0, 1].
        random: what to draw from.

    Returns:
        Left, top, right, bottom, in pixels, within the photo and not empty.
    """
    area, (narrow, wide) = width * height, _RATIOS
    for _ in range(_DRAWS):
        share = random.uniform(smallest, 1.0) * area
        ratio = math.exp(random.uniform(math.log(narrow), math.log(wide)))
        w, h = round(math.sqrt(share * ratio)), round(math.sqrt(share / ratio))
        if 0 < w <= width and 0 < h <= height:
            left = int(random.random() * (width - w + 1))
            top = int(random.random() * (height - h + 1))
            return left, top, left + w, top + h
    w = min(width, max(1, round(height * wide)))
    h = min(height, max(1, round(width / narrow)))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def in_order(
    pool: ThreadPoolExecutor, work: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """What `work` makes of items, in their order, made in threads.

    At most `ahead` results wait or are being made, whatever the number of items.

    Raises:
        whatever `work` raises, when its item's turn comes.
    """
    waiting = iter(items)
    under_way: deque[Future[Result]] = deque(
        pool.submit(work, item) for item in islice(waiting, ahead)
    )
    try:
        while under_way:
            result = under_way.popleft().result()
            under_way.extend(pool.submit(work, item) for item in islice(waiting, 1))
            yield result
    finally:
        for future in under_way:
            future.cancel()
