"""What made a number: versions, device, precision."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

from curate._version import __version__


def made_by(device: str) -> dict[str, Any]:
    """What computes scores here and now, beside the classifiers themselves.

    Args:
        device: where forward passes run, "cpu" or "cuda:0".
    """
    from curate.images.decode import DECODER

    return {
        "device": device_name(device),
        "decoder": DECODER,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numpy", "pillow", "torch")},
        "curate": __version__,
    }


def processor() -> list[str]:
    """What this machine adds numbers up with: another one does it in another order."""
    import torch

    return [platform.machine(), torch.backends.cpu.get_cpu_capability()]


def numbers_by(device: str) -> dict[str, Any]:
    """What else changes the last digits of a number that is kept.

    Args:
        device: where forward passes run, by type: "cpu", "cuda", "mps".
    """
    from curate.models.runtime import BATCH_SIZES

    scipy = metadata.version("scipy")
    return {"scipy": scipy, "dtype": "float32", "batch_size": BATCH_SIZES[device]}


def device_name(device: str) -> str:
    """A device by what it is: several of one kind compute alike, whatever their numbers."""
    if not device.startswith("cuda"):
        return device
    import torch

    return f"cuda ({torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda})"
