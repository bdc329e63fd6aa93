"""The tables of the catalogue, the same in SQLite and PostgreSQL.

An image is bytes, known by their SHA-256. A candidate is an image under one weak label; its key
depends on content alone, so that two workspaces with the same photos agree on every order. A
verdict belongs to a run. Times are UTC without zone.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: What holds for the whole workspace, such as the fingerprint of its label space.
facts = Table(
    "facts",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

images = Table(
    "images",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("extension", String(8), nullable=False),
    Column("format", String(16), nullable=False),
    Column("mode", String(16), nullable=False),
    Column("bytes", Integer, nullable=False),
    Column("width", Integer, nullable=False),
    Column("height", Integer, nullable=False),
    Column("notes", JSON, nullable=False),
    # These two are empty, and the measurements None, until somebody needs them: downloads are
    # looked at by a later stage.
    Column("pixel_sha256", String(64), nullable=False, index=True),
    Column("perceptual_hash", String(32), nullable=False),
    # measurements of the picture by name
    Column("quality", JSON),
    Column("taken_in", DateTime, nullable=False),
)

candidates = Table(
    "candidates",
    metadata,
    # The number is the place in the order of arrival; the key says what the candidate is.
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("key", String(32), nullable=False, unique=True),
    Column("sha256", String(64), ForeignKey(images.c.sha256), nullable=False, index=True),
    Column("wnid", String(64), nullable=False),
    Column("near_key", String(32)),
    Index("ix_candidates_wnid_key", "wnid", "key"),
)

#: Where candidates came from. The key is a hash, because no index takes text of any length.
origins = Table(
    "origins",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("candidate_id", Integer, ForeignKey(candidates.c.id), nullable=False, index=True),
    Column("source", String(64), nullable=False),
    Column("locator", Text, nullable=False),
    Column("collection", Text),
    Column("page", Text),
    Column("title", Text),
    Column("author", Text),
    Column("licence", String(64), nullable=False),
    Column("licence_url", Text),
    Column("licence_text", Text),
    Column("seen", DateTime, nullable=False),
)

#: Items that were refused: an item is a place in a source under a label.
refusals = Table(
    "refusals",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("source", String(64), nullable=False),
    Column("locator", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("reason", String(32), nullable=False, index=True),
    Column("detail", Text, nullable=False),
    Column("seen", DateTime, nullable=False),
)

#: What was asked of sources, and where each search stands.
searches = Table(
    "searches",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("source", String(64), nullable=False),
    Column("wnid", String(64), nullable=False),
    Column("query", Text, nullable=False),
    Column("options", JSON, nullable=False),
    Column("cursor", JSON),
    # whether the source has no more
    Column("done", Boolean, nullable=False),
    Column("updated", DateTime, nullable=False),
)

#: What sources named, each with what became of it (see `curate.sources.states`).
hits = Table(
    "hits",
    metadata,
    # The number is the place in the order of arrival, in which hits become candidates.
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("search_id", Integer, ForeignKey(searches.c.id), nullable=False),
    Column("source", String(64), nullable=False),
    Column("locator", Text, nullable=False),
    Column("label", Text, nullable=False),
    # empty where the label is no known class
    Column("wnid", String(64), nullable=False),
    Column("url", Text),
    Column("collection", Text),
    Column("page", Text),
    Column("title", Text),
    Column("author", Text),
    Column("licence", String(64), nullable=False),
    Column("licence_url", Text),
    Column("licence_text", Text),
    Column("seen", DateTime, nullable=False),
    Column("state", String(32), nullable=False),
    Column("detail", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    # when a host that asked for a pause may be asked again
    Column("next_try", DateTime),
    Column("sha256", String(64), index=True),
    # the image's row, from its download until it is decided
    Column("image", JSON),
    Column("final_url", Text),
    Column("etag", Text),
    Column("last_modified", Text),
    Column("updated", DateTime, nullable=False),
    Index("ix_hits_search_id_state_id", "search_id", "state", "id"),
    Index("ix_hits_source_state_id", "source", "state", "id"),
    Index("ix_hits_source_wnid_state", "source", "wnid", "state"),
)

#: What hosts were asked and told us, so that a new start keeps to it.
hosts = Table(
    "hosts",
    metadata,
    Column("host", String(255), primary_key=True),
    Column("manners", JSON, nullable=False),
    Column("updated", DateTime, nullable=False),
)

#: Candidates that show what another one or a set that was compared with shows.
duplicates = Table(
    "duplicates",
    metadata,
    Column("candidate_id", Integer, ForeignKey(candidates.c.id), primary_key=True),
    # exact or near
    Column("kind", String(16), nullable=False),
    Column("distance", Integer, nullable=False),
    # the candidate that is kept in its place, or what it was found in
    Column("kept_id", Integer, ForeignKey(candidates.c.id), index=True),
    Column("against", Text),
    Column("item", Text),
    # whether it stays out of the filter; not for one picture under two labels
    Column("dropped", Boolean, nullable=False),
    Column("found", DateTime, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String(32), primary_key=True),
    # What decides scores and verdicts; runs that differ in caps alone share it and the scores of
    # the run that is named here.
    Column("scoring", String(32), nullable=False, index=True),
    Column("scores_run", String(32), nullable=False),
    Column("rule", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("settings", JSON, nullable=False),
    Column("record", JSON, nullable=False),
    Column("summary", JSON),
    Column("started", DateTime, nullable=False),
    Column("finished", DateTime),
    # how often a flip has widened the margin of low precision
    Column("widened", Integer, nullable=False, default=0, server_default="0"),
)

#: The parts of a run's scores. A file that no row names does not exist for any reader.
parts = Table(
    "parts",
    metadata,
    Column("run_id", String(32), ForeignKey(runs.c.id), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("file", String(64), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("rows", Integer, nullable=False),
    Column("candidates", Integer, nullable=False),
    Column("forwards", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    # versions, device and the like: a run that went on after an upgrade has several
    Column("made_by", JSON, nullable=False),
    # what low precision decided: quick, again, repeated, flips; None where all was exact
    Column("counts", JSON),
)

#: The chunks of a run that are worked on side by side (see `curate.catalog.claims`).
claims = Table(
    "claims",
    metadata,
    Column("run_id", String(32), ForeignKey(runs.c.id), primary_key=True),
    Column("number", Integer, primary_key=True),
    # who works on it, and until when nobody else may; by the clock of the database
    Column("holder", String(128)),
    Column("until", DateTime),
    Column("done", Boolean, nullable=False, default=False),
    # Holds the open chunks alone, so that a claim costs the same however many are done.
    Index(
        "ix_claims_open",
        "run_id",
        "number",
        sqlite_where=text("NOT done"),
        postgresql_where=text("NOT done"),
    ),
)

#: The control sample of a run, drawn before the filter.
controls = Table(
    "controls",
    metadata,
    Column("run_id", String(32), ForeignKey(runs.c.id), primary_key=True),
    Column("candidate_id", Integer, ForeignKey(candidates.c.id), primary_key=True, index=True),
    # in review order, from 1
    Column("place", Integer, nullable=False),
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("run_id", String(32), ForeignKey(runs.c.id), primary_key=True),
    Column("candidate_id", Integer, ForeignKey(candidates.c.id), primary_key=True),
    # survivor, removed or failed
    Column("outcome", String(16), nullable=False),
    # why it was removed or failed, and at which view of which model (numbers in the run's record)
    Column("reason", String(32)),
    Column("model", Integer),
    Column("view", Integer),
    # of the first model's centre crop
    Column("predicted_wnid", String(64)),
    Column("confidence", Float),
    # the largest p(true class) of all computed views
    Column("p_true", Float),
    Column("borderline", Boolean, nullable=False, default=False),
    # the place on the shortlist from 1, empty where the cap or the verdict keeps it off
    Column("place", Integer),
    Index("ix_verdicts_run_id_outcome_place", "run_id", "outcome", "place"),
    # what was built on a candidate that shall be withdrawn
    Index("ix_verdicts_candidate_id", "candidate_id"),
)

releases = Table(
    "releases",
    metadata,
    Column("version", String(32), primary_key=True),
    Column("run_id", String(32), ForeignKey(runs.c.id), nullable=False),
    Column("manifest_sha256", String(64), nullable=False),
    Column("images", Integer, nullable=False),
    Column("classes", Integer, nullable=False),
    Column("reviewed", Boolean, nullable=False),
    Column("record", JSON, nullable=False),
    Column("built", DateTime, nullable=False),
)

release_items = Table(
    "release_items",
    metadata,
    Column("version", String(32), ForeignKey(releases.c.version), primary_key=True),
    Column("candidate_id", Integer, ForeignKey(candidates.c.id), primary_key=True, index=True),
    Column("path", Text, nullable=False),
)

#: Images that were taken back: known again by hashes of their content, and nothing else of them.
tombstones = Table(
    "tombstones",
    metadata,
    Column("sha256", String(64), primary_key=True),
    # these two are empty where the picture was never looked at
    Column("pixel_sha256", String(64), nullable=False),
    Column("perceptual_hash", String(32), nullable=False),
    # of curate.choices.RETRACTIONS
    Column("reason", String(32), nullable=False),
    Column("retracted", DateTime, nullable=False),
)


def now() -> datetime:
    """The present time in UTC without zone."""
    return datetime.now(UTC).replace(tzinfo=None)
