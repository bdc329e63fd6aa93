"""What the tests of the classifiers share: real views, and networks whose weights are random."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from curate.images.views import PAPER
from curate.labels.space import load_label_space
from curate.models import Classifier, Preprocessing, bound_threads


@pytest.fixture
def one_thread() -> Iterator[None]:
    with bound_threads(1):
        yield


@pytest.fixture(scope="session")
def centre_views() -> Callable[[Sequence[Path]], np.ndarray]:
    """Cuts centre views, Resize(256, bicubic) and CenterCrop(224): uint8 [B, 224, 224, 3]."""
    from PIL import Image
    from torchvision import transforms

    cut = transforms.Compose(
        [
            transforms.Resize(256, transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(224),
        ]
    )
    return lambda paths: np.stack([np.asarray(cut(Image.open(p).convert("RGB"))) for p in paths])


@pytest.fixture
def toy() -> Callable[..., Classifier]:
    """Makes small networks with random weights, by `outputs`, `seed` and changes to the rest."""
    import torch

    def make(outputs: int = 1000, seed: int = 0, **changes: object) -> Classifier:
        torch.manual_seed(seed)
        module = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, stride=4),
            torch.nn.BatchNorm2d(8),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(8, outputs),
        )
        told: dict[str, object] = {
            "name": "toy",
            "architecture": "toy",
            "module": module,
            "output": load_label_space("imagenet-1k"),
            "preprocessing": Preprocessing(
                PAPER, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "by hand"
            ),
        }
        return Classifier(**{**told, **changes})  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def views(
    package_photos: list[tuple[Path, int]], centre_views: Callable[[Sequence[Path]], np.ndarray]
) -> np.ndarray:
    """The centre views of the twenty photos, uint8 [20, 224, 224, 3]."""
    return centre_views([path for path, _ in package_photos])


@pytest.fixture(scope="session")
def targets(package_photos: list[tuple[Path, int]]) -> np.ndarray:
    return np.array([column for _, column in package_photos])


@pytest.fixture
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty weight folders, and proxies that refuse. Gives PyTorch's folder of weights."""
    from huggingface_hub import constants

    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    # The library reads HF_HOME when it is imported, which may have happened already.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    return tmp_path / "torch" / "hub" / "checkpoints"
