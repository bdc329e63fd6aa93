"""Milliseconds an image under each corruption, beside the published formula in the same run.

    python benchmarks/corruptions.py [--photo FILE] [--repeats 15] [--corruption NAME]… [--large]

The formulas are those of `tests/corruptions/published.py`: whole arrays in float64, scikit-image
and SciPy, a Python loop over pixels where the published code has one. Where that code calls OpenCV
or ImageMagick the formula is written out in SciPy and NumPy; where `opencv-python-headless` is
installed, its functions take their place in defocus, elastic and spatter. Both sides start from and
end in a uint8 array and run on one thread, by turns; the least processor time of each counts. Told
are the means of the five severities, their ratio, and the ratio at the severity where it is least.

`--large` also tells the time at 500 x 375 and at 12 megapixels, there at both scales, and the most
memory that a corruption takes, in sizes of the photo. Prints a table.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from curate.corruptions import SEVERITIES, corrupt  # noqa: E402
from curate.corruptions.apply import generator  # noqa: E402
from curate.corruptions.catalogue import BUILT_IN  # noqa: E402
from curate.corruptions.frost import drawn_picture  # noqa: E402
from tests.corruptions import published as formulas  # noqa: E402


def photo_of(path: Path | None) -> Image.Image:
    """A photo as RGB; one that comes with a Python package where none is named."""
    if path is None:
        import foolbox

        path = sorted((Path(str(foolbox.__file__)).parent / "data").glob("imagenet_*.jpg"))[0]
    return Image.open(path).convert("RGB")


def best_by_turns(calls: list[Callable[[], Any]], repeats: int) -> list[float]:
    """The shortest time of each call after a first one, in milliseconds; slow ones less often."""
    for call in calls:
        call()
    shortest = [float("inf")] * len(calls)
    started = time.perf_counter()
    for number in range(repeats):
        for place, call in enumerate(calls):
            begun = time.thread_time()
            call()
            shortest[place] = min(shortest[place], time.thread_time() - begun)
        if number >= 2 and time.perf_counter() - started > 4.0:
            break
    return [1000.0 * one for one in shortest]


def plain_shot_noise(image: Any, c: float, rng: np.random.Generator) -> Any:
    """The tests' formula asks SciPy for quantiles; the published one draws."""
    return np.clip(rng.poisson(image / 255 * c) / c, 0, 1) * 255


def plain_frost(image: Any, c: Any, rng: np.random.Generator, file: Path) -> Any:
    """Each time the picture is read from its file."""
    picture = np.asarray(Image.open(file).convert("RGB"))
    return formulas.frost(image, c, rng, [picture])


def skimage_edges(grey: Any) -> Any:
    """The tests' Canny is a loop over pixels; this is whole arrays."""
    from skimage.feature import canny

    return canny(grey.astype(float), sigma=0.5, low_threshold=50 / 4, high_threshold=150 / 4)


def with_opencv() -> dict[str, Callable[..., Any]]:
    """The formulas with OpenCV's functions where the published code calls them."""
    try:
        import cv2
    except ImportError:
        return {}
    cv2.setNumThreads(1)

    def defocus(image: Any, c: Any, rng: Any) -> Any:
        kernel, x = formulas.disk(*c), image / 255
        return np.stack([cv2.filter2D(x[..., one], -1, kernel) for one in range(3)], -1) * 255

    def elastic(image: Any, c: Any, rng: Any) -> Any:
        def warped(x: Any, forwards: Any) -> Any:
            size = (x.shape[1], x.shape[0])
            return cv2.warpAffine(x, forwards[:2], size, borderMode=cv2.BORDER_REFLECT_101)

        return formulas.elastic_transform(image, c, rng, warped)

    return {
        "defocus_blur": defocus,
        "elastic_transform": elastic,
        "spatter": lambda *three: formulas.spatter(
            *three, found=lambda grey: cv2.Canny(grey, 50, 150) > 0
        ),
    }


