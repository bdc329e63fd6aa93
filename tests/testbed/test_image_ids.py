from __future__ import annotations

import pytest

from curate.errors import UsageError
from curate.testbed.image_ids import ImageIds

ITEMS = [("n1/a.jpg", "n1"), ("n1/b.jpg", "n1"), ("n2/a.jpg", "n2"), ("n2/sub/c.jpg", "n2")]


def places(*ids: str) -> list[int]:
    rows = ((f"line {n}", text) for n, text in enumerate(ids, 2))
    return ImageIds(ITEMS, "file.csv").places(rows)


@pytest.mark.parametrize(
    "ids",
    [
        ("n2/sub/c.jpg", "n2/a.jpg", "n1/b.jpg", "n1/a.jpg"),
        ("c.jpg", "n2/a.jpg", "b.jpg", "n1/a.jpg"),
        ("/data/set/n2/sub/c.jpg", "../n2/a.jpg", "C:\\x\\n1\\b.jpg", "./n1/a.jpg"),
    ],
)
def test_paths_whole_or_behind_folders_and_unique_file_names_count(ids: tuple[str, ...]) -> None:
    assert places(*ids) == [3, 2, 1, 0]


def test_a_file_name_of_several_images_is_refused() -> None:
    with pytest.raises(UsageError, match=r"line 2: several images are named 'a\.jpg'"):
        places("a.jpg")


def test_a_file_name_in_another_class_folder_is_no_match() -> None:
    with pytest.raises(UsageError, match=r"line 3: image 'n1/c\.jpg' is not in the dataset"):
        places("n1/a.jpg", "n1/c.jpg")


def test_unknown_images_are_counted_and_the_first_is_named() -> None:
    with pytest.raises(UsageError, match=r"line 3: image 'n1/bb\.jpg' .*'n1/b\.jpg'.*2 of 3 rows"):
        places("n1/a.jpg", "n1/bb.jpg", "zzz")


def test_missing_images_are_counted_and_the_first_is_named() -> None:
    with pytest.raises(UsageError, match=r"no row for image 'n1/b\.jpg'.* 2 of 4 images"):
        places("n1/a.jpg", "n2/a.jpg")


def test_an_image_named_twice_is_refused_with_both_places() -> None:
    with pytest.raises(UsageError, match=r"line 4: image 'b\.jpg' was named in line 2 already"):
        places("n1/b.jpg", "n1/a.jpg", "b.jpg")
