"""`croissant.json`: the release as machines describe data sets to one another (Croissant 1.1).

The terms of Croissant RAI stand there as far as the catalogue knows an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from curate.files import canonical_json
from curate.licences import parse
from curate.release.card_words import Words
from curate.release.rows import Released

CROISSANT = "croissant.json"

_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataBiases": "cr:dataBiases",
    "dataCollection": "cr:dataCollection",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "excludes": "cr:excludes",
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "personalSensitiveInformation": "cr:personalSensitiveInformation",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}

_MEDIA = {"jpg": "image/jpeg", "tif": "image/tiff"}

#: The manifest's columns that are fields, with their types and what they mean.
_FIELDS = (
    ("path", "sc:Text", "The file within the release."),
    ("wnid", "sc:Text", "The class that the photo shows, by WordNet id."),
    ("name", "sc:Text", "The name of that class."),
    ("predicted_wnid", "sc:Text", "The class that the first model takes it for."),
    ("confidence", "sc:Float", "The probability that it gives that class."),
    ("reviewed", "sc:Boolean", "Whether people have looked at it and accepted it."),
    ("licence", "sc:Text", "SPDX id of the photo's licence."),
    ("attribution", "sc:Text", "Title, author, place and licence."),
    ("sha256", "sc:Text", "Of the file's bytes."),
    ("original_sha256", "sc:Text", "Of the bytes as they were collected."),
)


def croissant(record: Mapping[str, Any], rows: Sequence[Released], manifest_sha256: str) -> bytes:
    """The metadata of a release as JSON-LD, the same bytes each time.

    Args:
        record: what `release.json` holds.
        rows: of the manifest.
        manifest_sha256: of `manifest.csv`.
    """
    words = Words(record, rows)
    fields = list(_FIELDS)
    if any(row.split for row in rows):
        fields.append(("split", "sc:Text", "The split."))
    depth = rows[0].path.count("/")
    extensions = sorted({row.path.rpartition(".")[2] for row in rows})
    told: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": [
            "http://mlcommons.org/croissant/1.1",
            "http://mlcommons.org/croissant/RAI/1.0",
        ],
        "name": words.title,
        "description": words.description,
        "license": sorted({parse(row.licence).url or row.licence for row in rows}),
        "creator": [{"@type": "sc:Organization", "name": name} for name in words.authors],
        "version": record["version"],
        "keywords": words.keywords,
        "inLanguage": "en",
        "isLiveDataset": False,
        "citeAs": words.citation,
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "manifest.csv",
                "name": "manifest.csv",
                "description": "A row an image, with everything that is known of it.",
                "contentUrl": "manifest.csv",
                "encodingFormat": "text/csv",
                "sha256": manifest_sha256,
            },
            {
                "@type": "cr:FileSet",
                "@id": "image-files",
                "name": "image-files",
                "description": "The images, in a folder a class.",
                "encodingFormat": sorted({_MEDIA.get(one, f"image/{one}") for one in extensions}),
                "includes": [f"{'*/' * depth}*.{one}" for one in extensions],
            },
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "images",
                "name": "images",
                "description": "The images with their labels; `path` leads to the file.",
                "key": {"@id": "images/path"},
                "field": [
                    {
                        "@type": "cr:Field",
                        "@id": f"images/{name}",
                        "name": name,
                        "description": meaning,
                        "dataType": kind,
                        "source": {
                            "fileObject": {"@id": "manifest.csv"},
                            "extract": {"column": name},
                        },
                    }
                    for name, kind, meaning in fields
                ],
            },
            {
                "@type": "cr:RecordSet",
                "@id": "files",
                "name": "files",
                "description": "The pictures; `path` is that of the record set images.",
                "key": {"@id": "files/path"},
                "field": [
                    _of_file("path", "sc:Text", "The file within the release.", "fullpath"),
                    _of_file("image", "sc:ImageObject", "The picture.", "content"),
                ],
            },
        ],
        **{f"rai:{name}": value for name, value in words.responsible().items()},
    }
    if words.url:
        told["url"] = words.url
    if words.published:
        told["datePublished"] = words.published
    return canonical_json(told, indent=2) + b"\n"


def _of_file(name: str, kind: str, meaning: str, part: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"files/{name}",
        "name": name,
        "description": meaning,
        "dataType": kind,
        "source": {"fileSet": {"@id": "image-files"}, "extract": {"fileProperty": part}},
    }
