"""Collect from public sources and from lists of addresses: what the commands start."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from curate.catalog import hits
from curate.errors import SettingsError, UnknownNameError, UsageError, few
from curate.files import printable
from curate.labels.concepts import with_queries
from curate.progress import Stop, say
from curate.sources.protocol import Source
from curate.sources.states import OPEN, STATES, is_failure, is_state
from pipelines.classes import overlaps, refuse_overlaps
from pipelines.collect import Collected
from pipelines.harvest import Harvest, Plan
from pipelines.network import Network, SourceModule, source_module
from pipelines.policy import Policy
from pipelines.queries import queries_of
from pipelines.searching import Ask
from pipelines.workspace import OUTLIER, Workspace, pin_label_space

#: What has not failed.
_NOT_AGAIN = frozenset((*OPEN, "downloaded"))


def collect_public(
    workspace: Workspace,
    name: str,
    wnids: Sequence[str],
    *,
    limit: int | None = 500,
    queries: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    refresh: bool = False,
    allow_unknown_licence: bool = False,
    retry_failed: str | None = None,
) -> Collected:
    """Search a public source for classes, and download what it finds.

    The same command goes on where an earlier one stopped; with a larger limit it finds more.

    Args:
        workspace: where to.
        name: "inaturalist", "flickr", "openverse", "wikimedia" or "duckduckgo".
        wnids: the classes.
        limit: most photos a class from this source, those of earlier starts among them; None for
            all.
        queries: what to search for, instead of what the label space says; for one class.
        options: what else the source is asked, by its own names.
        refresh: ask again what had come to its end, for photos that were added since.
        allow_unknown_licence: also take photos whose licence nobody tells; they can never be
            released.
        retry_failed: try again only what failed: "" for all failures, or a state; searches nothing.

    Returns:
        What became of all hits of the source under these classes. Its `troubles` say which searches
        did not come to their end: the source wants a pause (QuotaExhausted), does not answer as it
        should (SourceError), or does not know a taxon (UsageError).

    Raises:
        UsageError: the source, a class, a key or the contact is missing or wrong.
        BusyError: another collect is at work.
        StorageError: the disk is full; what was taken stays, and the next start goes on.
        Interrupted: stopped by the user; the same holds.
    """
    module = source_module(name)
    policy = _policy(workspace, allow_unknown_licence)
    if module.NEEDS_CONTACT and not workspace.settings.collect.contact.strip():
        raise SettingsError(
            f"{name} asks programs for a contact: set collect.contact in curate.yaml or "
            "CURATE_COLLECT__CONTACT to your mail address or a page about your project"
        )
    asks: list[Ask] = []
    if retry_failed is None:
        asks = _asks(workspace, name, wnids, queries, options or {})

    def plan(network: Network) -> Plan:
        source = network.connect(module) if asks else None
        every = len(wnids) == len(workspace.weak_labels)
        scope = hits.of_classes(name, None if every else wnids)
        return Plan(source, name, asks, limit, policy, scope, refresh)

    return _harvest(workspace, [module], plan, retry_failed)


def collect_urls(
    workspace: Workspace,
    path: Path,
    *,
    label: str | None = None,
    allow_unknown_licence: bool = False,
    retry_failed: str | None = None,
) -> Collected:
    """Download the images that a list names.

    Args:
        workspace: where to.
        path: CSV, JSON Lines or Parquet with the columns url and label (unless `label` is given),
            and optionally page, title, author, licence, source.
        label: the class of all of them.
        allow_unknown_licence, retry_failed: as `collect_public`.

    Raises:
        UsageError: the list cannot be read or lacks a column.
        BusyError, StorageError, Interrupted: as `collect_public`.
    """
    from curate.sources.urls import UrlList

    policy = _policy(workspace, allow_unknown_licence)
    wnid = "" if label is None else _labelled(workspace, label)
    source: Source = UrlList(path, label=wnid or None)
    try:
        status = path.stat()
    except OSError as error:
        raise UsageError(f"cannot read {printable(path)}: {error.strerror}") from error
    identity = {
        "list": printable(path.resolve().name),
        "bytes": status.st_size,
        "changed": status.st_mtime_ns,
        "label": wnid,
    }

    def plan(network: Network) -> Plan:
        if retry_failed is None:
            return Plan(source, source.name, [Ask("", "", identity)], None, policy, None)
        with workspace.catalogue.read() as connection:
            rows = hits.searches_of(connection, source.name)
        forms = [row["id"] for row in rows if row["options"].get("list") == identity["list"]]
        return Plan(None, source.name, [], None, policy, hits.of_searches(forms))

    return _harvest(workspace, [], plan, retry_failed)


def _labelled(workspace: Workspace, label: str) -> str:
    """The class or concept that all addresses of a list have."""
    wnid = workspace.weak_labels.match(label).wnid
    if workspace.settings.filter.rule == OUTLIER:
        refuse_overlaps(overlaps(workspace, [wnid]))
    return wnid


def _policy(workspace: Workspace, allow_unknown: bool) -> Policy:
    policy = Policy(workspace.settings.collect.licences, allow_unknown)
    try:
        _ = policy.allowed
    except UnknownNameError as error:
        raise SettingsError(f"collect.licences: {error}") from error
    return policy


def _asks(
    workspace: Workspace,
    name: str,
    wnids: Sequence[str],
    queries: Sequence[str],
    options: Mapping[str, str],
) -> list[Ask]:
    if queries and len(wnids) != 1:
        raise UsageError("--query needs exactly one class: name it with --classes")
    asks: list[Ask] = []
    unknown: list[str] = []
    of_concepts = workspace.settings.filter.rule == OUTLIER
    for wnid in wnids:
        item = workspace.weak_labels.get(wnid)
        if of_concepts:
            item = with_queries(item)
        given: list[tuple[str, dict[str, str]]] = [(text, {}) for text in queries]
        asked = given or queries_of(item, name)
        asks += [Ask(wnid, text, {**own, **options}) for text, own in asked]
        if not asked:
            unknown.append(f"{wnid} ({item.name})")
    if not asks:
        raise UsageError(
            f"nothing to ask {name} for {few(unknown)}: no taxon is known; name one with --query"
        )
    if unknown:
        say(f"{name} is not asked for {few(unknown)}: no taxon is known")
    return asks


def _harvest(
    workspace: Workspace,
    modules: Sequence[SourceModule],
    make_plan: Callable[[Network], Plan],
    retry_failed: str | None,
) -> Collected:
    if retry_failed and (retry_failed in _NOT_AGAIN or not is_state(retry_failed)):
        choices = [state for state in STATES if state not in _NOT_AGAIN]
        raise UnknownNameError("reason", retry_failed, (*choices, "http_404", "http_500"))
    with workspace.held("collect"):
        pin_label_space(workspace)
        stop = Stop()
        with Network(workspace, modules, dict(os.environ), lambda: stop.requested) as network:
            plan = make_plan(network)
            harvest = Harvest(workspace, plan, network, stop)
            if retry_failed is not None:
                harvest.retry(_states(retry_failed))
            collected = harvest.run()
    if collected.troubles and not collected.found:
        # There is nothing else to tell.
        raise collected.troubles[0]
    return collected


def _states(reason: str) -> Callable[[str], bool]:
    return (lambda state: state == reason) if reason else is_failure
