from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.metrics.corruption import IMAGENET_C
from curate.testbed.corruption_errors import (
    SEVERITIES,
    Table,
    error_table,
    is_chance,
    shape_of,
    try_corruptions,
)
from curate.testbed.corruption_means import (
    Baseline,
    Conditions,
    alexnet,
    means,
    why_not_published,
)
from curate.testbed.corruption_text import text_table


def row(*accuracies: float) -> dict[int, float]:
    return dict(zip(SEVERITIES, accuracies, strict=True))


@pytest.mark.parametrize(
    ("accuracies", "shape"),
    [
        ((0.75, 0.75, 0.74, 0.73, 0.70), ("steady", None)),
        ((0.60, 0.50, 0.34, 0.19, 0.07), ("slope", None)),
        ((0.74, 0.72, 0.69, 0.65, 0.59), ("slope", None)),
        ((0.75, 0.74, 0.73, 0.40, 0.10), ("cliff", 3)),
        ((0.75, 0.74, 0.30, 0.28, 0.27), ("cliff", 2)),
        # One step is no plateau: there is no range where the model works.
        ((0.75, 0.20, 0.19, 0.18, 0.17), ("slope", None)),
        # A lucky and an unlucky severity are averaged with their neighbours.
        ((0.75, 0.75, 0.60, 0.75, 0.75), ("steady", None)),
        ((0.50, 0.30, 0.10, 0.05, 0.40), ("slope", None)),
        ((0.80, 0.80, 0.80, 0.80, 0.80), ("steady", None)),
    ],
)
def test_the_shape_of_a_row(accuracies: tuple[float, ...], shape: tuple[str, int | None]) -> None:
    assert shape_of(0.76, row(*accuracies), 1000) == shape


def test_no_shape_without_all_severities_or_above_chance() -> None:
    assert shape_of(0.76, {1: 0.7, 3: 0.5, 5: 0.2}, 1000) == (None, None)
    assert shape_of(0.5, row(0.5, 0.5, 0.5, 0.5, 0.5), 2) == (None, None)
    # Two of twenty right may be guessing among five: what they lose has no shape.
    table = error_table(0.1, {"fog": row(0, 0, 0, 0, 0)}, 5, {"fog": row(*[20] * 5)}, 20)
    assert table.rows[0].shape is None


@settings(deadline=None, max_examples=50)
@given(
    clean=st.floats(0.3, 1),
    accuracies=st.lists(st.floats(0, 1), min_size=5, max_size=5),
    classes=st.integers(4, 1000),
)
def test_a_shape_is_told_of_every_row_and_worse_rows_are_not_steady(
    clean: float, accuracies: list[float], classes: int
) -> None:
    shape, edge = shape_of(clean, row(*accuracies), classes)
    assert (shape == "cliff") == (edge is not None)
    if min(accuracies) >= clean:
        assert shape == "steady"
    if max(accuracies) < clean - 0.5 * (clean - 1 / classes):
        assert shape != "steady"


def test_near_chance_is_what_the_interval_does_not_part_from_guessing() -> None:
    assert is_chance(0.32, 3)
    assert is_chance(0.0, 1000)
    assert not is_chance(0.4, 3)
    assert is_chance(0.4, 3, 30)
    assert not is_chance(0.407, 3, 300)
    assert not is_chance(0.5, 1000, 20)


def test_a_table_keeps_its_rows_and_their_order() -> None:
    accuracies = {"fog": row(0.7, 0.6, 0.5, 0.4, 0.3), "own": {5: 0.2, 1: 0.6}}
    table = error_table(0.75, accuracies, 4)
    fog, own = table.rows
    assert fog.mean_error == pytest.approx(0.5)
    assert fog.relative == pytest.approx(2.0)
    assert own.accuracies == {1: 0.6, 5: 0.2}
    assert list(own.accuracies) == [1, 5]
    assert own.mean_error == pytest.approx(0.6)
    assert own.near_chance == (5,)
    assert own.floor_from == 5
    assert table.mean_relative == pytest.approx(np.mean([2.0, 2.4]))
    lines = text_table(table)
    assert lines[0] == "clean accuracy 0.750  (error 0.250)"
    assert lines[3].split()[:7] == ["own", "0.600", "–", "–", "–", "0.200*", "0.600"]
    assert lines[-1].startswith("* cannot be told from guessing among 4 classes (chance 0.25)")


def test_few_images_leave_more_of_a_row_near_chance() -> None:
    accuracies = {"fog": row(0.7, 0.6, 0.5, 0.4, 0.35)}
    marks = [
        error_table(0.75, accuracies, 4, {"fog": dict.fromkeys(SEVERITIES, n)}, n).rows[0]
        for n in (20, 200, 20_000)
    ]
    assert [one.near_chance for one in marks] == [(4, 5), (), ()]
    assert [one.floor_from for one in marks] == [4, None, None]
    few = error_table(0.4, accuracies, 4, None, 20).rows[0]
    assert few.shape is None, "a clean accuracy that may be guessing has nothing to lose"


