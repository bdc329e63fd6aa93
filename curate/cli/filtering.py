"""`curate filter` and `curate shortlist`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.choices import (
    QUALITY_FLAGS,
    STAGES,
    Backend,
    CapOrder,
    ConfidenceOf,
    Engine,
    Precision,
    Views,
)
from curate.cli.common import (
    ByClass,
    Classes,
    Debug,
    Form,
    Json,
    Run,
    Strict,
    counts,
    emit,
    ray_address_option,
    shared,
    table,
    workspace,
    write_result,
)
from curate.errors import UnknownNameError, UsageError, VerificationError


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("filter")(filter_)
    app.command()(shortlist)


def filter_(
    classes: Classes = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="What removes a candidate: misclassified (ImageNet-A) or outlier (ImageNet-O). "
            "Example: --rule outlier. Default: the setting (misclassified).",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A classifier of the ensemble; repeat it; the first names the confusion. "
            "Example: --model lite/efficientnet_lite0 --model torchvision/resnet50. Default: the "
            "setting (lite/efficientnet_lite0 and lite1).",
            show_default=False,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Most probability that a view may give the true class. Example: --threshold 0.15. "
            "Default: the setting (0.15).",
            show_default=False,
        ),
    ] = None,
    confidence: Annotated[
        ConfidenceOf | None,
        typer.Option(
            help="Rule outlier: whose confidence counts, that of the centre crop or that of the "
            "mean softmax of the ten crops. Example: --confidence mean. Default: the setting "
            "(centre).",
            show_default=False,
        ),
    ] = None,
    min_confidence: Annotated[
        float | None,
        typer.Option(
            help="Rule outlier: least confidence that every model must have. Example: "
            "--min-confidence 0.95. Default: the setting (0.9).",
            show_default=False,
        ),
    ] = None,
    cap: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most survivors a confusion on the shortlist. Example: --cap 15. Default: the "
            "setting (15).",
            show_default=False,
        ),
    ] = None,
    cap_order: Annotated[
        CapOrder | None,
        typer.Option(
            help="Which survivors come first: hash is seeded and blind to all but content; quality "
            "is the same with flagged photos last. Example: --cap-order confidence. Default: the "
            "setting (hash).",
            show_default=False,
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave out candidates with one of these quality flags (small, uniform, dark, "
            "bright, blurred, odd-aspect), comma-separated or repeated. Example: --without "
            "blurred,dark. Default: the setting (none).",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seeds the order hash. Example: --seed 1. Default: the setting (0).",
            show_default=False,
        ),
    ] = None,
    views: Annotated[
        Views | None,
        typer.Option(
            help="How the ten crops are cut: paper is 256 and 224 for all, native each "
            "classifier's own. Example: --views native. Default: the setting (paper).",
            show_default=False,
        ),
    ] = None,
    complete: Annotated[
        bool | None,
        typer.Option(
            "--complete",
            help="Score every view of every image, also where a verdict is clear. "
            "Example: --complete. Default: the setting (off).",
            show_default=False,
        ),
    ] = None,
    keep_logits: Annotated[
        bool | None,
        typer.Option(
            "--keep-logits",
            help="Keep the full logits beside the scores. Example: --keep-logits. Default: the "
            "setting (off).",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="auto, cpu, cuda, cuda:1, mps. Example: --device cpu. Default: the setting "
            "(auto).",
            show_default=False,
        ),
    ] = None,
    backend: Annotated[
        Backend | None,
        typer.Option(
            help="What runs the networks where they need not be exact to the last bit; verdicts "
            "are the same with each. auto takes the fastest that is installed. Example: --backend "
            "torch. Default: the setting (auto).",
            show_default=False,
        ),
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="In which numbers, where they need not be exact to the last bit; verdicts are the "
            "same with each. Example: --precision bf16. Default: the setting (auto).",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        Engine | None,
        typer.Option(
            help="Where candidates are scored: local or ray. Example: --engine ray. Default: the "
            "setting (local).",
            show_default=False,
        ),
    ] = None,
    ray_address: Annotated[
        str | None, ray_address_option("the setting (one of this machine's own)")
    ] = None,
    control: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Draw N candidates before the filter as a control sample. Example: --control 200. "
            "Default: the setting (0).",
            show_default=False,
        ),
    ] = None,
    from_run: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Judge the scores of this run anew, with another threshold, cap or classes; only "
            "views that it lacks are scored. Example: --from-run 1d6f2a632a1c --threshold 0.2. "
            "Default: none.",
            show_default=False,
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Take the settings of this run, or of a run.json of another workspace, and tell "
            "what is not as it was. Example: --like 1d6f2a632a1c. Default: none.",
            show_default=False,
        ),
    ] = None,
    label_space: Annotated[
        str | None,
        typer.Option(
            help="With --from-run, where that run kept its logits: judge within another label "
            "space. Example: --label-space imagenet-1k. Default: the workspace's.",
            show_default=False,
        ),
    ] = None,
    by_class: ByClass = False,
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove what any crop of any model gets right; cap what is left; make the shortlist.

    Example: curate filter --classes dragonfly,goldfinch
    """
    from pipelines.filter import run_filter
    from pipelines.runs import as_judged, finished_run
    from pipelines.status import run_by_class

    if label_space is not None and from_run is None:
        raise UsageError("--label-space judges kept logits anew: name their run with --from-run")
    decides = (
        classes, rule, model, threshold, confidence, min_confidence, cap, cap_order, without, seed,
        control, views, complete, keep_logits, from_run,
    )  # fmt: skip
    if like is not None and any(value is not None for value in decides):
        raise UsageError("--like takes what decides from that run: leave the other options out")
    opened = workspace(
        {
            "label_space": label_space,
            "filter.rule": rule,
            "filter.models": tuple(map(_from_here, model)) if model else None,
            "filter.threshold": threshold,
            "filter.confidence": confidence,
            "filter.min_confidence": min_confidence,
            "filter.backend": backend,
            "filter.precision": precision,
            "filter.engine": engine,
            "filter.ray_address": ray_address,
            "filter.control": control,
            "filter.cap": cap,
            "filter.cap_order": cap_order,
            "filter.without": None if without is None else _flags(without),
            "filter.seed": seed,
            "filter.views": views,
            "filter.device": device,
            "filter.complete": complete,
            "filter.keep_logits": keep_logits,
        }
    )
    if ray_address is not None and opened.settings.filter.engine != "ray":
        raise UsageError("--ray-address names a cluster for Ray to join: add --engine ray")
    summary = run_filter(opened, classes or (), from_run, like)
    if "failed_list" in summary:
        summary = summary | {"failed_list": str(opened.root / summary["failed_list"])}
    text = funnel_text(summary)
    if by_class:
        judged = as_judged(opened, finished_run(opened, summary["run"]))
        rows = run_by_class(judged, summary["run"])
        summary = summary | {"by_class": rows}
        text += "\n\n" + by_class_text(rows)
    emit(summary, text)
    if strict and summary["failed"]:
        raise VerificationError(f"{summary['failed']} candidates could not be scored")


