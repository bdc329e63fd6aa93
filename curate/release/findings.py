"""What checking a release finds: problems of named kinds, all counted, and the first ones told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from curate.files import printable

#: What may be wrong. The names are part of the contract: scripts go by them.
KINDS: dict[str, str] = {
    "checksums": "SHA256SUMS is absent, or a line of it is none",
    "missing": "a file that the checksums name is not there",
    "altered": "a file has other bytes than the checksums say",
    "stranger": "a file, a link or an empty folder that the checksums do not name",
    "record": "release.json or the class map cannot be read, or tells what is not so",
    "manifest": "the manifests cannot be read, or differ from each other or from the files",
    "unlisted": "an image without a row of the manifest",
    "layout": "an image outside the class folder that it belongs in",
    "not-an-image": "an image that does not decode",
    "duplicate": "two images with the same bytes",
    "licence": "an image from the network whose licence does not allow passing it on",
    "consensus": "an image that people did not accept in a release that says that they did",
    "retracted": "an image that the release itself lists as taken back",
    "unreadable": "something that cannot be read",
}

# Most problems that are told; all are counted.
_MOST_TOLD = 1000


@dataclass
class Findings:
    """What checking finds.

    Attributes:
        counts: problems by kind.
        told: the first ones, a line each.
        warnings: what is no fault of the release, a line each.
        version: which release it says it is.
        images, classes: how many there are.
        manifest_sha256: of the manifest.
    """

    counts: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    version: str | None = None
    images: int = 0
    classes: int = 0
    manifest_sha256: str | None = None

    def add(self, kind: str, what: str) -> None:
        """Note a problem."""
        assert kind in KINDS
        self.counts[kind] += 1
        if len(self.told) < _MOST_TOLD:
            self.told.append(f"{kind}: {printable(what)[:400]}")
