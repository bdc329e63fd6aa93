"""A referee: a classifier that took no part in a filter says which survivors look genuine.

It orders a queue of reviewers and decides nothing (see `annotation.order.referee_order`). What it
says is kept, so that a queue that grows asks it of the new candidates alone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from curate.catalog import reviews
from curate.errors import ImageRefused, Interrupted, UsageError
from curate.files import canonical_json, sha256_bytes
from curate.labels.space import LabelSpace
from curate.progress import progress, say, stop_on_interrupt
from pipelines.runs import as_judged, finished_run
from pipelines.threads import run_here, usable_cores
from pipelines.workspace import OUTLIER, Workspace

if TYPE_CHECKING:
    from curate.models.classifier import Classifier

#: Candidates whose words are written at a time: as many may be lost by a kill.
_TOGETHER = 256

#: Raise it when the same photo and classifier would give another word.
_WORDS = 1

# A referee's word is never 0, so that whom it could not see stands behind all others.
_LEAST = sys.float_info.min


class Refereed(Protocol):
    """What of a candidate a referee must know."""

    @property
    def key(self) -> str:
        """Its key."""

    @property
    def sha256(self) -> str:
        """Its image."""

    @property
    def extension(self) -> str:
        """That of the image's file."""

    @property
    def wnid(self) -> str:
        """Its claimed class or concept."""


@dataclass(frozen=True)
class RefereeScores:
    """What a referee says of candidates.

    Attributes:
        name: the classifier's, without folders of this machine.
        fingerprint: of its weights; with the name it goes into the manifest of what it selected.
        model: all that makes its words (see `Classifier.record`).
        p: how likely each candidate is genuine, by key; above 0.
        unread: why the photos of the others gave nothing, by key: a key of `curate.errors.REASONS`.
    """

    name: str
    fingerprint: str
    model: Mapping[str, Any]
    p: Mapping[str, float]
    unread: Mapping[str, str]

    def ordering(self, keys: Iterable[str]) -> list[float]:
        """The words on some candidates as `referee_order` takes them: 0, which stands last, where
        the referee has seen no photo."""
        return [self.p.get(key, 0.0) for key in keys]


def referee_probabilities(
    workspace: Workspace, name: str, candidates: Sequence[Refereed], *, run: str | None = None
) -> RefereeScores:
    """Ask a classifier that took no part in a run which of its candidates are genuine.

    It looks at the centre crop of its own native view, and its softmax runs over the label space of
    the run. Under the rule misclassified its word is the probability of the claimed class. Under
    the rule outlier the claimed concept is no class, and what makes a candidate worthless is a
    class of the label space in the photo: its word is the probability of all classes but the
    likeliest, so that photos in which it too is sure to see a class come last.

    Each photo passes alone and on one thread, so a word is the same to the last bit whatever else
    is asked, in any order, and after any kill (on one machine; another kind of processor may
    change it by some 1e-6). Words are kept in the catalogue as they come; what is kept is not
    computed again. A photo that gave nothing is tried again the next time.

    Args:
        workspace: of the run; its setting `filter.device` says where to compute.
        name: the classifier, as `load_classifier` takes it.
        candidates: in any order; a key that occurs twice is asked once.
        run: a finished run's id, the newest by default: its rule and label space, and the ensemble
            that the referee must not be of.

    Raises:
        UsageError: the classifier's weights were part of the ensemble (under whatever name), or
            no such run has ended.
        UnknownNameError: no such classifier, device, run or claimed class.
        MissingExtraError, WeightsError, LabelSpaceError: the classifier cannot be used, or not
            within this label space.
        DeviceError, StorageError: where it computes, or where the images are, fails.
        Interrupted: stopped by the user; the words that were there are kept.
    """
    from curate.models.runtime import tune_allocator
    from curate.models.zoo import load_classifier

    row = finished_run(workspace, run)
    workspace = as_judged(workspace, row)
    tune_allocator()
    classifier = load_classifier(
        name, workspace.label_space, device=workspace.settings.filter.device
    )
    _check_independent(classifier, row["record"]["models"], row["id"])
    referee = _Referee(workspace, classifier)
    p, unread = referee.ask({candidate.key: candidate for candidate in candidates})
    model = classifier.record()
    return RefereeScores(model["name"], classifier.fingerprint, model, p, unread)


def _check_independent(
    classifier: Classifier, ensemble: Sequence[Mapping[str, Any]], run_id: str
) -> None:
    from curate.models.classifier import public_name

    for member in ensemble:
        if member["fingerprint"] == classifier.fingerprint:
            raise UsageError(
                f"{public_name(classifier.name)} cannot be the referee: its weights "
                f"({member['name']}, {classifier.fingerprint[:8]}) took part in the filter of run "
                f"{run_id}; name a model that did not"
            )


