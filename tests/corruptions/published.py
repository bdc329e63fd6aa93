"""The published formulas, plainly: in float64, by whole images, with a loop where one is meant.

What the published code leaves to OpenCV or ImageMagick is written out. Random numbers are drawn as
`curate.corruptions` draws them, so that both sides see the same ones. Results are in grey levels
and not yet whole; `published` cuts them.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from scipy import ndimage, stats
from skimage.color import hsv2rgb, rgb2hsv
from skimage.filters import gaussian

Rng = np.random.Generator


def gaussian_noise(image: Any, c: float, rng: Rng) -> Any:
    x = image / 255
    return np.clip(x + c * rng.standard_normal(x.shape, dtype=np.float32), 0, 1) * 255


def shot_noise(image: Any, c: float, rng: Rng) -> Any:
    lot = (rng.integers(0, 1 << 32, image.size, dtype=np.uint32) + 0.5) / 2.0**32
    counts = stats.poisson.ppf(lot.reshape(image.shape), image / 255 * c)
    # SciPy calls the quantiles of a mean of 0 minus 1 or NaN.
    return np.clip(np.where(image == 0, 0, counts) / c, 0, 1) * 255


def impulse_noise(image: Any, c: float, rng: Rng) -> Any:
    lot = rng.random(image.shape, dtype=np.float32)
    noisy = image.astype(float)
    noisy[lot < np.float32(c)] = 0
    noisy[lot < np.float32(c / 2)] = 255
    return noisy


def speckle_noise(image: Any, c: float, rng: Rng) -> Any:
    x = image / 255
    return np.clip(x + x * c * rng.standard_normal(x.shape, dtype=np.float32), 0, 1) * 255


def gaussian_blur(image: Any, c: float, rng: Rng) -> Any:
    return gaussian(image / 255, sigma=c, channel_axis=2) * 255


def glass_blur(image: Any, c: Any, rng: Rng) -> Any:
    sigma, reach, rounds = c
    x = np.uint8(gaussian(image / 255, sigma=sigma, channel_axis=2) * 255 + 2.0**-8)
    height, width = x.shape[:2]
    for _ in range(rounds):
        rows, columns = range(height - reach, reach, -1), range(width - reach, reach, -1)
        if not (rows and columns):
            break
        drawn = rng.integers(-reach, reach, (len(rows), len(columns), 2), dtype=np.int8)
        for i, h in enumerate(rows):
            for j, w in enumerate(columns):
                right, down = (int(one) for one in drawn[i, j])
                # Both are views of the image: the second assignment reads what the first wrote.
                here, there = x[h, w], x[h + down, w + right]
                x[h, w] = there
                x[h + down, w + right] = here
    return gaussian(x / 255, sigma=sigma, channel_axis=2) * 255


def disk(radius: float, smoothing: float) -> Any:
    reach, half = (8, 1) if radius <= 8 else (math.ceil(radius), 2)
    places = range(-reach, reach + 1)
    kernel = np.array([[float(x * x + y * y <= radius**2) for x in places] for y in places])
    kernel /= kernel.sum()
    bell = np.array([math.exp(-(t**2) / (2 * smoothing**2)) for t in range(-half, half + 1)])
    bell /= bell.sum()
    padded = np.pad(kernel, half, mode="reflect")
    smooth = np.zeros_like(kernel)
    for y, down in enumerate(bell):
        for x, right in enumerate(bell):
            smooth += down * right * padded[y : y + len(kernel), x : x + len(kernel)]
    return smooth


def defocus_blur(image: Any, c: Any, rng: Rng) -> Any:
    kernel = disk(*c)
    return np.stack(
        [ndimage.correlate(image[..., one] / 1.0, kernel, mode="mirror") for one in range(3)], -1
    )


def moved(values: Any, radius: float, sigma: float, angle: float) -> Any:
    """ImageMagick's motion blur, tap by tap."""
    count = 2 * math.ceil(radius) + 1
    weights = [
        math.exp(-(i**2) / (2 * sigma**2)) / (math.sqrt(2 * math.pi) * sigma) for i in range(count)
    ]
    x, y = count * math.sin(math.radians(angle)), count * math.cos(math.radians(angle))
    rows, columns = np.indices(values.shape[:2])
    total = np.zeros(values.shape)
    for i, weight in enumerate(weights):
        right = math.ceil(i * y / math.hypot(x, y) - 0.5)
        down = math.ceil(i * x / math.hypot(x, y) - 0.5)
        at_row = np.clip(rows + down, 0, values.shape[0] - 1)
        at_column = np.clip(columns + right, 0, values.shape[1] - 1)
        total += weight / sum(weights) * values[at_row, at_column]
    return total


