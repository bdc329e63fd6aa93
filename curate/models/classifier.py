"""A classifier: a network with its preprocessing, its weights' fingerprint and its classes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from curate.errors import LabelSpaceError, WeightsError
from curate.files import canonical_json
from curate.images.views import ViewRecipe
from curate.labels.space import LabelSpace
from curate.models.runtime import full_precision

if TYPE_CHECKING:
    import numpy as np
    import torch


@dataclass(frozen=True)
class Preprocessing:
    """What a network wants its input to be.

    Args:
        recipe: its native view: short side, crop, interpolation. `--views paper` ignores it.
        mean: subtracted from each of R, G, B after division by 255.
        std: what the difference is divided by.
        source: where these numbers come from, "torchvision ResNet50_Weights.IMAGENET1K_V2".
        notes: what the library would do otherwise than `recipe` says.
    """

    recipe: ViewRecipe
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    source: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        told = asdict(self)
        return {**told.pop("recipe"), **{k: _plain(v) for k, v in told.items()}}


class Classifier:
    """A network in evaluation mode that turns views into logits.

    Args:
        name: what it is called, "torchvision/resnet50:IMAGENET1K_V1".
        architecture: the network without weights, "torchvision/resnet50".
        module: the network: normalised float32 [B, 3, S, S] to logits [B, K].
        output: the classes of the K columns, in order.
        preprocessing: see `Preprocessing`.
        fingerprint: SHA-256 of the weights' file. None where there is no file: then it is taken
            over the state dict, for each name in sorted order the JSON of [name, dtype, shape] and
            the values' bytes in row-major order.
        libraries: the packages whose versions bear on the logits.
    """

    def __init__(
        self,
        *,
        name: str,
        architecture: str,
        module: torch.nn.Module,
        output: LabelSpace,
        preprocessing: Preprocessing,
        fingerprint: str | None = None,
        libraries: Iterable[str] = (),
    ) -> None:
        import torch

        self.name = name
        self.architecture = architecture
        self.output = output
        self.preprocessing = preprocessing
        self.fingerprint_of = "state-dict" if fingerprint is None else "file"
        self.fingerprint = fingerprint or _fingerprint(module)
        self.parameters = sum(p.numel() for p in module.parameters())
        self.libraries = ("torch", *libraries)
        # Channels last is the faster layout on CPUs (17 against 24 ms a crop) and GPUs alike.
        self.module = module.eval().to(memory_format=torch.channels_last)
        self.device = torch.device("cpu")
        self.to("cpu")

    def __repr__(self) -> str:
        return f"Classifier({self.name!r}, {len(self.output)} classes, {self.fingerprint[:8]})"

    def to(self, device: str | torch.device) -> Classifier:
        """Move the network to a device and return this classifier.

        On CUDA float32 then means float32: TF32 is switched off for the process.
        """
        import torch

        self.device = torch.device(device)
        if self.device.type == "cuda":
            full_precision()
        self.module.to(self.device)
        self._mean, self._std = (
            torch.tensor(values, dtype=torch.float32, device=self.device).view(1, 3, 1, 1)
            for values in (self.preprocessing.mean, self.preprocessing.std)
        )
        return self

    def logits(self, views: np.ndarray | torch.Tensor) -> torch.Tensor:
        """The network's output for a batch of views.

        Each view is normalised as (x / 255 - mean) / std in float32, as ToTensor and Normalize do,
        to the same bits. The same batch gives the same bits each time on one device and number of
        threads; another batch size changes them by up to 3e-6.

        Args:
            views: uint8, as an array [B, S, S, 3] or as a tensor [B, 3, S, S] on any device.

        Returns:
            float32 [B, K] on this classifier's device.

        Raises:
            ValueError: another dtype or shape.
        """
        import torch

        with torch.inference_mode():
            pixels = self.normalised(views)
            if not len(pixels):
                return torch.empty((0, len(self.output)), device=self.device)
            logits: torch.Tensor = self.module(pixels)
            return logits

    def normalised(
        self, views: np.ndarray | torch.Tensor, *, channels_last: bool = True
    ) -> torch.Tensor:
        """What the network is given for a batch of views: float32 [B, 3, S, S] on its device.

        Args:
            views: as `logits` takes them.
            channels_last: how the numbers lie in memory; else as they are written here.

        Raises:
            ValueError: another dtype or shape.
        """
        import torch

        layout = torch.channels_last if channels_last else torch.contiguous_format
        # Bytes travel to the device, not floats.
        pixels = _batch(views).to(self.device).to(torch.float32, memory_format=layout)
        return pixels.div_(255).sub_(self._mean).div_(self._std)

    def columns(self, space: LabelSpace) -> list[int]:
        """The column of the output that each class of a label space reads.

        Raises:
            LabelSpaceError: the output does not fit the label space.
        """
        try:
            return space.columns_in(self.output)
        except LabelSpaceError as error:
            raise LabelSpaceError(f"{self.name}: {error}") from error

    def check(self, side: int | None = None) -> None:
        """Try the network on one grey view, so that what cannot work fails before the first image.

        Args:
            side: the side of the views to come; the native one by default.

        Raises:
            WeightsError: the network does not take views of this size, or its output for one is
                not a row of finite numbers.
            LabelSpaceError: the number of outputs is not that of the classes.
        """
        import torch

        side = side or self.preprocessing.recipe.crop
        view = torch.full((1, 3, side, side), 127, dtype=torch.uint8)
        try:
            output = self.logits(view)
        except (RuntimeError, AssertionError, ValueError) as error:
            told = str(error).splitlines() or [type(error).__name__]
            raise WeightsError(
                f"{self.name} does not take views of {side} pixels a side, "
                f"its own have {self.preprocessing.recipe.crop}: {told[0]}"
            ) from error
        if not isinstance(output, torch.Tensor) or output.ndim != 2 or len(output) != 1:
            raise WeightsError(f"{self.name} gives no row of logits a view: it is no classifier")
        if output.shape[1] != len(self.output):
            raise LabelSpaceError(
                f"{self.name} gives {output.shape[1]} outputs, but {self.output.name} has "
                f"{len(self.output)} classes"
            )
        if not bool(torch.isfinite(output).all()):
            raise WeightsError(f"{self.name} gives NaN or infinite logits: its weights are damaged")

    def record(self) -> dict[str, Any]:
        """Everything that makes its logits, as plain JSON values."""
        return {
            "name": public_name(self.name),
            "architecture": self.architecture,
            "fingerprint": self.fingerprint,
            "fingerprint_of": self.fingerprint_of,
            "parameters": self.parameters,
            "preprocessing": self.preprocessing.to_dict(),
            "output": {
                "name": self.output.name,
                "classes": len(self.output),
                "fingerprint": self.output.fingerprint,
            },
            "libraries": {name: metadata.version(name) for name in self.libraries},
        }


def public_name(model: str) -> str:
    """A model's name without the folders of this machine that a checkpoint's files lie in."""
    if not model.startswith("checkpoint/"):
        return model
    path, _, query = model.removeprefix("checkpoint/").rpartition("?")
    if "=" not in query:
        return f"checkpoint/{PurePath(model).name}"
    parts = [part.partition("=") for part in query.split("&")]
    told = "&".join(f"{k}={PurePath(v).name if k == 'labels' else v}" for k, _, v in parts)
    return f"checkpoint/{PurePath(path).name}?{told}"


def _batch(views: np.ndarray | torch.Tensor) -> torch.Tensor:
    """The views as a uint8 tensor [B, 3, S, S], without a copy where none is needed."""
    import numpy as np
    import torch

    if isinstance(views, torch.Tensor):
        if views.dtype != torch.uint8 or views.ndim != 4 or views.shape[1] != 3:
            raise ValueError(
                f"views must be uint8 [B, 3, S, S], not {views.dtype} {list(views.shape)}"
            )
        return views
    if views.dtype != np.uint8 or views.ndim != 4 or views.shape[3] != 3:
        raise ValueError(f"views must be uint8 [B, S, S, 3], not {views.dtype} {views.shape}")
    # Mirrored views have negative strides and decoded ones may be read-only: PyTorch takes neither.
    return torch.from_numpy(np.require(views, requirements=("C", "W"))).permute(0, 3, 1, 2)


def _fingerprint(module: torch.nn.Module) -> str:
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(canonical_json([name, str(tensor.dtype), list(tensor.shape)]))
        flat = tensor.detach().cpu().contiguous().view(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
