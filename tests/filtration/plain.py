"""The plain loop: twenty forward passes a photo, with nothing of the project's own arithmetic.

It decodes with Pillow, cuts with torchvision's Resize and TenCrop, normalises with ToTensor's
division and Normalize, and takes the softmax with scipy. It is the oracle of the cascade.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from scipy.special import softmax
from torchvision import transforms

#: From TenCrop's order (corners, then the centre) to ours (the centre first).
CENTRE_FIRST = [4, 0, 1, 2, 3, 9, 5, 6, 7, 8]


@dataclass(frozen=True)
class Member:
    """A network and what the loop must know of it."""

    module: Callable[[torch.Tensor], torch.Tensor]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    columns: np.ndarray


@dataclass(frozen=True)
class Said:
    """What the loop says of one photo: all scores and the verdict."""

    p: np.ndarray  # [models, 10, classes]
    survives: bool
    reason: str | None
    predicted: int
    confidence: float
    p_true: float


def plain_loop(
    photos: Sequence[Image.Image],
    targets: Sequence[int],
    members: Sequence[Member],
    threshold: float,
) -> list[Said]:
    cut = transforms.Compose([transforms.Resize(256), transforms.TenCrop(224)])
    said = []
    with torch.inference_mode():
        for photo, target in zip(photos, targets, strict=True):
            crops = cut(photo)
            views = [crops[n] for n in CENTRE_FIRST]
            p = np.stack(
                [
                    softmax(
                        member.module(
                            torch.stack(
                                [
                                    transforms.functional.normalize(
                                        transforms.functional.to_tensor(view),
                                        member.mean,
                                        member.std,
                                    )
                                    for view in views
                                ]
                            )
                        )
                        .numpy()[:, member.columns]
                        .astype(np.float64),
                        axis=1,
                    )
                    for member in members
                ]
            )
            right = (p.argmax(axis=2) == target).any()
            over = (p[:, :, target] > threshold).any()
            said.append(
                Said(
                    p,
                    not (right or over),
                    "correct" if right else "threshold" if over else None,
                    int(p[0, 0].argmax()),
                    float(p[0, 0].max()),
                    float(p[:, :, target].max()),
                )
            )
    return said


def near_a_limit(said: Said, target: int, threshold: float, margin: float = 1e-3) -> bool:
    """Whether any view lies so close to a limit that the last bits may decide."""
    others = said.p.copy()
    others[:, :, target] = -1
    gap = said.p[:, :, target] - others.max(axis=2)
    near = np.abs(said.p[:, :, target] - threshold) <= margin
    return bool((near | (np.abs(gap) <= margin)).any())
