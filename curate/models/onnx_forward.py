"""ONNX Runtime on the CPU: the same weights in float32 in half the time of eager PyTorch."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import TYPE_CHECKING, Any

from curate.errors import UsageError
from curate.models.onnx_graph import graph
from curate.models.torch_forward import first_line

if TYPE_CHECKING:
    import numpy as np
    import torch

    from curate.models.classifier import Classifier

#: How far logits may be from PyTorch's on the trial views, relative to 1 + the largest one.
#: Rounding moves them by 1e-5; another network or a wrong export by far more than this.
TOLERANCE = 1e-3


class OnnxForward:
    """A classifier in ONNX Runtime, one view after the other.

    A session computes one view on one thread. Views of a batch are shared among as many threads as
    PyTorch would use for an operation of the calling thread. So the logits of a view have the same
    bits in any batch and on any number of threads.

    Args:
        classifier: on the CPU.
        side: of the views to come; the classifier's native one by default. Views of another side
            cost one more export when the first of them comes.

    Raises:
        UsageError: the classifier is on another device, or the network does not run so.
    """

    backend, precision, name = "onnx", "fp32", "onnx fp32"
    #: It bounds memory and no more: a larger batch is no faster.
    batch_size = 8

    def __init__(self, classifier: Classifier, side: int | None = None) -> None:
        if classifier.device.type != "cpu":
            raise UsageError(f"backend onnx runs on the CPU, not on {classifier.device.type}")
        self.classifier = classifier
        self._sessions: dict[int, Any] = {}
        self._graphs: dict[int, str] = {}
        self._making = threading.Lock()
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._session(side or classifier.preprocessing.recipe.crop)

    def logits(self, views: np.ndarray | torch.Tensor) -> np.ndarray:
        """See `Forward.logits`."""
        import numpy as np

        pixels = self.classifier.normalised(views, channels_last=False).numpy()
        if not len(pixels):
            return np.empty((0, len(self.classifier.output)), np.float32)
        session = self._session(pixels.shape[2])

        def one(row: int) -> np.ndarray:
            output: np.ndarray = session.run(None, {"views": pixels[row : row + 1]})[0]
            return output

        return np.concatenate(list(self._map(one, range(len(pixels)))))

    def _map(self, one: Any, rows: range) -> Any:
        import torch

        threads = torch.get_num_threads()
        if threads == 1 or len(rows) == 1:
            return map(one, rows)
        with self._making:
            if threads not in self._pools:
                self._pools[threads] = ThreadPoolExecutor(threads, "curate-onnx")
        return self._pools[threads].map(one, rows)

    def _session(self, side: int) -> Any:
        if (session := self._sessions.get(side)) is not None:
            return session
        with self._making:
            if side not in self._sessions:
                self._graphs[side], self._sessions[side] = _checked(self.classifier, side)
        return self._sessions[side]

    def record(self) -> dict[str, Any]:
        """Backend, precision, device type, batch size, versions; the graphs' SHA-256 by side."""
        return {
            "backend": self.backend,
            "precision": self.precision,
            "device": "cpu",
            "batch_size": self.batch_size,
            "threads": 1,
            "graphs": {str(side): sha256 for side, sha256 in sorted(self._graphs.items())},
            "libraries": {name: metadata.version(name) for name in ("onnxruntime", "torch")},
        }


def _checked(classifier: Classifier, side: int) -> tuple[str, Any]:
    """The graph's SHA-256 and its session, which gives PyTorch's logits on trial views.

    Raises:
        UsageError: see `OnnxForward`.
    """
    views = _trial_views(side)
    wanted = classifier.logits(views).numpy()
    pixels = classifier.normalised(views, channels_last=False).numpy()
    fault = ""
    # A graph of the cache may be that of another network under the same fingerprint.
    for anew in (False, True):
        model = graph(classifier, side, anew=anew)
        try:
            session = _start(model.content)
            found = [session.run(None, {"views": pixels[row : row + 1]})[0] for row in (0, 1)]
        except Exception as error:
            # Whatever the runtime raises: its errors have no root in common.
            fault = first_line(error)
            continue
        fault = _difference(found, wanted)
        if not fault:
            return model.sha256, session
    raise UsageError(f"{classifier.name} does not run in ONNX Runtime: {fault}")


def _start(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _trial_views(side: int) -> np.ndarray:
    """Two views of seeded noise, coarse and fine, uint8 [2, S, S, 3]."""
    import numpy as np

    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (1, side // 8 + 1, side // 8 + 1, 3), np.uint8)
    fine = random.integers(0, 256, (1, side, side, 3), np.uint8)
    large = coarse.repeat(8, axis=1).repeat(8, axis=2)[:, :side, :side]
    return np.concatenate([large, fine])


def _difference(found: list[np.ndarray], wanted: np.ndarray) -> str:
    import numpy as np

    rows = np.concatenate(found)
    if rows.shape != wanted.shape:
        return f"its output has the shape {rows.shape}, not {wanted.shape}"
    if not np.array_equal(np.isfinite(rows), np.isfinite(wanted)):
        return "its output is no number elsewhere than PyTorch's"
    with np.errstate(invalid="ignore"):
        off = np.abs(rows - wanted)
    largest = float(np.nanmax(np.where(np.isfinite(off), off, 0)))
    scale = 1 + float(np.nanmax(np.where(np.isfinite(wanted), np.abs(wanted), 0)))
    if largest > TOLERANCE * scale:
        return f"its logits differ from PyTorch's by {largest:.3g}"
    return ""
