"""The tables of the human part: who was asked what, where, and what they said.

People stand here by the name of their role ("annotator-1") and by the account that they have at the
server; what leaves the workspace names roles alone. Candidates stand by their keys, because a gold
item may be an image under a label that is wrong on purpose, which must never be a candidate.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from curate.catalog.tables import metadata

annotators = Table(
    "annotators",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    # of their role: annotator-1, …
    Column("name", String(64), nullable=False, unique=True),
    # mail address at the server, in small letters
    Column("account", String(254), nullable=False, unique=True),
    Column("joined", DateTime, nullable=False),
)

review_projects = Table(
    "review_projects",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    # Holds a code of the workspace: a project whose making was not answered is found by it.
    Column("title", String(50), nullable=False, index=True),
    # of the team's own server; empty for the workspace's
    Column("server", Text, nullable=False),
    # review, adjudication or blind
    Column("purpose", String(16), nullable=False),
    # whose queue it is; None for adjudication, which is whoever opens it
    Column("annotator_id", Integer, ForeignKey(annotators.c.id)),
    # Label Studio's number, None until it is known
    Column("number", Integer),
    # the SHA-256 of the labelling page, as the server keeps it
    Column("page", String(64)),
    # open, or gone where somebody has deleted it
    Column("state", String(16), nullable=False),
    # the server's time when the last pull that went through began
    Column("pulled", DateTime),
    # what was asked: question, fingerprint of the label space, …; and the examples that were shown
    Column("record", JSON, nullable=False),
    Column("made", DateTime, nullable=False),
)

#: One candidate (or gold item) in one project.
review_tasks = Table(
    "review_tasks",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("project_id", Integer, ForeignKey(review_projects.c.id), nullable=False),
    Column("candidate", String(32), nullable=False, index=True),
    Column("sha256", String(64), nullable=False),
    Column("wnid", String(64), nullable=False),
    # in the project's queue, from 0
    Column("place", Integer, nullable=False),
    Column("gold", Boolean, nullable=False),
    # open, answered, skipped, lapsed (its lease ended), withdrawn (its photo was taken back), or
    # gone (deleted at the server)
    Column("state", String(16), nullable=False),
    # when its lease ends; None: never
    Column("until", DateTime),
    # whether it may be at the server, so that it is looked up before it is sent
    Column("sent", Boolean, nullable=False),
    # Label Studio's number, None until it is known
    Column("number", Integer),
    UniqueConstraint("project_id", "candidate"),
    Index("ix_review_tasks_project_id_number", "project_id", "number"),
)

#: Every answer and every edit of one, append-only.
answers = Table(
    "answers",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    # A hash of where it was found and what it says: pulled twice it is there once.
    Column("key", String(64), nullable=False, unique=True),
    # the same for an answer and all its edits
    Column("entry", String(64), nullable=False),
    Column("project_id", Integer, ForeignKey(review_projects.c.id), nullable=False),
    # Label Studio's numbers
    Column("task", Integer, nullable=False),
    Column("annotation", Integer, nullable=False),
    Column("candidate", String(32), nullable=False, index=True),
    Column("annotator_id", Integer, ForeignKey(annotators.c.id), nullable=False),
    # review, adjudication or blind
    Column("purpose", String(16), nullable=False),
    # answered, edited, skipped, deleted (at the server), or unusable (edited into what cannot be
    # read); the last three take back what the entry said
    Column("event", String(16), nullable=False),
    Column("decision", String(32), nullable=False),
    Column("reasons", JSON, nullable=False),
    Column("corrected", String(64)),
    Column("also", JSON, nullable=False),
    # the class that was picked in a blind test
    Column("picked", String(64)),
    Column("note", Text, nullable=False),
    Column("seconds", Float),
    # by the server's clock
    Column("made", DateTime, nullable=False),
    Column("pulled", DateTime, nullable=False),
    Index("ix_answers_project_id_task", "project_id", "task"),
)

#: Answers that cannot be read, with all that the server says of them.
set_aside = Table(
    "set_aside",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("project_id", Integer, ForeignKey(review_projects.c.id), nullable=False),
    Column("task", Integer, nullable=False),
    Column("annotation", Integer, nullable=False),
    Column("why", Text, nullable=False),
    # what the server says of it, as JSON, cut off where it is long
    Column("raw", Text, nullable=False),
    # whether a later edit can be read, or it is gone
    Column("settled", Boolean, nullable=False),
    Column("seen", DateTime, nullable=False),
)

#: Items whose right answer is known; see `curate.catalog.reviews`.
gold = Table(
    "gold",
    metadata,
    Column("candidate", String(32), primary_key=True),
    Column("sha256", String(64), nullable=False),
    Column("wnid", String(64), nullable=False),
    # of annotation.answers.Decision; other than valid: to be rejected
    Column("decision", String(32), nullable=False),
    # table (of the user's), or drawn
    Column("origin", String(16), nullable=False),
    Column("added", DateTime, nullable=False),
)

#: What a referee says of candidates: it orders the queue and decides nothing.
referee_scores = Table(
    "referee_scores",
    metadata,
    Column("fingerprint", String(64), primary_key=True),
    Column("candidate", String(32), primary_key=True),
    # None where the photo cannot be read
    Column("p_claimed", Float),
)
