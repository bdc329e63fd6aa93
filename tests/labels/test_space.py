"""Label spaces: finding classes, selecting them, and the columns they read."""

from __future__ import annotations

import random
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.errors import AmbiguousNameError, LabelSpaceError, UnknownNameError, UsageError
from curate.labels.classes import fold
from curate.labels.space import PRESETS, LabelClass, LabelSpace, load_label_space

# The lemmas that two ImageNet-1k classes share, as pairs of columns.
SHARED = {
    "sand viper": (54, 66),
    "grass snake": (55, 57),
    "partridge": (82, 86),
    "crawfish": (123, 124),
    "crayfish": (123, 124),
    "crane": (134, 517),
    "cardigan": (264, 474),
    "catamount": (286, 287),
    "panther": (286, 290),
    "Sus scrofa": (341, 342),
    "polecat": (358, 361),
    "panda": (387, 388),
    "tub": (435, 876),
    "wagon": (436, 734),
    "gong": (494, 577),
    "horn": (513, 566),
    "harp": (593, 594),
    "maillot": (638, 639),
    "missile": (657, 744),
}

ALL = load_label_space("imagenet-1k")
A = load_label_space("imagenet-a")
O = load_label_space("imagenet-o")  # noqa: E741 - its name
OWN = LabelSpace(
    "own.csv",
    [
        LabelClass("oak", "oak", ("Quercus, the oak",)),
        LabelClass("n02268443", "dragonfly", column=319),
        LabelClass("my-fly_2", "Hover Fly", ("hoverfly",), column=308),
    ],
)
SPACES = {space.name: space for space in (ALL, A, O, OWN)}


# Names


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_every_class_is_found_by_its_id_and_by_every_name_of_its_own(space: LabelSpace) -> None:
    carriers: dict[str, set[str]] = {}
    for item in space:
        for name in item.names:
            carriers.setdefault(fold(name), set()).add(item.wnid)
    for position, item in enumerate(space):
        assert space.match(item.wnid) is item
        assert space.get(item.wnid) is item
        assert space.position(item.wnid) == position
        assert item.name in item.names
        for name in item.names:
            if len(carriers[fold(name)]) == 1:
                assert space.match(name) is item
            else:
                with pytest.raises(AmbiguousNameError):
                    space.match(name)


def test_exactly_the_known_shared_names_are_ambiguous() -> None:
    found: dict[str, list[int]] = {}
    for position, item in enumerate(ALL):
        for name in {fold(name) for name in item.names}:
            found.setdefault(name, []).append(position)
    ambiguous = {name: tuple(where) for name, where in found.items() if len(where) > 1}
    assert ambiguous == {fold(name): where for name, where in SHARED.items()}


@pytest.mark.parametrize("name", SHARED)
def test_an_ambiguous_name_is_explained_by_ids_that_work(name: str) -> None:
    with pytest.raises(AmbiguousNameError) as caught:
        ALL.match(name)
    wnids = [told.split(" ")[0] for told in caught.value.matches]
    assert tuple(ALL.match(wnid).column for wnid in wnids) == SHARED[name]
    explanations = {told.split(" ", 1)[1] for told in caught.value.matches}
    assert len(explanations) == 2, "what stands behind the ids tells the classes apart"


def test_the_two_cranes_are_told_apart() -> None:
    with pytest.raises(AmbiguousNameError) as caught:
        ALL.match("Crane")
    assert str(caught.value) == (
        "class 'Crane' is ambiguous: write one of n02012849 (crane bird, a kind of wading bird), "
        "n03126707 (construction crane, a kind of lifting device)"
    )
    assert ALL.match("construction crane").column == 517
    assert O.match("crane").column == 517, "within ImageNet-O there is but one"


@pytest.mark.parametrize(
    "spelling",
    ["African elephant", "african_elephant", "  AFRICAN--Elephant ", "Loxodonta-africana"],
)
def test_case_underscores_hyphens_and_extra_blanks_do_not_matter(spelling: str) -> None:
    assert ALL.match(spelling).wnid == "n02504458"


