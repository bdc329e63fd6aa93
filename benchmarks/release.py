"""Building and packing a release against `cp -r` and `tar` of the same files.

    python benchmarks/release.py [--photos DIR] [--count 10000] [--few 1000] [--rounds 3] [--out F]

The images are the photos of DIR, each with a comment of its own in the file, in a store as a
workspace has it; their rows are made up as the build asks for them, with the scores of ten views of
two models. Each round copies the store with `cp -r`, builds a release from it, archives it with
`tar`, and packs the release in every form, each in a process of its own; told are medians of the
seconds and of how many times longer ours took in the same round, on the clock and in processor
time. `cp` and `tar` leave the disk to write later, what we write is there: so they are told with
and without a `sync` of their files. The peak of memory is that of --count and of --few images.
Nothing is deleted before the end: ext4 searches long for room where files were deleted just now.
Prints one JSON line, then lines for people.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

FORMS = ("tar", "webdataset", "parquet")
_CLASSES = 200
_VIEW = {"confidence": [0.5123456] * 10, "predicted": ["n01631663"] * 10}
_VIEWS = json.dumps(
    [{"model": f"model {n}", "p_true": [0.0123456] * 10, **_VIEW} for n in range(2)]
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, default=os.environ.get("CURATE_PHOTOS"))
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to work; a temporary one by default")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        what, count, folder = asked.work
        print(json.dumps(work(what, int(count), Path(folder))))
        return
    photos = sorted((asked.photos or package_photos()).rglob("*.jpg"))
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        found = measured(photos, Path(folder), asked.count, asked.few, asked.rounds)
    line = json.dumps(found, sort_keys=True)
    if asked.out:
        asked.out.write_text(line + "\n", encoding="utf-8")
    print(line)
    for name, one in found["ours"].items():
        print(
            f"{name}: {one['seconds']:.1f} s, {one['times']:.2f} times {one['against']} "
            f"({one['times_synced']:.2f} times where it is synced too, "
            f"{one['times_cpu']:.2f} times its processor time); "
            f"peak {one['peak_mb']:.0f} MB, with {found['few']} images {one['peak_few_mb']:.0f} MB"
        )


def package_photos() -> Path:
    spec = importlib.util.find_spec("foolbox")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data"


def measured(
    photos: Sequence[Path], folder: Path, count: int, few: int, rounds: int
) -> dict[str, Any]:
    size = fill(photos, folder / "many", count)
    fill(photos, folder / "few", few)
    store, release = folder / "many" / "images", folder / "many" / "releases" / "0.1.0"
    seconds: dict[str, list[float]] = {}
    peaks: dict[str, float] = {}

    processor: dict[str, list[float]] = {}

    def note(name: str, taken: float, cpu: float | None = None) -> None:
        seconds.setdefault(name, []).append(taken)
        if cpu is not None:
            processor.setdefault(name, []).append(cpu)

    def ours(name: str, what: str, place: str, number: int) -> None:
        os.sync()
        told = in_process(what, number, folder / place)
        peaks[f"{name} {place}"] = told["peak_mb"]
        if place == "many":
            note(name, told["seconds"], told["cpu"])

    def theirs(name: str, made: Path, *command: str | Path) -> None:
        os.sync()
        before = os.times()
        run = timed(lambda: subprocess.run([*map(str, command)], check=True))
        after = os.times()
        cpu = sum(after[2:4]) - sum(before[2:4])
        # Only these files: others write to the same disk.
        files = [path for path in made.rglob("*") if path.is_file()] if made.is_dir() else [made]
        synced = timed(lambda: sync(files))
        note(name, run, cpu)
        note(f"{name}, synced", run + synced)

    for turn in range(rounds):
        if turn:
            release.parent.rename(folder / f"releases-{turn}")
        copy = folder / f"copy-{turn}"
        theirs("cp -r", copy, "cp", "-r", store, copy)
        ours("folders", "build", "many", count)
        tar = copy.with_suffix(".tar")
        theirs("tar -cf", tar, "tar", "-cf", tar, "-C", release, ".")
        for form in FORMS:
            ours(form, form, "many", count)
            shutil.rmtree(folder / "many" / "packed")
        tar.unlink()
        if turn == 0:
            ours("folders", "build", "few", few)
            for form in FORMS:
                ours(form, form, "few", few)
    # As one works: first the folders, then the archive.
    both = {
        "folders and tar": ["folders", "tar"],
        "cp -r and tar -cf": ["cp -r", "tar -cf"],
        "cp -r and tar -cf, synced": ["cp -r, synced", "tar -cf, synced"],
    }
    for name, parts in both.items():
        for kind in (seconds, processor):
            if parts[0] in kind:
                kind[name] = [sum(turn) for turn in zip(*(kind[one] for one in parts), strict=True)]
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}

    def times(kind: dict[str, list[float]], name: str, against: str) -> float:
        pairs = zip(kind[name], kind[against], strict=True)
        return round(statistics.median(a / b for a, b in pairs), 3)

    told = {}
    for name in ("folders and tar", "folders", *FORMS):
        against = {"folders and tar": "cp -r and tar -cf", "folders": "cp -r"}.get(name, "tar -cf")
        parts = both.get(name, [name])
        told[name] = {
            "against": against,
            "seconds": round(medians[name], 2),
            "cpu": round(statistics.median(processor[name]), 2),
            "times": times(seconds, name, against),
            "times_synced": times(seconds, name, f"{against}, synced"),
            "times_cpu": times(processor, name, against),
            "peak_mb": max(peaks[f"{one} many"] for one in parts),
            "peak_few_mb": max(peaks[f"{one} few"] for one in parts),
        }
    return {
        "count": count,
        "few": few,
        "rounds": rounds,
        "megabytes": round(size / 1e6),
        "ours": told,
        "theirs": {name: round(medians[name], 2) for name in medians if name not in told},
        "all": {name: [round(one, 2) for one in taken] for name, taken in seconds.items()},
        "all_cpu": {name: [round(one, 2) for one in taken] for name, taken in processor.items()},
    }


def sync(files: Sequence[Path]) -> None:
    """Sync the files as a build does, many at once."""

    def one(path: Path) -> None:
        with path.open("rb") as stream:
            os.fsync(stream.fileno())

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, files))


def timed(act: Callable[[], Any]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def fill(photos: Sequence[Path], root: Path, count: int) -> int:
    """Put so many photos of different bytes into a store; gives their bytes in all."""
    from curate.catalog.store import FolderStore
    from curate.files import sha256_bytes

    store = FolderStore(root / "images")
    names, size = [], 0
    for number in range(count):
        data = photos[number % len(photos)].read_bytes()
        # A JPEG may hold comments behind its first two bytes.
        comment = f"{number:08}".encode()
        data = data[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + data[2:]
        digest = sha256_bytes(data)
        path = store.path(digest, "jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        names.append(digest)
        size += len(data)
    (root / "names.json").write_text(json.dumps(names))
    os.sync()
    return size


def in_process(what: str, count: int, root: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--work", what, str(count), str(root)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def work(what: str, count: int, root: Path) -> dict[str, float]:
    """Build or pack; the seconds that it takes, and the most memory that the process ever held."""
    import pyarrow

    act = building(root) if what == "build" else packing(root, what)
    # It imports more when it is first used, which no number of images makes longer.
    pyarrow.array([1])
    cpu = time.process_time()
    seconds = timed(act)
    cpu = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {"seconds": seconds, "cpu": cpu, "peak_mb": round(peak)}


def packing(root: Path, form: str) -> Callable[[], Any]:
    from pipelines.release_forms import pack_release

    return lambda: pack_release(root / "releases" / "0.1.0", root / "packed", [form])


def building(root: Path) -> Callable[[], Any]:
    from curate.catalog.store import FolderStore
    from curate.labels.space import load_label_space
    from curate.progress import progress, stop_on_interrupt
    from curate.release.build import build_folder

    space = load_label_space("imagenet-a")
    names = json.loads((root / "names.json").read_text())
    record = {
        "version": "0.1.0",
        "reviewed": False,
        "label_space": {"name": space.name, "fingerprint": space.fingerprint},
        "models": [{"name": "lite/efficientnet_lite0", "fingerprint": "57934424"}],
    }

    def build() -> None:
        store = FolderStore(root / "images")
        items = (item(name, number, space) for number, name in enumerate(names))
        with stop_on_interrupt() as stop, progress("release", len(names)) as bar:
            build_folder(
                root / "releases" / "0.1.0", items, store.read, record, space, bar=bar, stop=stop
            )

    return build


def item(sha256: str, number: int, space: Any) -> Any:
    from curate.files import candidate_key
    from curate.release.build import Item
    from curate.release.manifest import ManifestRow

    wnid = space.wnids[number % _CLASSES]
    row = ManifestRow(
        path="",
        candidate=candidate_key(sha256, wnid),
        place=number + 1,
        wnid=wnid,
        name=space.get(wnid).name,
        predicted_wnid=space.wnids[7],
        predicted_name=space.get(space.wnids[7]).name,
        confidence=0.5123456,
        p_true=0.0123456,
        borderline=False,
        reviewed=False,
        width=500,
        height=375,
        sha256="",
        original_sha256=sha256,
        reencoded=False,
        licence="CC-BY-4.0",
        licence_url="https://creativecommons.org/licenses/by/4.0/",
        licence_text="CC BY 4.0",
        author=f"author {number % 1000}",
        title=f"photo {number}",
        page=f"https://example.org/photos/{number}",
        source="flickr",
        locator=f"https://example.org/photos/{number}.jpg",
        collection=None,
        other_origins="[]",
        views=_VIEWS,
    )
    return Item(row, wnid, "jpg")


if __name__ == "__main__":
    main()
