"""`curate dedup` on a million candidates against a hash file of 1.3 million images.

    python benchmarks/dedup.py [--photos DIR] [--candidates 1000000] [--set 1300000] [--labels 1000]

The hashes are those of real photos with some bits changed, so that their bits are as unevenly
spread as those of real sets; among them are many equal ones (pictures of one colour) and many that
share half of their bits (things on white). Into them are planted near pairs, mirrored ones too: of
candidates and the set, of candidates under one label, and of candidates under two. The real command
runs in a process of its own; every planted pair must be found. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from curate.catalog.tables import candidates, duplicates, images, now
from curate.images.hash_sets import HashSetBuilder, write_hash_file
from curate.images.hashing import NEAR_DISTANCE, perceptual_hash
from curate.images.near import Hashes
from pipelines.workspace import create_workspace

_ROWS = 50_000


def base_hashes(folder: Path | None) -> Hashes:
    """The hashes of real photos: of a folder, or of those that come with Python packages."""
    if folder is None:
        import foolbox
        import skimage

        roots = [Path(str(module.__file__)).parent / "data" for module in (foolbox, skimage)]
    else:
        roots = [folder]
    found = []
    for path in sorted(path for root in roots for path in root.rglob("*.[jpJP]*[gG]")):
        try:
            with Image.open(path) as photo:
                found.append(perceptual_hash(photo.convert("RGB")))
        except OSError:
            continue
    return Hashes.of(found)


def flipped(chance: np.random.Generator, hashes: Hashes, bits: int) -> Hashes:
    """The hashes with up to `bits` bits changed, picture and mirror image alike."""
    mask = np.zeros(len(hashes), np.uint64)
    for _ in range(bits):
        mask ^= np.uint64(1) << chance.integers(0, 64, len(hashes), dtype=np.uint64)
    return Hashes(hashes.picture ^ mask, hashes.mirror ^ mask)


def many(chance: np.random.Generator, base: Hashes, count: int) -> Hashes:
    """Hashes like those of photos; a twentieth equal, a twentieth alike in half of their bits."""
    made = flipped(chance, base[chance.integers(0, len(base), count)], 14)
    equal, alike = slice(0, count // 20), slice(count // 20, count // 10)
    half = np.uint64(0xFFFF_FFFF)
    for values in (made.picture, made.mirror):
        values[equal] = 0x8000_0000_0000_0000
        values[alike] &= half
    order = chance.permutation(count)
    return made[order]


def plant(
    chance: np.random.Generator, target: Hashes, places: Any, source: Hashes, sources: Any
) -> None:
    """Make hashes at places near to others, every second one to the mirror image."""
    near = flipped(chance, source[sources], NEAR_DISTANCE)
    turned = np.arange(len(places)) % 2 == 1
    target.picture[places] = np.where(turned, near.mirror, near.picture)
    target.mirror[places] = np.where(turned, near.picture, near.mirror)


def fill(root: Path, hashes: Hashes, labels: Any) -> None:
    """Make a workspace with a candidate a hash; there are no pictures."""
    workspace = create_workspace(root, "imagenet-1k")
    wnids = workspace.label_space.wnids
    moment = now()
    with workspace.catalogue.write() as connection:
        for start in range(0, len(hashes), _ROWS):
            places = range(start, min(start + _ROWS, len(hashes)))
            connection.execute(
                images.insert(),
                [
                    {
                        "sha256": f"{n:064x}",
                        "extension": "jpg",
                        "format": "JPEG",
                        "mode": "RGB",
                        "bytes": 100_000 + n * 7919 % 50_000,
                        "width": 500,
                        "height": 375,
                        "notes": [],
                        "pixel_sha256": f"{n + (1 << 40):064x}",
                        "perceptual_hash": f"{hashes.picture[n]:016x}{hashes.mirror[n]:016x}",
                        "taken_in": moment,
                    }
                    for n in places
                ],
            )
            connection.execute(
                candidates.insert(),
                [
                    {
                        "id": n + 1,
                        "key": f"{n:032x}",
                        "sha256": f"{n:064x}",
                        "wnid": wnids[labels[n]],
                    }
                    for n in places
                ],
            )
    workspace.close()


def write_set(path: Path, hashes: Hashes) -> None:
    """Write the hash file of a set."""
    builder = HashSetBuilder()
    for start in range(0, len(hashes), _ROWS):
        places = range(start, min(start + _ROWS, len(hashes)))
        builder.add(
            [f"n{n // 1300:08d}/{n}.JPEG" for n in places],
            {
                "sha256": [f"{n + (1 << 50):064x}" for n in places],
                "perceptual_hash": [
                    f"{hashes.picture[n]:016x}{hashes.mirror[n]:016x}" for n in places
                ],
                "pixel_sha256": None,
            },
        )
    write_hash_file(path, builder.build("set"))


def measured(*arguments: str | Path) -> tuple[float, float, dict[str, Any]]:
    """Seconds, peak resident memory in MB and the JSON summary of one command."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "curate", *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, arguments
    return time.perf_counter() - started, usage.ru_maxrss / 1000, json.loads(out)


