"""Where a fine-tuning stands: a safetensors file that holds everything to go on with.

Safetensors holds numbers and text alone: nothing in it can be run when it is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.errors import StorageError
from curate.files import canonical_json, printable, write_bytes

if TYPE_CHECKING:
    import torch

_KEY = "curate"
_MODEL, _OPTIMIZER = "model.", "optimizer."


def save(
    path: Path,
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    numbers: dict[str, Any],
) -> None:
    """Write where a training stands, whole or not at all.

    Args:
        path: the file.
        module: the network; all parameters and buffers are kept.
        optimizer: what it remembers of each parameter is kept.
        numbers: the rest, as JSON values.

    Raises:
        StorageError: the disk is full or refuses.
    """
    import torch

    tensors = {f"{_MODEL}{name}": value for name, value in module.state_dict().items()}
    kept: dict[str, dict[str, Any]] = {}
    for position, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{_OPTIMIZER}{position}.{name}"] = value
            else:
                kept.setdefault(str(position), {})[name] = value
    write_tensors(path, tensors, {_KEY: canonical_json({**numbers, "optimizer": kept}).decode()})


def load(path: Path, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Bring a network and its optimizer to where they stood.

    Args:
        path: what `save` wrote.
        module: the same network, on its device.
        optimizer: of the same parameters.

    Returns:
        The numbers.

    Raises:
        StorageError: the file is damaged, or of another network.
    """
    import torch
    from safetensors.torch import load_file

    try:
        numbers = read_numbers(path)
        tensors = load_file(path)
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        states: dict[int, dict[str, Any]] = {
            int(position): dict(values) for position, values in numbers.pop("optimizer").items()
        }
        for key in [key for key in tensors if key.startswith(_OPTIMIZER)]:
            position, _, name = key.removeprefix(_OPTIMIZER).partition(".")
            value, its = tensors.pop(key), parameters[int(position)]
            # In the layout that it had: another one might be computed with in another order.
            if value.shape == its.shape:
                value = torch.empty_like(its, requires_grad=False).copy_(value)
            states.setdefault(int(position), {})[name] = value
        module.load_state_dict({key.removeprefix(_MODEL): v for key, v in tensors.items()})
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": states, "param_groups": groups})
    except StorageError:
        raise
    # What hostile or foreign bytes make of the reader and the network has no list.
    except Exception as error:
        raise _damaged(path, error) from error
    return numbers


def read_numbers(path: Path) -> dict[str, Any]:
    """The numbers that `save` kept, without the tensors.

    Raises:
        StorageError: the file is damaged.
    """
    from safetensors import safe_open

    try:
        with safe_open(path, framework="pt") as file:
            numbers: dict[str, Any] = json.loads(file.metadata()[_KEY])
    except Exception as error:
        raise _damaged(path, error) from error
    return numbers


def write_tensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Write tensors as safetensors, whole or not at all, the same bytes each time.

    Args:
        path: the file.
        tensors: on any device, in any layout; none shares its memory afterwards.
        metadata: of one key at most: several stand in no fixed order.

    Raises:
        StorageError: the disk is full or refuses.
    """
    import torch
    from safetensors.torch import save as packed

    own = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }
    write_bytes(path, packed(own, metadata))


def _damaged(path: Path, error: Exception) -> StorageError:
    reason = " ".join(str(error).split())[:160] or type(error).__name__
    return StorageError(
        f"{printable(path)} is damaged ({reason}): delete the folder that it is in to begin anew"
    )
