"""The attacks against another implementation: what they promise, and that they are as strong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import foolbox
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.testbed.attacks import PUBLISHED, SIDE, Attack, attacked, published

_SIDE, _CLASSES = 8, 5


def network(seed: int = 0) -> Any:
    """A small network that is not linear."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 6, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(6 * _SIDE * _SIDE, _CLASSES),
        ).eval()


def pictures(count: int, seed: int = 1) -> Any:
    return torch.rand(count, 3, _SIDE, _SIDE, generator=torch.Generator().manual_seed(seed))


def own_classes(net: Any, some: Any) -> list[list[int]]:
    """What a network says is true, so that every picture is right before the attack."""
    return [[int(one)] for one in net(some).argmax(1)]


def share_right(net: Any, some: Any, truth: list[list[int]]) -> float:
    told = net(some).argmax(1)
    return float(np.mean([int(one) in right for one, right in zip(told, truth, strict=True)]))


def keys(count: int) -> list[str]:
    return [f"picture {number}" for number in range(count)]


def lengths(delta: Any, norm: str) -> Any:
    flat = delta.flatten(1)
    return flat.abs().amax(1) if norm == "linf" else flat.norm(dim=1)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["linf", "l2"]),
    st.floats(0.0, 1.5),
    st.floats(0.0, 3.0),
    st.integers(1, 4),
    st.integers(0, 99),
)
def test_the_perturbation_stays_in_the_ball_and_among_pixels(
    norm: Any, size: float, step: float, steps: int, seed: int
) -> None:
    net, some = network(), pictures(3, seed)
    truth = own_classes(net, some)
    attack = Attack(norm, size, step, steps, seed)
    moved = attacked(net, some, truth, attack, keys(3))
    radius = size * (_SIDE / SIDE if norm == "l2" else 1.0)
    assert float(lengths(moved - some, norm).max()) <= radius + 1e-5
    assert float(moved.min()) >= 0.0
    assert float(moved.max()) <= 1.0


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_it_begins_anywhere_in_the_ball(norm: Any) -> None:
    net, some = network(), 0.3 + 0.4 * pictures(20)
    size = 0.01 * (SIDE / _SIDE if norm == "l2" else 1.0)
    still = attacked(net, some, own_classes(net, some), Attack(norm, size, 0.0, 1), keys(20)) - some
    assert float(lengths(still, norm).min()) > 0.9 * 0.01
    if norm == "linf":
        assert float(still.abs().mean()) == pytest.approx(0.005, rel=0.1)
        assert float(still.mean()) == pytest.approx(0.0, abs=0.001)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_accuracy_falls_with_the_size_of_the_ball(norm: Any) -> None:
    net, some = network(), pictures(60)
    truth = own_classes(net, some)
    unit = 0.004 if norm == "linf" else 0.04 * SIDE / _SIDE
    found = []
    for size in (0.0, 1.0, 2.0, 4.0, 16.0):
        step = size * unit / 4 * (_SIDE / SIDE if norm == "l2" else 1.0)
        attack = Attack(norm, size * unit, step, 20)
        moved = attacked(net, some, truth, attack, keys(60))
        found.append(share_right(net, moved, truth))
    assert found[0] == 1.0
    assert found == sorted(found, reverse=True)
    assert found[1] > found[3] > found[4]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_it_is_as_strong_as_the_attack_of_another_library(norm: Any) -> None:
    net, some = network(2), pictures(80, 3)
    truth = own_classes(net, some)
    size = 0.012 if norm == "linf" else 0.12
    # Another library knows no size of pictures.
    unit = 1.0 if norm == "linf" else SIDE / _SIDE
    mine = Attack(norm, size * unit, size / 10, 40)
    moved = attacked(net, some, truth, mine, keys(80))
    kind: Callable[..., Any] = {
        "linf": foolbox.attacks.LinfPGD,
        "l2": foolbox.attacks.L2PGD,
    }[norm]
    other = kind(abs_stepsize=size / 10, steps=40, random_start=True)
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        labels = torch.tensor([one for (one,) in truth])
        _, theirs, _ = other(model, some, labels, epsilons=size)
    ours, found = share_right(net, moved, truth), share_right(net, theirs, truth)
    assert 0.1 < found < 0.9
    assert ours == pytest.approx(found, abs=0.05)


def test_a_picture_that_is_wrong_already_is_left_alone() -> None:
    net, some = network(), pictures(4)
    truth = own_classes(net, some)
    truth[2] = [(truth[2][0] + 1) % _CLASSES]
    moved = attacked(net, some, truth, Attack("linf", 0.1, 0.02, 5), keys(4))
    assert torch.equal(moved[2], some[2])
    assert not torch.equal(moved[0], some[0])


def test_any_of_the_classes_that_count_as_right_keeps_a_picture_right() -> None:
    net, some = network(), pictures(40)
    truth = own_classes(net, some)
    wide = [[*one, (one[0] + 1) % _CLASSES, (one[0] + 2) % _CLASSES] for one in truth]
    attack = Attack("linf", 0.015, 0.003, 20)
    narrow = share_right(net, attacked(net, some, truth, attack, keys(40)), truth)
    assert share_right(net, attacked(net, some, wide, attack, keys(40)), wide) > narrow


def test_a_picture_fares_the_same_whatever_stands_beside_it() -> None:
    net, some = network(), pictures(6)
    truth = own_classes(net, some)
    attack = Attack("l2", 0.5, 0.1, 5)
    whole = attacked(net, some, truth, attack, keys(6))
    alone = attacked(net, some[4:5], truth[4:5], attack, keys(6)[4:5])
    assert torch.allclose(whole[4:5], alone, atol=1e-6)
    other = attacked(net, some, truth, Attack("l2", 0.5, 0.1, 5, seed=1), keys(6))
    assert not torch.allclose(whole, other, atol=1e-6)


def test_a_network_keeps_no_gradient_and_the_pictures_stay_what_they_were() -> None:
    net, some = network(), pictures(4)
    before = some.clone()
    with torch.no_grad():
        attacked(net, some, own_classes(net, some), Attack("linf", 0.1, 0.02, 3), keys(4))
    assert torch.equal(some, before)
    assert all(one.grad is None for one in net.parameters())


def test_the_published_attacks_have_the_published_numbers() -> None:
    found = {name: published(name) for name in PUBLISHED}
    assert all(one.steps == 100 for one in found.values())
    told = {
        "pgd.linf.eps0.5": (0.001960784314, 5.88235294117647e-05),
        "pgd.linf.eps2": (0.007843137255, 0.0002352941176470588),
        "pgd.l2.eps0.1": (0.1, 0.01),
        "pgd.l2.eps0.5": (0.5, 0.05),
    }
    for name, one in found.items():
        assert (one.size, one.step) == pytest.approx(told[name], rel=1e-9)
    few = published("pgd.linf.eps2", 10)
    assert few.step * few.steps == pytest.approx(found["pgd.linf.eps2"].step * 100)
    assert published("pgd.l2.eps0.5", 5).step == 0.5


def test_what_is_no_attack_is_refused() -> None:
    with pytest.raises(ValueError, match="norm is 'l1'"):
        Attack("l1", 0.1, 0.1)  # type: ignore[arg-type]
    for size, step, steps in ((-1, 0.1, 1), (0.1, float("nan"), 1), (0.1, 0.1, 0)):
        with pytest.raises(ValueError, match="an attack needs"):
            Attack("l2", size, step, steps)
