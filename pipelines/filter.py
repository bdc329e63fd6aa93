"""Filter: score, judge, cap. One run is one ensemble, one rule and one set of candidates.

A run's id is the hash of its settings and its candidates, so the same command goes on with a run
that was cut off, and returns one that has ended (`filter_run.py`, `filter_end.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from curate.catalog import judging, overview
from curate.errors import UsageError
from curate.filtration.rules import make_rule
from curate.progress import say
from pipelines.candidate_set import CandidateSet
from pipelines.classes import overlaps, refuse_overlaps
from pipelines.engines import job_here, make_engine
from pipelines.filter_identity import differences, like
from pipelines.filter_run import FilterRun
from pipelines.rejudge import Given
from pipelines.rejudged_run import RejudgedRun
from pipelines.runs import finished_run
from pipelines.scoring import Job, Scorer
from pipelines.threads import usable_cores
from pipelines.workspace import OUTLIER, Workspace, check_label_space

#: The first candidates in the order of their keys, which are hashes: as good as drawn by lot.
_SAMPLE = 64


def run_filter(
    workspace: Workspace,
    classes: Sequence[str] = (),
    from_run: str | None = None,
    like_run: str | None = None,
) -> dict[str, Any]:
    """Filter a workspace's candidates with the ensemble and the rule of its settings.

    Args:
        workspace: what to filter.
        classes: class arguments as in the contract, files relative to the current folder; none
            selects every class. They select candidates only: softmax and argmax run over the
            workspace's whole label space.
        from_run: the id of a run whose scores are judged anew; only what they do not decide is
            scored.
        like_run: the id of a run, or a `run.json`, whose settings are taken; `classes` and those
            of the workspace that bear on verdicts do not count. What is not as it was is told.

    Returns:
        The JSON summary of the contract.

    Raises:
        UsageError: an unknown class, model or rule; weights that do not fit the label space; no
            candidates; candidates of another label space.
        BusyError: another filter is at work here.
        Interrupted: stopped by the user; the same command goes on.
    """
    with workspace.held("filter", shared=True):
        record: dict[str, Any] = {}
        if like_run is not None:
            workspace, classes, record = like(workspace, like_run)
        run = begin_run(workspace, classes, from_run)
        for difference in differences(record, run.record) if record else ():
            say(f"not as in run {record['run']}: {difference}")
        if run.finished_summary is not None:
            say(f"run {run.id} has ended before: same settings, same candidates")
            newest = finished_run(workspace)["id"]
            if newest != run.id:
                say(f"other commands take the newest run, {newest}; for this one: --run {run.id}")
            return run.finished_summary
        try:
            return run.work()
        finally:
            run.engine.close()


def begin_run(
    workspace: Workspace, classes: Sequence[str] = (), from_run: str | None = None
) -> FilterRun:
    """Everything of `run_filter` that comes before the first image: candidates, models, plan.

    The caller holds the workspace's stage "filter".
    """
    earlier = None if from_run is None else finished_run(workspace, from_run)
    if earlier is None:
        check_label_space(workspace)
    settings = workspace.settings.filter
    rule = make_rule(
        settings.rule, settings.threshold, settings.confidence, settings.min_confidence
    )
    wnids = workspace.weak_labels.select(classes, Path.cwd()) if classes else None
    candidates = CandidateSet(workspace, wnids)
    if earlier is not None:
        check_labels(workspace, wnids)
        kept = earlier["record"]["keep_logits"]
        workspace = workspace.changed({"filter.complete": False, "filter.keep_logits": kept})
    job = make_job(workspace, rule, candidates.ids[:_SAMPLE])
    cores = usable_cores()
    scorer = Scorer(job_here(settings, job), cores)
    if settings.rule == OUTLIER:
        with workspace.catalogue.read() as connection:
            concepts = overview.labels(connection) if wnids is None else wnids
        refuse_overlaps(overlaps(workspace, concepts, [c.output for c in scorer.ensemble]))
    fingerprints = tuple(model["fingerprint"] for model in scorer.ensemble.record())
    job = replace(job, fingerprints=fingerprints)
    engine = make_engine(settings, job, scorer, cores)
    if earlier is None:
        return FilterRun(workspace, candidates, job, scorer, engine)
    given = Given(workspace, earlier, scorer)
    return RejudgedRun(workspace, candidates, job, scorer, engine, given)


def check_labels(workspace: Workspace, wnids: Sequence[str] | None) -> None:
    """Refuse a label space that lacks labels of the candidates that it is to judge.

    Raises:
        UsageError: it does; the text names some.
    """
    if workspace.settings.filter.rule == OUTLIER:
        return
    with workspace.catalogue.read() as connection:
        labels = overview.labels(connection) if wnids is None else wnids
    if lacking := [wnid for wnid in labels if wnid not in workspace.label_space]:
        raise UsageError(
            f"label space {workspace.label_space.name} lacks {len(lacking)} of the candidates' "
            f"labels ({', '.join(lacking[:3])}): leave them out with --classes"
        )


def make_job(workspace: Workspace, rule: Any, sample: Sequence[int]) -> Job:
    """What workers must know of a run.

    Args:
        workspace: whose settings and images.
        rule: what removes a candidate.
        sample: ids of candidates that show how far low precision is off.
    """
    from curate.models.checkpoint import rooted

    settings = workspace.settings.filter
    with workspace.catalogue.read() as connection:
        drawn = judging.candidates_by_id(connection, sample)
    return Job(
        models=tuple(rooted(name, workspace.root) for name in settings.models),
        label_space=workspace.label_space,
        rule=rule,
        views=settings.views,
        complete=settings.complete,
        keep_logits=settings.keep_logits,
        seed=settings.seed,
        device=settings.device,
        backend=settings.backend,
        precision=settings.precision,
        limits=workspace.settings.images,
        store=workspace.store.address,
        sample=tuple(drawn),
    )
