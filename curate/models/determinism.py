"""Computing the same bits each time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Let PyTorch compute the same bits each time, and leave its random numbers as they were.

    CPUs do so by themselves for one number of threads. Of CUDA the deterministic algorithms are
    asked for; where an operation has none, PyTorch warns.
    """
    import torch

    on_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        if not on_cuda:
            yield
            return
        # cuBLAS reads it when the first matrix is multiplied.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        before = torch.are_deterministic_algorithms_enabled()
        warned = torch.is_deterministic_algorithms_warn_only_enabled()
        filling: Any = torch.utils.deterministic
        filled = filling.fill_uninitialized_memory
        torch.use_deterministic_algorithms(True, warn_only=True)
        filling.fill_uninitialized_memory = False
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warned)
            filling.fill_uninitialized_memory = filled
