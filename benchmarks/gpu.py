"""How fast the cascade is on a GPU: against the plain loop, and against the limit.

    python benchmarks/gpu.py [--photos DIR] [--out FILE] [--device cuda] [--quick]

It needs torch, torchvision, timm, numpy and Pillow alone, and no network; the checkout need not be
installed. Each section is written to FILE as soon as it is done:

forward   images a second of a bare ResNet-50: fp32, TF32, bf16, bf16 compiled; by batch size
decode    photos a second, decoded and resized on all cores; another decoder for comparison
paper     two ResNet-50, as in the paper
lite      EfficientNet-Lite0 and Lite1

Each of the last two holds the plain loop (DataLoader, TenCrop, twenty fp32 passes a photo), and for
each way to run shared passes the cascade from JPEG bytes to verdicts: photos a second; its share of
the limit, which is the longer one of its bare forward passes and of decoding, as if they were
wholly side by side; what low precision did; and whether its verdicts are those of the plain loop.

DIR holds class folders named by wnids of ImageNet-1k; without it photos are synthetic. For those,
and where this machine has no weights, networks are fitted ones (synthetic.py). FILE is gpu.json in
the folder that $OUT names, if it names one. No section begins after --seconds, so that it ends
within eight minutes on one GPU. It exits with 1 where verdicts differ or a section failed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from PIL import Image

# This checkout, whether it is installed or not.
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from gpu_bench import Bench, line  # noqa: E402
from gpu_work import QUICK, Photos, Scale, ensemble, gathered  # noqa: E402
from loops import (  # noqa: E402
    PAPER_VIEWS,
    Limits,
    Said,
    TenCrops,
    bare,
    cascade,
    compared,
    noting,
    plain_loop,
    wait,
)

from curate.files import make_folder  # noqa: E402
from curate.filtration.crops import make_crops  # noqa: E402
from curate.filtration.margins import with_margins  # noqa: E402
from curate.filtration.plan import make_plan, prepare  # noqa: E402
from curate.filtration.rules import Misclassified  # noqa: E402
from curate.filtration.terms import Counts  # noqa: E402
from curate.images.views import PAPER  # noqa: E402
from curate.models import torchvision_zoo  # noqa: E402
from curate.models.ensemble import Ensemble  # noqa: E402
from curate.models.runtime import full_precision, resolve_device  # noqa: E402

THRESHOLD = 0.15
#: Ways to run shared passes: backend and precision.
WAYS = (("torch", "bf16"), ("torch", "fp32"), ("compile", "bf16"))


def machine(bench: Bench) -> dict[str, Any]:
    """What the figures hold for."""
    import timm
    import torchvision

    on_gpu = bench.device.type == "cuda"
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "device": torch.cuda.get_device_name(bench.device) if on_gpu else str(bench.device),
        "cuda": torch.version.cuda,
        "cores": bench.cores,
        "processor": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "timm": timm.__version__,
        "pillow": Image.__version__,
        "scale": asdict(bench.scale),
    }


def forward(bench: Bench) -> dict[str, Any]:
    """Images a second of the bare network, by arithmetic and batch size."""
    name = bench.scale.network

    def network(dtype: torch.dtype) -> torch.nn.Module:
        module = torchvision_zoo.build(name, 1000).module.eval()
        return module.to(bench.device, dtype, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    ways: dict[str, tuple[Any, torch.dtype, bool]] = {
        "fp32": (network(torch.float32), torch.float32, False)
    }
    if bench.device.type == "cuda":
        ways["tf32"] = (ways["fp32"][0], torch.float32, True)
    ways["bf16"] = (network(torch.bfloat16), torch.bfloat16, False)
    if bench.scale.is_full:
        ways["bf16 compiled"] = (torch.compile(network(torch.bfloat16)), torch.bfloat16, False)
    told: dict[str, Any] = {"network": name}
    best = 0
    for way, (module, dtype, tf32) in ways.items():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        # Input of one shape for seconds: the best algorithm is worth a search.
        torch.backends.cudnn.benchmark = True
        rates: dict[str, Any] = {}
        # Each size compiles anew; the best one of bf16 will do.
        sizes = bench.scale.sizes if way != "bf16 compiled" else [best]
        for size in sizes:
            try:
                x = torch.rand(size, 3, 224, 224, device=bench.device, dtype=dtype)
                x = x.to(memory_format=torch.channels_last)
                with torch.inference_mode():
                    rates[str(size)] = round(bench.rate(lambda m=module, x=x: m(x), 2) * size, 1)
            except Exception as error:
                # No memory for this size, or no compiler on this machine.
                rates[str(size)] = line(error)
        measured = {size: rate for size, rate in rates.items() if isinstance(rate, float)}
        best = int(max(measured, key=measured.__getitem__, default=sizes[0]))
        told[way] = {"best": measured.get(str(best)), "by batch size": rates}
    full_precision()
    return told


def decode(bench: Bench, work: Photos) -> dict[str, Any]:
    """Photos a second from bytes to the resized photo, on all cores and on one."""
    data = [sample.data for sample in work.samples]
    decoding(bench, data[: 2 * bench.cores])
    started = time.perf_counter()
    few = data[: len(data) // 8 + 1]
    for one in few:
        prepare(one, PAPER_VIEWS, Limits())
    alone = len(few) / (time.perf_counter() - started)
    told: dict[str, Any] = {
        "photos": len(data),
        "mean bytes": round(sum(map(len, data)) / len(data)),
        "photos per second": round(len(data) / decoding(bench, data), 1),
        "photos per second on one thread": round(alone, 1),
        "carried to the device and cut, per second": round(_cutting(bench, data[:256]), 1),
    }
    try:
        other: Any = round(_other_decoder(bench, data[:256]), 1)
    except Exception as error:
        # Many builds come without it.
        other = line(error)
    return told | {"torchvision's decoder, photos per second": other}


def decoding(bench: Bench, data: Sequence[bytes]) -> float:
    """Seconds in which all cores decode and resize photos."""
    started = time.perf_counter()
    list(bench.pool.map(lambda one: prepare(one, PAPER_VIEWS, Limits()), data))
    return time.perf_counter() - started


def _cutting(bench: Bench, data: Sequence[bytes]) -> float:
    """Resized photos a second from this machine's memory to a batch of centre views there."""
    resized = [prepare(one, PAPER_VIEWS, Limits()).resized[PAPER] for one in data]
    items = range(len(resized))

    def cut() -> None:
        make_crops(resized, PAPER.crop, bench.device).batch(items, [0] * len(items))

    return bench.rate(cut, 1) * len(resized)


