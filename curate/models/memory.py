"""A device's memory, and its loss.

A batch that does not fit is halved until it does, and later ones are no larger. A GPU that fails
is told in one line: what was finished before is on disk, and the same command goes on with it.
"""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from curate.errors import DeviceError
from curate.progress import say

if TYPE_CHECKING:
    import torch

Output = TypeVar("Output", "np.ndarray", "torch.Tensor")

# PyTorch has a class of its own for CUDA's allocator alone: MPS, cuDNN, cuBLAS, the driver and the
# CPU's allocator say it in words.
_FULL = re.compile(r"out of memory|_ALLOC_FAILED|can't allocate memory|not enough memory")
_FAILED = re.compile(
    r"\b(CUDA|HIP|MPS|cuDNN|cuBLAS|NCCL) (error|unknown error|driver|backend)|CU(BLAS|DNN)_STATUS_"
    r"|No (CUDA|HIP) GPUs are available|device-side assert"
)


class Room:
    """How many views fit a device together, as far as is known; threads may share one.

    Args:
        name: what computes, for messages: "torchvision/resnet50, torch bf16".
        together: views that must not be parted: 10 where ten views are one batch by definition
            (canonical ones on a GPU).

    Attributes:
        most: the most views of later batches; None while every batch has fitted.
    """

    def __init__(self, name: str, together: int = 1) -> None:
        self.name, self.together = name, together
        self.most: int | None = None
        self._lock = threading.Lock()

    def shrink(self, failed: int) -> None:
        """A batch of `failed` views did not fit: later ones have half of that at most.

        The first time this is told on standard error.
        """
        half = max(failed // 2, self.together)
        with self._lock:
            is_first, self.most = self.most is None, min(self.most or half, half)
        if is_first:
            say(
                f"{self.name}: the device's memory does not hold {failed} views at once; from here "
                f"on batches have {half}, or half as many until they fit"
            )


def in_halves(
    logits: Callable[[np.ndarray | torch.Tensor], Output],
    views: np.ndarray | torch.Tensor,
    room: Room,
) -> Output:
    """Run a batch, in parts where the device's memory does not hold it.

    Parts of other sizes change the last bits of logits, as batch sizes do; so what counts as exact
    has a room whose views stay together.

    Args:
        logits: as `Classifier.logits` and `Forward.logits` take and give it.
        views: [B, ...], uint8.
        room: remembers what has fitted; one for each forward and device.

    Returns:
        [B, K], what `logits` gives for these views.

    Raises:
        DeviceError: `room.together` views alone do not fit.
        whatever else `logits` raises.
    """
    outputs: list[Output] = []
    done, is_last_try = 0, False
    while done < len(views) or not outputs:
        size = min(room.most or len(views), len(views) - done)
        output = _tried(logits, views[done : done + size])
        if output is not None:
            outputs.append(output)
            done, is_last_try = done + size, False
            continue
        # Only here is the failed pass forgotten, with all that it held.
        _give_back()
        if size > room.together:
            room.shrink(size)
        elif is_last_try:
            many = f"{size} views" if size > 1 else "one view"
            raise DeviceError(
                f"{room.name}: the device's memory does not hold {many}; free some of it, or take "
                "another device with --device"
            )
        else:
            # What others held for a moment, or the cache did, may be free by now.
            is_last_try = True
    if len(outputs) == 1:
        return outputs[0]
    if isinstance(outputs[0], np.ndarray):
        return np.concatenate(outputs)
    import torch

    return torch.cat(outputs)


@contextmanager
def device_errors(device: torch.device | str) -> Iterator[None]:
    """Turn what PyTorch says of a failing device into one line.

    Args:
        device: where the work is done, for the message.

    Raises:
        DeviceError: the device failed or is gone, or its memory is full.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        told = (str(error).splitlines() or [type(error).__name__])[0]
        if is_out_of_memory(error):
            raise DeviceError(
                f"the memory of {device} is full; free some of it, or take another device with "
                f"--device ({told})"
            ) from error
        if _has_failed(error):
            raise DeviceError(
                f"{device} failed ({told}); what was finished is kept: run the same command again, "
                "with --device cpu if it fails again"
            ) from error
        raise


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of whatever device, did not suffice."""
    import torch

    return isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and bool(_FULL.search(str(error)))
    )


def _has_failed(error: BaseException) -> bool:
    import torch

    # Older versions of PyTorch lack the class.
    accelerator = getattr(torch, "AcceleratorError", ())
    return isinstance(error, accelerator) or bool(_FAILED.search(str(error)))


def _tried(
    logits: Callable[[np.ndarray | torch.Tensor], Output], views: np.ndarray | torch.Tensor
) -> Output | None:
    """The logits, or None where memory did not suffice."""
    try:
        return logits(views)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    return None


def _give_back() -> None:
    """Let PyTorch return what it keeps for later, so that smaller blocks can be had."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
