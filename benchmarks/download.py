"""How fast the downloader is: against img2dataset, on the same list, from a server on this machine.

    python benchmarks/download.py [--count 20000] [--threads 32] [--cache DIR] [--venv DIR]

Downloads JPEGs of about 100 kB, all different, with

* `curate collect urls`: addresses checked, hashed, decoded and checked, synced, recorded;
* img2dataset as it comes (resized to 256 with a border, written as JPEG again);
* img2dataset that keeps the original bytes and hashes them (`--resize_mode no
  --disable_all_reencoding True --compute_hash sha256`);

the latter two with one process and with two. CPU seconds are user and system time of the whole
process tree of a downloader; the server's are not counted. Every downloader must have taken every
image. The largest memory of `curate` is told at a quarter of the list and at the whole list.

The photos are made once, from those of --photos (default: $CURATE_PHOTOS, or else those that the
packages foolbox and scikit-image bring), and img2dataset gets an environment of its own on first
use; both stay in --cache. The server listens on 127.0.0.1 only and ends with this program.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

IMG2DATASET = "img2dataset==1.47.0"
WANTED_BYTES = 100_000
PER_FOLDER = 1000
LABELS = 200
KEEPING = ("--resize_mode", "no", "--disable_all_reencoding", "True", "--compute_hash", "sha256")


@dataclass(frozen=True)
class Measured:
    """What one downloader took: seconds by the clock, of the CPU, and memory of one process."""

    images: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    server_cpu_seconds: float

    def told(self) -> dict[str, float]:
        return {
            "images": self.images,
            "images_per_second": round(self.images / self.seconds, 1),
            "cpu_ms_per_image": round(1000 * self.cpu_seconds / self.images, 3),
            "peak_mb": round(self.peak_bytes / 1e6, 1),
            "server_busy": round(self.server_cpu_seconds / self.seconds, 2),
        }


def originals(photos: Path | None) -> list[Path]:
    """Real photos to make the images from."""
    if photos is not None:
        return sorted(p for p in photos.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    found: list[Path] = []
    for package, pattern in (("foolbox", "imagenet_*.jpg"), ("skimage", "*.jpg")):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            found += sorted((Path(spec.origin).parent / "data").glob(pattern))
    return found


def path_of(folder: Path, number: int) -> Path:
    return folder / f"{number // PER_FOLDER:03}" / f"{number % PER_FOLDER:03}.jpg"


def make_image(number: int, source: Path) -> bytes:
    """A crop of a photo, different for each number, as a JPEG of about 100 kB."""
    chance = random.Random(number)
    with Image.open(source) as opened:
        photo = opened.convert("RGB")
    wide, high = (round(side * chance.uniform(0.6, 0.95)) for side in photo.size)
    left, top = chance.randint(0, photo.width - wide), chance.randint(0, photo.height - high)
    crop = photo.crop((left, top, left + wide, top + high))
    if chance.random() < 0.5:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    crop = crop.resize((500, max(200, min(700, round(500 * high / wide)))))
    low, quality = 40, 98
    while quality - low > 6:
        middle = (low + quality) // 2
        low, quality = (middle, quality) if size_of(crop, middle) < WANTED_BYTES else (low, middle)
    return encoded(crop, quality)


def encoded(image: Image.Image, quality: int) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def size_of(image: Image.Image, quality: int) -> int:
    return len(encoded(image, quality))


def make_some(folder: Path, numbers: Sequence[int], sources: Sequence[Path]) -> None:
    for number in numbers:
        path = path_of(folder, number)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(".draft")
            draft.write_bytes(make_image(number, sources[number % len(sources)]))
            draft.replace(path)


def make_images(folder: Path, count: int, photos: Path | None) -> None:
    """Make the images that are not there yet."""
    missing = [n for n in range(count) if not path_of(folder, n).exists()]
    if not missing:
        return
    sources = originals(photos)
    if not sources:
        sys.exit("there are no photos: name some with --photos, or install natadv-curate[demo]")
    print(f"making {len(missing)} images from {len(sources)} photos", file=sys.stderr)
    pieces = [missing[start : start + 250] for start in range(0, len(missing), 250)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for made in [pool.submit(make_some, folder, piece, sources) for piece in pieces]:
            made.result()


def write_list(path: Path, base: str, numbers: Sequence[int]) -> None:
    """The list that every downloader reads."""
    with (data_classes := classes()).open(encoding="utf-8", newline="") as stream:
        wnids = [row["wnid"] for row in csv.DictReader(stream)][:LABELS]
    assert len(wnids) == LABELS, data_classes
    with path.open("w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["url", "label", "page", "title", "author", "licence"])
        for n in numbers:
            where = path_of(Path(), n).as_posix()
            page, title = f"https://example.org/photos/{n}", f"Photo {n}"
            table.writerow(
                [f"{base}/{where}", wnids[n % LABELS], page, title, "A. Author", "CC BY 4.0"]
            )


def classes() -> Path:
    from curate.settings import data_file

    return data_file("labels/imagenet-a.csv")


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, int]]:
    """A server of `folder` in a process of its own: its address and process id."""
    script = Path(__file__).with_name("image_server.py")
    server = subprocess.Popen(
        [sys.executable, script, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}", server.pid
    finally:
        server.terminate()
        server.wait()


def cpu_of(pid: int) -> float:
    """CPU seconds of a running process so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    command: Sequence[str | Path], env: Mapping[str, str], log: Path, server: int
) -> tuple[float, float, int, float]:
    """Seconds, CPU seconds of the process tree, peak memory, and the server's CPU seconds."""
    before = cpu_of(server)
    started = time.monotonic()
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **env}
        )
        # Of the child and of all below it that were waited for.
        _, status, used = os.wait4(child.pid, 0)
    seconds = time.monotonic() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{command[0]} failed:\n{log.read_text(errors='replace')[-3000:]}")
    cpu = used.ru_utime + used.ru_stime
    return seconds, cpu, used.ru_maxrss * 1024, cpu_of(server) - before


