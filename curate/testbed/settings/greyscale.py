"""Validation images without their colour, as the published testbed has them.

Grey is made of the whole photo, before it is resized and cut: both only mix pixels, so that the
order makes no difference but for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from curate.testbed.corruption_errors import SEVERITIES
from curate.testbed.setting import Asked, Part, Setting
from curate.testbed.settings.validation import opens as clean


def opens(asked: Asked) -> Sequence[Part]:
    """At the last severity, where nothing of the colour is left."""
    (base,) = clean(asked)
    return [replace(base, name=asked.name, corruption=("greyscale", SEVERITIES[-1]))]


SETTING = Setting(("greyscale",), "validation images without colour", opens)
