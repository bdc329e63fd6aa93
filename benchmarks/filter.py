"""How fast the filter is: against the loop that a good user would write, and against the limit.

    python benchmarks/filter.py [--photos DIR] [--mix 0.11] [--first N]

Three times on the same photos, all in this process with the models loaded:

(a) naive: Dataset and DataLoader, Resize, TenCrop, twenty forward passes and one decode a photo,
    with the best of three batch sizes;
(b) `curate filter`, from the store to the finished run: decoding, the cascade, Parquet, catalogue;
(c) the limit: the forward passes that the cascade needs, in its batches, and the decoding and
    resizing of the photos, each alone on all cores, added up.

(a)/(b) says how many times faster the filter is; (c)/(b) says how much of the time is work that
cannot be left out. DIR holds class folders named by ImageNet-A's wnids. With --mix M the photos are
chosen so that the share M survives (all survivors, and the first of the others in hash order).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from curate.filtration.margins import is_exact
from curate.filtration.plan import prepare
from curate.models.runtime import bound_threads
from pipelines.collect import collect_folder
from pipelines.filter import FilterRun, begin_run
from pipelines.runs import read_shortlist
from pipelines.threads import usable_cores
from pipelines.workspace import Workspace, create_workspace

BATCH_SIZES = (1, 4, 16)


class Photos(Dataset[Any]):
    """Photos as ten normalised crops, as torchvision's documentation would have it."""

    def __init__(self, items: Sequence[tuple[Path, int]], mean: float, std: float) -> None:
        self.items = items
        self.transform = transforms.Compose(
            [
                transforms.Resize(256),
                transforms.TenCrop(224),
                transforms.Lambda(
                    lambda crops: torch.stack([transforms.functional.to_tensor(c) for c in crops])
                ),
                transforms.Normalize([mean] * 3, [std] * 3),
            ]
        )

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        path, target = self.items[index]
        return self.transform(Image.open(path).convert("RGB")), target


def naive(
    items: Sequence[tuple[Path, int]],
    networks: Sequence[torch.nn.Module],
    columns: np.ndarray,
    batch_size: int,
    threshold: float = 0.15,
) -> tuple[float, list[int]]:
    """The plain loop on all cores; seconds, and which photos survive."""
    survivors: list[int] = []
    started = time.perf_counter()
    loader = DataLoader(Photos(items, 0.5, 0.5), batch_size=batch_size)
    done = 0
    with torch.inference_mode():
        for crops, targets in loader:
            size = len(crops)
            keep = torch.ones(size, dtype=torch.bool)
            for network in networks:
                logits = network(crops.flatten(0, 1))[:, columns]
                p = logits.softmax(dim=1).view(size, 10, -1)
                p_true = p.gather(2, targets.view(-1, 1, 1).expand(-1, 10, 1)).squeeze(2)
                right = p.argmax(dim=2) == targets.view(-1, 1)
                keep &= ~(right | (p_true > threshold)).any(dim=1)
            survivors += [done + n for n in keep.nonzero().flatten().tolist()]
            done += size
    return time.perf_counter() - started, survivors


#: What ran: the forward ("shared") or the classifier ("fp32") of the ensemble's N-th member.
Pass = tuple[str, int, int]


def traced(run: FilterRun) -> list[Pass]:
    """The passes that a run needs: (what ran, classifier, views in the batch), in any order."""
    passes: list[Pass] = []

    def watch(runner: Any, kind: str, number: int) -> Callable[..., Any]:
        original = runner.logits

        def logits(views: Any) -> Any:
            passes.append((kind, number, len(views)))
            return original(views)

        return logits

    plan = run.scorer.plan
    watched = [("fp32", n, c) for n, c in enumerate(plan.classifiers)]
    # PyTorch in fp32 is a forward that calls its classifier.
    watched += [("shared", n, f) for n, f in enumerate(plan.forwards) if not is_exact(plan, n)]
    for kind, number, runner in watched:
        runner.logits = watch(runner, kind, number)  # type: ignore[method-assign]
    with bound_threads(1):
        for number, _ in run.candidates.spans():
            chunk = run.chunk(number)
            run.scorer.judged(chunk, run.scorer.load(chunk))
    for _, _, runner in watched:
        del runner.logits
    return passes


def on_all_cores(tasks: Sequence[Callable[[], Any]]) -> float:
    """Seconds that the tasks take on one thread a core."""

    def bounded(task: Callable[[], Any]) -> None:
        with bound_threads(1):
            task()

    started = time.perf_counter()
    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(bounded, tasks))
    return time.perf_counter() - started


