"""Whom candidates are given to: accounts at the server, and the roles that they have here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from annotation.client import Client
from annotation.server import FOLDER
from annotation.server_accounts import read_accounts
from curate.catalog import reviews
from curate.errors import UsageError
from pipelines.workspace import Workspace


def wanted_accounts(workspace: Workspace, named: Sequence[str] = ()) -> list[str]:
    """The accounts that candidates are given to.

    Args:
        workspace: the workspace.
        named: mail addresses; without any those of the setting `review.annotators`, else all that
            `curate review serve` has made for the workspace's own server: its owner only where
            there is nobody else.

    Returns:
        Mail addresses in small letters, each once.

    Raises:
        UsageError: nobody is named, and the server is a team's own or was never started.
    """
    review = workspace.settings.review
    emails = [email.strip().lower() for email in (named or review.annotators)]
    if not emails and not review.url:
        kept = read_accounts(workspace.root / FOLDER)
        made = [account.email for account in kept.accounts] if kept else []
        emails = made[1:] or made
        if not emails:
            raise UsageError(
                "nobody has an account yet: curate review serve starts Label Studio, and gives "
                "accounts with --annotator EMAIL"
            )
    if not emails:
        raise UsageError(
            "nobody is named to give candidates to: --annotator EMAIL, or review.annotators of "
            "curate.yaml"
        )
    return list(dict.fromkeys(emails))


def annotators(
    workspace: Workspace, client: Client, accounts: Sequence[str]
) -> list[dict[str, Any]]:
    """The rows of annotators, each of whom must have an account at the server.

    Raises:
        UsageError: somebody has none; the text says how to add them.
    """
    check_accounts(workspace, client, accounts)
    with workspace.catalogue.write() as connection:
        return [dict(reviews.annotator(connection, account)) for account in accounts]


def check_accounts(workspace: Workspace, client: Client, accounts: Sequence[str]) -> None:
    """Refuse annotators who cannot log in.

    Raises:
        UsageError: somebody has no account; the text says how to add them.
    """
    there = {str(user["email"]).strip().lower() for user in client.users()}
    missing = [account for account in accounts if account not in there]
    if not missing:
        return
    names = " and ".join([", ".join(missing[:-1]), missing[-1]] if missing[1:] else missing)
    how = (
        "invite them on its page Organization"
        if workspace.settings.review.url
        else f"curate review serve {' '.join(f'--annotator {email}' for email in missing)}"
    )
    have = "has" if len(missing) == 1 else "have"
    raise UsageError(f"{names} {have} no account at Label Studio: {how}")
