"""Views of a chunk's photos, in batches: cut where the networks compute.

On the CPU a view is a window on the resized photo. On a GPU each resized photo travels once, as
bytes, and its views are cut there; a photo that leaves the cascade gives its memory back. The
pixels are the same everywhere: cutting copies bytes, and `curate.images.views.window` alone says
from where.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from curate.images.views import VIEW_NAMES, ten_views, view, window

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

_ALL = range(len(VIEW_NAMES))


class Crops(Protocol):
    """The views of the photos of one chunk, all cut by one recipe. Items are positions there."""

    def batch(self, items: Sequence[int], views: Sequence[int]) -> NDArray[np.uint8] | torch.Tensor:
        """One view of each of B items, as `Classifier.logits` takes them.

        Args:
            items: at least one; the same one may occur several times.
            views: for each, the number of its view.

        Returns:
            uint8, an array [B, S, S, 3], or a tensor [B, 3, S, S] in channels-last layout.

        Raises:
            ValueError: an item without photo, no such view, or a photo smaller than the views.
        """

    def ten(self, item: int) -> NDArray[np.uint8] | torch.Tensor:
        """The ten views of one item, in their order, as one batch."""

    def drop(self, item: int) -> None:
        """Give back what is kept for an item that is done; asked again, its photo travels again."""


def make_crops(
    resized: Sequence[NDArray[np.uint8] | None], crop: int, device: torch.device
) -> Crops:
    """The way to cut views for a device.

    Args:
        resized: for each item of the chunk its resized photo, uint8 [H, W, 3] of any size; None
            where it has none.
        crop: the side S of a view, in pixels.
        device: where the networks compute.
    """
    return HostCrops(resized, crop) if device.type == "cpu" else DeviceCrops(resized, crop, device)


class HostCrops:
    """Views as windows on arrays (see `Crops` and `make_crops`)."""

    def __init__(self, resized: Sequence[NDArray[np.uint8] | None], crop: int) -> None:
        self._resized, self._crop = resized, crop

    def batch(self, items: Sequence[int], views: Sequence[int]) -> NDArray[np.uint8]:
        """[B, S, S, 3]; see `Crops.batch`."""
        cut = zip(items, views, strict=True)
        return np.stack(
            [view(_present(self._resized, item), number, self._crop) for item, number in cut]
        )

    def ten(self, item: int) -> NDArray[np.uint8]:
        """[10, S, S, 3]; see `Crops.ten`."""
        return ten_views(_present(self._resized, item), self._crop)

    def drop(self, item: int) -> None:
        """Nothing: the photos are the caller's."""


class DeviceCrops:
    """Views that are cut on a device (see `Crops` and `make_crops`).

    A photo travels when its first view is asked for. On CUDA it goes through pinned memory while
    the caller goes on; whatever the calling thread asks of the device afterwards comes after it.
    """

    def __init__(
        self,
        resized: Sequence[NDArray[np.uint8] | None],
        crop: int,
        device: torch.device,
    ) -> None:
        self._resized, self._crop, self._device = resized, crop, device
        self._there: dict[int, torch.Tensor] = {}

    def batch(self, items: Sequence[int], views: Sequence[int]) -> torch.Tensor:
        """[B, 3, S, S]; see `Crops.batch`."""
        import torch

        cut = [self._view(item, number) for item, number in zip(items, views, strict=True)]
        return torch.stack(cut).permute(0, 3, 1, 2)

    def ten(self, item: int) -> torch.Tensor:
        """[10, 3, S, S]; see `Crops.ten`."""
        return self.batch([item] * len(_ALL), _ALL)

    def drop(self, item: int) -> None:
        """Free the item's memory on the device; see `Crops.drop`."""
        self._there.pop(item, None)

    def _view(self, item: int, number: int) -> torch.Tensor:
        if (photo := self._there.get(item)) is None:
            photo = self._there[item] = _travelled(_present(self._resized, item), self._device)
        height, width = photo.shape[:2]
        top, left, is_mirrored = window(height, width, number, self._crop)
        cut = photo[top : top + self._crop, left : left + self._crop]
        return cut.flip(1) if is_mirrored else cut


def _present(resized: Sequence[NDArray[np.uint8] | None], item: int) -> NDArray[np.uint8]:
    photo = resized[item]
    if photo is None:
        raise ValueError(f"item {item} has no photo to cut views from")
    return photo


def _travelled(photo: NDArray[np.uint8], device: torch.device) -> torch.Tensor:
    """The photo [H, W, 3] on the device."""
    import torch

    if device.type != "cuda":
        # PyTorch takes neither read-only arrays nor negative strides.
        return torch.from_numpy(np.require(photo, requirements=("C", "W"))).to(device)
    # PyTorch keeps the pinned block until the copy is done, and hands it out again after that.
    pinned = torch.empty(photo.shape, dtype=torch.uint8, pin_memory=True)
    np.copyto(pinned.numpy(), photo)
    return pinned.to(device, non_blocking=True)