def test_a_model_without_a_clean_error_has_no_relative_one() -> None:
    table = error_table(1.0, {"fog": row(1, 1, 1, 1, 0.5)}, 4)
    assert table.rows[0].relative is None
    assert table.mean_relative is None
    assert error_table(None, {"fog": {3: 0.5}}, 4).rows[0].relative is None


@pytest.mark.parametrize(
    ("clean", "accuracies", "classes", "told"),
    [
        (0.5, {"fog": {}}, 4, "no severity"),
        (0.5, {"fog": {6: 0.5}}, 4, "severity 6"),
        (0.5, {"fog": {1: float("nan")}}, 4, "'fog' at severity 1"),
        (1.5, {"fog": {1: 0.5}}, 4, "clean"),
        (0.5, {"fog": {1: 0.5}}, 1, "two classes"),
    ],
)
def test_a_wrong_table_is_refused(
    clean: float, accuracies: dict[str, dict[int, float]], classes: int, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        error_table(clean, accuracies, classes)


def test_any_model_and_corruptions_give_the_table_of_their_accuracies() -> None:
    labels = np.arange(100) % 4
    calls = []

    def shift(images: np.ndarray, severity: int) -> np.ndarray:
        calls.append(severity)
        return np.where(np.arange(100) < 10 * severity, images + 1, images)

    table = try_corruptions(lambda x: x % 4, labels, labels, {"shift": shift}, classes=4)
    assert calls == [1, 2, 3, 4, 5]
    assert table.clean == 1.0
    assert list(table.rows[0].accuracies.values()) == [0.9, 0.8, 0.7, 0.6, 0.5]
    with pytest.raises(ValueError, match=r"gives \(3,\) predictions for \(100,\)"):
        try_corruptions(lambda _: np.zeros(3), labels, labels, {}, classes=4)
    with pytest.raises(ValueError, match="at least one item"):
        try_corruptions(lambda x: x, [], [], {}, classes=4)


# --- mCE ---------------------------------------------------------------------------------------

PUBLISHED = Conditions(
    outputs=1000,
    is_imagenet_1k=True,
    images=50_000,
    is_validation=True,
    on_disk=True,
    is_cut_before=False,
    is_jpeg=False,
    frost="published",
)


def fifteen(error: float, clean: float = 0.8) -> Table:
    return error_table(clean, {name: row(*[1 - error] * 5) for name in IMAGENET_C}, 1000)


def changed(**values: object) -> Conditions:
    return Conditions(**{**PUBLISHED.__dict__, **values})  # type: ignore[arg-type]


def test_alexnet_against_itself_is_one_hundred() -> None:
    table = error_table(
        1 - 0.4348, {c: row(*[1 - e for e in es]) for c, es in alexnet().errors.items()}, 1000
    )
    found = means(table, PUBLISHED, None)
    assert found.called == "mCE"
    assert found.is_mce
    assert found.mean == pytest.approx(100)
    assert found.relative == pytest.approx(100)
    assert set(found.ce) == set(IMAGENET_C)


def test_alexnets_means_are_the_published_ones() -> None:
    assert np.mean(alexnet().errors["gaussian_noise"]) == pytest.approx(0.886428)
    assert np.mean(alexnet().errors["jpeg_compression"]) == pytest.approx(0.6065)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"images": 20}, "20 images, not 50,000"),
        ({"is_imagenet_1k": False, "outputs": 200}, "not the 1,000 classes"),
        ({"is_validation": False}, "not ImageNet's validation set"),
        ({"failed": 2}, "failed in 2 settings"),
        ({"on_disk": False, "is_jpeg": True}, "--at crop --views paper"),
        ({"on_disk": False, "is_cut_before": True}, "--jpeg"),
        (
            {"on_disk": False, "is_cut_before": True, "is_jpeg": True, "frost": "procedural"},
            "procedural",
        ),
    ],
)
def test_alexnets_published_errors_serve_only_where_they_mean_something(
    values: dict[str, object], told: str
) -> None:
    conditions = changed(**values)
    (reason,) = [one for one in why_not_published(conditions) if told in one]
    found = means(fifteen(0.5), conditions, None)
    assert found.mean is None
    assert found.relative is None
    assert not found.is_mce
    assert reason in str(found.note)
    assert "--baseline" in str(found.note)


def test_the_validation_images_treated_as_published_serve_too() -> None:
    conditions = changed(on_disk=False, is_cut_before=True, is_jpeg=True)
    assert why_not_published(conditions) == []


