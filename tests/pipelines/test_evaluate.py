from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from curate.errors import (
    CurateError,
    LabelSpaceError,
    StorageError,
    UnknownNameError,
    UsageError,
)
from curate.labels.space import load_label_space
from pipelines.evaluate import evaluate, results_notes, results_table
from tests.waiting import PATIENCE

MODEL = "lite/efficientnet_lite0"
THOUSAND = load_label_space("imagenet-1k")

Photos = list[tuple[Path, int]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Path:
    """Twenty photos in class folders."""
    root = tmp_path_factory.mktemp("sets") / "twenty"
    for path, column in package_photos:
        folder = root / THOUSAND.wnids[column]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / path.name)
    return root


def linked(dataset: Path, root: Path, times: int) -> Path:
    """The photos of a dataset, each several times, by hard links."""
    for folder in dataset.iterdir():
        (root / folder.name).mkdir(parents=True)
        for path in folder.iterdir():
            for number in range(times):
                os.link(path, root / folder.name / f"{number}-{path.name}")
    return root


@pytest.fixture(scope="module")
def evaluated(
    tmp_path_factory: pytest.TempPathFactory, dataset: Path
) -> tuple[dict[str, Any], Path]:
    """A summary and its report."""
    report = tmp_path_factory.mktemp("reports") / "new" / "folder"
    return evaluate([dataset], [MODEL], report=report, resamples=50), report


