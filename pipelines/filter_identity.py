"""What a run of the filter is known by, and what it records of its settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from curate.catalog import judging
from curate.errors import UnknownNameError, UsageError
from curate.files import canonical_json, printable, sha256_bytes
from curate.setting_groups import FilterSettings
from pipelines.candidate_set import CandidateSet
from pipelines.scoring import Scorer
from pipelines.workspace import Workspace

#: Raise it when the same settings would give other scores.
_SCORING = 3

#: Settings that say where and how fast, and change no verdict.
_WHERE = ("device", "backend", "precision", "engine", "ray_address")


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


def settings_record(
    workspace: Workspace, record: Mapping[str, Any], wnids: Sequence[str] | None
) -> dict[str, Any]:
    """The settings that repeat a run (see `like`): no secret, and no folder of this machine."""
    shown = without(workspace.settings.filter.model_dump(mode="json"), *_WHERE)
    names = zip(workspace.settings.filter.models, record["models"], strict=True)
    space = workspace.settings.label_space
    root = workspace.root
    return {
        "label_space": _shown(space, record["label_space"]["name"], root),
        "concepts": workspace.settings.concepts,
        "classes": None if wnids is None else list(wnids),
        "quality": workspace.settings.quality.model_dump(mode="json"),
        "filter": shown | {"models": [_shown(name, model["name"], root) for name, model in names]},
    }


def _shown(name: str, public: str, root: Path) -> str:
    """A model or table as the settings name it, but for folders of this machine: a file of the
    workspace is named from there, any other one by its own name."""
    family = "checkpoint/" if name.startswith("checkpoint/") else ""
    path, mark, query = name.removeprefix(family).partition("?")
    if not Path(path).is_absolute():
        return name
    if Path(path).is_relative_to(root) and "=/" not in query:
        return f"{family}{Path(path).relative_to(root).as_posix()}{mark}{query}"
    return public


def like(workspace: Workspace, run: str) -> tuple[Workspace, list[str], dict[str, Any]]:
    """The workspace with all settings of an earlier run that bear on its verdicts.

    Args:
        workspace: with the user's own settings; where to compute stays theirs.
        run: a run's id, or the path of a `run.json`, of this workspace or another one.

    Returns:
        The workspace, class arguments, and the record of that run.

    Raises:
        UnknownNameError: no run has this id.
        UsageError: the file is no `run.json`.
    """
    if run.endswith(".json"):
        try:
            told = json.loads(Path(run).read_bytes())
            settings, record = told["settings"], told
            given, classes = dict(settings["filter"]), settings["classes"]
            _check_told(record, given, classes)
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise UsageError(f"{printable(run)} is no run.json of a run: {error}") from error
    else:
        with workspace.catalogue.read() as connection:
            row = judging.run(connection, run)
            known = [one["id"] for one in judging.all_runs(connection)]
        if row is None:
            raise UnknownNameError("run", run, known)
        settings, record = row["settings"], {"run": run, **row["record"]}
        given, classes = dict(settings["filter"]), settings.get("classes")
    options: dict[str, Any] = {f"quality.{n}": v for n, v in settings.get("quality", {}).items()}
    options |= {f"filter.{name}": value for name, value in given.items() if name not in _WHERE}
    for name in ("filter.models", "filter.without"):
        options[name] = tuple(options.get(name, ()))
    return _unset(workspace, given).changed(options), list(classes or ()), record


def _unset(workspace: Workspace, given: Mapping[str, Any]) -> Workspace:
    """The workspace with the defaults of all that bears on verdicts and that a run left unset, or
    did not know yet."""
    filtering = workspace.settings.filter
    unset = {
        name: field.default
        for name, field in FilterSettings.model_fields.items()
        if name not in _WHERE and given.get(name) is None
    }
    filtering = filtering.model_copy(update=unset)
    return replace(workspace, settings=workspace.settings.model_copy(update={"filter": filtering}))


def _check_told(
    record: Mapping[str, Any], given: Mapping[str, Any], classes: Sequence[str] | None
) -> None:
    """Raise a ValueError, TypeError or KeyError where a `run.json` lacks what it needs."""
    for one in (*record["models"], record["label_space"]):
        if not isinstance(one["fingerprint"], str):
            raise TypeError("a fingerprint that is no text")
    for name in ("run", "set"):
        if not isinstance(record[name], str):
            raise TypeError(f"its {name} is no text")
    if type(record["candidates"]) is not int:
        raise TypeError("its candidates are no number")
    for some in (classes or [], given["models"], given["without"]):
        if not (isinstance(some, list) and all(isinstance(name, str) for name in some)):
            raise TypeError("a list of names is none")
    if unknown := sorted(set(given) - set(FilterSettings.model_fields)):
        raise ValueError(f"unknown setting {unknown[0]!r}")


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What of a run is not as it was, in words."""
    found = []
    for one, other in zip(then["models"], now["models"], strict=False):
        if one["fingerprint"] != other["fingerprint"]:
            found.append(f"other weights for {other['name']}")
        elif without(one, "libraries") != without(other, "libraries"):
            found.append(f"another network or preprocessing for {other['name']}")
    if then["label_space"]["fingerprint"] != now["label_space"]["fingerprint"]:
        found.append("another label space")
    if then["set"] != now["set"]:
        found.append(f"other candidates ({then['candidates']:,} then, {now['candidates']:,} now)")
    apart = ("models", "label_space", "set", "candidates", "made_by", "run", "settings")
    for name in sorted({*then, *now} - set(apart)):
        if then.get(name) != now.get(name):
            found.append(f"{name}: {then.get(name)} then, {now.get(name)} now")
    return found
