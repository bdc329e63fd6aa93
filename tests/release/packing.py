"""A small release of real photos, and ways to change it, for the tests of its forms."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from PIL import Image

from curate.files import sha256_bytes
from curate.labels.space import load_label_space
from curate.progress import Stop
from curate.release.build import Item, build_folder, checksums
from curate.release.manifest import ManifestRow, manifest_parquet

Photos = list[tuple[Path, int]]

SPACE = load_label_space("imagenet-1k")
HOSTILE = '=HYPERLINK("http://x")\n<script>alert(1)</script>, \\0 é'
LONG = "0.000348_" + "ä" * 40 + " _ " + "b" * 80 + "_0.55540705"


class NoBar:
    def advance(self, count: int = 1) -> None:
        pass


def row_of(path: Path, data: bytes, wnid: str, number: int) -> ManifestRow:
    with Image.open(path) as image:
        width, height = image.size
    return ManifestRow(
        path="",
        candidate=sha256_bytes(f"{sha256_bytes(data)}:{wnid}".encode())[:32],
        place=number + 1,
        wnid=wnid,
        name=SPACE.get(wnid).name,
        predicted_wnid=None if number == 3 else "n01498041",
        predicted_name=None if number == 3 else "stingray",
        confidence=None if number == 3 else 0.5,
        p_true=0.01,
        borderline=False,
        reviewed=False,
        width=width,
        height=height,
        sha256="",
        original_sha256=sha256_bytes(data),
        reencoded=False,
        licence="CC-BY-4.0",
        licence_url=None,
        licence_text=None,
        author=HOSTILE if number % 2 else None,
        title="-1+1",
        page=None,
        source="folder",
        locator="photos/x",
        collection=None,
        other_origins="[]",
    )


def build(folder: Path, photos: Photos) -> Path:
    """Eight photos in three classes, one of them under two labels, one a PNG, one named at length.

    The second of the classes alone is neither the first nor the last of the label space.
    """
    images: dict[str, bytes] = {}
    items = []
    for number, (path, _) in enumerate([*photos[:7], photos[0]]):
        data, extension = path.read_bytes(), "jpg"
        if number == 5:
            buffer = io.BytesIO()
            with Image.open(path) as image:
                image.resize((64, 64)).save(buffer, "PNG")
            data, extension = buffer.getvalue(), "png"
        wnid = SPACE.wnids[(0, 500, 999)[(number + number // 7) % 3]]
        row = row_of(path, data, wnid, number)
        images[row.original_sha256] = data
        items.append(Item(row, wnid, extension, LONG if number == 4 else None))
    record = {
        "version": "0.1.0",
        "reviewed": False,
        "label_space": {"name": SPACE.name, "fingerprint": SPACE.fingerprint},
        "models": [{"name": "lite/efficientnet_lite0", "fingerprint": "57934424"}],
    }
    target = folder / "releases" / "0.1.0"
    target.parent.mkdir(parents=True)
    build_folder(target, items, lambda sha, _: images[sha], record, SPACE, bar=NoBar(), stop=Stop())
    return target


def rows_of(release: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(release / "manifest.parquet").to_pylist()
    return rows


def split_up(release: Path) -> None:
    """Move the second class into a split `dev` and the rest into `test`, as a build would."""
    table = pq.read_table(release / "manifest.parquet")
    places = {}
    for folder in [path for path in release.iterdir() if path.is_dir()]:
        split = "dev" if folder.name == SPACE.wnids[500] else "test"
        (release / split).mkdir(exist_ok=True)
        folder.rename(release / split / folder.name)
        places[folder.name] = split
    rows = [
        ManifestRow(**{**row, "path": f"{places[row['path'][:9]]}/{row['path']}"})
        for row in table.to_pylist()
    ]
    rows.sort(key=lambda row: row.path.encode())
    (release / "metadata.jsonl").unlink(missing_ok=True)
    (release / "manifest.parquet").write_bytes(manifest_parquet(rows, {}))
    sum_up(release)


def sum_up(release: Path) -> None:
    sums = {path: sha256_bytes(data) for path, data in files_of(release).items()}
    sums.pop("SHA256SUMS", None)
    (release / "SHA256SUMS").write_bytes(checksums(sums))


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
