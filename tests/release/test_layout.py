"""Reading ImageNet-A style folders: what loaders see, or one line that says why not."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from curate.errors import AmbiguousNameError, LabelSpaceError, UnknownNameError, UsageError
from curate.files import write_json
from curate.labels.space import LabelSpace, load_label_space
from curate.release.build import class_map
from curate.release.layout import IMAGE_EXTENSIONS, read_layout, release_label_space

Photos = list[tuple[Path, int]]


@pytest.fixture
def dataset(tmp_path: Path, package_photos: Photos) -> Path:
    """Real photos in class folders, with what else lies about in such folders."""
    root = tmp_path / "imagenet-a"
    wnids = load_label_space("imagenet-1k").wnids
    for path, index in package_photos[:6]:
        (root / wnids[index]).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, root / wnids[index] / path.name)
    (root / "README.txt").write_text("about")
    (root / "stray.jpg").write_bytes(b"beside the folders")
    (root / ".cache").mkdir()
    return root


def _some_class(root: Path) -> Path:
    return min(path for path in root.iterdir() if path.name.startswith("n"))


def test_the_extensions_are_those_of_torchvision() -> None:
    from torchvision.datasets.folder import IMG_EXTENSIONS

    assert set(IMAGE_EXTENSIONS) == set(IMG_EXTENSIONS)


def test_images_and_their_order_are_those_of_imagefolder(dataset: Path) -> None:
    from torchvision.datasets import ImageFolder

    folder = _some_class(dataset)
    photo = min(folder.iterdir())
    for name in ("B.JPEG", "a b.jpg", "é.jpg", "notes.txt", ".hidden.jpg"):
        shutil.copyfile(photo, folder / name)
    (folder / "more" / "deep").mkdir(parents=True)
    shutil.copyfile(photo, folder / "more" / "deep" / "z.png")
    shutil.copyfile(photo, folder / "more" / "y.png")
    (folder / "less").mkdir()
    shutil.copyfile(photo, folder / "less" / "x.png")
    (dataset / ".cache").rmdir()
    layout = read_layout(dataset)
    oracle = ImageFolder(str(dataset))
    assert [str(path) for path, _ in layout] == [path for path, _ in oracle.samples]
    assert [wnid for _, wnid in layout] == [oracle.classes[number] for _, number in oracle.samples]
    assert list(layout.wnids) == oracle.classes
    assert layout.passed_over == ((f"{folder.name}/notes.txt", "no image name"),)
    assert layout.relative(layout.items[0]) == f"{folder.name}/.hidden.jpg"


def test_links_and_devices_are_passed_over_and_named(dataset: Path) -> None:
    folder = _some_class(dataset)
    photo = min(folder.iterdir())
    before = len(read_layout(dataset))
    (folder / "link.jpg").symlink_to(photo)
    (folder / "loop").symlink_to(dataset, target_is_directory=True)
    os.mkfifo(folder / "pipe.png")
    layout = read_layout(dataset)
    assert len(layout) == before
    assert layout.passed_over == (
        (f"{folder.name}/link.jpg", "symbolic link"),
        (f"{folder.name}/loop", "symbolic link"),
        (f"{folder.name}/pipe.png", "no regular file"),
    )


def named(dataset: Path) -> Path:
    """The same photos in folders that bear names, written in several ways."""
    space = load_label_space("imagenet-1k")
    ways = (str, str.upper, lambda text: text.replace(" ", "_"))
    for number, folder in enumerate(sorted(dataset.glob("n*"))):
        names = [name for name in space.get(folder.name).names if space.knows(name)]
        for name in names:
            try:
                space.match(name)
            except AmbiguousNameError:
                continue
            folder.rename(dataset / ways[number % 3](name))
            break
    assert not list(dataset.glob("n[0-9]*"))
    return dataset


def test_class_folders_may_bear_names_and_mean_the_same(dataset: Path) -> None:
    by_id = {(item.path.name, item.wnid) for item in read_layout(dataset)}
    named(dataset)
    assert {(item.path.name, item.wnid) for item in read_layout(dataset)} == by_id
    whole = load_label_space("imagenet-1k")
    assert {(item.path.name, item.wnid) for item in read_layout(dataset, whole)} == by_id


def test_a_name_and_an_id_may_mean_one_class(dataset: Path) -> None:
    folder = _some_class(dataset)
    name = load_label_space("imagenet-1k").get(folder.name).name
    photo = min(folder.iterdir())
    (dataset / name).mkdir()
    shutil.copyfile(photo, dataset / name / "again.jpg")
    found = [item.wnid for item in read_layout(dataset) if item.path.parent.name == name]
    assert found == [folder.name]


def test_a_release_is_not_read_by_names(dataset: Path) -> None:
    """Its folders are its manifest's, and whoever renamed one has another dataset."""
    named(dataset)
    for place in (dataset, dataset.parent):
        (place / "release.json").write_text("{}")
        with pytest.raises(UsageError, match=r"is a class name; call the folder n\d{8}"):
            read_layout(dataset, load_label_space("imagenet-1k"))
        (place / "release.json").unlink()


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS takes only names in UTF-8")
def test_a_name_that_is_not_utf8_is_read_and_printable(dataset: Path) -> None:
    folder = _some_class(dataset)
    name = os.fsdecode(b"\xe9t\xe9.jpg")
    shutil.copyfile(min(folder.iterdir()), folder / name)
    layout = read_layout(dataset)
    relative = [layout.relative(item) for item in layout]
    assert f"{folder.name}/\\udce9t\\udce9.jpg" in relative
    "".join(relative).encode()


