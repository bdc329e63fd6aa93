from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from curate.errors import UnknownNameError, UsageError
from curate.labels.space import load_label_space
from pipelines.datasets import open_dataset
from pipelines.ood_datasets import has_true_classes, open_inside, open_outside, refuse_overlap
from tests.pipelines.made_release import mark_as_release

O = load_label_space("imagenet-o")  # noqa: E741
A = load_label_space("imagenet-a")
THOUSAND = load_label_space("imagenet-1k")
ONLY_A = next(wnid for wnid in A.wnids if wnid not in O)
FIRST, SECOND = O.wnids[:2]
NEITHER = next(wnid for wnid in THOUSAND.wnids if wnid not in O and wnid not in A)


def fill(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return root


@pytest.mark.parametrize(
    ("names", "space", "taken_for"),
    [
        ([f"{FIRST}/a.jpg", f"{SECOND}/b.jpg"], "imagenet-o", [FIRST, SECOND]),
        ([f"{ONLY_A}/a.jpg"], "imagenet-a", [ONLY_A]),
        ([f"{ONLY_A}/a.jpg", f"{FIRST}/b.jpg"], "imagenet-1k", [FIRST, ONLY_A]),
        (["a.jpg", "b.png"], "imagenet-o", ["", ""]),
        (["acorn squash/a.jpg", "n00000001/b.jpg"], "imagenet-o", ["", ""]),
        (["a.jpg", f"{FIRST}/b.jpg", "x/y/c.jpg"], "imagenet-o", ["", FIRST, ""]),
    ],
)
def test_images_of_something_else_lie_in_any_folder(
    tmp_path: Path, names: list[str], space: str, taken_for: list[str]
) -> None:
    found = open_outside(fill(tmp_path / "set", *names, "README.md", ".git/x.jpg"))
    assert found.truth is False
    assert found.space.name == space
    assert list(found.wnids) == taken_for
    assert len(found.paths) == len(names)
    assert found.layout.passed_over == ()


def test_a_named_label_space_wins(tmp_path: Path) -> None:
    found = open_outside(fill(tmp_path / "set", f"{ONLY_A}/a.jpg"), "imagenet-o")
    assert (found.space.name, found.chosen_by) == ("imagenet-o", "--label-space")
    assert found.wnids == ("",)


def test_only_the_label_spaces_classes_are_in_distribution(tmp_path: Path) -> None:
    root = fill(tmp_path / "val", f"{FIRST}/a.jpg", f"{ONLY_A}/b.jpg", f"{NEITHER}/c.jpg")
    found = open_inside(root, O)
    assert found.paths == (f"{FIRST}/a.jpg",)
    assert found.other_classes == 2
    with pytest.raises(UsageError, match=rf"none of the 1 images of .*imagenet-o: .*\({ONLY_A}\)"):
        open_inside(fill(tmp_path / "other", f"{ONLY_A}/b.jpg"), O)


def test_flat_images_need_a_file_of_labels(tmp_path: Path) -> None:
    names = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in (1, 2, 3)]
    root = fill(tmp_path / "val", *names)
    with pytest.raises(UsageError, match="say with --in-distribution-labels FILE"):
        open_inside(root, O)
    with pytest.raises(UsageError, match="say with --labels FILE"):
        open_dataset(root)
    labels = tmp_path / "val.txt"
    labels.write_text(f"{names[0]} {FIRST}\n{names[1]} {NEITHER}\n{names[2]} {SECOND}\n")
    found = open_inside(root, O, labels)
    assert found.wnids == (FIRST, SECOND)
    assert found.other_classes == 1
    assert found.labels is not None
    assert found.labels.name == "val.txt"
    whole = open_dataset(root, None, labels)
    assert (whole.space.name, len(whole.paths)) == ("imagenet-1k", 3)
    with pytest.raises(UsageError, match=rf"val\.txt, line 2: '{NEITHER}' is no class of imagenet"):
        open_dataset(root, "imagenet-o", labels)
    labels.write_text(f"{names[0]} {FIRST}\n{names[1]} cat\n{names[2]} {SECOND}\n")
    with pytest.raises(UnknownNameError, match=r"line 2: unknown class 'cat'"):
        open_inside(root, O, labels)


def test_a_users_label_space_names_the_folders(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("id,name,column\nmine,mine,3\nother,other,4\n")
    space = load_label_space(str(tmp_path / "own.csv"))
    root = fill(tmp_path / "val", "mine/a.jpg")
    assert open_inside(root, space).wnids == ("mine",)


def test_one_folder_in_the_other_is_refused(tmp_path: Path) -> None:
    inner = fill(tmp_path / "set", "in/a.jpg") / "in"
    for outside, inside in ((inner, inner), (tmp_path / "set", inner), (inner, tmp_path / "set")):
        with pytest.raises(UsageError, match="name two folders apart"):
            refuse_overlap(outside, inside)
    refuse_overlap(inner, fill(tmp_path / "inside", "a.jpg"))


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no images"):
        open_outside(fill(tmp_path / "set", "README.md"))


@pytest.mark.parametrize("layout", ["imagenet-x", "", None, ["imagenet-a"], 1])
def test_a_release_whose_folders_are_named_by_something_else_is_refused(
    tmp_path: Path, layout: Any
) -> None:
    space = load_label_space("imagenet-a")
    root = mark_as_release(tmp_path / "release", space, layout=layout)
    (root / space.wnids[0]).mkdir()
    (root / space.wnids[0] / "a.jpg").write_bytes(b"x")
    for opens in (open_dataset, open_outside, has_true_classes):
        with pytest.raises(UsageError, match=r"release\.json is no release's record"):
            opens(root)
