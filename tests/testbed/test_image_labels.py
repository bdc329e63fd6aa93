from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from curate.errors import UsageError
from curate.labels.space import load_label_space
from curate.testbed.image_labels import read_image_labels

WNIDS = load_label_space("imagenet-1k").wnids
IMAGES = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in (1, 3)]


def wnids(path: Path, images: list[str] = IMAGES) -> list[str]:
    return [label.wnid for label in read_image_labels(path, images)]


def ilsvrc_map(path: Path) -> dict[int, str]:
    """A table as the development kit's: leaves and inner nodes, in an order of its own."""
    order = np.random.RandomState(0).permutation(1000)
    rows = np.zeros(
        1002, [("ILSVRC2012_ID", "f8"), ("WNID", "O"), ("words", "O"), ("num_children", "f8")]
    )
    numbers = {}
    for place, column in enumerate(order, 1):
        rows[place - 1] = (place, WNIDS[column], "words", 0)
        numbers[place] = WNIDS[column]
    rows[1000] = (1001, "n00001740", "entity", 2)
    rows[1001] = (1002, "n00002684", "object", 3)
    savemat(path, {"synsets": rows})
    return numbers


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("val.txt", "ILSVRC2012_val_00000001.JPEG 65\nILSVRC2012_val_00000003.JPEG 970\n"),
        ("val.txt", f"val/{IMAGES[0]}  {WNIDS[65]}\n\nother.jpg 3\nx/{IMAGES[1]}\t{WNIDS[970]}"),
        ("val.csv", f"image,wnid\r\n{IMAGES[1]},{WNIDS[970]}\r\n{IMAGES[0]},65\r\n"),
        ("val.csv", f"filename,label\n{IMAGES[1]},{WNIDS[970]}\n{IMAGES[0]},65\n"),
        (
            "LOC_val_solution.csv",
            f"ImageId,PredictionString\nILSVRC2012_val_00000001,{WNIDS[65]} 1 2 3 4 "
            f"{WNIDS[65]} 5 6 7 8\nILSVRC2012_val_00000003,{WNIDS[970]} 1 2 3 4 \n",
        ),
        ("synset_labels.txt", f"{WNIDS[65]}\n{WNIDS[1]}\n{WNIDS[970]}\n"),
        ("columns.txt", "65\n0\n970\n"),
    ],
)
def test_each_form_gives_the_classes(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert wnids(tmp_path / name) == [WNIDS[65], WNIDS[970]]


def test_ilsvrcs_own_numbers_need_its_table(tmp_path: Path) -> None:
    truth = tmp_path / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("490\n361\n171\n")
    with pytest.raises(UsageError, match=r"in an order of their own: put meta\.mat of"):
        wnids(truth)
    numbers = ilsvrc_map(tmp_path / "meta.mat")
    assert wnids(truth) == [numbers[490], numbers[171]]
    labels = read_image_labels(truth, IMAGES)
    assert labels[1].where.endswith("ground_truth.txt, line 3")


def test_a_wrong_table_is_refused(tmp_path: Path) -> None:
    truth = tmp_path / "truth.txt"
    truth.write_text("490\n361\n171\n")
    ilsvrc_map(tmp_path / "meta.mat")
    whole = (tmp_path / "meta.mat").read_bytes()
    for data in (b"no table", whole[: len(whole) // 2]):
        (tmp_path / "meta.mat").write_bytes(data)
        with pytest.raises(UsageError, match="is no table of ILSVRC's classes"):
            wnids(truth)
    rows = np.zeros(1, [("ILSVRC2012_ID", "f8"), ("WNID", "O"), ("num_children", "f8")])
    rows[0] = (1, WNIDS[0], 0)
    savemat(tmp_path / "meta.mat", {"synsets": np.repeat(rows, 2)})
    with pytest.raises(UsageError, match="does not number the 1,000 classes"):
        wnids(truth)


@pytest.mark.parametrize("at", [265, 296, 360, 432])
def test_a_table_that_ends_whoever_reads_it_is_refused(tmp_path: Path, at: int) -> None:
    """SciPy 1.17 writes and reads beyond its memory where one byte of this table is another."""
    (tmp_path / "truth.txt").write_text("490\n361\n171\n")
    rows = np.zeros(1, [("ILSVRC2012_ID", "f8"), ("WNID", "O"), ("num_children", "f8")])
    rows[0] = (1, "n01440764", 0)
    savemat(tmp_path / "meta.mat", {"synsets": rows})
    damaged = bytearray((tmp_path / "meta.mat").read_bytes())
    damaged[at] = 127
    (tmp_path / "meta.mat").write_bytes(damaged)
    with pytest.raises(UsageError, match=r"meta\.mat: it is no table of ILSVRC's classes"):
        wnids(tmp_path / "truth.txt")


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("v.txt", "", "holds no labels"),
        ("v.txt", f"{IMAGES[0]} 1000\n", "line 1: label 1000 is no column .* in another order"),
        ("v.txt", f"{IMAGES[0]} 1\n{IMAGES[0]} 2\n", "line 2: image .* was named in .*line 1"),
        ("v.txt", f"{IMAGES[0]} 1\n", f"no label for image '{IMAGES[1]}'.* 1 of 2 images"),
        ("v.txt", f"{IMAGES[0]} 1\nonly\n", "line 2: expected a file and its label, not 'only'"),
        ("v.txt", "1\n2\n0\n1001\n", "line 4: 1001 is the number of no class"),
        ("v.txt", "n01440764\n", f"has 1 labels, but image '{IMAGES[1]}' is there"),
        ("v.csv", "path,predicted\na,b\n", "a column of labels is missing: call it 'wnid'"),
        ("v.csv", "paths,wnid\na,b\n", "a column of images is missing: call it 'path'"),
        ("v.csv", f"path,wnid\n{IMAGES[0]},\n", "line 2: image or label is missing"),
        ("v.txt", "a/x.jpg 1\nb/x.jpg 2\n", "no label for image"),
        ("v.txt", "n01440764\n\nn01443537\nn01484850\n", "line 2: it is empty"),
        ("v.txt", "".join(f"{n}.jpg {n}\n" for n in range(200)), "exactly 0 … 199: they may be"),
        ("v.txt", "".join(f"{n}\n" for n in range(10)), "exactly 0 … 9: they may be the places"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, text: str, fault: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=fault) as caught:
        wnids(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_label_of_one_image_is_not_that_of_another_of_the_same_name(tmp_path: Path) -> None:
    file = tmp_path / "v.txt"
    file.write_text("a/x.jpg 65\n")
    with pytest.raises(UsageError, match="no label for image 'b/x.jpg'"):
        wnids(file, ["a/x.jpg", "b/x.jpg"])
    assert wnids(file, ["x.jpg"]) == wnids(file, ["b/x.jpg"]) == [WNIDS[65]]


def test_a_label_a_line_needs_numbered_names(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("n01440764\n")
    with pytest.raises(UsageError, match="image 'cat.jpg' bears no number as"):
        wnids(tmp_path / "v.txt", ["cat.jpg"])


def test_an_absent_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the labels .*No such file"):
        wnids(tmp_path / "absent.txt")
    (tmp_path / "v.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="it is not UTF-8"):
        wnids(tmp_path / "v.txt")
