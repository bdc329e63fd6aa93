"""Photos to learn from and photos to measure on: which can be used, and which are which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from curate.errors import CurateError, ImageRefused, UsageError
from curate.files import printable, sha256_bytes
from curate.labels.space import LabelSpace
from curate.models.finetune_photos import Photo
from curate.progress import Stop
from curate.sources.folder import read_image
from pipelines.labelled import LIMITS, LabelledFolder, Looked, Refused, look

if TYPE_CHECKING:
    from PIL import Image

#: What a look said of photos: SHA-256 to a reason and what was seen, or None for a good one.
Verdicts = Mapping[str, tuple[str, str] | None]


@dataclass(frozen=True)
class Fingerprints:
    """What the photos are, whatever their files are called.

    Attributes:
        learning: SHA-256 over the lines "class id, blank, SHA-256" of the folder to learn from,
            sorted, each once; with those that cannot be used.
        validation: of the other folder; None where there is none.
    """

    learning: str
    validation: str | None


@dataclass(frozen=True)
class LearningPhotos:
    """The photos of one fine-tuning, each content once.

    Attributes:
        learning: to learn from, by class and content.
        validation: to measure on, likewise.
        refused: those that cannot be used, and why.
        fingerprints: of all of them.
        verdicts: what was said of their contents.
    """

    learning: tuple[Photo, ...]
    validation: tuple[Photo, ...]
    refused: tuple[Refused, ...]
    fingerprints: Fingerprints
    verdicts: Verdicts


class Folders:
    """The folders of one fine-tuning.

    Args:
        space: the classes.
        listed: the folder to learn from.
        other: a folder to measure on; else `share` of each class's photos is measured on.
        share: in [0, 1).
        seed: of that choice.
    """

    def __init__(
        self,
        space: LabelSpace,
        listed: LabelledFolder,
        other: LabelledFolder | None,
        share: float,
        seed: int,
    ) -> None:
        self._space, self._listed, self._other = space, listed, other
        self._share, self._seed = share, seed
        self._all = [*listed.photos, *(other.photos if other else ())]

    def fingerprints(self, stop: Stop) -> Fingerprints:
        """Read all photos without decoding them.

        Raises:
            Interrupted: stopped.
        """
        return self._fingerprints(look(self._all, stop, decodes=False))

    def look(self, stop: Stop, verdicts: Verdicts) -> LearningPhotos:
        """Read all photos, decode those that `verdicts` does not know, and sort them out.

        Raises:
            Interrupted: stopped.
        """
        looked = look(self._all, stop, verdicts=verdicts)
        refused = [*self._listed.refused, *(self._other.refused if self._other else ())]
        first: dict[str, int] = {}
        kept: list[Photo] = []
        measured: list[Photo] = []
        for n, photo in enumerate(self._all):
            refusal = looked.refusals.get(n)
            # A photo that is learned from says nothing where it is measured on.
            if refusal is None and (before := first.setdefault(looked.sha256[n], n)) != n:
                refusal = ImageRefused("duplicate-exact", f"the bytes of {self._all[before].name}")
            if refusal is not None:
                refused.append(Refused(photo.name, refusal.reason, refusal.detail))
                continue
            one = Photo(photo.path, looked.sha256[n], self._space.position(photo.wnid))
            (kept if n < len(self._listed.photos) else measured).append(one)
        kept.sort(key=_by_content)
        measured.sort(key=_by_content)
        if self._other is None:
            kept, measured = split(kept, self._share, self._seed)
        return LearningPhotos(
            tuple(kept),
            tuple(measured),
            tuple(refused),
            self._fingerprints(looked),
            {
                sha256: (looked.refusals[n].reason, looked.refusals[n].detail)
                if n in looked.refusals
                else None
                for n, sha256 in looked.sha256.items()
            },
        )

    def refuse_missing(self, photos: LearningPhotos | None = None) -> None:
        """Refuse classes without a photo to learn from.

        Args:
            photos: those that can be used; None before they were looked at.

        Raises:
            UsageError: there is one; the text names the first ones, and folders that no class is
                called.
        """
        found = self._listed.counts() if photos is None else counts(photos.learning, self._space)
        missing = [one for one in self._space if one.wnid not in found]
        if not missing:
            return
        named = ", ".join(f"{one.wnid} ({one.name})" for one in missing[:3])
        more = " …" if len(missing) > 3 else ""
        strangers = list(self._listed.passed_over)
        seen = f"; no class is called {', '.join(map(repr, strangers[:3]))}" if strangers else ""
        what = "photo" if photos is None else "usable photo"
        raise UsageError(
            f"{len(missing)} of the {len(self._space)} classes of {self._space.name} have no "
            f"{what} in {printable(self._listed.root)}: {named}{more}{seen}; add photos, or give "
            "--allow-missing"
        )

    def record(self, photos: LearningPhotos) -> dict[str, Any]:
        """What a fine-tuning's record says of its photos."""
        learned = counts(photos.learning, self._space)
        return {
            "learned_from": learned,
            "measured_on": counts(photos.validation, self._space),
            "without_photos": [wnid for wnid in self._space.wnids if wnid not in learned],
            "passed_over": dict(self._listed.passed_over),
            "refused": [asdict(one) for one in photos.refused],
        }

    def _fingerprints(self, looked: Looked) -> Fingerprints:
        many = len(self._listed.photos)
        lines: tuple[set[str], set[str]] = set(), set()
        for n, sha256 in looked.sha256.items():
            lines[n >= many].add(f"{self._all[n].wnid} {sha256}\n")
        mine, others = (sha256_bytes("".join(sorted(one)).encode()) for one in lines)
        return Fingerprints(mine, others if self._other else None)


