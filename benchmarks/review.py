"""What a push costs: tasks at a real Label Studio, seconds and memory.

    python benchmarks/review.py push [--count 5000] [--overlap 2] [--photos DIR] [--sizes N …]
                                     [--out FILE]

A workspace takes the photos of DIR (class folders named by wnids of ImageNet-1k) and labels each
with many classes, so that few photos make many candidates; all of these are survivors of a run
whose scores (ten views of two models each) are made up. Its own Label Studio is started, with as
many annotators as each candidate needs answers. Then the real push runs, in a process of its own,
from an empty server: so that `--count` tasks are there at the end. A second push finds nothing to
do, and its seconds are told too. With --sizes the same for other numbers of tasks, to see whether
memory grows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

_RUN = "benchmark"
_VIEWS, _MODELS = 10, 2


def make(root: Path, photos: Path, count: int) -> None:
    """Make a workspace with so many survivors of a finished run."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from curate.catalog import intake, judging
    from curate.catalog.tables import now
    from curate.files import candidate_key
    from pipelines.collect import collect_folder
    from pipelines.workspace import create_workspace

    preset = root.parent / "preset.yaml"
    preset.write_text("label_space: imagenet-1k\n", encoding="utf-8")
    workspace = create_workspace(root, str(preset))
    collect_folder(workspace, photos)
    space = workspace.label_space
    with workspace.catalogue.read() as connection:
        stored = [sha256 for sha256, _ in intake.images_after(connection, "", 100_000)]
    draw = random.Random(0)
    pairs = [(sha256, wnid) for sha256 in stored for wnid in space.wnids]
    if count > len(pairs):
        sys.exit(f"{len(stored)} photos make {len(pairs)} candidates at most; name more photos")
    made = {candidate_key(*pair): pair for pair in draw.sample(pairs, count)}
    keys = sorted(made)
    record = {
        "rule": "misclassified",
        "label_space": {"name": space.name, "fingerprint": space.fingerprint},
        "models": [{"name": "one"}, {"name": "two"}],
        "recipes": [{"resize": 256, "crop": 224, "interpolation": "bilinear"}],
    }
    settings = {"filter": {"cap": 1000, "cap_order": "hash", "seed": 0}, "quality": {}}
    with workspace.catalogue.write() as connection:
        known = set(judging.candidate_keys(connection, None))
        there = {key for key, _ in known}
        rows = [
            {"key": key, "sha256": made[key][0], "wnid": made[key][1], "near_key": None}
            for key in keys
            if key not in there
        ]
        intake.add_candidates(connection, rows)
        ids = dict(judging.candidate_keys(connection, None))
        row = {"id": _RUN, "scoring": _RUN, "scores_run": _RUN, "rule": "misclassified"}
        row |= {"state": "finished", "settings": settings, "record": record, "summary": {}}
        judging.start_run(connection, row | {"started": now(), "finished": now()})
        predicted = {key: draw.sample(space.wnids, 4) for key in keys}
        verdict = {"run_id": _RUN, "outcome": "survivor", "confidence": 0.5, "borderline": False}
        judging.add_verdicts(
            connection,
            [
                verdict | {"candidate_id": ids[key], "predicted_wnid": predicted[key][0]}
                for key in keys
            ],
        )
    folder = workspace.run_folder(_RUN)
    folder.mkdir(parents=True)
    each = _VIEWS * _MODELS
    table = pa.table(
        {
            "candidate": [key for key in keys for _ in range(each)],
            "model": [n // _VIEWS for n in range(each)] * len(keys),
            "view": [n % _VIEWS for n in range(each)] * len(keys),
            "predicted_wnid": [draw.choice(predicted[k]) for k in keys for _ in range(each)],
        }
    )
    pq.write_table(table, folder / "scores.parquet", compression="zstd", row_group_size=256 * each)
    workspace.close()


@contextmanager
def served(root: Path, people: int) -> Iterator[list[str]]:
    """Run the workspace's Label Studio with so many annotators."""
    emails = [f"person{number}@example.org" for number in range(people)]
    named = [part for email in emails for part in ("--annotator", email)]
    command = [sys.executable, "-m", "curate", "-w", str(root), "review", "serve"]
    with _free_port() as port:
        pass
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*command, "--port", str(port), *named], cwd=ROOT, check=True, **quiet)
    try:
        yield emails
    finally:
        subprocess.run([*command, "--stop"], cwd=ROOT, check=True, **quiet)


@contextmanager
def _free_port() -> Iterator[int]:
    import socket

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield int(unused.getsockname()[1])


def inside(root: Path, overlap: int) -> None:
    """One push in this process; prints what it cost as JSON."""
    started = time.perf_counter()
    from pipelines.review_push import push
    from pipelines.workspace import open_workspace

    workspace = open_workspace(root)
    summary = push(workspace, overlap=overlap)
    seconds = time.perf_counter() - started
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    told = {"pushed": summary["pushed"], "seconds": round(seconds, 2), "peak_mb": peak / 1000}
    print(json.dumps(told))


def measured(photos: Path, count: int, overlap: int) -> dict[str, Any]:
    """What a first and a second push of so many tasks cost."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "workspace"
        make(root, photos, -(-count // overlap))
        command = [sys.executable, __file__, "inside", str(root), "--overlap", str(overlap)]
        with served(root, overlap):
            first, second = (
                json.loads(
                    subprocess.run(
                        command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
                    ).stdout
                )
                for _ in range(2)
            )
    return {
        "tasks": first["pushed"],
        "overlap": overlap,
        "seconds": first["seconds"],
        "peak_mb": first["peak_mb"],
        "again_pushed": second["pushed"],
        "again_seconds": second["seconds"],
    }


def main() -> None:
    """Run and print one JSON line a number of tasks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("push", "inside"))
    parser.add_argument("root", nargs="?", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--photos",
        type=Path,
        default=Path(os.environ.get("CURATE_PHOTOS", "photos")),
        help="class folders named by wnids; $CURATE_PHOTOS by default",
    )
    parser.add_argument("--count", type=int, default=5000, help="tasks in all")
    parser.add_argument("--overlap", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="further numbers of tasks")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.what == "inside":
        inside(given.root, given.overlap)
        return
    found = []
    for count in [given.count, *given.sizes]:
        found.append(measured(given.photos, count, given.overlap))
        print(json.dumps(found[-1]), flush=True)
    if given.out:
        given.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
