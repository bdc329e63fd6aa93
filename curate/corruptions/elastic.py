"""Elastic transform: a random affine map, then a smooth random displacement of every pixel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from curate.corruptions.filters import gaussian, sampled
from curate.corruptions.terms import (
    Floats,
    Levels,
    Terms,
    layer_shape,
    levels,
    row_blocks,
    stretched,
)


def elastic_transform(image: Levels, constants: tuple[float, float, float], terms: Terms) -> Levels:
    """Three points are moved at random and the image with them; then each pixel is displaced.

    Published, and mended: points were told as (row, column) where (x, y) is meant, which matters
    where the image is no square. The affine map is read at exact places, where OpenCV (before
    version 5) rounds them to 1/32 pixel; both are bilinear and mirror at the border.

    Args:
        image: what to corrupt.
        constants: how far pixels are displaced, sigma of the displacement, and how far the three
            points are moved, all in pixels.
        terms: see there.
    """
    strength, sigma, moved = constants
    affine = _affine(image.shape[1], image.shape[0], moved * terms.unit, terms.rng)
    right = _displacement(image, strength, sigma, terms)
    down = _displacement(image, strength, sigma, terms)

    height, width = image.shape[:2]
    planes = np.ascontiguousarray(image.transpose(2, 0, 1))
    warped = np.empty(planes.shape, np.float32)
    columns = np.arange(width, dtype=np.float64)
    for rows in row_blocks(height, width):
        lines = np.arange(rows.start, rows.stop, dtype=np.float64)[:, None]
        from_right = affine[0, 0] * columns + (affine[0, 1] * lines + affine[0, 2])
        from_down = affine[1, 0] * columns + (affine[1, 1] * lines + affine[1, 2])
        warped[:, rows] = sampled(planes, from_down, from_right, "mirror")
    result = np.empty_like(image)
    for rows in row_blocks(height, width):
        lines = np.arange(rows.start, rows.stop, dtype=np.float64)[:, None]
        found = sampled(warped, lines + down[rows], columns + right[rows], "reflect")
        for channel, values in enumerate(found):
            result[rows, :, channel] = levels(values)
    return result


def _affine(width: int, height: int, moved: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """What leads from a pixel of the result to its place in the image, as two rows of three."""
    reach = max(1, min(width, height) // 3)
    corners = ((reach, reach), (reach, -reach), (-reach, -reach))
    points = np.array([(width // 2 + x, height // 2 + y) for x, y in corners], np.float64)
    after = points + rng.uniform(-moved, moved, points.shape)
    # Solved by hand: a library of linear algebra rounds differently on different processors.
    (a, b), (c, d) = after[1] - after[0], after[2] - after[0]
    inverse = np.array([(d, -c), (-b, a)]) / (a * d - b * c)
    linear = [
        [inverse[0, at] * first + inverse[1, at] * second for at in (0, 1)]
        for first, second in zip(points[1] - points[0], points[2] - points[0], strict=True)
    ]
    return np.array(
        [
            (p, q, point - p * after[0, 0] - q * after[0, 1])
            for (p, q), point in zip(linear, points[0], strict=True)
        ]
    )


def _displacement(image: Levels, strength: float, sigma: float, terms: Terms) -> Floats:
    """In pixels of the image; each pixel of the crop has a random number of its own."""
    shape = layer_shape(image, terms.unit)
    noise = terms.rng.random(shape, dtype=np.float32)
    noise -= np.float32(0.5)
    noise *= np.float32(2.0 * strength * terms.unit)
    return stretched(gaussian(noise, sigma, "reflect", truncate=3.0), image)
