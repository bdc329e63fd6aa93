"""Settings: which images a folder gives, what is right for each, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.corruptions import corrupt
from curate.errors import CurateError, LabelSpaceError, UnknownNameError, UsageError
from curate.labels.space import load_label_space
from curate.metrics import grouped_accuracy, predict
from curate.testbed.known_settings import SETTINGS, Settings, run_file
from curate.testbed.known_shifts import known_testbed
from curate.testbed.setting import Part, listed
from curate.testbed.settings.imagenet_v2 import EIGHTH
from tests.pipelines.made_release import mark_as_release

WNIDS = load_label_space("imagenet-1k").wnids


def touch(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"")
    return root


def opened(*wanted: tuple[str, Path], **options: Any) -> list[Part]:
    return Settings(wanted, **{"steps": 100, **options}).parts()


def told(part: Part) -> dict[str, tuple[str, ...]]:
    return {
        part.layout.relative(item): right
        for item, right in zip(part.layout, part.right, strict=True)
    }


def test_every_name_is_of_one_setting_and_the_published_columns_are_there() -> None:
    names = [name for setting in SETTINGS for name in setting.names]
    assert len(names) == len(set(names))
    # Its table has means and attacks' averages besides, which are of several settings.
    made = {name.removesuffix("_pm0").removesuffix("_pm10") for name in known_testbed().sizes}
    assert made - {"objectnet-1.0-beta"} <= set(names)
    assert {"objectnet", "pgd.linf.eps0.5", "pgd.linf.eps2", "pgd.l2.eps0.1"} <= set(names)
    assert all(setting.about for setting in SETTINGS)


def test_greyscale_leaves_nothing_of_the_colour(tmp_path: Path) -> None:
    root = touch(tmp_path / "val", f"{WNIDS[7]}/a.jpg")
    (part,) = opened(("greyscale", root))
    assert part.name == "greyscale"
    assert part.corruption is not None
    photo = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
    grey = corrupt(photo, *part.corruption, 0)
    assert (grey == grey[..., :1]).all()
    assert not (photo == photo[..., :1]).all()


def test_validation_images_are_of_a_thousand_classes(tmp_path: Path) -> None:
    root = touch(tmp_path / "val", f"{WNIDS[7]}/a.jpg", f"{WNIDS[2]}/b.jpg")
    (part,) = opened(("val", root))
    assert told(part) == {f"{WNIDS[2]}/b.jpg": (WNIDS[2],), f"{WNIDS[7]}/a.jpg": (WNIDS[7],)}
    assert len(part.space) == 1000
    assert "holds 2 images of 2 classes, where 50,000 of 1,000 were published" in part.note


def test_flat_validation_images_need_labels(tmp_path: Path) -> None:
    root = touch(tmp_path / "val", "one.JPEG", "two.JPEG")
    with pytest.raises(UsageError, match="val has no class folders: say with --labels"):
        opened(("val", root))
    labels = tmp_path / "labels.txt"
    labels.write_text(f"one.JPEG {WNIDS[3]}\ntwo.JPEG 10\n")
    (part,) = opened(("val", root), labels=labels)
    assert told(part) == {"one.JPEG": (WNIDS[3],), "two.JPEG": (WNIDS[10],)}


def test_labels_that_no_folder_needs_are_refused(tmp_path: Path) -> None:
    root = touch(tmp_path / "val", f"{WNIDS[7]}/a.jpg")
    with pytest.raises(UsageError, match=r"--labels .*labels.csv: every folder has class folders"):
        opened(("val", root), labels=tmp_path / "labels.csv")


def test_numbers_of_imagenet_v2_are_numbers_and_no_text(tmp_path: Path) -> None:
    folders = ("0", "1", "2", "10", "100", "999")
    root = touch(tmp_path / "v2", *(f"{one}/a.jpeg" for one in folders))
    (part,) = opened(("imagenetv2-matched-frequency-format-val", root))
    assert told(part) == {f"{one}/a.jpeg": (WNIDS[int(one)],) for one in folders}


@pytest.mark.parametrize("folder", ["1000", "01", "-1", "n01440764", "²"])
def test_what_is_no_number_of_a_class_is_refused(tmp_path: Path, folder: str) -> None:
    root = touch(tmp_path / "v2", "3/a.jpeg", f"{folder}/a.jpeg")
    with pytest.raises(UsageError, match="no folder named by a class's number"):
        opened(("imagenetv2-matched-frequency-format-val", root))


def test_sets_of_few_classes_are_told_apart_among_these(tmp_path: Path) -> None:
    of_a = load_label_space("imagenet-a").wnids
    a = touch(tmp_path / "a", f"{of_a[0]}/a.jpg")
    r = touch(tmp_path / "r", f"{WNIDS[1]}/a.jpg", f"{WNIDS[6]}/a.jpg")
    val = touch(tmp_path / "val", f"{of_a[0]}/x.jpg", f"{WNIDS[4]}/x.jpg", f"{WNIDS[0]}/x.jpg")
    wanted = [("imagenet-a", a), ("imagenet-r", r)]
    wanted += [(f"val-on-{one}-classes", val) for one in ("imagenet-a", "imagenet-r")]
    found = {part.name: part for part in opened(*wanted)}
    assert found["imagenet-a"].space.wnids == of_a
    of_r = found["imagenet-r"].space.wnids
    assert (len(of_r), of_r[:4]) == (200, (WNIDS[1], WNIDS[2], WNIDS[4], WNIDS[6]))
    on_a, on_r = found["val-on-imagenet-a-classes"], found["val-on-imagenet-r-classes"]
    assert told(on_a) == {f"{of_a[0]}/x.jpg": (of_a[0],)}
    assert (on_a.space.wnids, on_r.space.wnids) == (of_a, of_r)
    assert told(on_r) == {f"{one}/x.jpg": (one,) for one in (WNIDS[4], of_a[0])}
    touch(r, f"{WNIDS[5]}/a.jpg")
    with pytest.raises(UsageError, match=rf"imagenet-r: class folders of .*{WNIDS[5]}"):
        opened(("imagenet-r", r))


def test_classes_of_imagenet_r_are_those_that_another_library_has() -> None:
    found = importlib.util.find_spec("timm")
    assert found is not None
    names = Path(str(found.origin)).parent / "data" / "_info" / "imagenet_r_synsets.txt"
    assert set(listed("imagenet-r").wnids) == set(names.read_text().split())


def test_an_eighth_of_the_classes_is_told_apart_among_these(tmp_path: Path) -> None:
    val = touch(tmp_path / "val", f"{WNIDS[4]}/x.jpg", f"{WNIDS[26]}/x.jpg", f"{WNIDS[5]}/x.jpg")
    v2 = touch(tmp_path / "v2", "4/a.jpeg", "5/a.jpeg")
    of_val, of_v2 = opened(
        (f"val_{EIGHTH}", val), (f"imagenetv2-matched-frequency-format-val_{EIGHTH}", v2)
    )
    assert len(of_val.space) == 125
    assert of_val.space.wnids == of_v2.space.wnids
    assert set(told(of_val).values()) == {(WNIDS[4],), (WNIDS[26],)}
    assert told(of_v2) == {"4/a.jpeg": (WNIDS[4],)}
    (v2 / "4" / "a.jpeg").unlink()
    with pytest.raises(UsageError, match="no folder of .*v2 is of its classes"):
        opened((f"imagenetv2-matched-frequency-format-val_{EIGHTH}", v2))


def test_classes_without_images_or_with_too_few_are_named(tmp_path: Path) -> None:
    every = [f"{number}/{image}.jpeg" for number in range(1000) for image in range(10)]
    root = touch(tmp_path / "v2", *every)
    name = "imagenetv2-top-images-format-val"
    (whole,) = opened((name, root))
    assert whole.note == ""
    (root / "7" / "3.jpeg").rename(root / "8" / "10.jpeg")
    (moved,) = opened((name, root))
    assert f"(9 of {WNIDS[7]}, 11 of {WNIDS[8]}, where 10 are of each class)" in moved.note
    for path in (root / "7").iterdir():
        path.unlink()
    (lacking,) = opened((name, root))
    assert "9,991 images of 999 classes" in lacking.note
    assert f"without any of {WNIDS[7]}: its numbers are not that set's" in lacking.note


def test_classes_of_an_absent_set_are_asked_for(tmp_path: Path) -> None:
    val = touch(tmp_path / "val", f"{WNIDS[0]}/x.jpg")
    with pytest.raises(UsageError, match="needs the setting objectnet in the same run"):
        opened(("val-on-objectnet-classes", val))
    with pytest.raises(UsageError, match="none of the 1 images of .* is of a class of imagenet-a"):
        opened(("val-on-imagenet-a-classes", val))


def test_images_of_something_else_stand_against_validation_images(tmp_path: Path) -> None:
    of_o = load_label_space("imagenet-o").wnids
    other = next(wnid for wnid in WNIDS if wnid not in of_o)
    root = touch(tmp_path / "o", "whatever/a.jpg", "b.jpg")
    val = touch(tmp_path / "val", f"{of_o[3]}/x.jpg", f"{other}/x.jpg")
    with pytest.raises(UsageError, match="imagenet-o needs the setting val"):
        opened(("imagenet-o", root))
    (part, _) = opened(("imagenet-o", root), ("val", val))
    assert part.right == ((), ())
    assert part.note == (
        "o holds 2 images, where 2,000 were published: its numbers are not that set's"
    )
    assert part.inside is not None
    assert told(part.inside) == {f"{of_o[3]}/x.jpg": (of_o[3],)}


def test_a_corruption_has_one_severity_or_five_and_their_mean(tmp_path: Path) -> None:
    val = touch(tmp_path / "val", f"{WNIDS[0]}/x.jpg")
    one, *five = opened(("imagenet-c.snow.4", val), ("imagenet-c.fog", val))
    assert (one.name, one.corruption, one.mean) == (
        "imagenet-c.snow.4_in-memory",
        ("snow", 4),
        "",
    )
    assert [part.corruption for part in five] == [("fog", level) for level in range(1, 6)]
    assert {part.mean for part in five} == {"imagenet-c.fog.mean5_in-memory"}


def test_corruptions_on_the_disk_are_crops(tmp_path: Path) -> None:
    paths = [f"fog/{level}/{WNIDS[4]}/x.JPEG" for level in range(1, 6)]
    root = touch(tmp_path / "c", *paths, f"snow/2/{WNIDS[4]}/x.JPEG")
    found = opened(("imagenet-c", root))
    assert all(part.is_cut for part in found)
    means = {part.name: part.mean for part in found}
    assert means["imagenet-c.fog.3_on-disk"] == "imagenet-c.fog.mean5_on-disk"
    assert means["imagenet-c.snow.2_on-disk"] == ""
    with pytest.raises(UsageError, match="name the folder above the corruptions"):
        opened(("imagenet-c", root / "fog"))


def test_an_attack_of_other_steps_is_called_so(tmp_path: Path) -> None:
    val = touch(tmp_path / "val", f"{WNIDS[0]}/x.jpg")
    (part,) = opened(("pgd.linf.eps2", val))
    assert part.name == "pgd.linf.eps2"
    (part,) = opened(("pgd.linf.eps2", val), steps=10)
    assert part.name == "pgd.linf.eps2.steps10"
    assert part.attack is not None
    assert part.attack.steps == 10


def objectnet(root: Path, classes: dict[str, str] | None = None) -> Path:
    """A hand-made ObjectNet."""
    touch(root, "images/air_freshener/a.png", "images/bike/b.png", "images/banana/c.png")
    folders = {"air_freshener": "Air freshener", "bike": "Bicycle", "banana": "Banana"}
    (root / "mappings").mkdir(exist_ok=True)
    (root / "mappings/folder_to_objectnet_label.json").write_text(json.dumps(folders))
    told = classes or {
        "Banana": "banana",
        "Bicycle": "mountain bike, all-terrain bike, off-roader; "
        "bicycle-built-for-two, tandem bicycle, tandem",
    }
    (root / "mappings/objectnet_to_imagenet_1k.json").write_text(json.dumps(told))
    return root


def test_objectnet_is_mapped_by_its_own_files_and_loses_its_border(tmp_path: Path) -> None:
    space = load_label_space("imagenet-1k")
    bikes = tuple(space.match(one).wnid for one in ("mountain bike", "tandem bicycle"))
    banana = space.match("banana").wnid
    val = touch(tmp_path / "val", f"{bikes[1]}/x.jpg", f"{WNIDS[0]}/x.jpg")
    part, on = opened(("objectnet", objectnet(tmp_path / "o")), ("val-on-objectnet-classes", val))
    assert (part.name, part.border) == ("objectnet-1.0-beta", 2)
    assert told(part) == {"banana/c.png": (banana,), "bike/b.png": bikes}
    assert set(part.space.wnids) == {banana, *bikes}
    assert told(on) == {f"{bikes[1]}/x.jpg": (bikes[1],)}
    assert on.space.wnids == part.space.wnids


@pytest.mark.parametrize(
    ("classes", "text"),
    [
        ({"Banana": "bananna"}, "bananna"),
        ({"Banana": "crane"}, "crane"),
        ({"Pear": "banana"}, "no class in common"),
        ({"Banana": "banana", "Bicycle": "banana"}, "both"),
    ],
)
def test_a_wrong_map_of_objectnet_is_refused(
    tmp_path: Path, classes: dict[str, str], text: str
) -> None:
    with pytest.raises((UsageError, LabelSpaceError), match=text):
        opened(("objectnet", objectnet(tmp_path / "o", classes)))


def test_objectnet_without_its_maps_says_which_file(tmp_path: Path) -> None:
    root = touch(tmp_path / "o", "images/banana/c.png")
    with pytest.raises(UsageError, match=r"folder_to_objectnet_label\.json: No such file"):
        opened(("objectnet", root))


def video(root: Path, **changes: Any) -> Path:
    """A hand-made ImageNet-Vid-Robust: two classes, two anchors, three neighbours."""
    frames = [f"val/clip/{number:06}.JPEG" for number in range(5)]
    touch(root, *frames, "val/clip/not-named.JPEG")
    space = load_label_space("imagenet-1k")
    dogs = [space.wnids[151], space.wnids[152]]
    files = {
        "metadata/pmsets.json": {frames[0]: [frames[1], frames[2]], frames[4]: [frames[3]]},
        "metadata/labels.json": {
            **{key: [0] for key in frames[:3]},
            **{key: [0, 1] for key in frames[3:]},
        },
        "misc/imagenet_vid_class_index.json": {
            "0": ["n02084071", "dog"],
            "1": ["n02924116", "bus"],
        },
        "misc/wnid_map.json": {**dict.fromkeys(dogs, "n02084071"), space.wnids[779]: "n02924116"},
        **changes,
    }
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(json.dumps(content))
    return root


def test_frames_of_videos_have_anchors_neighbours_and_merged_classes(tmp_path: Path) -> None:
    (part,) = opened(("imagenet-vid-robust", video(tmp_path)))
    names = [part.layout.relative(item)[-6:-5] for item in part.layout]
    assert part.neighbours is not None
    sets = {names[one]: {names[f] for f in near} for one, near in part.neighbours.items()}
    assert sets == {"0": {"1", "2"}, "4": {"3"}}
    dogs = {WNIDS[151], WNIDS[152]}
    assert {frozenset(right) for right in part.right} == {
        frozenset(dogs),
        frozenset({*dogs, WNIDS[779]}),
    }
    assert part.space.wnids == (WNIDS[151], WNIDS[152], WNIDS[779])
    val = touch(tmp_path / "v", f"{WNIDS[152]}/x.jpg")
    _, on = opened(("imagenet-vid-robust", tmp_path), ("val-on-vid-robust-classes", val))
    assert [set(right) for right in on.right] == [dogs]


@pytest.mark.parametrize(
    ("file", "content", "text"),
    [
        ("metadata/labels.json", {}, "do not go together"),
        ("metadata/pmsets.json", [], "do not go together"),
        ("metadata/pmsets.json", {}, "names no anchor"),
        ("metadata/labels.json", {"../../etc/passwd": [0]}, "do not go together"),
        ("misc/wnid_map.json", {"n00000000": "n02084071"}, "is no class of imagenet-1k"),
        ("misc/imagenet_vid_class_index.json", {"0": []}, "do not go together"),
    ],
)
def test_wrong_metadata_of_videos_is_named(
    tmp_path: Path, file: str, content: Any, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        opened(("imagenet-vid-robust", video(tmp_path, **{file: content})))


def clips(root: Path, **changes: Any) -> Path:
    """A hand-made YTBB-Robust: one anchor is not good, and one has no similar frame."""
    one, two, bad = "vid-a_1000", "b_x_2000", "c_3000"
    touch(
        root / "ytbb_videos",
        *(f"{one}/frame-{number}.jpg" for number in (4, 5, 6, 15, 16)),
        f"{two}/frame-7.jpg",
        f"{bad}/frame-1.jpg",
    )
    words = ["good", "bad", "similar", "blur-increase", "dog", "bad-anchor"]
    pairs = {4: [2], 6: [2, 3], 15: [2], 16: [2]}
    files: dict[str, Any] = {
        "anchor_labels.json": {
            "labels": words,
            "annotations": [
                {"key": f"some/where/{one}/frame-5.jpg", "labels": [0, 4]},
                {"key": f"{two}/frame-7.jpg", "labels": [1]},
                {"key": f"{two}/frame-7.jpg", "labels": [0]},
                {"key": f"{bad}/frame-1.jpg", "labels": [0, 1]},
            ],
        },
        "pmk_labels.json": {
            "labels": words,
            "annotations": [
                {"key": f"{one}/frame-5.jpg,{one}/frame-{number}.jpg", "labels": labels}
                for number, labels in pairs.items()
            ],
        },
        "ytbb_class_index.json": {"0": "bus", "1": "dog", "23": "car", "22": "none"},
        "rev_class_idx_map.json": {"0": [779], "1": [151, 152], "23": [817]},
        **changes,
    }
    (root / "metadata").mkdir(parents=True)
    for name, content in files.items():
        (root / "metadata" / name).write_text(json.dumps(content))
    rows = ["ytid,time_ms,label", "vid-a,1000,0", "b_x,2000,22", "c,3000,0"]
    table = root / "metadata" / "ytbb_robustness_test_anchors_full.csv"
    table.write_text("\n".join(rows) + "\n")
    return root


def test_reviewed_frames_of_clips_count_and_no_others(tmp_path: Path) -> None:
    (part,) = opened(("ytbb-robust", clips(tmp_path)))
    names = [part.layout.relative(item) for item in part.layout]
    assert part.neighbours is not None
    assert {names[one]: [names[f] for f in near] for one, near in part.neighbours.items()} == {
        "vid-a_1000/frame-5.jpg": ["vid-a_1000/frame-4.jpg", "vid-a_1000/frame-15.jpg"],
        "b_x_2000/frame-7.jpg": [],
    }
    right = dict(zip(names, part.right, strict=True))
    # The class of the video, and what people added to its anchor.
    assert right["vid-a_1000/frame-15.jpg"] == (WNIDS[779], WNIDS[151], WNIDS[152])
    # 22 in the table is 23 elsewhere.
    assert right["b_x_2000/frame-7.jpg"] == (WNIDS[817],)
    assert part.space.wnids == (WNIDS[151], WNIDS[152], WNIDS[779], WNIDS[817])


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("anchor_labels.json", [], "expected a JSON object"),
        (
            "anchor_labels.json",
            {"labels": [], "annotations": [{"key": "a/frame-1.jpg"}]},
            "together",
        ),
        (
            "pmk_labels.json",
            {"labels": ["x"], "annotations": [{"key": "a", "labels": [0]}]},
            "together",
        ),
        ("rev_class_idx_map.json", {"0": [1000]}, "do not go together"),
        ("anchor_labels.json", {"labels": [], "annotations": []}, "names no anchor"),
    ],
)
def test_wrong_metadata_of_clips_is_named(
    tmp_path: Path, name: str, content: Any, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        opened(("ytbb-robust", clips(tmp_path, **{name: content})))


@pytest.mark.parametrize("frame", ["../secret.JPEG", "/etc/passwd", "val/clip/999999.JPEG"])
def test_a_frame_outside_its_folder_or_absent_is_refused(tmp_path: Path, frame: str) -> None:
    changes = {"metadata/pmsets.json": {frame: []}, "metadata/labels.json": {frame: [0]}}
    with pytest.raises(UsageError, match="no path within the folder|not there"):
        opened(("imagenet-vid-robust", video(tmp_path, **changes)))


NUMBERED = pytest.mark.parametrize(
    ("name", "made", "path", "changed"),
    [
        (
            "imagenet-vid-robust",
            video,
            "metadata/labels.json",
            lambda told, number: {**told, "val/clip/000004.JPEG": [number]},
        ),
        (
            "ytbb-robust",
            clips,
            "metadata/rev_class_idx_map.json",
            lambda told, number: {**told, "23": [number]},
        ),
        (
            "ytbb-robust",
            clips,
            "metadata/anchor_labels.json",
            lambda told, number: {
                **told,
                "annotations": [*told["annotations"], {"key": "d/frame-1.jpg", "labels": [number]}],
            },
        ),
    ],
    ids=["frames", "classes", "words"],
)


def with_number(file: Path, changed: Callable[[Any, Any], Any], number: Any) -> None:
    file.write_text(json.dumps(changed(json.loads(file.read_text()), number)))


@NUMBERED
@pytest.mark.parametrize(
    "number", [-1, 0.5, float("inf"), float("nan"), True, None, "-1", "٣", [0], 10**400]
)
def test_what_is_no_number_of_a_class_or_a_word_is_refused(
    tmp_path: Path, name: str, made: Any, path: str, changed: Any, number: Any
) -> None:
    """A negative one would be looked up from the end, true and a half as the number 1 or 0."""
    with_number(made(tmp_path) / path, changed, number)
    with pytest.raises(UsageError, match="do not go together") as refused:
        opened((name, tmp_path))
    assert "\n" not in str(refused.value)


@NUMBERED
@pytest.mark.parametrize("number", [1, 1.0, "1"])
def test_a_number_may_be_written_in_any_way_of_json(
    tmp_path: Path, name: str, made: Any, path: str, changed: Any, number: Any
) -> None:
    with_number(made(tmp_path) / path, changed, number)
    (part,) = opened((name, tmp_path))
    assert len(part.layout) > 1


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1005) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_stands_in_metadata_is_told_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Each file is JSON of any shape in its turn, or a part of it is."""
    root = tmp_path_factory.mktemp("hostile")
    name, made = data.draw(
        st.sampled_from(
            [("objectnet", objectnet), ("imagenet-vid-robust", video), ("ytbb-robust", clips)]
        )
    )
    made(root)
    path = data.draw(st.sampled_from(sorted(root.rglob("*.json"))))
    told = json.loads(path.read_text())
    if data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(told)))
        told[key] = data.draw(JSON)
    else:
        told = data.draw(JSON)
    path.write_text(json.dumps(told))
    said = ""
    try:
        opened((name, root))
    except CurateError as error:
        said = str(error)
    assert "\n" not in said


