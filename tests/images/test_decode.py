"""Decoding: limits, orientation, formats, and nothing that leaks."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile, ImageOps, TiffImagePlugin, TiffTags

from curate.errors import ImageRefused
from curate.images import DECODER, NOTES, decode, decode_trusted
from curate.settings import ImageLimits
from tests.images.awkward import (
    accepted,
    array,
    chunk,
    reason,
    save,
    small,
    with_chunk,
    with_segment,
)
from tests.waiting import PATIENCE


def test_a_photo_decodes_as_pillow_alone_does(photo: Image.Image, photo_bytes: bytes) -> None:
    image, info = decode(photo_bytes)
    np.testing.assert_array_equal(np.asarray(image), np.asarray(photo))
    assert (info.format, info.extension, info.mode) == ("JPEG", "jpg", "RGB")
    assert (info.width, info.height, info.notes) == (512, 512, ())


@pytest.mark.parametrize(
    ("kind", "options", "extension"),
    [
        ("JPEG", {}, "jpg"),
        ("PNG", {}, "png"),
        ("GIF", {}, "gif"),
        ("WEBP", {}, "webp"),
        ("WEBP", {"lossless": True}, "webp"),
        ("TIFF", {}, "tif"),
        ("TIFF", {"compression": "tiff_lzw"}, "tif"),
        ("TIFF", {"compression": "jpeg"}, "tif"),
        ("BMP", {}, "bmp"),
        ("AVIF", {}, "avif"),
    ],
)
def test_every_accepted_format_decodes_and_names_its_extension(
    photo: Image.Image, kind: str, options: dict[str, object], extension: str
) -> None:
    data = save(small(photo), kind, **options)
    image, info = decode(data, name="photo.txt")
    assert (info.format, info.extension, image.size) == (kind, extension, (120, 90))
    pixels, notes = accepted(data)
    assert notes == ()
    assert np.abs(pixels - array(small(photo))).mean() < 8
    if kind in ("PNG", "BMP") or options in ({"lossless": True}, {"compression": "tiff_lzw"}):
        np.testing.assert_array_equal(pixels, array(small(photo)))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_applied_once(photo: Image.Image, kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    options = {"lossless": True} if kind == "WEBP" else {}
    data = save(small(photo), kind, exif=exif, **options)
    with Image.open(io.BytesIO(data)) as image:
        expected = array(ImageOps.exif_transpose(image))
    pixels, notes = accepted(data)
    np.testing.assert_array_equal(pixels, expected)
    assert pixels.shape == ((90, 120, 3) if orientation < 5 else (120, 90, 3))
    assert notes == (() if orientation == 1 else ("exif-orientation-applied",))
    # Whoever applies EXIF orientation as a habit must find nothing left to apply.
    np.testing.assert_array_equal(array(ImageOps.exif_transpose(decode(data)[0])), pixels)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_an_orientation_in_xmp_is_never_applied(photo: Image.Image, kind: str) -> None:
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    if kind == "TIFF":
        data = save(small(photo), kind, tiffinfo={700: xmp})
    elif kind == "PNG":
        text = b"XML:com.adobe.xmp\0\0\0\0\0" + xmp
        data = with_chunk(save(small(photo), kind), b"iTXt", text)
    else:
        data = save(small(photo), kind, xmp=xmp)
    with Image.open(io.BytesIO(data)) as image:
        assert image.getexif()[274] == 6
    pixels, notes = accepted(data)
    assert pixels.shape == (90, 120, 3)
    assert notes == ()


@pytest.mark.parametrize("orientation", [0, 9, 99, 65535])
def test_an_orientation_outside_1_to_8_is_ignored(photo: Image.Image, orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    pixels, notes = accepted(save(small(photo), "PNG", exif=exif))
    np.testing.assert_array_equal(pixels, array(small(photo)))
    assert notes == ()


@pytest.mark.parametrize("block", [b"", b"garbage", b"MM\0*", b"II*\0\xff\xff\xff\xff", b"II*\0"])
def test_unreadable_exif_is_noted_and_ignored(photo: Image.Image, block: bytes) -> None:
    plain = save(small(photo), "JPEG")
    pixels, notes = accepted(with_segment(plain, 0xE1, b"Exif\0\0" + block))
    np.testing.assert_array_equal(pixels, accepted(plain)[0])
    assert notes == (("exif-unreadable",) if block else ())


def test_orientation_in_a_cut_off_exif_block_still_counts(photo: Image.Image) -> None:
    block = b"MM\0*\0\0\0\x08" + b"\0\x02" + b"\x01\x12\0\x03\0\0\0\x01\0\x06\0\0" + b"\x01\x1a"
    pixels, notes = accepted(save(small(photo), "PNG", exif=b"Exif\0\0" + block))
    assert pixels.shape == (120, 90, 3)
    assert notes == ("exif-orientation-applied", "exif-unreadable")


def test_a_position_in_exif_or_xmp_is_noted(photo: Image.Image) -> None:
    exif = Image.Exif()
    exif.get_ifd(34853).update({1: "N", 2: (51.0, 30.0, 0.0)})
    only_version = Image.Exif()
    only_version.get_ifd(34853).update({0: b"\x02\x03\0\0"})
    xmp = b'<x exif:GPSLatitude="51,30N"/>'
    assert accepted(save(small(photo), "JPEG", exif=exif))[1] == ("has-gps",)
    in_tiff = TiffImagePlugin.ImageFileDirectory_v2()
    in_tiff[34853] = {1: "N", 2: (51.0, 30.0, 0.0)}
    in_tiff.tagtype[34853] = TiffTags.LONG
    assert accepted(save(small(photo), "TIFF", tiffinfo=in_tiff))[1] == ("has-gps",)
    assert accepted(save(small(photo), "JPEG", exif=only_version))[1] == ()
    assert accepted(save(small(photo), "JPEG", xmp=xmp))[1] == ("has-gps",)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((1, 1), "too-small"),
        ((15, 4000), "too-small"),
        ((4000, 20), "aspect-ratio"),
        ((71, 71), "too-small"),
        ((72, 721), "aspect-ratio"),
        ((9000, 9000), "too-many-pixels"),
    ],
)
def test_sizes_outside_the_limits_are_refused_by_the_header(
    size: tuple[int, int], expected: str
) -> None:
    # The picture data are missing, so only the header can have been read.
    header = size[0].to_bytes(4) + size[1].to_bytes(4) + b"\x08\x02\0\0\0"
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    assert reason(data) == expected


def test_sizes_on_the_limits_are_accepted(photo: Image.Image) -> None:
    assert accepted(save(photo.resize((72, 720)), "PNG"))[0].shape == (720, 72, 3)


def test_the_limits_are_the_callers(photo: Image.Image) -> None:
    data = save(small(photo), "PNG")
    decode(data, ImageLimits(max_bytes=len(data), max_pixels=120 * 90))
    assert reason(data, limits=ImageLimits(max_bytes=len(data) - 1)) == "too-many-bytes"
    assert reason(data, limits=ImageLimits(max_pixels=120 * 90 - 1)) == "too-many-pixels"
    assert reason(data, limits=ImageLimits(max_aspect_ratio=1.3)) == "aspect-ratio"
    tiny = save(photo.resize((8, 8)), "PNG")
    decode(tiny, ImageLimits(min_side=1))


def test_trusted_decoding_keeps_the_pixel_limit(photo: Image.Image) -> None:
    with pytest.raises(ImageRefused, match="too-many-pixels"):
        decode_trusted(save(small(photo), "PNG"), ImageLimits(max_pixels=1000))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF"])
@pytest.mark.parametrize("tolerant", [False, True])
def test_a_file_cut_anywhere_is_refused_even_where_pillow_is_told_to_tolerate_it(
    photo: Image.Image, kind: str, tolerant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", tolerant)
    data = save(small(photo), kind)
    for share in (0.3, 0.6, 0.9, 0.99):
        assert reason(data[: int(len(data) * share)]) == "truncated"
    assert reason(data[:-1]) == "truncated"


@pytest.mark.parametrize("head", [b"\xff\xd8", b"\xff\xd8\xff\xe0", b"\x89PN", b"GIF8", b"II*\0"])
def test_a_mere_signature_is_truncated(head: bytes) -> None:
    assert reason(head) == "truncated"


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (b"", None, "empty-file"),
        (bytes(5000), None, "not-an-image"),
        (b"<!doctype html><html><svg></svg></html>", None, "not-an-image"),
        (b'{"error": 404}', "a.jpg", "not-an-image"),
        (b"BMW is a make of car, not a bitmap", "a.bmp", "not-an-image"),
        (b"%PDF-1.7 ...", None, "not-an-image"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", None, "not-an-image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", None, "unsupported-format"),
        (b"\xef\xbb\xbf<?xml version='1.0'?>\n<svg/>", "A.SVG", "unsupported-format"),
        (b"<svg/>", "a.png", "not-an-image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0", "a.jpg", "unsupported-format"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", None, "unsupported-format"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", None, "unsupported-format"),
        (b"8BPS\0\x01", None, "unsupported-format"),
        (b"P6\n10 10\n255\n", None, "unsupported-format"),
        (b"II+\0\x08\0\0\0", None, "unsupported-format"),
    ],
)
def test_other_content_is_refused_by_what_it_is(
    data: bytes, name: str | None, expected: str
) -> None:
    assert reason(data, name=name) == expected


def test_a_refusal_names_the_unsupported_format() -> None:
    with pytest.raises(ImageRefused) as caught:
        decode(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    assert caught.value.detail == "HEIC"


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "AVIF"])
def test_an_animation_is_refused(photo: Image.Image, kind: str) -> None:
    frames = [small(photo), small(ImageOps.mirror(photo))]
    assert reason(save(frames[0], kind, save_all=True, append_images=frames[1:])) == "animated"


def test_a_tiff_of_several_pages_is_refused(photo: Image.Image) -> None:
    pages = [small(photo), small(photo)]
    assert reason(save(pages[0], "TIFF", save_all=True, append_images=pages[1:])) == "multi-frame"


def test_the_first_picture_of_an_mpo_is_taken(photo: Image.Image) -> None:
    first, second = small(photo), small(ImageOps.mirror(photo))
    data = save(first, "MPO", save_all=True, append_images=[second])
    pixels, notes = accepted(data)
    np.testing.assert_array_equal(pixels, accepted(save(first, "JPEG"))[0])
    assert notes == ("first-frame-of-mpo",)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "AVIF"])
@pytest.mark.parametrize("tail", [b"PK\x03\x04" + os.urandom(4096), b"\0", b"\xff\xd9" * 20])
def test_trailing_bytes_are_noted_and_change_nothing(
    photo: Image.Image, kind: str, tail: bytes
) -> None:
    data = save(small(photo), kind)
    pixels, notes = accepted(data + tail)
    np.testing.assert_array_equal(pixels, accepted(data)[0])
    assert notes == ("trailing-data",)


@pytest.mark.parametrize("level", [0, 128, 255])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_one_colour_shows_nothing(kind: str, level: int) -> None:
    data = save(Image.new("RGB", (100, 100), (level,) * 3), kind)
    assert reason(data) == "no-visible-content"
    image, _ = decode(data, must_show=False)
    assert image.getcolors() == [(10_000, (level,) * 3)]


def test_nearly_one_colour_shows_nothing_and_a_faint_picture_shows_something(
    photo: Image.Image,
) -> None:
    def with_deviation(deviation: float) -> bytes:
        centred = array(small(photo)) - array(small(photo)).mean(axis=(0, 1))
        values = 128 + centred * deviation / centred.std(axis=(0, 1)).max()
        return save(Image.fromarray(values.round().astype(np.uint8)), "PNG")

    assert reason(with_deviation(0.8)) == "no-visible-content"
    accepted(with_deviation(1.3))


@settings(max_examples=60, deadline=None)
@given(
    level=st.integers(1, 127),
    contrast=st.sampled_from([1, 2, 3, 5, 8, 20, 120]),
    share=st.floats(0.00001, 0.5),
    step=st.sampled_from([1, 2, 8]),
    seed=st.integers(0, 2**32 - 1),
)
def test_contrast_is_that_of_all_pixels_wherever_it_lies(
    level: int, contrast: int, share: float, step: int, seed: int
) -> None:
    """One pixel in eight, each way, is looked at first; what they show must hold of all."""
    chance = np.random.default_rng(seed)
    pixels = np.full((88, 120, 3), level, np.uint8)
    few = pixels[step // 2 :: step, step // 2 :: step]
    few[chance.random(few.shape[:2]) < share] += np.uint8(contrast)
    pixels[::17, ::19] ^= 1
    data = save(Image.fromarray(pixels), "PNG")
    if pixels.reshape(-1, 3).std(axis=0).max() < 1:
        assert reason(data) == "no-visible-content"
    elif len(np.unique(pixels)) > 2:
        accepted(data)


def test_two_colours_are_no_photo_whatever_the_container(photo: Image.Image) -> None:
    dithered = small(photo).convert("1")
    for kind, mode in (("PNG", "1"), ("PNG", "RGB"), ("PNG", "P"), ("GIF", "L"), ("BMP", "1")):
        assert reason(save(dithered.convert(mode), kind)) == "not-a-photo"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_a_large_image_passes_in_bounded_memory(tmp_path: Path) -> None:
    """In a process of its own: the decoded pixels take 256 MB, and all else not much more."""
    path = tmp_path / "large.jpg"
    Image.linear_gradient("L").convert("RGB").resize((8000, 8000)).save(path)
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from curate.images import decode, pixel_sha256\n"
        "pixel_sha256(decode(Path(sys.argv[1]).read_bytes())[0])\n"
        "status = Path('/proc/self/status').read_text()\n"
        "print(status.split('VmHWM:')[1].split()[0])\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert int(done.stdout) < 500_000


def test_no_shared_state_of_pillow_or_python_matters_or_changes(
    photo: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A low pixel limit of Pillow's and warnings made errors, as some programs set them."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    files = [save(small(photo), kind) for kind in ("JPEG", "PNG", "BMP")]
    files.append(save(small(photo).convert("P"), "PNG", transparency=bytes(range(256))))
    files.append(with_segment(files[0], 0xE1, b"Exif\0\0MM\0*\0\0\0\x08\0\x09broken"))
    filters = list(warnings.filters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for data in files:
            accepted(data)
    assert Image.MAX_IMAGE_PIXELS == 100
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False
    assert list(warnings.filters) == filters


def test_threads_get_the_pixels_that_one_gets_alone(photo: Image.Image) -> None:
    profile = wide_profile()
    files = [
        save(small(photo, 200 + 8 * i), "JPEG", icc_profile=profile, quality=50 + i)
        for i in range(24)
    ]
    alone = [decode(data)[0].tobytes() for data in files]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda data: decode(data)[0].tobytes(), files * 3))
    assert together == alone * 3


def wide_profile() -> bytes:
    """A profile whose colours are not sRGB's: made from sRGB's by swapping red and green."""
    from PIL import ImageCms

    made = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return made.replace(b"rXYZ", b"tmp!").replace(b"gXYZ", b"rXYZ").replace(b"tmp!", b"gXYZ")


def test_the_record_names_the_decoders() -> None:
    import PIL

    assert DECODER.startswith(f"pillow {PIL.__version__}, libjpeg-turbo ")


def test_notes_are_from_the_fixed_vocabulary(awkward_files: dict[str, bytes]) -> None:
    seen = set()
    for data in awkward_files.values():
        try:
            seen.update(decode(data)[1].notes)
        except ImageRefused:
            continue
    assert seen <= set(NOTES)
    assert len(seen) >= 9


def test_private_png_kinds_are_named(photo: Image.Image) -> None:
    assert reason(with_chunk(save(small(photo), "PNG"), b"CgBI", b"\0")) == "unsupported-format"