def test_the_numbers_equal_a_plain_evaluation(
    evaluated: tuple[dict[str, Any], Path], dataset: Path
) -> None:
    import torch
    from torchvision import transforms

    from curate.models.zoo import load_classifier

    classifier = load_classifier(MODEL)
    usual = transforms.Compose(
        [
            transforms.Resize(256, transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )
    confidence, correct = [], []
    for path in sorted(dataset.glob("*/*")):
        with torch.inference_mode(), Image.open(path) as image:
            logits = classifier.module(usual(image.convert("RGB"))[None])[0].double()
        top = torch.softmax(logits, 0).max(0)
        confidence.append(float(top.values))
        correct.append(THOUSAND.wnids[int(top.indices)] == path.parent.name)
    order = np.argsort(confidence)[::-1]
    aurra = np.mean([np.mean(np.take(correct, order[: j + 1])) for j in range(20)])
    result = evaluated[0]["results"][0]
    value = {name: told["value"] for name, told in result["metrics"].items()}
    assert value["accuracy"] == value["accuracy_unrestricted"] == np.mean(correct)
    assert value["aurra"] == pytest.approx(aurra, abs=1e-6)
    rms = abs(np.mean(confidence) - np.mean(correct))
    assert value["rms_calibration_error"] == pytest.approx(rms, abs=1e-5)
    assert value["rms_calibration_error_published"] is None
    rows = pq.read_table(evaluated[1] / result["predictions"]).to_pylist()
    assert [row["confidence"] for row in rows] == pytest.approx(confidence, abs=2e-5)
    assert [row["correct"] for row in rows] == correct


def test_a_result_says_what_made_it(evaluated: tuple[dict[str, Any], Path], dataset: Path) -> None:
    (result,) = evaluated[0]["results"]
    assert result["model"]["fingerprint"].startswith("57934424")
    assert result["model"]["preprocessing"]["mean"] == [0.5, 0.5, 0.5]
    assert result["view"] == {
        "resize": 256,
        "crop": 224,
        "interpolation": "bicubic",
        "place": "centre",
    }
    assert result["dataset"]["name"] == "twenty"
    assert result["dataset"]["images"] == result["n"] == 20
    assert result["dataset"]["release"] is None
    assert result["label_space"]["name"] == "imagenet-1k"
    assert result["label_space"]["fingerprint"] == THOUSAND.fingerprint
    assert "smallest" in result["label_space"]["chosen_by"]
    assert result["took_part_in_selection"] is None
    assert result["failed"] == 0
    assert result["made_by"]["batch_size"] == 4
    sums = subprocess.run(
        ["sha256sum", *sorted(str(p.relative_to(dataset)) for p in dataset.glob("*/*"))],
        cwd=dataset,
        capture_output=True,
        check=True,
    )
    digest = subprocess.run(["sha256sum"], input=sums.stdout, capture_output=True, check=True)
    assert result["dataset"]["content_sha256"] == digest.stdout.split()[0].decode()


def test_a_report_holds_the_summary_and_predictions_that_give_the_same_numbers(
    evaluated: tuple[dict[str, Any], Path], dataset: Path
) -> None:
    summary, report = evaluated
    assert json.loads((report / "results.json").read_text()) == summary
    assert {path.name for path in report.iterdir()} == {
        "index.html",
        "predictions-lite-efficientnet_lite0-twenty.parquet",
        *(f"results.{ending}" for ending in ("csv", "json", "md", "tex")),
    }
    text = (report / "results.md").read_text()
    assert "| lite/efficientnet\\_lite0 | twenty | accuracy, 1000 classes of imagenet-1k |" in text
    assert "undefined below 200 images" in text
    saved = report / summary["results"][0]["predictions"]
    for datasets in ([dataset], []):
        again = evaluate(
            datasets, [], predictions=[saved], label_space="imagenet-1k", resamples=50
        )["results"][0]
        for name, told in summary["results"][0]["metrics"].items():
            classes = {"classes": again["metrics"][name]["classes"]}
            assert again["metrics"][name] == told | classes
        assert again["model"]["fingerprint_of"] == "predictions-file"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs the processor affinity")
def test_the_number_of_cores_changes_no_bit(tmp_path: Path, dataset: Path) -> None:
    affinity = os.sched_getaffinity(0)
    if len(affinity) == 1:
        pytest.skip("one core alone: there is nothing to compare")
    root = linked(dataset, tmp_path / "set", 4)
    written = []
    try:
        for cores in ({min(affinity)}, affinity):
            os.sched_setaffinity(0, cores)
            report = tmp_path / f"report-{len(cores)}"
            evaluate([root], [MODEL], report=report, resamples=2)
            written.append({path.name: path.read_bytes() for path in report.iterdir()})
    finally:
        os.sched_setaffinity(0, affinity)
    one, all_of_them = written
    told = [json.loads(files.pop("results.json")) for files in written]
    assert told[0].pop("report") != told[1].pop("report")
    assert told[0] == told[1]
    assert one == all_of_them
    assert len(one) == 5


def test_every_model_runs_on_every_dataset(tmp_path: Path, dataset: Path) -> None:
    other = tmp_path / "other" / "twenty"
    first = next(dataset.iterdir())
    shutil.copytree(first, other / first.name)
    models = [MODEL, "lite/efficientnet_lite1"]
    report = tmp_path / "report"
    results = evaluate([dataset, other], models, report=report, resamples=5)["results"]
    assert [(r["model"]["name"], r["n"]) for r in results] == [
        (model, n) for model in models for n in (20, 1)
    ]
    files = [result["predictions"] for result in results]
    assert len(set(files)) == 4
    assert all((report / name).is_file() for name in files)
    one = results[1]["metrics"]
    assert one["aurra"]["low"] is None
    assert "no interval" in one["aurra"]["note"]


def test_views_as_in_the_paper(dataset: Path) -> None:
    (result,) = evaluate([dataset], ["lite/efficientnet_lite1"], views="paper", resamples=5)[
        "results"
    ]
    assert (result["view"]["resize"], result["view"]["crop"]) == (256, 224)
    assert result["view"]["interpolation"] == "bilinear"
    assert result["metrics"]["accuracy"]["value"] > 0.7


def test_images_that_cannot_be_used_are_counted_and_named(
    tmp_path: Path, dataset: Path, evaluated: tuple[dict[str, Any], Path]
) -> None:
    root = tmp_path / "hostile"
    shutil.copytree(dataset, root)
    folder = sorted(root.iterdir())[0]
    whole = next(folder.iterdir()).read_bytes()
    (folder / "0 cut | <b>.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "1 text.jpg").write_text("no image")
    (folder / "2 link.jpg").symlink_to(next(folder.glob("imagenet*")))
    os.mkfifo(folder / "3 pipe.jpg")
    report = tmp_path / "report"
    summary = evaluate([root], [MODEL], report=report, resamples=50)
    (result,) = summary["results"]
    assert result["n"] == 20
    assert result["failed"] == summary["failed"] == 2
    assert [(f["path"], f["reason"]) for f in result["failures"]] == [
        (f"{folder.name}/0 cut | <b>.jpg", "truncated"),
        (f"{folder.name}/1 text.jpg", "not-an-image"),
    ]
    assert result["dataset"]["passed_over"] == 2
    text = (report / "results.md").read_text()
    assert "0 cut \\| \\<b\\>.jpg" in text
    # The failed images only change what else is in a batch: last bits.
    for name, told in evaluated[0]["results"][0]["metrics"].items():
        if told["value"] is not None:
            assert result["metrics"][name]["value"] == pytest.approx(told["value"], abs=1e-5)
    again = evaluate([root], [], predictions=[report / result["predictions"]], resamples=50)
    assert again["failed"] == 2
    assert again["results"][0]["metrics"]["aurra"] == result["metrics"]["aurra"]


def test_a_dataset_of_which_no_image_can_be_used_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "bad" / "n02268443"
    folder.mkdir(parents=True)
    (folder / "a.jpg").write_text("no image")
    with pytest.raises(UsageError, match=r"none of the 1 images of bad .*a\.jpg' \(not-an-image"):
        evaluate([tmp_path / "bad"], [MODEL])


@pytest.mark.parametrize(
    ("datasets", "models", "options", "error", "fault"),
    [
        (1, [], {}, UsageError, "name a model with --model"),
        (0, [MODEL], {}, UsageError, "a model needs a DATASET"),
        (1, ["lite/efficientnet_lite9"], {}, UnknownNameError, "efficientnet_lite"),
        (1, [MODEL, MODEL], {}, UsageError, "named twice"),
        (2, [MODEL], {}, UsageError, "named twice"),
        (1, [MODEL], {"views": "ten"}, UnknownNameError, "'ten'"),
        (1, [MODEL], {"device": "gpu"}, UnknownNameError, "device 'gpu'"),
        (1, [MODEL], {"resamples": 0}, UsageError, "at least 1"),
        (1, [MODEL], {"seed": -1}, UsageError, "seed is -1"),
        (1, [MODEL], {"label_space": "imagenet-b"}, UnknownNameError, "imagenet-b"),
        (1, [MODEL], {"label_space": "imagenet-a"}, UnknownNameError, "class folders of"),
        (2, [], {"predictions": [Path("f.csv")]}, UsageError, "about one DATASET"),
        (1, [], {"predictions": [Path("absent.csv")]}, UsageError, "no such file"),
    ],
)
def test_what_cannot_work_fails_before_the_first_image(
    dataset: Path,
    datasets: int,
    models: list[str],
    options: dict[str, Any],
    error: type[CurateError],
    fault: str,
) -> None:
    with pytest.raises(error, match=fault) as caught:
        evaluate([dataset] * datasets, models, **options)
    assert "\n" not in str(caught.value)


def test_the_second_model_is_checked_before_the_first_runs(
    dataset: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CurateError, match="lite9"):
        evaluate([dataset], [MODEL, "lite/efficientnet_lite9"])
    assert "images/s" not in capfd.readouterr().err


def test_a_model_without_the_label_spaces_classes_is_refused(
    tmp_path: Path, package_photos: Photos
) -> None:
    (tmp_path / "own.csv").write_text("id,name\nmy-class,mine\n")
    folder = tmp_path / "set" / "my-class"
    folder.mkdir(parents=True)
    shutil.copy(package_photos[0][0], folder / "a.jpg")
    with pytest.raises(LabelSpaceError, match="my-class"):
        evaluate([tmp_path / "set"], [MODEL], label_space=str(tmp_path / "own.csv"))


def test_a_users_class_reads_the_column_that_its_table_names(
    tmp_path: Path, package_photos: Photos
) -> None:
    path, column = package_photos[0]
    table = tmp_path / "own.csv"
    table.write_text(f"id,name,column\nmine,mine,{column}\nother,other,{(column + 1) % 1000}\n")
    folder = tmp_path / "set" / "mine"
    folder.mkdir(parents=True)
    shutil.copy(path, folder / "a.jpg")
    (result,) = evaluate([tmp_path / "set"], [MODEL], label_space=str(table))["results"]
    assert result["metrics"]["accuracy"]["value"] == 1
    assert result["metrics"]["accuracy"]["restricted_to"] == "own.csv"
    assert result["label_space"]["chosen_by"] == "--label-space"


def test_a_report_where_a_file_stands_is_refused_at_once(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        evaluate([dataset], [MODEL], report=tmp_path / "file")


def test_the_table_names_the_restriction_and_every_convention(
    evaluated: tuple[dict[str, Any], Path],
) -> None:
    results = evaluated[0]["results"]
    columns, rows = results_table(results)
    assert columns == ["model", "dataset", "measure", "percent", "95% interval", "images"]
    assert [row[2] for row in rows] == [
        "accuracy, 1000 classes of imagenet-1k",
        "top-5 accuracy",
        "accuracy, all 1000 outputs",
        "top-5 accuracy, all outputs",
        "AURRA",
        "AURRA, published order",
        "RMS calibration error",
        "RMS calib. error, published code",
        "mean absolute calibration error",
        "maximum calibration error",
        "confidence less accuracy",
        "soft F1 of finding errors",
    ]
    assert rows[0][:2] == [MODEL, "twenty"]
    assert rows[7][3:5] == ["     –", ""]
    assert any("undefined below 200" in note for note in results_notes(results))


@pytest.mark.slow
def test_an_interrupt_stops_soon_and_says_so(tmp_path: Path, dataset: Path) -> None:
    many = linked(dataset, tmp_path / "many", 30)
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "import curate.progress\n"
        "from curate.errors import Interrupted\n"
        "from pipelines.evaluate import evaluate\n"
        "curate.progress.LINE_SECONDS = 0.1\n"
        f"try: evaluate([Path({str(many)!r})], [{MODEL!r}])\n"
        "except Interrupted as error: print(error); sys.exit(130)\n"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    process.stderr.readline()  # the first line of progress
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"stopped at lite/efficientnet_lite0 on many" in out


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> Path:
    """A workspace with a release of photos under wrong labels, which thus survive."""
    from pipelines.collect import collect_folder
    from pipelines.filter import run_filter
    from pipelines.release import build_release
    from pipelines.workspace import create_workspace

    root = tmp_path_factory.mktemp("workspaces")
    for path, column in package_photos[:4]:
        folder = root / "photos" / THOUSAND.wnids[(column + 500) % 1000]
        folder.mkdir(parents=True)
        shutil.copy(path, folder / path.name)
    opened = create_workspace(root / "work", "imagenet-1k")
    try:
        collect_folder(opened, root / "photos")
        run_filter(opened)
        built = build_release(opened, "0.1.0", unreviewed=True)
    finally:
        opened.close()
    assert built["images"] >= 2
    return root / "work"


@pytest.mark.slow
def test_a_release_brings_its_label_space_and_names_the_models_that_selected_it(
    workspace: Path,
) -> None:
    release = workspace / "releases" / "0.1.0"
    models = [MODEL, "lite/efficientnet_lite2"]
    took_part, unseen = evaluate([release], models, resamples=5)["results"]
    for result in (took_part, unseen):
        assert result["label_space"]["chosen_by"] == "the release"
        assert result["label_space"]["fingerprint"] == THOUSAND.fingerprint
        assert result["dataset"]["release"]["version"] == "0.1.0"
        assert result["dataset"]["release"]["reviewed"] is False
    assert took_part["took_part_in_selection"] is True
    assert unseen["took_part_in_selection"] is False
    assert took_part["metrics"]["accuracy"]["value"] == 0
    notes = results_notes([took_part, unseen])
    assert sum("took part in selecting" in note for note in notes) == 1
    assert any("unreviewed" in note for note in notes)


@pytest.mark.slow
def test_a_workspace_is_no_dataset_but_its_release_is_named(workspace: Path) -> None:
    with pytest.raises(UsageError, match=r"is a workspace: name one .*releases/0\.1\.0"):
        evaluate([workspace], [MODEL])


@pytest.mark.slow
def test_an_altered_release_is_refused(workspace: Path, tmp_path: Path) -> None:
    root = tmp_path / "release"
    shutil.copytree(workspace / "releases" / "0.1.0", root)
    record = json.loads((root / "release.json").read_text())
    for wrong in ({**record, "models": 3}, {"label_space": record["label_space"]}):
        (root / "release.json").write_text(json.dumps(wrong))
        with pytest.raises(UsageError, match=r"release\.json is no release's record"):
            evaluate([root], [MODEL])
    (root / "release.json").write_text("{")
    with pytest.raises(UsageError, match=r"release\.json"):
        evaluate([root], [MODEL])


@pytest.mark.slow
@pytest.mark.photos
def test_an_unseen_model_is_wrong_on_most_survivors(shared_data: Path, tmp_path: Path) -> None:
    import csv

    with (shared_data / "photos/reference.csv").open() as stream:
        paths = [row["path"] for row in csv.DictReader(stream) if row["outcome"] == "survivor"]
    assert len(paths) == 18
    for path in paths:
        source = shared_data / "photos" / path
        (tmp_path / "survivors" / source.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(source, tmp_path / "survivors" / source.parent.name)
    (result,) = evaluate([tmp_path / "survivors"], ["lite/efficientnet_lite2"])["results"]
    assert result["label_space"]["name"] == "imagenet-a"
    accuracy = result["metrics"]["accuracy"]
    assert accuracy["n"] == 18
    assert accuracy["value"] < 0.3
    assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
