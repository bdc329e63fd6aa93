"""What holds for every command: what it refuses of its arguments, and where its result goes.

An empty text is most often a variable of the shell that is not set. As a path it would mean the
current folder, as a name whatever is the default; so it is an error wherever empty says nothing.
A number that is negative or beyond all sets of images is a slip as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from curate.cli.common import results_apart

#: The largest number of anything: more than any set holds, and less than a database's integer.
MOST = 10**9

#: The largest seed.
MOST_SEED = 2**63 - 1

# Empty, these set back what the workspace's settings say: no flags, a cluster of one's own.
_MAY_BE_EMPTY = ("--without", "--ray-address")


class Command(TyperCommand):
    """A command that refuses empty texts and absurd numbers, and writes nothing but its result."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of a command; one that says nothing is a usage error."""
        _refuse_empty(self, ctx, args)
        rest = super().parse_args(ctx, args)
        _refuse_absurd(ctx, self.get_params(ctx))
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; standard output is for its result alone (see `results_apart`)."""
        with results_apart():
            return super().invoke(ctx)


class Group(TyperGroup):
    """A group of commands whose own options are checked as those of `Command` are."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what stands before the command; what says nothing is a usage error."""
        _refuse_empty(self, ctx, args)
        rest = super().parse_args(ctx, args)
        _refuse_absurd(ctx, self.get_params(ctx))
        return rest


def check_commands(app: typer.Typer) -> None:
    """Make every command and group that an app has by now a `Command` or `Group`."""
    for command in app.registered_commands:
        if command.cls in (None, TyperCommand):
            command.cls = Command
    for group in app.registered_groups:
        group.cls = Group
        if group.typer_instance is not None:
            check_commands(group.typer_instance)


def _refuse_empty(command: Any, ctx: Any, args: list[str]) -> None:
    # As written: what becomes of the text, such as a path, does not tell that it was empty.
    given: Mapping[str, Any] = command.make_parser(ctx).parse_args(args=list(args))[0]
    for parameter in command.get_params(ctx):
        if "" in _each(given.get(parameter.name)) and parameter.opts[0] not in _MAY_BE_EMPTY:
            raise typer.BadParameter(
                "it is empty; write a value, or leave it out", ctx=ctx, param=parameter
            )


def _refuse_absurd(ctx: Any, parameters: Iterable[Any]) -> None:
    for parameter in parameters:
        most = MOST_SEED if parameter.name == "seed" else MOST
        for value in _each(ctx.params.get(parameter.name)):
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if is_number and not 0 <= value <= most:
                # No number of the user's is quoted: it may have thousands of digits.
                raise typer.BadParameter(f"write 0 … {most:,}", ctx=ctx, param=parameter)


def _each(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)
