"""Images that are drawn by lot: the same ones whatever else is measured."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from curate.labels.space import load_label_space
from curate.release.layout import LabelledImage, Layout, read_layout
from curate.testbed.known_settings import Settings
from curate.testbed.setting import Part
from pipelines.testbed_lot import Lot
from tests.testbed.test_known_settings import WNIDS, touch

SPACE = load_label_space("imagenet-1k")


def part(count: int, neighbours: dict[int, tuple[int, ...]] | None = None) -> Part:
    items = tuple(LabelledImage(Path("set") / f"{n:03}.jpg", WNIDS[n]) for n in range(count))
    right = tuple((item.wnid,) for item in items)
    return Part("set", Layout(Path("set"), items), SPACE, right, neighbours=neighbours)


def names(one: Part) -> list[str]:
    return [item.path.name for item in one.layout]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(0, 9))
def test_more_images_hold_all_of_fewer_and_keep_what_is_right(
    count: int, few: int, more: int, seed: int
) -> None:
    few, more = sorted((few, more))
    small, large = (Lot(limit, None, seed).drawn(part(count)) for limit in (few, more))
    assert len(small.layout) == min(few, count)
    assert set(names(small)) <= set(names(large))
    assert names(small) == sorted(names(small))
    assert small.right == tuple((item.wnid,) for item in small.layout)


@given(st.integers(1, 5), st.integers(0, 9))
def test_frames_come_with_their_anchors(limit: int, seed: int) -> None:
    near = {0: (1, 2), 3: (2, 4), 5: (), 6: (7,)}
    whole = part(9, near)
    drawn = Lot(limit, None, seed).drawn(whole)
    assert drawn.neighbours is not None
    assert len(drawn.neighbours) == min(limit, 4)
    told, found = names(whole), names(drawn)
    sets = {told[one]: [told[frame] for frame in frames] for one, frames in near.items()}
    for one, frames in drawn.neighbours.items():
        assert sets[found[one]] == [found[frame] for frame in frames]
    seen = {*drawn.neighbours, *(frame for frames in drawn.neighbours.values() for frame in frames)}
    assert seen == set(range(len(drawn.layout)))


def test_attacks_take_fewer_and_all_settings_the_same(tmp_path: Path) -> None:
    val = touch(tmp_path / "val", *(f"{WNIDS[n]}/{n}.jpg" for n in range(30)))
    wanted = [
        (name, val) for name in ("val", "imagenet-c.fog", "imagenet-c.snow.1", "pgd.l2.eps0.1")
    ]
    parts = Settings(wanted, steps=3).parts()
    # A folder is read once, and what is drawn of it is one list.
    assert len({id(one.layout) for one in parts}) == 1
    lot = Lot(10, 4, 7)
    drawn = [lot.drawn(one) for one in parts]
    assert len({id(one.layout) for one in drawn[:-1]}) == 1
    assert [len(one.layout) for one in drawn] == [10] * 7 + [4]
    assert set(names(drawn[-1])) <= set(names(drawn[0]))
    assert drawn[-1].attack is not None
    assert drawn[-1].attack.seed == 7
    assert lot.drawn(parts[0]).right == drawn[0].right
    assert Lot(None, None, 0).drawn(parts[0]) is parts[0]


@given(st.integers(1, 9), st.integers(0, 9))
def test_lots_are_the_same_however_a_class_folder_is_written(limit: int, seed: int) -> None:
    drawn = []
    with TemporaryDirectory() as folder:
        for write in (lambda wnid: wnid, lambda wnid: SPACE.get(wnid).name.upper()):
            places = (f"{write(WNIDS[n])}/{k}/{n}.jpg" for n in range(10, 15) for k in "ab")
            root = touch(Path(folder) / str(len(drawn)), *places)
            layout = read_layout(root, SPACE)
            right = tuple((item.wnid,) for item in layout)
            one = Lot(limit, None, seed).drawn(Part("set", layout, SPACE, right))
            drawn.append([(item.wnid, *item.path.parts[-2:]) for item in one.layout])
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == limit
