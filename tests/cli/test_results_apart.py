"""Standard output is for results alone, whatever a user's code writes there, and how."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from curate.cli import common
from curate.labels.space import load_label_space
from tests.running import ROOT, run_curate

# What Python code, a C library, a child process, a thread and an exit handler write.
NOISE = """
import atexit, ctypes, os, subprocess, sys, threading, time

def _noise(where):
    print(f"by print {where}\\n", end="")
    sys.__stdout__.write(f"by stream {where}\\n")
    os.write(1, f"by descriptor {where}\\n".encode())
    ctypes.CDLL(None).puts(f"by library {where}".encode())
    subprocess.run(["echo", "by child", where], check=True)

def _chatter():
    while True:
        os.write(1, b"by thread\\n")
        time.sleep(0.2)

_noise("loading")
atexit.register(_noise, "exit")
threading.Thread(target=_chatter, daemon=True).start()
"""
WAYS = {"print", "stream", "descriptor", "library", "child"}

CORRUPTION = """
def own(image, severity, rng):
    _noise("working")
    return 255 - image
"""

MODEL = """
import torch
from curate.images.views import ViewRecipe
from curate.labels.space import load_label_space
from curate.models.classifier import Classifier, Preprocessing

class Noisy(torch.nn.Module):
    def forward(self, pixels):
        _noise("working")
        return pixels.flatten(1)[:, :1000]

def own():
    half = (0.5, 0.5, 0.5)
    seen = Preprocessing(ViewRecipe(40, 32, "bilinear"), half, half, "a test")
    return Classifier(name="own", architecture="own", module=Noisy(),
                      output=load_label_space("imagenet-1k"), preprocessing=seen)
"""

SETTING = """
from curate.testbed.setting import Setting, Part, alone, class_folders, imagenet

def opens(asked):
    _noise("opening")
    layout = class_folders(asked, imagenet())
    return [Part(asked.name, layout, imagenet(), alone(layout))]

SETTING = Setting(("own",), "photos", opens)
"""


@pytest.fixture
def photos(tmp_path: Path, package_photos: list[tuple[Path, int]]) -> Path:
    path, column = package_photos[0]
    folder = tmp_path / "photos" / load_label_space("imagenet-1k").wnids[column]
    folder.mkdir(parents=True)
    shutil.copy(path, folder)
    return folder.parent


def written(name: str, text: str, folder: Path) -> str:
    (folder / name).write_text(NOISE + text)
    return str(folder / name)


def heard(errors: str, where: str) -> set[str]:
    """The ways in which something was written to standard error at a moment."""
    return set(re.findall(rf"by (\w+) {where}", errors))


@pytest.mark.parametrize("workers", ["0", pytest.param("1", marks=pytest.mark.slow)])
def test_a_corruption_that_writes_leaves_one_json_object(
    photos: Path, tmp_path: Path, workers: str
) -> None:
    own = written("own.py", CORRUPTION, tmp_path)
    command = ["robustness", "corruptions", photos, "--corruption", own, "--severity", "1"]
    command += ["--model", "lite/efficientnet_lite0", "--workers", workers]
    done = run_curate("--json", *command)
    assert [row["corruption"] for row in json.loads(done.stdout)["rows"]] == ["own"]
    assert done.stdout.count("\n") == 1
    assert heard(done.stderr, "loading") == WAYS
    assert heard(done.stderr, "working") == WAYS
    assert "by thread" in done.stderr


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_model_and_a_setting_that_write_leave_one_json_object(
    photos: Path, tmp_path: Path, engine: str
) -> None:
    model = written("model.py", MODEL, tmp_path)
    setting = written("setting.py", SETTING, tmp_path)
    command = ["robustness", "run", "--model-file", model, "--setting-file", setting]
    command += ["--settings", f"own={photos}", "--store", tmp_path / "store", "--engine", engine]
    command += ["--device", "cpu"]
    done = run_curate("--json", *command)
    (cell,) = json.loads(done.stdout)["results"]
    assert (cell["model"], cell["setting"], cell["images"]) == ("own", "own", 1)
    assert done.stdout.count("\n") == 1
    # What actors write goes to Ray's own files.
    moments = {"loading", "opening", "exit"} | ({"working"} if engine == "local" else set())
    for moment in moments:
        assert heard(done.stderr, moment) == WAYS
    if engine == "local":
        text = run_curate(*command).stdout
        assert text.startswith("setting (%)")
        assert "by " not in text


def test_the_result_goes_where_standard_output_led_before(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """And afterwards all is as it was, in a process that goes on."""
    code = (
        "import os, subprocess, sys\n"
        "from curate.cli.common import emit, results_apart, shared\n"
        "shared.json = True\n"
        "print('before')\n"
        "with results_apart():\n"
        "    print('within'); os.write(1, b'within\\n'); subprocess.run(['echo', 'within'])\n"
        "    emit({'a': 1})\n"
        "    os.write(1, b'within\\n')\n"
        "os.write(1, b'after\\n')\n"
        "print('after', flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == 'before\n{"a": 1}\nafter\nafter\n'
    assert sorted(done.stderr.split()) == ["within"] * 4


def test_a_stream_that_is_no_file_takes_the_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common.shared, "json", True)
    with common.results_apart():
        print("within")
        common.emit({"a": 1})
    print("after")
    out, err = capsys.readouterr()
    assert out == '{"a": 1}\nafter\n'
    assert err == "within\n"


class Plain:
    """A stream as people write them to catch what is printed: it can do no more than that."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.text += "".join(lines)

    def flush(self) -> None:
        pass


def test_a_stream_that_knows_of_no_descriptor_takes_the_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Plain()
    monkeypatch.setattr(sys, "stdout", stream)
    with common.results_apart():
        print("within")
        common.emit({}, "a result")
    assert stream.text == "a result\n"
    assert sys.stdout is stream
    assert capsys.readouterr().err == "within\n"


@pytest.mark.parametrize("gone", ["closed", "full"])
def test_a_result_that_finds_no_taker_ends_as_it_should(
    photos: Path, tmp_path: Path, gone: str
) -> None:
    model = written("model.py", MODEL, tmp_path)
    command = [sys.executable, "-m", "curate", "robustness", "run", "--model-file", model]
    command += ["--settings", f"val={photos}", "--store", str(tmp_path / "store"), "--json"]
    if gone == "closed":
        reader, writer = os.pipe()
        os.close(reader)
    elif Path("/dev/full").exists():
        writer = os.open("/dev/full", os.O_WRONLY)
    else:
        pytest.skip("this system has no /dev/full")
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert ("cannot write the result: No space left" in done.stderr) is (gone == "full")
