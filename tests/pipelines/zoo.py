"""Classifiers of the zoo that are loaded once, for tests that evaluate one many times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from curate.models import zoo
from curate.models.classifier import Classifier

_LOADED: dict[str, Classifier] = {}


@contextmanager
def loaded_once() -> Iterator[None]:
    """Meanwhile each model is loaded once in this process, whatever label space it shall serve."""
    load = zoo.load_classifier

    def kept(name: str, space: Any = None, **options: Any) -> Classifier:
        if name not in _LOADED:
            _LOADED[name] = load(name, None, **options)
        if space is not None:
            _LOADED[name].columns(space)
        return _LOADED[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo, "load_classifier", kept)
        yield
