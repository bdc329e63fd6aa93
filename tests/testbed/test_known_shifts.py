"""What plots call the columns of a table."""

from __future__ import annotations

from pathlib import Path

from curate.testbed.known_settings import SETTINGS, Settings
from curate.testbed.known_shifts import known_testbed
from tests.testbed.test_known_settings import WNIDS, touch


def test_columns_of_a_run_have_names_that_people_read() -> None:
    known = known_testbed()
    told = {
        "imagenet-c.jpeg_compression.mean5_in-memory": "JPEG compression, in memory",
        "imagenet-c.fog.3_in-memory": "Fog 3, in memory",
        "imagenet-c.fog.3_on-disk": "Fog 3",
        "imagenet-c.fog.mean5_on-disk": "Fog",
        "pgd.linf.eps0.5.steps10": "PGD, l∞, 0.5/255, 10 steps",
        "pgd.l2.eps0.5": "PGD, l2, 0.5",
    }
    assert known.run_labels([*told, "val", "mine", "pgd.mine.steps3"]) == told


def test_every_corruption_and_attack_that_a_run_may_have_is_called_something(
    tmp_path: Path,
) -> None:
    val = touch(tmp_path / "val", f"{WNIDS[0]}/x.jpg")
    for setting in SETTINGS:
        names = [one for one in setting.names if one.startswith(("imagenet-c.", "pgd."))]
        parts = Settings([(name, val) for name in names if name.count(".") > 1], steps=7).parts()
        columns = {part.name for part in parts}
        assert set(known_testbed().run_labels(columns)) == columns
