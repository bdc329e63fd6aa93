"""Judging anew from stored scores, without a forward pass where they suffice.

Scores of a cascade hold, for a candidate that was removed, the views up to the one that decided.
Another threshold may be decided by the same views, or need further ones. A score that is not exact
meets the new limit with the margin that it was made under, so that what is decided here is what a
run from the start would decide; what is not is for the networks to look at again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from curate.filtration.cascade import SHARED_VIEWS, VIEWS
from curate.filtration.rules import KEEP, REMOVED_BY, UNSURE, Rule
from curate.filtration.scores import ViewScores, scores_with_softmax
from curate.filtration.terms import NEARLY_EXACT, Verdict

if TYPE_CHECKING:
    import pyarrow as pa

#: The views of one classifier in the order in which they decide.
_DECIDING = [*SHARED_VIEWS, *(view for view in range(VIEWS) if view not in SHARED_VIEWS)]


@dataclass(frozen=True)
class StoredScores:
    """The stored scores of N candidates by M classifiers, dense: [N, M, 10] each.

    Attributes:
        there: whether the view was computed.
        p_true: as in `ViewScores`; NaN where absent.
        predicted: position in the label space; -1 where absent.
        confidence: NaN where absent.
        exact: whether the score is from the canonical pass.
        odds: the most that its log-odds may be off.
        ceiling: of the rule that judges the mean; None where neither the run judged one nor logits
            tell it.
        gap: of scores that were computed anew from logits; None where it is known only if another
            class is predicted (that the true class was, was certain when the score was kept).
        odds_gap: likewise.
    """

    there: np.ndarray
    p_true: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray
    exact: np.ndarray
    odds: np.ndarray
    ceiling: np.ndarray | None = None
    gap: np.ndarray | None = None
    odds_gap: np.ndarray | None = None


def stored_scores(
    table: pa.Table, keys: Sequence[str], wnids: Sequence[str], models: int
) -> StoredScores:
    """Scores as their run kept them.

    Args:
        table: rows of `ScoreRows.table`, of these candidates among others.
        keys: N keys of candidates, each once.
        wnids: the label space's ids by position.
        models: M.
    """
    index, rows = _places(table, keys)
    known = {wnid: position for position, wnid in enumerate(wnids)}
    named = table["predicted_wnid"].combine_chunks().dictionary_encode()
    positions = np.array([known.get(wnid, -1) for wnid in named.dictionary.to_pylist()] or [-1])
    predicted = positions[named.indices.to_numpy(zero_copy_only=False)]
    shape = (len(keys), models, VIEWS)

    def dense(values: np.ndarray, empty: object, dtype: type) -> np.ndarray:
        made: np.ndarray = np.full(shape, empty, dtype)
        made[index] = values[rows]
        return made

    ceiling = None
    if "ceiling" in table.column_names:
        ceiling = dense(_floats(table, "ceiling"), np.nan, float)
    return StoredScores(
        there=dense(np.ones(len(table), bool), False, bool),
        p_true=dense(_floats(table, "p_true"), np.nan, float),
        predicted=dense(predicted, -1, int),
        confidence=dense(_floats(table, "confidence"), np.nan, float),
        exact=dense(table["exact"].to_numpy(), False, bool),
        odds=dense(_floats(table, "odds_margin"), 0.0, float),
        ceiling=ceiling,
    )


def scores_from_logits(
    table: pa.Table,
    keys: Sequence[str],
    targets: np.ndarray,
    columns: Sequence[np.ndarray],
    *,
    trust_margins: bool,
    of_mean: bool = False,
) -> StoredScores:
    """Scores of kept logits: within another label space, under another label, or of the mean.

    Args:
        table: rows of `ScoreRows.table` with logits.
        keys: N keys as they stand in the table; one may stand for several candidates.
        targets: [N], positions of the true classes in the label space; -1 without one.
        columns: for each of M classifiers the columns of its output that the label space reads.
        trust_margins: whether the stored margins hold: they were found within the columns of the
            run, and say nothing of others. Where they do not, low precision decides nothing.
        of_mean: also compute the ceilings of a rule that judges the mean. `exact` and `odds` of a
            view are then those of all views that its ceiling knows.
    """
    index, rows = _places(table, keys)
    items, models, views = index
    shape = (len(keys), len(columns), VIEWS)
    flat = table["logits"].combine_chunks()
    exact, odds = table["exact"].to_numpy()[rows], _floats(table, "odds_margin")[rows]
    if not trust_margins:
        odds = np.where(odds > 0, np.inf, 0.0)
    made: dict[str, np.ndarray] = {
        name: np.full(shape, np.nan) for name in ("p_true", "confidence", "gap", "odds_gap")
    }
    predicted = np.full(shape, -1)
    there, is_exact, off = np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape)
    there[index], is_exact[index], off[index] = True, exact, odds
    ceiling = np.full(shape, np.nan) if of_mean else None
    values = flat.flatten().to_numpy()
    offsets = flat.offsets.to_numpy() - flat.offsets[0].as_py()
    for model, wanted in enumerate(columns):
        mine = np.flatnonzero(models == model)
        if not len(mine):
            continue
        logits = values[offsets[rows[mine]][:, None] + wanted[None, :]]
        scores, softmax = scores_with_softmax(logits, targets[items[mine]])
        place = (items[mine], models[mine], views[mine])
        if ceiling is not None:
            ceiling[:, model] = _ceilings(softmax, items[mine], views[mine], len(keys))
        predicted[place] = scores.predicted
        for name, target in made.items():
            target[place] = getattr(scores, name)
    if of_mean:
        is_exact[..., _DECIDING] = np.logical_and.accumulate(is_exact[..., _DECIDING], axis=2)
        off[..., _DECIDING] = np.maximum.accumulate(off[..., _DECIDING], axis=2)
    return StoredScores(
        there,
        made["p_true"],
        predicted,
        made["confidence"],
        is_exact,
        off,
        ceiling,
        made["gap"],
        made["odds_gap"],
    )


def _ceilings(softmax: np.ndarray, items: np.ndarray, views: np.ndarray, count: int) -> np.ndarray:
    """What the mean softmax can still reach after each view, as the cascade computes it.

    Args:
        softmax: [B, C] of one classifier.
        items: [B], whose view each row is, out of `count`.
        views: [B].

    Returns:
        [count, 10]; NaN for a view that is absent, or comes after one that is.
    """
    rows = np.full((count, VIEWS), -1)
    rows[items, views] = np.arange(len(items))
    found = np.full((count, VIEWS), np.nan)
    going = np.arange(count)
    totals = np.zeros((count, softmax.shape[1]))
    for seen, view in enumerate(_DECIDING, start=1):
        going = going[rows[going, view] >= 0]
        totals[going] += softmax[rows[going, view]]
        found[going, view] = (totals[going].max(axis=1) + VIEWS - seen) / VIEWS
    return found


def judge_stored(
    stored: StoredScores, targets: np.ndarray, rule: Rule, order: Sequence[int]
) -> list[Verdict | None]:
    """The verdict of each candidate that its stored scores decide; None where they do not.

    Args:
        stored: N candidates.
        targets: [N], positions of the true classes in the label space; -1 without one.
        rule: the rule, which may be another one than the scores were made for.
        order: positions of the classifiers, the cheapest first.
    """
    count = len(targets)
    verdicts: list[Verdict | None] = [None] * count
    if rule.of_mean and stored.ceiling is None:
        return verdicts
    p_true = _largest(stored.p_true)
    codes = np.stack(
        [
            np.stack([_codes(stored, targets, rule, m, v) for v in range(VIEWS)], axis=1)
            for m in range(stored.there.shape[1])
        ],
        axis=1,
    )
    near = np.zeros(count, bool)
    deciding = rule.views[-1:] if rule.of_mean else rule.views
    for model in range(stored.there.shape[1]):
        for view in deciding:
            exact = stored.exact[:, model, view]
            near |= exact & rule.borderline(_scores(stored, targets, model, view))

    def verdict(item: int, outcome: str, reason: str | None, place: tuple[int, int] | None) -> None:
        predicted = int(stored.predicted[item, 0, 0])
        verdicts[item] = Verdict(
            outcome,
            reason,
            place[0] if place else None,
            place[1] if place else None,
            None if predicted < 0 else predicted,
            None if predicted < 0 else float(stored.confidence[item, 0, 0]),
            None if np.isnan(p_true[item]) else float(p_true[item]),
            bool(near[item]),
        )

    alive = np.ones(count, bool)
    for model, view in _in_order(rule, order):
        said = codes[:, model, view]
        alive &= stored.there[:, model, view] & (said != UNSURE)
        leaves = alive & (said != KEEP)
        for item in np.flatnonzero(leaves):
            verdict(int(item), "removed", REMOVED_BY[int(said[item])], (model, view))
        alive &= ~leaves
    sure, p_true = _surviving(stored, targets, rule, p_true)
    for item in np.flatnonzero(alive & sure):
        verdict(int(item), "survivor", None, None)
    return verdicts


def _surviving(
    stored: StoredScores, targets: np.ndarray, rule: Rule, p_true: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Whose scores suffice for a survivor, if no view decides; and its largest p_true.

    Either all are canonical, or they are nearly exact, none may be borderline, and canonical are
    those that are told of it (see `cascade`).
    """
    whole = stored.there.all(axis=(1, 2))
    exact = (stored.exact & stored.there).all(axis=(1, 2))
    if rule.of_mean or len(rule.views) < VIEWS:
        return exact, p_true
    off = stored.odds.max(axis=(1, 2))
    with np.errstate(invalid="ignore"):
        log_odds = _log_odds(stored.p_true)
        told = log_odds >= (log_odds.max(axis=(1, 2)) - 2 * off)[:, None, None]
    told[:, :, 0] = True
    nearly = whole & (off > 0) & (off <= NEARLY_EXACT) & (stored.exact | ~told).all(axis=(1, 2))
    for model in range(stored.there.shape[1]):
        for view in range(VIEWS):
            scores = _scores(stored, targets, model, view)
            nearly &= stored.exact[:, model, view] | ~rule.borderline(scores, NEARLY_EXACT)
    largest = np.where(stored.exact, stored.p_true, -1.0).max(axis=(1, 2))
    return exact | nearly, np.where(nearly & ~exact & ~np.isnan(p_true), largest, p_true)