def test_a_release_brings_its_classes_its_version_and_its_counts(tmp_path: Path) -> None:
    space = load_label_space("imagenet-a")
    root = touch(tmp_path / "r", *(f"{wnid}/a.jpg" for wnid in space.wnids[:3]))
    mark_as_release(root, space, counts={"images": 3, "classes": 3})
    (part,) = opened(("release", root))
    assert (part.name, part.space.wnids, part.note) == ("release-1.0.0", space.wnids, "")
    assert set(told(part).values()) == {(wnid,) for wnid in space.wnids[:3]}
    # Of classes that it has no photos of, standard accuracy would be another one.
    classes = (space.wnids[0], space.wnids[3], WNIDS[0])
    val = touch(tmp_path / "val", *(f"{wnid}/x.jpg" for wnid in classes))
    _, on = opened(("release", root), ("val-on-release-classes", val))
    assert set(told(on)) == {f"{space.wnids[0]}/x.jpg"}
    assert (on.space.wnids, on.note) == (space.wnids, "")
    with pytest.raises(UsageError, match="val-on-release-classes is of one release, and several"):
        opened(("release", root), ("release", root), ("val-on-release-classes", val))
    (root / space.wnids[0] / "a.jpg").unlink()
    (lacking,) = opened(("release", root))
    assert "holds 2 images of 2 classes, where 3 of 3 were published: its numbers" in lacking.note


