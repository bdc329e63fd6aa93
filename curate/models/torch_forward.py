"""PyTorch's own ways to run a classifier: float32, half the bits by autocast, and compiled."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import metadata
from typing import TYPE_CHECKING, Any

from curate.errors import UsageError
from curate.models.runtime import BATCH_SIZES, bound_threads
from curate.progress import say

if TYPE_CHECKING:
    import numpy as np
    import torch

    from curate.models.classifier import Classifier

#: Views in one shared pass of low precision on a CPU, where larger batches than those of float32
#: win: half the bytes, and weights that are cast once a pass.
LOW_BATCH = 8

#: What PyTorch calls them.
_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def is_emulated(device: str, precision: str) -> bool:
    """Whether a device computes convolutions in a precision without instructions for it.

    Args:
        device: its type, as PyTorch names it.
        precision: "fp32", "bf16" or "fp16".
    """
    if device != "cpu" or precision == "fp32":
        return False
    import torch

    asked = getattr(torch.ops.mkldnn, f"_is_mkldnn_{precision}_supported", None)
    return asked is not None and not asked()


class TorchForward:
    """Eager PyTorch: in float32 the classifier itself, else with PyTorch's autocast.

    Where autocast computes in half the bits (convolutions, products of matrices) and where it keeps
    float32 is PyTorch's choice by device. The same batch gives the same bits each time on one
    device and number of threads.

    Args:
        classifier: on its device already.
        precision: "fp32", "bf16" or "fp16".
        side: of the views to come; the classifier's native one by default.

    Raises:
        UsageError: the device does not compute so.
    """

    backend = "torch"

    def __init__(self, classifier: Classifier, precision: str, side: int | None = None) -> None:
        self.classifier, self.precision = classifier, precision
        self.name = f"{self.backend} {precision}"
        device = classifier.device.type
        is_low = device == "cpu" and precision != "fp32"
        self.batch_size = LOW_BATCH if is_low else BATCH_SIZES[device]
        self._network: Any = classifier.module
        self._prepare(side or classifier.preprocessing.recipe.crop)

    def _prepare(self, side: int) -> None:
        if self.precision == "fp32":
            return
        if is_emulated(self.classifier.device.type, self.precision):
            say(
                f"{self.classifier.name}: this processor has no instructions for {self.precision}, "
                "which takes many times as long as fp32 here"
            )
        try:
            self.logits(_blank(1, side))
        except (RuntimeError, ValueError, TypeError) as error:
            device = self.classifier.device.type
            raise UsageError(
                f"{self.classifier.name} does not run with precision {self.precision} on {device}: "
                f"{first_line(error)}"
            ) from error

    def logits(self, views: np.ndarray | torch.Tensor) -> torch.Tensor:
        """See `Forward.logits`."""
        import torch

        if self._network is self.classifier.module and self.precision == "fp32":
            return self.classifier.logits(views)
        with torch.inference_mode():
            pixels = self.classifier.normalised(views)
            if not len(pixels):
                return torch.empty((0, len(self.classifier.output)), device=self.classifier.device)
            with self._autocast():
                return self._run(pixels).float()

    def _run(self, pixels: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self._network(pixels)
        return output

    def _autocast(self) -> AbstractContextManager[Any]:
        import torch

        return torch.autocast(
            self.classifier.device.type,
            dtype=getattr(torch, _DTYPES[self.precision]),
            enabled=self.precision != "fp32",
        )

    def record(self) -> dict[str, Any]:
        """Backend, precision, device type, batch size and versions."""
        return {
            "backend": self.backend,
            "precision": self.precision,
            "device": self.classifier.device.type,
            "batch_size": self.batch_size,
            "libraries": {"torch": metadata.version("torch")},
        }


class CompiledForward(TorchForward):
    """The same through torch.compile, for batches of any size.

    Compiling takes a minute or more and needs a compiler on this machine: of C++ for a CPU, Triton
    for CUDA. Batches have two views at least (PyTorch would compile for one alone anew).

    Args:
        classifier: on its device already.
        precision: "fp32", "bf16" or "fp16".
        side: of the views to come; the classifier's native one by default.

    Raises:
        UsageError: it does not compile here.
    """

    backend = "compile"

    def _prepare(self, side: int) -> None:
        import torch

        # Weights are constants then: normalisation is folded into convolutions, and casts are done.
        self._network = torch.compile(self.classifier.module, options={"freezing": True})
        try:
            # A network is compiled for a number of threads, and each worker has one.
            with bound_threads(1):
                self.logits(_blank(self.batch_size, side))
        except Exception as error:
            # Whatever the compilers raise: their own errors have no root in common.
            raise UsageError(
                f"{self.classifier.name} is not compiled on this machine: {first_line(error)}"
            ) from error

    def _run(self, pixels: torch.Tensor) -> torch.Tensor:
        import torch

        count = len(pixels)
        if count == 1:
            # Of one view's memory nobody can tell in which layout it lies.
            pixels = pixels.repeat(2, 1, 1, 1).contiguous(memory_format=torch.channels_last)
        torch._dynamo.maybe_mark_dynamic(pixels, 0)
        return super()._run(pixels)[:count]


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _blank(count: int, side: int) -> torch.Tensor:
    import torch

    return torch.full((count, 3, side, side), 127, dtype=torch.uint8)