def _flags(given: Sequence[str]) -> tuple[str, ...]:
    names = [name for text in given for name in text.replace(" ", "").split(",") if name]
    for name in names:
        if name not in QUALITY_FLAGS:
            raise UnknownNameError("quality flag", name, QUALITY_FLAGS)
    return tuple(names)


def _from_here(name: str) -> str:
    """A model as the user names it: a checkpoint's files lie in the current folder."""
    if not name.startswith("checkpoint/"):
        return name
    from curate.models.checkpoint import rooted

    return rooted(name, Path.cwd())


def funnel_text(summary: Mapping[str, Any]) -> str:
    """The paper's funnel as text."""
    removed = sum(summary["removed"].values())
    why = f"  ({counts(summary['removed'])})" if removed else ""
    set_aside = summary.get("set_aside", {})
    rows = [
        *(
            [f"set aside   {sum(set_aside.values()):>9,}  ({counts(set_aside)})"]
            if set_aside
            else []
        ),
        f"candidates  {summary['candidates']:>9,}",
        f"removed     {removed:>9,}{why}",
        f"survivors   {summary['survivors']:>9,}",
        f"shortlisted {summary['shortlisted']:>9,}"
        + (f"  ({summary['capped']:,} over the cap)" if summary["capped"] else ""),
    ]
    if summary.get("control"):
        rows.append(f"control     {summary['control']:>9,}  (see: curate shortlist --control)")
    if summary.get("borderline"):
        rows.append(f"borderline  {summary['borderline']:>9,}  (survivors within 0.001 of a limit)")
    if summary["failed"]:
        listed = summary.get("failed_list", "")
        rows.append(f"failed      {summary['failed']:>9,}  (see {listed})")
    fewer = summary["forwards_naive"] / max(summary["forwards"], 1)
    saved = f" ({fewer:.1f} times fewer than ten crops of every model)" if fewer > 1 else ""
    rows.append(
        f"run {summary['run']}: {summary['forwards']:,} forward passes{saved} "
        f"in {summary['seconds']:.1f} s"
    )
    if precision := summary.get("precision"):
        again, quick = precision["again"], precision["quick"]
        rows.append(
            f"low precision decided {quick:,} views, fp32 looked again at {again:,}; of "
            f"{precision['repeated']:,} decisions repeated in fp32 {precision['flips']} differ: at "
            f"most {100.0 * precision['flip_rate_below']:.3g} % of all "
            f"({precision['confidence']:.0%} sure)"
        )
    return "\n".join(rows)


def by_class_text(by_class: Mapping[str, Mapping[str, Any]]) -> str:
    """The funnel of each class as text."""
    told = {stage for row in by_class.values() for stage in row}
    stages = [stage for stage in STAGES if stage in told]
    rows = [
        [wnid, row["name"], *(row.get(stage, 0) for stage in stages)]
        for wnid, row in by_class.items()
    ]
    return table(["wnid", "class", *stages], rows)


def shortlist(
    run: Run = None,
    control: Annotated[
        bool,
        typer.Option(
            "--control",
            help="Print the run's control sample instead, drawn before the filter. Example: "
            "--control",
        ),
    ] = False,
    form: Form = "csv",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the shortlist in review order.

    Example: curate shortlist --format csv > shortlist.csv
    """
    from pipelines.runs import (
        as_judged,
        control_cells,
        control_text,
        finished_run,
        read_shortlist,
        shortlist_cells,
        shortlist_flags,
        shortlist_text,
    )

    opened = workspace()
    row = finished_run(opened, run)
    opened = as_judged(opened, row)
    if control:
        run_id = row["id"]
        cells = control_cells(opened, run_id)
        if shared.json:
            emit({"run": run_id, "control": cells})
        else:
            write_result([control_text(cells, form)])
        return
    run_id, rows = read_shortlist(opened, row["id"])
    flags = shortlist_flags(opened, rows)
    if shared.json:
        cells = [shortlist_cells(row, opened, flags) for row in rows]
        emit({"run": run_id, "shortlist": cells})
    else:
        write_result([shortlist_text(rows, opened, flags, form)])
