"""What the published implementation made of one image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from curate.corruptions import EXTRA_NAMES, NAMES, SEVERITIES, corrupt
from curate.corruptions.catalogue import BUILT_IN

#: Layouts that are random, so that a published value is one of widely spread ones.
LAYOUTS = frozenset({"glass_blur", "motion_blur", "snow", "fog", "spatter", "elastic_transform"})
SEEDS = 6

#: Frost is drawn here: another frost than the published pictures'.
COMPARED = tuple(name for name in (*NAMES, *EXTRA_NAMES) if name != "frost")


@pytest.fixture(scope="module")
def truth(shared_data: Path) -> tuple[Any, Any]:
    with Image.open(shared_data / "corruption_image.png") as opened:
        image = np.array(opened.convert("RGB"))
    return image, json.loads((shared_data / "corruption_stats.json").read_text())["outputs"]


@pytest.mark.photos
@pytest.mark.parametrize("name", COMPARED)
def test_the_published_outputs_have_these_statistics(name: str, truth: tuple[Any, Any]) -> None:
    image, told = truth
    for severity in SEVERITIES:
        expected = told[f"{name}.{severity}"]
        seeds = range(SEEDS if name in LAYOUTS else 2 if BUILT_IN[name].is_random else 1)
        made = [corrupt(image, name, severity, seed).astype(float) for seed in seeds]
        away = np.array([np.abs(one - image).mean() for one in made])
        if name in LAYOUTS:
            # One published layout among those that are drawn here.
            spread = 4 * away.std(ddof=1) / away.mean()
            assert away.mean() == pytest.approx(expected["mean_abs_diff"], rel=0.25 + spread)
        elif name == "impulse_noise":
            # Of few values: the published sample itself is this far off its own mean.
            assert away.mean() == pytest.approx(expected["mean_abs_diff"], rel=0.05)
        else:
            assert away.mean() == pytest.approx(expected["mean_abs_diff"], rel=0.012)
            assert np.mean(made) == pytest.approx(expected["mean"], abs=0.5)
            assert np.std(made[0]) == pytest.approx(expected["std"], abs=0.5)