def _other_decoder(bench: Bench, data: Sequence[bytes]) -> float:
    """torchvision's decoder (nvJPEG on CUDA) and resizing: other pixels, so for comparison only."""
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms.v2 import functional

    where = "cuda" if bench.device.type == "cuda" else "cpu"
    files = [torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in data]

    def through(some: list[torch.Tensor]) -> None:
        for picture in decode_jpeg(some, mode=ImageReadMode.RGB, device=where):
            functional.resize(picture, [256], antialias=True)
        wait(bench.device)

    through(files[:8])
    started = time.perf_counter()
    for start in range(0, len(files), 64):
        through(files[start : start + 64])
    return len(files) / (time.perf_counter() - started)


def judged(bench: Bench, name: str, work: Photos) -> dict[str, Any]:
    """The sections of one ensemble."""
    told: dict[str, Any] = {}
    bench.found[name] = told
    targets = [sample.label for sample in work.samples]
    said: list[Said] = []
    ready: list[Ensemble] = []

    def plain() -> dict[str, Any]:
        models, weights = ensemble(name, work, bench.scale, bench.device, bench.pool.map)
        ready.append(models)
        plan = make_plan(models, work.space, Misclassified(THRESHOLD))
        # Comparing verdicts needs all photos where there are few.
        seconds = min(60.0, bench.left / 4) if bench.scale.is_full else 600.0
        photos = TenCrops(work.paths, targets)
        how: dict[str, Any] = {"size": bench.scale.plain, "workers": min(bench.cores, 16)}
        rate, all_said = plain_loop(plan, photos, seconds=seconds, **how)
        said.extend(all_said)
        its: dict[str, Any] = {
            "models": [one.name for one in models],
            "weights": weights,
            "photos": len(said),
            "photos per second": round(rate, 2),
        }
        if bench.device.type == "cuda":
            rate, _ = plain_loop(plan, photos, seconds=seconds / 3, tf32=True, **how)
            its["photos per second with TF32"] = round(rate, 2)
        return its

    bench.section(told, "plain loop", 40, plain)
    if ready:
        for backend, precision in WAYS if bench.scale.is_full else WAYS[:2]:
            bench.section(
                told,
                f"cascade, {backend} {precision}",
                60 if backend == "compile" else 25,
                lambda way=(backend, precision): through(bench, ready[0], work, way, said),  # type: ignore[misc]
            )
    for one in told.values():
        if "cascade seconds" in one and "photos per second" in told["plain loop"]:
            times = one["photos per second"] / told["plain loop"]["photos per second"]
            one["times the plain loop"] = round(times, 2)
    bench.write()
    return told