@pytest.mark.parametrize(
    "counts", [None, [], 5, {"by_split": 5}, {"by_split": "x"}, {"by_split": [[1, 2]]}]
)
def test_a_release_that_counts_in_no_way_known_is_refused(tmp_path: Path, counts: Any) -> None:
    space = load_label_space("imagenet-a")
    root = touch(tmp_path / "r", f"{space.wnids[0]}/a.jpg")
    mark_as_release(root, space, counts=counts)
    with pytest.raises(UsageError, match="no release's record; fetch it again"):
        opened(("release", root))


def test_a_split_of_a_release_is_a_column_of_its_own(tmp_path: Path) -> None:
    space = load_label_space("imagenet-a")
    root = touch(tmp_path / "r", *(f"{split}/{space.wnids[0]}/a.jpg" for split in ("dev", "test")))
    mark_as_release(
        root, space, counts={"images": 2, "classes": 1, "by_split": {"dev": 1, "test": 1}}
    )
    with pytest.raises(UsageError, match="has splits: name the folder of one, such as .*dev"):
        opened(("release", root))
    dev, test = opened(("release", root / "dev"), ("release", root / "test"))
    assert (dev.name, test.name) == ("release-1.0.0-dev", "release-1.0.0-test")
    assert (dev.note, test.note) == ("", "")


