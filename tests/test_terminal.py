"""What others wrote into names and reasons steers no terminal that a command writes to."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from curate.progress import bearable, progress, say
from tests.running import run_curate

STEERING = "\x1b[31m\x07\r\x00\u202e\u2066\x9b2J"


def test_text_of_any_language_is_left_as_it_is() -> None:
    for text in ("plain", "zwei\nZeilen\tmit Tab", "Å 漢字 🦋 – …", ""):
        assert bearable(text) == text
    assert bearable(f"a{STEERING}b") == "a?[31m??????2Jb"


@pytest.mark.parametrize("name", ["predictions.csv", f"p{STEERING.replace(chr(0), '')}.csv"])
def test_neither_results_nor_errors_steer_a_terminal(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    head, row = "path,wnid,predicted_wnid,confidence,failed\n", "a.jpg,n02268443,n02268443,0.5,\n"
    path.write_text(f'{head}{row}b.jpg,n02268443,,,"no{STEERING}"\n')
    done = run_curate("evaluate", "--predictions", path)
    path.write_text(f'{head}{row}b.jpg,n02268443,"n{STEERING}",0.5,\n')
    told = run_curate("evaluate", "--predictions", path, expect=2)
    for text in (done.stdout, done.stderr, told.stderr):
        assert text.replace("\n", "").isprintable(), ascii(text)
    assert "no?[31m" in done.stdout


def at_a_terminal(work: Callable[[], None]) -> str:
    """What some work writes to standard error where that is a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        try:
            os.environ["TERM"] = "xterm"
            sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
            work()
        finally:
            os._exit(0)
    seen = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.waitpid(child, 0)
    os.close(terminal)
    return seen.decode()


@pytest.mark.parametrize("name", ["[/v1]", "[red]photos[/red]", "photos\x1b]0;x\x07", "{task}"])
def test_a_bar_shows_a_name_as_it_is_written(name: str) -> None:
    def work() -> None:
        with progress(f"reading {name}", 2) as bar:
            bar.advance()
            say(f"beside {name}")
            bar.advance()

    seen = at_a_terminal(work)
    assert f"reading {bearable(name)}" in seen
    assert f"beside {bearable(name)}" in seen
    assert "Traceback" not in seen
    assert "\x07" not in seen