def rewritten(
    table: pa.Table,
    chosen: Sequence[tuple[str, str, int]],
    stored: StoredScores,
    wnids: Sequence[str],
) -> pa.Table:
    """Stored rows as another label space, another label, or a rule of the mean has them.

    Args:
        table: rows of `ScoreRows.table`.
        chosen: for each candidate its key in the table, its own key, and its item in `stored`.
        stored: scores within the other label space.
        wnids: its ids by position.

    Returns:
        The candidates' rows with the columns of `ScoreRows.table`, sorted by candidate, model and
        view; with ceilings where `stored` has some.
    """
    import pyarrow as pa

    old = np.array(table["candidate"].to_pylist(), object)
    model, view = (table[name].to_numpy().astype(int) for name in ("model", "view"))
    ordered = sorted(chosen, key=lambda one: one[1])
    pieces = [(np.flatnonzero(old == was), key, item) for was, key, item in ordered]
    rows = np.concatenate([found for found, _, _ in pieces] or [np.zeros(0, int)])
    keys = [key for found, key, _ in pieces for _ in found]
    place = (
        np.concatenate([np.full(len(found), item) for found, _, item in pieces] or [rows]),
        model[rows],
        view[rows],
    )
    taken = table.take(pa.array(rows))
    p_true = stored.p_true[place]
    told = {
        "candidate": pa.array(keys, pa.string()),
        "p_true": pa.array(p_true, pa.float64(), mask=np.isnan(p_true)),
        "predicted_wnid": pa.array([wnids[n] for n in stored.predicted[place]], pa.string()),
        "confidence": pa.array(stored.confidence[place], pa.float64()),
    }
    names = [name for name in table.column_names if name != "ceiling"]
    if stored.ceiling is not None:
        ceiling = stored.ceiling[place]
        told["ceiling"] = pa.array(ceiling, pa.float64(), mask=np.isnan(ceiling))
        names.insert(names.index("odds_margin") + 1, "ceiling")
    return pa.table({name: told[name] if name in told else taken[name] for name in names})


