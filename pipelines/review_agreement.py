"""How far annotators agree, with intervals, as every summary tells it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from annotation.answers import DECISIONS, Answer, Decision, Question, table

if TYPE_CHECKING:
    from curate.metrics.agreement import Agreement


def agreement(
    answers: Iterable[Answer], question: Question, claimed: Mapping[str, str]
) -> dict[str, Any]:
    """How far annotators agree.

    Args:
        answers: about any candidates, with earlier entries.
        question: what was asked.
        claimed: the label under which each candidate was shown.

    Returns:
        `raw`, `kappa` (its `kind` is cohen where two people answered, else fleiss), `ac1` and
        `alpha`, each with `value`, `low`, `high` (None where undefined) and `n` candidates.
    """
    from curate.metrics.agreement import (
        cohen_kappa,
        fleiss_kappa,
        gwet_ac1,
        krippendorff_alpha,
        raw_agreement,
    )

    rows = table(answers, question, claimed)
    two = not rows or len(rows[0]) == 2
    kind = "cohen" if two else "fleiss"
    if not rows:
        nothing = {"value": None, "low": None, "high": None, "n": 0}
        return {
            "raw": nothing,
            "kappa": nothing | {"kind": kind},
            "ac1": nothing,
            "alpha": nothing,
        }
    categories = [d for d in DECISIONS[question] if d is not Decision.SKIPPED]
    return {
        "raw": _told(raw_agreement(rows)),
        "kappa": _told((cohen_kappa if two else fleiss_kappa)(rows)) | {"kind": kind},
        "ac1": _told(gwet_ac1(rows, categories=categories)),
        "alpha": _told(krippendorff_alpha(rows)),
    }


def _told(measure: Agreement) -> dict[str, Any]:
    def number(value: float) -> float | None:
        return None if math.isnan(value) else value

    return {
        "value": number(measure.value),
        "low": number(measure.low),
        "high": number(measure.high),
        "n": measure.items,
    }
