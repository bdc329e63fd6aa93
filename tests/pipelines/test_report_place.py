"""No report may change what it is made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.errors import UsageError
from pipelines.corruptions import corruptions
from pipelines.evaluate import evaluate
from pipelines.report_place import check_report_place
from pipelines.testbed import analyse_testbed

TABLE = "model,val,shifted\na,60,40\nb,70,52\nc,80,64\nd,75,58\n"


@pytest.mark.parametrize("place", [".", "cache", "new/report", "../photos/x", "link"])
def test_a_report_among_images_is_refused(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos" / "n02268443").mkdir(parents=True)
    (tmp_path / "photos" / "link").symlink_to(tmp_path / "photos" / "n02268443")
    monkeypatch.chdir(tmp_path / "photos")
    for folder in (Path(), tmp_path / "photos"):
        with pytest.raises(UsageError, match=r"would stand among the images of .*--report"):
            check_report_place(Path(place), folders=[None, folder])


@pytest.mark.parametrize("place", ["../report", "../photos-report", "outside"])
def test_a_report_beside_images_is_not(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos" / "n02268443").mkdir(parents=True)
    (tmp_path / "photos" / "outside").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path / "photos")
    check_report_place(Path(place), folders=[Path()])
    check_report_place(None, folders=[Path()])


def test_a_run_that_would_not_go_on_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "n02268443").mkdir()
    (tmp_path / "n02268443" / "a.jpg").write_bytes(b"x")
    with pytest.raises(UsageError, match="among the images"):
        corruptions(tmp_path, ["lite/efficientnet_lite0"], report=tmp_path / "report")
    assert [path.name for path in tmp_path.iterdir()] == ["n02268443"]


def test_an_evaluation_writes_over_nothing_that_it_reads(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "n02268443").mkdir(parents=True)
    (photos / "n02268443" / "a.jpg").write_bytes(b"x")
    rows = "path,wnid,predicted_wnid,confidence\na.jpg,n02268443,n02268443,0.5\n"
    (tmp_path / "results.csv").write_text(rows)
    for name in ("report", "n02268443", "."):
        with pytest.raises(UsageError, match="among the images"):
            evaluate([photos], ["lite/efficientnet_lite0"], report=photos / name)
    with pytest.raises(UsageError, match=r"written over .*results\.csv"):
        evaluate([], [], predictions=[tmp_path / "results.csv"], report=tmp_path)
    evaluate([], [], predictions=[tmp_path / "results.csv"], report=tmp_path / "new", resamples=1)
    (saved,) = (tmp_path / "new").glob("predictions-*.parquet")
    with pytest.raises(UsageError, match=r"written over .*predictions-results"):
        evaluate([], [], predictions=[saved], report=saved.parent)
    assert (tmp_path / "results.csv").read_text() == rows


@pytest.mark.parametrize("name", ["models.csv", "MODELS.csv"])
def test_a_table_is_not_written_over(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_text(TABLE)
    (tmp_path / "link.csv").symlink_to(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for table in (Path(name), tmp_path / name, Path("link.csv")):
        with pytest.raises(UsageError, match=r"written over .*: name another folder"):
            analyse_testbed(table, x="val", report=Path())
    assert (tmp_path / name).read_text() == TABLE
    analyse_testbed(Path(name), x="val", report=Path("report"), resamples=1)
    (tmp_path / "other.csv").write_text(TABLE)
    with pytest.raises(UsageError, match=r"written over models\.csv"):
        analyse_testbed(Path("other.csv"), x="val", standard="@models.csv", report=Path())
