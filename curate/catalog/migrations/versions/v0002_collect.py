"""Searches, hits, hosts, duplicates, and measurements of images."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("images") as batch_op:
        batch_op.add_column(sa.Column("quality", sa.JSON(), nullable=True))
    op.create_table(
        "searches",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("wnid", sa.String(length=64), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("cursor", sa.JSON(), nullable=True),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.Column("updated", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_searches")),
        sa.UniqueConstraint("key", name=op.f("uq_searches_key")),
    )
    op.create_table(
        "hits",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("search_id", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("locator", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("wnid", sa.String(length=64), nullable=False),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("collection", sa.Text(), nullable=True),
        sa.Column("page", sa.Text(), nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("author", sa.Text(), nullable=True),
        sa.Column("licence", sa.String(length=64), nullable=False),
        sa.Column("licence_url", sa.Text(), nullable=True),
        sa.Column("licence_text", sa.Text(), nullable=True),
        sa.Column("seen", sa.DateTime(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_try", sa.DateTime(), nullable=True),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("image", sa.JSON(), nullable=True),
        sa.Column("final_url", sa.Text(), nullable=True),
        sa.Column("etag", sa.Text(), nullable=True),
        sa.Column("last_modified", sa.Text(), nullable=True),
        sa.Column("updated", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["search_id"], ["searches.id"], name=op.f("fk_hits_search_id_searches")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hits")),
        sa.UniqueConstraint("key", name=op.f("uq_hits_key")),
    )
    with op.batch_alter_table("hits") as batch_op:
        batch_op.create_index(batch_op.f("ix_hits_sha256"), ["sha256"], unique=False)
        for columns in (
            ["search_id", "state", "id"],
            ["source", "state", "id"],
            ["source", "wnid", "state"],
        ):
            batch_op.create_index(f"ix_hits_{'_'.join(columns)}", columns, unique=False)
    op.create_table(
        "hosts",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("manners", sa.JSON(), nullable=False),
        sa.Column("updated", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_hosts")),
    )
    op.create_table(
        "duplicates",
        sa.Column("candidate_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("distance", sa.Integer(), nullable=False),
        sa.Column("kept_id", sa.Integer(), nullable=True),
        sa.Column("against", sa.Text(), nullable=True),
        sa.Column("item", sa.Text(), nullable=True),
        sa.Column("dropped", sa.Boolean(), nullable=False),
        sa.Column("found", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["candidate_id"],
            ["candidates.id"],
            name=op.f("fk_duplicates_candidate_id_candidates"),
        ),
        sa.ForeignKeyConstraint(
            ["kept_id"], ["candidates.id"], name=op.f("fk_duplicates_kept_id_candidates")
        ),
        sa.PrimaryKeyConstraint("candidate_id", name=op.f("pk_duplicates")),
    )
    for table, column in (
        ("duplicates", "kept_id"),
        ("release_items", "candidate_id"),
        ("verdicts", "candidate_id"),
    ):
        with op.batch_alter_table(table) as batch_op:
            batch_op.create_index(batch_op.f(f"ix_{table}_{column}"), [column], unique=False)
