"""`curate robustness`."""

from __future__ import annotations

import typer

from curate.cli import (
    robustness_corruptions,
    robustness_distance,
    robustness_run,
    robustness_testbed,
)


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    group = typer.Typer(help="How accuracy falls where images change.", no_args_is_help=True)
    robustness_corruptions.register(group)
    robustness_testbed.register(group)
    robustness_run.register(group)
    robustness_distance.register(group)
    app.add_typer(group, name="robustness")
