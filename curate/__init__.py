"""Build natural adversarial image sets: real, unmodified photos that today's classifiers get wrong.

Names are loaded when they are first used, so that `import curate` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from curate._version import __version__

if TYPE_CHECKING:
    from curate import corruptions, metrics
    from curate.corruptions.apply import corrupt
    from curate.filtration.api import FilterResult, filter_images
    from curate.labels.space import LabelSpace, load_label_space
    from curate.models.classifier import Classifier
    from curate.models.ensemble import Ensemble
    from curate.models.zoo import load_classifier

#: Public name to the module that holds it; None for a module itself.
_HOMES = {
    "Classifier": "curate.models.classifier",
    "Ensemble": "curate.models.ensemble",
    "FilterResult": "curate.filtration.api",
    "LabelSpace": "curate.labels.space",
    "corrupt": "curate.corruptions.apply",
    "corruptions": None,
    "filter_images": "curate.filtration.api",
    "load_classifier": "curate.models.zoo",
    "load_label_space": "curate.labels.space",
    "metrics": None,
}

__all__ = [
    "Classifier",
    "Ensemble",
    "FilterResult",
    "LabelSpace",
    "__version__",
    "corrupt",
    "corruptions",
    "filter_images",
    "load_classifier",
    "load_label_space",
    "metrics",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'curate' has no attribute {name!r}")
    home = _HOMES[name]
    value = (
        importlib.import_module(f"curate.{name}")
        if home is None
        else getattr(importlib.import_module(home), name)
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
