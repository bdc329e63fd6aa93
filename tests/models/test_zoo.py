from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from curate.errors import LabelSpaceError, UnknownNameError, WeightsError
from curate.files import sha256_file
from curate.models import available_models, load_classifier, model_names
from curate.models.classifier import Classifier
from tests.running import ROOT

pytestmark = pytest.mark.usefixtures("one_thread")

#: Seconds within which an absent network must have been noticed.
PROMPT = 60


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("resnet50", "did you mean torchvision/resnet50 or timm/resnet50?"),
        ("torchvison/resnet50", "did you mean torchvision/resnet50"),
        ("torchvision/ResNet50", "did you mean torchvision/resnet50"),
        ("torchvision/resnet50:IMAGENET1K_V3", "did you mean torchvision/resnet50:IMAGENET1K_V"),
        ("torchvision/resnet50:", "did you mean torchvision/resnet50"),
        ("torchvision/vgg16:IMAGENET1K_FEATURES", "did you mean torchvision/vgg16:IMAGENET1K_V1"),
        ("torchvision/efficientnet_lite0", "did you mean lite/efficientnet_lite0"),
        ("lite/efficientnet_lit0", "did you mean lite/efficientnet_lite0?"),
        (
            "lite/efficientnet_b0",
            "did you mean torchvision/efficientnet_b0 or timm/efficientnet_b0",
        ),
        ("timm/resnet50.a1_in2k", "did you mean timm/resnet50.a1_in1k"),
        ("timm/hf-hub:someone/anything", "see: curate models list"),
        ("zzzz", "see: curate models list"),
        ("", "see: curate models list"),
    ],
)
def test_an_unknown_name_is_told_the_nearest(name: str, told: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_classifier(name)
    assert str(caught.value).startswith(f"unknown model {name!r}")
    assert told in str(caught.value)


def test_a_slip_of_the_pen_is_told_before_pytorch_is_imported() -> None:
    code = (
        "import sys\n"
        "from curate.errors import UnknownNameError\n"
        "from curate.models.zoo import load_classifier\n"
        "try: load_classifier('lite/efficientnet_lit0', device='auto')\n"
        "except UnknownNameError: assert not {'torch', 'timm', 'torchvision'} & set(sys.modules)\n"
        "else: sys.exit('loaded')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_list_names_each_model_once_with_its_view_and_source() -> None:
    entries = available_models()
    names = [entry.name for entry in entries]
    assert len(set(names)) == len(names)
    assert set(names) <= set(model_names())
    families = {
        family: [e for e in entries if e.family == family]
        for family in ("lite", "torchvision", "timm")
    }
    assert [e.name for e in families["lite"]] == [f"lite/efficientnet_lite{i}" for i in range(3)]
    assert all(e.present for e in families["lite"])
    assert len(families["torchvision"]) >= 100
    assert len(families["timm"]) >= 800
    by_name = {entry.name: entry for entry in entries}
    assert by_name["torchvision/resnet50:IMAGENET1K_V2"].side == 224
    assert by_name["torchvision/inception_v3:IMAGENET1K_V1"].side == 299
    assert by_name["torchvision/resnet50:IMAGENET1K_V1"].source.endswith("resnet50-0676ba61.pth")
    assert all(e.source for e in entries)


def test_every_listed_network_has_a_preprocessing_that_can_be_cut() -> None:
    from types import SimpleNamespace

    from curate.models import timm_zoo, torchvision_zoo

    for tags in torchvision_zoo._weights().values():
        for entry in tags.values():
            assert torchvision_zoo._preprocessing(entry).recipe.crop >= 224
    for name, cfg in timm_zoo._imagenet_configs().items():
        its = timm_zoo._preprocessing(SimpleNamespace(pretrained_cfg=cfg.to_dict()), name)  # type: ignore[arg-type]
        assert its.recipe.crop == cfg.input_size[1]
        assert bool(its.notes) == (cfg.crop_mode != "center" or cfg.crop_pct > 1)


@pytest.mark.parametrize(
    ("name", "file", "begins"),
    [
        ("torchvision/resnet18", "resnet18-f37072fd.pth", "torchvision/resnet18:IMAGENET1K_V1"),
        (
            "torchvision/resnet50:IMAGENET1K_V2",
            "resnet50-11ad3fa6.pth",
            "torchvision/resnet50:IMAGENET1K_V2",
        ),
        ("timm/resnet18", "timm--resnet18.a1_in1k.safetensors", "timm/resnet18.a1_in1k"),
        ("timm/gcvit_tiny", "gcvit_tiny_224_nvidia-ac783954.pth", "timm/gcvit_tiny.in1k"),
    ],
)
def test_without_network_and_file_one_line_says_which_file_to_put_where(
    name: str, file: str, begins: str, no_network: Path
) -> None:
    started = time.monotonic()
    with pytest.raises(WeightsError) as caught:
        load_classifier(name)
    assert time.monotonic() - started < PROMPT
    told = str(caught.value)
    assert told.startswith(f"the weights of {begins} are not on this machine")
    assert "https://" in told
    assert told.endswith(f" as {no_network / file}")
    assert "\n" not in told
    assert not list(no_network.parent.parent.glob("**/*.p*"))


def test_a_timm_network_is_loaded_from_the_named_place(no_network: Path, views: np.ndarray) -> None:
    import timm

    no_network.mkdir(parents=True)
    path = no_network / "timm--resnet18.a1_in1k.safetensors"
    torch.manual_seed(2)
    module = timm.create_model("resnet18").eval()
    save_file(module.state_dict(), path)
    one = load_classifier("timm/resnet18", "imagenet-a")
    assert one.name == "timm/resnet18.a1_in1k"
    assert one.fingerprint == sha256_file(path)
    # 224 / 0.95, as timm's configuration says.
    recipe = one.preprocessing.recipe
    assert (recipe.resize, recipe.crop, recipe.interpolation) == (235, 224, "bicubic")
    same_as_plain(one, module, views)
    entry = next(e for e in available_models() if e.name == "timm/resnet18.a1_in1k")
    assert entry.present


def test_a_timm_file_in_the_hugging_face_cache_is_found(no_network: Path, tmp_path: Path) -> None:
    import timm
    from huggingface_hub import constants

    commit = "0" * 40
    repository = Path(constants.HF_HUB_CACHE) / "models--timm--resnet18.a1_in1k"
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    save_file(timm.create_model("resnet18").state_dict(), snapshot / "model.safetensors")
    one = load_classifier("timm/resnet18.a1_in1k")
    assert one.fingerprint == sha256_file(snapshot / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "key"),
    [("resnet18.a1_in1k", "layer1.0.conv1.weight"), ("dla34.in1k", "level2.project.0.weight")],
)
def test_no_value_of_a_timm_network_stays_random(name: str, key: str, no_network: Path) -> None:
    # timm itself loads dla34 leniently.
    import timm

    no_network.mkdir(parents=True)
    state = timm.create_model(name).state_dict()
    del state[key]
    save_file(state, no_network / f"timm--{name}.safetensors")
    with pytest.raises(WeightsError, match=key.replace(".", r"\.")) as caught:
        load_classifier(f"timm/{name}")
    assert "\n" not in str(caught.value)


def test_a_timm_network_of_other_classes_is_refused_before_any_download(no_network: Path) -> None:
    with pytest.raises(
        LabelSpaceError,
        match=r"vit_tiny_patch16_224\.augreg_in21k has 21843 outputs.*take timm/vit_tiny.*ft_in1k",
    ):
        load_classifier("timm/vit_tiny_patch16_224.augreg_in21k")


def test_a_squashing_crop_mode_is_noted() -> None:
    from curate.models import timm_zoo

    built = timm_zoo.build("convnext_tiny.in12k_ft_in1k_384", 10)
    assert built.preprocessing.recipe.crop == 384
    assert "squash" in built.preprocessing.notes[0]


@pytest.fixture
def own_resnet18(no_network: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, torch.nn.Module]:
    """torchvision's ResNet-18 with a file of ours, whose name promises its hash."""
    from torchvision.models import ResNet18_Weights, resnet18

    no_network.mkdir(parents=True)
    torch.manual_seed(3)
    module = resnet18().eval()
    torch.save(module.state_dict(), no_network / "new.pth")
    digest = sha256_file(no_network / "new.pth")
    path = (no_network / "new.pth").rename(no_network / f"resnet18-{digest[:8]}.pth")
    weights = ResNet18_Weights.IMAGENET1K_V1
    monkeypatch.setattr(weights.value, "url", f"https://example.invalid/{path.name}")
    return path, module


def test_a_torchvision_network_is_loaded_from_pytorchs_folder(
    own_resnet18: tuple[Path, torch.nn.Module], views: np.ndarray, capsys: pytest.CaptureFixture
) -> None:
    path, module = own_resnet18
    one = load_classifier("torchvision/resnet18", "imagenet-a")
    assert one.name == "torchvision/resnet18:IMAGENET1K_V1"
    assert one.architecture == "torchvision/resnet18"
    assert one.fingerprint == sha256_file(path)
    assert one.preprocessing.recipe.interpolation == "bilinear"
    assert one.preprocessing.source == "torchvision ResNet18_Weights.IMAGENET1K_V1"
    same_as_plain(one, module, views)
    assert capsys.readouterr().out == ""


def test_a_torchvision_file_that_is_not_what_its_name_says_is_refused(
    own_resnet18: tuple[Path, torch.nn.Module],
) -> None:
    path, _ = own_resnet18
    with path.open("ab") as stream:
        stream.write(b"\0")
    with pytest.raises(WeightsError, match=r"is damaged: its SHA-256 begins with"):
        load_classifier("torchvision/resnet18")


def same_as_plain(one: Classifier, module: torch.nn.Module, views: np.ndarray) -> None:
    its = one.preprocessing
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (its.mean, its.std))
    pixels = torch.tensor(views[:3]).permute(0, 3, 1, 2) / 255
    with torch.inference_mode():
        expected = module((pixels - mean) / std)
    assert (one.logits(views[:3]) - expected).abs().max() < 1e-5


def test_importing_the_room_loads_no_heavy_library() -> None:
    code = (
        "import sys, curate.models\n"
        "print([m for m in ('torch', 'torchvision', 'timm', 'safetensors') if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
