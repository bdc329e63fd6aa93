"""What the bytes are. The content decides, never the name."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from curate.errors import ImageRefused

#: The accepted formats, by Pillow's names; a phone's MPO is a JPEG with more behind it.
Format = Literal["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF"]

#: The extension that each format calls for.
EXTENSIONS: dict[Format, str] = {
    "JPEG": "jpg",
    "PNG": "png",
    "GIF": "gif",
    "WEBP": "webp",
    "TIFF": "tif",
    "BMP": "bmp",
    "AVIF": "avif",
}

_ACCEPTED: tuple[tuple[bytes, Format], ...] = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
)

# Formats that are images, but not accepted: the refusal names them.
_KNOWN: tuple[tuple[bytes, str], ...] = (
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000 codestream"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (b"\xff\x0a", "JPEG XL codestream"),
    (b"II\xbc\x01", "JPEG XR"),
    (b"II+\0", "BigTIFF"),
    (b"MM\0+", "BigTIFF"),
    (b"%!PS", "PostScript (EPS)"),
    (b"\xc5\xd0\xd3\xc6", "EPS"),
    (b"8BPS", "Photoshop (PSD)"),
    (b"gimp xcf ", "GIMP (XCF)"),
    (b"\0\0\x01\0", "Windows icon (ICO)"),
    (b"\0\0\x02\0", "Windows cursor (CUR)"),
    (b"icns", "Apple icon (ICNS)"),
    (b"qoif", "QOI"),
    (b"FLIF", "FLIF"),
    (b"BPG\xfb", "BPG"),
    (b"DDS ", "DirectDraw surface (DDS)"),
    (b"\x76\x2f\x31\x01", "OpenEXR"),
    (b"#?RADIANCE", "Radiance HDR"),
    (b"\x8aMNG\r\n\x1a\n", "MNG"),
    (b"\x8bJNG\r\n\x1a\n", "JNG"),
    (b"AT&TFORM", "DjVu"),
    (b"SIMPLE  =", "FITS"),
    (b"\xd7\xcd\xc6\x9a", "Windows metafile (WMF)"),
    (b"FUJIFILMCCD-RAW", "camera raw (RAF)"),
    (b"IIRO", "camera raw (ORF)"),
    (b"IIU\0", "camera raw (RW2)"),
    (b"FOVb", "camera raw (X3F)"),
)
_BMP_HEADERS = {12, 16, 40, 52, 56, 64, 108, 124}
_HEIF_BRANDS = {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1", b"mif2"}


def sniff(data: bytes, name: str | None = None) -> Format:
    """The format of an image file's content.

    Args:
        data: the file's bytes, not empty.
        name: the file's name, where there is one. It decides one case only: an SVG drawing is text,
            and text is called an image of an unsupported format where the name says so (.svg) or
            where there is no name; under any other name it is no image.

    Raises:
        ImageRefused: `truncated` (a part of a signature and nothing more), `unsupported-format`
            (with the format's name) or `not-an-image`.
    """
    for magic, accepted in _ACCEPTED:
        if data.startswith(magic):
            return accepted
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[4:8] == b"ftyp":
        return _base_media(data)
    if data[:2] == b"BM" and int.from_bytes(data[14:18], "little") in _BMP_HEADERS:
        return "BMP"
    if any(len(data) > 1 and magic.startswith(data) for magic, _ in _ACCEPTED):
        raise ImageRefused("truncated", f"{len(data)} bytes, less than a signature")
    for magic, known in _KNOWN:
        if data.startswith(magic):
            raise ImageRefused("unsupported-format", known)
    if data[128:132] == b"DICM":
        raise ImageRefused("unsupported-format", "DICOM")
    if data[:1] == b"P" and data[1:2] in b"1234567" and data[2:3].isspace():
        raise ImageRefused("unsupported-format", "portable anymap (PNM)")
    if _is_svg(data):
        if name is None or PurePosixPath(name).suffix.lower() == ".svg":
            raise ImageRefused("unsupported-format", "SVG")
        raise ImageRefused("not-an-image", "an SVG drawing (text) under another name")
    raise ImageRefused("not-an-image", _describe(data))


def _base_media(data: bytes) -> Format:
    """The format of an ISO base media file (ISO/IEC 14496-12), by its brands."""
    end = min(int.from_bytes(data[:4], "big"), len(data), 1024)
    brands = [data[8:12], *(data[at : at + 4] for at in range(16, end - 3, 4))]
    if any(brand in (b"avif", b"avis") for brand in brands):
        return "AVIF"
    if any(brand in _HEIF_BRANDS for brand in brands):
        raise ImageRefused("unsupported-format", "HEIC")
    if brands[0] == b"crx ":
        raise ImageRefused("unsupported-format", "camera raw (CR3)")
    raise ImageRefused("not-an-image", "a media container (MP4, MOV or the like)")


def _is_svg(data: bytes) -> bool:
    head = data[:2048].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return head.startswith(b"<") and b"<svg" in head and b"<html" not in head


def _describe(data: bytes) -> str:
    head = data[:512].lstrip()
    if not data.strip(b"\0"):
        return "nothing but zero bytes"
    if head.startswith(b"%PDF"):
        return "a PDF document"
    if head[:1] == b"<":
        return "markup (HTML or XML), such as a server's error page"
    if head[:1] in (b"{", b"["):
        return "text (JSON), such as a server's error message"
    return "no known image signature"