def test_a_release_of_something_else_stands_against_validation_images(tmp_path: Path) -> None:
    space = load_label_space("imagenet-o")
    root = touch(tmp_path / "r", f"{space.wnids[0]}/a.jpg", f"{space.wnids[1]}/b.jpg")
    mark_as_release(root, space, layout="imagenet-o", counts={"images": 2, "classes": 2})
    val = touch(tmp_path / "val", f"{space.wnids[3]}/x.jpg")
    (part, _) = opened(("release", root), ("val", val))
    assert (part.name, part.right, part.note) == ("release-1.0.0", ((), ()), "")
    assert part.inside is not None
    assert part.inside.space.wnids == space.wnids


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_an_id_among_those_that_count_is_what_merged_logits_would_say(seed: int) -> None:
    random = np.random.default_rng(seed)
    logits = random.normal(size=(30, 9))
    order = random.permutation(9)
    groups = [sorted(order[:2]), sorted(order[2:5]), [order[5]]]
    columns = sorted(column for group in groups for column in group)
    labels = random.choice(columns, 30)
    of = {column: group for group in groups for column in group}
    said = [columns[place] for place in predict(logits[:, columns])]
    right = np.mean([one in of[label] for one, label in zip(said, labels, strict=True)])
    assert right == pytest.approx(grouped_accuracy(logits, labels, groups))


