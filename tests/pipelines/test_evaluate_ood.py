from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from curate.errors import UsageError
from curate.labels.space import load_label_space
from curate.models import zoo
from pipelines.evaluate import evaluate, results_notes
from pipelines.labelled import LIMITS
from tests.pipelines.made_release import mark_as_release
from tests.pipelines.zoo import loaded_once

MODEL = "lite/efficientnet_lite0"
O = load_label_space("imagenet-o")  # noqa: E741
THOUSAND = load_label_space("imagenet-1k")

Photos = list[tuple[Path, int]]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory, package_photos: Photos) -> tuple[Path, Path]:
    """Photos of none of ImageNet-O's classes in one folder, and class folders with all others."""
    root = tmp_path_factory.mktemp("sides")
    outside, inside = root / "something-else", root / "val"
    outside.mkdir()
    for path, column in package_photos:
        wnid = THOUSAND.wnids[column]
        if wnid not in O and len(list(outside.iterdir())) < 6:
            shutil.copy(path, outside)
            continue
        (inside / wnid).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, inside / wnid)
    return outside, inside


@pytest.fixture(scope="module", autouse=True)
def _loaded_once() -> Iterator[None]:
    with loaded_once():
        yield


@pytest.fixture(scope="module")
def detected(
    tmp_path_factory: pytest.TempPathFactory, sides: tuple[Path, Path]
) -> tuple[dict[str, Any], Path]:
    """A summary and its report."""
    report = tmp_path_factory.mktemp("reports") / "report"
    outside, inside = sides
    summary = evaluate([outside], [MODEL], in_distribution=inside, report=report, resamples=40)
    return summary, report


