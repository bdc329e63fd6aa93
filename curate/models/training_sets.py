"""What weights were trained on beside ImageNet-1k, where their name says so."""

from __future__ import annotations

import re

# timm writes it into the tag, "augreg_in21k_ft_in1k", and once wrote it into the name. in12k is the
# part of ImageNet-21k that has enough images a class; m30m and m38m are merged sets, of EVA and
# EVA-02, that hold all of it.
_IMAGENET_21K = re.compile(r"(?:^|[._/])(?:in(?:12|21|22)k|m30m|m38m)(?:[._:]|$)")

# Which networks' names tell all that they were trained on.
_TELLING = ("lite/", "torchvision/", "timm/")

# Words of a tag that stand for photos that are not in ImageNet-1k.
_OTHER_PHOTOS = re.compile(
    "in12k|in21k|in22k|jft|ig1b|yfcc100m|laion.*|openai|clip|webli|m30m|m38m|seer|swag|swsl|wsl|ssl"
    "|ssld"
)


def trained_on_imagenet_21k(name: str) -> bool | None:
    """Whether weights were trained on ImageNet-21k, or its parts of 12,000 or 22,000 classes.

    ImageNet-O's images are of concepts of ImageNet-21k: to such weights they are nothing new.

    Args:
        name: of the model, as the zoo gives it.

    Returns:
        None where the name does not tell, as that of a checkpoint.
    """
    if _IMAGENET_21K.search(name):
        return True
    return False if name.startswith(_TELLING) else None


def trained_on_imagenet_1k_alone(name: str) -> bool | None:
    """Whether weights saw the photos of ImageNet-1k and no others, as far as their name tells.

    timm's tag must hold the word in1k, and none that stands for other photos: in12k, in21k, in22k,
    jft, ig1b, yfcc100m, laion…, openai, clip, webli, m30m, m38m, seer, swag, swsl, wsl, ssl, ssld.
    A teacher that saw more (a tag with dist) does not count: the photos are the same.

    Args:
        name: of the model, as the zoo gives it, or as timm alone calls it.

    Returns:
        None where the name does not tell: it has no tag and belongs to no library.
    """
    if name.startswith("lite/"):
        return True
    if name.startswith("torchvision/"):
        return "SWAG" not in name
    if name.startswith("checkpoint/"):
        return None
    _, dot, tag = name.removeprefix("timm/").split(" ")[0].partition(".")
    if not dot or not re.fullmatch(r"[a-z0-9_]+", tag):
        return None
    words = tag.split("_")
    if any(map(_OTHER_PHOTOS.fullmatch, words)):
        return False
    return True if "in1k" in words else None
