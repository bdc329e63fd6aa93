from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from curate.errors import CurateError, DeviceError, Interrupted, UsageError, WeightsError
from curate.files import sha256_file
from curate.images.views import PAPER
from curate.labels.space import LabelClass, LabelSpace, load_label_space
from curate.models import finetune, finetune_state, load_classifier
from curate.models.finetune import Training
from curate.models.finetune_photos import Photo, Photos
from curate.models.finetune_recipe import Recipe, resolve_precision
from curate.models.finetune_start import Start, prepare
from curate.progress import Stop
from pipelines.learning_photos import split

pytestmark = pytest.mark.usefixtures("one_thread")

THREE = LabelSpace("three.csv", [LabelClass(f"c{n}", f"class {n}") for n in range(3)])
NET = "torchvision/shufflenet_v2_x0_5"


@pytest.fixture
def train(
    package_photos: list[tuple[Path, int]], toy: Callable[..., Any]
) -> Callable[..., Training]:
    """Makes the training of a small network on twelve photos."""
    items = [Photo(p, sha256_file(p), n % 3) for n, (p, _) in enumerate(package_photos[:12])]

    @cache
    def opened(photo: Photo) -> Image.Image:
        return Image.open(photo.path).convert("RGB").resize((64, 64))

    def make(module: torch.nn.Module | None = None, **recipe: Any) -> Training:
        changes = {} if module is None else {"module": module}
        classifier = toy(outputs=3, output=THREE, **changes)
        names = [name for name, _ in classifier.module.named_parameters()]
        start = Start(classifier, frozenset(names[-2:]), {})
        its = type(PAPER)(32, 32, "bilinear")
        photos = Photos(items, opened, its, smallest_crop=0.5)
        told = Recipe(**{"epochs": 3, "batch_size": 4, **recipe})
        return Training(start, told, photos, Photos(items[:6], opened, its), 2)

    return make


def weights(training: Training) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in training.start.classifier.module.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[key], other[key]) for key in one)


