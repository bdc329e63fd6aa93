from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from curate.errors import LabelSpaceError, WeightsError
from curate.images.views import ViewRecipe
from curate.labels.space import LabelSpace, load_label_space
from curate.models import Classifier, load_classifier

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def lite0() -> Classifier:
    return load_classifier("lite/efficientnet_lite0")


Toy = Callable[..., Classifier]


def test_logits_are_those_of_totensor_normalize_and_the_plain_network(
    lite0: Classifier, package_photos: list[tuple[Path, int]]
) -> None:
    import timm

    from curate.models import lite
    from curate.models.weights import read_weights

    plain = timm.create_model("tf_efficientnet_lite0").eval()
    path = lite._find("efficientnet_lite0")
    assert path is not None
    state = read_weights(path)
    plain.load_state_dict(dict(zip(plain.state_dict(), state.values(), strict=True)))
    pipeline = transforms.Compose(
        [
            transforms.Resize(256, transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ]
    )
    cut = transforms.Compose(pipeline.transforms[:2])
    for path, _ in package_photos[:5]:
        photo = Image.open(path).convert("RGB")
        with torch.inference_mode():
            expected = plain(pipeline(photo)[None])
        got = lite0.logits(np.asarray(cut(photo))[None])
        assert (got - expected).abs().max() < 1e-5


def test_input_is_normalised_to_the_same_bits_as_totensor_and_normalize(
    toy: Toy,
    views: np.ndarray,
) -> None:
    one = toy(module=torch.nn.Identity())
    usual = transforms.Normalize(one.preprocessing.mean, one.preprocessing.std)
    expected = torch.stack([usual(transforms.ToTensor()(Image.fromarray(v))) for v in views[:4]])
    assert torch.equal(one.logits(views[:4]), expected)


def test_the_same_batch_gives_the_same_bits(lite0: Classifier, views: np.ndarray) -> None:
    assert torch.equal(lite0.logits(views[:10]), lite0.logits(views[:10].copy()))


def test_array_and_tensor_give_the_same_bits(lite0: Classifier, views: np.ndarray) -> None:
    tensor = torch.tensor(views[:3]).permute(0, 3, 1, 2).contiguous()
    assert torch.equal(lite0.logits(views[:3]), lite0.logits(tensor))


def test_mirrored_and_read_only_views_are_taken_as_they_are(
    lite0: Classifier, views: np.ndarray, recwarn: pytest.WarningsRecorder
) -> None:
    mirrored = views[:2, :, ::-1]
    expected = lite0.logits(mirrored.copy())
    assert torch.equal(lite0.logits(mirrored), expected)
    read_only = mirrored.copy()
    read_only.flags.writeable = False
    assert torch.equal(lite0.logits(read_only), expected)
    assert not recwarn.list


def test_views_are_left_as_they_were(lite0: Classifier, views: np.ndarray) -> None:
    mine = views[:2].copy()
    lite0.logits(mine)
    assert np.array_equal(mine, views[:2])


def test_no_views_give_no_rows(lite0: Classifier) -> None:
    assert lite0.logits(np.empty((0, 224, 224, 3), np.uint8)).shape == (0, 1000)


@pytest.mark.parametrize(
    "views",
    [
        np.zeros((1, 224, 224, 3), np.float32),
        np.zeros((224, 224, 3), np.uint8),
        np.zeros((1, 3, 224, 224), np.uint8),
        torch.zeros((1, 224, 224, 3), dtype=torch.uint8),
        torch.zeros((1, 3, 224, 224)),
    ],
)
def test_views_of_another_kind_or_shape_are_an_error(
    lite0: Classifier, views: np.ndarray | torch.Tensor
) -> None:
    with pytest.raises(ValueError, match="views must be uint8"):
        lite0.logits(views)


def test_the_network_is_in_evaluation_mode_and_tracks_no_gradient(
    toy: Toy, views: np.ndarray
) -> None:
    one = toy()
    before = one.fingerprint
    assert not one.logits(views).requires_grad
    assert toy(module=one.module).fingerprint == before


def test_a_network_without_a_file_is_known_by_its_values(toy: Toy) -> None:
    assert toy(seed=1).fingerprint == toy(seed=1).fingerprint
    assert toy(seed=1).fingerprint != toy(seed=2).fingerprint
    assert toy().fingerprint_of == "state-dict"
    assert toy(fingerprint="ab" * 32).fingerprint_of == "file"


def test_half_precision_values_have_a_fingerprint_too(toy: Toy) -> None:
    module = torch.nn.Linear(2, 3).to(torch.bfloat16)
    assert len(toy(module=module).fingerprint) == 64


def test_the_record_is_json_and_says_what_made_the_logits(lite0: Classifier) -> None:
    record = lite0.record()
    assert json.loads(json.dumps(record)) == record
    assert record["name"] == "lite/efficientnet_lite0"
    assert record["architecture"] == "timm/tf_efficientnet_lite0"
    assert record["fingerprint"] == lite0.fingerprint
    assert record["preprocessing"]["resize"] == 256
    assert record["preprocessing"]["mean"] == [0.5, 0.5, 0.5]
    assert record["output"]["classes"] == 1000
    assert set(record["libraries"]) == {"torch", "timm"}


def test_a_label_space_that_the_output_lacks_is_refused_with_the_models_name(toy: Toy) -> None:
    output = LabelSpace("half", load_label_space("imagenet-1k").classes[:500])
    with pytest.raises(LabelSpaceError, match=r"^toy: .*imagenet-a"):
        toy(outputs=500, output=output).columns(load_label_space("imagenet-a"))


def test_a_wrong_number_of_outputs_is_found_on_trial(toy: Toy) -> None:
    with pytest.raises(LabelSpaceError, match=r"toy gives 999 outputs, but imagenet-1k has 1000"):
        toy(outputs=999).check()


def test_nan_weights_are_found_on_trial(toy: Toy) -> None:
    one = toy()
    one.module[4].bias.data[3] = float("nan")  # type: ignore[index, union-attr]
    with pytest.raises(WeightsError, match="NaN"):
        one.check()


def test_a_network_that_gives_no_rows_is_found_on_trial(toy: Toy) -> None:
    with pytest.raises(WeightsError, match="no classifier"):
        toy(module=torch.nn.Identity()).check()


def test_a_view_size_that_the_network_does_not_take_is_found_on_trial(toy: Toy) -> None:
    import timm

    module = timm.create_model("vit_tiny_patch16_224", depth=1)
    recipe = ViewRecipe(248, 224, "bicubic")
    one = toy(module=module, preprocessing=replace(toy().preprocessing, recipe=recipe))
    one.check()
    one.check(224)
    with pytest.raises(WeightsError, match=r"toy does not take views of 192 pixels a side"):
        one.check(192)
