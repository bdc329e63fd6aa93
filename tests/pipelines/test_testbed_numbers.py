"""What is counted of a testbed run: images that cannot be read are nobody's fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta
from sklearn.metrics import average_precision_score

from curate.errors import UsageError
from curate.labels.space import load_label_space
from curate.release.layout import LabelledImage, Layout
from curate.testbed.predictions import Predictions
from curate.testbed.setting import Part
from pipelines.testbed_numbers import confidence_level, number, numbers

SPACE = load_label_space("imagenet-1k")
RIGHT, WRONG = SPACE.wnids[0], SPACE.wnids[1]


def told(part: Part, answers: list[str]) -> Predictions:
    """Of each image "right", "wrong", or why there is no answer."""
    known = {"right": RIGHT, "wrong": WRONG}
    return Predictions(
        [part.layout.relative(item) for item in part.layout],
        [item.wnid for item in part.layout],
        [known.get(answer) for answer in answers],
        np.array([0.5 if answer in known else np.nan for answer in answers]),
        failed={row: answer for row, answer in enumerate(answers) if answer not in known},
        outputs=1000,
    )


def part(count: int, neighbours: dict[int, tuple[int, ...]] | None = None) -> Part:
    root = Path("clips")
    items = tuple(LabelledImage(root / f"{row}.jpg", RIGHT) for row in range(count))
    return Part("set", Layout(root, items), SPACE, ((RIGHT,),) * count, neighbours=neighbours)


def test_intervals_are_at_the_level_that_is_told() -> None:
    one = number("val", 0.76, images=200)
    tail = (1 - confidence_level()) / 2
    assert one["low"] == pytest.approx(100 * beta.ppf(tail, 152, 49))
    assert one["high"] == pytest.approx(100 * beta.isf(tail, 153, 48))
    assert confidence_level() == 0.995


def test_what_cannot_be_read_is_left_out_and_what_a_model_spoils_is_wrong() -> None:
    one = part(4)
    (found,) = numbers([one], {0: told(one, ["right", "wrong", "truncated", "nan-logits"])}, {})
    assert (found["value"], found["images"], found["failed"]) == (pytest.approx(100 / 3), 3, 1)


@given(st.lists(st.sampled_from(["right", "wrong", "truncated"]), min_size=9, max_size=9))
def test_frames_that_cannot_be_read_are_left_out_of_both_numbers(answers: list[str]) -> None:
    near = {0: (1, 2), 3: (4, 5), 6: (7,), 8: ()}
    one = part(9, near)
    anchors = [row for row in near if answers[row] != "truncated"]
    if not anchors:
        if set(answers) != {"truncated"}:
            with pytest.raises(UsageError, match="none of 4 anchors can be read"):
                numbers([one], {0: told(one, answers)}, {})
        return
    pm0, pm10 = numbers([one], {0: told(one, answers)}, {})
    right = [answers[row] == "right" for row in anchors]
    around = [{answers[frame] for frame in near[row]} for row in anchors]
    held = [
        is_right and "wrong" not in frames for is_right, frames in zip(right, around, strict=True)
    ]
    assert pm0["images"] == pm10["images"] == len(anchors)
    assert pm0["value"] == pytest.approx(100 * np.mean(right))
    assert pm10["value"] == pytest.approx(100 * np.mean(held))
    assert pm10["value"] <= pm0["value"]
    assert pm0["failed"] == answers.count("truncated")


@given(st.lists(st.sampled_from([0.2, 0.5, 0.9, np.nan]), min_size=4, max_size=9))
def test_something_else_is_to_be_answered_with_less_confidence(confidences: list[float]) -> None:
    inside, count = part(3), len(confidences)
    outside = replace(part(count), right=((),) * count, inside=inside)
    said = replace(told(outside, ["right"] * count), confidence=np.array(confidences))
    said = replace(said, failed={r: "nan-logits" for r, c in enumerate(confidences) if np.isnan(c)})
    known = replace(told(inside, ["right"] * 3), confidence=np.array([0.6, 0.8, 0.7]))
    sound = [one for one in confidences if not np.isnan(one)]
    if not sound:
        return
    (found,) = numbers([outside], {0: said}, {0: known})
    scores = [-one for one in (*sound, 0.6, 0.8, 0.7)]
    truth = [1] * len(sound) + [0] * 3
    assert found["value"] == pytest.approx(100 * average_precision_score(truth, scores))
    assert (found["measure"], found["failed"]) == ("aupr", count - len(sound))


def test_a_set_of_which_nothing_can_be_read_gives_no_number() -> None:
    one = part(2)
    with pytest.raises(UsageError, match="set: none of 2 images of clips gave a prediction; .*cut"):
        numbers([one], {0: told(one, ["cut", "cut"])}, {})