REFUSED: list[tuple[Callable[[Path], Sequence[tuple[str, Path]]], type[Exception], str]] = [
    (lambda p: [("imagnet-a", p)], UnknownNameError, "imagenet-a"),
    (lambda p: [("val", p / "absent")], UsageError, "val: .*absent is not a folder"),
    (lambda p: [("val", p), ("val", p)], UsageError, "setting val is named twice"),
    (lambda p: [("imagenet-a", p)], UsageError, "imagenet-a: class folders of .*tench"),
    (lambda p: [("release", p)], UsageError, "no release"),
]


@pytest.mark.parametrize(("wanted", "kind", "text"), REFUSED)
def test_what_does_not_fit_is_told_in_one_line(
    tmp_path: Path, wanted: Any, kind: type[Exception], text: str
) -> None:
    touch(tmp_path, f"{WNIDS[0]}/x.jpg")
    with pytest.raises(kind, match=text) as told:
        opened(*wanted(tmp_path))
    assert "\n" not in str(told.value)


def test_code_of_ones_own_means_what_it_means_elsewhere(tmp_path: Path) -> None:
    """A dataclass looks its module up, and annotations are texts only where a file says so."""
    for name, first in (("plain", ""), ("later", "from __future__ import annotations\n")):
        (tmp_path / f"{name}.py").write_text(
            f"{first}from dataclasses import dataclass\n@dataclass\nclass Own:\n    size: int\n"
        )
        made = run_file(tmp_path / f"{name}.py", "settings").Own(3)
        assert (made.size, made.__annotations__["size"]) == (3, "int" if first else int)