def motion_blur(image: Any, c: Any, rng: Rng) -> Any:
    return moved(image, *c, angle=rng.uniform(-45, 45))


def clipped_zoom(values: Any, factor: float) -> Any:
    height, width = values.shape[:2]
    tall, wide = math.ceil(height / factor), math.ceil(width / factor)
    top, left = (height - tall) // 2, (width - wide) // 2
    middle = values[top : top + tall, left : left + wide]
    large = ndimage.zoom(middle, (factor, factor, 1), order=1)
    top, left = (large.shape[0] - height) // 2, (large.shape[1] - width) // 2
    return large[top : top + height, left : left + width]


def zoom_blur(image: Any, c: Any, rng: Rng) -> Any:
    x = image / 255
    factors = np.arange(*c)
    return (x + sum(clipped_zoom(x, factor) for factor in factors)) / (len(factors) + 1) * 255


def snow(image: Any, c: Any, rng: Rng) -> Any:
    mean, deviation, enlargement, least, radius, sigma, colour = c
    x = image / 255
    layer = mean + deviation * rng.standard_normal(x.shape[:2], dtype=np.float32)
    layer = clipped_zoom(layer[..., None], enlargement)
    layer[layer < least] = 0
    layer = np.uint8(np.clip(layer, 0, 1) * 255 + 2.0**-8)
    layer = np.uint8(moved(layer, radius, sigma, rng.uniform(-135, -45)) + 2.0**-8) / 255
    grey = (x @ [0.299, 0.587, 0.114])[..., None]
    x = colour * x + (1 - colour) * np.maximum(x, grey * 1.5 + 0.5)
    return np.clip(x + layer + np.rot90(layer, k=2), 0, 1) * 255


def landscape(side: int, decay: float, rng: Rng) -> Any:
    """Diamond-square on a torus, by whole arrays."""
    heights = np.zeros((side, side))
    wobble, step = 100.0, side
    while step >= 2:
        half = step // 2
        corners, middles = heights[::step, ::step], heights[half::step, half::step]
        shape = corners.shape

        def drawn(shape: Any = shape, wobble: float = wobble) -> Any:
            return wobble * (2 * wobble * (rng.random(shape, dtype=np.float32) - 0.5))

        total = corners + np.roll(corners, -1, 0)
        total = total + np.roll(total, -1, 1)
        middles[...] = total / 4 + drawn()
        beside = corners + np.roll(corners, -1, 1) + middles + np.roll(middles, 1, 0)
        heights[::step, half::step] = beside / 4 + drawn()
        beside = corners + np.roll(corners, -1, 0) + middles + np.roll(middles, 1, 1)
        heights[half::step, ::step] = beside / 4 + drawn()
        step, wobble = half, wobble / decay
    heights -= heights.min()
    return heights / heights.max()


def landscape_by_points(side: int, decay: float, rng: Rng) -> Any:
    """The same, point by point."""
    heights = np.zeros((side, side))
    wobble, step = 100.0, side

    def drawn(shape: Any) -> Any:
        return wobble * (2 * wobble * (rng.random(shape, dtype=np.float32) - 0.5))

    while step >= 2:
        half, places = step // 2, range(0, side, step)
        count = len(places)
        noise = drawn((count, count))
        for i, y in enumerate(places):
            for j, x in enumerate(places):
                corners = [
                    heights[(y + a) % side, (x + b) % side] for a in (0, step) for b in (0, step)
                ]
                heights[y + half, x + half] = sum(corners) / 4 + noise[i, j]
        for dy, dx in ((0, half), (half, 0)):
            noise = drawn((count, count))
            for i, y in enumerate(places):
                for j, x in enumerate(places):
                    v, u = y + dy, x + dx
                    around = (
                        heights[v - half, u],
                        heights[(v + half) % side, u],
                        heights[v, u - half],
                        heights[v, (u + half) % side],
                    )
                    heights[v, u] = sum(around) / 4 + noise[i, j]
        step, wobble = half, wobble / decay
    heights -= heights.min()
    return heights / heights.max()


