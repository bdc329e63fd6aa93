"""Which way to run the same weights is fastest here, and what it costs in memory and exactness.

    python benchmarks/backends.py [--photos DIR] [--first N] [--compile] [--others] [--out FILE]

For each network and way, and batches of 1 to 16 views: wall time a view with one worker a core,
each on one thread, the minimum of several rounds; processor time a view and core likewise, which
other programs disturb less; the most memory beyond that of the loaded network. Each way runs in a
process of its own.

Then, on the centre views of the photos: the most that a way moves any log-odds between classes of
the label space, and with a margin of three times that the share of views that it leaves undecided
under the rule `misclassified`, each of which costs a second look.

DIR holds class folders named by ImageNet-A's wnids; without it the twenty photos of the package
foolbox serve. --others adds what the project does not offer: eight bits by static quantisation,
and OpenVINO, where it is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from curate.images.decode import decode_trusted
from curate.images.views import PAPER, resize_short_side, view
from curate.labels.space import load_label_space
from curate.models import Classifier, bound_threads, load_classifier, tune_allocator
from curate.models.forwards import make_forward
from curate.models.onnx_graph import graph
from pipelines.threads import usable_cores

MODELS = ("lite/efficientnet_lite0", "lite/efficientnet_lite1")
BATCH_SIZES = (1, 2, 4, 8, 16)
WAYS = ("torch fp32", "torch bf16", "onnx fp32")
OTHERS = ("onnx int8", "openvino fp32", "openvino bf16", "openvino int8")
VIEWS = 64
THRESHOLD, SAFETY = 0.15, 3.0

Logits = Callable[[np.ndarray], Any]


def centre_views(folder: Path | None, first: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Centre views [N, 224, 224, 3], each one's true class, and the label space's name."""
    if folder is None:
        spec = importlib.util.find_spec("foolbox")
        assert spec is not None
        assert spec.origin is not None
        paths = sorted((Path(spec.origin).parent / "data").glob("imagenet_*.jpg"))
        space, targets = "imagenet-1k", [int(path.stem.split("_")[2]) for path in paths]
    else:
        found = [path for path in folder.glob("*/*") if path.is_file()]
        paths = sorted(found, key=lambda path: hashlib.sha256(path.name.encode()).digest())[:first]
        space = "imagenet-a"
        classes = load_label_space(space)
        targets = [classes.position(path.parent.name) for path in paths]
    photos = (decode_trusted(path.read_bytes(), None) for path in paths)
    views = [view(resize_short_side(photo, PAPER), 0, PAPER.crop) for photo in photos]
    return np.stack(views), np.asarray(targets), space


def made(classifier: Classifier, way: str, views: np.ndarray) -> Logits:
    """A network run one way: views to logits."""
    backend, precision = way.split()
    if way in WAYS or backend == "compile":
        return make_forward(classifier, backend, precision, PAPER.crop).logits
    content = graph(classifier, PAPER.crop).content
    if precision == "int8":
        content = quantised(content, pixels(classifier, views[:32]))
    return (
        in_openvino(classifier, content, precision)
        if backend == "openvino"
        else in_onnx(classifier, content)
    )


def pixels(classifier: Classifier, views: np.ndarray) -> np.ndarray:
    return classifier.normalised(views, channels_last=False).numpy()


def in_onnx(classifier: Classifier, content: bytes) -> Logits:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda views: np.concatenate(
        [session.run(None, {"views": one[None]})[0] for one in pixels(classifier, views)]
    )


def in_openvino(classifier: Classifier, content: bytes, precision: str) -> Logits:
    import openvino

    core, cores = openvino.Core(), usable_cores()
    hint = "f32" if precision == "fp32" else "bf16"
    network = core.compile_model(
        core.read_model(content),
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": hint,
            "INFERENCE_NUM_THREADS": cores,
            "NUM_STREAMS": cores,
            "ENABLE_CPU_PINNING": False,
        },
    )
    own = threading.local()

    def logits(views: np.ndarray) -> np.ndarray:
        if not hasattr(own, "request"):
            own.request = network.create_infer_request()
        rows = [own.request.infer({0: one[None]})[0].copy() for one in pixels(classifier, views)]
        return np.concatenate(rows)

    return logits


