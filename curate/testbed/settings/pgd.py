"""The four attacks of the testbed, on validation images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from curate.testbed.attacks import PUBLISHED, STEPS, published
from curate.testbed.setting import Asked, Part, Setting
from curate.testbed.settings.validation import opens as clean


def opens(asked: Asked) -> Sequence[Part]:
    """Another number of steps than the published one stands in the column's name."""
    (base,) = clean(asked)
    name = asked.name if asked.steps == STEPS else f"{asked.name}.steps{asked.steps}"
    return [replace(base, name=name, attack=published(asked.name, asked.steps))]


SETTING = Setting(tuple(PUBLISHED), "an attack on validation images", opens)
