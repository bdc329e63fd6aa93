"""The corruptions that there are: the published ones, and the user's own from a Python file.

A file of one's own holds functions of (image, severity, rng), each a corruption of that name:

    import numpy as np

    def salt(image, severity, rng):
        result = image.copy()
        result[rng.random(image.shape[:2]) < 0.02 * severity] = 255
        return result

`rng` is a NumPy generator that depends on the image's seed, the corruption and the severity alone;
whoever draws from it and from nothing else gets the same picture on every machine.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from curate.corruptions.catalogue import BUILT_IN
from curate.corruptions.terms import Levels, Terms
from curate.errors import UnknownNameError, UsageError

#: What a user's corruption is.
UserFunction = Callable[[Levels, int, np.random.Generator], Levels]

_LONGEST_WORDS = 300


@dataclass(frozen=True)
class UserCorruption:
    """A corruption that is not built in.

    Attributes:
        name: what it is called.
        function: takes image, severity and generator.
        source: the file that it is from; empty where it was registered by a program.
        digest: SHA-256 of the file.
    """

    name: str
    function: UserFunction
    source: str = ""
    digest: str = ""

    def apply(self, image: Levels, terms: Terms) -> Levels:
        """The function's result, checked.

        Raises:
            ValueError: it failed, or gave no uint8 array of the image's shape.
        """
        what = f"corruption {self.name!r} at severity {terms.severity}"
        try:
            result: Any = self.function(image.copy(), terms.severity, terms.rng)
        except Exception as error:
            raise ValueError(f"{what} failed: {words_of(error)}") from error
        if not isinstance(result, np.ndarray):
            raise ValueError(f"{what} gave {type(result).__name__}, not a NumPy array")
        if result.dtype != np.uint8 or result.shape != image.shape:
            raise ValueError(
                f"{what} gave {result.dtype} of shape {result.shape}, "
                f"not uint8 of shape {image.shape}"
            )
        return np.ascontiguousarray(result)


_USERS: dict[str, UserCorruption] = {}


def names() -> tuple[str, ...]:
    """Every corruption that `corrupt` knows, the built-in ones first."""
    return (*BUILT_IN, *_USERS)


def find(name: str) -> UserCorruption | None:
    """The user's corruption of a name; None where it is a built-in one.

    Raises:
        UnknownNameError: there is neither; the nearest names are told.
    """
    if name in BUILT_IN:
        return None
    if name not in _USERS:
        raise UnknownNameError(
            "corruption", str(name), names(), note=f"there are {', '.join(names())}"
        )
    return _USERS[name]


def register(
    name: str, function: UserFunction | None = None
) -> UserFunction | Callable[[UserFunction], UserFunction]:
    """Add a corruption of one's own, or decorate the function that is one.

    It is known in this process alone; a worker process has to load the same file.

    Args:
        name: what it is called: letters, digits, hyphens and underscores.
        function: takes image (uint8, shape (h, w, 3)), severity (1 … 5) and a NumPy generator, and
            gives a uint8 array of the same shape.

    Raises:
        ValueError: a name that is taken or no name, or a function that cannot be called so.
    """
    if function is None:
        return lambda decorated: _add(UserCorruption(name, decorated)).function
    return _add(UserCorruption(name, function)).function


def _add(one: UserCorruption) -> UserCorruption:
    if not (isinstance(one.name, str) and _is_name(one.name)):
        raise ValueError(
            f"corruption {one.name!r}: a name is letters, digits, hyphens and underscores"
        )
    if one.name in BUILT_IN:
        raise ValueError(f"corruption {one.name!r} is built in: take another name")
    known = _USERS.get(one.name)
    if known is not None and known.source != one.source:
        raise ValueError(
            f"corruption {one.name!r} is there already, from {known.source or 'a program'}: "
            "take another name"
        )
    if not _takes_three(one.function):
        raise ValueError(f"corruption {one.name!r} must take (image, severity, rng)")
    _USERS[one.name] = one
    return one


def _is_name(name: str) -> bool:
    return 0 < len(name) <= 64 and name.isascii() and name.replace("-", "_").isidentifier()


def _takes_three(function: Any) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(None, 1, None)
    except TypeError:
        return False
    except ValueError:
        # A function without a signature, as some written in C have none, is taken at its word.
        return True
    return True


def load_file(path: Path | str) -> tuple[str, ...]:
    """Add the corruptions of a Python file, which is run: load only what you would run.

    Every function that the file itself defines is one, by its name, but those whose names begin
    with an underscore. A file may use `register` for other names; then only those are. Loading
    the same file again replaces what it gave.

    Args:
        path: the file.

    Returns:
        The names, in the file's order.

    Raises:
        UsageError: it cannot be read or run, holds no corruption, or one that is none.
    """
    path = Path(path).absolute()
    try:
        code = path.read_bytes()
    except OSError as error:
        raise UsageError(f"corruptions: {path}: {error.strerror or error}") from error
    digest = hashlib.sha256(code).hexdigest()
    before = dict(_USERS)
    for name in [name for name, one in _USERS.items() if one.source == str(path)]:
        del _USERS[name]
    others = dict(_USERS)
    try:
        module = _run(path, code, digest)
        found = [one for name, one in _USERS.items() if others.get(name) is not one]
        _USERS.clear()
        _USERS.update(others)
        if not found:
            found = [
                UserCorruption(name, function)
                for name, function in vars(module).items()
                if inspect.isfunction(function)
                and function.__module__ == module.__name__
                and not name.startswith("_")
            ]
        if not found:
            raise UsageError(f"corruptions: {path} defines no function (image, severity, rng)")
        for one in found:
            _add(UserCorruption(one.name, one.function, str(path), digest))
    except (Exception, SystemExit) as error:
        _USERS.clear()
        _USERS.update(before)
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"corruptions: {path}: {words_of(error)}") from error
    return tuple(one.name for one in found)


def words_of(error: BaseException) -> str:
    """The name of an error of the user's code, and what it says, in one short line."""
    name = type(error).__name__
    try:
        told = " ".join(str(error).split())
    except Exception:
        return name
    return f"{name}: {told[:_LONGEST_WORDS]}" if told else name


def _run(path: Path, code: bytes, digest: str) -> ModuleType:
    if path.suffix != ".py":
        raise UsageError(f"corruptions: {path} is no Python file: its name must end in .py")
    # A name of its own for each content, so that what is pickled finds its module again.
    return run_code(f"curate_corruptions_of_{digest[:16]}", code, path)


def run_code(name: str, code: bytes, path: Path) -> ModuleType:
    """Run the code of a user's file, as a module that is found by its name.

    Args:
        name: of the module.
        code: what the file holds.
        path: the file, for tracebacks.

    Raises:
        BaseException: whatever the code raises.
    """
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        # Not by an import, which would take what was compiled of the file within the same second.
        exec(compile(code, path, "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module
