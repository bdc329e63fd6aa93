"""timm's networks with 1,000 ImageNet-1k outputs."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from curate.errors import LabelSpaceError, UnknownNameError, WeightsError, nearest
from curate.images.views import ViewRecipe
from curate.labels.space import load_label_space
from curate.models.classifier import Classifier, Preprocessing
from curate.models.downloads import absent, download, file_name, hub_file, verified_sha256
from curate.models.entry import Built, ModelEntry, own_random_state
from curate.models.weights import read_weights, refuse_nonfinite

if TYPE_CHECKING:
    import torch

_FILES = ("model.safetensors", "pytorch_model.bin")


@lru_cache(maxsize=1)
def _imagenet_configs() -> dict[str, Any]:
    """Name with tag to timm's configuration, of networks that end in ImageNet-1k's classes."""
    import timm
    from timm.models import get_pretrained_cfg

    configs = {name: get_pretrained_cfg(name) for name in timm.list_models(pretrained=True)}
    return {name: cfg for name, cfg in configs.items() if _is_imagenet(cfg)}


def model_names() -> list[str]:
    """The full names of the networks, with and without their tags."""
    tagged = _imagenet_configs()
    return [
        f"timm/{name}" for name in (*dict.fromkeys(n.partition(".")[0] for n in tagged), *tagged)
    ]


def entries() -> list[ModelEntry]:
    """What `curate models list` says of this family."""
    return [
        ModelEntry(f"timm/{name}", cfg.input_size[1], _find(cfg) is not None, _url(cfg))
        for name, cfg in _imagenet_configs().items()
    ]


def build(name: str, outputs: int) -> Built:
    """A network without trained weights, by its name with or without a tag.

    Raises:
        UnknownNameError: no such network.
    """
    import timm

    _known_config(name)
    with own_random_state():
        module = timm.create_model(name, num_classes=outputs)
    return Built(module, _preprocessing(module, name))


def load(name: str) -> Classifier:
    """A network with the weights of its tag; without a tag, of timm's default one.

    Raises:
        UnknownNameError: no such network.
        LabelSpaceError: its outputs are not the 1,000 classes of ImageNet-1k.
        WeightsError: the weights are absent or damaged.
    """
    cfg = _known_config(name)
    tagged = f"{cfg.architecture}.{cfg.tag}" if cfg.tag else cfg.architecture
    if not _is_imagenet(cfg):
        fitting = [n for n in _imagenet_configs() if n.startswith(f"{cfg.architecture}.")]
        near = nearest(tagged, fitting, 1)
        hint = f"; take timm/{near[0]}" if near else ""
        raise LabelSpaceError(
            f"timm/{tagged} has {cfg.num_classes} outputs that are not the 1,000 classes of "
            f"ImageNet-1k{hint}"
        )
    path = _find(cfg) or _fetch(cfg)
    fingerprint = verified_sha256(path)
    module = _trained(tagged, path)
    return Classifier(
        name=f"timm/{tagged}",
        architecture=f"timm/{cfg.architecture}",
        module=module,
        output=load_label_space("imagenet-1k"),
        preprocessing=_preprocessing(module, tagged),
        fingerprint=fingerprint,
        libraries=("timm",),
    )


def _trained(tagged: str, path: Path) -> torch.nn.Module:
    """The network with the weights of a file.

    timm adapts the file to the network in its own way, but some networks it loads leniently.
    """
    import timm

    what = f"timm/{tagged} ({path.name})"
    held = read_weights(path)
    try:
        with own_random_state():
            module = timm.create_model(
                tagged, pretrained=True, pretrained_cfg_overlay={"state_dict": held}
            )
    except (RuntimeError, KeyError, AttributeError, TypeError, ValueError) as error:
        told = " ".join(str(error).split())[:200]
        raise WeightsError(f"{what}: the weights do not fit the network: {told}") from error
    cast(dict[str, Any], module.pretrained_cfg).pop("state_dict")
    state = module.state_dict()
    absent_keys = [key for key in state if key not in held]
    if absent_keys and (left := _untrained(tagged, state, absent_keys)):
        raise WeightsError(f"{what}: {left[0]!r} is missing ({len(left)} of {len(state)} keys are)")
    refuse_nonfinite(module, what)
    return module


def _untrained(tagged: str, state: dict[str, torch.Tensor], keys: list[str]) -> list[str]:
    """Those of `keys` that still hold what the seed 0 put there: random, and never loaded."""
    import timm
    import torch

    inits = []
    for seed in (0, 1):
        with own_random_state(seed):
            inits.append(timm.create_model(tagged).state_dict())
    return [
        key
        for key in keys
        if torch.equal(state[key], inits[0][key]) and not torch.equal(inits[0][key], inits[1][key])
    ]


def _preprocessing(module: torch.nn.Module, name: str) -> Preprocessing:
    """timm's evaluation preprocessing: the short side is floor(side / crop_pct)."""
    from timm.data import resolve_model_data_config

    config = resolve_model_data_config(module)
    _, height, width = config["input_size"]
    if height != width:
        raise WeightsError(f"timm/{name} wants views of {width}×{height} pixels, not square ones")
    resize = math.floor(height / config["crop_pct"])
    notes = []
    if config["crop_mode"] != "center":
        notes.append(f"timm's crop_mode is {config['crop_mode']}; here the centre is cropped")
    if resize < height:
        notes.append(f"timm resizes to {resize} and pads with black; here it is {height}, unpadded")
    return Preprocessing(
        ViewRecipe(max(resize, height), height, config["interpolation"]),
        tuple(config["mean"]),
        tuple(config["std"]),
        f"timm {name}",
        tuple(notes),
    )


