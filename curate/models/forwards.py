"""Forwards: ways to run a classifier's weights, from exact PyTorch to what is fastest here.

A classifier in float32 and PyTorch is what counts as exact. A forward gives nearly its logits in
less time; where a score of it lies near a limit, the classifier looks at the view again.
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol, get_args

from curate.choices import Backend, Precision
from curate.errors import UnknownNameError, UsageError
from curate.models.runtime import BATCH_SIZES

if TYPE_CHECKING:
    import numpy as np
    import torch

    from curate.models.classifier import Classifier


class Forward(Protocol):
    """One way to run one classifier.

    Attributes:
        name: backend and precision, "torch fp32", "onnx fp32", "torch bf16"; told in records.
        backend: "torch", "compile" or "onnx".
        precision: "fp32", "bf16" or "fp16".
        batch_size: views in one shared pass; fixed for a backend, a precision and a device type.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def backend(self) -> str: ...  # noqa: D102

    @property
    def precision(self) -> str: ...  # noqa: D102

    @property
    def batch_size(self) -> int: ...  # noqa: D102

    def logits(self, views: np.ndarray | torch.Tensor) -> np.ndarray | torch.Tensor:
        """The output for a batch of views, nearly as `Classifier.logits` gives it.

        Args:
            views: uint8, as an array [B, S, S, 3] or as a tensor [B, 3, S, S] on any device.

        Returns:
            float32 [B, K]: an array, or a tensor on the classifier's device.

        Raises:
            ValueError: another dtype or shape.
        """
        ...

    def record(self) -> dict[str, Any]:
        """What bears on its logits beside the classifier's own record, as plain JSON values."""
        ...


class TorchForward:
    """The classifier itself: PyTorch in float32."""

    backend, precision = "torch", "fp32"
    name = "torch fp32"

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier
        self.batch_size = BATCH_SIZES[classifier.device.type]

    def logits(self, views: np.ndarray | torch.Tensor) -> torch.Tensor:
        """See `Classifier.logits`."""
        return self.classifier.logits(views)

    def record(self) -> dict[str, Any]:
        """Backend, precision, device type, batch size and versions."""
        return {
            "backend": self.backend,
            "precision": self.precision,
            "device": self.classifier.device.type,
            "batch_size": self.batch_size,
            "libraries": {"torch": metadata.version("torch")},
        }


def choose(backend: str, precision: str, device: torch.device) -> tuple[str, str]:
    """The backend and precision that two settings mean on a device.

    Args:
        backend: "auto" or one of `curate.choices.Backend`.
        precision: "auto" or one of `curate.choices.Precision`.
        device: where the classifiers are.

    Returns:
        Neither of them "auto".

    Raises:
        UnknownNameError: no such backend or precision.
        UsageError: the two do not go together, or not on this device.
        MissingExtraError: the backend's package is not installed.
    """
    if backend not in get_args(Backend):
        raise UnknownNameError("backend", backend, get_args(Backend))
    if precision not in get_args(Precision):
        raise UnknownNameError("precision", precision, get_args(Precision))
    if backend not in ("auto", "torch") or precision not in ("auto", "fp32"):
        raise UsageError(f"backend {backend!r} with precision {precision!r} is not available")
    return "torch", "fp32"


def make_forward(classifier: Classifier, backend: str, precision: str) -> Forward:
    """One way to run a classifier, which must be on its device already.

    Args:
        classifier: the network and its weights.
        backend: as `choose` gives it.
        precision: as `choose` gives it.

    Raises:
        UsageError: it does not run that way.
    """
    choose(backend, precision, classifier.device)
    return TorchForward(classifier)
