"""The command `curate`."""

from __future__ import annotations

import errno
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from curate._version import __version__
from curate.cli import (
    collect,
    datasets,
    dedup,
    demo,
    filtering,
    looking,
    models,
    release,
    review,
    robustness,
    setup,
)
from curate.cli.checked import Group, check_commands
from curate.cli.common import Debug, Json, results, shared
from curate.errors import CurateError, Interrupted
from curate.files import printable
from curate.progress import StopNow, bearable

# What the system says of a path that no file can have, or that this user may not see.
_UNUSABLE = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EACCES}

# Signs of an error's line, and those of them at its end, where the middle is left out.
_LONGEST_LINE, _LAST_WORDS = 2000, 500

app = typer.Typer(
    name="curate",
    cls=Group,
    help="Build natural adversarial image sets: real, unmodified photos that today's classifiers "
    "get wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with: curate demo",
)


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"curate {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    workspace: Annotated[
        Path | None,
        typer.Option(
            "--workspace",
            "-w",
            metavar="DIR",
            help="The workspace. Default: $CURATE_WORKSPACE, else the nearest folder upwards "
            "with curate.yaml. Example: curate -w dragonflies status",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version. Example: curate --version",
            callback=_version,
            is_eager=True,
        ),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Options before the command."""
    shared.workspace = workspace


for group in (
    demo,
    setup,
    collect,
    dedup,
    filtering,
    looking,
    review,
    release,
    datasets,
    robustness,
    models,
):
    group.register(app)
check_commands(app)


def main() -> NoReturn:
    """Run `curate` with the arguments of the process, and exit as contract.md says."""
    signal.signal(signal.SIGINT, _interrupted)
    _mend_streams()
    shared.last = True
    code = 0
    try:
        code = app(prog_name="curate", standalone_mode=False) or 0
    except StopNow:
        _say("stopped at once; what was finished is saved, the same command goes on")
        # Threads at work would keep the process alive; what they have in hand is not named yet.
        os._exit(Interrupted.exit_code)
    except CurateError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader of standard output has gone; nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), results().fileno())
        sys.exit(1)
    except Exception as error:
        usage = _usage(error)
        if usage is not None:
            _fail(usage, 2) if usage else sys.exit(2)
        if isinstance(error, OSError) and error.errno in _UNUSABLE and error.filename:
            _fail(f"cannot use {printable(error.filename)}: {error.strerror}", 2)
        if isinstance(error, FileNotFoundError) and _is_nowhere():
            _fail("the current folder has been deleted: change to another one", 2)
        _fail(f"unexpected {type(error).__name__}: {error} (run with --debug to see where)", 1)
    sys.exit(code)


def _is_nowhere() -> bool:
    """Whether the current folder is gone, so that no relative path means anything."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _mend_streams() -> None:
    """See to it that there are standard streams, and that they take every text.

    Whoever closed one wants to hear nothing; no file that is opened later may stand in its place.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            # The lowest number that is free, which is that of the stream.
            descriptor = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(descriptor, "w" if number else "r", encoding="utf-8"))
        elif number and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _usage(error: Exception) -> str | None:
    """What the parser says of the arguments, in one line; None for any other error.

    It is empty where there were no arguments, and the help has been printed instead.
    """
    told = getattr(error, "format_message", None)
    if told is None:
        return None
    message = str(told()).replace("Value error, ", "").strip().rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "curate"
    return message and f"{message} (see: {command} --help)"


def _bounded(line: str) -> str:
    """A line that a terminal bears, where it quotes somebody's file; its end says what to do."""
    if len(line) <= _LONGEST_LINE:
        return line
    return f"{line[: _LONGEST_LINE - _LAST_WORDS]} … {line[-_LAST_WORDS:]}"


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    raise StopNow


def _fail(message: str, code: int) -> NoReturn:
    _say(message)
    sys.exit(code)


def _say(message: str) -> None:
    if shared.debug:
        import traceback

        traceback.print_exc()
    line = _bounded(bearable(" ".join(message.splitlines())))
    # The exit code tells what a full or closed standard error cannot.
    with suppress(OSError):
        sys.stderr.write(f"curate: {line}\n")
        sys.stderr.flush()
