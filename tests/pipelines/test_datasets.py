from __future__ import annotations

from pathlib import Path

import pytest

from curate.errors import UsageError
from curate.labels.space import load_label_space
from pipelines.datasets import open_dataset, read_release, smallest_label_space
from tests.pipelines.made_release import mark_as_release

ONLY_A = next(
    w for w in load_label_space("imagenet-a").wnids if w not in load_label_space("imagenet-o")
)
ONLY_O = next(
    w for w in load_label_space("imagenet-o").wnids if w not in load_label_space("imagenet-a")
)
NEITHER = next(
    w
    for w in load_label_space("imagenet-1k").wnids
    if w not in load_label_space("imagenet-a") and w not in load_label_space("imagenet-o")
)


@pytest.mark.parametrize(
    ("wnids", "name"),
    [
        ([ONLY_A], "imagenet-a"),
        ([ONLY_O], "imagenet-o"),
        ([ONLY_A, ONLY_O], "imagenet-1k"),
        ([NEITHER], "imagenet-1k"),
    ],
)
def test_the_smallest_preset_that_holds_every_class(wnids: list[str], name: str) -> None:
    assert smallest_label_space(wnids, "here").name == name


def test_a_class_of_no_preset_is_named() -> None:
    with pytest.raises(UsageError, match=r"^here: 'n00000001' .*none of imagenet-a, imagenet-o"):
        smallest_label_space([ONLY_A, "n00000001", "n00000002"], "here")


def test_images_come_in_the_order_of_their_names_whatever_the_disks_order(tmp_path: Path) -> None:
    for name in ("b.jpg", "A.jpg", "a.jpg", ".hidden.jpg"):
        (tmp_path / ONLY_A).mkdir(exist_ok=True)
        (tmp_path / ONLY_A / name).write_bytes(b"x")
    (tmp_path / "README.md").write_text("beside the folders")
    found = open_dataset(tmp_path)
    assert found.paths == tuple(f"{ONLY_A}/{n}" for n in (".hidden.jpg", "A.jpg", "a.jpg", "b.jpg"))
    assert set(found.wnids) == {ONLY_A}
    assert found.space.name == "imagenet-a"
    assert found.release is None


def test_a_named_label_space_wins(tmp_path: Path) -> None:
    (tmp_path / ONLY_A).mkdir()
    (tmp_path / ONLY_A / "a.jpg").write_bytes(b"x")
    assert open_dataset(tmp_path, "imagenet-1k").space.name == "imagenet-1k"
    with pytest.raises(UsageError, match=ONLY_A):
        open_dataset(tmp_path, "imagenet-o")


def test_a_workspace_without_releases_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "curate.yaml").write_text("")
    with pytest.raises(UsageError, match="is a workspace: name one of its releases, once built"):
        open_dataset(tmp_path)


def test_a_split_brings_the_label_space_and_the_models_of_its_release(tmp_path: Path) -> None:
    space = load_label_space("imagenet-a")
    root = tmp_path / "1.0.0"
    (root / "test" / ONLY_A).mkdir(parents=True)
    (root / "test" / ONLY_A / "a.jpg").write_bytes(b"x")
    counts = {"by_split": {"test": 1}}
    mark_as_release(root, space, counts=counts, models=[{"fingerprint": "f" * 64}])
    found = open_dataset(root / "test")
    assert found.chosen_by == "the release"
    assert found.release is not None
    assert (found.release.version, found.release.selection) == ("1.0.0", {"f" * 64})


@pytest.mark.parametrize(
    "record",
    ["[" * 100_000, "{}", "[]", "1", '{"layout": "imagenet-a", "version": "1", "models": [1]}'],
    ids=["deep", "empty", "list", "number", "models"],
)
def test_a_record_that_is_none_is_one_line(tmp_path: Path, record: str) -> None:
    (tmp_path / "release.json").write_text(record)
    (tmp_path / "manifest.parquet").write_bytes(b"rows")
    with pytest.raises(UsageError, match="no release's record") as told:
        read_release(tmp_path)
    assert "\n" not in str(told.value)
