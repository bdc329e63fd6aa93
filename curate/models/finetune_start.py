"""What fine-tuning begins with: a trained network whose output layer is new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from curate.errors import UsageError, WeightsError
from curate.images.views import ViewRecipe
from curate.labels.space import LabelSpace
from curate.models import checkpoint
from curate.models.classifier import Classifier, Preprocessing
from curate.models.zoo import load_classifier

if TYPE_CHECKING:
    import torch

#: What the network begins with: the weights of the zoo, or random ones.
Init = Literal["pretrained", "none"]

# As BiT and DeiT have it: small enough that the first outputs are nearly equal.
_HEAD_STD = 0.01


@dataclass(frozen=True)
class Start:
    """A network to be fine-tuned.

    Attributes:
        classifier: the network in its first state; its outputs are the label space's classes.
        head: names of the parameters of its output layer, which are new.
        record: `model`, `init` and the `fingerprint` of the weights that the rest begins with (see
            `Classifier`).
    """

    classifier: Classifier
    head: frozenset[str]
    record: dict[str, Any]


def prepare(
    model: str,
    space: LabelSpace,
    *,
    init: Init = "pretrained",
    image_size: int | None = None,
    seed: int = 0,
) -> Start:
    """A network with a new output layer for a label space.

    Args:
        model: a name of the zoo or a checkpoint, as `load_classifier` takes it.
        space: the classes of the new outputs, in order.
        init: "none" leaves the weights random; they are the same for every seed.
        image_size: side of its views in pixels, its own by default; then the short side keeps its
            ratio to the view.
        seed: of the new layer's weights.

    Raises:
        UnknownNameError: no such network.
        WeightsError: its weights are absent or damaged, do not fit the network as it is built
            anew, or it does not take views of this size.
        UsageError: it has no output layer of its own for each number of classes.
    """
    trained: Classifier | None = None
    name = model
    if init == "pretrained":
        # Its outputs, which may be any classes, are left out.
        trained = load_classifier(model, None)
        if model.startswith("checkpoint/"):
            name = trained.architecture
    elif model.startswith("checkpoint/"):
        raise UsageError(f"--init none leaves the weights of {model} out: name its network instead")
    built = checkpoint.build(name, len(space))
    fresh = built.module.state_dict()
    other = checkpoint.build(name, len(space) + 1).module.state_dict()
    head = frozenset(key for key, value in fresh.items() if value.shape != other[key].shape)
    if not head:
        raise UsageError(f"{name} has no output layer that can be made anew for {space.name}")
    if trained is not None:
        _copy(trained, built.module, head)
    _renew(built.module, head, seed)
    own = built.preprocessing if trained is None else trained.preprocessing
    its = resized(own, image_size or own.recipe.crop)
    classifier = Classifier(
        name=model,
        architecture=_bare(name),
        module=built.module,
        output=space,
        preprocessing=its,
        fingerprint=None if trained is None else trained.fingerprint,
        libraries=checkpoint.libraries_of(name),
    )
    classifier.check()
    told = classifier if trained is None else trained
    return Start(
        classifier,
        head,
        {
            "model": told.record()["name"],
            "init": init,
            "fingerprint": told.fingerprint,
            "fingerprint_of": told.fingerprint_of,
        },
    )


def resized(its: Preprocessing, side: int) -> Preprocessing:
    """Preprocessing for views of another side; the short side keeps its ratio to them."""
    recipe = its.recipe
    if side == recipe.crop:
        return its
    resize = max(side, round(recipe.resize * side / recipe.crop))
    return replace(
        its,
        recipe=ViewRecipe(resize, side, recipe.interpolation),
        source=f"{its.source}, at {side} pixels",
    )


def _copy(trained: Classifier, module: torch.nn.Module, head: frozenset[str]) -> None:
    """Take over every weight but those of the output layer."""
    given: Mapping[str, torch.Tensor] = trained.module.state_dict()
    expected = module.state_dict()
    wrong = [
        key
        for key in expected
        if key not in head and (key not in given or given[key].shape != expected[key].shape)
    ]
    wrong += [key for key in given if key not in expected]
    if wrong:
        raise WeightsError(
            f"{trained.name}: {wrong[0]!r} does not fit the network as it is built anew "
            f"({len(wrong)} of {len(expected)} keys differ); choose another model"
        )
    module.load_state_dict({k: v for k, v in given.items() if k not in head}, strict=False)


def _renew(module: torch.nn.Module, head: frozenset[str], seed: int) -> None:
    import torch

    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name not in head:
                continue
            if parameter.ndim > 1:
                parameter.normal_(0.0, _HEAD_STD, generator=random)
            else:
                parameter.zero_()


def _bare(name: str) -> str:
    """A network's name without the tag of its weights."""
    family, _, rest = name.partition("/")
    return f"{family}/{rest.partition(':' if family == 'torchvision' else '.')[0]}"