def fog(image: Any, c: Any, rng: Rng) -> Any:
    amount, decay = c
    height, width = image.shape[:2]
    side = 256
    while side < max(height, width):
        side *= 2
    x = image / 255
    most = x.max()
    foggy = x + amount * landscape(side, decay, rng)[:height, :width, None]
    return np.clip(foggy * most / (most + amount), 0, 1) * 255


def frost(image: Any, c: Any, rng: Rng, pictures: Any) -> Any:
    """Of pictures that are larger than the image."""
    picture = pictures[rng.integers(len(pictures))]
    height, width = image.shape[:2]
    top = rng.integers(picture.shape[0] - height + 1)
    left = rng.integers(picture.shape[1] - width + 1)
    part = picture[top : top + height, left : left + width]
    return np.clip(c[0] * image.astype(float) + c[1] * part, 0, 255)


def brightness(image: Any, c: float, rng: Rng) -> Any:
    hsv = rgb2hsv(image / 255)
    hsv[..., 2] = np.clip(hsv[..., 2] + c, 0, 1)
    return np.clip(hsv2rgb(hsv), 0, 1) * 255


def saturate(image: Any, c: Any, rng: Rng) -> Any:
    hsv = rgb2hsv(image / 255)
    hsv[..., 1] = np.clip(hsv[..., 1] * c[0] + c[1], 0, 1)
    return np.clip(hsv2rgb(hsv), 0, 1) * 255


def contrast(image: Any, c: float, rng: Rng) -> Any:
    x = image / 255
    means = x.mean(axis=(0, 1), keepdims=True)
    return np.clip((x - means) * c + means, 0, 1) * 255


def warped(x: Any, forwards: Any) -> Any:
    """An affine map that is told forwards, as (x, y, 1) to (x, y, 1)."""
    rows, columns = np.indices(x.shape[:2])
    places = np.stack((columns, rows, np.ones_like(rows)))
    from_x, from_y, _ = np.tensordot(np.linalg.inv(forwards), places, 1)
    return _mapped(x, from_y, from_x, "mirror")


def elastic_transform(
    image: Any, c: Any, rng: Rng, warp: Callable[[Any, Any], Any] = warped
) -> Any:
    strength, sigma, far = c
    x = image / 255
    height, width = x.shape[:2]
    across, down = width // 2, height // 2
    reach = max(1, min(height, width) // 3)
    before = np.array(
        [
            [across + reach, down + reach],
            [across + reach, down - reach],
            [across - reach, down - reach],
        ]
    )
    after = before + rng.uniform(-far, far, before.shape)
    forwards = np.eye(3)
    forwards[:2] = np.linalg.lstsq(np.column_stack((before, np.ones(3))), after, rcond=None)[0].T
    x = warp(x, forwards)
    rows, columns = np.indices((height, width))
    dx, dy = (
        strength
        * gaussian(
            2 * (rng.random((height, width), dtype=np.float32) - 0.5),
            sigma,
            mode="reflect",
            truncate=3,
        )
        for _ in range(2)
    )
    # In three dimensions, though channels stay where they are.
    places = (
        np.repeat((rows + dy)[..., None], 3, axis=2),
        np.repeat((columns + dx)[..., None], 3, axis=2),
        np.broadcast_to(np.arange(3.0), x.shape),
    )
    return np.clip(ndimage.map_coordinates(x, places, order=1, mode="reflect"), 0, 1) * 255


def _mapped(x: Any, rows: Any, columns: Any, mode: str) -> Any:
    return np.stack(
        [
            ndimage.map_coordinates(x[..., one], (rows, columns), order=1, mode=mode)
            for one in range(3)
        ],
        -1,
    )


def pixelate(image: Any, c: float, rng: Rng) -> Any:
    height, width = image.shape[:2]
    small = max(1, int(width * c)), max(1, int(height * c))
    photo = Image.fromarray(image).resize(small, Image.Resampling.BOX)
    return np.array(photo.resize((width, height), Image.Resampling.BOX))


def jpeg_compression(image: Any, c: int, rng: Rng) -> Any:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=c)
    return np.array(Image.open(file))


