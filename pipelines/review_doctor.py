"""Doctor of the human part: what would keep annotators from seeing and answering.

Each fault names the setting or command that mends it, and none a secret.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any, cast

from sqlalchemy import RowMapping

from annotation import venv
from annotation.answers import Question
from annotation.browser import Browser, Fetched
from annotation.client import Client
from annotation.client_errors import GoneError, ReviewServerError
from annotation.interface import adjudication_interface, blind_interface, review_interface
from annotation.server import FOLDER, connect
from annotation.server_accounts import Account, read_accounts
from curate.catalog import review_queues as queues
from curate.catalog import withdrawals
from curate.errors import CurateError, ImageRefused, UsageError
from curate.files import sha256_bytes
from curate.images.decode import examine as examine_image
from pipelines.doctor import Problem
from pipelines.review_people import check_accounts, wanted_accounts
from pipelines.review_photos import drawn_alike
from pipelines.review_projects import (
    as_asked,
    lacking_folders,
    page_digest,
    renew_page,
    server_of,
    show_files,
)
from pipelines.workspace import Workspace

_REPAIR = "curate review doctor --repair"

#: What a PNG that was made of a large photo may have at most, in bytes.
_MOST = 400_000_000

_SOURCE = re.compile(r'<img[^>]* src="([^"]*)"')


def examine(workspace: Workspace, *, repair: bool = False) -> dict[str, Any]:
    """Check the Label Studio that the settings name, its projects and the photos of their tasks.

    Args:
        workspace: the workspace.
        repair: give projects their pages back, and let them show the photos' folders again.

    Returns:
        `problems` (`kind`, `what`, `advice`, `repaired` of each), `unrepaired` (how many are left),
        `checked` (counts), `url` and `version` of the server.

    Raises:
        BusyError: with `repair`, another review command is at work.
    """
    with workspace.held("review") if repair else nullcontext():
        return _Examination(workspace, repair).work()


class _Examination:
    def __init__(self, workspace: Workspace, repair: bool) -> None:
        self.workspace, self.repair = workspace, repair
        self.settings = workspace.settings.review
        self.checked = dict.fromkeys(("accounts", "projects", "photos"), 0)
        self.told: dict[str, Any] = {"url": None, "version": None}

    def work(self) -> dict[str, Any]:
        problems: list[Problem] = []
        try:
            problems += self._all()
        except CurateError as error:
            # It names what to do: the server is away, or refuses the token.
            problems.append(Problem("server", str(error), _server_advice(self.settings.url)))
        left = sum(not problem.repaired for problem in problems)
        found = [asdict(problem) for problem in problems]
        return {"problems": found, "unrepaired": left, "checked": self.checked, **self.told}

    def _all(self) -> Iterator[Problem]:
        client = connect(self.workspace.root, self.settings, os.environ)
        self.told["url"] = client.url
        client.who_am_i()
        self.told["version"] = client.version()
        if not _same_version(self.told["version"]):
            yield Problem(
                "version",
                f"Label Studio at {client.url} is {self.told['version'][:40]}",
                f"this program was tried with {venv.VERSION}",
            )
        yield from self._accounts(client)
        with self.workspace.catalogue.read() as connection:
            rows = [
                row
                for row in queues.projects(connection, server_of(self.workspace))
                if row["state"] == "open" and row["number"] is not None
            ]
            withdrawn = withdrawals.withdrawn_tasks(connection, server_of(self.workspace))
        if withdrawn:
            numbers = sorted({row["number"] for row in withdrawn if row["number"] is not None})
            named = ", ".join(map(str, numbers[:10])) + (", …" if len(numbers) > 10 else "")
            yield Problem(
                "withdrawn",
                f"{len(withdrawn):,} tasks may still show photos that were taken back ({named})",
                "curate review push deletes those that nobody has answered, curate review pull "
                "brings the answers of the others",
            )
        there = []
        for row in rows:
            self.checked["projects"] += 1
            try:
                found = client.project(row["number"])
            except GoneError:
                what = f"the project {row['title']} was deleted"
                yield Problem("project", what, "curate review push makes it anew")
                continue
            there.append(row)
            if page_digest(found) != row["page"]:
                yield self._page(client, row)
            if not self.settings.url:
                yield from self._folders(client, row)
        yield from self._photos(client, there)

    def _accounts(self, client: Client) -> Iterator[Problem]:
        try:
            wanted = wanted_accounts(self.workspace)
        except CurateError as error:
            yield Problem("account", str(error), "name them before the next push")
            return
        for account in wanted:
            self.checked["accounts"] += 1
            try:
                check_accounts(self.workspace, client, [account])
            except ReviewServerError:
                raise
            except CurateError as error:
                yield Problem("account", str(error), "then they can log in")

    def _page(self, client: Client, row: RowMapping) -> Problem:
        what = f"the page of the project {row['title']} was edited by hand"
        if not self.repair:
            return Problem("page", what, _REPAIR)
        page = self._interface(row)
        if page is None:
            return Problem("page", what, "the label space that it asks about is gone: undo that")
        renewed = renew_page(client, row["number"], page)
        record = {**row["record"], "interface": sha256_bytes(page.encode())}
        with self.workspace.catalogue.write() as connection:
            values = {"page": page_digest(renewed), "record": record}
            queues.update_project(connection, row["id"], values)
        return Problem("page", what, _REPAIR, repaired=True)

    def _interface(self, row: RowMapping) -> str | None:
        """The page of a project; None where its label space is not at hand."""
        try:
            asked = as_asked(self.workspace, row["record"])
        except UsageError:
            return None
        if row["purpose"] == "blind":
            return blind_interface(asked.label_space)
        make = adjudication_interface if row["purpose"] == "adjudication" else review_interface
        return make(cast(Question, asked.settings.filter.rule), asked.label_space)

    def _folders(self, client: Client, row: RowMapping) -> Iterator[Problem]:
        lacking = lacking_folders(self.workspace, client, row["number"])
        if lacking and self.repair:
            show_files(self.workspace, client, row["number"])
        names = " and ".join(path.rpartition("/")[2] for path in lacking)
        if lacking:
            what = f"the project {row['title']} may not show the folder {names}"
            yield Problem("storage", what, _REPAIR, repaired=self.repair)

    def _photos(self, client: Client, rows: list[RowMapping]) -> Iterator[Problem]:
        """Fetch a photo of each kind, and an example, as an annotator's browser would."""
        with self.workspace.catalogue.read() as connection:
            kinds = queues.task_of_each_kind(connection, [row["id"] for row in rows])
        wanted: dict[tuple[str, bool], Mapping[str, Any]] = {}
        for each in kinds:
            wanted.setdefault((each["format"], drawn_alike(each)), each)
        if not wanted:
            return
        with self._browser(client) as browser:
            example = ""
            for (kind, _), image in sorted(wanted.items()):
                try:
                    data = client.task(image["number"]).get("data") or {}
                except GoneError:
                    # Who pulls is told of it.
                    continue
                address = str(data.get("image") or "")
                size = (image["width"], image["height"])
                yield from self._photo(browser, f"a {kind} photo", address, size)
                shown = _SOURCE.search(str(data.get("examples") or ""))
                example = example or (html.unescape(shown[1]) if shown else "")
            if example:
                yield from self._photo(browser, "an example", example, None)

    def _browser(self, client: Client) -> Browser:
        kept = None if self.settings.url else read_accounts(self.workspace.root / FOLDER)
        if kept is None:
            return Browser(client.url, client.auth)
        wanted = set(wanted_accounts(self.workspace))
        account = next((a for a in kept.accounts if a.email in wanted), kept.owner)
        return Browser(client.url, Account(account.email, account.password))

    def _photo(
        self, browser: Browser, what: str, address: str, size: tuple[int, int] | None
    ) -> Iterator[Problem]:
        self.checked["photos"] += 1
        fetched = browser.fetch(address, _MOST)
        if (why := self._fault(fetched, size)) is not None:
            fault, advice = why
            yield Problem("photo", f"{what} ({_short(address)}) {fault}", advice)

    def _fault(self, fetched: Fetched, size: tuple[int, int] | None) -> tuple[str, str] | None:
        """What is wrong with a fetched photo, and what mends it."""
        own = not self.settings.url
        elsewhere = bool(self.settings.url and self.settings.image_url)
        if elsewhere:
            advice = "look whether review.image_url leads to the files of the store"
        elif own:
            advice = f"curate doctor looks for lost files, {_REPAIR} lets projects show them"
        else:
            advice = "was it deleted there? its task has to be deleted as well, to be pushed anew"
        if not fetched.status:
            return f"cannot be fetched ({fetched.why})", advice
        if fetched.status != 200:
            return f"is answered with HTTP {fetched.status}", advice
        if not fetched.shared:
            return (
                "comes without the header that lets pages of Label Studio draw it",
                "let the server behind review.image_url send Access-Control-Allow-Origin: "
                f"{self.told['url']}",
            )
        if not fetched.type.startswith("image/"):
            return (
                f"comes as {fetched.type[:40] or 'nothing that has a type'}",
                "let the server send it under its media type" if elsewhere else advice,
            )
        try:
            limits = self.workspace.settings.images.model_copy(
                update={"max_bytes": _MOST, "min_side": 1}
            )
            info = examine_image(fetched.content, limits)
        except ImageRefused as error:
            return f"is no whole picture ({error.reason})", advice
        if size is not None and (info.width, info.height) != size:
            return f"is {info.width} x {info.height} instead of {size[0]} x {size[1]}", advice
        return None


def _same_version(told: str) -> bool:
    return told.split(".")[:2] == venv.VERSION.split(".")[:2]


def _server_advice(url: str) -> str:
    return (
        "review.url and CURATE_REVIEW_TOKEN say where and as whom"
        if url
        else "until then nobody can answer"
    )


def _short(address: str) -> str:
    text = "".join(sign if sign.isprintable() else "?" for sign in address)
    # A query may hold a signature that lets others in.
    path, mark, query = text.partition("?")
    return text[-80:] if query.startswith("d=") else path[-80:] + ("?…" if mark else "")
