"""Photos that nobody took, and networks that nobody trained, for machines without either.

A network with random weights says the same of every photo, and no cascade can be timed on that. So
its normalisation layers are set to the statistics of some photos, and its last layer is fitted to
their kinds by ridge regression: then it tells most kinds apart, is unsure of some photos, and is
wrong where a label is. It needs only torch, torchvision, numpy and Pillow.
"""

from __future__ import annotations

import colorsys
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

# As photos of the web have them; the first one is ImageNet's most frequent.
SIZES = ((500, 375), (375, 500), (500, 333), (640, 480), (480, 360), (1024, 683))

# The softmax of a photo that fits its kind exactly, over 200 classes, is 0.998 at 11.
_CERTAINTY = 11.0
_RIDGE = 0.03


@dataclass(frozen=True)
class Sample:
    """A photo with its weak label.

    Attributes:
        data: the bytes of a JPEG.
        label: the kind that it is said to be.
    """

    data: bytes
    label: int


def sample(number: int, kinds: int, *, wrong: float, mixed: float, seed: int = 0) -> Sample:
    """One photo, the same each time.

    Args:
        number: which one.
        kinds: how many there are.
        wrong: share of the photos that are not what their label says, and mostly survive.
        mixed: share of the photos that show two kinds, one of them the label: some of their views
            decide, and some are near a limit.
        seed: of all of them.
    """
    rng = np.random.default_rng((seed, number))
    shown = int(rng.integers(kinds))
    other = int((shown + rng.integers(1, kinds)) % kinds)
    width, height = SIZES[int(rng.integers(len(SIZES)))]
    pixels = _texture(rng, shown, kinds, width, height)
    chance = rng.random()
    label = other if chance < wrong else shown
    if wrong <= chance < wrong + mixed:
        edge = int(rng.uniform(0.2, 0.8) * width)
        pixels[:, edge:] = _texture(rng, other, kinds, width, height)[:, edge:]
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=90)
    return Sample(stream.getvalue(), label)


def _texture(
    rng: np.random.Generator, kind: int, kinds: int, width: int, height: int
) -> np.ndarray:
    """A picture of one kind: waves of its colours, length and direction, with light and noise."""
    own = np.random.default_rng((7, kind))
    hue, angle = kind / kinds, np.pi * own.random()
    length = own.uniform(8, 60) * rng.uniform(0.8, 1.25)
    angle += rng.normal(0, 0.1)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    phase = (x * np.cos(angle) + y * np.sin(angle)) / length * 2 * np.pi
    wave = 0.5 + 0.5 * np.sin(phase + rng.uniform(0, 6))
    ends = [
        np.array(colorsys.hsv_to_rgb((hue + shift + rng.normal(0, 0.02)) % 1, 0.7, value))
        for shift, value in ((0.0, 0.9), (own.uniform(0.1, 0.6), 0.4))
    ]
    picture = wave[..., None] * ends[0] + (1 - wave[..., None]) * ends[1]
    light = 1 + rng.uniform(-0.3, 0.3) * (x / width - 0.5) + rng.uniform(-0.3, 0.3) * (y / height)
    picture = picture * light[..., None] + rng.normal(0, 0.06, picture.shape)
    return (picture.clip(0, 1) * 255).astype(np.uint8)


def fit(
    module: torch.nn.Module,
    batches: Sequence[torch.Tensor],
    columns: Sequence[int],
    device: torch.device,
) -> None:
    """Let a network with random weights tell kinds apart, in place.

    Args:
        module: a convolutional network whose last layer is linear.
        batches: normalised views, float32 [B, 3, S, S] each.
        columns: for each view of all batches the column of the output that stands for its kind.
        device: where to compute.
    """
    module.to(device)
    head = [part for part in module.modules() if isinstance(part, torch.nn.Linear)][-1]
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            part.reset_running_stats()
            part.momentum = None  # The mean over all batches.
            part.train()
    features: list[torch.Tensor] = []

    def keep(_: object, inputs: tuple[torch.Tensor, ...]) -> None:
        features.append(inputs[0].double())

    with torch.inference_mode():
        for batch in batches:
            module(batch.to(device))
        module.eval()
        hook = head.register_forward_pre_hook(keep)
        for batch in batches:
            module(batch.to(device))
        hook.remove()
        x = torch.cat(features)
        x = x.cpu() if device.type == "mps" else x
        weight, bias = _ridge(x, torch.tensor(columns, device=x.device), head.out_features)
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)


def _ridge(
    x: torch.Tensor, columns: torch.Tensor, outputs: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight [outputs, D] and bias [outputs] from features [N, D] and their kinds' columns [N]."""
    mean, std = x.mean(dim=0), x.std(dim=0) + 1e-6
    z = (x - mean) / std
    y = torch.zeros(len(x), outputs, dtype=x.dtype, device=x.device)
    y[torch.arange(len(x), device=x.device), columns] = _CERTAINTY
    # With fewer photos than features the dual is the smaller system.
    gram = z @ z.T
    gram.diagonal().add_(_RIDGE * gram.diagonal().mean())
    weight = (z.T @ torch.linalg.solve(gram, y - y.mean(dim=0))).T / std
    return weight, y.mean(dim=0) - weight @ mean


def made(
    count: int, spread: Callable[..., object], kinds: int, *, wrong: float, mixed: float, seed: int
) -> list[Sample]:
    """`count` photos.

    Args:
        count: how many.
        spread: as `map`; that of a pool makes them in its threads.
        kinds: see `sample`.
        wrong: see `sample`.
        mixed: see `sample`.
        seed: see `sample`.
    """

    def one(number: int) -> Sample:
        return sample(number, kinds, wrong=wrong, mixed=mixed, seed=seed)

    return list(spread(one, range(count)))  # type: ignore[call-overload]
