"""The ten views of a photo, bit for bit as torchvision's Resize and TenCrop make them.

The source is the ten-crop test of Krizhevsky et al. (2012), section 4.1: centre, four corners, and
the same of the mirrored photo. Here the centre comes first, because it decides most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PLACES = ("centre", "top-left", "top-right", "bottom-left", "bottom-right")

#: The views in order: a view's number is its place here.
VIEW_NAMES: tuple[str, ...] = (*_PLACES, *(f"{place} mirrored" for place in _PLACES))

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


@dataclass(frozen=True)
class ViewRecipe:
    """How views are cut from a photo.

    Attributes:
        resize: the short side after resizing, in pixels.
        crop: the side of a view, in pixels; at most `resize`, so that every view is full.
        interpolation: Pillow's filter: nearest, box, bilinear, hamming, bicubic or lanczos.

    Raises:
        ValueError: a size under 1, a crop above `resize`, or no such filter.
    """

    resize: int
    crop: int
    interpolation: str

    def __post_init__(self) -> None:
        if not 1 <= self.crop <= self.resize:
            raise ValueError(
                f"a view of {self.crop} pixels does not fit a photo resized to {self.resize}"
            )
        if self.interpolation not in _FILTERS:
            known = ", ".join(_FILTERS)
            raise ValueError(f"unknown interpolation {self.interpolation!r}: write one of {known}")


#: The views of the paper.
PAPER = ViewRecipe(256, 224, "bilinear")


def resize_short_side(image: Image.Image, recipe: ViewRecipe) -> NDArray[np.uint8]:
    """Resize a photo to the recipe's short side, keeping its proportions.

    Args:
        image: of mode RGB.
        recipe: `resize` and `interpolation` count.

    Returns:
        Pixels [height, width, 3], uint8, read-only: what torchvision's `Resize(size,
        interpolation)` gives for the PIL image. The long side is rounded down.

    Raises:
        ValueError: another mode.
    """
    import numpy as np

    if image.mode != "RGB":
        raise ValueError(f"expected an image of mode RGB, got {image.mode}")
    width, height = image.size
    short, long = min(width, height), max(width, height)
    # The same arithmetic as torchvision's, float division and all.
    new_long = int(recipe.resize * long / short)
    size = (recipe.resize, new_long) if width <= height else (new_long, recipe.resize)
    if size != image.size:
        image = image.resize(size, _FILTERS[recipe.interpolation])
    return np.asarray(image)


class Window(NamedTuple):
    """Where a view lies on the resized photo.

    Attributes:
        top: first row.
        left: first column, of the photo as it is, mirrored or not.
        is_mirrored: whether the view shows these pixels from right to left.
    """

    top: int
    left: int
    is_mirrored: bool


def window(height: int, width: int, index: int, crop: int) -> Window:
    """Where a view lies: the arithmetic that all devices share.

    Args:
        height: of the resized photo, in pixels.
        width: of the resized photo, in pixels.
        index: the view's place in `VIEW_NAMES`.
        crop: the view's side in pixels.

    Raises:
        ValueError: no such view, or the photo is smaller than the crop.
    """
    if not 0 <= index < len(VIEW_NAMES):
        raise ValueError(f"view {index} does not exist: there are {len(VIEW_NAMES)}, from 0")
    if not 1 <= crop <= min(height, width):
        raise ValueError(f"a view of {crop} pixels does not fit a photo of {width} x {height}")
    mirrored, place = divmod(index, len(_PLACES))
    if place == 0:
        top, left = round((height - crop) / 2), round((width - crop) / 2)
    else:
        top = height - crop if place >= 3 else 0
        left = width - crop if place in (2, 4) else 0
    # The whole photo is mirrored first: with odd margins the middle is then another column.
    return Window(top, width - crop - left if mirrored else left, bool(mirrored))


def view(resized: NDArray[np.uint8], index: int, crop: int) -> NDArray[np.uint8]:
    """Cut one view, without copying.

    Args:
        resized: pixels [height, width, 3].
        index: the view's place in `VIEW_NAMES`.
        crop: the view's side in pixels.

    Returns:
        Pixels [crop, crop, 3], a window on `resized`; not contiguous.

    Raises:
        ValueError: no such view, or the photo is smaller than the crop.
    """
    height, width = resized.shape[:2]
    top, left, is_mirrored = window(height, width, index, crop)
    cut = resized[top : top + crop, left : left + crop]
    return cut[:, ::-1] if is_mirrored else cut


def ten_views(resized: NDArray[np.uint8], crop: int) -> NDArray[np.uint8]:
    """All ten views [10, crop, crop, 3], in the order of `VIEW_NAMES` (see `view`)."""
    import numpy as np

    return np.stack([view(resized, index, crop) for index in range(len(VIEW_NAMES))])
