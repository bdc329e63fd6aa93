"""Runs migrations over the connection that `curate.catalog.engine.migrate` hands in."""

from alembic import context

from curate.catalog.review_tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
