"""Weights from files that nobody vouches for: read as numbers alone, and fitted strictly."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.errors import LabelSpaceError, UnknownNameError, WeightsError
from curate.files import printable
from curate.labels.space import LabelSpace

if TYPE_CHECKING:
    import torch

#: What the names of files with weights end in.
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")

# Where training code keeps the state dict within a checkpoint.
_WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "state_dict_ema", "model_ema")
# What data-parallel training, compilation and Lightning put before each key.
_PREFIXES = ("module.", "_orig_mod.", "model.")
# torch.save stores without compression; a recompressed file shrinks by a few percent.
_MOST_INFLATION = 2
_SLACK = 1 << 20


def read_weights(path: Path) -> dict[str, Any]:
    """Read a file of weights without running anything that it holds.

    Args:
        path: `.safetensors`, or what `torch.save` wrote as `.pt`, `.pth` or `.bin`.

    Returns:
        What the file holds, on the CPU: a state dict, or a checkpoint that wraps one.

    Raises:
        WeightsError: the file is absent, damaged, not what its name says, unpacks to more than it
            can honestly hold, or needs pickled code.
    """
    import torch
    from safetensors.torch import load_file

    where = printable(path)
    if path.suffix not in SUFFIXES:
        raise WeightsError(f"{where}: weights end in {', '.join(SUFFIXES)}, not in {path.suffix!r}")
    try:
        if not path.is_file():
            raise WeightsError(f"{where}: no such file of weights")
        if path.suffix == ".safetensors":
            return load_file(path)
        _refuse_bomb(path)
        held = torch.load(path, map_location="cpu", weights_only=True)
    except WeightsError:
        raise
    # Hostile bytes make the readers raise whatever their code runs into.
    except Exception as error:
        if (name := re.search(r"(?:GLOBAL|Unsupported class) (\S+)", str(error))) is not None:
            raise WeightsError(
                f"{where} needs pickled code ({_clip(name[1], 60)}), which is never run: save "
                "model.state_dict() alone, best as .safetensors"
            ) from error
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        # What PyTorch writes around the fault advises to load the file with its code.
        told = told.rpartition("WeightsUnpickler error: ")[2].strip().partition("\n")[0]
        raise WeightsError(
            f"{where} is damaged or no file of weights: {_clip(told) or type(error).__name__}"
        ) from error
    if not isinstance(held, Mapping) or not all(isinstance(key, str) for key in held):
        raise WeightsError(f"{where} holds a {type(held).__name__}, not a state dict")
    return dict(held)


def _refuse_bomb(path: Path) -> None:
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    size = path.stat().st_size
    if unpacked > _MOST_INFLATION * size + _SLACK:
        raise WeightsError(
            f"{printable(path)} would unpack {size:,} bytes to {unpacked:,}: it is not what "
            "torch.save writes"
        )


def state_dict_of(
    held: Mapping[str, Any], where: str, key: str | None = None
) -> dict[str, torch.Tensor]:
    """The state dict that a checkpoint holds, or is.

    Args:
        held: what `read_weights` gave.
        where: the file, for errors.
        key: which entry it is; found by its usual names if None.

    Raises:
        WeightsError: there is none, or more than one.
        UnknownNameError: there is no entry `key`.
    """
    import torch

    if key is not None:
        if key not in held:
            raise UnknownNameError("entry", key, held, where=where)
        held = _mapping(held[key], where, key)
    elif not all(isinstance(value, torch.Tensor) for value in held.values()):
        found = [name for name in _WRAPPERS if isinstance(held.get(name), Mapping)]
        if len(found) > 1:
            raise WeightsError(
                f"{where} holds several sets of weights: choose one with &key={found[0]} "
                f"or &key={found[1]}"
            )
        if found:
            held = _mapping(held[found[0]], where, found[0])
    if not held:
        raise WeightsError(f"{where} holds no weights")
    for name, value in held.items():
        if not isinstance(value, torch.Tensor):
            raise WeightsError(
                f"{where} holds no state dict: {_clip(repr(name), 80)} is a {type(value).__name__}"
            )
    return dict(held)


def _mapping(value: Any, where: str, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise WeightsError(f"{where}: entry {key!r} is a {type(value).__name__}, not a state dict")
    return value


def load_strictly(
    module: torch.nn.Module,
    state: Mapping[str, torch.Tensor],
    what: str,
    output: LabelSpace | None = None,
) -> None:
    """Load a state dict into a network, every value or none.

    Prefixes of wrappers ("module.") are taken off. Only BatchNorm's counters of batches may be
    missing: old files lack them, and evaluation does not read them.

    Args:
        module: the network.
        state: name to tensor.
        what: the file and the architecture, for errors.
        output: the classes of the network's outputs, for errors.

    Raises:
        WeightsError: a key is missing, unexpected, of another shape or kind; the text names the
            first one and how many there are. Or a value is NaN or infinite.
        LabelSpaceError: only the number of outputs differs.
    """
    expected = module.state_dict()
    state = _without_prefixes(state, expected)
    faults: list[str] = []
    heads: list[int] = []
    for name, tensor in expected.items():
        if name not in state:
            if not name.endswith("num_batches_tracked"):
                faults.append(f"{name!r} is missing")
            continue
        given = state[name]
        if _kind(given) != _kind(tensor):
            faults.append(f"{name!r} holds {_kind(given)}, not {_kind(tensor)}")
        elif given.shape != tensor.shape:
            shapes = f"{_shape(given)}, not {_shape(tensor)}"
            faults.append(f"{name!r} has shape {shapes}")
            if given.shape[1:] == tensor.shape[1:]:
                heads.append(given.shape[0])
    faults += [f"{_clip(repr(name), 80)} is unexpected" for name in state if name not in expected]
    if faults:
        counted = f"{faults[0]} ({len(faults)} of {len(expected)} keys differ)"
        if output is not None and len(faults) == len(heads) and len(set(heads)) == 1:
            raise LabelSpaceError(
                f"{what}: {heads[0]} outputs, but labels={output.name} has {len(output)} classes: "
                f"{counted}"
            )
        raise WeightsError(f"{what}: {counted}")
    module.load_state_dict(dict(state), strict=False)
    refuse_nonfinite(module, what)


def refuse_nonfinite(module: torch.nn.Module, what: str) -> None:
    """Raise WeightsError where a weight or statistic of a network is NaN or infinite."""
    import torch

    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise WeightsError(f"{what}: {name!r} holds NaN or infinite values")


def _without_prefixes(
    state: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]
) -> Mapping[str, torch.Tensor]:
    for _ in range(len(_PREFIXES)):
        if any(name in expected for name in state):
            break
        for prefix in _PREFIXES:
            if all(name.startswith(prefix) for name in state):
                state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state


def _kind(tensor: torch.Tensor) -> str:
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        return "values in a special layout"
    if tensor.is_complex():
        return "complex numbers"
    return "floating-point numbers" if tensor.is_floating_point() else "whole numbers"


def _shape(tensor: torch.Tensor) -> str:
    return _clip("×".join(map(str, tensor.shape)) or "()", 60)


def _clip(text: str, most: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
