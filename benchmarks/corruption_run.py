"""Whether a corruption run keeps the model busy: all 95 settings on some photos.

    python benchmarks/corruption_run.py [--photos DIR] [--limit 16] [--model NAME] [--workers 0,2]

The nineteen corruptions of ImageNet-C at five severities, and the clean images, at the crop and at
the camera, as `curate robustness corruptions` measures them. Photos are class folders, or those of
the package foolbox. By number of worker processes it tells

- seconds, and pictures that passed the model a second;
- the share of the time in which at least one forward pass was running (`forward_share`);
- the limit: the same number of forward passes over clean crops that lie in memory, on the same
  threads and in the same batches, before the run and after it, and its share of the run's time.

Numbers are the same with any number of workers; the script stops if not.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from curate.images.views import resize_short_side, view
from curate.labels.space import load_label_space
from curate.models.runtime import BATCH_SIZES, bound_threads
from curate.models.zoo import load_classifier
from pipelines.corruptions import corruptions
from pipelines.threads import usable_cores

NAMES = ("imagenet-c", "extra")
SETTINGS = 95


def package_photos(root: Path) -> Path:
    """The photos of the package foolbox in class folders."""
    spec = importlib.util.find_spec("foolbox")
    if spec is None or spec.origin is None:
        sys.exit("name class folders with --photos, or pip install foolbox")
    wnids = load_label_space("imagenet-1k").wnids
    for path in sorted((Path(spec.origin).parent / "data").glob("imagenet_*.jpg")):
        folder = root / wnids[int(path.stem.split("_")[2])]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder)
    return root


def limit_seconds(model: str, photos: Path, passes: int) -> float:
    """Seconds for so many bare forward passes."""
    from PIL import Image

    classifier = load_classifier(model)
    recipe = classifier.preprocessing.recipe
    size = BATCH_SIZES[classifier.device.type]
    paths = sorted(photos.glob("*/*"))[:size]
    crops = [
        view(resize_short_side(Image.open(path).convert("RGB"), recipe), 0, recipe.crop)
        for path in paths
    ]
    batch = np.stack([crops[n % len(crops)] for n in range(size)])

    def forward(_: int) -> None:
        with bound_threads(1):
            classifier.logits(batch).cpu().numpy()

    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(forward, range(8)))
        began = time.perf_counter()
        list(pool.map(forward, range(passes // size)))
        return time.perf_counter() - began


def comparable(summary: dict[str, Any]) -> Any:
    return summary["rows"], summary["results"][0]["clean"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--limit", type=int, default=16)
    parser.add_argument("--model", default="lite/efficientnet_lite0")
    parser.add_argument("--workers", default="0,2")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        photos = options.photos or package_photos(Path(folder) / "photos")
        rows = []
        for at in ("crop", "camera"):
            found: list[Any] = []
            for workers in map(int, options.workers.split(",")):
                passes = options.limit * (SETTINGS + 1)
                before = limit_seconds(options.model, photos, passes // 4)
                summary = corruptions(
                    photos,
                    [options.model],
                    names=NAMES,
                    at=at,
                    limit=options.limit,
                    workers=workers,
                )
                after = limit_seconds(options.model, photos, passes // 4)
                found.append(comparable(summary))
                if found[-1] != found[0]:
                    sys.exit(f"{workers} workers give other numbers")
                spent = summary["measuring_seconds"]
                bare = 2 * (before + after) * summary["forward_passes"] / passes
                rows.append(
                    f"| {at} | {workers} | {summary['forward_passes']:,} | {spent:.1f} s | "
                    f"{summary['forward_passes'] / spent:.1f} | {summary['forward_share']:.2f} | "
                    f"{bare:.1f} s | {bare / spent:.2f} |"
                )
        print(
            "| at | worker processes | passes | time | a second | forward share | limit | of it |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        print("\n".join(rows))


if __name__ == "__main__":
    main()
