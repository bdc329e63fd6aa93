"""What commands refuse of their arguments, shown for every command and option that there is."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer
from typer.main import get_command

from curate.cli.common import bounded_workers
from curate.cli.main import _usage, app
from pipelines.threads import usable_cores
from tests.running import run_curate

#: Empty, they set back what the workspace's settings say.
MAY_BE_EMPTY = {("filter", "--without"), ("filter", "--ray-address")}
MAY_BE_EMPTY |= {("robustness run", "--ray-address")}

#: Where 0 says something.
MAY_BE_ZERO = {"--distance", "--seed", "--control"}

#: What required arguments are given where another one is looked at.
REQUIRED = {"reason": "privacy", "form": "tar"}


@cache
def root() -> Any:
    return get_command(app)


def commands(command: Any = None, name: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    command = command or root()
    yield " ".join(name), command
    for below, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*name, below))


@cache
def parameters() -> list[tuple[str, Any, str]]:
    """Command, parameter, and its type as the function has it, of all that take values."""
    found = []
    for name, command in commands():
        if command.callback is None:
            continue
        types = get_type_hints(inspect.unwrap(command.callback))
        for parameter in command.params:
            if parameter.name in types and not getattr(parameter, "is_flag", False):
                found.append((name, parameter, str(types[parameter.name])))
    return found


def told(name: str, looked_at: Any, value: str) -> str:
    """What a command says where one of its parameters has a value, and all that are needed one."""
    command = dict(commands())[name]
    options, arguments = [], []
    for parameter in command.params:
        is_it = parameter.name == looked_at.name
        given = value if is_it else REQUIRED.get(parameter.name, "x")
        if parameter.param_type_name == "argument":
            if is_it or parameter.required:
                arguments.append(given)
        elif is_it or parameter.required:
            options.append(f"{parameter.opts[0]}={given}")
    words = [*name.split(), *options]
    words += ["--", *arguments] if arguments else []
    with pytest.raises(Exception) as caught:  # noqa: PT011
        root().main(words, standalone_mode=False)
    line = _usage(caught.value)
    assert line is not None, caught.value
    assert "\n" not in line
    return line


def name_of(value: Any) -> str:
    return value.opts[0] if hasattr(value, "opts") else str(value).replace(" ", "-")


def all_but_empty() -> list[tuple[str, Any]]:
    known = parameters()
    return [(name, one) for name, one, _ in known if (name, one.opts[0]) not in MAY_BE_EMPTY]


@pytest.mark.parametrize(("name", "parameter"), all_but_empty(), ids=name_of)
def test_an_empty_text_is_refused_by_name(name: str, parameter: Any) -> None:
    line = told(name, parameter, "")
    expected = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
    assert f"'{expected or parameter.name}'".lower() in line.lower()
    assert "it is empty" in line


def test_no_path_may_be_empty() -> None:
    paths = [(name, one.opts[0]) for name, one, kind in parameters() if "Path" in kind]
    assert ("evaluate", "--report") in paths
    assert ("", "--workspace") in paths
    assert not MAY_BE_EMPTY & set(paths)


def test_an_empty_path_among_others_is_refused() -> None:
    for words in (["dedup", "--against", "a", "--against", ""], ["evaluate", "a", ""]):
        with pytest.raises(typer.BadParameter, match="it is empty"):
            root().main(words, standalone_mode=False)


def test_an_empty_path_is_one_line_and_exit_code_2_and_nothing_is_read(tmp_path: Path) -> None:
    for words in (["release", "verify", ""], ["evaluate", "--report=", "a"], ["-w", "", "status"]):
        done = run_curate(*words, expect=2)
        assert re.fullmatch(r"curate: Invalid value for '.*': it is empty; .*\n", done.stderr)
        assert done.stdout == ""


def numbers() -> list[tuple[str, Any]]:
    return [(name, one) for name, one, kind in parameters() if re.search(r"\bint\b", kind)]


def test_numbers_are_found() -> None:
    found = {(name, one.opts[0]) for name, one in numbers()}
    assert {("filter", "--cap"), ("robustness corruptions", "--severity")} <= found
    assert ("review blind-test", "count") in found


@pytest.mark.parametrize("value", ["-1", str(10**30), "9" * 5000, "1e3", "0x10", "1.5", "NaN"])
@pytest.mark.parametrize(("name", "parameter"), numbers(), ids=name_of)
def test_a_number_that_nobody_can_mean_is_refused(name: str, parameter: Any, value: str) -> None:
    line = told(name, parameter, value)
    is_option = parameter.param_type_name == "option"
    assert (parameter.opts[0] if is_option else parameter.metavar) in line
    assert len(line) < 300


@pytest.mark.parametrize(("name", "parameter"), numbers(), ids=name_of)
def test_more_than_any_set_holds_is_refused(name: str, parameter: Any) -> None:
    if parameter.name == "seed":
        told(name, parameter, str(2**63))
    else:
        told(name, parameter, str(10**9 + 1))


@pytest.mark.parametrize(("name", "parameter"), numbers(), ids=name_of)
def test_nothing_is_refused_unless_it_says_something(name: str, parameter: Any) -> None:
    if parameter.opts[0] in MAY_BE_ZERO or (name, parameter.name) == (
        "robustness corruptions",
        "workers",
    ):
        assert parameter.min in (0, None)
    else:
        told(name, parameter, "0")


def test_more_workers_than_cores_are_bounded_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    most = 4 * usable_cores()
    for asked in (None, 0, 1, most):
        assert bounded_workers(asked) == asked
    assert capsys.readouterr().err == ""
    for asked in (most + 1, 999, 10**9):
        assert bounded_workers(asked) == most
        assert capsys.readouterr().err.startswith(f"--workers {asked}: {most} are used")