def split(photos: Sequence[Photo], share: float, seed: int) -> tuple[list[Photo], list[Photo]]:
    """Set photos of each class apart to measure on.

    Args:
        photos: in an order that depends on content.
        share: of each class's photos, in [0, 1): rounded, but at least one where a class has two
            and the share is not 0, and never the last one.
        seed: of the choice, which depends on content besides.

    Returns:
        Those to learn from and those to measure on, in the order given.
    """
    by_class: dict[int, list[Photo]] = {}
    for photo in photos:
        by_class.setdefault(photo.target, []).append(photo)
    chosen: set[Photo] = set()
    for members in by_class.values():
        many = min(max(round(share * len(members)), int(share > 0)), len(members) - 1)
        drawn = sorted(members, key=lambda one: sha256_bytes(f"{seed}:{one.sha256}".encode()))
        chosen.update(drawn[:many])
    learned = [photo for photo in photos if photo not in chosen]
    return learned, [photo for photo in photos if photo in chosen]


def counts(photos: Sequence[Photo], space: LabelSpace) -> dict[str, int]:
    """Photos by class id, in the label space's order; classes without one are left out."""
    found = Counter(photo.target for photo in photos)
    return {wnid: found[n] for n, wnid in enumerate(space.wnids) if n in found}


def picture(photo: Photo) -> Image.Image:
    """Decode a photo that was looked at before, to the pixels that the filter sees.

    Raises:
        CurateError: its file is gone or another one by now.
    """
    from curate.images.decode import decode_trusted

    try:
        data = read_image(photo.path, LIMITS.max_bytes)
        if sha256_bytes(data) == photo.sha256:
            return decode_trusted(data, LIMITS)
        reason = "its content changed"
    except ImageRefused as refusal:
        reason = refusal.detail
    raise CurateError(
        f"{printable(photo.path)} is not what it was when the run began ({reason}): bring it back, "
        "and the same command goes on"
    )


def _by_content(photo: Photo) -> tuple[int, str]:
    return photo.target, photo.sha256
