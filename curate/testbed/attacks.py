"""Attacks by projected gradient descent (Madry et al., ICLR 2018), in the space of pixels.

The perturbation lives where photos do, between 0 and 1 before normalisation, so that its size means
the same for every model. A photo that a model takes for something else before any step, or after
one, is done: the picture that shows it lies within the ball.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from curate.files import sha256_bytes

if TYPE_CHECKING:
    import torch

#: Steps of the published attacks.
STEPS = 100

#: The side of the pictures that the l2 balls were measured for; larger pictures get larger balls.
SIDE = 224

#: Name to norm, size of the ball and of a step (Taori et al., appendix E.3; the size of a linf ball
#: is a number of 255 levels).
PUBLISHED: dict[str, tuple[Literal["linf", "l2"], float, float]] = {
    "pgd.linf.eps0.5": ("linf", 0.5 / 255, 0.015 / 255),
    "pgd.linf.eps2": ("linf", 2 / 255, 0.06 / 255),
    "pgd.l2.eps0.1": ("l2", 0.1, 0.01),
    "pgd.l2.eps0.5": ("l2", 0.5, 0.05),
}


@dataclass(frozen=True)
class Attack:
    """Projected gradient ascent on the cross-entropy of the true class, from a random start.

    Attributes:
        norm: "linf" or "l2".
        size: the largest norm of the perturbation; pixels are 0 … 1. An l2 ball is for pictures of
            224 pixels a side, and grows with the side, as in the published testbed.
        step: length of a step, in the same norm, for pictures of every side.
        steps: how many.
        seed: of the random start, with each picture's own key.
    """

    norm: Literal["linf", "l2"]
    size: float
    step: float
    steps: int = STEPS
    seed: int = 0

    def __post_init__(self) -> None:
        if self.norm not in ("linf", "l2"):
            raise ValueError(f"norm is {self.norm!r}: write linf or l2")
        if not self.size >= 0 or not self.step >= 0 or self.steps < 1:
            raise ValueError("an attack needs a size and a step of at least 0, and one step")


def published(name: str, steps: int = STEPS) -> Attack:
    """An attack of the testbed by name.

    Args:
        name: a key of `PUBLISHED`.
        steps: other than 100 make steps longer, so that all together reach as far; none is longer
            than the ball is wide.
    """
    norm, size, step = PUBLISHED[name]
    return Attack(norm, size, min(size, step * STEPS / steps), steps)


def attacked(
    logits: Callable[[torch.Tensor], torch.Tensor],
    pictures: torch.Tensor,
    truth: Sequence[Sequence[int]],
    attack: Attack,
    keys: Sequence[str],
) -> torch.Tensor:
    """The pictures that a model sees after an attack.

    Args:
        logits: from float32 (B, 3, S, S) in 0 … 1 to (B, C), differentiable.
        pictures: float32 (B, 3, S, S) in 0 … 1.
        truth: of each picture, the columns that count as right; at least one.
        attack: what is done.
        keys: of each picture, what its random start depends on beside the seed.

    Returns:
        Pictures like these, within the ball around them and within 0 … 1. One that the model gets
        wrong as it is comes back as it is.
    """
    import torch

    result = pictures.clone()
    with torch.enable_grad():
        right = _right(logits(pictures).detach(), truth)
        rows = [row for row in range(len(pictures)) if right[row]]
        radius = attack.size * (pictures.shape[-1] / SIDE if attack.norm == "l2" else 1.0)
        if not rows:
            return result
        start = torch.stack([_start(pictures[row], attack, radius, keys[row]) for row in rows])
        result[rows] = _within(pictures[rows], start, attack.norm, radius)
        for _ in range(attack.steps):
            # A copy that wants a gradient, while the pictures themselves keep none.
            moved = result[rows].detach().requires_grad_(True)
            given = logits(moved)
            still = _right(given.detach(), [truth[row] for row in rows])
            if not any(still):
                return result
            (slope,) = torch.autograd.grad(_loss(given, [truth[row] for row in rows]), moved)
            kept = [place for place, is_right in enumerate(still) if is_right]
            rows = [rows[place] for place in kept]
            along = attack.step * _direction(slope[kept], attack.norm)
            delta = moved.detach()[kept] - pictures[rows] + along
            result[rows] = _within(pictures[rows], delta, attack.norm, radius)
    return result


def _right(given: torch.Tensor, truth: Sequence[Sequence[int]]) -> list[bool]:
    return [int(one) in columns for one, columns in zip(given.argmax(1), truth, strict=True)]


def _loss(given: torch.Tensor, truth: Sequence[Sequence[int]]) -> torch.Tensor:
    """Cross-entropy of all classes that count as right, added up over the pictures."""
    import torch

    spread = given.logsumexp(1)
    own = torch.stack(
        [row[list(columns)].logsumexp(0) for row, columns in zip(given, truth, strict=True)]
    )
    return (spread - own).sum()


def _direction(slope: torch.Tensor, norm: str) -> torch.Tensor:
    if norm == "linf":
        return slope.sign()
    return slope / slope.flatten(1).norm(dim=1).clamp_min(1e-12).view(-1, 1, 1, 1)


def _start(picture: torch.Tensor, attack: Attack, radius: float, key: str) -> torch.Tensor:
    """A random point of the ball, the same one for the same picture whatever stands beside it."""
    import torch

    number = int(sha256_bytes(f"{attack.seed}:{key}".encode())[:15], 16)
    random = torch.Generator().manual_seed(number)
    if attack.norm == "linf":
        delta = (torch.rand(picture.shape, generator=random) * 2 - 1) * radius
    else:
        delta = torch.randn(picture.shape, generator=random)
        share = torch.rand((), generator=random) ** (1 / delta.numel())
        delta = delta / delta.norm() * radius * share
    return delta.to(picture.device)


def _within(pictures: torch.Tensor, delta: torch.Tensor, norm: str, radius: float) -> torch.Tensor:
    """The nearest pictures within the ball, then within 0 … 1, which takes none out of it."""
    if norm == "linf":
        delta = delta.clamp(-radius, radius)
    else:
        length = delta.flatten(1).norm(dim=1).clamp_min(1e-12).view(-1, 1, 1, 1)
        delta = delta * (radius / length).clamp_max(1.0)
    return (pictures + delta).clamp(0.0, 1.0)