def test_two_spellings_of_one_name_in_one_class_are_not_ambiguous() -> None:
    item = ALL.match("tree frog")
    assert item.names == ("tree frog", "tree-frog")
    assert ALL.match("Tree-Frog") is item


def test_a_typographic_apostrophe_is_an_apostrophe() -> None:
    assert ALL.match("jack-o’-lantern") is ALL.match("jack o' lantern")


def test_decomposed_accents_of_folder_names_do_not_matter() -> None:
    space = LabelSpace("own.csv", [LabelClass("tree", "Ébénier")])
    assert space.match(unicodedata.normalize("NFD", "ébénier")).wnid == "tree"


def test_an_ordinary_name_goes_before_a_name_of_last_resort() -> None:
    # CLIP calls both the burning lens and the spectacles "sunglasses"; WordNet only the latter.
    assert ALL.match("sunglasses").column == 837
    assert ALL.match("sunglass").column == 836


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown class 'dragonfyl'; did you mean dragonfly"):
        ALL.match("dragonfyl")
    with pytest.raises(UnknownNameError, match="did you mean n02268443"):
        ALL.match("N02268443")
    with pytest.raises(UnknownNameError, match="unknown class ''"):
        ALL.match("")


def test_a_class_outside_the_label_space_is_named_as_such() -> None:
    with pytest.raises(UnknownNameError) as caught:
        A.match("tench")
    assert str(caught.value) == (
        "unknown class 'tench'; label space imagenet-a lacks ImageNet-1k's n01440764 (tench)"
    )
    with pytest.raises(UnknownNameError, match="lacks ImageNet-1k's n01440764"):
        A.position("n01440764")


# Selecting


def test_no_argument_selects_all() -> None:
    assert A.select([]) == A.wnids


def test_ids_names_and_lists_select_in_the_order_of_the_space() -> None:
    chosen = ALL.select(["goldfish, n02268443", "tench", "Dragonfly"])
    assert chosen == ("n01440764", "n01443537", "n02268443")


def test_a_preset_selects_its_classes_that_are_there() -> None:
    assert ALL.select(["imagenet-a"]) == A.wnids
    both = A.select(["imagenet-o"])
    assert set(both) == set(A.wnids) & set(O.wnids)
    assert len(both) == 59
    assert A.select(["imagenet-1k"]) == A.wnids
    assert set(ALL.select(["imagenet-a,imagenet-o"])) == {*A.wnids, *O.wnids}


def test_a_preset_without_a_class_in_the_space_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"label space own\.csv has no class of imagenet-o"):
        OWN.select(["imagenet-o"])


def test_a_name_with_a_comma_is_found_whole() -> None:
    assert OWN.select(["Quercus, the oak"]) == ("oak",)
    assert OWN.select(["Quercus, the oak", "hover-fly"]) == ("oak", "my-fly_2")


@pytest.mark.parametrize("argument", ["", " ", ",", " , ,"])
def test_an_argument_that_names_nothing_is_an_error(argument: str) -> None:
    with pytest.raises(UsageError, match="names no class"):
        ALL.select([argument])


def test_errors_name_the_part_of_the_argument() -> None:
    with pytest.raises(UnknownNameError, match="unknown class 'dragonfyl'"):
        ALL.select(["goldfish,dragonfyl"])
    with pytest.raises(AmbiguousNameError, match="class 'crane' is ambiguous"):
        ALL.select(["goldfish,crane"])
    with pytest.raises(UnknownNameError, match="did you mean imagenet-a"):
        ALL.select(["imagenet_a"])