class _Referee:
    """A classifier, and where its words are kept.

    Args:
        workspace: with the rule and label space of the run.
        classifier: on its device.
    """

    def __init__(self, workspace: Workspace, classifier: Classifier) -> None:
        self.workspace, self.classifier = workspace, classifier
        self.space: LabelSpace = workspace.label_space
        self.is_outlier = workspace.settings.filter.rule == OUTLIER
        self._columns = classifier.columns(self.space)
        on_cpu = classifier.device.type == "cpu"
        self._turn: Any = nullcontext() if on_cpu else threading.Lock()
        # The same weights say something else of other pixels, within other classes, or elsewhere.
        record = classifier.record()
        self._kept_under = sha256_bytes(
            canonical_json(
                {
                    "words": _WORDS,
                    "fingerprint": classifier.fingerprint,
                    "preprocessing": record["preprocessing"],
                    "output": record["output"]["fingerprint"],
                    "label_space": self.space.fingerprint,
                    "rule": workspace.settings.filter.rule,
                    "device": classifier.device.type,
                }
            )
        )

    def ask(self, candidates: Mapping[str, Refereed]) -> tuple[dict[str, float], dict[str, str]]:
        """Its words on candidates by key, and why some got none."""
        from curate.models.classifier import public_name

        targets = {
            key: -1 if self.is_outlier else self.space.position(one.wnid)
            for key, one in candidates.items()
        }
        keys = sorted(candidates)
        with self.workspace.catalogue.read() as connection:
            said = reviews.refereed(connection, self._kept_under, keys)
        known = {key: p for key, p in said.items() if p is not None}
        left = [key for key in keys if key not in known]
        new: dict[str, float] = {}
        unread: dict[str, str] = {}

        def look(key: str) -> float | ImageRefused:
            try:
                return self._word(candidates[key], targets[key])
            except ImageRefused as refusal:
                return refusal

        total, name = len(keys), public_name(self.classifier.name)
        with (
            stop_on_interrupt() as stop,
            progress(f"referee {name}", total, done=len(known)) as bar,
        ):
            for key, word in run_here(left, look, usable_cores(), stop):
                if isinstance(word, ImageRefused):
                    unread[key] = word.reason
                else:
                    new[key] = word
                if len(new) == _TOGETHER:
                    self._keep(new)
                    known |= new
                    new = {}
                bar.advance()
        self._keep(new)
        known |= new
        if (done := len(known) + len(unread)) < total:
            raise Interrupted(
                f"stopped: the referee has seen {done} of {total} photos, and what it said is "
                "kept; start the same command again"
            )
        if unread:
            first = min(unread)
            say(
                f"{len(unread)} of {total} photos gave {name} nothing and stand last; the first is "
                f"{candidates[first].sha256} ({unread[first]})"
            )
        return dict(sorted(known.items())), dict(sorted(unread.items()))

    def _keep(self, words: Mapping[str, float]) -> None:
        if words:
            with self.workspace.catalogue.write() as connection:
                reviews.add_refereed(connection, self._kept_under, words)

    def _word(self, candidate: Refereed, target: int) -> float:
        from curate.models.memory import device_errors
        from curate.models.runtime import bound_threads

        crop = self._crop(candidate)
        device = self.classifier.device
        with self._turn, bound_threads(1), device_errors(device):
            row = self.classifier.logits(crop[np.newaxis]).cpu().numpy()[0, self._columns]
        if not np.isfinite(row).all():
            raise ImageRefused("nan-logits")
        return word(row, target)

    def _crop(self, candidate: Refereed) -> np.ndarray:
        from curate.images.decode import decode_trusted
        from curate.images.views import resize_short_side, view

        recipe = self.classifier.preprocessing.recipe
        data = self.workspace.store.read(candidate.sha256, candidate.extension)
        image = decode_trusted(data, self.workspace.settings.images)
        return view(resize_short_side(image, recipe), 0, recipe.crop)


def word(logits: np.ndarray, target: int) -> float:
    """How likely a candidate is genuine, by a referee's logits within the label space.

    Args:
        logits: finite, of the label space's classes [C].
        target: the claimed class's place; -1 where the claim is none of them, which makes it the
            probability of all classes but the likeliest.

    Returns:
        Above 0, at most 1.
    """
    from scipy.special import softmax

    p = softmax(logits.astype(np.float64))
    # One minus the largest would be 0 for whatever is nearly sure; the sum of the others tells on.
    p_genuine = p[target] if target >= 0 else np.sort(p)[:-1].sum()
    return max(_LEAST, min(1.0, float(p_genuine)))
