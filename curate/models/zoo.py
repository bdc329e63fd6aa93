"""The zoo: every classifier that a name can mean."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from curate.errors import UnknownNameError, nearest
from curate.labels.space import LabelSpace, load_label_space
from curate.models import checkpoint, lite, timm_zoo, torchvision_zoo
from curate.models.classifier import Classifier
from curate.models.entry import ModelEntry
from curate.models.runtime import resolve_device

_LOADERS: dict[str, Callable[[str], Classifier]] = {
    "lite": lite.load,
    "torchvision": torchvision_zoo.load,
    "timm": timm_zoo.load,
    "checkpoint": checkpoint.load,
}

#: How like a name must be to another to be that one with a wrong or absent letter, and not the name
#: of another network: "lite/efficientnet_b0" is 0.88 to "lite/efficientnet_lite0".
_SLIP = 0.94


def load_classifier(
    name: str, label_space: str | LabelSpace | None = "imagenet-1k", *, device: str = "cpu"
) -> Classifier:
    """A classifier by name, ready to compute.

    Args:
        name: "lite/efficientnet_lite0"; "torchvision/resnet50", optionally with its weights
            (":IMAGENET1K_V2", else IMAGENET1K_V1); "timm/resnet50.a1_in1k";
            "checkpoint/PATH?arch=torchvision/resnet50&labels=imagenet-a", or "checkpoint/PATH" of
            a file that `curate models finetune` wrote (see `checkpoint.load`).
        label_space: the label space that it shall serve, by name, file or value. The classifier
            keeps its whole output; it is only checked to have these classes. None checks nothing.
        device: "cpu", "auto", "cuda", "cuda:1" or "mps".

    Raises:
        UnknownNameError: no such model, label space or device; the text names the nearest.
        MissingExtraError: the package that carries the weights is not installed.
        WeightsError: the weights are absent, damaged or of another network. Where they must come
            from the network and it is absent, the text says which file to put where.
        LabelSpaceError: the output lacks classes of the label space.
    """
    space = load_label_space(label_space) if isinstance(label_space, str) else label_space
    family, _, rest = name.partition("/")
    if family not in _LOADERS:
        raise _unknown(name)
    try:
        if family == "lite":
            # Before PyTorch is imported, which takes seconds.
            lite.check_name(rest)
        target = resolve_device(device)
        classifier = _LOADERS[family](rest)
    except UnknownNameError as error:
        if error.kind != "model":
            raise
        raise _unknown(error.name) from error
    if space is not None:
        classifier.columns(space)
    classifier.to(target).check()
    return classifier


def model_names() -> list[str]:
    """Every name that `load_classifier` takes but those of checkpoints."""
    return lite.model_names() + torchvision_zoo.model_names() + timm_zoo.model_names()


def available_models() -> list[ModelEntry]:
    """The zoo for `curate models list`: a line a set of weights, the embedded ones first."""
    return lite.entries() + torchvision_zoo.entries() + timm_zoo.entries()


def _unknown(name: str) -> UnknownNameError:
    """The error for a name that means no model, with the nearest of all names.

    A name that misses its family, or has the wrong one, is looked for in every family, which takes
    seconds; for a slip of the pen in a name of the embedded ones they are not asked.
    """
    if slips := difflib.get_close_matches(name.casefold(), lite.model_names(), 2, _SLIP):
        return UnknownNameError("model", name, slips)
    known = model_names()
    by_rest: dict[str, list[str]] = {}
    for full in known:
        by_rest.setdefault(full.partition("/")[2], []).append(full)
    rest = name.rpartition("/")[2]
    near = by_rest.get(rest, [])
    if not near and "/" not in name:
        near = [full for found in nearest(rest, by_rest) for full in by_rest[found]]
    if near:
        return UnknownNameError("model", name, (), note=f"did you mean {' or '.join(near[:2])}?")
    return UnknownNameError("model", name, known, note="see: curate models list")
