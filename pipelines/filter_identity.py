"""What a run of the filter is known by, and what it records of its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from curate.files import canonical_json, sha256_bytes
from pipelines.candidate_set import CandidateSet
from pipelines.scoring import Scorer
from pipelines.workspace import Workspace

#: Raise it when the same settings would give other scores.
_SCORING = 2


def identity(
    workspace: Workspace,
    candidates: CandidateSet,
    scorer: Scorer,
    from_run: str | None = None,
) -> tuple[str, str, dict[str, Any]]:
    """What a run is known by.

    Backend, precision, device and engine have no part in it: they change no verdict.

    Args:
        workspace: whose settings.
        candidates: what is judged.
        scorer: of the run.
        from_run: the run whose scores are judged anew: other views may be stored than a run from
            the start would compute.

    Returns:
        The id of its scores, its own id, and its record.
    """
    settings, space, plan = workspace.settings.filter, workspace.label_space, scorer.outline
    scoring = {
        "models": scorer.ensemble.record(),
        "label_space": {
            "name": space.name,
            "classes": len(space),
            "fingerprint": space.fingerprint,
        },
        **plan.rule.record(),
        "views": settings.views,
        "recipes": [asdict(recipe) for recipe in plan.recipes],
        "order": list(plan.order),
        "complete": settings.complete,
        "keep_logits": settings.keep_logits,
    }
    if from_run is not None:
        scoring["from_run"] = from_run
    record = scoring | {
        "cap": settings.cap,
        "cap_order": settings.cap_order,
        "seed": settings.seed,
        "candidates": len(candidates.ids),
        "set": candidates.set_hash,
        "chunk": candidates.chunk_size,
    }
    # Versions of libraries may differ between two starts of one run; what decides may not.
    decides = scoring | {
        "models": [without(model, "libraries") for model in scoring["models"]],
        "set": candidates.set_hash,
        "chunk": candidates.chunk_size,
        "scoring": _SCORING,
    }
    scores_id = sha256_bytes(canonical_json(decides))[:12]
    caps: list[Any] = [scores_id, settings.cap, settings.cap_order, settings.seed]
    if settings.cap_order == "arrival":
        caps.append(candidates.arrival_hash())
    if settings.cap_order == "quality":
        caps.append(candidates.flagged_hash())
    if settings.without:
        left_out = {"without": sorted(settings.without), "set_aside": candidates.set_aside}
        record |= left_out
        caps.append(left_out)
    if settings.control:
        record |= {"control": len(candidates.control)}
        caps.append({"control": settings.control})
    return scores_id, sha256_bytes(canonical_json(caps))[:12], record


def without(mapping: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The mapping but for some of its keys."""
    return {key: value for key, value in mapping.items() if key not in names}


def settings_record(workspace: Workspace, record: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a run shows: no secret, and no folder of this machine."""
    shown = workspace.settings.filter.model_dump(mode="json")
    return {
        "label_space": record["label_space"]["name"],
        "filter": shown | {"models": [model["name"] for model in record["models"]]},
    }
