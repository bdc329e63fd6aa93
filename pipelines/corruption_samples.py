"""One photo under each corruption, small, for the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from curate.errors import ImageRefused
from curate.report.corruption_page import Sample
from curate.report.thumbnails import Thumbnail
from pipelines.corruption_pictures import Pictures, Pixels, Stored, cut, decoded
from pipelines.corruption_work import damage_all
from pipelines.evaluate_credits import Credits

if TYPE_CHECKING:
    from pipelines.corruption_models import Subject
    from pipelines.corruption_plan import Setting
    from pipelines.corruption_run import Run

#: The severities that are shown, where they were measured.
SHOWN = (1, 3, 5)

_SIDE, _QUALITY = 160, 75

# Photos that are tried until one can be shown.
_TRIED = 100

# Longest side of what is corrupted for showing; whole photos may be much larger.
_LARGEST = 800


@dataclass(frozen=True)
class Shown:
    """A photo, clean and under each corruption.

    Attributes:
        path: within its dataset, untrusted.
        credit: whose it is, untrusted; empty where nothing is known.
        clean: the photo as it is.
        samples: one a corruption.
    """

    path: str
    credit: str
    clean: Thumbnail | None
    samples: Sequence[Sample]


def samples(run: Run, subject: Subject) -> Shown | None:
    """A photo of the run, clean and corrupted, as a subject sees it; None where none can be shown.

    Args:
        run: when it is measured.
        subject: whose view is shown.
    """
    if run.plan.folder is not None:
        return _on_disk(run, subject)
    pictures, recipe = run.base(subject), run.records[subject]["recipe"]
    for row in range(min(len(pictures), _TRIED)):
        source = None if row in pictures.refused else _source(pictures, row)
        if source is None:
            continue
        item = source, pictures.digests[row]
        found = []
        for name in run.known.names:
            outcomes = [
                (one.severity, *_shot(damage_all([item], run.damage(one, recipe))[0]))
                for one in _shown(run, name)
            ]
            found.append(Sample(name, outcomes))
        plain = source if pictures.before is not None else cut(source, recipe)
        path = pictures.dataset.paths[row]
        credit = Credits(pictures.dataset.layout.root, [path]).get(path)
        return Shown(path, credit, thumbnail(plain), found)
    return None


def _source(pictures: Pictures, row: int) -> Pixels | None:
    """What is corrupted of a photo, or a smaller version of a large one; None where it is bad."""
    source = pictures.source(row)
    if not isinstance(source, Stored):
        return source
    try:
        pixels = decoded(source)
    except ImageRefused:
        return None
    return smaller(pixels) if pictures.before is None else cut(pixels, pictures.before)


def smaller(pixels: Pixels) -> Pixels:
    """A photo with a longest side that is soon corrupted."""
    import numpy as np
    from PIL import Image

    image = Image.fromarray(pixels)
    image.thumbnail((_LARGEST, _LARGEST), Image.Resampling.LANCZOS)
    return np.asarray(image)


def _on_disk(run: Run, subject: Subject) -> Shown | None:
    """A photo whose corrupted forms lie on the disk, found by its path."""
    settings = [one for name in run.known.names for one in _shown(run, name) if one.dataset]
    places = [
        {path: item.path for path, item in zip(one.dataset.paths, one.dataset.layout, strict=True)}
        for one in settings
        if one.dataset
    ]
    common = set(places[0]).intersection(*places[1:]) if places else set()
    if not common:
        return None
    path, recipe = min(common), run.records[subject]["recipe"]
    found: dict[str, list[tuple[int, Thumbnail | None, str]]] = {}
    for setting, files in zip(settings, places, strict=True):
        item = Stored(files[path], ""), ""
        shot = _shot(damage_all([item], run.damage(setting, recipe))[0])
        found.setdefault(str(setting.corruption), []).append((setting.severity, *shot))
    return Shown(path, "", None, [Sample(name, shots) for name, shots in found.items()])


def _shown(run: Run, name: str) -> list[Setting]:
    """The settings of a corruption that stand on the page."""
    wanted = [one for one in run.plan.settings if one.corruption == name]
    chosen = [one for one in wanted if one.severity in SHOWN]
    return chosen or wanted[:1]


def _shot(outcome: Pixels | str) -> tuple[Thumbnail | None, str]:
    return (None, outcome) if isinstance(outcome, str) else (thumbnail(outcome), "")


def thumbnail(pixels: Pixels) -> Thumbnail:
    """Pixels as a small JPEG that stands in a page."""
    from PIL import Image

    image = Image.fromarray(pixels)
    image.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=_QUALITY, optimize=True)
    uri = "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
    return Thumbnail(uri, image.width, image.height)
