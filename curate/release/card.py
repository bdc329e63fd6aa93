"""The card of a reviewed release: `README.md` as Hugging Face reads it, a datasheet with numbers.

Whatever comes from outside stands in it as text alone. It depends on the record and the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from curate.labels.space import LabelSpace
from curate.release.bias_words import (
    MOST_ROWS,
    bias_columns,
    bias_rows,
    bias_sentences,
    left_out_rows,
)
from curate.release.card_words import Words
from curate.release.loading import evaluation, first_folder
from curate.release.markdown import escaped
from curate.release.rows import Released
from curate.release.splits import CONTROL

# What the Hub knows as a licence of a whole data set; others have a file of their own.
_HUB_LICENCES = frozenset(
    (
        *("cc0-1.0", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0"),
        *("cc-by-sa-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0"),
        *("cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0"),
        "cc-by-nc-sa-4.0",
    )
)
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))

_MEASURES = {
    "raw": "same decision",
    "kappa": "kappa",
    "ac1": "Gwet's AC1",
    "alpha": "Krippendorff's alpha",
}
_RULES = {
    "unanimous": "all must say the same",
    "majority": "most must say the same",
    "weighted": "weighted by how each annotator does on items whose answer is known",
}
_QUESTIONS = {
    "misclassified": "Is this what the photo shows, clearly, and nothing else of the classes?",
    "outlier": "Does a class that the models know appear?",
}


def card(record: Mapping[str, Any], rows: Sequence[Released], space: LabelSpace) -> bytes:
    """The card of a reviewed release.

    Args:
        record: what `release.json` holds.
        rows: of the manifest.
        space: the label space, for the classes' names.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("curate.release"),
        # Not HTML: every text from outside passes through `md`.
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Callable[[Any], str]] = {
        "md": lambda text: escaped(str(text)),
        "number": lambda count: f"{count:,}",
        "share": _share,
        "interval": _interval,
    }
    environment.filters |= filters
    words = Words(record, rows)
    names = {row.wnid: row.name for row in rows}
    funnel = record["funnel_by_class"]
    stages = list(next(iter(funnel.values()))) if funnel else []
    released = Counter(row.wnid for row in rows if row.split != CONTROL)
    totals = {stage: sum(row[stage] for row in funnel.values()) for stage in stages}
    selection = record["selection"]
    counts = dict(record["counts"])
    counts["notes"] = {"exif-orientation-applied": 0} | counts["notes"]
    text = environment.get_template("card.md.j2").render(
        words=words,
        record={"changelog": "", **record},
        counts={"by_split": {}, **counts},
        selection=selection,
        left_out=[(name, count) for name, count in selection["left_out"].items() if count],
        stages=[*totals.items(), ("released", released.total())],
        funnel_stages=stages,
        funnel=[(wnid, [*row.values(), released[wnid]]) for wnid, row in sorted(funnel.items())],
        label=lambda wnid: space.get(wnid).name if wnid in space else names.get(wnid, wnid),
        agreement=_agreement(words.review),
        chosen=_chosen(record, words),
        review_told=_review(words.review),
        gold_told=_gold(words.review["gold"]),
        human_told=_human(words.review["human_accuracy"], words.is_outlier),
        metadata_told=_metadata(record),
        bias=_bias(record.get("selection_bias")),
        blocks=_blocks(record, words),
        dealt=len(selection["splits"]) > 1,
        made_by=str(record.get("built_by", {}).get("curate", "")),
    )
    return (_front_matter(record, words) + _tidy(text)).encode("utf-8", "backslashreplace")


def citation(record: Mapping[str, Any], rows: Sequence[Released]) -> bytes:
    """`CITATION.cff` of a release (Citation File Format 1.2.0)."""
    words = Words(record, rows)
    licences = [name for name in words.licences if not name.startswith("LicenseRef-")]
    told: dict[str, Any] = {
        "cff-version": "1.2.0",
        "message": "If you use this data set, please cite it with its version.",
        "type": "dataset",
        "title": words.title,
        "abstract": words.description,
        "version": record["version"],
        "authors": [{"name": name} for name in words.authors],
        "keywords": words.keywords,
    }
    if len(words.licences) == len(licences) == 1:
        told["license"] = licences[0]
    if words.url:
        told["url"] = words.url
    if words.published:
        told["date-released"] = words.published
    return _yaml(told).encode()


