"""What the GPU benchmark works on: photos with labels, and ensembles that know them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from synthetic import Sample, fit, made

from curate.images.views import PAPER, resize_short_side, view
from curate.labels.space import LabelSpace, load_label_space
from curate.models import lite, timm_zoo, torchvision_zoo
from curate.models.classifier import Classifier
from curate.models.downloads import hub_file
from curate.models.ensemble import Ensemble
from curate.models.runtime import full_precision

#: `map`, or that of a pool.
Spread = Callable[..., Iterable[Any]]

#: torchvision's files of ResNet-50's weights, V1 and V2.
_RESNETS = ("resnet50-0676ba61.pth", "resnet50-11ad3fa6.pth")

#: Views of a photo that networks are fitted to.
_FITTED_TO = (0, 2, 8)


@dataclass(frozen=True)
class Scale:
    """How much is done.

    Attributes:
        photos: distinct ones.
        trained: synthetic photos that networks are fitted to.
        kinds: of synthetic photos.
        wrong: share of synthetic photos that are not what their label says.
        sizes: batch sizes of bare forward passes.
        plain: photos in a batch of the plain loop.
        seconds: factor for the time of every measurement.
        network: torchvision's name of the paper's architecture.
        is_full: compile, and use trained weights where they are at hand.
    """

    photos: int = 1024
    trained: int = 600
    kinds: int = 40
    wrong: float = 0.1
    sizes: tuple[int, ...] = (64, 256, 512)
    plain: int = 25
    seconds: float = 1.0
    network: str = "resnet50"
    is_full: bool = True


#: So little that it proves no more than that the script works.
QUICK = Scale(14, 24, 6, 0.3, (4,), 4, 0.1, "mobilenet_v3_small", False)


@dataclass(frozen=True)
class Photos:
    """What is judged.

    Attributes:
        samples: with labels that are positions in the label space.
        trained: what networks are fitted to.
        space: the label space.
        paths: of the samples' files.
        is_real: whether somebody took them.
    """

    samples: list[Sample]
    trained: list[Sample]
    space: LabelSpace
    paths: list[Path]
    is_real: bool


def usable(data: bytes) -> bool:
    """Whether every decoder agrees on a photo: an upright JPEG without a profile."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            plain = image.format == "JPEG" and image.mode in ("L", "RGB")
            return plain and "icc_profile" not in image.info and image.getexif().get(274, 1) == 1
    except (OSError, ValueError, SyntaxError):
        return False


def gathered(scale: Scale, real: Path | None, folder: Path, spread: Spread) -> Photos:
    """Real photos in the order of their names, or synthetic ones.

    Args:
        scale: how many.
        real: class folders named by wnids of ImageNet-1k; None for synthetic ones.
        folder: where to write each photo as a file.
        spread: what makes them side by side.
    """
    space = load_label_space("imagenet-a")
    if real is None:
        kinds = scale.kinds
        trained = made(scale.trained, spread, kinds, wrong=0, mixed=0, seed=1)
        samples = made(scale.photos, spread, kinds, wrong=scale.wrong, mixed=0.1, seed=2)
    else:
        files = sorted(path for path in real.glob("*/*") if path.is_file())
        if not {path.parent.name for path in files} <= set(space.wnids):
            space = load_label_space("imagenet-1k")
        files = [path for path in files if path.parent.name in space]
        held = [Sample(p.read_bytes(), space.position(p.parent.name)) for p in files]
        samples = [sample for sample in held if usable(sample.data)][: scale.photos]
        if not samples:
            sys.exit(f"{real}: no plain JPEG in a folder named by a wnid of ImageNet-1k")
        # Each third photo is new to a fitted network, and mostly survives it.
        trained = [sample for number, sample in enumerate(samples) if number % 3]
    paths = [folder / f"{number:05}.jpg" for number in range(len(samples))]
    for path, sample in zip(paths, samples, strict=True):
        path.write_bytes(sample.data)
    return Photos(samples, trained, space, paths, real is not None)


def ensemble(
    name: str, work: Photos, scale: Scale, device: torch.device, spread: Spread
) -> tuple[Ensemble, list[str]]:
    """Two classifiers on the device, and for each where its weights come from.

    Args:
        name: "paper" or "lite".
        work: the photos that they shall know.
        scale: which networks.
        device: where they compute.
        spread: what cuts views side by side.
    """
    classifiers, told = [], []
    for number in range(2):
        loaded = _loaded(name, number) if work.is_real and scale.is_full else None
        told.append("trained" if loaded else "fitted to the photos")
        classifiers.append(loaded or _fitted(name, number, work, scale, device, spread))
    return Ensemble(classifiers).to(device), told


def _loaded(name: str, number: int) -> Classifier | None:
    """A network with its weights, if they are on this machine."""
    if name == "lite":
        entry = lite.entries()[number]
        return lite.load(entry.name.partition("/")[2]) if entry.present else None
    if not hub_file(_RESNETS[number]).is_file():
        return None
    return torchvision_zoo.load(f"resnet50:IMAGENET1K_V{number + 1}")


def _fitted(
    name: str, number: int, work: Photos, scale: Scale, device: torch.device, spread: Spread
) -> Classifier:
    """A network with random weights, fitted to half of the photos: each has seen another half."""
    if name == "lite":
        library, bare = "timm", f"tf_efficientnet_lite{number}"
        built = timm_zoo.build(bare, 1000)
    else:
        library, bare = "torchvision", scale.network
        built = torchvision_zoo.build(bare, 1000)
    seen = work.trained[number::2]

    def cut(sample: Sample) -> list[torch.Tensor]:
        with Image.open(io.BytesIO(sample.data)) as image:
            resized = resize_short_side(image.convert("RGB"), PAPER)
        views = [view(resized, n, PAPER.crop) for n in _FITTED_TO]
        return [torch.from_numpy(one.copy()).permute(2, 0, 1) for one in views]

    views = [one for several in spread(cut, seen) for one in several]
    mean, std = (
        torch.tensor(values).view(1, 3, 1, 1)
        for values in (built.preprocessing.mean, built.preprocessing.std)
    )
    batches = [
        torch.stack(views[start : start + 100]).float().div(255).sub(mean).div(std)
        for start in range(0, len(views), 100)
    ]
    output = load_label_space("imagenet-1k")
    columns = work.space.columns_in(output)
    full_precision()
    fit(built.module, batches, [columns[s.label] for s in seen for _ in _FITTED_TO], device)
    return Classifier(
        name=f"{library}/{bare}",
        architecture=f"{library}/{bare}",
        module=built.module.cpu(),
        output=output,
        preprocessing=built.preprocessing,
        libraries=(library,),
    )