def plain_calls(frost_file: Path) -> dict[str, Callable[..., Any]]:
    """Every corruption's published formula, in whole arrays."""
    calls = dict(formulas.FORMULAS)
    calls["shot_noise"] = plain_shot_noise
    calls["frost"] = lambda *three: plain_frost(*three, file=frost_file)
    calls["spatter"] = lambda *three: formulas.spatter(*three, found=skimage_edges)
    return calls | with_opencv()


def compare(photo: Image.Image, repeats: int, frost_file: Path, which: Sequence[str]) -> bool:
    """Print the table at 224; whether no row is slower than its formula by more than 5 %."""
    image = np.asarray(photo.resize((224, 224)))
    calls = plain_calls(frost_file)
    print("| corruption | ms | published formula, ms | ratio | least ratio |")
    print("| --- | --- | --- | --- | --- |")
    quick = True
    for name in which:
        times = []
        for severity in SEVERITIES:
            constants = BUILT_IN[name].constants[severity - 1]

            def ours(name: str = name, severity: int = severity) -> Any:
                return corrupt(image, name, severity, 0)

            def theirs(name: str = name, severity: int = severity, c: Any = constants) -> Any:
                values = calls[name](image, c, generator(name, severity, 0))
                return np.uint8(np.clip(values, 0, 255))

            times.append(best_by_turns([ours, theirs], repeats))
        own, other = (float(np.mean([pair[side] for pair in times])) for side in (0, 1))
        least = min(pair[1] / pair[0] for pair in times)
        quick &= own <= 1.05 * other
        print(f"| {name} | {own:.1f} | {other:.1f} | {other / own:.1f} | {least:.1f} |", flush=True)
    return quick


def large(photo: Image.Image, which: Sequence[str]) -> None:
    """Print times and memory of larger photos; each in a process of its own for its memory."""
    import subprocess

    print(
        "\n| corruption | 500 x 375, ms | 12 MP, s | short side, s | memory, sizes of the photo |"
    )
    print("| --- | --- | --- | --- | --- |")
    medium, whole = (np.asarray(photo.resize(size)) for size in ((500, 375), (4000, 3000)))
    file = Path(os.environ.get("TMPDIR", "/tmp")) / f"corruptions-{os.getpid()}.npy"
    np.save(file, whole)
    try:
        for name in which:
            (small,) = best_by_turns([lambda name=name: corrupt(medium, name, 5, 0)], 5)
            told = [
                subprocess.run(
                    [sys.executable, __file__, "--one", name, scale, str(file)],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout.split()
                for scale in ("none", "short-side")
            ]
            most = max(float(one[1]) for one in told)
            seconds = [float(one[0]) for one in told]
            print(
                f"| {name} | {small:.0f} | {seconds[0]:.1f} | {seconds[1]:.1f} | {most:.1f} |",
                flush=True,
            )
    finally:
        file.unlink()


def one(name: str, scale: Any, file: str) -> None:
    """Print seconds, and the peak of memory beyond the photo's own, in its sizes."""
    import resource

    image = np.load(file)
    corrupt(image[:224, :224], name, 5, 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.thread_time()
    corrupt(image, name, 5, 0, scale=scale)
    seconds = time.thread_time() - begun
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(seconds, 1024 * (after - before) / image.nbytes)


def main() -> int:
    """0 where every row is at least as fast as its formula."""
    if sys.argv[1:2] == ["--one"]:
        one(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photo", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--corruption", action="append", choices=tuple(BUILT_IN))
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    photo, which = photo_of(options.photo), options.corruption or tuple(BUILT_IN)
    file = Path(os.environ.get("TMPDIR", "/tmp")) / f"frost-{os.getpid()}.jpg"
    Image.fromarray(drawn_picture(0)).save(file)
    try:
        quick = compare(photo, options.repeats, file, which)
    finally:
        file.unlink()
    if options.large:
        large(photo, which)
    return 0 if quick else 1


if __name__ == "__main__":
    sys.exit(main())
