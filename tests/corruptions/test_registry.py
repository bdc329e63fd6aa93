"""Corruptions of the user's own, from a program or a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.corruptions import corrupt, describe, load_file, names, register, registry
from curate.errors import UsageError

IMAGE = np.random.default_rng(0).integers(0, 256, (8, 9, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def _none_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_USERS", {})


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


SALT = """
import numpy as np
from pathlib import Path

LIMIT = 3

class Other:
    pass

def _amount(severity):
    return 0.1 * severity

def salt(image, severity, rng):
    image[rng.random(image.shape[:2]) < _amount(severity)] = 255
    return image

def darker(image, severity, rng=None, strength=0.9):
    return np.uint8(image * strength**severity)
"""


def test_each_function_of_a_file_is_a_corruption(tmp_path: Path) -> None:
    path = written(tmp_path, SALT)
    assert load_file(path) == ("salt", "darker")
    assert names()[-2:] == ("salt", "darker")
    before = IMAGE.copy()
    salted = corrupt(IMAGE, "salt", 5, 1)
    np.testing.assert_array_equal(IMAGE, before)
    assert 0.3 < (salted == 255).all(axis=2).mean() < 0.7
    np.testing.assert_array_equal(salted, corrupt(IMAGE, "salt", 5, 1))
    assert not np.array_equal(salted, corrupt(IMAGE, "salt", 5, 2))
    assert not np.array_equal(corrupt(IMAGE, "darker", 1, 0), corrupt(IMAGE, "darker", 2, 0))
    told = describe("salt")
    assert told["origin"] == str(path)
    assert len(told["sha256"]) == 64


def test_a_file_may_name_its_corruptions_itself(tmp_path: Path) -> None:
    text = """
from curate.corruptions import register

@register("upside-down")
def turned(image, severity, rng):
    return helper(image)

def helper(image):
    return image[::-1]
"""
    assert load_file(written(tmp_path, text)) == ("upside-down",)
    np.testing.assert_array_equal(corrupt(IMAGE, "upside-down", 1, 0), IMAGE[::-1])


def test_a_file_that_is_loaded_again_replaces_what_it_gave(tmp_path: Path) -> None:
    path = written(tmp_path, SALT)
    load_file(path)
    load_file(path)
    first = describe("salt")["sha256"]
    path.write_text("def salt(image, severity, rng):\n    return 255 - image\n", encoding="utf-8")
    assert load_file(path) == ("salt",)
    assert "darker" not in names()
    assert describe("salt")["sha256"] != first
    np.testing.assert_array_equal(corrupt(IMAGE, "salt", 1, 0), 255 - IMAGE)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def f(image, severity, rng:\n", r"mine.py: SyntaxError: '\(' was never closed"),
        ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("raise ValueError('a\\nb')\n", "ValueError: a b"),
        ("import sys\nsys.exit(0)\n", "mine.py: SystemExit: 0"),
        (
            "class E(Exception):\n    def __str__(self):\n        raise self\nraise E\n",
            "mine.py: E$",
        ),
        ("x = 3\n", r"defines no function \(image, severity, rng\)"),
        ("def f(image):\n    return image\n", r"'f' must take \(image, severity, rng\)"),
        ("def fog(image, severity, rng):\n    return image\n", "'fog' is built in: take another"),
        ("def straße(image, severity, rng):\n    return image\n", "a name is letters, digits"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_and_changes_nothing(
    text: str, told: str, tmp_path: Path
) -> None:
    load_file(written(tmp_path, SALT, "good.py"))
    before = names()
    with pytest.raises(UsageError, match=told) as caught:
        load_file(written(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert "mine.py" in str(caught.value)
    assert names() == before


def test_a_path_that_is_no_python_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent.py: No such file or directory"):
        load_file(tmp_path / "absent.py")
    with pytest.raises(UsageError, match=r"its name must end in .py"):
        load_file(written(tmp_path, SALT, "mine.txt"))
    with pytest.raises(UsageError, match="Is a directory"):
        load_file(tmp_path)


def test_what_was_changed_within_a_second_is_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python keeps what it compiled of an imported file by its size and second.
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for value in ("1", "2", "3"):
        path = written(
            tmp_path, f"def mine(image, severity, rng):\n    return image * 0 + {value}\n"
        )
        os.utime(path, (1e9, 1e9))
        load_file(path)
        assert corrupt(IMAGE, "mine", 1, 0).max() == int(value)
    assert [one.name for one in tmp_path.iterdir()] == ["mine.py"]


def test_two_files_cannot_give_one_name(tmp_path: Path) -> None:
    load_file(written(tmp_path, SALT))
    with pytest.raises(UsageError, match=r"'salt' is there already, from .*mine.py"):
        load_file(written(tmp_path, SALT, "other.py"))
    decorated = "from curate.corruptions import register\n@register('{}')\ndef f(i, s, r): ...\n"
    with pytest.raises(UsageError, match=r"'salt' is there already, from .*mine.py"):
        load_file(written(tmp_path, decorated.format("salt"), "other.py"))
    register("mine", lambda image, severity, rng: image)
    with pytest.raises(UsageError, match=r"'mine' is there already, from a program"):
        load_file(written(tmp_path, decorated.format("mine"), "other.py"))
    assert names()[-3:] == ("salt", "darker", "mine")


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ("image / 255", r"gave float64 of shape \(8, 9, 3\), not uint8 of shape \(8, 9, 3\)"),
        ("image[:4]", r"gave uint8 of shape \(4, 9, 3\), not uint8 of shape \(8, 9, 3\)"),
        ("None", "gave NoneType, not a NumPy array"),
        ("image[99]", r"failed: IndexError: index 99 is out of bounds"),
    ],
)
def test_what_a_users_corruption_gives_is_checked(result: str, told: str, tmp_path: Path) -> None:
    load_file(written(tmp_path, f"def mine(image, severity, rng):\n    return {result}\n"))
    with pytest.raises(ValueError, match=f"corruption 'mine' at severity 2 {told}"):
        corrupt(IMAGE, "mine", 2, 0)


def test_a_program_registers_a_function_or_decorates_it() -> None:
    def inverted(image: Any, severity: int, rng: Any) -> Any:
        return 255 - image

    assert register("inverted", inverted) is inverted

    @register("mirrored")  # type: ignore[arg-type]
    def mirrored(image: Any, severity: int, rng: Any) -> Any:
        return image[:, ::-1]

    np.testing.assert_array_equal(corrupt(IMAGE, "inverted", 1, 0), 255 - IMAGE)
    np.testing.assert_array_equal(mirrored(IMAGE, 1, None), corrupt(IMAGE, "mirrored", 1, 0))
    assert describe("inverted")["origin"] == "a program"
    for name in ("", "a b", "../x", "a" * 65, 3):
        with pytest.raises(ValueError, match="a name is letters, digits, hyphens"):
            register(name, inverted)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"must take \(image, severity, rng\)"):
        register("three", 3)  # type: ignore[arg-type]
