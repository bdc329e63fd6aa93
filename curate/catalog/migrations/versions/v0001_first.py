"""The first catalogue."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "facts",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_facts")),
    )
    op.create_table(
        "images",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("extension", sa.String(length=8), nullable=False),
        sa.Column("format", sa.String(length=16), nullable=False),
        sa.Column("mode", sa.String(length=16), nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("width", sa.Integer(), nullable=False),
        sa.Column("height", sa.Integer(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=False),
        sa.Column("pixel_sha256", sa.String(length=64), nullable=False),
        sa.Column("perceptual_hash", sa.String(length=32), nullable=False),
        sa.Column("taken_in", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_images")),
    )
    with op.batch_alter_table("images", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_images_pixel_sha256"), ["pixel_sha256"], unique=False)

    op.create_table(
        "refusals",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("locator", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("seen", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_refusals")),
        sa.UniqueConstraint("key", name=op.f("uq_refusals_key")),
    )
    with op.batch_alter_table("refusals", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_refusals_reason"), ["reason"], unique=False)

    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("scoring", sa.String(length=32), nullable=False),
        sa.Column("scores_run", sa.String(length=32), nullable=False),
        sa.Column("rule", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("record", sa.JSON(), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=True),
        sa.Column("started", sa.DateTime(), nullable=False),
        sa.Column("finished", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_runs_scoring"), ["scoring"], unique=False)

    op.create_table(
        "candidates",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("key", sa.String(length=32), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("wnid", sa.String(length=64), nullable=False),
        sa.Column("near_key", sa.String(length=32), nullable=True),
        sa.ForeignKeyConstraint(
            ["sha256"], ["images.sha256"], name=op.f("fk_candidates_sha256_images")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_candidates")),
        sa.UniqueConstraint("key", name=op.f("uq_candidates_key")),
    )
    with op.batch_alter_table("candidates", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_candidates_sha256"), ["sha256"], unique=False)
        batch_op.create_index("ix_candidates_wnid_key", ["wnid", "key"], unique=False)

    op.create_table(
        "parts",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("file", sa.String(length=64), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("candidates", sa.Integer(), nullable=False),
        sa.Column("forwards", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("made_by", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_parts_run_id_runs")),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_parts")),
    )
    op.create_table(
        "releases",
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("manifest_sha256", sa.String(length=64), nullable=False),
        sa.Column("images", sa.Integer(), nullable=False),
        sa.Column("classes", sa.Integer(), nullable=False),
        sa.Column("reviewed", sa.Boolean(), nullable=False),
        sa.Column("record", sa.JSON(), nullable=False),
        sa.Column("built", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_releases_run_id_runs")),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_releases")),
    )
    op.create_table(
        "origins",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("candidate_id", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("locator", sa.Text(), nullable=False),
        sa.Column("collection", sa.Text(), nullable=True),
        sa.Column("page", sa.Text(), nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("author", sa.Text(), nullable=True),
        sa.Column("licence", sa.String(length=64), nullable=False),
        sa.Column("licence_url", sa.Text(), nullable=True),
        sa.Column("licence_text", sa.Text(), nullable=True),
        sa.Column("seen", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidates.id"], name=op.f("fk_origins_candidate_id_candidates")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_origins")),
        sa.UniqueConstraint("key", name=op.f("uq_origins_key")),
    )
    with op.batch_alter_table("origins", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_origins_candidate_id"), ["candidate_id"], unique=False)

    op.create_table(
        "release_items",
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("candidate_id", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["candidate_id"],
            ["candidates.id"],
            name=op.f("fk_release_items_candidate_id_candidates"),
        ),
        sa.ForeignKeyConstraint(
            ["version"], ["releases.version"], name=op.f("fk_release_items_version_releases")
        ),
        sa.PrimaryKeyConstraint("version", "candidate_id", name=op.f("pk_release_items")),
    )
    op.create_table(
        "verdicts",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("candidate_id", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=True),
        sa.Column("model", sa.Integer(), nullable=True),
        sa.Column("view", sa.Integer(), nullable=True),
        sa.Column("predicted_wnid", sa.String(length=64), nullable=True),
        sa.Column("confidence", sa.Float(), nullable=True),
        sa.Column("p_true", sa.Float(), nullable=True),
        sa.Column("borderline", sa.Boolean(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidates.id"], name=op.f("fk_verdicts_candidate_id_candidates")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_verdicts_run_id_runs")),
        sa.PrimaryKeyConstraint("run_id", "candidate_id", name=op.f("pk_verdicts")),
    )
    with op.batch_alter_table("verdicts", schema=None) as batch_op:
        batch_op.create_index(
            "ix_verdicts_run_id_outcome_place", ["run_id", "outcome", "place"], unique=False
        )


def downgrade() -> None:
    with op.batch_alter_table("verdicts", schema=None) as batch_op:
        batch_op.drop_index("ix_verdicts_run_id_outcome_place")

    op.drop_table("verdicts")
    op.drop_table("release_items")
    with op.batch_alter_table("origins", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_origins_candidate_id"))

    op.drop_table("origins")
    op.drop_table("releases")
    op.drop_table("parts")
    with op.batch_alter_table("candidates", schema=None) as batch_op:
        batch_op.drop_index("ix_candidates_wnid_key")
        batch_op.drop_index(batch_op.f("ix_candidates_sha256"))

    op.drop_table("candidates")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_runs_scoring"))

    op.drop_table("runs")
    with op.batch_alter_table("refusals", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_refusals_reason"))

    op.drop_table("refusals")
    with op.batch_alter_table("images", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_images_pixel_sha256"))

    op.drop_table("images")
    op.drop_table("facts")