def through(
    bench: Bench, models: Ensemble, work: Photos, way: tuple[str, str], said: Sequence[Said]
) -> dict[str, Any]:
    """One way to run shared passes: rate, share of the limit, and verdicts."""
    data = [sample.data for sample in work.samples]
    targets = [sample.label for sample in work.samples]
    rule = Misclassified(THRESHOLD)
    plan = make_plan(models, work.space, rule, backend=way[0], precision=way[1])
    plan = with_margins(plan, [prepare(one, plan, Limits()) for one in data[:64]])
    told, passes = noting(plan)
    first, results = cascade(told, data, targets, bench.pool)
    once = list(passes)
    # Again and warm, so long that the first and the last chunk do not count.
    budget = min(12.0, bench.left / 8) * bench.scale.seconds
    repeats = max(1, min(16, round(budget / first)))
    seconds, _ = cascade(plan, data * repeats, targets * repeats, bench.pool)
    seconds /= repeats
    forwards, spent = bare(once, bench.device), decoding(bench, data)
    counts = Counts()
    for result in results:
        counts += result.counts
    verdicts = [verdict for result in results for verdict in result.verdicts]
    return {
        "forwards": [one.name for one in plan.forwards],
        "margins": [round(margin, 4) for margin in plan.margins],
        "photos": len(data) * repeats,
        "photos per second": round(len(data) / seconds, 1),
        "views per photo": round(sum(size for _, _, size in once) / len(data), 2),
        "outcomes": dict(Counter(v.reason or v.outcome for v in verdicts)),
        "survivors": round(sum(v.outcome == "survivor" for v in verdicts) / len(verdicts), 3),
        "low precision": asdict(counts),
        "cascade seconds": round(seconds, 3),
        "decode seconds": round(spent, 3),
        "bare forward seconds": {name: round(value, 3) for name, value in forwards.items()},
        "share of the limit": round(max(sum(forwards.values()), spent) / seconds, 3),
        "verdicts": compared(results, said, plan.order, THRESHOLD),
    }


def faults(found: Any) -> Iterator[str]:
    """What went wrong, wherever it is noted."""
    if not isinstance(found, dict):
        return
    if "error" in found:
        yield str(found["error"])
    if found.get("differing"):
        yield f"{found['differing']} verdicts are not those of the plain loop"
    for value in found.values():
        yield from faults(value)


def main() -> None:
    """Run all sections."""
    parser = argparse.ArgumentParser(description="See the top of the script.")
    parser.add_argument("--photos", type=Path, help="class folders named by wnids")
    out = Path(os.environ["OUT"], "gpu.json") if os.environ.get("OUT") else None
    parser.add_argument("--out", type=Path, default=out, help="the JSON file to write")
    parser.add_argument("--device", default="auto", help="auto, cuda, cuda:1, mps or cpu")
    parser.add_argument("--seconds", type=float, default=420, help="no section begins after these")
    parser.add_argument("--quick", action="store_true", help="few photos and a small network")
    parser.add_argument("--only", default="", help="sections, with commas between")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else ["forward", "decode", "paper", "lite"]
    if options.quick and not options.only:
        wanted.remove("lite")
    if options.out is not None:
        make_folder(options.out.absolute().parent)
    scale, device = QUICK if options.quick else Scale(), resolve_device(options.device)
    bench = Bench(device, scale, options.seconds, options.out)
    with tempfile.TemporaryDirectory() as folder, bench.pool:
        bench.section(bench.found, "machine", 0, lambda: machine(bench))
        if "forward" in wanted:
            bench.section(bench.found, "forward", 60, lambda: forward(bench))
        work = gathered(scale, options.photos, Path(folder), bench.pool.map)
        if "decode" in wanted:
            bench.section(bench.found, "decode", 10, lambda: decode(bench, work))
        for name in ("paper", "lite"):
            if name in wanted:
                judged(bench, name, work)
    bench.found["minutes"] = round((time.monotonic() - bench.started) / 60, 2)
    bench.write()
    wrong = list(faults(bench.found))
    print("\n".join(wrong) or f"done in {bench.found['minutes']} minutes")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
