"""Claims, control samples, low precision; on PostgreSQL text is ordered by its bytes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("runs") as batch_op:
        batch_op.add_column(sa.Column("widened", sa.Integer(), nullable=False, server_default="0"))
    with op.batch_alter_table("parts") as batch_op:
        batch_op.add_column(sa.Column("counts", sa.JSON(), nullable=True))
    op.create_table(
        "claims",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("holder", sa.String(length=128), nullable=True),
        sa.Column("until", sa.DateTime(), nullable=True),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_claims_run_id_runs")),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_claims")),
    )
    op.create_index(
        "ix_claims_open",
        "claims",
        ["run_id", "number"],
        sqlite_where=sa.text("NOT done"),
        postgresql_where=sa.text("NOT done"),
    )
    op.create_table(
        "controls",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("candidate_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidates.id"], name=op.f("fk_controls_candidate_id_candidates")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_controls_run_id_runs")),
        sa.PrimaryKeyConstraint("run_id", "candidate_id", name=op.f("pk_controls")),
    )
    op.create_index(op.f("ix_controls_candidate_id"), "controls", ["candidate_id"], unique=False)
    if op.get_bind().dialect.name == "postgresql":
        _order_by_bytes()


def _order_by_bytes() -> None:
    """Give all columns of text the collation of SQLite, whatever the database's own is."""
    bind = op.get_bind()
    for table in sa.inspect(bind).get_table_names():
        for column in sa.inspect(bind).get_columns(table):
            kind = column["type"]
            if isinstance(kind, sa.String):
                told = kind.compile(dialect=bind.dialect)
                op.execute(
                    f'ALTER TABLE "{table}" ALTER COLUMN "{column["name"]}" TYPE {told} COLLATE "C"'
                )
