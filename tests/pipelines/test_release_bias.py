"""`curate release bias`: on a release of real photos, and on timm's table of ImageNet-A."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from curate.cli.release_bias import bias as command
from curate.errors import Interrupted, UnknownNameError, UsageError
from curate.labels.space import load_label_space
from curate.models import lite
from curate.models.downloads import verified_sha256
from curate.progress import Stop
from curate.release.version import parse_version
from pipelines import release_bias
from pipelines.bias_kept import keep_bias, kept_bias
from pipelines.bias_sides import open_selected
from pipelines.predict import Forward
from pipelines.release import build_release
from pipelines.release_bias import (
    BiasOptions,
    bias_from_table,
    bias_of_release,
    bias_sentences,
)
from pipelines.release_verify import verify
from pipelines.workspace import Workspace, open_workspace
from tests.pipelines import releasing
from tests.pipelines.made_release import mark_as_release
from tests.pipelines.reviewing import Rows
from tests.pipelines.zoo import loaded_once
from tests.running import ROOT, copy_of

WNIDS = ("n01498041", "n01531178")
OWN, RELATIVE = "lite/efficientnet_lite0", "lite/efficientnet_lite1"
LOST = {"name": "checkpoint/mine.pt?arch=timm/resnet50", "fingerprint": "feedbeef", "libraries": {}}

Photos = list[tuple[Path, int]]

TABLE = """model,val,mine
own,75,0
cousin,76,2
a,40,1.2
b,50,1.8
c,60,2.9
d,80,8
e,88,20
f,95,55
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Iterator[Rows]:
    """Six accepted photos of two classes, which the weights of a real model have filtered."""
    own = {"name": OWN, "fingerprint": verified_sha256(lite.check_name(OWN.partition("/")[2]))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(releasing, "MODELS", [{**own, "libraries": {}}, LOST])
        photos: list[tuple[Path, str, str | None]] = [
            (path, WNIDS[n % 2], f"author {n}") for n, (path, _) in enumerate(package_photos[:6])
        ]
        made = releasing.photo_rows(tmp_path_factory.mktemp("bias") / "w", photos)
    releasing.accept(made, range(6))
    yield made
    made.workspace.close()


@pytest.fixture(scope="module")
def built(rows: Rows) -> str:
    """The folder of a first release."""
    return str(build_release(rows.workspace, "1.0.0", unreviewed=False)["path"])


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Path:
    """Eight photos in folders of both classes and of one that the release has not."""
    root = tmp_path_factory.mktemp("ordinary")
    for number, (path, _) in enumerate(package_photos[6:14]):
        folder = root / (*WNIDS, "n01534433")[number % 3]
        folder.mkdir(exist_ok=True)
        shutil.copy(path, folder)
    return root


def section(path: str) -> str:
    text = (Path(path) / "README.md").read_text()
    return text.partition("## Selection bias, measured\n")[2].partition("\n## ")[0]


@pytest.mark.slow
def test_the_next_card_tells_what_related_models_make_of_a_release_and_draws_no_line(
    rows: Rows, built: str, ordinary: Path, tmp_path: Path
) -> None:
    assert section(built) == ""
    found = bias_of_release(
        rows.workspace,
        "1.0.0",
        ordinary,
        [RELATIVE],
        BiasOptions(resamples=10, report=tmp_path / "report"),
        device="cpu",
    )
    json.dumps(found, allow_nan=False)
    assert [(one["model"], one["group"]) for one in found["models"]] == [
        (OWN, "filter"),
        (RELATIVE, "family"),
    ]
    assert found["release"]["images"] == 6
    assert found["standard"] | {"content": ""} == {
        "name": ordinary.name,
        "images": 6,
        "classes": 2,
        "other_classes": 2,
        "of_the_release": 0,
        "labels": None,
        "content": "",
    }
    for one in found["models"]:
        for setting in ("standard", "release"):
            counted = one[f"{setting}_images"]
            assert one[setting]["value"] == pytest.approx(100 * counted["right"] / counted["n"])
            assert one[setting]["low"] <= one[setting]["value"] <= one[setting]["high"]
    assert found["fit"]["kind"] is None
    assert found["kept"] is True
    assert [note for note in found["notes"] if "its file is not part of the release" in note]
    assert (tmp_path / "report" / "testbed.html").is_file()

    second = build_release(rows.workspace, "1.0.1", unreviewed=False)
    told = section(second["path"])
    assert "Measured on version 1.0.0 of this dataset, 6 photos of 2 classes, against 6" in told
    assert "and not measured\\: checkpoint/mine.pt" in told
    assert "No line is drawn, since no model was measured that took no part" in told
    assert re.search(r"\| took part in selecting \| lite/efficientnet\\_lite0 \| .+ \| .+ \|", told)
    assert re.search(r"\| of their family \| lite/efficientnet\\_lite1 \| ", told)
    record = json.loads((Path(second["path"]) / "release.json").read_bytes())
    kept = {k: v for k, v in found.items() if k not in ("kept", "report")}
    assert record["selection_bias"] == json.loads(json.dumps(kept))
    assert verify(rows.workspace, "1.0.1")["problem_counts"] == {}
    croissant = json.loads((Path(second["path"]) / "croissant.json").read_bytes())
    assert any("No line is drawn" in one for one in croissant["rai:dataBiases"])

    _the_same_catalogue_gives_the_same_bytes(rows.workspace, tmp_path)
    _another_choice_tells_nothing(rows.workspace)


def _the_same_catalogue_gives_the_same_bytes(workspace: Workspace, folder: Path) -> None:
    root = copy_of(workspace.root, folder / "copy")
    shutil.rmtree(root / "releases" / "1.0.1")
    with closing(open_workspace(root)) as copy:
        built = build_release(copy, "1.0.1", unreviewed=False)
    for path in (workspace.root / "releases" / "1.0.1").rglob("*"):
        if path.is_file():
            again = Path(built["path"]) / path.relative_to(workspace.root / "releases" / "1.0.1")
            assert again.read_bytes() == path.read_bytes()


def _another_choice_tells_nothing(workspace: Workspace) -> None:
    record = json.loads((workspace.root / "releases" / "1.0.1" / "release.json").read_bytes())
    later = parse_version("1.0.2")
    assert kept_bias(workspace, record, later) == {"selection_bias": record["selection_bias"]}
    others = (
        {"models": [{"name": OWN, "fingerprint": "another"}]},
        {"models": record["models"][:1]},
        {"filter": record["filter"] | {"threshold": 0.1}},
        {"filter": record["filter"] | {"views": "native"}},
        {"label_space": record["label_space"] | {"fingerprint": "another"}},
        {"reviewed": False},
        {"review": record["review"] | {"referees": [{"name": OWN, "fingerprint": "another"}]}},
        {"split": "control"},
    )
    for other in others:
        assert kept_bias(workspace, record | other, later) == {}
    assert kept_bias(workspace, record, parse_version("1.0.0")) == {}


@pytest.mark.slow
def test_what_cannot_be_measured_is_told_in_one_line(
    rows: Rows, built: str, ordinary: Path, tmp_path: Path
) -> None:
    release, options = built, BiasOptions()
    strange = tmp_path / "strange" / "n01534433"
    strange.mkdir(parents=True)
    shutil.copy(next((ordinary / "n01534433").iterdir()), strange)
    control = tmp_path / "control"
    shutil.copytree(release, control)
    same, flat = tmp_path / "same", tmp_path / "flat"
    flat.mkdir()
    for wnid in WNIDS:
        shutil.copytree(Path(release) / wnid, same / wnid)
        shutil.copy(next((ordinary / wnid).iterdir()), flat)
    mapless, bare, odd = (tmp_path / name for name in ("mapless", "bare", "odd"))
    for folder in (mapless, bare, odd):
        shutil.copytree(release, folder)
    (mapless / "classes.csv").unlink()
    (bare / "manifest.parquet").unlink()
    (odd / "release.json").write_text("[]")
    told = json.loads((control / "release.json").read_bytes())
    (control / "release.json").write_text(json.dumps(told | {"split": "control"}))
    for name, standard, models, text in (
        ("9.9.9", ordinary, [], "no release"),
        (str(ordinary), ordinary, [], "is no release"),
        (str(control), ordinary, [], "is a control sample"),
        (release, Path(release), [], "holds the release's own images"),
        (release, same, [], "all 6 images of same are the release's own"),
        (release, flat, [], "say with --labels FILE of which class"),
        (str(mapless), ordinary, [], "has no classes.csv"),
        (str(bare), ordinary, [], "cannot read manifest.parquet of the release"),
        (str(odd), ordinary, [], "no release's record"),
        (release, strange.parent, [], "none of the 1 images of"),
        (release, ordinary, ["lite/efficientnet_lite9"], "efficientnet_lite9"),
    ):
        with pytest.raises(UsageError) as caught:
            bias_of_release(rows.workspace, name, standard, models, options, device="cpu")
        assert text in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not keep_bias(
        rows.workspace, {"release": {"version": "1.0.0", "manifest_sha256": "of another"}}
    )


@pytest.mark.slow
def test_the_release_s_own_photos_are_left_out_of_the_standard_ones(
    rows: Rows, built: str, ordinary: Path, tmp_path: Path
) -> None:
    plain = bias_of_release(None, built, ordinary, [], BiasOptions(), device="cpu")
    mixed = tmp_path / ordinary.name
    shutil.copytree(ordinary, mixed)
    for wnid in WNIDS:
        shutil.copytree(Path(built) / wnid, mixed / wnid, dirs_exist_ok=True)
    found = bias_of_release(None, built, mixed, [], BiasOptions(), device="cpu")
    assert found["standard"] == plain["standard"] | {"of_the_release": 6}
    assert any("6 images of ordinary0 are the release's own" in note for note in found["notes"])
    assert found["models"] == plain["models"]


def test_a_stop_is_told_and_what_is_finished_is_kept(
    built: str, ordinary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, cache = Forward.run, tmp_path / "cache"

    def stopped(self: Forward, stop: Stop) -> Any:
        if self.dataset.name != ordinary.name:
            stop.request()
        return run(self, stop)

    with monkeypatch.context() as patch, loaded_once():
        patch.setattr(Forward, "run", stopped)
        with pytest.raises(Interrupted, match=rf"stopped at {OWN} on 1.0.0; finished sides are"):
            bias_of_release(None, built, ordinary, [], BiasOptions(), device="cpu", cache=cache)
    assert len(list(cache.iterdir())) == 1


def test_a_referee_that_ordered_a_review_took_part_in_selecting(tmp_path: Path) -> None:
    models = [{"name": name, "fingerprint": name[-1]} for name in (OWN, RELATIVE)]
    review = {"referees": models[1:]}
    space = load_label_space("imagenet-a")
    root = mark_as_release(tmp_path / "r", space, models=models[:1], review=review)
    parts = [(one["name"], one["part"]) for one in open_selected(root).models]
    assert parts == [(OWN, "filter"), (RELATIVE, "order of review")]


def test_what_cannot_be_is_refused_before_a_model_runs(
    built: str, ordinary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_bias, "measure", None)
    for options, text in (
        (BiasOptions(line="nothing"), "rule for --line 'nothing'"),
        (BiasOptions(line=f"@{tmp_path / 'absent'}"), "cannot read"),
        (BiasOptions(family="("), "no regular expression"),
        (BiasOptions(pivot="nobody"), "model as --pivot 'nobody'"),
        (BiasOptions(resamples=0), "at least 1"),
        (BiasOptions(report=ordinary / "report"), "would stand among the images"),
        (BiasOptions(report=Path(built)), "would stand among the images"),
    ):
        with pytest.raises(UsageError, match=re.escape(text)):
            bias_of_release(None, built, ordinary, [RELATIVE], options, device="cpu")


def from_table(folder: Path, text: str = TABLE, **more: Any) -> dict[str, Any]:
    options = BiasOptions(
        **{k: more.pop(k) for k in ("family", "line", "pivot") if k in more}, resamples=20
    )
    (folder / "t.csv").write_text(text)
    return bias_from_table(None, folder / "t.csv", options, **{"x": "val", "y": "mine", **more})


def test_a_table_gives_the_same_with_a_line_on_both_sides_of_the_filters_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = from_table(tmp_path, pivot="own", family="^cousin$", line="all", sizes={"mine": 500})
    assert found["fit"]["kind"] == "piecewise"
    assert (found["fit"]["low"]["n"], found["fit"]["high"]["n"]) == (3, 3)
    assert found["left"]["model"] == "own"
    assert 0.9 < found["left"]["share"] < 1.0
    assert found["groups"]["family"]["models"] == 1
    assert found["models"][0]["release"]["high"] == pytest.approx(1.19, abs=0.01)
    assert found["release"] is None
    assert found["kept"] is False
    (tmp_path / "@names").write_text("cousin\nf\n")
    (tmp_path / "line").write_text("a\nb\nc\nd\n")
    listed = from_table(
        tmp_path,
        filters=["own"],
        family=f"@{tmp_path / '@names'}",
        line=f"@{tmp_path / 'line'}",
    )
    assert listed["groups"]["family"]["models"] == 2
    assert listed["fit"]["kind"] == "line"
    assert listed["fit"]["n"] == 4
    command(file=tmp_path / "t.csv", x="val", y="mine", filter_model=["own"], family="^cousin$")
    printed = capsys.readouterr().out
    assert "took part in selecting  own" in printed
    assert "The pivot is a standard accuracy of 75.00 %, that of own," in printed


def test_relatives_of_models_that_a_table_has_not_are_known_by_the_release(
    built: str, tmp_path: Path
) -> None:
    text = TABLE.replace("cousin", "tf_efficientnet_b0.in1k").replace("\na,", "\nresnext50_32x4d,")
    found = from_table(tmp_path, text, release=built)
    groups = {one["model"]: one["group"] for one in found["models"]}
    assert groups["tf_efficientnet_b0.in1k"] == "family"
    assert groups["resnext50_32x4d"] == "family"  # of the checkpoint
    assert sorted(groups.values()).count("other") == 6
    assert found["unmeasured"] == [OWN, LOST["name"]]
    named = from_table(tmp_path, TABLE.replace("own", "efficientnet_lite0"), release=built)
    assert named["models"][0]["group"] == "filter"
    assert named["unmeasured"] == [LOST["name"]]


def test_options_of_a_table_that_cannot_be_are_refused_in_one_line(tmp_path: Path) -> None:
    for more, text in (
        ({"family": "("}, "is no regular expression"),
        (
            {"line": "nothing"},
            "rule for --line 'nothing'; there are imagenet-1k, all, @FILE",
        ),
        ({"pivot": "nobody"}, "nobody"),
        ({"pivot": "99.5"}, "outside the data: no model that the line is fitted to is above it"),
        ({"pivot": "a"}, "outside the data: no model that the line is fitted to is below it"),
        ({"pivot": "100"}, "must lie between 0 and 100"),
        ({"x": "none"}, "unknown column 'none'"),
        ({"y": "val"}, "are both 'val'"),
        ({"names": ("network",)}, "unknown column 'network'"),
        ({"text": TABLE.replace("75,", "0.75,")}, "75"),
        ({"text": TABLE + "a,1,2\n"}, "'a' was in line 4 already; --name, repeated, joins columns"),
        ({"text": "network,val,mine\na,50,3\n"}, "the column of the models' names with --name"),
        ({"text": "model,val\na,50\n"}, "unknown column 'mine'"),
        ({"text": "model,val,mine\n"}, "t.csv"),
        ({"filters": ["nobody"]}, "nobody"),
        ({"line": f"@{tmp_path / 'absent'}"}, "cannot read"),
    ):
        with pytest.raises(UsageError) as caught:
            from_table(tmp_path, **more)
        assert text in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(UnknownNameError):
        bias_from_table(None, tmp_path / "t.csv", BiasOptions(), x="val", y="other")
    for arguments in (
        {},
        {"release": "1.0.0"},
        {"x": "val"},
        {"file": tmp_path / "t.csv"},
        {"file": tmp_path / "t.csv", "model": [OWN]},
    ):
        with pytest.raises(UsageError):
            command(**arguments)


def test_timms_table_draws_the_knee_of_imagenet_a() -> None:
    found = bias_from_table(
        None,
        ROOT / "configs" / "published" / "timm-imagenet-a.csv",
        BiasOptions(pivot="91.86", resamples=200),
        x="clean200_top1",
        y="imagenet_a_top1",
        names=("model", "img_size"),
    )
    low, high = found["fit"]["low"], found["fit"]["high"]
    assert (low["n"], high["n"]) == (167, 1054)
    assert found["bends_at_pivot"] is True
    # Elsewhere and years before, of the published testbed's 78 standard models: 0.571 and 2.984.
    assert low["slope"] == pytest.approx(0.557, abs=5e-4)
    assert high["slope"] == pytest.approx(2.648, abs=5e-4)
    assert found["knee"]["percent"] == pytest.approx(88.93, abs=5e-3)
    text = (ROOT / "docs" / "bias.md").read_text(encoding="utf-8")
    told = text.partition("<!-- test: timm -->\n")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in told.splitlines()[2:]]
    expected = [
        ["below 91.86 %", *(f"{low[k]:.3f}" for k in ("slope", "intercept", "r2")), str(low["n"])],
        ["above", *(f"{high[k]:.3f}" for k in ("slope", "intercept", "r2")), f"{high['n']:,}"],
    ]
    assert cells == expected
    assert "the curve bends between them" in " ".join(bias_sentences(found))
