"""Review: annotators, projects and their tasks, answers, gold items, what referees say; and the
tombstones of images that were taken back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_TABLES = (
    "annotators",
    "answers",
    "gold",
    "referee_scores",
    "review_projects",
    "review_tasks",
    "set_aside",
    "tombstones",
)


def upgrade() -> None:
    op.create_table(
        "annotators",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("account", sa.String(length=254), nullable=False),
        sa.Column("joined", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_annotators")),
        sa.UniqueConstraint("account", name=op.f("uq_annotators_account")),
        sa.UniqueConstraint("name", name=op.f("uq_annotators_name")),
    )
    op.create_table(
        "gold",
        sa.Column("candidate", sa.String(length=32), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("wnid", sa.String(length=64), nullable=False),
        sa.Column("decision", sa.String(length=32), nullable=False),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("added", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("candidate", name=op.f("pk_gold")),
    )
    op.create_table(
        "referee_scores",
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("candidate", sa.String(length=32), nullable=False),
        sa.Column("p_claimed", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("fingerprint", "candidate", name=op.f("pk_referee_scores")),
    )
    op.create_table(
        "review_projects",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("title", sa.String(length=50), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("annotator_id", sa.Integer(), nullable=True),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("page", sa.String(length=64), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("pulled", sa.DateTime(), nullable=True),
        sa.Column("record", sa.JSON(), nullable=False),
        sa.Column("made", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["annotator_id"],
            ["annotators.id"],
            name=op.f("fk_review_projects_annotator_id_annotators"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_review_projects")),
    )
    op.create_index(op.f("ix_review_projects_title"), "review_projects", ["title"], unique=False)
    op.create_table(
        "answers",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("entry", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("task", sa.Integer(), nullable=False),
        sa.Column("annotation", sa.Integer(), nullable=False),
        sa.Column("candidate", sa.String(length=32), nullable=False),
        sa.Column("annotator_id", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("decision", sa.String(length=32), nullable=False),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("corrected", sa.String(length=64), nullable=True),
        sa.Column("also", sa.JSON(), nullable=False),
        sa.Column("picked", sa.String(length=64), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("made", sa.DateTime(), nullable=False),
        sa.Column("pulled", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["annotator_id"], ["annotators.id"], name=op.f("fk_answers_annotator_id_annotators")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["review_projects.id"],
            name=op.f("fk_answers_project_id_review_projects"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_answers")),
        sa.UniqueConstraint("key", name=op.f("uq_answers_key")),
    )
    op.create_index(op.f("ix_answers_candidate"), "answers", ["candidate"], unique=False)
    op.create_index("ix_answers_project_id_task", "answers", ["project_id", "task"], unique=False)
    op.create_table(
        "review_tasks",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("candidate", sa.String(length=32), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("wnid", sa.String(length=64), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("gold", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("until", sa.DateTime(), nullable=True),
        sa.Column("sent", sa.Boolean(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["review_projects.id"],
            name=op.f("fk_review_tasks_project_id_review_projects"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_review_tasks")),
        sa.UniqueConstraint(
            "project_id", "candidate", name=op.f("uq_review_tasks_project_id_candidate")
        ),
    )
    op.create_index(op.f("ix_review_tasks_candidate"), "review_tasks", ["candidate"], unique=False)
    op.create_index(
        "ix_review_tasks_project_id_number", "review_tasks", ["project_id", "number"], unique=False
    )
    op.create_table(
        "set_aside",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("task", sa.Integer(), nullable=False),
        sa.Column("annotation", sa.Integer(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("raw", sa.Text(), nullable=False),
        sa.Column("settled", sa.Boolean(), nullable=False),
        sa.Column("seen", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["review_projects.id"],
            name=op.f("fk_set_aside_project_id_review_projects"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_set_aside")),
        sa.UniqueConstraint("key", name=op.f("uq_set_aside_key")),
    )
    op.create_table(
        "tombstones",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("pixel_sha256", sa.String(length=64), nullable=False),
        sa.Column("perceptual_hash", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("retracted", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_tombstones")),
    )

    if op.get_bind().dialect.name == "postgresql":
        _order_by_bytes()


def _order_by_bytes() -> None:
    """Give all columns of text the collation of SQLite, whatever the database's own is."""
    bind = op.get_bind()
    for table in _TABLES:
        for column in sa.inspect(bind).get_columns(table):
            kind = column["type"]
            if isinstance(kind, sa.String):
                told = kind.compile(dialect=bind.dialect)
                op.execute(
                    f'ALTER TABLE "{table}" ALTER COLUMN "{column["name"]}" TYPE {told} COLLATE "C"'
                )
