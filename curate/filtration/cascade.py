"""The exact cascade: the verdicts of the plain loop, in a fraction of its forward passes.

Most candidates leave at the centre crop of the cheapest classifier. So the views are taken in the
order centre, then one corner, each by every classifier, cheapest first, then the others of one
classifier after the other; a candidate leaves at the first view that decides, and those left are
regrouped into full batches. What remains is computed canonically: fp32, in batches of one fixed
size (on a CPU each view alone, on a GPU the ten of a candidate and classifier), on one thread.

The shared batches may run in low precision or by another runtime. Such a score decides only outside
a margin in log-odds around both limits, found on the run's own data (`margins.py`); a view within
it is looked at again by the classifier in fp32. And scores of shared batches in fp32 decide only
outside `rules.MARGIN`; a candidate within it goes to the canonical pass at once. Thus verdicts,
confusions and the shortlist rest on values that depend neither on batch size, thread count, backend
and precision, nor on what else is in the chunk. A seeded hundredth of what low precision decides is
repeated in fp32 all the same, and every survivor is: where that says otherwise the margin was too
narrow, which `Counts.flips` tells. Of a survivor by forwards that are off by no more than rounding
(`Plan.confirms`) only the views are repeated whose scores are told of it: each classifier's centre
crop, and the views that may give the true class most.

Of several views that would remove a candidate the first one counts, in the order just told. The
reasons and places in verdicts are therefore the same whether all views are computed or only those
needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.errors import ImageRefused
from curate.filtration.crops import Crops, make_crops
from curate.filtration.margins import LEAST
from curate.filtration.rules import KEEP, NO_NUMBER, REMOVED_BY, UNSURE
from curate.filtration.scores import ScoreRows, ViewScores, scores_with_softmax
from curate.filtration.terms import ChunkResult, Counts, Photo, Plan, Verdict
from curate.images.views import ViewRecipe
from curate.models.memory import in_halves

if TYPE_CHECKING:
    from curate.models.forwards import Forward

#: The number of views of an image (five crops and those of its mirror image).
VIEWS = 10

#: The views that decide first, each by every classifier: the centre, then one corner. With eager
#: fp32 batches they are the only ones before the canonical pass: more of them cost survivors, which
#: pass the canonical ten anyway, more than they save on the others (benchmarks/RESULTS.md).
SHARED_VIEWS = (0, 2)

#: One in so many decisions of low precision is repeated in fp32.
REPEAT_ONE_IN = 100


def judge_chunk(
    photos: Sequence[Photo | ImageRefused],
    targets: Sequence[int],
    plan: Plan,
    keys: Sequence[str] = (),
) -> ChunkResult:
    """Judge the candidates of one chunk.

    The calling thread must be bound to one intra-op thread (`curate.models.runtime`).

    Args:
        photos: the photos, or why there is none; such a candidate has failed.
        targets: for each, the position of its weak label in the label space; -1 without one (the
            rule outlier).
        plan: how to compute.
        keys: the candidates' keys, which seed what is repeated; by default their places.
    """
    return _Chunk(photos, targets, plan, keys or [str(n) for n in range(len(photos))]).judge()


@dataclass
class _Chunk:
    photos: Sequence[Photo | ImageRefused]
    targets: Sequence[int]
    plan: Plan
    keys: Sequence[str]
    verdicts: list[Verdict | None] = field(init=False)
    #: prediction and confidence of the first classifier's centre crop
    centre: dict[int, tuple[int, float]] = field(default_factory=dict)
    p_true: dict[int, float] = field(default_factory=dict)
    #: what a forward of low precision said of views that the canonical pass may yet contradict:
    #: by (candidate, classifier, view)
    unproven: dict[tuple[int, int, int], int] = field(default_factory=dict)
    #: sums of the softmax of a candidate's views so far, and their number, by classifier
    sums: dict[tuple[int, int], tuple[np.ndarray, int]] = field(default_factory=dict)
    #: where survivors are confirmed: log-odds of the true class by classifier and view, and those
    #: that may be borderline
    odds_true: dict[int, dict[tuple[int, int], float]] = field(default_factory=dict)
    close: set[int] = field(default_factory=set)
    forwards: int = 0
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self.verdicts = [None] * len(self.photos)
        self.scores = ScoreRows(self.plan.keep_logits, self.plan.rule.of_mean)
        device = self.plan.classifiers[0].device
        self.crops: dict[ViewRecipe, Crops] = {}
        for recipe in dict.fromkeys(self.plan.recipes):
            resized = [
                photo.resized[recipe] if isinstance(photo, Photo) else None for photo in self.photos
            ]
            self.crops[recipe] = make_crops(resized, recipe.crop, device)

    def judge(self) -> ChunkResult:
        alive: list[int] = []
        for item, photo in enumerate(self.photos):
            if isinstance(photo, ImageRefused):
                self.verdicts[item] = Verdict("failed", photo.reason)
            else:
                alive.append(item)
        unsure: list[int] = []
        if not self.plan.complete:
            for model, number in self._shared_steps():
                alive = self._shared_pass(model, number, alive, unsure)
        if self.plan.confirms and not self.plan.complete:
            alive = [item for item in alive if not self._is_confirmed(item)]
        # Where a rule passes over a view, it may still give no number.
        not_seen = not set(SHARED_VIEWS) <= set(self.plan.rule.views)
        for item in sorted(alive + unsure):
            # One that is unsure may leave at any view, so that all of them are needed to know
            # which one comes first.
            everything = self.plan.complete or self.plan.share_all or item in unsure or not_seen
            self._canonical_pass(item, everything=everything)
        assert all(verdict is not None for verdict in self.verdicts)
        verdicts = [verdict for verdict in self.verdicts if verdict]
        return ChunkResult(verdicts, self.scores, self.forwards, self.counts)

    def _shared_steps(self) -> Iterator[tuple[int, int]]:
        """(classifier, view) of the shared batches, in order."""
        deciding = self.plan.rule.views
        for model, number in self._in_order(self.plan.order):
            if number in deciding and (self.plan.share_all or number in SHARED_VIEWS):
                yield model, number

    def _shared_pass(
        self, model: int, number: int, alive: Sequence[int], unsure: list[int]
    ) -> list[int]:
        """Remove what one view of one classifier decides.

        Args:
            model: which classifier.
            number: which view.
            alive: the candidates in question.
            unsure: takes those that only the canonical pass can decide.

        Returns:
            The candidates that surely pass.
        """
        forward, odds = self.plan.forwards[model], self.plan.margins[model]
        quick = odds > 0
        said = self._judge_shared(model, number, alive, forward, odds)
        told: dict[int, int] = {}
        if quick:
            again = [item for item in alive if said[item] in (UNSURE, NO_NUMBER)]
            self.counts.quick += len(alive) - len(again)
            self.counts.again += len(again)
            if self.plan.rule.of_mean and number not in SHARED_VIEWS:
                # Looking again at all views so far would cost as much as the canonical pass.
                again = [item for item in again if said[item] == NO_NUMBER]
            repeated = [
                item
                for item in alive
                if said[item] not in (UNSURE, NO_NUMBER) and self._is_repeated(item, model, number)
            ]
            told = self._look_again(model, number, again + repeated)
            self.counts.repeated += len(repeated)
            for item in repeated:
                if told[item] == UNSURE:
                    self.unproven[item, model, number] = said[item]
                else:
                    self.counts.flips += told[item] != said[item]
            said |= told
        kept: list[int] = []
        for item in alive:
            verdict = said[item]
            if verdict == NO_NUMBER:
                self.verdicts[item] = Verdict("failed", "nan-logits", model, number)
            elif verdict == UNSURE:
                unsure.append(item)
            elif verdict == KEEP:
                kept.append(item)
                if quick and item not in told:
                    self.unproven[item, model, number] = KEEP
            else:
                self._remove(item, REMOVED_BY[verdict], model, number)
        return kept

    def _look_again(self, model: int, number: int, items: Sequence[int]) -> dict[int, int]:
        """What the classifier in fp32 says of a view that a forward of low precision has seen."""
        if not self.plan.rule.of_mean:
            return self._judge_shared(model, number, items, None, 0.0)
        # A mean holds earlier views, of low precision too: all of them are looked at again.
        for item in items:
            self.sums.pop((item, model), None)
        said = dict.fromkeys(items, KEEP)
        for _, earlier in self._in_order([model]):
            told = self._judge_shared(model, earlier, items, None, 0.0)
            if earlier == number:
                break
            # One that an earlier view does not let pass did not belong here.
            said |= {item: UNSURE for item, verdict in told.items() if verdict != KEEP}
        return {item: told[item] if said[item] == KEEP else UNSURE for item in items}

    def _judge_shared(
        self,
        model: int,
        number: int,
        items: Sequence[int],
        forward: Forward | None,
        odds: float,
    ) -> dict[int, int]:
        """What shared batches say of one view of candidates; by the classifier where no forward."""
        said: dict[int, int] = {}
        size = forward.batch_size if forward else self.plan.again_size
        for start in range(0, len(items), size):
            batch = items[start : start + size]
            scores = self._pass(model, batch, [number] * len(batch), forward, odds)
            judged = self.plan.rule.judge_with_margin(scores, odds)
            if self.plan.confirms:
                self._note(model, number, batch, scores, odds)
            if odds and (model, number) == (0, 0):
                # This view names what a candidate is taken for, whatever becomes of it.
                judged = np.where(scores.odds_lead <= odds, UNSURE, judged)
            for row, item in enumerate(batch):
                said[item] = int(judged[row]) if scores.finite[row] else NO_NUMBER
        return said

    def _note(
        self, model: int, number: int, items: Sequence[int], scores: ViewScores, odds: float
    ) -> None:
        near = self.plan.rule.borderline(scores, max(odds, LEAST))
        for row, item in enumerate(items):
            self.odds_true.setdefault(item, {})[model, number] = float(scores.odds_true[row])
            if near[row]:
                self.close.add(item)

    def _is_confirmed(self, item: int) -> bool:
        """Compute canonically what is told of a candidate that has passed all views.

        Returns:
            False if more is needed: it may be borderline, or fp32 says otherwise.
        """
        if item in self.close:
            return False
        odds = self.odds_true[item]
        # Each may be off by the margin, and so may the largest.
        most_off = max(self.plan.margins)
        least = max(odds.values()) - 2 * most_off
        told = [place for place, value in odds.items() if value >= least]
        self.p_true.pop(item, None)
        for model in self.plan.order:
            # A centre crop tells what the candidate is taken for.
            views = sorted({0, *(v for m, v in told if m == model)})
            targets = np.full(len(views), self.targets[item])
            scores = self._pass(model, [item] * len(views), views, None, 0.0, exact=True)
            judged = np.where(scores.finite, self.plan.rule.judge(scores, targets), NO_NUMBER)
            shared = np.array([odds[model, view] for view in views])
            wrong = int((np.abs(scores.odds_true - shared) > most_off).sum())
            self.counts.flips += wrong
            if judged.any() or wrong:
                return False
        for crops in self.crops.values():
            crops.drop(item)
        self._survives(item, borderline=False)
        return True

    def _survives(self, item: int, *, borderline: bool) -> None:
        predicted, confidence = self.centre[item]
        self.verdicts[item] = Verdict(
            "survivor",
            None,
            None,
            None,
            predicted,
            confidence,
            self.p_true.get(item),
            borderline,
        )

    def _is_repeated(self, item: int, model: int, number: int) -> bool:
        text = f"{self.plan.seed}:{self.keys[item]}:{model}:{number}"
        digest = hashlib.sha256(text.encode()).digest()
        return int.from_bytes(digest[:8], "big") % REPEAT_ONE_IN == 0

    def _canonical_pass(self, item: int, *, everything: bool) -> None:
        """Judge one candidate on exact scores, by the first view in the cascade's order.

        Args:
            item: which one.
            everything: compute all views of all classifiers; otherwise stop after the classifier
                that decides, which is right where the shared views are known to pass.
        """
        rule = self.plan.rule
        targets = np.full(VIEWS, self.targets[item])
        deciding = np.isin(np.arange(VIEWS), rule.views)
        self.p_true.pop(item, None)
        self.centre.pop(item, None)
        said: dict[int, np.ndarray] = {}
        borderline = False
        for model in self.plan.order:
            self.sums.pop((item, model), None)
            scores = self._pass(model, [item] * VIEWS, range(VIEWS), None, 0.0, exact=True)
            near = rule.borderline(scores) & scores.finite & deciding
            if rule.of_mean:
                # What a mean may still reach is no limit that somebody else could be across.
                near &= np.arange(VIEWS) == VIEWS - 1
            borderline |= bool(near.any())
            judged = np.where(deciding, rule.judge(scores, targets), KEEP)
            said[model] = np.where(scores.finite, judged, NO_NUMBER)
            if said[model].any() and not everything:
                break
        for crops in self.crops.values():
            crops.drop(item)
        for model, number in self._in_order(said):
            verdict = int(said[model][number])
            self.counts.flips += self.unproven.get((item, model, number), verdict) != verdict
            if verdict:
                if verdict == NO_NUMBER:
                    self.verdicts[item] = Verdict("failed", "nan-logits", model, number)
                else:
                    reason = REMOVED_BY[verdict]
                    self._remove(item, reason, model, number, borderline=borderline)
                return
        self._survives(item, borderline=borderline)

    def _in_order(self, models: Container[int]) -> Iterator[tuple[int, int]]:
        """(classifier, view) in the order in which they decide, for the classifiers computed."""
        order = [model for model in self.plan.order if model in models]
        for number in SHARED_VIEWS:
            for model in order:
                yield model, number
        for model in order:
            for number in range(VIEWS):
                if number not in SHARED_VIEWS:
                    yield model, number

    def _remove(
        self, item: int, reason: str, model: int, number: int, *, borderline: bool = False
    ) -> None:
        for crops in self.crops.values():
            crops.drop(item)
        predicted, confidence = self.centre.get(item, (None, None))
        self.verdicts[item] = Verdict(
            "removed",
            reason,
            model,
            number,
            predicted,
            confidence,
            self.p_true.get(item),
            borderline,
        )

    def _pass(
        self,
        model: int,
        items: Sequence[int],
        views: Sequence[int],
        forward: Forward | None,
        odds: float,
        *,
        exact: bool = False,
    ) -> ViewScores:
        """Run views through a forward, or the classifier, and keep their scores."""
        crops = self.crops[self.plan.recipes[model]]
        ten = exact and len(views) == VIEWS
        batch = crops.ten(items[0]) if ten else crops.batch(items, views)
        kind = "exact" if exact else "shared" if forward else "again"
        runs: Any = forward or self.plan.classifiers[model]
        size = self.plan.exact_size if exact else len(items)
        room = self.plan.room(model, kind)
        logits = np.concatenate(
            [
                _array(in_halves(runs.logits, batch[start : start + size], room))
                for start in range(0, len(items), size)
            ]
        )
        self.forwards += len(items)
        targets = np.asarray([self.targets[item] for item in items])
        scores, softmax = scores_with_softmax(logits[:, self.plan.columns[model]], targets)
        if self.plan.rule.of_mean:
            ceiling, seen = self._ceilings(model, items, views, softmax)
            scores = replace(scores, ceiling=ceiling, seen=seen)
        self.scores.add(items, model, views, scores, exact=exact, odds=odds, logits=logits)
        for row, (item, number) in enumerate(zip(items, views, strict=True)):
            if not scores.finite[row]:
                continue
            if (p_true := float(scores.p_true[row])) == p_true:
                self.p_true[item] = max(self.p_true.get(item, 0.0), p_true)
            if model == 0 and number == 0:
                self.centre[item] = (int(scores.predicted[row]), float(scores.confidence[row]))
        return scores

    def _ceilings(
        self, model: int, items: Sequence[int], views: Sequence[int], softmax: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What the mean softmax can still reach after each view, and of how many views it knows.

        Views count in the order that they decide.
        """
        ceilings, seen = np.empty(len(items)), np.empty(len(items), int)
        places = {number: place for place, (_, number) in enumerate(self._in_order([model]))}
        for row in sorted(range(len(items)), key=lambda row: places[views[row]]):
            so_far, count = self.sums.get((items[row], model), (0.0, 0))
            total = so_far + softmax[row]
            self.sums[items[row], model] = (total, count + 1)
            ceilings[row] = (total.max() + VIEWS - count - 1) / VIEWS
            seen[row] = count + 1
        return ceilings, seen


def _array(ran: Any) -> np.ndarray:
    logits: np.ndarray = ran if isinstance(ran, np.ndarray) else ran.float().cpu().numpy()
    return logits
