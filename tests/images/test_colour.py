"""Pixel modes and profiles: one defined conversion each."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps

from tests.images.awkward import accepted, array, chunk, raw_png, reason, save, small


def srgb_profile() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def other_profile() -> bytes:
    """sRGB with red and green swapped: no image looks the same in it."""
    data = srgb_profile()
    return data.replace(b"rXYZ", b"tmp!").replace(b"gXYZ", b"rXYZ").replace(b"tmp!", b"gXYZ")


def test_grey_is_the_same_in_all_channels(photo: Image.Image) -> None:
    grey = small(photo).convert("L")
    pixels, notes = accepted(save(grey, "PNG"))
    for channel in range(3):
        np.testing.assert_array_equal(pixels[..., channel], array(grey))
    assert notes == ("grey",)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bit_grey_is_divided_by_257_and_rounded(kind: str) -> None:
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    pixels, notes = accepted(save(Image.fromarray(values), kind))
    np.testing.assert_array_equal(pixels[..., 1], np.round(values / 257).astype(int))
    assert notes == ("grey", "16-bit-scaled")


def test_big_endian_16_bit_tiff_reads_alike() -> None:
    values = np.arange(65536, dtype=">u2").reshape(256, 256)
    image = Image.frombytes("I;16B", (256, 256), values.tobytes())
    pixels, _ = accepted(save(image, "TIFF"))
    np.testing.assert_array_equal(pixels[..., 0], np.round(values / 257).astype(int))


def test_of_16_bits_a_colour_channel_the_upper_byte_counts() -> None:
    values = np.random.default_rng(0).integers(0, 65536, (100, 300), dtype=np.uint16)
    pixels, notes = accepted(raw_png(values.astype(">u2"), 16, 2))
    np.testing.assert_array_equal(pixels, (values >> 8).reshape(100, 100, 3))
    assert notes == ("16-bit-scaled",)
    # The rule for grey differs from it by one level at most.
    assert np.abs((values >> 8) - np.round(values / 257)).max() <= 1


def test_alpha_is_laid_on_white(photo: Image.Image) -> None:
    colour = small(photo)
    alpha = Image.linear_gradient("L").resize(colour.size)
    for mode in ("RGBA", "LA"):
        stored = colour.convert(mode)
        stored.putalpha(alpha)
        pixels, notes = accepted(save(stored, "PNG"))
        share = array(alpha)[..., np.newaxis] / 255
        expected = array(colour.convert(mode[:-1]).convert("RGB")) * share + 255 * (1 - share)
        assert np.abs(pixels - expected).max() <= 1
        assert notes == (("grey",) if mode == "LA" else ()) + ("alpha-flattened",)


def test_full_opacity_flattens_nothing(photo: Image.Image) -> None:
    pixels, notes = accepted(save(small(photo).convert("RGBA"), "PNG"))
    np.testing.assert_array_equal(pixels, array(small(photo)))
    assert notes == ()


def test_a_fully_transparent_image_is_refused_though_its_colours_hold_a_photo(
    photo: Image.Image,
) -> None:
    hidden = small(photo).convert("RGBA")
    hidden.putalpha(0)
    for kind in ("PNG", "TIFF"):
        assert reason(save(hidden, kind)) == "no-visible-content"
    assert reason(save(hidden, "WEBP", lossless=True, exact=True)) == "no-visible-content"


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_a_transparent_palette_entry_is_laid_on_white(photo: Image.Image, kind: str) -> None:
    indexed = small(photo).quantize(64)
    entry = int(np.bincount(np.asarray(indexed).ravel()).argmax())
    pixels, notes = accepted(save(indexed, kind, transparency=entry))
    expected = array(indexed.convert("RGB"))
    expected[np.asarray(indexed) == entry] = 255
    np.testing.assert_array_equal(pixels, expected)
    assert notes == ("alpha-flattened",)


def test_a_palette_with_many_alphas_is_laid_on_white(photo: Image.Image) -> None:
    indexed = small(photo).quantize(256)
    alphas = np.arange(256, dtype=np.uint8)
    pixels, _ = accepted(save(indexed, "PNG", transparency=alphas.tobytes()))
    share = alphas[np.asarray(indexed)][..., np.newaxis] / 255
    expected = array(indexed.convert("RGB")) * share + 255 * (1 - share)
    assert np.abs(pixels - expected).max() <= 1


@pytest.mark.parametrize("depth", [2, 4, 8, 16])
def test_a_transparent_grey_counts_in_the_depth_of_the_file(depth: int) -> None:
    levels = min(1 << depth, 256)
    step = (1 << depth) // levels
    values = np.tile(np.arange(levels), (96, 96 // levels + 1))[:, :96] * step
    bits = (values[..., np.newaxis] >> np.arange(depth - 1, -1, -1) & 1).reshape(96, -1)
    stored = np.packbits(bits.astype(np.uint8), axis=1)
    key = int(values[0, 1])
    pixels, notes = accepted(raw_png(stored, depth, 0, chunk(b"tRNS", struct.pack(">H", key))))
    expected = np.round(values * 255 / ((1 << depth) - 1)).astype(int)
    expected[values == key] = 255
    np.testing.assert_array_equal(pixels[..., 0], expected)
    assert "alpha-flattened" in notes


def test_a_transparent_colour_is_laid_on_white(photo: Image.Image) -> None:
    colour = small(photo)
    key = colour.getpixel((5, 5))
    pixels, _ = accepted(save(colour, "PNG", transparency=key))
    expected = array(colour)
    expected[(expected == key).all(axis=-1)] = 255
    np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk_without_a_profile_keeps_its_colours(photo: Image.Image, kind: str) -> None:
    pixels, notes = accepted(save(small(photo).convert("CMYK"), kind))
    assert np.abs(pixels - array(small(photo))).mean() < 4
    assert notes == ("cmyk-converted",)


def test_ycck_jpeg_keeps_its_colours(photo: Image.Image) -> None:
    """As Photoshop writes them: Adobe's marker with transform 2, and inverted values."""
    inverted = ImageOps.invert(small(photo)).convert("YCbCr")
    bands = [*inverted.split(), Image.new("L", inverted.size, 0)]
    data = save(Image.merge("CMYK", bands), "JPEG", quality=95)
    # Pillow writes CMYK inverted, so its bytes hold the inverse of these bands.
    marker = data.index(b"Adobe")
    ycck = data[: marker + 11] + b"\x02" + data[marker + 12 :]
    reference = Image.open(io.BytesIO(ycck)).convert("RGB")
    pixels, notes = accepted(ycck)
    np.testing.assert_array_equal(pixels, array(reference))
    assert notes == ("cmyk-converted",)