def _codes(
    stored: StoredScores, targets: np.ndarray, rule: Rule, model: int, view: int
) -> np.ndarray:
    if view not in rule.views:
        return np.full(len(targets), KEEP)
    scores = _scores(stored, targets, model, view)
    exact = rule.judge(scores, targets)
    with_margin = rule.judge_with_margin(scores, stored.odds[:, model, view])
    return np.where(stored.exact[:, model, view], exact, with_margin)


def _scores(stored: StoredScores, targets: np.ndarray, model: int, view: int) -> ViewScores:
    """One view of one classifier of all candidates."""
    p_true, confidence = stored.p_true[:, model, view], stored.confidence[:, model, view]
    predicted = stored.predicted[:, model, view]
    if stored.gap is None or stored.odds_gap is None:
        # Where another class is predicted its lead is known; the true class' own is not.
        other = predicted != targets
        with np.errstate(divide="ignore"):
            gap = np.where(other, p_true - confidence, 1.0)
            odds_gap = np.where(other, np.log(p_true) - np.log(confidence), np.inf)
    else:
        gap, odds_gap = stored.gap[:, model, view], stored.odds_gap[:, model, view]
    return ViewScores(
        p_true,
        predicted,
        confidence,
        gap,
        _log_odds(p_true),
        odds_gap,
        _log_odds(confidence),
        np.full(len(targets), np.inf),
        stored.there[:, model, view],
        None if stored.ceiling is None else stored.ceiling[:, model, view],
    )


