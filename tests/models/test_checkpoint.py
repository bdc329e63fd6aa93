from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torchvision import models

from curate.errors import LabelSpaceError, UnknownNameError, UsageError, WeightsError
from curate.files import sha256_file
from curate.models import load_classifier

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    """A ResNet-18 of 200 outputs with random weights and lived-in statistics."""
    torch.manual_seed(7)
    module = models.resnet18(num_classes=200)
    module(torch.rand(4, 3, 64, 64))
    return module.eval()


@pytest.fixture(scope="module")
def saved(network: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    state = network.state_dict()
    save_file(state, folder / "net.safetensors")
    torch.save(state, folder / "net.pth")
    torch.save({"model": {f"module.{k}": v for k, v in state.items()}}, folder / "wrapped.pt")
    return folder


ARCH = "arch=torchvision/resnet18&labels=imagenet-a"


@pytest.mark.parametrize("name", ["net.safetensors", "net.pth", "wrapped.pt"])
def test_a_saved_network_comes_back_with_its_logits(
    name: str, saved: Path, network: torch.nn.Module, views: np.ndarray
) -> None:
    one = load_classifier(f"checkpoint/{saved / name}?{ARCH}", "imagenet-a")
    assert one.output.name == "imagenet-a"
    assert one.fingerprint == sha256_file(saved / name)
    assert one.architecture == "torchvision/resnet18"
    assert one.preprocessing.recipe.resize == 256
    assert one.preprocessing.source.endswith("ResNet18_Weights.IMAGENET1K_V1, by the architecture")
    assert set(one.record()["libraries"]) == {"torch", "torchvision"}
    its = one.preprocessing
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (its.mean, its.std))
    pixels = torch.tensor(views[:4]).permute(0, 3, 1, 2) / 255
    with torch.inference_mode():
        expected = network((pixels - mean) / std)
    assert (one.logits(views[:4]) - expected).abs().max() < 1e-5


def test_the_path_is_relative_to_the_current_folder(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved)
    one = load_classifier(f"checkpoint/net.safetensors?{ARCH}", "imagenet-a")
    assert one.name == f"checkpoint/net.safetensors?{ARCH}"


def test_labels_may_be_a_table_and_signs_escaped(
    saved: Path, network: torch.nn.Module, tmp_path: Path
) -> None:
    table = tmp_path / "my&classes.csv"
    table.write_text("id\n" + "".join(f"c{i}\n" for i in range(200)), encoding="utf-8")
    name = str(table).replace("&", "%26")
    one = load_classifier(
        f"checkpoint/{saved / 'net.pth'}?arch=torchvision/resnet18&labels={name}",
        str(table),
    )
    assert one.output.wnids[199] == "c199"


def test_a_label_space_that_the_checkpoint_lacks_is_refused(saved: Path) -> None:
    with pytest.raises(LabelSpaceError, match=r"^checkpoint/.*imagenet-o"):
        load_classifier(f"checkpoint/{saved / 'net.pth'}?{ARCH}", "imagenet-o")


def test_labels_default_to_imagenet_and_the_number_of_outputs_is_compared(saved: Path) -> None:
    with pytest.raises(
        LabelSpaceError, match=r"200 outputs, but labels=imagenet-1k has 1000 classes: 'fc\.weight'"
    ):
        load_classifier(f"checkpoint/{saved / 'net.pth'}?arch=torchvision/resnet18")


def test_weights_of_another_network_are_refused_with_the_first_key_and_the_count(
    saved: Path,
) -> None:
    with pytest.raises(
        WeightsError,
        match=r"net\.pth as torchvision/resnet34: 'layer1\.2\.conv1\.weight' is missing",
    ):
        load_classifier(
            f"checkpoint/{saved / 'net.pth'}?arch=torchvision/resnet34&labels=imagenet-a",
            "imagenet-a",
        )


def test_weights_with_nan_are_refused(network: torch.nn.Module, tmp_path: Path) -> None:
    state = {key: value.clone() for key, value in network.state_dict().items()}
    state["layer2.0.conv1.weight"][0, 0, 0, 0] = float("nan")
    save_file(state, tmp_path / "nan.safetensors")
    with pytest.raises(WeightsError, match=r"'layer2\.0\.conv1\.weight' holds NaN"):
        load_classifier(f"checkpoint/{tmp_path / 'nan.safetensors'}?{ARCH}", "imagenet-a")


def test_timm_and_lite_networks_take_checkpoints(tmp_path: Path) -> None:
    import timm

    torch.manual_seed(1)
    state = timm.create_model("tf_efficientnet_lite0", num_classes=200).state_dict()
    save_file(state, tmp_path / "lite.safetensors")
    labels = "labels=imagenet-o"
    for arch, mean in (("lite/efficientnet_lite0", 0.5), ("timm/tf_efficientnet_lite0", 0.5)):
        one = load_classifier(
            f"checkpoint/{tmp_path / 'lite.safetensors'}?arch={arch}&{labels}", "imagenet-o"
        )
        assert one.preprocessing.mean == (mean,) * 3
        assert one.preprocessing.recipe.crop == 224


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("net.pth", "lacks its architecture: write checkpoint/PATH"),
        ("net.pth?", "unknown key ''"),
        ("?arch=torchvision/resnet18", "lacks its architecture"),
        ("net.pth?labels=imagenet-a", "lacks its architecture"),
        ("net.pth?arhc=torchvision/resnet18", "unknown key 'arhc'; did you mean arch?"),
        ("net.pth?zzz=1", "unknown key 'zzz'; did you mean arch, labels, key?"),
        ("net.pth?arch=torchvision/resnet18&labels", "labels lacks its value"),
        ("net.pth?arch=", "arch lacks its value"),
        (f"net.pth?{ARCH}&arch=timm/resnet18", "arch stands there twice"),
    ],
)
def test_the_name_is_read_strictly(query: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_classifier(f"checkpoint/{query}")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("arch", "told"),
    [
        ("torchvision/resnet81", "did you mean torchvision/resnet18"),
        ("resnet18", "did you mean torchvision/resnet18 or timm/resnet18"),
        ("checkpoint/net.pth", "unknown model 'checkpoint/net.pth'"),
    ],
)
def test_an_unknown_architecture_names_the_nearest(saved: Path, arch: str, told: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_classifier(f"checkpoint/{saved / 'net.pth'}?arch={arch}")
    assert told in str(caught.value)


def test_a_network_with_an_untold_switch_is_refused(saved: Path) -> None:
    with pytest.raises(UsageError, match="transform_input"):
        load_classifier(f"checkpoint/{saved / 'net.pth'}?arch=torchvision/inception_v3")


def test_an_absent_file_and_an_unknown_label_space_are_named(tmp_path: Path, saved: Path) -> None:
    with pytest.raises(WeightsError, match=r"none\.pth: no such file of weights"):
        load_classifier(f"checkpoint/{tmp_path / 'none.pth'}?arch=torchvision/resnet18")
    with pytest.raises(UnknownNameError, match=r"imagenet-b.*did you mean"):
        load_classifier(
            f"checkpoint/{saved / 'net.pth'}?arch=torchvision/resnet18&labels=imagenet-b"
        )


def test_the_callers_random_numbers_go_on_undisturbed(saved: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load_classifier(f"checkpoint/{saved / 'net.pth'}?{ARCH}", "imagenet-a")
    assert torch.equal(torch.rand(3), expected)