def quantised(content: bytes, sample: np.ndarray) -> bytes:
    """The graph in eight bits, by the ranges that a sample of views shows."""
    import onnxruntime
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Sample(CalibrationDataReader):
        def __init__(self) -> None:
            self.views = iter(sample)

        def get_next(self) -> dict[str, np.ndarray] | None:
            one = next(self.views, None)
            return None if one is None else {"views": one[None]}

    with tempfile.TemporaryDirectory() as folder:
        simple, small = Path(folder, "simple.onnx"), Path(folder, "small.onnx")
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(simple)
        onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        quantize_static(
            simple,
            small,
            Sample(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
        return small.read_bytes()


def timed(logits: Logits, views: np.ndarray, size: int, rounds: int) -> tuple[float, float]:
    """Least milliseconds a view: wall time with all cores at work, processor time over cores."""
    workers = usable_cores()
    batches = [views[start : start + size] for start in range(0, len(views) - size + 1, size)]
    batches = batches[: max(2, 32 // size)]
    count = size * len(batches) * workers
    walls, processors = [], []

    def work(start: threading.Barrier) -> None:
        with bound_threads(1):
            start.wait()
            for batch in batches:
                logits(batch)

    for _ in range(rounds):
        start = threading.Barrier(workers + 1)
        threads = [threading.Thread(target=work, args=(start,)) for _ in range(workers)]
        for thread in threads:
            thread.start()
        start.wait()
        wall, processor = time.perf_counter(), time.process_time()
        for thread in threads:
            thread.join()
        walls.append(time.perf_counter() - wall)
        processors.append((time.process_time() - processor) / workers)
    return min(walls) / count * 1e3, min(processors) / count * 1e3


def memory(name: str) -> float:
    """A line of Linux' account of this process's memory in MB; NaN elsewhere."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def in_batches(logits: Logits, views: np.ndarray, size: int) -> np.ndarray:
    batches = [views[start : start + size] for start in range(0, len(views), size)]
    return np.concatenate([np.asarray(logits(batch)) for batch in batches])


def of_limits(logits: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distance from both limits in log-odds: to the best other class, and to the threshold."""
    wide = logits.astype(np.float64)
    rows = np.arange(len(wide))
    true = wide[rows, targets]
    wide[rows, targets] = -np.inf
    best = wide.max(axis=1)
    rest = best + np.log(np.exp(wide - best[:, None]).sum(axis=1))
    return true - best, true - rest - np.log(THRESHOLD / (1 - THRESHOLD))


def measure(name: str, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one network and way; memory and times of a process of its own."""
    torch.set_num_threads(1)
    tune_allocator()
    views, targets, space = centre_views(options.photos, options.first)
    classifier = load_classifier(name)
    some = np.resize(views, (VIEWS, *views.shape[1:]))
    started, before = time.perf_counter(), memory("VmRSS")
    logits = made(classifier, way, views)
    logits(some[:1])
    result: dict[str, Any] = {
        "model": name,
        "way": way,
        "start_seconds": time.perf_counter() - started,
    }
    if options.start_only:
        return result
    result["ms"], result["mb"] = {}, {}
    for size in BATCH_SIZES:
        result["ms"][size] = timed(logits, some, size, options.rounds)
        result["mb"][size] = memory("VmHWM") - before
    exact = in_batches(classifier.logits, views, 4)
    columns = classifier.columns(load_label_space(space))
    wanted = exact[:, columns].astype(np.float64)
    found = in_batches(logits, views, 8)
    off = found[:, columns] - wanted
    result["photos"] = len(views)
    result["most_moved"] = float((off.max(axis=1) - off.min(axis=1)).max())
    gap, odds = of_limits(found[:, columns], targets)
    margin = SAFETY * result["most_moved"]
    decided = (gap > margin) | ((gap < -margin) & (np.abs(odds) > margin))
    result["undecided"] = float(1 - decided.mean())
    return result


def in_own_process(name: str, way: str, arguments: Sequence[str]) -> dict[str, Any] | str:
    """What `measure` gives, or why it gives nothing."""
    command = [sys.executable, __file__, "--one", name, way, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def told(result: dict[str, Any]) -> str:
    times = " ".join(f"{wall:6.2f}" for wall, _ in result["ms"].values())
    least = min(processor for _, processor in result["ms"].values())
    return (
        f"{result['model']:24} {result['way']:14} {times}  {least:6.2f} {result['mb']['8']:7.0f} "
        f"{result['start_seconds']:6.1f}  {result['most_moved']:9.2g} {result['undecided']:9.1%}"
    )


def main() -> None:
    """Run and print the figures as text and as JSON."""
    parser = argparse.ArgumentParser()
    photos = os.environ.get("CURATE_PHOTOS")
    parser.add_argument("--photos", type=Path, default=photos and Path(photos))
    parser.add_argument("--first", type=int, default=256, help="so many photos in hash order")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model", action="append", help="repeatable; the embedded two by default")
    parser.add_argument("--compile", action="store_true", help="takes minutes")
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--out", type=Path, help="the JSON goes here as well")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--start-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, options)))
        return
    ways = [*WAYS, *(("compile fp32", "compile bf16") if options.compile else ())]
    if options.others:
        has_openvino = importlib.util.find_spec("openvino") is not None
        ways += [way for way in OTHERS if has_openvino or "openvino" not in way]
    passed_on = ["--first", str(options.first), "--rounds", str(options.rounds)]
    passed_on += ["--photos", str(options.photos)] if options.photos else []
    results, faults = [], {}
    heads = " ".join(f"{f'B={size}':>6}" for size in BATCH_SIZES)
    print(f"{'':39} {heads}  {'CPU':>6} {'MB':>7} {'start':>6}  {'moved':>9} undecided")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        for name in options.model or MODELS:
            for way in ways:
                cold = in_own_process(name, way, [*passed_on, "--start-only"])
                result = in_own_process(name, way, passed_on)
                if isinstance(result, str) or isinstance(cold, str):
                    faults[f"{name} {way}"] = fault = next(
                        r for r in (cold, result) if isinstance(r, str)
                    )
                    print(f"{name:24} {way:14} {fault}", flush=True)
                    continue
                result["first_start_seconds"] = cold["start_seconds"]
                results.append(result)
                print(told(result), flush=True)
    report = {
        "results": results,
        "faults": faults,
        "cores": usable_cores(),
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    text = json.dumps(report, indent=1)
    if options.out:
        options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
