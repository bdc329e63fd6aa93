"""What made a number: versions, device, precision."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

from curate._version import __version__


def made_by(device: str, batch_size: int) -> dict[str, Any]:
    """What computes scores here and now, beside the classifiers themselves.

    Args:
        device: where forward passes run, "cpu" or "cuda:0".
        batch_size: views in one shared forward pass.
    """
    from curate.images.decode import DECODER

    return {
        "device": device,
        "dtype": "float32",
        "batch_size": batch_size,
        "decoder": DECODER,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numpy", "pillow", "torch")},
        "curate": __version__,
    }