def test_the_numbers_equal_a_plain_evaluation(
    detected: tuple[dict[str, Any], Path], sides: tuple[Path, Path]
) -> None:
    import torch
    from PIL import Image
    from scipy.special import logsumexp, softmax
    from scipy.stats import entropy
    from torchvision import transforms

    classifier = zoo.load_classifier(MODEL)
    usual = transforms.Compose(
        [
            transforms.Resize(256, transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )
    outside, inside = sides
    logits, truth = [], []
    for path in sorted(outside.iterdir()) + sorted(inside.glob("*/*")):
        if path.parent.name in O or path.parent == outside:
            with torch.inference_mode(), Image.open(path) as image:
                logits.append(classifier.module(usual(image.convert("RGB"))[None])[0].numpy())
            truth.append(int(path.parent == outside))
    full = np.array(logits, np.float64)
    (result,) = detected[0]["results"]
    assert (result["n_out"], result["n_in"]) == (6, sum(1 for one in truth if not one))
    for end, part in (("", full[:, O.columns_in(THOUSAND)]), ("_unrestricted", full)):
        for name, scores in {
            "msp": -softmax(part, axis=1).max(axis=1),
            "max_logit": -part.max(axis=1),
            "energy": -logsumexp(part, axis=1),
            "entropy": entropy(softmax(part, axis=1), axis=1),
        }.items():
            value = {
                key.removesuffix(f"_{name}{end}"): told["value"]
                for key, told in result["metrics"].items()
                if key.endswith(f"_{name}{end}")
            }
            expected = average_precision_score(truth, scores)
            assert value["aupr"] == pytest.approx(expected, abs=1e-12), name
            assert value["auroc"] == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
            flipped = average_precision_score(1 - np.array(truth), -scores)
            assert value["aupr_in"] == pytest.approx(flipped, abs=1e-12)


def test_a_result_says_what_stood_against_what(
    detected: tuple[dict[str, Any], Path], sides: tuple[Path, Path]
) -> None:
    (result,) = detected[0]["results"]
    assert result["kind"] == "ood"
    assert result["dataset"]["name"] == "something-else"
    assert (result["dataset"]["images"], result["dataset"]["classes"]) == (6, 0)
    kept = sum(1 for path in sides[1].glob("*/*") if path.parent.name in O)
    assert result["in_distribution"]["name"] == "val"
    assert result["in_distribution"]["images"] == result["n_in"] == kept
    assert result["in_distribution"]["other_classes"] == 14 - kept > 0
    assert len(result["in_distribution"]["content_sha256"]) == 64
    assert (result["label_space"]["name"], result["label_space"]["classes"]) == ("imagenet-o", 200)
    assert result["base_rate"] == 6 / (6 + kept)
    assert result["trained_on_imagenet_21k"] is False
    assert result["shared_images"] == result["failed"] == 0
    notes = results_notes([result])
    assert any(f"base rate {6 / (6 + kept):.1%}" in note for note in notes)
    assert any(f"{14 - kept} images of val are of classes outside imagenet-o" in n for n in notes)


def test_the_reports_files_give_the_same_numbers(
    detected: tuple[dict[str, Any], Path], sides: tuple[Path, Path]
) -> None:
    summary, report = detected
    assert json.loads((report / "results.json").read_text()) == summary
    (result,) = summary["results"]
    files = [report / result[f"predictions{end}"] for end in ("", "_in_distribution")]
    assert pq.read_table(files[0])["wnid"].null_count == 6
    for datasets in ([], [sides[0]]):
        (again,) = evaluate(
            datasets,
            [],
            predictions=files[:1],
            in_distribution_predictions=files[1:],
            resamples=40,
        )["results"]
        for name, told in result["metrics"].items():
            same = {key: again["metrics"][name][key] for key in ("value", "low", "high", "n_in")}
            assert same == {key: told[key] for key in same}
        assert again["model"]["fingerprint_of"] == "predictions-file"


def test_flat_images_with_a_file_of_labels_are_in_distribution_too(
    tmp_path: Path, detected: tuple[dict[str, Any], Path], sides: tuple[Path, Path]
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    lines = []
    for number, path in enumerate(sorted(sides[1].glob("*/*")), 1):
        name = f"ILSVRC2012_val_{number:08d}.JPEG"
        shutil.copy(path, flat / name)
        lines.append(f"{name} {path.parent.name}\n")
    (tmp_path / "val.txt").write_text("".join(lines))
    (result,) = evaluate(
        [sides[0]],
        [MODEL],
        in_distribution=flat,
        in_distribution_labels=tmp_path / "val.txt",
        resamples=2,
    )["results"]
    (first,) = detected[0]["results"]
    assert result["in_distribution"]["labels"]["name"] == "val.txt"
    assert result["n_in"] == first["n_in"]
    for name in ("aupr_msp", "auroc_energy_unrestricted"):
        assert result["metrics"][name]["value"] == first["metrics"][name]["value"]


def test_images_on_both_sides_and_unusable_ones_are_counted(
    tmp_path: Path, sides: tuple[Path, Path]
) -> None:
    outside, inside = tmp_path / "set", tmp_path / "val"
    shutil.copytree(sides[0], outside)
    shutil.copytree(sides[1], inside)
    (folder,) = [path for path in inside.iterdir() if path.name in O][:1]
    shutil.copy(next(folder.iterdir()), outside / "again.jpg")
    (outside / "cut.jpg").write_bytes(next(folder.iterdir()).read_bytes()[:300])
    (folder / "text.jpg").write_text("no image")
    for side in (outside, folder):
        # Of what nobody has read, nobody knows that it is the same.
        with (side / "huge.jpg").open("wb") as stream:
            stream.truncate(LIMITS.max_bytes + 1)
    summary = evaluate([outside], [MODEL], in_distribution=inside, resamples=2)
    (result,) = summary["results"]
    assert result["shared_images"] == 1
    assert result["failed"] == summary["failed"] == 4
    assert {failure["path"] for failure in result["failures"]} == {
        "cut.jpg",
        "huge.jpg",
        f"{folder.name}/huge.jpg",
        f"{folder.name}/text.jpg",
    }
    assert result["n_out"] == 7


def test_releases_of_both_kinds_are_each_measured_as_what_they_are(
    tmp_path: Path, sides: tuple[Path, Path]
) -> None:
    wnid = next(path.name for path in sides[1].iterdir() if path.name in O)
    selected = [{"fingerprint": zoo.load_classifier(MODEL).fingerprint}]
    roots = []
    for layout, photo in (
        ("imagenet-a", next((sides[1] / wnid).iterdir())),
        ("imagenet-o", next(sides[0].iterdir())),
    ):
        root = tmp_path / layout
        (root / wnid).mkdir(parents=True)
        shutil.copy(photo, root / wnid)
        roots.append(mark_as_release(root, O, layout=layout, models=selected))
    true, other = evaluate(roots, [MODEL], in_distribution=sides[1], resamples=2)["results"]
    assert (true["kind"], other["kind"]) == ("classification", "ood")
    assert true["n"] == other["n_out"] == 1
    assert other["dataset"]["classes"] == 1
    assert true["took_part_in_selection"] is other["took_part_in_selection"] is True
    with pytest.raises(UsageError, match="is a release in ImageNet-A layout: in-distribution"):
        evaluate(roots[:1], [MODEL], in_distribution=sides[1])
    with pytest.raises(UsageError, match="add --in-distribution DIR"):
        evaluate(roots[1:], [MODEL])


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"labels": Path("v.txt")}, "write --in-distribution-labels FILE"),
        ({"in_distribution": None, "in_distribution_labels": Path("v")}, "needs --in-distribution"),
        ({"models": []}, "name a model with --model"),
        (
            {
                "models": [],
                "predictions": [Path("f.csv")],
                "in_distribution_predictions": [Path("g.csv")],
            },
            "needs a model that looks at the images",
        ),
        ({"predictions": [Path("f.csv")]}, "for the others write --in-distribution-predictions"),
        (
            {
                "predictions": [Path("f.csv")],
                "in_distribution_predictions": [Path("sub") / ".." / "f.csv"],
            },
            "name two files",
        ),
        ({"in_distribution_predictions": [Path("f.csv")]}, "needs --predictions FILE"),
        (
            {
                "in_distribution": None,
                "predictions": [Path("f.csv")],
                "in_distribution_predictions": [Path("g.csv")],
            },
            "a model needs in-distribution images",
        ),
        ({"in_distribution": "outside"}, "name two folders apart"),
        ({"temperature_split": 0.2}, "leave --temperature-split out"),
        ({"in_distribution": "elsewhere"}, "cannot read .*elsewhere"),
        ({"label_space": "imagenet-a", "in_distribution": "only-o"}, "none of the 1 images"),
    ],
)
def test_what_cannot_work_fails_before_the_first_image(
    tmp_path: Path, sides: tuple[Path, Path], options: dict[str, Any], fault: str
) -> None:
    outside, inside = sides
    only = next(wnid for wnid in O.wnids if wnid not in load_label_space("imagenet-a"))
    (tmp_path / "only-o" / only).mkdir(parents=True)
    (tmp_path / "only-o" / only / "a.jpg").write_bytes(b"x")
    chosen: dict[str, Any] = {"models": [MODEL], "in_distribution": inside, **options}
    if isinstance(chosen["in_distribution"], str):
        name = chosen["in_distribution"]
        chosen["in_distribution"] = outside if name == "outside" else tmp_path / name
    with pytest.raises(UsageError, match=fault) as caught:
        evaluate([outside], chosen.pop("models"), **chosen)
    assert "\n" not in str(caught.value)


