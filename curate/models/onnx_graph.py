"""A network as an ONNX graph, exported once and kept in the user's cache folder.

The graph is for one view of one size, so that all of its shapes are known: ONNX Runtime then folds
padding, normalisation and activations into the convolutions. (For any number of views, exported
without optimisation, it took 2.7 times as long a view.)
"""

from __future__ import annotations

import io
import os
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from curate.errors import StorageError, UsageError
from curate.files import (
    TEMPORARY,
    atomic_write,
    canonical_json,
    make_folder,
    sha256_bytes,
    user_cache,
)
from curate.models.torch_forward import first_line
from curate.progress import say

if TYPE_CHECKING:
    import torch

    from curate.models.classifier import Classifier

#: Of the way to export; goes up when the same network would give another graph.
RECIPE = 1

#: What the cache may hold; beyond it the graphs unused for longest go.
MOST_BYTES = 2 << 30

#: The version of the operators, by exporter.
OPSETS = {"traced": 17, "captured": 18}

_MAGIC = b"curate onnx graph\n"
_HEADER = len(_MAGIC) + 64 + 1
_STALE_SECONDS = 86_400
_exporting = threading.Lock()
_told: set[Path] = set()


@dataclass(frozen=True)
class Graph:
    """A serialised ONNX model: "views" [1, 3, S, S] to "logits" [1, K], float32.

    Attributes:
        content: the bytes.
        sha256: of them.
    """

    content: bytes
    sha256: str


def graph(classifier: Classifier, side: int, *, anew: bool = False) -> Graph:
    """The network as a graph, from the cache where it is there.

    Args:
        classifier: on the CPU.
        side: of the views.
        anew: do not take it from the cache.

    Raises:
        UsageError: no exporter of PyTorch takes the network.
    """
    folder = cache_folder()
    path = folder / f"{_key(classifier, side)}.onnx" if folder else None
    if path and not anew and (kept := _kept(path)) is not None:
        return kept
    content = export(classifier, side)
    exported = Graph(content, sha256_bytes(content))
    if path:
        _keep(path, exported)
    return exported


def export(classifier: Classifier, side: int) -> bytes:
    """The network as a serialised ONNX model, made now: the same bytes each time.

    Raises:
        UsageError: no exporter of PyTorch takes the network.
    """
    import torch

    faults = []
    for exporter in (_traced, _captured):
        try:
            # Both exporters set what the process shares.
            with _exporting, warnings.catch_warnings():
                # Tracing warns of all that it takes for constant; the result is checked.
                warnings.simplefilter("ignore")
                return exporter(classifier.module, torch.zeros((1, 3, side, side)))
        except Exception as error:
            # Whatever the exporters raise: their own errors have no root in common.
            faults.append(first_line(error))
    raise UsageError(f"{classifier.name} cannot be exported to ONNX: {faults[0]}")


def _traced(module: torch.nn.Module, view: torch.Tensor) -> bytes:
    """By the exporter that traces: a second for an EfficientNet."""
    import torch

    stream = io.BytesIO()
    with _silent():
        torch.onnx.export(
            module,
            (view,),
            stream,  # type: ignore[arg-type]
            dynamo=False,
            opset_version=OPSETS["traced"],
            input_names=["views"],
            output_names=["logits"],
            verbose=False,
        )
    return stream.getvalue()


def _captured(module: torch.nn.Module, view: torch.Tensor) -> bytes:
    """By the newer exporter, which takes other networks, in ten seconds for an EfficientNet."""
    import torch

    program = torch.onnx.export(
        module,
        (view,),
        dynamo=True,
        opset_version=OPSETS["captured"],
        input_names=["views"],
        output_names=["logits"],
        verbose=False,
    )
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    return content


class _No:
    """False, and gives that when it is called."""

    def __bool__(self) -> bool:
        return False

    def __call__(self) -> bool:
        return False


@contextmanager
def _silent() -> Iterator[None]:
    """Keep a failing trace from writing the network's whole graph to standard output.

    Some versions of PyTorch take the function that tells whether they may for what it tells, and
    so switch on what was off.
    """
    import torch

    switch, asked = "_jit_set_onnx_log_enabled", "_jit_is_onnx_log_enabled"
    if not (hasattr(torch._C, switch) and hasattr(torch._C, asked)):
        yield
        return
    getattr(torch._C, switch)(False)
    told = getattr(torch._C, asked)
    setattr(torch._C, asked, _No())
    try:
        yield
    finally:
        setattr(torch._C, asked, told)


def cache_folder() -> Path | None:
    """Where graphs are kept: below `curate.files.user_cache`; None where there is none."""
    caches = user_cache()
    return caches / "onnx" if caches else None


def _key(classifier: Classifier, side: int) -> str:
    """Depends on everything that makes the graph."""
    made_by = {
        "architecture": classifier.architecture,
        "fingerprint": classifier.fingerprint,
        "parameters": classifier.parameters,
        "outputs": len(classifier.output),
        "side": side,
        "recipe": RECIPE,
        "opsets": OPSETS,
        "libraries": {
            name: _version(name) for name in (*classifier.libraries, "onnx", "onnxscript")
        },
    }
    return sha256_bytes(canonical_json(made_by))[:32]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _kept(path: Path) -> Graph | None:
    """The graph of a file of the cache; None where it is absent or damaged."""
    try:
        stored = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    content = stored[_HEADER:]
    kept = Graph(content, sha256_bytes(content))
    return kept if stored[:_HEADER] == _header(kept) else None


def _keep(path: Path, graph: Graph) -> None:
    try:
        make_folder(path.parent)
        with atomic_write(path) as stream:
            stream.write(_header(graph))
            stream.write(graph.content)
    except StorageError as error:
        if path.parent not in _told:
            _told.add(path.parent)
            say(f"networks are exported to ONNX at each start, since the cache takes none: {error}")
        return
    _trim(path.parent, path)


def _trim(folder: Path, newest: Path) -> None:
    """Delete the graphs unused for longest, and what killed writers left.

    Another process may do the same, or read what goes: it then exports it anew.
    """
    seen = []
    for path in folder.iterdir():
        with suppress(OSError):
            told = path.stat()
            if path.name.startswith(TEMPORARY) and told.st_mtime < time.time() - _STALE_SECONDS:
                path.unlink()
            elif path.suffix == ".onnx" and path != newest:
                seen.append((told.st_mtime, told.st_size, path))
    with suppress(OSError):
        room = MOST_BYTES - newest.stat().st_size
        for _, size, path in sorted(seen, reverse=True):
            room -= size
            if room < 0:
                path.unlink()


def _header(graph: Graph) -> bytes:
    return _MAGIC + graph.sha256.encode() + b"\n"
