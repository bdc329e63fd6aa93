"""Memory does not grow with the number of images: peak of each command on N candidates.

    python benchmarks/memory.py [--photos DIR] [--sizes 1000 10000]

The candidates are the photos of DIR (class folders), each re-encoded under changing qualities and
sizes until there are N of them; the commands are the real ones, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from PIL import Image


def make(photos: Sequence[Path], root: Path, count: int) -> None:
    """Write `count` distinct photos into class folders."""
    for number in range(count):
        source = photos[number % len(photos)]
        turn = number // len(photos)
        folder = root / source.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        with Image.open(source) as image:
            upright = image.convert("RGB")
            size = (upright.width + 4 * turn, upright.height + 4 * turn)
            upright.resize(size).save(folder / f"{number}.jpg", quality=95 - turn)


def measured(*arguments: str | Path) -> tuple[float, float, str]:
    """Seconds, peak resident memory in MB and standard output of one command."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "curate", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, arguments
    return time.perf_counter() - started, usage.ru_maxrss / 1000, out


def main() -> None:
    """Run and print one line a command and size."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--photos",
        type=Path,
        default=Path(os.environ.get("CURATE_PHOTOS", "photos")),
        help="class folders named by ImageNet-A's wnids; $CURATE_PHOTOS by default",
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1000, 10_000], help="numbers of candidates"
    )
    options = parser.parse_args()
    photos = sorted(path for path in options.photos.glob("*/*") if path.is_file())
    if not photos:
        sys.exit(f"{options.photos} holds no photos; name class folders with --photos")
    print(f"curate --help: {measured('--help')[0]:.2f} s")
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            source, root = Path(folder) / "photos", Path(folder) / "workspace"
            make(photos, source, size)
            measured("init", root, "--preset", "imagenet-a")
            for command in (
                ["collect", "folder", source],
                ["filter"],
                ["status"],
                ["report"],
                ["release", "build", "0.1.0", "--unreviewed"],
            ):
                seconds, peak, out = measured("-w", root, *command, "--json")
                found = json.loads(out)
                told = {k: found[k] for k in ("new", "survivors", "images") if k in found}
                print(
                    f"{size} candidates, curate {' '.join(map(str, command[:2]))}: "
                    f"{seconds:.1f} s, {peak:.0f} MB {told or ''}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
