"""What the commands share: options, the workspace, and the single way out for results."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from curate.errors import StorageError, WorkspaceError
from curate.progress import bearable, say

if TYPE_CHECKING:
    from pipelines.workspace import Workspace


@dataclass
class Shared:
    """What the options before the command say, and what else holds for the whole process."""

    workspace: Path | None = None
    json: bool = False
    debug: bool = False
    #: Whether the process ends with the command.
    last: bool = False


# More than that wait for each other, and each process holds PyTorch.
_WORKERS_A_CORE = 4

#: One process runs one command.
shared = Shared()

_STDOUT, _STDERR = 1, 2

# Where results go while standard output leads elsewhere.
_apart: list[TextIO] = []


def _json(value: bool) -> bool:
    shared.json |= value
    return shared.json


def _debug(value: bool) -> bool:
    shared.debug |= value
    return shared.debug


Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print exactly one JSON object, the summary. Example: curate --json status",
        callback=_json,
    ),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        help="Show the traceback of an error. Example: curate --debug status",
        callback=_debug,
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit with 1 where items were refused or failed. Example: --strict"
    ),
]
Device = Annotated[
    str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps. Example: --device cpu")
]
NoCache = Annotated[
    bool,
    typer.Option(
        "--no-cache",
        help="Compute anew what was computed before, and keep nothing. Example: --no-cache",
    ),
]
Classes = Annotated[
    list[str] | None,
    typer.Option(
        "--classes",
        help="Classes by wnid, name or preset, comma-separated or repeated, or @FILE with one a "
        "line. Example: --classes dragonfly,n01531178. Default: all.",
        show_default=False,
    ),
]
Run = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="ID",
        help="A run's id. Example: --run 1d6f2a632a1c. Default: the newest finished one.",
        show_default=False,
    ),
]
ByClass = Annotated[
    bool,
    typer.Option("--by-class", help="Show the funnel of each class as well. Example: --by-class"),
]
Form = Annotated[
    Literal["csv", "jsonl"],
    typer.Option("--format", help="csv or jsonl. Example: --format jsonl"),
]
Resamples = Annotated[
    int,
    typer.Option(
        "--resamples",
        min=1,
        max=100_000,
        help="Refits of each line's band. Example: --resamples 1000",
    ),
]


def label_space_option(example: str, default: str) -> Any:
    """The option `--label-space`, of which commands differ in the example and what they default to.

    Args:
        example: a preset.
        default: what is taken without it, in words that end the sentence.
    """
    return typer.Option(
        "--label-space",
        help=f"A preset or a CSV file. Example: --label-space {example}. Default: {default}.",
        show_default=False,
    )


def ray_address_option(default: str) -> Any:
    """The option `--ray-address`; `default` is what is taken without it, in words."""
    return typer.Option(
        "--ray-address",
        metavar="ADDRESS",
        help="With --engine ray: the cluster to join (auto, HOST:PORT or ray://HOST:PORT). "
        f"Example: --ray-address auto. Default: {default}.",
        show_default=False,
    )


def report_option(what: str, example: str) -> Any:
    """The option `--report DIR`; `what` is written there, and `example` is such a folder."""
    return typer.Option(
        "--report",
        metavar="DIR",
        help=f"Where to write {what}. Example: --report {example}. Default: nowhere.",
        show_default=False,
    )


def bounded_workers(asked: int | None) -> int | None:
    """How many of the workers that `--workers` asks for are of use; a line says where fewer are.

    Args:
        asked: any number from 0, or None for the default, which stays.
    """
    from pipelines.threads import usable_cores

    most = _WORKERS_A_CORE * usable_cores()
    if asked is None or asked <= most:
        return asked
    say(f"--workers {asked}: {most} are used, {_WORKERS_A_CORE} for each core that is at hand")
    return most


def workspace(options: Mapping[str, Any] | None = None) -> Workspace:
    """Open the workspace that the options, the environment or the current folder name."""
    from curate.settings import find_workspace
    from pipelines.workspace import open_workspace

    return open_workspace(find_workspace(shared.workspace), options)


def root_if_any() -> Path | None:
    """The folder of the workspace, for a command that works without one as well.

    Raises:
        WorkspaceError: one is named, and there is none.
    """
    from curate.settings import find_workspace

    try:
        return find_workspace(shared.workspace)
    except WorkspaceError:
        if shared.workspace is not None:
            raise
        return None


def workspace_if_any() -> Workspace | None:
    """Open the workspace, for a command that works without one as well.

    Raises:
        WorkspaceError: one is named that is none, or that this version cannot read.
    """
    try:
        return workspace()
    except WorkspaceError:
        if shared.workspace is not None:
            raise
        return None


def emit(summary: Mapping[str, Any], text: str = "") -> None:
    """Print a result on standard output: the summary as JSON where asked for, else the text.

    Raises:
        StorageError: what standard output leads to is full.
    """
    if shared.json:
        write_result([json.dumps(summary, sort_keys=True, allow_nan=False), "\n"])
    elif text:
        write_result([bearable(text.rstrip("\n")), "\n"])


def write_result(lines: Iterable[str]) -> None:
    """Write a result on standard output as it stands.

    Args:
        lines: its parts, each with its line end.

    Raises:
        StorageError: what standard output leads to is full.
    """
    stream = results()
    try:
        stream.writelines(lines)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is left in the buffer would be told once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise StorageError(f"cannot write the result: {error.strerror or error}") from error


def results() -> TextIO:
    """Where results go: what standard output was before `results_apart`."""
    return _apart[-1] if _apart else sys.stdout


@contextmanager
def results_apart() -> Iterator[None]:
    """Keep standard output for results, whatever code runs in between: a user's own, a library's.

    What anybody but `write_result` writes there goes to standard error: by Python, by a C library
    to the file descriptor, by processes that are started in between. Where the process ends with
    the command that holds for its last words too, those of threads and of what runs at exit.
    """
    before = sys.stdout
    before.flush()
    stream, kept = before, None
    if _descriptor(before) == _STDOUT:
        kept = os.dup(_STDOUT)
        stream = os.fdopen(kept, "w", encoding=before.encoding, errors=before.errors)
        os.dup2(_STDERR, _STDOUT)
    _apart.append(stream)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        if not shared.last:
            sys.stdout = before
            _apart.remove(stream)
            if kept is not None:
                os.dup2(kept, _STDOUT)
                stream.close()


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (AttributeError, OSError, ValueError):
        # A test's or a notebook's, which is no file.
        return None


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A plain-text table: the first column left, numbers right, two blanks between columns."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(c), *(len(row[n]) for row in cells)]) for n, c in enumerate(columns)]
    right = [
        bool(rows) and all(isinstance(row[n], int | float | None) for row in rows)
        for n in range(len(columns))
    ]

    def line(row: Sequence[str]) -> str:
        parts = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return "\n".join([line(columns), *(line(row) for row in cells)])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("\n", "\\n")


def counts(by_reason: Mapping[str, int]) -> str:
    """Counts by reason as text, the largest first."""
    ordered = sorted(by_reason.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{reason} {count:,}" for reason, count in ordered)
