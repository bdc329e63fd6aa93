"""How much of a testbed run is spent in forward passes, and what a rerun costs.

    python benchmarks/testbed_run.py [--photos DIR] [--limit 16] [--models NAME,NAME]

Validation images as they are, under five corruptions at all severities, and attacked (20 steps),
each in a run of its own, and then all of it again from the store. Photos are class folders, or
those of the package foolbox. Of each run it tells

- pictures that passed a model;
- seconds from its begin to its end, loading of models among them;
- seconds spent on pictures and passes, and the share of these in which a model was computing
  (`forward_share`); of an attack, each step counts with its way back.

The numbers of the rerun are equal to those of the first runs; the script stops if not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.corruption_run import package_photos
from pipelines.testbed_run import run_testbed

CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
MODELS = "lite/efficientnet_lite0,lite/efficientnet_lite1"
STEPS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--limit", type=int, default=16)
    parser.add_argument("--models", default=MODELS)
    options = parser.parse_args()
    kinds = {
        "as they are": ["val"],
        "five corruptions": [f"imagenet-c.{name}" for name in CORRUPTIONS],
        "an attack": ["pgd.linf.eps0.5"],
    }
    with tempfile.TemporaryDirectory() as folder:
        photos = options.photos or package_photos(Path(folder) / "photos")

        def measure(settings: list[str]) -> dict[str, Any]:
            return run_testbed(
                options.models.split(","),
                [(name, photos) for name in settings],
                store=Path(folder) / "store",
                limit=options.limit,
                attack_steps=STEPS,
            )

        runs = {kind: measure(settings) for kind, settings in kinds.items()}
        again = measure([name for settings in kinds.values() for name in settings])
        first = [cell for run in runs.values() for cell in run["results"]]
        if sorted(map(str, first)) != sorted(map(str, again["results"])) or again["computed"]:
            sys.exit("the rerun gives other numbers, or computes anew")
    print("| pictures | passed a model | whole command | pictures and passes | a model computing |")
    print("| --- | --- | --- | --- | --- |")
    for kind, run in [*runs.items(), ("all of it again", again)]:
        share = "–" if run["forward_share"] is None else f"{run['forward_share']:.2f}"
        print(
            f"| {kind} | {run['forward_passes']:,} | {run['seconds']:.1f} s | "
            f"{run['measuring_seconds']:.1f} s | {share} |"
        )


if __name__ == "__main__":
    main()
