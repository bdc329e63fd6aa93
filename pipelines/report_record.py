"""What made a run, as the report page tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import RowMapping

from curate.images.views import VIEW_NAMES
from curate.report import page as shown
from pipelines.workspace import OUTLIER


def models_of(record: Mapping[str, Any], shorts: Sequence[str]) -> list[shown.Model]:
    """The classifiers of a run's record, by their short names too."""
    return [
        shown.Model(
            name=model["name"],
            short=short,
            fingerprint=model["fingerprint"],
            parameters=model["parameters"],
            preprocessing=_preprocessing(model["preprocessing"], recipe),
        )
        for short, model, recipe in zip(shorts, record["models"], record["recipes"], strict=True)
    ]


def makers(record: Mapping[str, Any]) -> dict[str, list[str]]:
    """What made the scores, by name: several values where a run went on after an upgrade."""
    found: dict[str, list[str]] = {}
    libraries = [model["libraries"] for model in record["models"]]
    for maker in [*record["made_by"], *libraries]:
        for name, value in maker.items():
            if name == "forwards":
                value = ", ".join(dict.fromkeys(f"{f['backend']} {f['precision']}" for f in value))
            told = found.setdefault(name, [])
            if str(value) not in told:
                told.append(str(value))
    return found


def made_by(
    run: RowMapping, shorts: Sequence[str], told: dict[str, list[str]]
) -> list[tuple[str, str]]:
    """What made a run, as (name, value); takes from `makers` what is no version."""
    record, summary = run["record"], run["summary"]
    space = record["label_space"]
    device, exact, shared, margins, widened, decoder = (
        ", ".join(told.pop(key))
        for key in ("device", "exact", "forwards", "margins", "widened", "decoder")
    )
    order = ", ".join(shorts[number] for number in record["order"])
    set_aside = record.get("set_aside", {})
    left_out = ", ".join(f"{flag} {count:,}" for flag, count in set_aside.items())
    return [
        ("Rule", _rule(record)),
        ("Cap", f"{record['cap']} survivors a confusion"),
        ("Order of the shortlist", f"{record['cap_order']}, seed {record['seed']}"),
        ("Views", f"{record['views']}, {len(VIEW_NAMES)} crops a photo"),
        ("Label space", f"{space['name']}, {space['classes']:,} classes"),
        ("Label space's fingerprint", space["fingerprint"]),
        ("Candidates", f"{record['candidates']:,}"),
        *([("Left out before, by quality", left_out)] if left_out else []),
        ("Candidates' fingerprint", record["set"]),
        ("Scores", "every view" if record["complete"] else "the views that decide (cascade)"),
        ("Classifiers, cheapest first", order),
        (
            "Forward passes",
            f"{summary['forwards']:,}; a plain loop takes {summary['forwards_naive']:,}",
        ),
        ("Started", f"{run['started']:%Y-%m-%d %H:%M:%S} UTC"),
        ("Ended", f"{run['finished']:%Y-%m-%d %H:%M:%S} UTC"),
        ("Computed on", device),
        ("What is exact", exact),
        ("Shared batches", shared if margins == "None" else f"{shared}, margins {margins}"),
        *([("Margins widened", widened)] if widened != "0" else []),
        ("Images decoded by", decoder),
    ]


def _rule(record: Mapping[str, Any]) -> str:
    if record["rule"] != OUTLIER:
        return f"{record['rule']}, threshold {record['threshold']}"
    whose = "the mean of the ten crops" if record["confidence"] == "mean" else "the centre crop"
    return f"{record['rule']}, confidence of {whose} at least {record['min_confidence']}"


def _preprocessing(model: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    mean, std = (
        f"{values[0]:g}" if len(set(values)) == 1 else ", ".join(f"{v:g}" for v in values)
        for values in (model["mean"], model["std"])
    )
    return (
        f"short side {recipe['resize']} ({recipe['interpolation']}), crops of {recipe['crop']}; "
        f"mean {mean}; std {std}"
    )