class StopAfter(Stop):
    """Asks to stop from the N-th time on that somebody looks."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    @property
    def requested(self) -> bool:
        self.looks -= 1
        return self.looks < 0


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_stopped_anywhere_it_goes_on_to_the_same_bits(
    train: Callable[..., Training], tmp_path: Path, optimizer: str, precision: str
) -> None:
    recipe = {"optimizer": optimizer, "precision": precision}
    whole = train(**recipe)
    whole.run(tmp_path / "whole", "run", Stop())
    assert len(whole.history) == 3
    assert whole.step == 9
    for looks in range(0, 50, 9):
        state = tmp_path / f"state-{looks}"
        stops = 0
        while True:
            one = train(**recipe)
            try:
                one.run(state, "run", StopAfter(looks if stops == 0 else 10 + 3 * stops))
            except Interrupted:
                stops += 1
                continue
            break
        assert equal(weights(one), weights(whole)), (looks, stops)
        assert one.history == whole.history
        assert state.read_bytes() == (tmp_path / "whole").read_bytes()


def test_dropout_draws_the_same_after_a_stop(
    train: Callable[..., Training], tmp_path: Path
) -> None:
    def module() -> torch.nn.Module:
        torch.manual_seed(1)
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(3 * 32 * 32, 3)
        )

    whole = train(module())
    whole.run(tmp_path / "whole", "run", Stop())
    one = train(module())
    with pytest.raises(Interrupted, match=r"stopped after step 1 of 9; the same command goes on"):
        one.run(tmp_path / "state", "run", StopAfter(0))
    torch.manual_seed(99)
    other = train(module())
    other.run(tmp_path / "state", "run", Stop())
    assert equal(weights(other), weights(whole))


def test_a_long_epoch_is_saved_on_the_way(
    train: Callable[..., Training], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    save = finetune_state.save

    def noted(path: Path, module: Any, optimizer: Any, numbers: dict[str, Any]) -> None:
        steps.append(numbers["step"])
        save(path, module, optimizer, numbers)

    monkeypatch.setattr(finetune_state, "save", noted)
    train().run(tmp_path / "a", "run", Stop())
    assert steps == [3, 6, 9]
    steps.clear()
    monkeypatch.setattr(finetune, "SAVE_SECONDS", 0.0)
    train().run(tmp_path / "b", "run", Stop())
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_frozen_layers_and_their_statistics_stay(
    train: Callable[..., Training], tmp_path: Path
) -> None:
    one = train(freeze=True)
    before = weights(one)
    one.run(tmp_path / "state", "run", Stop())
    after = weights(one)
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert changed == {"4.weight", "4.bias"}


def test_the_new_layer_learns_faster_and_biases_do_not_decay(
    train: Callable[..., Training],
) -> None:
    groups = train(lr=0.2, backbone=0.1, weight_decay=0.01)._optimizer.param_groups
    told = [(len(g["params"]), g["highest"], g["weight_decay"]) for g in groups]
    assert [(n, round(rate, 9), decay) for n, rate, decay in told] == [
        (1, 0.02, 0.01),
        (3, 0.02, 0.0),
        (1, 0.2, 0.01),
        (1, 0.2, 0.0),
    ]


def test_a_state_of_another_run_is_not_gone_on_with(
    train: Callable[..., Training], tmp_path: Path
) -> None:
    train(epochs=1).run(tmp_path / "state", "run", Stop())
    with pytest.raises(Exception, match="is of another run: delete the folder"):
        train(epochs=1).run(tmp_path / "state", "other", Stop())


def test_weights_that_are_no_numbers_are_told_where_the_loss_is_one(
    train: Callable[..., Training], tmp_path: Path
) -> None:
    one = train()
    # Training computes with the statistics of its batch, and never reads these.
    one.start.classifier.module.get_buffer("1.running_mean").fill_(float("inf"))
    with pytest.raises(CurateError, match=r"'1\.running_mean' holds NaN .* at step 3 of epoch 1"):
        one.run(tmp_path / "state", "run", Stop())
    assert not (tmp_path / "state").exists()


def test_a_batch_that_memory_does_not_hold_is_told_by_its_size(
    train: Callable[..., Training], tmp_path: Path
) -> None:
    one = train()

    def full(*_: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    one.start.classifier.module.register_forward_pre_hook(full)
    with pytest.raises(DeviceError, match=r"memory of cpu does not hold 4 photos of 224 pixels at"):
        one.run(tmp_path / "state", "run", Stop())


def test_training_moves_no_setting_of_pytorch(
    train: Callable[..., Training], tmp_path: Path
) -> None:
    def settings() -> list[Any]:
        return [
            torch.are_deterministic_algorithms_enabled(),
            torch.get_rng_state().tolist(),
            torch.get_num_threads(),
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
        ]

    before = settings()
    train(precision="bf16").run(tmp_path / "state", "run", Stop())
    assert settings() == before


# The recipe.


@given(
    epochs=st.integers(1, 30),
    steps=st.integers(1, 50),
    warmup=st.floats(0, 1),
)
def test_rates_rise_once_and_fall_once_and_are_never_zero(
    epochs: int, steps: int, warmup: float
) -> None:
    recipe = Recipe(epochs=epochs, warmup=warmup * epochs)
    factors = [recipe.factor(step, steps) for step in range(epochs * steps)]
    assert all(0 < factor <= 1 for factor in factors)
    top = factors.index(max(factors))
    assert factors[: top + 1] == sorted(factors[: top + 1])
    assert factors[top:] == sorted(factors[top:], reverse=True)


def test_the_rate_is_a_linear_warm_up_and_a_cosine() -> None:
    recipe = Recipe(epochs=5, warmup=1)
    found = [recipe.factor(step, 4) for step in range(20)]
    assert found[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    expected = [0.5 * (1 + math.cos(math.pi * n / 16)) for n in range(16)]
    assert found[4:] == pytest.approx(expected)


def test_precision_is_resolved_for_the_device() -> None:
    cpu = torch.device("cpu")
    assert [resolve_precision(name, cpu) for name in ("auto", "fp32", "bf16")] == [
        "fp32",
        "fp32",
        "bf16",
    ]
    with pytest.raises(UsageError, match="fp16 is for CUDA alone; use fp32 or bf16 on cpu"):
        resolve_precision("fp16", cpu)


# What it begins with.


def test_everything_but_the_output_layer_is_taken_over() -> None:
    space = load_label_space("imagenet-a")
    start = prepare("lite/efficientnet_lite0", space, seed=1)
    trained = load_classifier("lite/efficientnet_lite0")
    ours, theirs = start.classifier.module.state_dict(), trained.module.state_dict()
    assert start.head == {"classifier.weight", "classifier.bias"}
    for key in ours.keys() - start.head:
        assert torch.equal(ours[key], theirs[key]), key
    assert ours["classifier.weight"].shape == (200, 1280)
    assert float(ours["classifier.weight"].std()) == pytest.approx(0.01, rel=0.02)
    assert not ours["classifier.bias"].any()
    assert start.record["fingerprint"] == trained.fingerprint
    assert start.classifier.preprocessing == trained.preprocessing
    again = prepare("lite/efficientnet_lite0", space, seed=1).classifier.module.state_dict()
    other = prepare("lite/efficientnet_lite0", space, seed=2).classifier.module.state_dict()
    assert torch.equal(ours["classifier.weight"], again["classifier.weight"])
    assert not torch.equal(ours["classifier.weight"], other["classifier.weight"])


def test_as_many_classes_as_before_still_get_a_new_layer() -> None:
    start = prepare("lite/efficientnet_lite0", load_label_space("imagenet-1k"))
    assert start.head == {"classifier.weight", "classifier.bias"}
    assert float(start.classifier.module.classifier.weight.detach().std()) == pytest.approx(
        0.01, rel=0.02
    )


@pytest.mark.parametrize(
    ("model", "head"),
    [
        (NET, {"fc.weight", "fc.bias"}),
        ("torchvision/mobilenet_v3_small", {"classifier.3.weight", "classifier.3.bias"}),
        ("torchvision/squeezenet1_1", {"classifier.1.weight", "classifier.1.bias"}),
        ("timm/test_vit", {"head.weight", "head.bias"}),
    ],
)
def test_the_output_layer_of_any_network_is_found(model: str, head: set[str]) -> None:
    assert prepare(model, THREE, init="none").head == head


def test_another_view_keeps_the_ratio_of_the_short_side() -> None:
    start = prepare(NET, THREE, init="none", image_size=112)
    its = start.classifier.preprocessing
    assert (its.recipe.resize, its.recipe.crop) == (128, 112)
    assert its.source.endswith(", at 112 pixels")


def test_a_network_that_does_not_take_such_views_is_refused() -> None:
    with pytest.raises(WeightsError, match="does not take views of 64 pixels a side"):
        prepare("torchvision/vit_b_32", THREE, init="none", image_size=64)


# Which photos are measured on.


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    share=st.floats(0, 0.99),
    seed=st.integers(0, 9),
)
def test_a_split_takes_from_each_class_and_leaves_it_a_photo(
    sizes: list[int], share: float, seed: int
) -> None:
    photos = [
        Photo(Path(f"{target}-{n}"), f"{target}-{n}", target)
        for target, many in enumerate(sizes)
        for n in range(many)
    ]
    learned, measured = split(photos, share, seed)
    assert sorted(map(str, [*learned, *measured])) == sorted(map(str, photos))
    for target, many in enumerate(sizes):
        taken = sum(photo.target == target for photo in measured)
        assert taken < many
        assert abs(taken - share * many) <= 1
        assert (taken > 0) == (share > 0 and many > 1)
    # What is chosen depends on the contents alone.
    backwards = split(photos[::-1], share, seed)
    assert set(backwards[1]) == set(measured)