def test_a_file_whose_every_image_failed_is_told_as_that(tmp_path: Path) -> None:
    for sound, failing in (("out", "in"), ("in", "out")):
        (tmp_path / f"{sound}.csv").write_text("path,anomaly_mine,failed\na.jpg,1,\n")
        (tmp_path / f"{failing}.csv").write_text("path,anomaly_mine,failed\nb.jpg,,broken\n")
        with pytest.raises(
            UsageError, match=rf"none of the 1 images of {failing}.csv .*\(broken\)"
        ):
            evaluate(
                [],
                [],
                predictions=[tmp_path / "out.csv"],
                in_distribution_predictions=[tmp_path / "in.csv"],
            )


def test_files_without_a_common_score_are_refused(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("path,anomaly_mine\na.jpg,1\nb.jpg,2\n")
    (tmp_path / "in.csv").write_text("path,anomaly_other\nc.jpg,1\nd.jpg,2\n")
    files = {
        "predictions": [tmp_path / "out.csv"],
        "in_distribution_predictions": [tmp_path / "in.csv"],
    }
    with pytest.raises(UsageError, match="no score in common: the one has mine, the other other"):
        evaluate([], [], **files)
    (tmp_path / "in.csv").write_text("path,anomaly_mine\nc.jpg,0.5\nd.jpg,0\n")
    (result,) = evaluate([], [], **files, resamples=5)["results"]
    assert result["metrics"]["aupr_mine"]["value"] == 1
    assert result["in_distribution"]["file"]["name"] == "in.csv"
    assert result["label_space"]["name"] == "imagenet-o"