def _front_matter(record: Mapping[str, Any], words: Words) -> str:
    licences = [name.lower() for name in words.licences]
    one = len(licences) == 1 and licences[0] in _HUB_LICENCES
    told: dict[str, Any] = {"pretty_name": words.title, "license": licences[0] if one else "other"}
    if not one:
        told |= {"license_name": "per-image", "license_link": "ATTRIBUTION.md"}
    images = record["counts"]["images"]
    told |= {
        "task_categories": ["image-classification"],
        "size_categories": [next((s for most, s in _SIZES if images < most), "n>1M")],
        "tags": words.keywords,
    }
    splits = record["counts"].get("by_split", {})
    files = [{"split": name, "path": f"{name}/**"} for name in splits]
    told["configs"] = [
        {
            "config_name": "default",
            "data_files": files or [{"split": "test", "path": ["*/*", "metadata.jsonl"]}],
        }
    ]
    return f"---\n{_yaml(told)}---\n\n"


def _yaml(told: Mapping[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(dict(told), sort_keys=False, allow_unicode=True, width=1000))


def _blocks(record: Mapping[str, Any], words: Words) -> dict[str, str]:
    return {
        "cite": _block(words.citation),
        "load": _block(
            "from torchvision.datasets import ImageFolder",
            f'dataset = ImageFolder("{first_folder(record)}")',
        ),
        "hugging_face": _block(
            "import datasets", f'dataset = datasets.load_dataset("./{record["version"]}")'
        ),
        "evaluate": _block(evaluation(record)),
    }


def _block(*lines: str) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _chosen(record: Mapping[str, Any], words: Words) -> str:
    filtering = record["filter"]
    if words.is_outlier:
        least = filtering.get("min_confidence")
        sure = f" (at least {least})" if least is not None else ""
        rule = (
            f"A candidate survives where the models are confident{sure} of a class that it is not."
        )
    else:
        limit = filtering.get("threshold")
        above = (
            f", or gives that class a probability of more than {limit}" if limit is not None else ""
        )
        rule = (
            "A candidate is removed if any of the models takes any of ten crops of it for its "
            f"label's class{above}."
        )
    cap = filtering.get("cap")
    capped = (
        f" At most {cap} survivors of one confusion (label and prediction) are accepted."
        if cap
        else ""
    )
    return f"{rule} {_crops(filtering.get('recipes') or ())}{capped}"


def _crops(recipes: Sequence[Mapping[str, Any]]) -> str:
    sizes = list(dict.fromkeys((one["resize"], one["crop"]) for one in recipes))
    cut = "The crops are the centre, the four corners and the mirror images of these"
    if not sizes:
        return f"{cut}."
    told = " or ".join(f"{crop} pixels of the photo scaled to {resize}" for resize, crop in sizes)
    return f"{cut}: squares of {told} on its shorter side."


def _review(review: Mapping[str, Any]) -> str:
    rejected = sum(review["rejected"].values())
    why = ", ".join(f"{name} {count:,}" for name, count in review["rejected"].items())
    people = len(review["annotators"])
    first, last = review["first_day"], review["last_day"]
    days = f" on {first}" if first == last else f" between {first} and {last}"
    needed = review["answers_needed"]
    control = review["control"]
    refused = sum(control["rejected"].values())
    drawn = refused + sum(control[name] for name in ("accepted", "disputed", "waiting"))
    sample = (
        f" Of the control sample: accepted {control['accepted']:,}, rejected {refused:,}, disputed "
        f"{control['disputed']:,}, waiting {control['waiting']:,}."
    )
    return (
        f"{people} {'person' if people == 1 else 'people'} answered in Label Studio"
        f"{days if first else ''}, without knowing what a model predicts: "
        f"“{_QUESTIONS[review['question']]}” Each candidate needs "
        f"{'1 answer' if needed == 1 else f'{needed:,} answers'}; they add up by the rule "
        f"`{review['consensus']}` "
        f"({_RULES[review['consensus']]}); an adjudicator has the last word on disputed ones. "
        f"Survivors that were accepted: {review['accepted']:,}; rejected: {rejected:,}"
        f"{f' ({why})' if why else ''}; disputed and left out: {review['disputed']:,}; waiting for "
        f"answers: {review['waiting']:,}."
        f"{sample if drawn else ''}"
    )


def _agreement(review: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The measures by name; none where no photo has the answers of two people."""
    measures = review["agreement"]
    kind = {"cohen": "Cohen's kappa", "fleiss": "Fleiss' kappa"}
    return [
        (kind.get(measures[key].get("kind"), name), measures[key])
        for key, name in _MEASURES.items()
        if key in measures and measures[key]["n"]
    ]


def _gold(gold: Mapping[str, Any]) -> str:
    if not gold["asked"]:
        return "No items with a known answer were mixed in to check the annotators."
    return (
        f"Of {gold['asked']:,} answers about items whose answer is known, mixed in unseen, "
        f"{gold['right']:,} were right: {_share(gold['right'] / gold['asked'])} "
        f"(95 % interval {_interval(gold)})."
    )


def _human(human: Mapping[str, Any] | None, outlier: bool) -> str:
    if human is None or not human["accepted"]["answered"]:
        return "How well people name these photos who are not told the label was not measured."
    told = human["accepted"]
    people = len(human["annotators"])
    right = "“none of the classes” was the answer" if outlier else "the class was named rightly"
    return (
        f"Human accuracy: of {told['answered']:,} photos that were shown without their label to "
        f"{people} {'person' if people == 1 else 'people'} who had not seen them, {right} "
        f"in {told['correct']:,}: {_share(told['value'])} "
        f"(95 % interval {_interval(told)}). Skipped ones count as wrong."
    )


def _metadata(record: Mapping[str, Any]) -> str:
    counts = record["counts"]
    nothing = {
        "clean": "No file held positions, owners or serial numbers of cameras, makers' notes, or "
        "anything behind the image.",
        "strip": "No file held metadata but orientation and colour profile.",
    }
    what = {
        "clean": "Positions, owners and serial numbers of cameras, makers' notes and what follows "
        f"the image in a file were removed without touching a pixel ({counts['cleaned']:,} files; "
        "`cleaned` in the manifest).",
        "strip": "All metadata but orientation and colour profile were removed without touching a "
        f"pixel ({counts['cleaned']:,} files; `cleaned` in the manifest).",
        "keep": "Files keep their metadata; those that say where they were taken: "
        f"{counts['notes'].get('has-gps', 0):,}.",
    }[record["metadata"]]
    again = (
        f" Images in a format that loaders do not list, here as PNG of the same pixels: "
        f"{counts['reencoded']:,} (`reencoded`)."
        if counts["reencoded"]
        else ""
    )
    if not counts["cleaned"]:
        what = nothing.get(record["metadata"], what)
    return f"The photos are neither cropped nor resized. {what}{again}"


def _bias(measured: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    return {
        "columns": bias_columns(measured),
        "rows": bias_rows(measured, MOST_ROWS),
        "more": left_out_rows(measured, MOST_ROWS),
        "sentences": bias_sentences(measured),
    }


def _share(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def _interval(measure: Mapping[str, Any]) -> str:
    if measure["low"] is None:
        return "undefined"
    return f"{measure['low']:.3f} to {measure['high']:.3f}"


def _tidy(text: str) -> str:
    """Without empty lines one after another, and none between the rows of a table."""
    lines: list[str] = []
    for line in (line.rstrip() for line in text.splitlines()):
        if not line and (not lines or not lines[-1]):
            continue
        lines.append(line)
    return "\n".join(lines).strip("\n") + "\n"
