"""Checking datasets that say nothing of themselves, such as ImageNet-A and ImageNet-O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from curate.labels.space import load_label_space
from curate.release.contents import Seen
from curate.release.findings import Findings

#: The published sets: their number of images, and which classes they have.
PUBLISHED = {"imagenet-a": 7500, "imagenet-o": 2000}

_WNID = re.compile(r"n[0-9]{8}")


def verify_folder(files: Mapping[str, Seen], findings: Findings, name: str) -> str | None:
    """Check class folders without a manifest, as far as that can be.

    Args:
        files: everything that lies there, by path.
        findings: what is found is added here.
        name: of the folder.

    Returns:
        Which published set it is meant to be, or None.
    """
    by_class: Counter[str] = Counter()
    first: dict[str, str] = {}
    for path, seen in sorted(files.items()):
        folder, _, rest = path.partition("/")
        if folder.startswith("."):
            continue
        # No checksum proves what a link leads to, and `read_layout` passes it over.
        if fault := seen.fault or ("symlink" if seen.linked else ""):
            findings.add("stranger", f"{path} ({fault})")
            continue
        if not rest:
            if seen.is_image:
                findings.add("layout", f"{path} lies beside the class folders")
            continue
        if not _WNID.fullmatch(folder):
            if seen.is_image:
                findings.add("layout", f"{path}: {folder} is no class's id")
            continue
        if not seen.is_image:
            findings.add("layout", f"{path} has no image's name")
            continue
        if "/" in rest:
            findings.add("layout", f"{path} lies deeper than its class folder")
        by_class[folder] += 1
        if seen.refusal:
            findings.add("not-an-image", f"{path}: {seen.refusal}")
        if (other := first.setdefault(seen.sha256, path)) != path:
            findings.add("duplicate", f"{path} is {other} again")
    findings.images, findings.classes = by_class.total(), len(by_class)
    if not by_class:
        findings.add("layout", "there are no images in folders named by class id, as n02268443")
    findings.warnings.append(
        "no manifest and no checksums: bytes, labels and licences cannot be checked"
    )
    return _published(by_class, findings, name)


def _published(by_class: Counter[str], findings: Findings, name: str) -> str | None:
    """Check classes and counts of what is meant to be a published set."""
    meant = name if name in PUBLISHED else None
    if meant is None:
        shared = {one: len(by_class.keys() & _classes(one)) for one in PUBLISHED}
        best = max(shared, key=shared.__getitem__)
        # Half of the classes, and hardly any others: a subset of one's own has fewer.
        if shared[best] * 2 >= len(_classes(best)) and shared[best] * 1.1 >= len(by_class):
            meant = best
    if meant is None:
        return None
    classes = _classes(meant)
    for wnid in sorted(classes - by_class.keys()):
        findings.add("layout", f"class {wnid} of {meant} has no images")
    for wnid in sorted(by_class.keys() - classes):
        findings.add("layout", f"{wnid} is no class of {meant}")
    if (count := by_class.total()) != PUBLISHED[meant]:
        findings.add("record", f"{meant} has {PUBLISHED[meant]:,} images, and here are {count:,}")
    return meant


def _classes(name: str) -> set[str]:
    return set(load_label_space(name).wnids)