def edges(grey: Any) -> Any:
    """Canny with 50 and 150, pixel by pixel: |dx| + |dy| of Sobel's gradients."""
    padded = np.pad(grey.astype(int), 1, mode="edge")
    height, width = grey.shape
    dx, dy = np.zeros((height, width), int), np.zeros((height, width), int)
    for i, weight in enumerate((1, 2, 1)):
        dx += weight * (padded[i : i + height, 2:] - padded[i : i + height, :-2])
        dy += weight * (padded[2:, i : i + width] - padded[:-2, i : i + width])
    steep = np.pad(np.abs(dx) + np.abs(dy), 1)
    kept = np.zeros((height, width), bool)
    for y, x in np.argwhere(steep[1:-1, 1:-1] > 50):
        here = steep[y + 1, x + 1]
        degrees = math.degrees(math.atan2(abs(dy[y, x]), abs(dx[y, x])))
        if degrees < 22.5:
            kept[y, x] = here > steep[y + 1, x] and here >= steep[y + 1, x + 2]
        elif degrees > 67.5:
            kept[y, x] = here > steep[y, x + 1] and here >= steep[y + 2, x + 1]
        else:
            side = 1 if (dx[y, x] > 0) == (dy[y, x] > 0) else -1
            kept[y, x] = here > steep[y, x + 1 - side] and here > steep[y + 2, x + 1 + side]
    strong = kept & (steep[1:-1, 1:-1] > 150)
    return ndimage.binary_propagation(strong, np.ones((3, 3)), mask=kept)


def spatter(image: Any, c: Any, rng: Rng, found: Callable[[Any], Any] = edges) -> Any:
    mean, deviation, sigma, least, last, is_mud = c
    x = image / 255
    liquid = mean + deviation * rng.standard_normal(x.shape[:2], dtype=np.float32)
    liquid = gaussian(liquid, sigma=sigma)
    liquid[liquid < least] = 0
    if is_mud:
        m = gaussian((liquid > least).astype(np.float32), sigma=last)
        m[m < 0.8] = 0
        mud = np.array([63, 42, 20]) / 255
        return np.clip(x * (1 - m[..., None]) + mud * m[..., None], 0, 1) * 255
    liquid = np.uint8(np.clip(liquid, 0, 1) * 255 + 2.0**-8)
    edge = found(liquid)
    far = ndimage.distance_transform_edt(~edge) if edge.any() else np.full(edge.shape, 20.0)
    far = np.uint8(ndimage.uniform_filter(np.minimum(far, 20), 3, mode="mirror") + 2.0**-8)
    values, counts = np.unique(far, return_counts=True)
    if len(values) > 1:
        spread = 255 / (far.size - counts[0])
        table = np.concatenate(([0], np.cumsum(counts[1:]) * spread))
        far = np.rint(table)[np.searchsorted(values, far)]
    shine = [[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]
    shining = np.clip(ndimage.correlate(far.astype(float), shine, mode="mirror"), 0, 255)
    m = np.rint(ndimage.uniform_filter(shining, 3, mode="mirror")) * liquid
    if m.max() > 0:
        m = m / m.max() * last
    water = np.array([175, 238, 238]) / 255
    return np.clip(x + m[..., None] * water, 0, 1) * 255


def greyscale(image: Any, c: float, rng: Rng) -> Any:
    grey = (image @ [0.299, 0.587, 0.114])[..., None]
    return (1 - c) * image + c * grey + 0.5


FORMULAS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        *(gaussian_noise, shot_noise, impulse_noise, defocus_blur, glass_blur, motion_blur),
        *(zoom_blur, snow, frost, fog, brightness, contrast, elastic_transform, pixelate),
        *(jpeg_compression, speckle_noise, gaussian_blur, spatter, saturate, greyscale),
    )
}


def published(image: Any, name: str, constants: Any, rng: Rng, **more: Any) -> Any:
    """The formula's result, its fractions cut off as `np.uint8` does; whole numbers stay."""
    values = FORMULAS[name](image, constants, rng, **more)
    return np.uint8(np.clip(values + 2.0**-8, 0, 255))
