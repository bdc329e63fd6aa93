"""Accounts of a workspace's own Label Studio, and the file that keeps their passwords.

    {"token": "…", "accounts": [{"email": "curate@localhost", "password": "…"}, …]}

The first account is the one that commands work under. A password is in the file before the account
is made, so that a command killed in between leaves no account that nobody can enter.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from annotation.client import Client
from annotation.client_errors import ReviewServerError
from curate.errors import StorageError, UsageError
from curate.files import make_folder, printable, storage_errors, write_json

ACCOUNTS, LOCK = "accounts.json", "accounts.lock"

#: The account that commands work under.
OWNER = "curate@localhost"

_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,190}")


@dataclass(frozen=True)
class Account:
    """Who may log in.

    Attributes:
        email: in lower case.
        password: in plain text; not to be shown but once.
    """

    email: str
    password: str

    def __repr__(self) -> str:
        return f"Account({self.email!r})"


@dataclass(frozen=True)
class Accounts:
    """What the file says.

    Attributes:
        token: the legacy token of the first account.
        accounts: all that this program made.
    """

    token: str
    accounts: tuple[Account, ...]

    def __repr__(self) -> str:
        return f"Accounts({self.accounts!r})"

    @property
    def owner(self) -> Account:
        """The account that commands work under."""
        return self.accounts[0]


@contextmanager
def owner_only() -> Iterator[None]:
    """Let what is made meanwhile be read by this user alone; for the main thread."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def accounts_held(folder: Path) -> Iterator[None]:
    """Change the accounts alone: another command waits for a moment.

    Args:
        folder: of the server.
    """
    path = folder / LOCK
    with storage_errors(printable(path)):
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def make_private(folder: Path) -> None:
    """Make a folder that only this user may enter, or take the others' rights from it."""
    with owner_only():
        make_folder(folder)
    with storage_errors(printable(folder)):
        folder.chmod(0o700)


def read_accounts(folder: Path) -> Accounts | None:
    """The accounts of a server's folder; None before the first start.

    Raises:
        StorageError: the file cannot be read, or is none of these.
    """
    path = folder / ACCOUNTS
    try:
        told = json.loads(path.read_bytes())
        accounts = tuple(Account(str(a["email"]), str(a["password"])) for a in told["accounts"])
        if not accounts:
            raise ValueError
        return Accounts(str(told["token"]), accounts)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise StorageError(
            f"{printable(path)} cannot be read; put it back, or remove Label Studio's data beside "
            "it to begin anew"
        ) from None


def first_accounts(folder: Path) -> Accounts:
    """The accounts of a server that is started for the first time."""
    accounts = Accounts(secrets.token_hex(20), (Account(OWNER, _password()),))
    _write(folder, accounts)
    return accounts


def _write(folder: Path, accounts: Accounts) -> None:
    kept = [{"email": each.email, "password": each.password} for each in accounts.accounts]
    with owner_only():
        write_json(folder / ACCOUNTS, {"token": accounts.token, "accounts": kept})


def _password() -> str:
    return secrets.token_urlsafe(12)


def checked_emails(emails: Sequence[str]) -> list[str]:
    """Mail addresses in lower case, each once.

    Raises:
        UsageError: one is none.
    """
    for email in emails:
        if not _EMAIL.fullmatch(email.strip()) or not email.isprintable():
            raise UsageError(f"--annotator: {email!r} is no mail address")
    return list(dict.fromkeys(email.strip().lower() for email in emails))


def add_accounts(
    folder: Path, client: Client, emails: Sequence[str]
) -> tuple[list[Account], list[str]]:
    """Give people accounts, by the page that an invitation leads to: no mail is sent.

    Args:
        folder: of the server.
        client: of the server, under the first account.
        emails: from `checked_emails`.

    Returns:
        Those that were made now, and the addresses that had an account already.

    Raises:
        UsageError: Label Studio does not take an address.
        ReviewServerError: it makes no account, or does not answer.
        StorageError: the disk is full.
    """
    made: list[Account] = []
    with accounts_held(folder):
        there = {str(user["email"]).lower() for user in client.users()}
        for email in emails:
            if email not in there:
                try:
                    made.append(_add(folder, client, email))
                except UsageError as error:
                    if not made:
                        raise
                    names = ", ".join(account.email for account in made)
                    raise UsageError(
                        f"{error}; {names} got an account before that, with the password in "
                        f"{printable(folder / ACCOUNTS)}"
                    ) from None
    return made, [email for email in emails if email in there]


def _add(folder: Path, client: Client, email: str) -> Account:
    kept = read_accounts(folder)
    if kept is None:
        raise StorageError(f"{printable(folder / ACCOUNTS)} is gone; put it back")
    account = next((each for each in kept.accounts if each.email == email), None)
    if account is None:
        account = Account(email, _password())
        _write(folder, Accounts(kept.token, (*kept.accounts, account)))
    try:
        _sign_up(client, account)
    except UsageError:
        _write(folder, kept)
        raise
    return account


def _sign_up(client: Client, account: Account) -> None:
    """Fill in the page for new accounts, as a browser would."""
    page = client.url + client.invite()
    failed = f"Label Studio at {client.url} makes no account for {account.email}"
    try:
        with requests.Session() as browser:
            browser.trust_env = False
            browser.get(page, timeout=60, allow_redirects=False)
            filled_in = {
                "csrfmiddlewaretoken": browser.cookies.get("csrftoken", ""),
                "email": account.email,
                "password": account.password,
            }
            answer = browser.post(
                page,
                data=filled_in,
                headers={"Referer": page},
                timeout=60,
                allow_redirects=False,
            )
    except requests.RequestException:
        raise ReviewServerError(f"{failed}: it does not answer") from None
    if answer.status_code == 200:
        # The page again, with what is wrong on it.
        raise UsageError(f"{failed}: is it a mail address?")
    if answer.status_code != 302:
        raise ReviewServerError(f"{failed} (HTTP {answer.status_code})", answer.status_code)
