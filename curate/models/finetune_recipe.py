"""How to fine-tune: the numbers of a recipe, their ranges, and the learning rate of each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from curate.choices import Precision
from curate.errors import UnknownNameError, UsageError
from curate.models.runtime import resolve_device

if TYPE_CHECKING:
    import torch

#: The learning rate of the new layer where none is named.
RATES: dict[str, float] = {"sgd": 0.05, "adamw": 0.001}


@dataclass(frozen=True)
class Recipe:
    """How a network is fine-tuned.

    Args:
        epochs: passes over the photos.
        batch_size: photos a step.
        optimizer: "sgd" (with Nesterov momentum 0.9) or "adamw".
        lr: highest learning rate of the new layer; by default `RATES` of the optimizer.
        backbone: the other layers' learning rate as a share of that, in (0, 1].
        weight_decay: of weights; biases and normalisation have none.
        warmup: epochs over which the learning rates rise from 0; afterwards they fall to 0 as a
            cosine does.
        label_smoothing: share of the target that all classes have in equal parts, in [0, 1).
        smallest_crop: least share of a photo's area that a random crop shows, in (0, 1].
        freeze: train the new layer alone; the others, with their statistics, stay as they are.
        seed: of the new layer, of the order of photos and of all crops.
        precision: of training's forward pass: "fp32", "bf16" or "fp16". Validation is in fp32.

    Raises:
        UsageError: a number is out of its range.
        UnknownNameError: no such optimizer or precision.
    """

    epochs: int = 10
    batch_size: int = 64
    optimizer: str = "sgd"
    lr: float | None = None
    backbone: float = 0.1
    weight_decay: float = 1e-4
    warmup: float = 1.0
    label_smoothing: float = 0.1
    smallest_crop: float = 0.25
    freeze: bool = False
    seed: int = 0
    precision: str = "fp32"

    def __post_init__(self) -> None:
        if self.optimizer not in RATES:
            raise UnknownNameError("optimizer", self.optimizer, RATES)
        if self.precision not in ("fp32", "bf16", "fp16"):
            raise UnknownNameError("precision", self.precision, get_args(Precision))
        if self.lr is None:
            object.__setattr__(self, "lr", RATES[self.optimizer])
        assert self.lr is not None
        checks = (
            ("epochs", 1 <= self.epochs <= 10_000, self.epochs, "1 … 10,000"),
            # Normalisation over a batch of one has no spread.
            ("batch-size", 2 <= self.batch_size <= 65_536, self.batch_size, "2 … 65,536"),
            ("lr", 0 < self.lr <= 100, self.lr, "above 0, at most 100"),
            ("backbone", 0 < self.backbone <= 1, self.backbone, "above 0, at most 1"),
            ("weight-decay", 0 <= self.weight_decay <= 1, self.weight_decay, "0 … 1"),
            ("warmup", 0 <= self.warmup <= self.epochs, self.warmup, "0 … the number of epochs"),
            ("label-smoothing", 0 <= self.label_smoothing < 1, self.label_smoothing, "0 … below 1"),
            ("smallest-crop", 0 < self.smallest_crop <= 1, self.smallest_crop, "above 0, up to 1"),
            ("seed", 0 <= self.seed < 2**63, self.seed, "0 … 2^63 - 1"),
        )
        for name, is_good, value, wanted in checks:
            if not is_good:
                raise UsageError(f"--{name} is {value}: write {wanted}")

    @property
    def rate(self) -> float:
        """`lr`, which is known from the beginning."""
        assert self.lr is not None
        return self.lr

    def factor(self, step: int, steps: int) -> float:
        """What the learning rates are multiplied with at a step.

        Args:
            step: from 0.
            steps: in an epoch.

        Returns:
            In (0, 1]: it rises linearly over the warm-up, then falls as a cosine, and would be 0
            one step after the last.
        """
        rising = round(self.warmup * steps)
        if step < rising:
            return (step + 1) / (rising + 1)
        share = (step - rising) / max(1, self.epochs * steps - rising)
        return 0.5 * (1.0 + math.cos(math.pi * share))


def resolve_precision(name: str, device: torch.device | str) -> str:
    """What a setting means on a device.

    Args:
        name: "auto" (bf16 on a GPU that computes in it, else fp16 there; fp32 elsewhere), "fp32",
            "bf16" or "fp16".
        device: where the training runs.

    Raises:
        UnknownNameError: no precision is called so.
        UsageError: the device is not for it.
    """
    import torch

    if name not in get_args(Precision):
        raise UnknownNameError("precision", name, get_args(Precision))
    device = resolve_device(device) if isinstance(device, str) else device
    if device.type == "cuda":
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        if name == "auto":
            return "bf16" if has_bf16 else "fp16"
        if name == "bf16" and not has_bf16:
            raise UsageError(f"{device} does not compute in bf16; use fp16 or auto")
        return name
    if name == "fp16":
        # On the CPU it is seven times as slow as fp32; on MPS it has not been tried.
        raise UsageError(f"fp16 is for CUDA alone; use fp32 or bf16 on {device}")
    if name == "bf16" and device.type != "cpu":
        raise UsageError(f"bf16 is for CUDA and CPUs; use fp32 on {device}")
    return "fp32" if name == "auto" else name