def test_no_mean_without_all_fifteen_at_five_severities() -> None:
    table = error_table(0.8, {"fog": row(*[0.5] * 5)}, 1000)
    assert "14 are absent, the first is gaussian_noise" in str(means(table, PUBLISHED, None).note)
    some = {name: {1: 0.5} for name in IMAGENET_C}
    told = str(means(error_table(0.8, some, 1000), PUBLISHED, None).note)
    assert "gaussian_noise lacks severity 2" in told


def test_a_baseline_is_named_and_with_procedural_frost_it_is_no_mce() -> None:
    base = Baseline("alex", {name: [0.8] * 5 for name in IMAGENET_C}, 0.3, "the same pipeline")
    conditions = changed(images=20, on_disk=False, frost="procedural")
    found = means(fifteen(0.4), conditions, base)
    assert found.mean == pytest.approx(50)
    assert found.relative == pytest.approx(100 * 0.2 / 0.5)
    assert list(found.relative_ce) == list(IMAGENET_C)
    assert np.mean(list(found.relative_ce.values())) == pytest.approx(found.relative)
    assert not found.is_mce
    assert found.called == "mean corruption error against alex, procedural frost"
    real = means(fifteen(0.4), changed(images=20, on_disk=False), base)
    assert real.called == "mCE against alex"


def test_a_baseline_without_errors_gives_no_ratio_and_says_why() -> None:
    perfect = Baseline("perfect", {name: [0.0] * 5 for name in IMAGENET_C}, 0.0, "")
    found = means(fifteen(0.4), PUBLISHED, perfect)
    assert found.mean is None
    assert "makes no error" in str(found.note)
    flat = Baseline("flat", {name: [0.3] * 5 for name in IMAGENET_C}, 0.3, "")
    found = means(fifteen(0.4), PUBLISHED, flat)
    assert found.mean is not None
    assert found.relative is None
    assert found.relative_ce == {}
    assert "no relative one" in str(found.note)


def test_the_printed_table_has_the_ratios_there_are() -> None:
    table = error_table(0.8, {"fog": row(*[0.6] * 5), "snow": row(*[0.5] * 5)}, 1000)
    head, fog, snow = text_table(table, ce={"fog": 50.0})[1:4]
    assert head.split()[-2:] == ["CE", "shape"]
    assert fog.split()[8] == "50.0"
    assert snow.split()[8] == "–"
    assert "CE" not in text_table(table)[1].split()


@pytest.mark.parametrize("name", ["fog", "gaussian_noise", "mine"])
def test_a_row_has_its_ratio_without_the_other_fifteen(name: str) -> None:
    base = Baseline("base", {name: [0.8] * 5}, 0.3, "the same pipeline")
    found = means(error_table(0.8, {name: row(*[0.6] * 5)}, 1000), PUBLISHED, base)
    assert (found.mean, found.relative, found.is_mce) == (None, None, False)
    assert found.ce == {name: pytest.approx(50)}
    assert found.relative_ce == {name: pytest.approx(40)}
    assert found.baseline == "base"
    assert "CE of a row is against base" in str(found.note)


def test_alexnet_serves_a_row_on_its_own_images_and_no_others() -> None:
    table = error_table(0.8, {"fog": row(*[0.5] * 5)}, 1000)
    found = means(table, PUBLISHED, None)
    assert found.ce == {"fog": pytest.approx(50 / np.mean(alexnet().errors["fog"]))}
    assert found.mean is None
    assert means(table, changed(images=20), None).ce == {}


@pytest.mark.parametrize("faultless", IMAGENET_C)
def test_one_row_without_a_ratio_takes_none_from_the_others(faultless: str) -> None:
    others = [name for name in IMAGENET_C if name != faultless]
    errors = {name: [0.8] * 5 for name in IMAGENET_C}
    found = means(fifteen(0.4), PUBLISHED, Baseline("b", {**errors, faultless: [0.0] * 5}, 0.0, ""))
    assert found.mean is None
    assert f"baseline['{faultless}'] makes no error" in str(found.note)
    assert found.ce == {name: pytest.approx(50) for name in others}
    found = means(fifteen(0.4), PUBLISHED, Baseline("b", {**errors, faultless: [0.1] * 5}, 0.3, ""))
    assert found.mean is not None
    assert found.relative is None
    assert found.relative_ce == {name: pytest.approx(40) for name in others}


def test_a_severity_alone_has_no_ratio() -> None:
    base = Baseline("base", {"fog": [0.8] * 5}, 0.3, "")
    found = means(error_table(0.8, {"fog": {3: 0.5}}, 1000), PUBLISHED, base)
    assert (found.ce, found.relative_ce, found.baseline) == ({}, {}, None)