def limit(run: FilterRun, passes: Sequence[Pass], data: Sequence[bytes]) -> list[float]:
    """Seconds of the bare forward passes, and of bare decoding and resizing."""
    plan = run.scorer.plan
    noise = np.random.default_rng(0)
    views = {size: noise.integers(0, 256, (size, 224, 224, 3), np.uint8) for _, _, size in passes}

    def forward(one: Pass) -> None:
        kind, number, size = one
        runner: Any = plan.forwards[number] if kind == "shared" else plan.classifiers[number]
        runner.logits(views[size])

    forwards = on_all_cores([lambda one=one: forward(one) for one in passes])  # type: ignore[misc]
    decoding = on_all_cores([lambda one=one: prepare(one, run.scorer.outline) for one in data])  # type: ignore[misc]
    return [forwards, decoding]


def chosen(photos: Path, mix: float | None, first: int | None) -> list[tuple[Path, str]]:
    """The photos of the benchmark with their class ids, in hash order."""
    items = sorted(
        ((path, path.parent.name) for path in photos.glob("*/*") if path.is_file()),
        key=lambda item: hashlib.sha256(item[0].name.encode()).hexdigest(),
    )
    if first is not None:
        items = items[:first]
    if mix is not None:
        with tempfile.TemporaryDirectory() as folder:
            workspace = filled(Path(folder) / "all", items)
            summary = begin_run(workspace).work()
            listed = {entry.sha256 for entry in read_shortlist(workspace, summary["run"])[1]}
            workspace.close()
        survivors = [i for i in items if hashlib.sha256(i[0].read_bytes()).hexdigest() in listed]
        others = [item for item in items if item not in survivors]
        items = survivors + others[: round(len(survivors) * (1 / mix - 1))]
    return items


def filled(root: Path, items: Sequence[tuple[Path, str]]) -> Workspace:
    """A workspace that has collected these photos."""
    source = root.with_name(root.name + "-photos")
    for path, wnid in items:
        (source / wnid).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, source / wnid)
    workspace = create_workspace(root, "imagenet-a")
    collect_folder(workspace, source)
    return workspace


def main() -> None:
    """Run and print the figures as text and as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--photos",
        type=Path,
        default=Path(os.environ.get("CURATE_PHOTOS", "photos")),
        help="class folders named by ImageNet-A's wnids; $CURATE_PHOTOS by default",
    )
    parser.add_argument("--mix", type=float, help="choose photos so that this share survives")
    parser.add_argument("--first", type=int, help="take so many photos in hash order")
    options = parser.parse_args()
    if not options.photos.is_dir():
        sys.exit(f"{options.photos} is absent; name class folders with --photos")
    items = chosen(options.photos, options.mix, options.first)
    with tempfile.TemporaryDirectory() as folder:
        workspace = filled(Path(folder) / "workspace", items)
        run = begin_run(workspace)
        started = time.perf_counter()
        summary = run.work()
        seconds_b = time.perf_counter() - started
        passes = traced(run)
        assert sum(size for _, _, size in passes) == summary["forwards"]
        parts = limit(run, passes, [path.read_bytes() for path, _ in items])

        space = workspace.label_space
        columns = run.scorer.plan.columns[0]
        pairs = [(path, space.position(wnid)) for path, wnid in items]
        networks = [
            c.module.to(memory_format=torch.contiguous_format) for c in run.scorer.plan.classifiers
        ]
        torch.set_num_threads(usable_cores())
        sample = pairs[: min(len(pairs), 48)]
        trial = {size: naive(sample, networks, columns, size)[0] for size in BATCH_SIZES}
        best = min(trial, key=trial.__getitem__)
        seconds_a, survivors = naive(pairs, networks, columns, best)
        assert len(survivors) == summary["survivors"], "the plain loop and the cascade disagree"
        workspace.close()
    result = {
        "photos": len(items),
        "survivors": summary["survivors"],
        "views": summary["forwards"],
        "forwards_naive": summary["forwards_naive"],
        "fewer_passes": summary["forwards_naive"] / summary["forwards"],
        "batches": {f"{k} {m}x{n}": c for (k, m, n), c in sorted(Counter(passes).items())},
        "forwards": [forward.name for forward in run.scorer.plan.forwards],
        "precision": summary["precision"],
        "a_seconds": seconds_a,
        "a_batch_size": best,
        "b_seconds": seconds_b,
        "c_seconds": sum(parts),
        "c_forward_seconds": parts[0],
        "c_decode_seconds": parts[1],
        "a/b": seconds_a / seconds_b,
        "c/b": sum(parts) / seconds_b,
        "cores": usable_cores(),
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    print(json.dumps(result, indent=1))
    print(
        f"{len(items)} photos, {summary['survivors']} survive: "
        f"(a) {seconds_a:.1f} s, (b) {seconds_b:.1f} s, (c) {sum(parts):.1f} s; "
        f"(a)/(b) = {result['a/b']:.1f}, (c)/(b) = {result['c/b']:.2f}; "
        f"{result['fewer_passes']:.1f} times fewer passes"
    )


if __name__ == "__main__":
    main()
