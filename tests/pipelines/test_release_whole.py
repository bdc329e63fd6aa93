"""The whole way of a release: reviewed, built, packed, verified, loaded by others, corrected."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torchvision

from curate.choices import PACK_FORMS
from curate.files import sha256_bytes
from pipelines.release import build_release
from pipelines.release_diff import diff_releases
from pipelines.release_forms import pack_release
from pipelines.release_verify import verify
from pipelines.retractions import retract
from tests.pipelines.releasing import accept, photo_rows

Photos = list[tuple[Path, int]]

#: Photos as one library loads them: the SHA-256 of the bytes, and the label.
Loaded = list[tuple[str, str]]

WNIDS = ("n01498041", "n01531178", "n01534433")


@pytest.mark.slow
def test_a_reviewed_release_is_packed_verified_loaded_by_all_and_corrected(
    tmp_path: Path, package_photos: Photos, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos: list[tuple[Path, str, str | None]] = [
        (path, WNIDS[n % 3], f"author {n}") for n, (path, _) in enumerate(package_photos[:16])
    ]
    rows = photo_rows(tmp_path / "w", photos, survivors=15)
    accept(rows, range(13))
    for person in (0, 1):
        rows.give([13], [person])
        rows.say(13, person, "wrong-label")
    workspace = rows.workspace.changed({"release.title": "Hard photos"})
    built = build_release(workspace, "1.0.0", unreviewed=False)
    first = Path(built["path"])
    manifest = pq.read_table(first / "manifest.parquet").to_pylist()
    assert (len(manifest), {row["consensus"] for row in manifest}) == (13, {"accepted"})
    expected = sorted((row["sha256"], row["wnid"]) for row in manifest)

    out = tmp_path / "out"
    packed = pack_release(first, out, PACK_FORMS, shard_images=5)
    forms = {form: Path(told["path"]) for form, told in packed["forms"].items()}
    for path in (first, *forms.values()):
        told = verify(None, str(path))
        assert (told["problems"], told["images"]) == ([], 13), path
        assert (told["version"], told["classes"]) == ("1.0.0", 3)

    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with tarfile.open(forms["tar"]) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    classes = [line.split(",")[0] for line in (first / "classes.csv").read_text().splitlines()[1:]]
    loaders = {
        "torchvision": by_torchvision(first),
        "torchvision from the tar": by_torchvision(tmp_path / "unpacked" / "1.0.0"),
        "webdataset": by_webdataset(forms["webdataset"], classes),
        "datasets from folders": by_image_folder(first, tmp_path / "cache"),
        "datasets from Parquet": by_datasets(forms["parquet"], tmp_path / "cache"),
        "pyarrow": by_pyarrow(forms["parquet"], classes),
        "mlcroissant": by_mlcroissant(first),
    }
    for name, loaded in loaders.items():
        assert sorted(loaded) == expected, name

    gone = manifest[0]
    told = retract(workspace, f"1.0.0/{gone['path']}", "privacy")
    assert told["versions"] == {"1.0.0": [gone["path"]]}
    second = Path(build_release(workspace, "2.0.0", unreviewed=False)["path"])
    told = verify(workspace, "2.0.0")
    assert (told["problems"], told["warnings"], told["images"]) == ([], [], 12)
    assert sorted(by_mlcroissant(second)) == sorted(
        set(expected) - {(gone["sha256"], gone["wnid"])}
    )
    told = diff_releases(workspace, "1.0.0", "2.0.0", tmp_path / "diff.html")
    assert (told["step"], told["counts"]["removed"], told["kept"]) == ("major", 1, 12)
    (removed,) = told["removed"]
    assert (removed["image"], removed["reason"]) == (gone["original_sha256"], "retracted: privacy")
    # In the workspace the first one is warned of, and elsewhere with the list of the second.
    told = verify(workspace, "1.0.0")
    assert told["problems"] == []
    assert any("taken back" in line for line in told["warnings"])
    told = verify(None, str(forms["tar"]), tombstones=second / "tombstones.csv")
    assert any(line.startswith(f"{gone['path']} was taken back on") for line in told["warnings"])
    workspace.close()


def by_torchvision(root: Path) -> Loaded:
    found = torchvision.datasets.ImageFolder(str(root))
    assert all(picture.size > (1, 1) for picture, _ in found)
    return [
        (sha256_bytes(Path(path).read_bytes()), found.classes[label])
        for path, label in found.samples
    ]


def by_webdataset(root: Path, classes: list[str]) -> Loaded:
    webdataset = pytest.importorskip("webdataset")
    urls = [str(path) for path in sorted(root.glob("*.tar"))]
    samples = webdataset.WebDataset(urls, shardshuffle=False)
    return [(sha256_bytes(sample["jpg"]), classes[int(sample["cls"])]) for sample in samples]


def _datasets(cache: Path, *arguments: Any, **options: Any) -> Any:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    loaded = datasets.load_dataset(*arguments, **options, cache_dir=str(cache / "datasets"))
    return loaded["test"], datasets.Image(decode=False)


def by_image_folder(root: Path, cache: Path) -> Loaded:
    loaded, raw = _datasets(cache, "imagefolder", data_files={"test": [f"{root}/**"]})
    assert loaded[0]["image"].size == (loaded[0]["width"], loaded[0]["height"])
    return [
        (sha256_bytes(Path(row["image"]["path"]).read_bytes()), row["label"])
        for row in loaded.cast_column("image", raw)
    ]


def by_datasets(root: Path, cache: Path) -> Loaded:
    loaded, raw = _datasets(cache, str(root))
    named = loaded.features["label"].int2str
    return [
        (sha256_bytes(row["image"]["bytes"]), named(row["label"]))
        for row in loaded.cast_column("image", raw)
    ]


def by_pyarrow(root: Path, classes: list[str]) -> Loaded:
    rows = pq.read_table(root / "data", columns=["image", "label"]).to_pylist()
    return [(sha256_bytes(row["image"]["bytes"]), classes[row["label"]]) for row in rows]


def by_mlcroissant(root: Path) -> Loaded:
    mlcroissant = pytest.importorskip("mlcroissant")
    described = mlcroissant.Dataset(jsonld=str(root / "croissant.json"))
    assert not described.metadata.ctx.issues.errors
    assert not described.metadata.ctx.issues.warnings
    labels = {
        record["images/path"].decode(): record["images/wnid"].decode()
        for record in described.records("images")
    }
    found = []
    for record in described.records("files"):
        path = record["files/path"].decode()
        assert record["files/image"].size > (1, 1)
        found.append((sha256_bytes((root / path).read_bytes()), labels.pop(path)))
    assert not labels
    assert json.loads((root / "croissant.json").read_bytes())["version"] == root.name
    return found
