"""Settings: who wins, and what a wrong one says."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.errors import SettingsError, UnknownNameError, WorkspaceError
from curate.settings import data_file, find_workspace, load_settings, preset_text, presets


def workspace(tmp_path: Path, text: str) -> Path:
    (tmp_path / "curate.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def test_an_option_wins_over_the_environment_over_the_file_over_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = workspace(tmp_path, "filter:\n  threshold: 0.2\n  cap: 3\n  seed: 4\n")
    monkeypatch.setenv("CURATE_FILTER__THRESHOLD", "0.3")
    monkeypatch.setenv("CURATE_FILTER__CAP", "5")
    settings = load_settings(root, {"filter.threshold": 0.4, "filter.rule": None})
    assert settings.filter.threshold == 0.4
    assert settings.filter.cap == 5
    assert settings.filter.seed == 4
    assert settings.filter.rule == "misclassified"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("filter:\n  treshold: 0.2\n", "unknown setting 'filter.treshold'; did you mean threshold"),
        ("filtr:\n  cap: 1\n", "unknown setting 'filtr'; did you mean filter"),
        ("filter:\n  threshold: 2\n", r"filter.threshold: .*less than or equal to 1.*got 2"),
        ("filter:\n  cap: 0\n", "filter.cap"),
        ("filter: [1\n", "line 2: not YAML"),
        ("- a\n", "expected lines of the form name: value"),
        ("filter:\n  cap_order: size\n", "filter.cap_order"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_file_and_setting(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        load_settings(workspace(tmp_path, text))
    assert "curate.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "CURATE_NETWORK__ALLOW_HOSTS",
            "127.0.0.1:8000",
            "variable CURATE_NETWORK__ALLOW_HOSTS: write a list",
        ),
        (
            "CURATE_COLLECT__LICENCES",
            "CC0-1.0",
            "variable CURATE_COLLECT__LICENCES: write a list as JSON",
        ),
        ("CURATE_NETWORK__PER_SECOND", "1e-300", "NETWORK__PER_SECOND: network.per_second"),
        ("CURATE_NETWORK__PER_SECOND", "nan", "NETWORK__PER_SECOND: network.per_second"),
    ],
)
def test_a_wrong_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv("CURATE_COLLECT__CONTACT", "ann@example.org")
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=message):
        load_settings(workspace(tmp_path, "format: 1\n"))


def test_a_wrong_option_is_told_as_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="the command line: .*threshold"):
        load_settings(workspace(tmp_path, ""), {"filter.threshold": -1})


def test_a_workspace_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="install a newer natadv-curate"):
        load_settings(workspace(tmp_path, "format: 99\nsomething_new: 1\n"))


def test_the_workspace_is_the_one_named_else_of_the_environment_else_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name / "deep").mkdir(parents=True)
        workspace(tmp_path / name, "")
    monkeypatch.setenv("CURATE_WORKSPACE", str(tmp_path / "b"))
    assert find_workspace(tmp_path / "a") == tmp_path / "a"
    assert find_workspace(start=tmp_path / "c" / "deep") == tmp_path / "b"
    monkeypatch.delenv("CURATE_WORKSPACE")
    assert find_workspace(start=tmp_path / "c" / "deep") == tmp_path / "c"
    with pytest.raises(WorkspaceError, match="curate init"):
        find_workspace(start=tmp_path)
    with pytest.raises(WorkspaceError, match="is no workspace"):
        find_workspace(tmp_path)


def test_every_preset_makes_valid_settings(tmp_path: Path) -> None:
    assert {"imagenet-a", "imagenet-o", "imagenet-1k"} <= set(presets())
    for name in presets():
        root = tmp_path / name
        root.mkdir()
        (root / "curate.yaml").write_bytes(preset_text(name))
        assert load_settings(root).format == 1


def test_an_unknown_preset_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean imagenet-a"):
        preset_text("imagenet_a")


def test_label_data_is_found() -> None:
    assert data_file("labels/imagenet-a.csv").is_file()
    with pytest.raises(FileNotFoundError):
        data_file("labels/absent.csv")
