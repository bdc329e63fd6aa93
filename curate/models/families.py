"""Which architectures are relatives: what one cannot see, its relatives often cannot see either."""

from __future__ import annotations

import re
from functools import cache

_LEADING = re.compile(r"[a-z]+")

# What torchvision has in files of their own, and timm in others.
_IN_TIMM = {
    "inception": "inception_v3",
    "maxvit": "maxxvit",
    "mnasnet": "efficientnet",
    "mobilenetv2": "efficientnet",
}


@cache
def family_of(name: str) -> str:
    """The family of a model.

    That is the file in which timm or torchvision has its architecture: "resnet" for ResNet, ResNeXt
    and Wide ResNet, "vision_transformer" for ViT, "efficientnet" for EfficientNet, its Lite
    form, MnasNet and MobileNetV2. Of a name that neither knows, the letters that it begins with.

    Args:
        name: an architecture or a model, with or without library, weights or tag:
            "torchvision/resnet50:IMAGENET1K_V1", "timm/resnet50.a1_in1k", "resnet50".
    """
    plain = name.split(" ")[0]
    if plain.startswith("checkpoint/"):
        plain = plain.partition("arch=")[2].partition("&")[0] or plain
    library, slash, rest = plain.rpartition("/")
    rest = re.split(r"[.:]", rest)[0] if slash or "." in plain or ":" in plain else plain
    if library.endswith("lite"):
        rest = f"tf_{rest}"
    found = None if library == "torchvision" else _in_timm(rest)
    found = found or _in_torchvision(rest) or (_in_timm(rest) if library == "torchvision" else None)
    if found:
        return found
    letters = _LEADING.match(rest.casefold())
    return letters[0] if letters else rest.casefold()


def _in_timm(architecture: str) -> str | None:
    return _timm().get(architecture)


@cache
def _timm() -> dict[str, str]:
    import timm

    return {
        name: module
        for module in sorted(timm.list_modules())
        for name in timm.list_models(module=module)
    }


def _in_torchvision(architecture: str) -> str | None:
    import torchvision

    try:
        builder = torchvision.models.get_model_builder(architecture)
    except ValueError:
        return None
    module = str(builder.__module__).rpartition(".")[2]
    return _IN_TIMM.get(module, module)
