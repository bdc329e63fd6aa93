"""Forwards: ways to run a classifier's weights, from exact PyTorch to what is fastest here.

A classifier in float32 and PyTorch is what counts as exact. A forward gives nearly its logits in
less time; where a score of it lies near a limit, the classifier looks at the view again.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, get_args

from curate.choices import Backend, Precision
from curate.errors import MissingExtraError, UnknownNameError, UsageError
from curate.progress import say

if TYPE_CHECKING:
    import numpy as np
    import torch

    from curate.models.classifier import Classifier

# What the backend onnx needs: the runtime, and what PyTorch's exporter that traces writes with.
_ONNX_PACKAGES = ("onnxruntime", "onnx")


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


def choose(backend: str, precision: str, device: torch.device) -> tuple[str, str]:
    """The backend and precision that two settings mean on a device.

    Left to choose, it takes float32 in ONNX Runtime on a CPU, if that is installed; bfloat16 on
    CUDA (float16 on GPUs that only emulate the former); float32 in PyTorch elsewhere.

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
    if backend == "auto":
        wants_onnx = device.type == "cpu" and precision in ("auto", "fp32")
        backend = "onnx" if wants_onnx and _has_onnx() else "torch"
    if backend == "onnx":
        if precision not in ("auto", "fp32"):
            raise UsageError(f"backend onnx computes in fp32, not in {precision}; use torch")
        if device.type != "cpu":
            raise UsageError(f"backend onnx runs on the CPU, not on {device.type}; use torch")
        if not _has_onnx():
            raise MissingExtraError("natadv-curate[onnx]", "backend onnx")
    return backend, _precision(device) if precision == "auto" else precision


def make_forward(
    classifier: Classifier, backend: str, precision: str, side: int | None = None
) -> Forward:
    """One way to run a classifier, which must be on its device already.

    Where nothing compiles, "compile" gives what "torch" does, and says so on standard error.

    Args:
        classifier: the network and its weights.
        backend: "torch", "compile" or "onnx", as `choose` gives it.
        precision: "fp32", "bf16" or "fp16", as `choose` gives it.
        side: of the views to come; the classifier's native one by default.

    Raises:
        UnknownNameError, MissingExtraError: see `choose`.
        UsageError: this network does not run that way.
    """
    from curate.models.torch_forward import CompiledForward, TorchForward

    backend, precision = choose(backend, precision, classifier.device)
    if backend == "onnx":
        from curate.models.onnx_forward import OnnxForward

        return OnnxForward(classifier, side)
    if backend == "compile":
        try:
            return CompiledForward(classifier, precision, side)
        except UsageError as error:
            say(f"{error}; it runs without")
    return TorchForward(classifier, precision, side)


def make_forwards(
    classifiers: Sequence[Classifier],
    backend: str,
    precision: str,
    sides: Sequence[int | None] | None = None,
) -> list[Forward]:
    """One forward a classifier; what `choose` chose and a network does not take is PyTorch.

    Args:
        classifiers: on one device already.
        backend: "auto" or one of `curate.choices.Backend`.
        precision: "auto" or one of `curate.choices.Precision`.
        sides: for each classifier the side of the views to come; the native ones by default.

    Raises:
        UnknownNameError, MissingExtraError: see `choose`.
        UsageError: a network does not run the way that is asked for by name.
    """
    forwards = []
    for classifier, side in zip(classifiers, sides or [None] * len(classifiers), strict=True):
        chosen = choose(backend, precision, classifier.device)
        try:
            forwards.append(make_forward(classifier, *chosen, side))
        except UsageError as error:
            if backend != "auto" or chosen[0] == "torch":
                raise
            say(f"{error}; it runs in PyTorch")
            forwards.append(make_forward(classifier, "torch", chosen[1], side))
    return forwards


def _has_onnx() -> bool:
    return all(find_spec(name) is not None for name in _ONNX_PACKAGES)


def _precision(device: torch.device) -> str:
    if device.type != "cuda":
        return "fp32"
    import torch

    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