def missed(root: Path, leaked: Any, pairs: Any, labels: Any) -> int:
    """How many planted pairs the catalogue does not tell of."""
    from pipelines.workspace import open_workspace

    workspace = open_workspace(root)
    with workspace.catalogue.read() as connection:
        query = duplicates.select().order_by(duplicates.c.candidate_id)
        rows = {row.candidate_id - 1: row for row in connection.execute(query)}
    workspace.close()
    count = sum(n not in rows or rows[n].against is None for n in leaked.tolist())
    for first, second in pairs.tolist():
        told = [rows[n] for n in (first, second) if n in rows]
        same_label = labels[first] == labels[second]
        count += not told or (same_label and not any(row.dropped for row in told))
    return int(count)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    photos = os.environ.get("CURATE_PHOTOS")
    parser.add_argument(
        "--photos",
        type=Path,
        default=Path(photos) if photos else None,
        help="$CURATE_PHOTOS by default, else photos that come with Python packages",
    )
    parser.add_argument("--candidates", type=int, default=1_000_000)
    parser.add_argument("--set", type=int, default=1_300_000)
    parser.add_argument("--labels", type=int, default=1000, choices=range(1, 1001), metavar="N")
    parser.add_argument("--distance", type=int, default=NEAR_DISTANCE)
    options = parser.parse_args()
    chance = np.random.default_rng(0)
    base = base_hashes(options.photos)
    mine, theirs = (many(chance, base, count) for count in (options.candidates, options.set))
    labels = chance.integers(0, options.labels, options.candidates)
    few = options.candidates // 100
    places = chance.permutation(options.candidates)
    leaked, first, second = places[:few], places[few : 3 * few], places[3 * few : 5 * few]
    plant(chance, mine, leaked, theirs, chance.integers(0, options.set, few))
    plant(chance, mine, second, mine, first)
    # One half under the same label, the other under whatever came.
    labels[second[:few]] = labels[first[:few]]
    with tempfile.TemporaryDirectory() as folder:
        root, file = Path(folder) / "workspace", Path(folder) / "set.parquet"
        fill(root, mine, labels)
        write_set(file, theirs)
        command = ["-w", root, "--json", "dedup", "--against", file]
        seconds, peak, told = measured(*command, "--distance", str(options.distance))
        lost = missed(root, leaked, np.stack([first, second], axis=1), labels)
    line = {
        "candidates": options.candidates,
        "set": options.set,
        "labels": options.labels,
        "distance": options.distance,
        "photos": len(base),
        "seconds": round(seconds, 1),
        "peak_mb": round(peak),
        "planted": 3 * few,
        "missed": lost,
        **{name: told[name] for name in ("exact", "near", "against", "across_labels", "dropped")},
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
