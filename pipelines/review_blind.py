"""Blind test: can somebody who is told no label name the class of accepted photos?

A sample of them goes to one person, with controls among them: photos that the classifiers
recognise, so that a low share says whether the photos or the person's knowledge of the classes is
at fault. What is to be shown is written down before it is sent, so that the same command goes on.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping

from annotation.answers import Decision
from annotation.client import Client
from annotation.client_errors import GoneError
from annotation.interface import blind_interface
from annotation.server import connect
from annotation.task_data import Shown, task
from curate.catalog import answers as kept
from curate.catalog import blind, reviews
from curate.catalog import review_queues as queues
from curate.errors import UsageError
from curate.files import candidate_key
from curate.progress import Stop, progress, stop_on_interrupt
from pipelines.review_blind_accuracy import answered_by, blind_accuracy
from pipelines.review_known import recognised_photos, seeded
from pipelines.review_outcomes import Reviewed, accepted, reviewed
from pipelines.review_people import check_accounts
from pipelines.review_photos import Photos
from pipelines.review_projects import Project, ensure_project, is_gone, server_of
from pipelines.review_sending import send
from pipelines.runs import as_judged, finished_run
from pipelines.workspace import OUTLIER, Workspace

#: How often all is begun anew because somebody deletes the project meanwhile.
_TRIES = 3


def blind_test(
    workspace: Workspace,
    count: int,
    *,
    account: str = "",
    seed: int = 0,
    run_id: str | None = None,
) -> dict[str, Any]:
    """Show somebody accepted photos without their labels.

    The sample depends on the seed and on content alone. What was shown before under this seed is
    not shown again, so that a larger `count` adds to it.

    Args:
        workspace: the workspace.
        count: how many accepted photos; half as many controls come on top.
        account: mail address of somebody who has not seen these photos; by default whoever has this
            test already, else the first one at the server who has seen none.
        seed: of the sample.
        run_id: a finished run; the newest one by default.

    Returns:
        `run`, `seed`, `annotator` (the name of the role), `account`, `url` of the project, `photos`
        and `controls` in it, `pushed` (what came to be at the server by this call), `problems` (a
        line each), and `accuracy` as `review_blind_accuracy.blind_accuracy` gives it.

    Raises:
        UsageError: no run has ended, nothing is accepted, the person has no account, or has seen
            some of the photos.
        BusyError: another review command is at work.
        Interrupted: stopped by the user; the same command goes on.
        ReviewServerError: as `annotation.client_errors` says.
    """
    if count < 1:
        raise UsageError(f"a blind test needs at least 1 photo, not {count}")
    if seed < 0:
        raise UsageError(f"--seed must be 0 or more, not {seed}")
    run = finished_run(workspace, run_id)
    workspace = as_judged(workspace, run)
    with workspace.held("review"), stop_on_interrupt() as stop:
        settings = workspace.settings.review
        client = connect(workspace.root, settings, os.environ, lambda: stop.requested)
        return _Test(workspace, client, run, count, seed, stop).work(account.strip().lower())


class _Test:
    def __init__(
        self,
        workspace: Workspace,
        client: Client,
        run: RowMapping,
        count: int,
        seed: int,
        stop: Stop,
    ) -> None:
        self.workspace, self.client, self.run = workspace, client, run
        self.count, self.seed, self.stop = count, seed, stop
        self.server = server_of(workspace)
        self.photos = Photos(workspace, client)
        self.found: Reviewed = reviewed(workspace, run["id"])
        listed = accepted(workspace, run["id"], self.found)
        if not listed:
            raise UsageError(
                f"nothing of run {run['id']} is accepted yet: curate review push, and pull what "
                "people say"
            )
        with workspace.catalogue.read() as connection:
            known = queues.candidates_named(connection, [one.key for one in listed])
        self.ordered = sorted(known.values(), key=lambda row: seeded(seed, "blind", row["key"]))

    def work(self, account: str) -> dict[str, Any]:
        account = self._person(account)
        page = blind_interface(self.workspace.label_space)
        record = {
            "question": self.workspace.settings.filter.rule,
            "label_space": self.workspace.label_space.fingerprint,
            "seed": self.seed,
        }
        with self.workspace.catalogue.write() as connection:
            person = dict(reviews.annotator(connection, account))
        pushed = 0
        for _ in range(_TRIES):
            project = ensure_project(self.workspace, self.client, "blind", person, page, record)
            self._write(account, project)
            sent = self._send(project)
            if sent is not None:
                pushed += sent
                break
        return self._summary(account, person, project, pushed)

    def _person(self, account: str) -> str:
        """Who is to look; refused where they have seen a photo of the sample with its label."""
        if account:
            check_accounts(self.workspace, self.client, [account])
            if seen := self._seen(account):
                raise UsageError(
                    f"{account} has seen {seen:,} of these photos with their labels; name somebody "
                    "else with --account (curate review serve --annotator EMAIL gives an account)"
                )
            return account
        owner = str(self.client.who_am_i()["email"]).lower()
        there = [str(user["email"]).lower() for user in self.client.users()]
        with self.workspace.catalogue.read() as connection:
            holders = [row["account"] for row in self._own(blind.blind_tasks(connection))]
        # Whose token this is sees to the server, and may well know the photos.
        others = [one for one in there if one != owner] + [one for one in there if one == owner]
        for one in dict.fromkeys([*(h for h in holders if h in there), *others]):
            if not self._seen(one):
                return one
        raise UsageError(
            "everybody at Label Studio has seen some of these photos with their labels; curate "
            "review serve --annotator EMAIL gives somebody else an account"
        )

    def _own(self, rows: Sequence[RowMapping], account: str = "") -> list[RowMapping]:
        """What was given out under this seed (to one person) at this server."""
        return [
            row
            for row in rows
            if row["server"] == self.server
            and row["record"].get("seed") == self.seed
            and account in ("", row["account"])
        ]

    def _seen(self, account: str) -> int:
        """How many photos of the sample somebody has been shown elsewhere."""
        with self.workspace.catalogue.read() as connection:
            sample, _ = self._sample(connection, account)
            elsewhere = self._elsewhere(connection, account)
        return sum(row["sha256"] in elsewhere for row in sample)

    def _elsewhere(self, connection: Connection, account: str) -> set[str]:
        """The images that somebody has been shown with their labels, or in another blind test."""
        rows = blind.blind_tasks(connection)
        mine = {row["id"] for row in self._own(rows, account)}
        other = {
            row["sha256"] for row in rows if row["account"] == account and row["id"] not in mine
        }
        return other | blind.labelled_images(connection, account)

    def _sample(
        self, connection: Connection, account: str
    ) -> tuple[list[RowMapping], dict[str, RowMapping]]:
        """The accepted photos for somebody, and what they have been given of this test already."""
        rows = self._own(blind.blind_tasks(connection), account) if account else []
        done: set[str] = set()
        if rows:
            done = answered_by(kept.said(connection, "blind"), rows[0]["name"])
        # The last row of a photo is that of the project that there is now.
        given = {
            row["candidate"]: row
            for row in rows
            if row["candidate"] in done
            or (row["project_state"] == "open" and row["state"] != "gone")
        }
        controls = {key for key, row in given.items() if row["gold"]}
        fit = [row for row in self.ordered if row["key"] not in controls]
        before = [row for row in fit if row["key"] in given]
        after = [row for row in fit if row["key"] not in given]
        return before + after[: max(0, self.count - len(before))], given

    def _write(self, account: str, project: Project) -> None:
        """Write down what is to be shown besides what was given out already."""
        with self.workspace.catalogue.read() as connection:
            sample, given = self._sample(connection, account)
            known = self._elsewhere(connection, account)
        there = [row for row in given.values() if row["gold"]]
        wanted = (len(sample) + 1) // 2 - len(there)
        taken = known | {row["sha256"] for row in (*sample, *given.values())}
        new = [
            {"candidate": r["key"], "sha256": r["sha256"], "wnid": r["wnid"], "gold": False}
            for r in sample
            if r["key"] not in given
        ]
        new += self._controls(wanted, taken)
        new.sort(key=lambda row: seeded(self.seed, "shown", row["candidate"]))
        first = 1 + max((row["place"] for row in given.values()), default=-1)
        rows = [{**row, "place": first + n, "until": None} for n, row in enumerate(new)]
        with self.workspace.catalogue.write() as connection:
            queues.give_out(connection, project["id"], rows)

    def _controls(self, wanted: int, taken: Collection[str]) -> list[dict[str, Any]]:
        """At most so many photos of known class, in a seeded order."""
        if wanted < 1:
            return []
        pool = (
            self._visible()
            if self.workspace.settings.filter.rule == OUTLIER
            else [
                {"candidate": r["key"], "sha256": r["sha256"], "wnid": r["wnid"], "gold": True}
                for r in recognised_photos(
                    self.workspace, self.run, self.seed, "control", taken, wanted
                )
            ]
        )
        ordered = sorted(pool, key=lambda row: seeded(self.seed, "control", row["candidate"]))
        found: dict[str, dict[str, Any]] = {}
        for row in ordered:
            if row["sha256"] not in taken:
                found.setdefault(row["sha256"], row)
        return list(found.values())[:wanted]

    def _visible(self) -> list[dict[str, Any]]:
        """Rejected outliers in which all who rejected them saw one and the same class."""
        seen = {
            key: what.also[0]
            for key, what in self.found.outcomes.items()
            if what.reason is Decision.CLASS_VISIBLE and len(what.also) == 1
        }
        with self.workspace.catalogue.read() as connection:
            known = queues.candidates_named(connection, list(seen))
        return [
            # Under the class that is on it, which is what is to be picked.
            {
                "candidate": candidate_key(row["sha256"], seen[key]),
                "sha256": row["sha256"],
                "wnid": seen[key],
                "gold": True,
            }
            for key, row in known.items()
            if seen[key] in self.workspace.label_space
        ]

    def _send(self, project: Project) -> int | None:
        """Send what is written down; None where the project has been deleted meanwhile."""
        with self.workspace.catalogue.read() as connection:
            rows = queues.unsent(connection, project["id"])
        with progress("blind-test", len(rows), unit="tasks") as bar:
            try:
                return send(self.workspace, self.client, project, rows, self._tasks, self.stop, bar)
            except GoneError:
                if not is_gone(self.workspace, self.client, project):
                    raise
                return None

    def _tasks(self, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | None]:
        """Tasks that hold a photo and no label; None for what cannot be shown."""
        with self.workspace.catalogue.read() as connection:
            images = queues.images_named(connection, [row["sha256"] for row in rows])
        addresses = self.photos.addresses(images.values())
        return [
            task(Shown(row["candidate"], addresses[row["sha256"]]), "blind")
            if row["sha256"] in addresses
            else None
            for row in rows
        ]

    def _summary(
        self, account: str, person: Mapping[str, Any], project: Project, pushed: int
    ) -> dict[str, Any]:
        with self.workspace.catalogue.read() as connection:
            sample, given = self._sample(connection, account)
            unshown = queues.unsent(connection, project["id"])
        controls = sum(row["gold"] for row in given.values())
        problems = [project["problem"]] if project["problem"] else []
        if len(sample) < self.count:
            problems.append(f"only {len(sample):,} photos are accepted")
        if controls < (len(sample) + 1) // 2:
            are = "is only 1 control" if controls == 1 else f"are only {controls:,} controls"
            problems.append(f"there {are}: too few photos of known class")
        if unshown:
            problems.append(
                f"{len(unshown):,} photos cannot be shown, since their stored files are bad: "
                "curate doctor"
            )
        return {
            "run": self.run["id"],
            "seed": self.seed,
            "annotator": person["name"],
            "account": account,
            "url": f"{self.client.url}/projects/{project['number']}/data",
            "photos": len(sample),
            "controls": controls,
            "pushed": pushed,
            "problems": problems,
            "accuracy": blind_accuracy(self.workspace, self.run["id"]),
        }
