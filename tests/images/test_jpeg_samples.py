"""Samples that no encoder could have written: what half of the work finds out."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from curate.errors import ImageRefused
from curate.images import jpeg, jpeg_samples
from tests.images.awkward import save

Halves = tuple[np.ndarray, np.ndarray, np.ndarray]


def halves(data: bytes) -> Halves | None:
    """Lower and upper half and the steps; None where libjpeg notices damage by itself."""
    try:
        layout = jpeg.walk(data)
        low, high = (
            simplejpeg.decode_jpeg(jpeg._half(data, layout, is_upper=is_upper), "GRAY")
            for is_upper in (False, True)
        )
    except (ImageRefused, ValueError):
        return None
    steps = jpeg._quantisation(data, layout)
    assert steps is not None
    return low[..., 0], high[..., 0], steps


def is_refused(lower: np.ndarray, upper: np.ndarray, steps: np.ndarray) -> bool:
    try:
        jpeg_samples.check(lower, upper, steps)
    except ImageRefused:
        return True
    return False


@pytest.fixture(scope="module")
def damaged(package_photos: list[tuple[Path, int]]) -> list[Halves]:
    """Photos with 1 to 40 wrong bytes that libjpeg decodes without a warning."""
    chance = random.Random(0)
    photos = []
    for path, _ in package_photos:
        with Image.open(path) as image:
            photos.append(image.convert("RGB").resize((160, 120)))
    found = []
    for number in range(1000):
        quality = chance.choice([30, 60, 75, 85, 90, 92, 95])
        data = bytearray(save(photos[number % 20], "JPEG", quality=quality))
        at, count = chance.randrange(700, len(data) - 50), chance.randint(1, 40)
        data[at : at + count] = bytes(byte ^ 0xFF for byte in data[at : at + count])
        decoded = halves(bytes(data))
        if decoded is not None:
            found.append(decoded)
    return found


@pytest.mark.parametrize(("allowed", "is_sound"), [(None, True), (10.0, False)])
def test_what_is_refused_is_seen_in_the_upper_halves(
    damaged: list[Halves],
    allowed: float | None,
    is_sound: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a limit that is too lax, damage is missed: so this test can fail."""
    if allowed is not None:
        monkeypatch.setattr(jpeg_samples, "_PLAINLY_ALLOWED", allowed)
    refused = [one for one in damaged if is_refused(*one)]
    assert len(refused) > 100
    missed = [one for one in refused if jpeg_samples.upper_halves_suffice(*one[1:])]
    assert (not missed) is is_sound


def test_the_upper_halves_settle_nearly_all_sound_photos(
    package_photos: list[tuple[Path, int]],
) -> None:
    settled = 0
    for path, _ in package_photos:
        with Image.open(path) as image:
            decoded = halves(save(image.convert("RGB"), "JPEG", quality=90))
        assert decoded is not None
        settled += jpeg_samples.upper_halves_suffice(*decoded[1:])
    assert settled >= 18


def test_a_mean_without_halves_is_settled_by_them_only_if_nothing_is_clamped(
    package_photos: list[tuple[Path, int]],
) -> None:
    with Image.open(package_photos[0][0]) as image:
        decoded = halves(save(image.convert("RGB"), "JPEG", quality=98))
    assert decoded is not None
    assert decoded[2][0, 0] == 1
    assert not jpeg_samples.upper_halves_suffice(*decoded[1:])
    with Image.open(package_photos[0][0]) as image:
        pale = image.convert("RGB").point(lambda value: 50 + value * 0.6)
    inside = halves(save(pale, "JPEG", quality=98))
    assert inside is not None
    assert inside[1].min() > 0
    assert inside[1].max() < 255
    assert jpeg_samples.upper_halves_suffice(*inside[1:])


def test_steps_of_zero_and_pictures_below_a_block_divide_by_nothing() -> None:
    steps = np.zeros((8, 8))
    steps[0, 0] = 2
    for size in ((8, 8), (5, 9), (9, 5), (1, 1)):
        white = np.full(size, 255, np.uint8)
        seen = size == (8, 8)
        assert jpeg_samples.upper_halves_suffice(white, steps) is not seen
        assert is_refused(white, white, steps) is seen


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
@pytest.mark.parametrize(("at_once", "is_alone"), [(None, True), (100_000, False)])
def test_the_calling_thread_works_alone(at_once: int | None, is_alone: bool) -> None:
    """In a process of its own, whose BLAS may use all cores; large products make it do so."""
    code = (
        "import time\n"
        "import numpy as np\n"
        "from curate.images import jpeg_samples\n"
        f"jpeg_samples._AT_ONCE = {at_once} or jpeg_samples._AT_ONCE\n"
        "bright, steps = np.full((512, 4096), 190, np.uint8), np.full((8, 8), 2.0)\n"
        "jpeg_samples.upper_halves_suffice(bright, steps)\n"
        # Threads that BLAS started for its tables still wait for work, at full speed.
        "before = -1.0\n"
        "while time.process_time() - before > 0.01:\n"
        "    before = time.process_time()\n"
        "    time.sleep(0.5)\n"
        "whole, own = time.process_time(), time.thread_time()\n"
        "for _ in range(10):\n"
        "    assert jpeg_samples.upper_halves_suffice(bright, steps)\n"
        "print((time.process_time() - whole) / (time.thread_time() - own))\n"
    )
    environ = {name: text for name, text in os.environ.items() if not name.endswith("_THREADS")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert (float(done.stdout) < 1.3) is is_alone