def test_what_was_changed_of_a_file_within_a_second_is_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python keeps what it compiled of an imported file by its size and second.
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "mine.py"
    for value in (1, 2, 3):
        path.write_text(f"VALUE = {value}\n")
        os.utime(path, (1e9, 1e9))
        found = run_file(path, "settings").VALUE
        assert found == value
    assert list(tmp_path.iterdir()) == [path]


def test_a_setting_of_ones_own_is_read_from_a_file(tmp_path: Path) -> None:
    root = touch(tmp_path / "mine", f"{WNIDS[0]}/x.jpg")
    for name, text in (("nothing.py", "x = 1\n"), ("broken.py", "1 / 0\n"), ("text.txt", "")):
        (tmp_path / name).write_text(text)
        with pytest.raises(UsageError, match=name):
            opened(("val", root), files=[tmp_path / name])
    (tmp_path / "raises.py").write_text(
        "from curate.testbed.setting import Setting\n"
        "SETTING = Setting(('mine',), 'it fails', lambda asked: 1 / 0)\n"
    )
    with pytest.raises(UsageError, match=r"raises\.py: mine: ZeroDivisionError"):
        opened(("mine", root), files=[tmp_path / "raises.py"])
    (tmp_path / "twice.py").write_text("from curate.testbed.settings.validation import SETTING\n")
    with pytest.raises(UsageError, match="setting 'val' is there already"):
        opened(("val", root), files=[tmp_path / "twice.py"])
