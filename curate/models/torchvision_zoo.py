"""torchvision's classification networks with 1,000 ImageNet-1k outputs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from curate.errors import UnknownNameError, UsageError, WeightsError
from curate.images.views import ViewRecipe
from curate.labels.space import load_label_space
from curate.models.classifier import Classifier, Preprocessing
from curate.models.downloads import absent, download, file_name, hub_file, verified_sha256
from curate.models.entry import Built, ModelEntry, own_random_state
from curate.models.weights import read_weights, refuse_nonfinite

#: The weights of a bare name, where there are such: those of the paper's ResNet-50.
PREFERRED = "IMAGENET1K_V1"

# Whether their input is normalised anew is a switch that no file of weights tells.
_UNTOLD = ("googlenet", "inception_v3")


@lru_cache(maxsize=1)
def _weights() -> dict[str, dict[str, Any]]:
    """Network to the names of its weights to torchvision's entries, ImageNet-1k alone."""
    from torchvision import models

    table = {}
    for name in models.list_models(module=models):
        fitting = {
            entry.name: entry
            for entry in models.get_model_weights(name)
            if len(entry.meta.get("categories") or ()) == 1000
        }
        if fitting:
            table[name] = fitting
    return table


def model_names() -> list[str]:
    """The full names of the networks, without and with the names of their weights."""
    table = _weights()
    return [f"torchvision/{name}" for name in table] + [
        f"torchvision/{name}:{tag}" for name, tags in table.items() for tag in tags
    ]


def entries() -> list[ModelEntry]:
    """What `curate models list` says of this family."""
    return [
        ModelEntry(
            f"torchvision/{name}:{tag}",
            entry.transforms().crop_size[0],
            hub_file(file_name(entry.url)).is_file(),
            entry.url,
        )
        for name, tags in _weights().items()
        for tag, entry in tags.items()
    ]


def build(name: str, outputs: int) -> Built:
    """A network without trained weights, "resnet50" or "resnet50:IMAGENET1K_V2".

    The latter's preprocessing is that of those weights.

    Raises:
        UnknownNameError: no such network or weights.
        UsageError: the network has a switch that no file of weights tells.
    """
    from torchvision import models

    bare, entry = _entry(name)
    if bare in _UNTOLD:
        raise UsageError(
            f"torchvision/{bare} cannot take a checkpoint: the file does not tell whether "
            "transform_input was on; name another architecture"
        )
    with own_random_state():
        module = models.get_model(bare, weights=None, num_classes=outputs)
    return Built(module, _preprocessing(entry))


def load(name: str) -> Classifier:
    """A network with torchvision's weights.

    Args:
        name: "resnet50:IMAGENET1K_V2", or "resnet50" for `PREFERRED`, or for the weights that
            torchvision calls the default where the network has no such.

    Raises:
        UnknownNameError: no such network or weights.
        WeightsError: the weights are absent or damaged.
    """
    from torchvision import models

    bare, entry = _entry(name)
    what = f"torchvision/{bare}:{entry.name}"
    path = hub_file(file_name(entry.url))
    if not path.is_file():
        try:
            download(entry.url, path, what)
        except FileNotFoundError as error:
            raise absent(what, entry.url, path, "the server has no such file") from error
    fingerprint = verified_sha256(path)
    # torchvision's builder knows how each network takes its file, but would run pickled code: what
    # reads as weights alone has none.
    read_weights(path)
    try:
        with own_random_state():
            module = models.get_model(bare, weights=entry, progress=False)
    except (RuntimeError, KeyError, AttributeError, TypeError, ValueError) as error:
        told = " ".join(str(error).split())[:200]
        raise WeightsError(f"{what}: {path.name} does not fit the network: {told}") from error
    refuse_nonfinite(module, what)
    return Classifier(
        name=what,
        architecture=f"torchvision/{bare}",
        module=module,
        output=load_label_space("imagenet-1k"),
        preprocessing=_preprocessing(entry),
        fingerprint=fingerprint,
        libraries=("torchvision",),
    )


def _entry(name: str) -> tuple[str, Any]:
    """The network's bare name and the weights that a name means."""
    bare, _, tag = name.partition(":")
    tags = _weights().get(bare)
    if tags is None or (":" in name and tag not in tags):
        raise UnknownNameError("model", f"torchvision/{name}", model_names())
    if tag:
        return bare, tags[tag]
    return bare, tags.get(PREFERRED) or next(iter(tags.values()))


def _preprocessing(entry: Any) -> Preprocessing:
    transforms = entry.transforms()
    recipe = ViewRecipe(
        transforms.resize_size[0], transforms.crop_size[0], transforms.interpolation.value
    )
    mean, std = tuple(transforms.mean), tuple(transforms.std)
    return Preprocessing(recipe, mean, std, f"torchvision {entry!r}")
