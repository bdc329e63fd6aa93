"""The models of a testbed run: those of the zoo, and a user's own from a Python file.

A file of one's own holds functions without arguments, each of which gives a `Classifier`; the model
bears the function's name.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.errors import UsageError
from curate.files import printable, sha256_file
from curate.testbed.cells import LONGEST_NAME
from curate.testbed.known_settings import own_errors, run_file
from pipelines.corruption_models import TOGETHER

if TYPE_CHECKING:
    from curate.models.classifier import Classifier


class Models:
    """Classifiers by name, a few in memory at a time.

    Args:
        names: of the zoo.
        files: Python files with models of the user's, which are run.
        device: where they run.

    Attributes:
        names: of all models, in order.

    Raises:
        UsageError: a name that is there twice or is no name, or a file without models.
    """

    def __init__(self, names: Sequence[str], files: Sequence[Path], device: str) -> None:
        self._device = device
        self._own: dict[str, tuple[Callable[[], Any], Path, str]] = {}
        self._loaded: OrderedDict[str, Classifier] = OrderedDict()
        found = list(names)
        for file in files:
            for name, function in _functions(file):
                found.append(name)
                self._own[name] = function, file, sha256_file(file)
        for name in found:
            if found.count(name) > 1:
                raise UsageError(f"model {printable(name)} is named twice")
            if not name or len(name) > LONGEST_NAME:
                raise UsageError(f"a model's name has 1 to {LONGEST_NAME} signs, not {len(name)}")
        self.names = tuple(found)

    def get(self, name: str) -> Classifier:
        """A classifier; the one that was not wanted for longest makes room.

        Raises:
            UsageError: an unknown model, or a function that gives none.
        """
        from curate.models.runtime import resolve_device, tune_allocator
        from curate.models.zoo import load_classifier

        if name not in self._loaded:
            while len(self._loaded) >= TOGETHER:
                self._loaded.popitem(last=False)
            tune_allocator()
            if name in self._own:
                classifier = self._call(name).to(resolve_device(self._device))
                classifier.check()
            else:
                classifier = load_classifier(name, None, device=self._device)
            self._loaded[name] = classifier
        self._loaded.move_to_end(name)
        return self._loaded[name]

    def record(self, name: str) -> dict[str, Any]:
        """Everything that makes a model's logits, as plain JSON values, but its name."""
        record = self.get(name).record()
        del record["name"]
        if name in self._own:
            # Weights alone do not say what a network of the user's does with them.
            record["file_sha256"] = self._own[name][2]
        return record

    def _call(self, name: str) -> Classifier:
        from curate.models.classifier import Classifier

        function, file, _ = self._own[name]
        with own_errors(file, name):
            found = function()
        if not isinstance(found, Classifier):
            raise UsageError(
                f"{printable(file)}: {name} gives {type(found).__name__}, not a Classifier"
            )
        return found


def _functions(file: Path) -> list[tuple[str, Callable[[], Any]]]:
    module = run_file(file, "models")
    found: list[tuple[str, Callable[[], Any]]] = [
        (name, function)
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and not name.startswith("_")
        and not inspect.signature(function).parameters
    ]
    if not found:
        raise UsageError(
            f"{printable(file)} defines no function without arguments that gives a Classifier"
        )
    return found