@pytest.mark.parametrize("mode", ["F", "I"])
def test_floats_and_32_bit_integers_are_refused(photo: Image.Image, mode: str) -> None:
    assert reason(save(small(photo).convert("L").convert(mode), "TIFF")) == "unsupported-mode"


def test_cielab_is_refused(photo: Image.Image) -> None:
    lab = ImageCms.profileToProfile(
        small(photo),
        ImageCms.createProfile("sRGB"),
        ImageCms.createProfile("LAB"),
        outputMode="LAB",
    )
    assert reason(save(lab, "TIFF")) == "unsupported-mode"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_an_srgb_profile_changes_no_bit(photo: Image.Image, kind: str) -> None:
    plain = accepted(save(small(photo), kind))[0]
    pixels, notes = accepted(save(small(photo), kind, icc_profile=srgb_profile()))
    np.testing.assert_array_equal(pixels, plain)
    assert notes == ()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_another_profile_is_converted_to_srgb(photo: Image.Image, kind: str) -> None:
    plain = Image.fromarray(accepted(save(small(photo), kind))[0].astype(np.uint8))
    expected = ImageCms.profileToProfile(
        plain,
        ImageCms.ImageCmsProfile(io.BytesIO(other_profile())),
        ImageCms.createProfile("sRGB"),
        renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
        flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )
    pixels, notes = accepted(save(small(photo), kind, icc_profile=other_profile()))
    np.testing.assert_array_equal(pixels, array(expected))
    assert (pixels != array(plain)).any()
    assert notes == ("icc-converted",)


@pytest.mark.parametrize("profile", [b"garbage", b"\0" * 200, None])
def test_a_broken_profile_is_ignored_with_a_note(photo: Image.Image, profile: bytes | None) -> None:
    profile = srgb_profile()[:300] if profile is None else profile
    for kind in ("JPEG", "PNG", "TIFF"):
        pixels, notes = accepted(save(small(photo), kind, icc_profile=profile))
        np.testing.assert_array_equal(pixels, accepted(save(small(photo), kind))[0])
        assert notes == ("icc-unreadable",)


def test_a_profile_of_another_colour_space_is_ignored_with_a_note(photo: Image.Image) -> None:
    cmyk = small(photo).convert("CMYK")
    pixels, notes = accepted(save(cmyk, "JPEG", icc_profile=srgb_profile()))
    np.testing.assert_array_equal(pixels, accepted(save(cmyk, "JPEG"))[0])
    assert notes == ("cmyk-converted", "icc-unreadable")


def test_a_grey_photo_with_a_colour_profile_is_converted_through_it(photo: Image.Image) -> None:
    grey = small(photo).convert("L")
    pixels, notes = accepted(save(grey, "PNG", icc_profile=srgb_profile()))
    np.testing.assert_array_equal(pixels[..., 0], array(grey))
    assert notes == ("grey",)
