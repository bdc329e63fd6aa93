"""Tables of classes: the ones that travel with the project, and users' CSV files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.errors import LabelSpaceError, UnknownNameError, UsageError
from curate.files import csv_text
from curate.labels import classes as classes_module
from curate.labels.space import CLASS_MAP_COLUMNS, LabelClass, LabelSpace, load_label_space
from curate.settings import data_file, load_settings, preset_text, presets


def _rows(name: str) -> list[dict[str, str]]:
    with data_file(f"labels/{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


# What travels with the project


def test_imagenet_has_1000_classes_in_the_order_of_their_ids() -> None:
    space = load_label_space("imagenet-1k")
    assert len(space) == 1000
    assert [item.column for item in space] == list(range(1000))
    assert list(space.wnids) == sorted(space.wnids)
    assert (space.classes[0].wnid, space.classes[-1].wnid) == ("n01440764", "n15075141")


@pytest.mark.parametrize("name", ["imagenet-a", "imagenet-o"])
def test_the_200_classes_of_a_and_o_are_imagenet_classes_in_order(name: str) -> None:
    space = load_label_space(name)
    known = load_label_space("imagenet-1k")
    assert len(space) == 200
    columns = space.columns_in(known)
    assert columns == sorted(columns)
    for row, item in zip(_rows(name), space, strict=True):
        assert item == known.get(row["wnid"])
        assert item.name == row["name"]
        assert item.queries, "every class says how to find photos of it"


def test_the_tables_agree_with_the_given_facts(shared_data: Path) -> None:
    with (shared_data / "classes_1k.csv").open(encoding="utf-8", newline="") as stream:
        given_rows = list(csv.DictReader(stream))
    known = load_label_space("imagenet-1k")
    for row, item in zip(given_rows, known, strict=True):
        assert (row["wnid"], int(row["index"]), row["name"]) == (item.wnid, item.column, item.name)
        assert row["synonyms"] == ", ".join(item.names)
        assert row["clip_name"] == item.clip_name
        for letter in "ao":
            inside = item.wnid in load_label_space(f"imagenet-{letter}")
            assert inside == (row[f"in_imagenet_{letter}"] == "1")


@pytest.mark.slow
def test_timm_knows_the_same_classes_in_the_same_order() -> None:
    timm = pytest.importorskip("timm.data")
    info = timm.ImageNetInfo("imagenet-1k")
    assert tuple(info.label_names()) == load_label_space("imagenet-1k").wnids


def test_ranks_and_numbers_of_taxa_are_well_formed() -> None:
    for name in ("imagenet-a", "imagenet-o"):
        for row in _rows(name):
            taxa = row["scientific_name"].split("; ") if row["scientific_name"] else []
            ranks = row["taxon_rank"].split("; ") if row["taxon_rank"] else []
            assert len(ranks) in ({1, len(taxa)} if taxa else {0}), row
            assert not row["inat_taxon_id"] or (row["inat_taxon_id"].isdigit() and len(taxa) == 1)
            assert "breed" not in row["taxon_note"] or not taxa, "the species shows every breed"


@pytest.mark.parametrize("name", ["imagenet-1k", "imagenet-a", "imagenet-o"])
def test_every_preset_makes_a_workspace_with_its_label_space(name: str, tmp_path: Path) -> None:
    assert name in presets()
    (tmp_path / "curate.yaml").write_bytes(preset_text(name))
    settings_ = load_settings(tmp_path)
    assert settings_.label_space == name
    assert load_label_space(settings_.label_space, tmp_path).name == name
    text = (tmp_path / "curate.yaml").read_text(encoding="utf-8")
    assert text.count("#") > text.count("\n") / 5, "a preset explains itself"


def test_presets_are_read_once() -> None:
    assert load_label_space("imagenet-a") is load_label_space("imagenet-a")


# Users' tables


def _load(folder: Path, text: str | bytes) -> LabelSpace:
    data = text.encode() if isinstance(text, str) else text
    (folder / "own.csv").write_bytes(data)
    return load_label_space("own.csv", folder)


def test_names_and_columns_of_imagenet_ids_are_filled_in(tmp_path: Path) -> None:
    space = _load(tmp_path, "wnid\nn02268443\nn01440764\n")
    assert space.name == "own.csv"
    assert space.wnids == ("n02268443", "n01440764")
    assert space.get("n02268443") == load_label_space("imagenet-1k").get("n02268443")
    assert space.columns_in(load_label_space("imagenet-1k")) == [319, 0]


def test_a_users_own_names_come_first(tmp_path: Path) -> None:
    space = _load(tmp_path, 'wnid,name,names\nn02268443,Libelle,"Grosslibelle, Anisoptera"\n')
    item = space.classes[0]
    assert item.name == "Libelle"
    assert item.names[:4] == ("Libelle", "Grosslibelle", "Anisoptera", "dragonfly")
    assert space.match("darning-needle") is item


def test_own_classes_have_ids_names_and_columns(tmp_path: Path) -> None:
    space = _load(
        tmp_path,
        "\ufeffid,synonyms,index,note\r\n"
        'hover-fly,"hover fly; Syrphidae, the family",308,kept out\r\n'
        "oak,,,\r\n"
        "\r\n"
        "pine,Pinus,,\r\n".encode(),
    )
    assert space.classes == (
        LabelClass("hover-fly", "hover fly", ("Syrphidae, the family",), 308),
        LabelClass("oak", "oak"),
        LabelClass("pine", "Pinus"),
    )


def test_the_project_s_own_table_is_a_valid_users_table() -> None:
    path = data_file("labels/imagenet-1k.csv")
    assert load_label_space(str(path)).fingerprint == load_label_space("imagenet-1k").fingerprint


def test_a_table_is_found_from_the_workspace_or_by_its_whole_path(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    _load(tmp_path, "id\noak\n")
    assert load_label_space("../own.csv", workspace).wnids == ("oak",)
    assert load_label_space(str(tmp_path / "own.csv"), workspace).wnids == ("oak",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no classes"),
        ("wnid,name\n", "holds no classes"),
        ("wnids,name\noak,oak\n", r"no column 'wnid' or 'id' \(is it 'wnids'\?\); it has 'wnids'"),
        ("name\noak\n", "no column 'wnid' or 'id'; it has 'name'"),
        ("wnid,id\na,b\n", "has both 'wnid' and 'id': keep one"),
        ("id,column,index\na,1,2\n", "has both 'column' and 'index'"),
        ("id\noak\n\npine\noak\n", r"own\.csv, line 5: id 'oak' occurs twice"),
        ("id\noak\nOak\n", "line 3: id 'Oak' differs from 'oak' in case alone"),
        ("id,name\n,oak\n", "line 2: id '' is unusable"),
        ("id\na/b\n", "line 2: id 'a/b' is unusable"),
        ("id\n..\n", r"line 2: id '\.\.' is unusable"),
        ("id,column\noak,x\n", "line 2: column 'x' is not a whole number"),
        ("id,column\noak,1.0\n", r"line 2: column '1\.0' is not a whole number"),
        ("id,column\noak,-1\n", "line 2: column -1 is negative"),
        ("id,column\noak,7\npine,7\n", "line 3: column 7 belongs to 'oak' already"),
        ("id,column\nmine,319\nn02268443,\n", "line 3: column 319 belongs to 'mine' already"),
        ("wnid,index\nn02268443,0\n", r"line 2: n02268443 \(dragonfly\) is column 319 of"),
        ("id,name\noak,a\x07b\n", "line 2: name 'a.x07b' is empty or holds a control"),
        ("id\noak,pine\n", "line 2: more cells than columns"),
        (b"id\n\xff\n", "cannot read"),
        ('id\n"oak\n', "cannot read"),
    ],
)
def test_an_unusable_table_is_explained(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        _load(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_too_many_classes_are_refused(tmp_path: Path) -> None:
    rows = "".join(f"c{i}\n" for i in range(classes_module.MAX_CLASSES + 1))
    with pytest.raises(LabelSpaceError, match="line 100002: more than 100,000 classes"):
        _load(tmp_path, "id\n" + rows)


def test_an_unknown_label_space_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="'imagenet-b'; did you mean imagenet-"):
        load_label_space("imagenet-b")
    with pytest.raises(UnknownNameError, match="there are imagenet-1k, imagenet-a, imagenet-o, or"):
        load_label_space("birds", tmp_path)
    for name in ("birds.csv", "lists/birds", "..", str(tmp_path)):
        with pytest.raises(UsageError, match=r"no such file|unknown label space"):
            load_label_space(name, tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-z0-9][A-Za-z0-9_-]{0,20}", fullmatch=True),
            st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12),
            st.none() | st.integers(0, 2000),
        ),
        min_size=1,
        max_size=8,
        unique_by=(
            lambda row: row[0].casefold(),
            lambda row: row[2] if row[2] is not None else row,
        ),
    )
)
def test_a_class_map_reads_back_as_the_same_label_space(
    tmp_path: Path, rows: list[tuple[str, str, int | None]]
) -> None:
    try:
        space = LabelSpace("x", [LabelClass(w, name, column=column) for w, name, column in rows])
    except LabelSpaceError:  # hypothesis found the name of a device
        return
    text = csv_text(CLASS_MAP_COLUMNS, space.to_rows())
    assert _load(tmp_path, text).fingerprint == space.fingerprint
