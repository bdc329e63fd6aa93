"""The command `curate`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from curate._version import __version__
from curate.cli import collect, datasets, demo, filtering, looking, models, setup
from curate.cli.common import Debug, Json, shared
from curate.errors import CurateError, Interrupted
from curate.progress import StopNow

app = typer.Typer(
    name="curate",
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


for group in (demo, setup, collect, filtering, looking, datasets, models):
    group.register(app)


def main() -> NoReturn:
    """Run `curate` with the arguments of the process, and exit as contract.md says."""
    signal.signal(signal.SIGINT, _interrupted)
    try:
        app(prog_name="curate")
    except StopNow:
        _say("stopped at once; what was finished is saved, the same command goes on")
        # Threads at work would keep the process alive; what they have in hand is not named yet.
        os._exit(Interrupted.exit_code)
    except CurateError as error:
        _fail(str(error), error.exit_code)
    except Exception as error:
        _fail(f"unexpected {type(error).__name__}: {error} (run with --debug to see where)", 1)
    sys.exit(0)


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    raise StopNow


def _fail(message: str, code: int) -> NoReturn:
    _say(message)
    sys.exit(code)


def _say(message: str) -> None:
    if shared.debug:
        import traceback

        traceback.print_exc()
    line = " ".join(message.splitlines())
    sys.stderr.write(f"curate: {line}\n")
    sys.stderr.flush()
