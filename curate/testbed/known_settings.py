"""Which settings there are: the published ones, a file each, and a user's own from a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from curate.corruptions.registry import run_code
from curate.errors import CurateError, UnknownNameError, UsageError
from curate.files import printable
from curate.release.layout import Layout
from curate.testbed.setting import Asked, Part, Setting, is_flat
from curate.testbed.settings import (
    class_subsets,
    corrupted_here,
    corrupted_on_disk,
    greyscale,
    imagenet_a,
    imagenet_o,
    imagenet_r,
    imagenet_sketch,
    imagenet_v2,
    objectnet,
    pgd,
    release,
    stylised,
    validation,
    vid_robust,
    ytbb_robust,
)

#: In the order of the help.
SETTINGS: tuple[Setting, ...] = tuple(
    module.SETTING
    for module in (
        validation,
        class_subsets,
        imagenet_v2,
        imagenet_a,
        imagenet_o,
        imagenet_r,
        imagenet_sketch,
        stylised,
        objectnet,
        vid_robust,
        ytbb_robust,
        corrupted_here,
        corrupted_on_disk,
        greyscale,
        pgd,
        release,
    )
)


class Settings:
    """The settings of a run, opened when they are first asked for.

    Args:
        wanted: name and folder of each, in order.
        labels: a file with the class of each image, for folders without class folders.
        steps: of attacks.
        files: Python files with settings of the user's, which are run.

    Raises:
        UsageError: a file that holds no setting, or a name that is there twice.
        UnknownNameError: no such setting; the nearest are told.
    """

    def __init__(
        self,
        wanted: Sequence[tuple[str, Path]],
        *,
        labels: Path | None = None,
        steps: int,
        files: Sequence[Path] = (),
    ) -> None:
        known = {name: one for one in SETTINGS for name in one.names}
        self._own: dict[str, Path] = {}
        for file in files:
            for setting in own_settings(file):
                for name in setting.names:
                    if name in known:
                        raise UsageError(f"{printable(file)}: setting {name!r} is there already")
                    known[name], self._own[name] = setting, file
        self._known, self._labels, self._steps = known, labels, steps
        self._roots: dict[str, Path] = {}
        for name, root in wanted:
            if name not in known:
                raise UnknownNameError("setting", name, known, note="see --list-settings")
            if name in self._roots and name != "release":
                raise UsageError(f"setting {name} is named twice")
            self._roots.setdefault(name, root)
        self._wanted = tuple(wanted)
        self._opened: dict[tuple[str, Path], tuple[Part, ...]] = {}
        self._layouts: dict[tuple[Path, str], Layout] = {}

    def parts(self) -> list[Part]:
        """All parts of all settings, in order.

        Raises:
            UsageError: a folder with wrong classes, a column that is there twice, or labels that no
                folder needs.
        """
        if self._labels is not None and not any(is_flat(root) for _, root in self._wanted):
            raise UsageError(
                f"--labels {printable(self._labels)}: every folder has class folders, which say of "
                "which class each image is; leave it out"
            )
        found = [part for name, root in self._wanted for part in self._open(name, root)]
        names = [part.name for part in found]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"two settings give a column {name!r}: leave one out")
        return found

    def _open(self, name: str, root: Path) -> tuple[Part, ...]:
        if (name, root) not in self._opened:
            if not root.is_dir():
                raise UsageError(f"{name}: {printable(root)} is not a folder")
            asked = Asked(
                name,
                root,
                self._labels,
                self._steps,
                lambda other: self._other(other, name),
                self._layouts,
            )
            with own_errors(self._own.get(name), name):
                self._opened[name, root] = tuple(self._known[name].opens(asked))
        return self._opened[name, root]

    def _other(self, name: str, by: str) -> tuple[Part, ...]:
        if name not in self._roots:
            raise UsageError(
                f"{by} needs the setting {name} in the same run: --settings {name}=DIR"
            )
        if sum(one == name for one, _ in self._wanted) > 1:
            raise UsageError(
                f"{by} is of one {name}, and several are in this run: run it beside each alone; "
                "what is finished is kept"
            )
        return self._open(name, self._roots[name])


def own_settings(file: Path) -> list[Setting]:
    """The settings of a Python file, which is run: load only what you would run.

    Args:
        file: it holds a `SETTING`, or several in `SETTINGS`.

    Raises:
        UsageError: it cannot be read or run, or holds none.
    """
    module = run_file(file, "settings")
    found = getattr(module, "SETTINGS", None) or [getattr(module, "SETTING", None)]
    if not all(isinstance(one, Setting) for one in found):
        raise UsageError(f"{printable(file)} holds no SETTING of curate.testbed.setting.Setting")
    return list(found)


@contextmanager
def own_errors(file: Path | None, what: str) -> Iterator[None]:
    """Turn whatever a user's code raises into one line.

    Args:
        file: that holds it; None for this project's own code, whose errors stay what they are.
        what: of the file was at work.

    Raises:
        UsageError: for any error that is none of the project's own.
    """
    try:
        yield
    except CurateError:
        raise
    except Exception as error:
        if file is None:
            raise
        told = " ".join(str(error).split())[:300]
        raise UsageError(f"{printable(file)}: {what}: {type(error).__name__}: {told}") from error


def run_file(file: Path, what: str) -> ModuleType:
    """Run a user's Python file.

    Args:
        file: the file.
        what: it is said to hold, for errors.

    Raises:
        UsageError: it cannot be read or run.
    """
    try:
        code = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{what}: {printable(file)}: {error.strerror}") from error
    if file.suffix != ".py":
        raise UsageError(f"{what}: {printable(file)} is no Python file: its name must end in .py")
    name = f"curate_{what}_of_{hashlib.sha256(code).hexdigest()[:16]}"
    with own_errors(file, what):
        return run_code(name, code, file)