def _known_config(name: str) -> Any:
    from timm.models import get_pretrained_cfg

    try:
        cfg = get_pretrained_cfg(name)
    except RuntimeError:
        cfg = None
    if cfg is None:
        raise UnknownNameError("model", f"timm/{name}", model_names())
    return cfg


def _is_imagenet(cfg: Any) -> bool:
    return cfg.num_classes == 1000 and "in1k" in (cfg.tag or "")


def _url(cfg: Any, name: str = _FILES[0]) -> str:
    from huggingface_hub import hf_hub_url

    return hf_hub_url(cfg.hf_hub_id, name) if cfg.hf_hub_id else str(cfg.url)


def _places(cfg: Any) -> list[Path]:
    """Where in PyTorch's folder the weights may stand; downloads go to the first."""
    if not cfg.hf_hub_id:
        return [hub_file(file_name(cfg.url))]
    tagged = f"timm--{cfg.architecture}.{cfg.tag}"
    places = [hub_file(tagged + Path(name).suffix) for name in _FILES]
    return places + ([hub_file(file_name(cfg.url))] if cfg.url else [])


def _find(cfg: Any) -> Path | None:
    """The weights on this machine: in PyTorch's folder, or in the Hugging Face cache."""
    from huggingface_hub import try_to_load_from_cache

    for path in _places(cfg):
        if path.is_file():
            return path
    for name in _FILES if cfg.hf_hub_id else ():
        cached = try_to_load_from_cache(cfg.hf_hub_id, name)
        if isinstance(cached, str):
            return Path(cached)
    return None


def _fetch(cfg: Any) -> Path:
    from huggingface_hub.constants import HF_HUB_OFFLINE

    what = f"timm/{cfg.architecture}.{cfg.tag}"
    places = _places(cfg)
    if HF_HUB_OFFLINE and cfg.hf_hub_id:
        raise absent(what, _url(cfg), places[0], "HF_HUB_OFFLINE is set")
    for name, path in zip(_FILES, places, strict=False):
        try:
            download(_url(cfg, name), path, what)
        except FileNotFoundError:
            continue
        return path
    raise absent(what, _url(cfg), places[0], "the server has no such file")
