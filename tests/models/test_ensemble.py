from __future__ import annotations

from collections.abc import Callable

import pytest

from curate.errors import LabelSpaceError, UnknownNameError, UsageError, WeightsError
from curate.labels.space import load_label_space
from curate.models import Classifier, Ensemble

pytestmark = pytest.mark.usefixtures("one_thread")

Toy = Callable[..., Classifier]


def test_the_order_is_the_users(toy: Toy) -> None:
    one, other = toy(seed=1, name="one"), toy(seed=2, name="other")
    assert [c.name for c in Ensemble([other, one])] == ["other", "one"]
    assert Ensemble([other, one])[0] is other
    assert len(Ensemble([other, one])) == 2


def test_names_are_loaded() -> None:
    ensemble = Ensemble(["lite/efficientnet_lite0", "lite/efficientnet_lite1"], "imagenet-a")
    columns = ensemble.check(load_label_space("imagenet-a"), side=224)
    assert [len(c) for c in columns] == [200, 200]
    assert [r["fingerprint"][:8] for r in ensemble.record()] == ["57934424", "77cc7160"]


def test_an_empty_ensemble_and_a_bare_name_are_refused() -> None:
    with pytest.raises(UsageError, match="one model or more"):
        Ensemble([])
    with pytest.raises(UsageError, match="one model or more"):
        Ensemble("lite/efficientnet_lite0")


def test_the_same_weights_twice_are_refused_under_whatever_names(toy: Toy) -> None:
    one = toy(name="one")
    with pytest.raises(UsageError, match="same classifier twice"):
        Ensemble([one, one])
    with pytest.raises(UsageError, match=r"\(one and other, weights"):
        Ensemble([one, toy(name="other")])


def test_an_output_that_does_not_fit_is_refused_before_the_first_image(toy: Toy) -> None:
    space = load_label_space("imagenet-a")
    small = toy(outputs=200, output=load_label_space("imagenet-o"), name="small")
    with pytest.raises(LabelSpaceError, match=r"^small: "):
        Ensemble([toy(), small]).check(space)


def test_views_that_a_member_does_not_take_are_refused_before_the_first_image(toy: Toy) -> None:
    ensemble = Ensemble([toy(), toy(seed=1, name="other")])
    ensemble.check(load_label_space("imagenet-a"), side=224)
    with pytest.raises(WeightsError, match="views of 2 pixels"):
        ensemble.check(load_label_space("imagenet-a"), side=2)


def test_an_unknown_member_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean lite/efficientnet_lite0"):
        Ensemble(["lite/eficientnet_lite0"])