def test_a_file_lists_classes_a_line(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_bytes(
        "\ufeff# mine\r\n\r\nn02268443\r\ngoldfish, tench  # two fish\r\nimagenet-o\r\n".encode()
    )
    chosen = ALL.select(["@classes.txt", "stingray"], base=tmp_path)
    assert set(chosen) == {"n02268443", "n01440764", "n01498041", *O.wnids}


def test_errors_in_a_file_name_its_line(tmp_path: Path) -> None:
    listed = tmp_path / "classes.txt"
    listed.write_text("goldfish\n\ndragonfyl\n")
    with pytest.raises(UnknownNameError, match=r"classes\.txt, line 3: unknown class 'dragonfyl'"):
        ALL.select([f"@{listed}"])
    listed.write_text("# none\ncrane\n")
    with pytest.raises(AmbiguousNameError, match=r"classes\.txt, line 2: class 'crane' is"):
        ALL.select([f"@{listed}"])
    listed.write_text("oak\nimagenet-o\n")
    with pytest.raises(UsageError, match=r"classes\.txt, line 2: label space own\.csv has no"):
        OWN.select([f"@{listed}"])


def test_a_file_that_says_nothing_or_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("# nothing\n\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    for name, message in [
        ("empty.txt", "names no class"),
        ("latin.txt", "not UTF-8"),
        ("absent.txt", "No such file"),
        ("", "cannot read the class list"),
    ]:
        with pytest.raises(UsageError, match=message):
            ALL.select([f"@{name}"], base=tmp_path)


@given(
    st.lists(st.sampled_from(A.wnids), min_size=1, max_size=12), st.randoms(use_true_random=False)
)
def test_selecting_is_idempotent_and_blind_to_order_and_repeats(
    wnids: list[str], order: random.Random
) -> None:
    chosen = A.select(wnids)
    shuffled = [*wnids, *wnids[:3]]
    order.shuffle(shuffled)
    assert A.select(shuffled) == chosen
    assert A.select([",".join(shuffled)]) == chosen
    assert A.select(chosen) == chosen
    assert set(chosen) == set(wnids)
    assert list(chosen) == sorted(chosen, key=A.position)


# Columns


def test_presets_read_their_imagenet_columns() -> None:
    assert ALL.columns_in(ALL) == list(range(1000))
    assert A.columns_in(ALL) == [item.column for item in A]
    assert O.columns_in(ALL) == [item.column for item in O]
    assert A.columns_in(A) == list(range(200))


def test_columns_follow_the_order_of_the_output_not_of_imagenet() -> None:
    reversed_output = LabelSpace("checkpoint", reversed(ALL.classes))
    assert A.columns_in(reversed_output) == [999 - (item.column or 0) for item in A]


def test_own_classes_read_the_column_they_name_of_an_imagenet_output_alone() -> None:
    space = LabelSpace("flies.csv", OWN.classes[1:])
    assert space.columns_in(ALL) == [319, 308]
    with pytest.raises(LabelSpaceError, match=r"lacks 1 of the 2 classes .* my-fly_2;"):
        space.columns_in(A)


def test_missing_classes_are_counted_and_three_are_named() -> None:
    with pytest.raises(LabelSpaceError) as caught:
        ALL.columns_in(A)
    assert "lacks 800 of the 1000 classes" in str(caught.value)
    assert "n01440764, n01443537, n01484850 …" in str(caught.value)
    with pytest.raises(
        LabelSpaceError, match=r"lacks 1 of the 3 classes of label space own\.csv: oak;"
    ):
        OWN.columns_in(ALL)


def test_two_classes_never_read_one_column() -> None:
    space = LabelSpace(
        "own.csv", [LabelClass("n02268443", "dragonfly"), LabelClass("mine", "mine", column=319)]
    )
    with pytest.raises(LabelSpaceError, match="n02268443 and mine both read column 319"):
        space.columns_in(ALL)


def test_a_column_beyond_the_output_is_an_error() -> None:
    space = LabelSpace("own.csv", [LabelClass("mine", "mine", column=1000)])
    with pytest.raises(LabelSpaceError, match=r"mine reads column 1000, but .* end at 999"):
        space.columns_in(ALL)


@given(st.integers(0, 2**32 - 1), st.sampled_from([A, O]))
def test_restricted_softmax_is_that_of_the_columns_alone(seed: int, space: LabelSpace) -> None:
    logits = np.random.default_rng(seed).normal(scale=5, size=1000)
    whole = np.exp(logits - logits.max())
    columns = space.columns_in(ALL)
    expected = whole[columns] / whole[columns].sum()
    by_name = {item.wnid: logits[position] for position, item in enumerate(ALL)}
    own = np.array([by_name[wnid] for wnid in space.wnids])
    restricted = np.exp(own - own.max()) / np.exp(own - own.max()).sum()
    np.testing.assert_allclose(restricted, expected, rtol=1e-9)


# Fingerprint and export

OWN_CLASSES = st.lists(
    st.tuples(
        st.from_regex(r"[a-z][a-z0-9]{3,6}", fullmatch=True).map("x".__add__),
        st.none() | st.integers(0, 999),
        st.sampled_from(["oak", "fly", "Pinus"]),
    ),
    min_size=1,
    max_size=5,
    unique_by=(lambda row: row[0], lambda row: object() if row[1] is None else row[1]),
)


def _space(rows: list[tuple[str, int | None, str]]) -> LabelSpace:
    return LabelSpace("x", [LabelClass(wnid, name, column=column) for wnid, column, name in rows])


@given(OWN_CLASSES, OWN_CLASSES)
def test_the_fingerprint_changes_with_ids_columns_and_order_alone(
    first: list[tuple[str, int | None, str]], second: list[tuple[str, int | None, str]]
) -> None:
    def matters(rows: list[tuple[str, int | None, str]]) -> list[tuple[str, int | None]]:
        return [(wnid, column) for wnid, column, _ in rows]

    same = matters(first) == matters(second)
    assert (_space(first).fingerprint == _space(second).fingerprint) == same
    renamed = [(wnid, column, "another") for wnid, column, _ in first]
    assert _space(renamed).fingerprint == _space(first).fingerprint
    turned = list(reversed(first))
    assert (_space(turned).fingerprint == _space(first).fingerprint) == (len(first) == 1)


def test_presets_have_the_fingerprints_that_recorded_runs_name() -> None:
    assert {name: load_label_space(name).fingerprint[:16] for name in PRESETS} == {
        "imagenet-1k": "366962bb7fd96e6a",
        "imagenet-a": "efae41bc41719eec",
        "imagenet-o": "63c032073c32271f",
    }


def test_the_class_map_has_a_row_a_class() -> None:
    rows = A.to_rows()
    assert rows[0] == {"wnid": "n01498041", "name": "stingray", "column": 6}
    assert [row["wnid"] for row in rows] == list(A.wnids)


# Making one


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([], "label space x has no classes"),
        ([LabelClass("a", "a"), LabelClass("a", "b")], "class 2: id 'a' occurs twice"),
        ([LabelClass("a", "a"), LabelClass("A", "b")], "'A' differs from 'a' in case alone"),
        ([LabelClass("", "a")], "class 1: id '' is unusable"),
        ([LabelClass("../a", "a")], r"id '\.\./a' is unusable"),
        ([LabelClass("-a", "a")], "id '-a' is unusable"),
        ([LabelClass("a\n", "a")], r"id 'a\\n' is unusable"),
        ([LabelClass("é", "a")], "id 'é' is unusable"),
        ([LabelClass("a" * 65, "a")], "is unusable"),
        ([LabelClass("nul", "a")], "name of a device"),
        ([LabelClass("Sha256Sums", "a")], "name of a file of every release"),
        ([LabelClass("a", " ")], "name ' ' is empty"),
        ([LabelClass("a", "a\x1b[2J")], "holds a control character"),
        ([LabelClass("a", "a", column=-1)], "column -1 is negative"),
        (
            [LabelClass("a", "a", column=5), LabelClass("b", "b", column=5)],
            "class 2: column 5 belongs to 'a' already",
        ),
    ],
)
def test_unusable_classes_are_refused(classes: list[LabelClass], message: str) -> None:
    with pytest.raises(LabelSpaceError, match=message):
        LabelSpace("x", classes)


def test_one_object_twice_is_a_duplicate() -> None:
    item = LabelClass("a", "a")
    with pytest.raises(LabelSpaceError, match="occurs twice"):
        LabelSpace("x", [item, item])