def test_a_deep_tree_is_no_trouble(dataset: Path) -> None:
    path = _some_class(dataset)
    made = []
    for _ in range(1200):
        path = path / "d"
        path.mkdir()
        made.append(path)
    try:
        assert len(read_layout(dataset)) == 6
    finally:
        # Removed here, because what removes the rest may recurse.
        for path in reversed(made):
            path.rmdir()


def test_a_link_to_the_dataset_itself_is_followed(dataset: Path) -> None:
    link = dataset.parent / "link"
    link.symlink_to(dataset, target_is_directory=True)
    assert len(read_layout(link)) == 6


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        ([], UsageError, "has no class folders; images belong in folders named by class id"),
        (["a.jpg"], UsageError, r"has no class folders \(1 images lie in it directly\)"),
        (["n01498041/"], UsageError, "hold no images$"),
        (["n01498041/x.txt"], UsageError, r"1 files, the first is 'n01498041/x.txt' \(no image"),
        (["n01498041/a.jpg", "n0149804/b.jpg"], UnknownNameError, "'n0149804'; did you mean n0149"),
        (["n01498041/a.jpg", "stingrray/b.jpg"], UnknownNameError, "did you mean stingray"),
        (["crane/a.jpg"], AmbiguousNameError, "n02012849.*n03126707"),
        (["7/a.jpg"], UnknownNameError, "unknown class '7'"),
        (["x\ny/a.jpg"], UnknownNameError, r"unknown class 'x\\ny'"),
        (["set/n01498041/a.jpg"], UsageError, "one level down: name .*set instead of"),
        (["set/stingray/a.jpg"], UsageError, "one level down: name .*set instead of"),
        (["stingray/a.jpg", "crane/a.jpg"], AmbiguousNameError, "n02012849.*n03126707"),
    ],
)
def test_what_is_no_dataset_is_explained_in_one_line(
    tmp_path: Path, made: list[str], error: type[UsageError], message: str
) -> None:
    for name in made:
        path = tmp_path / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(b"x")
    with pytest.raises(error, match=message) as caught:
        read_layout(tmp_path)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_class_folders_that_are_links_are_named(tmp_path: Path) -> None:
    (tmp_path / "n01498041").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(UsageError, match="'n01498041' is a symbolic link, which is not followed"):
        read_layout(tmp_path)


def test_a_file_and_an_absent_folder_are_explained(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(UsageError, match="x is not a folder"):
        read_layout(tmp_path / "x")
    with pytest.raises(UsageError, match="cannot read .*: No such file"):
        read_layout(tmp_path / "absent")


def test_a_given_label_space_decides_which_folders_are_classes(dataset: Path) -> None:
    stranger = _some_class(dataset).name
    others = [item for item in load_label_space("imagenet-1k") if item.wnid != stranger]
    with pytest.raises(UnknownNameError, match=f"unknown class '{stranger}'"):
        read_layout(dataset, LabelSpace("others", others))


@pytest.fixture
def own_release(tmp_path: Path) -> tuple[Path, LabelSpace]:
    """What a release of the user's own label space looks like to a reader."""
    table = tmp_path / "own.csv"
    table.write_text("id,name,column\ncat,a cat,281\n2-dogs,'dogs,\n")
    space = load_label_space("own.csv", tmp_path)
    root = tmp_path / "release"
    (root / "2-dogs").mkdir(parents=True)
    (root / "2-dogs" / "a.jpg").write_bytes(b"x")
    (root / "classes.csv").write_bytes(class_map(space))
    told = {"name": space.name, "fingerprint": space.fingerprint}
    write_json(root / "release.json", {"label_space": told})
    return root, space


def test_a_release_brings_its_own_label_space(own_release: tuple[Path, LabelSpace]) -> None:
    root, space = own_release
    found = release_label_space(root)
    assert found is not None
    assert (found.name, found.wnids, found.fingerprint) == (
        "own.csv",
        ("cat", "2-dogs"),
        space.fingerprint,
    )
    assert read_layout(root).wnids == ("2-dogs",)


@pytest.mark.parametrize("preset", ["imagenet-a", "imagenet-o", "imagenet-1k"])
def test_the_class_map_is_the_label_space_again(tmp_path: Path, preset: str) -> None:
    space = load_label_space(preset)
    (tmp_path / "classes.csv").write_bytes(class_map(space))
    again = load_label_space("classes.csv", tmp_path)
    assert again.fingerprint == space.fingerprint
    assert [item.name for item in again] == [item.name for item in space]


def test_a_release_with_another_class_map_is_refused(own_release: tuple[Path, LabelSpace]) -> None:
    root, _ = own_release
    (root / "classes.csv").write_text("wnid\n2-dogs\n")
    with pytest.raises(UsageError, match="is not the class map that release.json names"):
        read_layout(root)


@pytest.mark.parametrize(
    "record", [b"", b"[]", b"{}", b'{"label_space": 3}', b"\xff", b"[" * 100_000]
)
def test_a_release_with_a_damaged_record_is_refused(
    own_release: tuple[Path, LabelSpace], record: bytes
) -> None:
    root, _ = own_release
    (root / "release.json").write_bytes(record)
    with pytest.raises(UsageError, match="cannot read .*release.json") as caught:
        release_label_space(root)
    assert "\n" not in str(caught.value)


def test_a_release_with_a_damaged_class_map_is_refused(
    own_release: tuple[Path, LabelSpace],
) -> None:
    root, _ = own_release
    (root / "classes.csv").write_text("name\nx\n")
    with pytest.raises(LabelSpaceError):
        release_label_space(root)
