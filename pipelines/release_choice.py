"""Which candidates a release is made of: shortlisted or accepted, selected, dealt to splits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import Any

from sqlalchemy import RowMapping

from annotation.answers import standing
from annotation.interface import OUTSIDE
from curate.catalog import answers as kept
from curate.catalog import intake, listing, twins
from curate.catalog.engine import pieces
from curate.catalog.listing import Shortlisted
from curate.errors import UsageError
from curate.licences import parse
from curate.release.selection import check_limits, falling_short, ranks
from curate.release.splits import CONTROL, REST, Groups, author_key, deal, parse_splits
from curate.sources.protocol import LOCAL_SOURCES
from pipelines.retractions import without_retracted
from pipelines.review_outcomes import Reviewed, accepted, reviewed
from pipelines.runs import standing_shortlist
from pipelines.workspace import OUTLIER, Workspace

_ALL_GONE = "nothing to release: every photo on the list was taken back"


@dataclass(frozen=True)
class Wanted:
    """What the user asks for.

    Attributes:
        unreviewed: candidates that nobody has looked at.
        control: the control sample instead of the survivors.
        with_control: the accepted control sample as a split of its own.
        per_class_min: classes with fewer images are named.
        per_class_max: at most so many images a class.
        seed: of the selection and of the splits.
        splits: each as "dev=0.1".
        require_visible: nothing of which a reviewer says that it is outside the centre crop.
    """

    unreviewed: bool = False
    control: bool = False
    with_control: bool = False
    per_class_min: int | None = None
    per_class_max: int | None = None
    seed: int = 0
    splits: Sequence[str] = ()
    require_visible: bool = False

    def check(self, outlier: bool) -> dict[str, Decimal]:
        """The splits with their fractions.

        Raises:
            UsageError: what is asked for cannot be had, or not together.
        """
        check_limits(self.per_class_min, self.per_class_max)
        if self.require_visible and self.unreviewed:
            raise UsageError(
                "--require-visible goes by what reviewers say, and --unreviewed asks for nothing "
                "that they say: leave one out"
            )
        if self.with_control and (self.control or self.unreviewed or outlier):
            raise UsageError(
                "--with-control adds the accepted control sample to accepted survivors of the rule "
                "misclassified: it goes with neither --unreviewed, --control nor the rule outlier"
            )
        shares = parse_splits(self.splits)
        return {REST: Decimal(1)} if self.with_control and not shares else shares


@dataclass(frozen=True)
class Chosen:
    """A candidate of the release.

    Attributes:
        entry: what the run says of it.
        rank: in the seeded order of its class.
        split: None for a release without splits.
    """

    entry: Shortlisted
    rank: int
    split: str | None = None


@dataclass(frozen=True)
class Choice:
    """What the release is made of, and what was left out.

    Attributes:
        chosen: the candidates.
        found: what people say; None for an unreviewed release.
        withheld: candidates that no licence allows passing on.
        taken_back: candidates of images that were taken back.
        repeated: candidates of an image that stands there under another concept.
        contradicted: accepted candidates of an image that is accepted under several labels.
        outside: accepted candidates whose object is outside the centre crop.
        unselected: candidates beyond the most that a class may have.
        short: classes with fewer images than wanted, each with how many it has.
    """

    chosen: list[Chosen]
    found: Reviewed | None = None
    withheld: int = 0
    taken_back: int = 0
    repeated: int = 0
    contradicted: int = 0
    outside: int = 0
    unselected: int = 0
    short: dict[str, int] = field(default_factory=dict)


def choose(
    workspace: Workspace,
    run: RowMapping,
    wanted: Wanted,
    before: Mapping[str, str | None] | None = None,
) -> Choice:
    """Choose the candidates of a release.

    Args:
        workspace: the workspace.
        run: whose candidates.
        wanted: what the user asks for.
        before: the split of each candidate of the version before.

    Raises:
        UsageError: there is nothing to release, or what is wanted cannot be had.
    """
    outlier = run["record"]["rule"] == OUTLIER
    shares = wanted.check(outlier)
    if taken := [name for name in shares if name in workspace.label_space]:
        raise UsageError(f"--split {taken[0]} is the id of a class: choose another name")
    taken_back = 0
    found = None if wanted.unreviewed else reviewed(workspace, run["id"])
    if found is not None:
        taken_back = _taken_back(workspace, run, wanted, found)
    if wanted.control:
        everything = _control(workspace, run, found)
    elif found is None:
        everything, taken_back = _shortlist(workspace, run)
    else:
        everything = _accepted(workspace, run, found)
    control = _control(workspace, run, found) if wanted.with_control else []
    images = {entry.candidate for entry in control}
    everything = [entry for entry in everything if entry.candidate not in images]
    listed = _releasable(workspace, [*everything, *control])
    told: dict[str, Any] = {"withheld": len(everything) + len(control) - len(listed)}
    listed, more = without_retracted(workspace, listed)
    told["taken_back"] = taken_back + more
    if not listed:
        raise UsageError(_ALL_GONE)
    if outlier:
        listed, told["repeated"] = _each_image_once(listed)
    elif found is not None:
        listed, told["contradicted"] = _without_contradictions(workspace, listed)
    if wanted.require_visible and found is not None:
        outside = _outside(found)
        seen = [entry for entry in listed if entry.candidate not in outside]
        listed, told["outside"] = seen, len(listed) - len(seen)
    if not listed:
        raise UsageError(
            "nothing to release: what is accepted is left out for its licence, for labels that "
            "contradict each other, or as not visible"
        )
    classes = {e.candidate: e.predicted_wnid if outlier else e.wnid for e in listed}
    survivors = {key: name for key, name in classes.items() if key not in images}
    places = ranks(survivors, wanted.seed) | ranks(
        {key: name for key, name in classes.items() if key in images}, wanted.seed
    )
    most = wanted.per_class_max
    selected = [
        entry
        for entry in listed
        if entry.candidate in images or most is None or places[entry.candidate] <= most
    ]
    told["unselected"] = len(listed) - len(selected)
    if wanted.per_class_min is not None:
        counts = Counter(
            classes[entry.candidate] for entry in selected if entry.candidate not in images
        )
        asked = set() if outlier else _labels(workspace, run)
        told["short"] = falling_short(counts, asked, wanted.per_class_min)
    dealt = dict.fromkeys(images, CONTROL)
    if shares:
        rest = [entry for entry in selected if entry.candidate not in images]
        earlier = {key: split for key, split in (before or {}).items() if split is not None}
        dealt |= _dealt(workspace, rest, classes, shares, wanted.seed, earlier)
        if empty := set(shares) - set(dealt.values()):
            raise UsageError(
                f"split {min(empty)} would have no image: {len(rest)} images that near duplicates "
                "and authors tie together are too few; choose fewer or larger splits"
            )
    chosen = [Chosen(e, places[e.candidate], dealt.get(e.candidate)) for e in selected]
    return Choice(chosen, found, **told)


def votes_of(found: Reviewed, keys: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """The answers that stand about some candidates: annotators by role, what each counts as."""
    votes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for answers, more in ((found.answers, {}), (found.adjudications, {"adjudication": True})):
        for answer in standing(one for one in answers if one.candidate in keys):
            claimed = found.claimed.get(answer.candidate)
            decision = answer.counts_as(found.question, claimed).value
            votes[answer.candidate].append(
                {"annotator": answer.annotator, "decision": decision, **more}
            )
    return votes


def _shortlist(workspace: Workspace, run: RowMapping) -> tuple[list[Shortlisted], int]:
    """The shortlist, and how much of it was taken back."""
    listed, gone = standing_shortlist(workspace, run)
    if not listed and gone:
        raise UsageError(_ALL_GONE)
    if not listed:
        raise UsageError(
            f"run {run['id']} has no survivors, so there is nothing to release; "
            "collect more candidates and filter again"
        )
    return listed, gone


def _taken_back(workspace: Workspace, run: RowMapping, wanted: Wanted, found: Reviewed) -> int:
    """How many candidates that could be in the release people had accepted before they were taken
    back."""
    keys = {key for key, what in found.withdrawn.items() if what.status == "accepted"}
    with workspace.catalogue.read() as connection:
        control = kept.control_keys(connection, run["id"]) & keys
        survivors = kept.survivors_among(connection, run["id"], keys).keys()
    if wanted.control:
        return len(control)
    return len(survivors | control if wanted.with_control else survivors)


def _accepted(workspace: Workspace, run: RowMapping, found: Reviewed) -> list[Shortlisted]:
    """The accepted survivors; their places are those among the accepted, in review order."""
    keys = [one.key for one in accepted(workspace, run["id"], found)]
    if not keys and any(what.status == "accepted" for what in found.withdrawn.values()):
        raise UsageError(_ALL_GONE)
    if not keys:
        raise UsageError(
            f"nobody has accepted a candidate of run {run['id']} yet; begin with: curate review "
            "push; or add --unreviewed to build from the shortlist, marked as unreviewed"
        )
    with workspace.catalogue.read() as connection:
        by_key = {
            row.candidate: row for row in listing.survivors_named(connection, run["id"], keys)
        }
    return [replace(by_key[key], place=place) for place, key in enumerate(keys, start=1)]


def _control(workspace: Workspace, run: RowMapping, found: Reviewed | None) -> list[Shortlisted]:
    """The control sample, or what is accepted of it, each as if it stood on a shortlist."""
    names = [each.name for each in fields(Shortlisted)]
    with workspace.catalogue.read() as connection:
        rows = listing.control_sample(connection, run["id"])
    if not rows:
        raise UsageError(
            f"run {run['id']} has no control sample; draw one with: curate filter --control N"
        )
    listed = [Shortlisted(**{name: row[name] for name in names}) for row in rows]
    if found is None:
        return listed
    good = {key for key, what in found.outcomes.items() if what.status == "accepted"}
    listed = [entry for entry in listed if entry.candidate in good]
    if not listed:
        raise UsageError(
            f"nobody has accepted a candidate of the control sample of run {run['id']} yet; begin "
            "with: curate review push; or add --unreviewed to build it, marked as unreviewed"
        )
    return listed


def _releasable(workspace: Workspace, listed: Sequence[Shortlisted]) -> list[Shortlisted]:
    """What may be passed on at all: a photo from the network needs a licence that allows it.

    Photos of the user's own folders and archives are the user's to judge.
    """
    kept: list[Shortlisted] = []
    with workspace.catalogue.read() as connection:
        for some in pieces(listed):
            origins = intake.origins_of(connection, [entry.candidate_id for entry in some])
            kept += [
                entry
                for entry in some
                if any(
                    row["source"] in LOCAL_SOURCES or parse(row["licence"]).redistributable
                    for row in origins[entry.candidate_id]
                )
            ]
    if not kept:
        raise UsageError(
            "nothing to release: no photo on the shortlist has a licence that allows passing it on"
        )
    return kept


def _each_image_once(listed: Sequence[Shortlisted]) -> tuple[list[Shortlisted], int]:
    """The first candidate of each image, and how many there were besides.

    An image of two concepts is taken for one class, in whose folder it can stand but once.
    """
    first = {entry.sha256: entry for entry in reversed(listed)}
    kept = [entry for entry in listed if first[entry.sha256] is entry]
    return kept, len(listed) - len(kept)


def _without_contradictions(
    workspace: Workspace, listed: Sequence[Shortlisted]
) -> tuple[list[Shortlisted], int]:
    """What is left where images accepted under several labels go: one of them must be wrong."""
    with workspace.catalogue.read() as connection:
        images = intake.images_of(connection, sorted({entry.sha256 for entry in listed}))

    def picture(entry: Shortlisted) -> str:
        return images[entry.sha256]["pixel_sha256"] or entry.sha256

    labels: dict[str, set[str]] = defaultdict(set)
    for entry in listed:
        labels[picture(entry)].add(entry.wnid)
    kept = [entry for entry in listed if len(labels[picture(entry)]) == 1]
    return kept, len(listed) - len(kept)


def _outside(found: Reviewed) -> set[str]:
    """Candidates of which a reviewer says that the object is outside the centre crop."""
    return {
        answer.candidate
        for answers in (found.answers, found.adjudications)
        for answer in standing(answers)
        if OUTSIDE in answer.reasons
    }


def _labels(workspace: Workspace, run: RowMapping) -> set[str]:
    from curate.catalog import overview

    with workspace.catalogue.read() as connection:
        return {row["wnid"] for row in overview.run_counts(connection, run["id"])}


def _dealt(
    workspace: Workspace,
    listed: Sequence[Shortlisted],
    classes: Mapping[str, str],
    shares: Mapping[str, Decimal],
    seed: int,
    before: Mapping[str, str],
) -> dict[str, str]:
    groups = Groups(entry.candidate for entry in listed)
    for a, b in _ties(workspace, listed):
        groups.join(a, b)
    return deal(groups.of(entry.candidate for entry in listed), classes, shares, seed, before)


def _ties(workspace: Workspace, listed: Sequence[Shortlisted]) -> Iterable[tuple[str, str]]:
    """Pairs that stay in one split: a candidate, and what it shares with others or another one."""
    from curate.images.hashing import NEAR_DISTANCE, PerceptualHash
    from curate.images.near import Hashes, near_pairs
    from pipelines.quality import measure_missing

    ids = {entry.candidate_id: entry.candidate for entry in listed}
    digests = sorted({entry.sha256 for entry in listed})

    def images() -> Mapping[str, RowMapping]:
        with workspace.catalogue.read() as connection:
            return intake.images_of(connection, digests)

    rows = images()
    if any(not row["perceptual_hash"] for row in rows.values()):
        measure_missing(workspace, unhashed=True)
        rows = images()
    with workspace.catalogue.read() as connection:
        origins = intake.origins_of(connection, list(ids))
        pairs = twins.ties(connection, list(ids))
    hashed = [entry for entry in listed if rows[entry.sha256]["perceptual_hash"]]
    for entry in listed:
        row = rows[entry.sha256]
        yield entry.candidate, f"bytes:{entry.sha256}"
        if row["pixel_sha256"]:
            yield entry.candidate, f"pixels:{row['pixel_sha256']}"
        for origin in origins[entry.candidate_id]:
            if (author := author_key(origin["source"], origin["author"])) is not None:
                yield entry.candidate, author
    yield from pairs
    hashes = Hashes.of(
        PerceptualHash.from_text(rows[entry.sha256]["perceptual_hash"]) for entry in hashed
    )
    for i, j, _ in near_pairs(hashes, hashes, NEAR_DISTANCE):
        for a, b in zip(i.tolist(), j.tolist(), strict=True):
            yield hashed[a].candidate, hashed[b].candidate