def _in_order(rule: Rule, order: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(classifier, view) in the order in which they decide (see `cascade`)."""
    for view in SHARED_VIEWS:
        for model in order:
            if view in rule.views:
                yield model, view
    for model in order:
        for view in range(VIEWS):
            if view in rule.views and view not in SHARED_VIEWS:
                yield model, view


def _places(
    table: pa.Table, keys: Sequence[str]
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Where rows of the table go: (item, model, view), and the rows themselves."""
    by_key: dict[str, list[int]] = {}
    for item, key in enumerate(keys):
        by_key.setdefault(key, []).append(item)
    encoded = table["candidate"].combine_chunks().dictionary_encode()
    named = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    most = max((len(by_key.get(key, ())) for key in named), default=0)
    found_items, found_rows = [], []
    for nth in range(most):
        items = np.array([(*by_key.get(key, ()), *[-1] * most)[nth] for key in named])
        mine = items[codes]
        rows = np.flatnonzero(mine >= 0)
        found_items.append(mine[rows])
        found_rows.append(rows)
    rows = np.concatenate(found_rows) if found_rows else np.zeros(0, int)
    items = np.concatenate(found_items) if found_items else np.zeros(0, int)
    model, view = (table[name].to_numpy().astype(int)[rows] for name in ("model", "view"))
    return (items, model, view), rows


def _floats(table: pa.Table, name: str) -> np.ndarray:
    return np.asarray(table[name].to_numpy(zero_copy_only=False), float)


def _log_odds(p: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p) - np.log1p(-p))


def _largest(p_true: np.ndarray) -> np.ndarray:
    known = ~np.isnan(p_true)
    largest = np.where(known, p_true, -1.0).max(axis=(1, 2))
    return np.where(known.any(axis=(1, 2)), largest, np.nan)
