"""What people are told of a class."""

from __future__ import annotations

from pathlib import Path

import pytest

from annotation import definitions
from annotation.definitions import definition
from curate.labels.classes import LabelClass
from curate.labels.concepts import load_concepts
from curate.labels.space import load_label_space
from curate.labels.wordnet import wordnet

SPACE = load_label_space("imagenet-1k")


@pytest.fixture(autouse=True)
def no_wordnet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(definitions.FOLDER_VARIABLE, str(tmp_path / "none"))


def write_nouns(folder: Path, wnid: str, line: str) -> None:
    folder.mkdir(exist_ok=True)
    # The file has holes: only the line that is asked for is there.
    with (folder / "data.noun").open("wb") as stream:
        stream.seek(int(wnid[1:]))
        stream.write(line.encode() + b"\n")


def test_other_names_scientific_names_and_kinds_are_told() -> None:
    told = definition(SPACE.get("n01440764"))
    assert told.startswith("Scientific name: Tinca tinca. A kind of cyprinid")
    told = definition(SPACE.get("n02123045"))
    assert told.startswith("Also called tabby cat. A kind of domestic cat, cat, feline")
    crane = definition(SPACE.get("n03126707"))
    assert "A kind of lifting device" in crane
    assert "bird" not in crane


def test_every_class_and_concept_is_told_in_one_short_line() -> None:
    concepts = load_concepts("wordnet")
    for item in [*SPACE, *list(concepts)[::50]]:
        told = definition(item)
        assert told.isprintable()
        assert len(told) < definitions.LONGEST + 500
    assert all(definition(item) for item in SPACE)


def test_what_wordnet_does_not_know_is_told_by_the_users_own_table() -> None:
    own = LabelClass("robot", "robot", ("robot", "android"), parents=("machine",))
    assert definition(own) == "Also called android. A kind of machine."
    assert definition(LabelClass("robot", "robot")) == ""
    placed = LabelClass("own-1", "my cat", wordnet=("n02123045",))
    assert "tabby" in definition(placed)
    assert "domestic cat" in definition(placed)


def test_an_installed_wordnet_explains_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wordnet"
    line = '02123045 05 n 02 tabby 0 tabby_cat 0 001 @ 02121808 n 0000 | striped; "our tabby"  '
    write_nouns(folder, "n02123045", line)
    monkeypatch.setenv(definitions.FOLDER_VARIABLE, str(folder))
    assert definition(SPACE.get("n02123045")).startswith("Striped. Also called tabby cat.")


@pytest.mark.parametrize(
    "line",
    [
        "02123046 05 n 02 tabby 0 tabby_cat 0 001 @ 02121808 n 0000 | of another offset",
        "02123045 05 n 01 queen 0 001 @ 02121808 n 0000 | of another version",
        "2123045 tabby | neither",
        "02123045 05",
        "",
        "| \x00\x1b",
    ],
)
def test_a_line_that_is_not_the_synsets_explains_nothing(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = definition(SPACE.get("n02123045"))
    folder = tmp_path / "wordnet"
    write_nouns(folder, "n02123045", line)
    monkeypatch.setenv(definitions.FOLDER_VARIABLE, str(folder))
    assert definition(SPACE.get("n02123045")) == plain


def test_a_file_that_ends_early_or_is_a_folder_explains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("short", "folder"):
        (tmp_path / name).mkdir()
    (tmp_path / "short" / "data.noun").write_text("  1 this is short\n")
    (tmp_path / "folder" / "data.noun").mkdir()
    for name in ("short", "folder"):
        monkeypatch.setenv(definitions.FOLDER_VARIABLE, str(tmp_path / name))
        assert definitions.gloss(wordnet()["n02123045"]) == ""


def test_a_long_explanation_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "wordnet"
    line = "02123045 05 n 01 tabby 0 001 @ 02121808 n 0000 | " + "striped " * 1000
    write_nouns(folder, "n02123045", line)
    monkeypatch.setenv(definitions.FOLDER_VARIABLE, str(folder))
    told = definitions.gloss(wordnet()["n02123045"])
    assert len(told) == definitions.LONGEST
    assert told.endswith("…")
