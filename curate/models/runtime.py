"""How PyTorch uses this machine: threads, memory, devices, precision."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from curate.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    import torch

# Of <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_HUGE = 1 << 30

#: Views in one forward pass, by device type. On a CPU small batches win: the activations of four
#: views stay in the cache. Fixed, because a batch size changes the last bits of a score.
BATCH_SIZES = {"cpu": 4, "cuda": 256, "mps": 64}

_bounds = threading.Lock()
_bounded = 0
_unbounded = 1


@contextmanager
def bound_threads(count: int) -> Iterator[None]:
    """Bound the threads that one PyTorch operation of the calling thread uses.

    PyTorch keeps this number for each thread that has computed, and hands the number that was set
    last, by whichever thread, to threads that are yet to compute. So a worker thread calls this
    itself. When the last bound ends, the number that stood before the first is what new threads
    get again.

    Args:
        count: threads, at least 1; 1 where each core has a worker thread of its own, since
            oversubscribed cores cost tenfold.

    Raises:
        ValueError: `count` is below 1.
    """
    global _bounded, _unbounded
    import torch

    if count < 1:
        raise ValueError(f"an operation needs at least one thread, not {count}")
    with _bounds:
        before = torch.get_num_threads()
        if not _bounded:
            _unbounded = before
        _bounded += 1
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _bounds:
            _bounded -= 1
            torch.set_num_threads(before if _bounded else _unbounded)


def tune_allocator() -> bool:
    """Let glibc keep the memory of large activations for the next layer.

    By default each block over some megabytes is mapped and unmapped anew, and its pages are
    zeroed by the kernel at every layer: on one thread a forward pass takes 1.1 to 2 times as long,
    the more so the larger the batch. The process then holds on to the memory that its largest
    batch needed. Calling it again changes nothing.

    Returns:
        Whether it took effect: False on anything but glibc (musl, macOS, Windows).
    """
    try:
        libc = ctypes.CDLL(None)
    except (OSError, TypeError):
        return False
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    # Older versions take no more than 32 MiB for the first.
    mapped = any(libc.mallopt(_M_MMAP_THRESHOLD, limit) == 1 for limit in (_HUGE, 32 << 20))
    return mapped and libc.mallopt(_M_TRIM_THRESHOLD, _HUGE) == 1


def resolve_device(name: str) -> torch.device:
    """The device that a setting names.

    Args:
        name: "auto" (a GPU where PyTorch sees one, else the CPU), "cpu", "cuda", "cuda:1", "mps".

    Raises:
        UnknownNameError: no device is called so.
        UsageError: this machine lacks it.
    """
    import torch

    has_mps = torch.backends.mps.is_available()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if has_mps else "cpu"
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and not index.isdecimal()):
        raise UnknownNameError("device", name, ("auto", "cpu", "cuda", "mps"))
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(has_mps)}[kind]
    if int(index or 0) >= count:
        seen = f"PyTorch sees {count} of the kind {kind}" if count else f"PyTorch sees no {kind}"
        raise UsageError(f"device {name!r} is not on this machine ({seen}); use auto or cpu")
    return torch.device(name)


def full_precision() -> None:
    """Make CUDA compute float32 in float32: convolutions would use TF32 by default."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    # Choosing algorithms by timing would change bits from run to run.
    torch.backends.cudnn.benchmark = False