def run_curate(
    folder: Path, urls: Path, count: int, threads: int, host: str, server: int
) -> Measured:
    """`curate collect urls` into a new workspace."""
    root, log = folder / "workspace", folder / "log"
    curate = [sys.executable, "-m", "curate"]
    subprocess.run(
        [*curate, "init", root, "--preset", "imagenet-a"], check=True, stdout=subprocess.DEVNULL
    )
    env = {
        "CURATE_NETWORK__WORKERS": str(threads),
        "CURATE_NETWORK__PER_HOST": str(min(threads, 256)),
        "CURATE_NETWORK__PER_SECOND": "1000000",
    }
    command = [*curate, "-w", root, "collect", "urls", urls, "--allow-host", host, "--json"]
    used = measure(command, env, log, server)
    summary = json.loads(log.read_text().splitlines()[-1])
    check("curate", summary["new"], count, summary)
    return Measured(count, *used)


def run_img2dataset(
    folder: Path,
    urls: Path,
    count: int,
    threads: int,
    server: int,
    venv: Path,
    processes: int,
    options: Sequence[str],
) -> Measured:
    """img2dataset, with shards of half the list (10,000 of 20,000, as it comes)."""
    out, log = folder / "out", folder / "log"
    command = [
        venv / "bin" / "img2dataset",
        *("--url_list", urls, "--input_format", "csv", "--url_col", "url"),
        *("--output_folder", out, "--thread_count", str(threads)),
        *("--processes_count", str(processes)),
        *("--number_sample_per_shard", str(-(-count // 2)), *options),
    ]
    used = measure(command, {"NO_ALBUMENTATIONS_UPDATE": "1"}, log, server)
    stats = [json.loads(path.read_text()) for path in out.glob("*_stats.json")]
    check("img2dataset", sum(one["successes"] for one in stats), count, stats)
    return Measured(count, *used)


def check(who: str, taken: int, count: int, told: Any) -> None:
    if taken != count:
        sys.exit(f"{who} took {taken} of {count} images: {json.dumps(told)[:1000]}")


def environment(venv: Path) -> Path:
    """The environment of img2dataset, made on first use."""
    if not (venv / "bin" / "img2dataset").exists():
        print(f"installing {IMG2DATASET} into {venv}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        # It asks for pkg_resources, which newer versions of setuptools lack.
        install = [venv / "bin" / "pip", "install", "-q", IMG2DATASET, "setuptools<81"]
        subprocess.run(install, check=True, stdout=sys.stderr)
    return venv


def main() -> None:
    """Run all of them and print the figures as one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20_000, help="images to download")
    parser.add_argument("--threads", type=int, default=32, help="downloads at a time")
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "curate-benchmark-download"
    )
    parser.add_argument("--venv", type=Path, help="of img2dataset; in --cache by default")
    parser.add_argument(
        "--photos", type=Path, default=os.environ.get("CURATE_PHOTOS"), help="a folder of JPEGs"
    )
    parser.add_argument("--only", choices=("curate", "img2dataset"), help="run no other")
    options = parser.parse_args()
    cache, count, threads = options.cache.resolve(), options.count, options.threads
    images = cache / "images"
    make_images(images, count, options.photos and Path(options.photos))
    total = sum(len(path_of(images, n).read_bytes()) for n in range(count))
    results: dict[str, Measured] = {}

    with served(images) as (base, server), tempfile.TemporaryDirectory(dir=cache) as temporary:
        place = Path(temporary)
        urls, quarter = place / "all.csv", place / "quarter.csv"
        write_list(urls, base, range(count))
        write_list(quarter, base, range(count // 4))
        host = base.removeprefix("http://")

        def run(name: str, runner: Any, *arguments: Any) -> None:
            folder = place / "run"
            folder.mkdir()
            results[name] = runner(folder, *arguments)
            shutil.rmtree(folder)
            print(f"{name}: {json.dumps(results[name].told())}", file=sys.stderr)

        if options.only != "img2dataset":
            run("curate quarter", run_curate, quarter, count // 4, threads, host, server)
            run("curate", run_curate, urls, count, threads, host, server)
        if options.only != "curate":
            venv = environment((options.venv or cache / "img2dataset").resolve())
            for kind, more in (("default", ()), ("original bytes", KEEPING)):
                for processes in (1, 2):
                    name = f"img2dataset {kind}, {processes} process{'es' * (processes > 1)}"
                    fixed = (urls, count, threads, server, venv, processes, more)
                    run(name, run_img2dataset, *fixed)

    told: dict[str, Any] = {
        "count": count,
        "mean_bytes": round(total / count),
        "threads": threads,
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "results": {name: measured.told() for name, measured in results.items()},
    }
    if "curate" in results:
        mine = results["curate"]
        told["peak_mb_quarter_and_all"] = [
            round(results[name].peak_bytes / 1e6, 1) for name in ("curate quarter", "curate")
        ]
        # Above 1: curate takes less CPU time, or less time, for an image.
        told["cpu_times_better"] = {
            name: round(other.cpu_seconds / mine.cpu_seconds, 2)
            for name, other in results.items()
            if name.startswith("img2dataset")
        }
        told["speed_times_better"] = {
            name: round(other.seconds / mine.seconds, 2)
            for name, other in results.items()
            if name.startswith("img2dataset")
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
