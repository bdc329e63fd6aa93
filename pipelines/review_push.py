"""Push: the queue of a run as tasks, each candidate to so many different annotators.

What is to be given out is written before anything is sent. So a push that is cut off, at whatever
moment, goes on; and one over the same queue gives out nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any, cast

from sqlalchemy import RowMapping

from annotation.answers import Question, standing
from annotation.assignment import Assignment, Plan, State, assign
from annotation.client import Client
from annotation.client_errors import GoneError
from annotation.interface import review_interface
from annotation.server import connect
from curate.catalog import gold_items
from curate.catalog import review_queues as queues
from curate.catalog.tables import now
from curate.errors import UsageError
from curate.progress import Stop, progress, say, stop_on_interrupt
from pipelines.barred import retracted_among
from pipelines.review_gold import RATE, draw_gold, gold_from_table
from pipelines.review_offers import TaskMaker
from pipelines.review_outcomes import (
    accepted,
    answers_needed,
    rejected_keys,
    remember_needed,
    review_counts,
    reviewed,
)
from pipelines.review_people import annotators as known_annotators
from pipelines.review_people import wanted_accounts
from pipelines.review_photos import Photos
from pipelines.review_projects import Project, ensure_project, is_gone, server_of
from pipelines.review_queue import Queued, refereed, remember_referee, review_queue
from pipelines.review_sending import send
from pipelines.review_withdrawn import delete_withdrawn, withdraw_all
from pipelines.runs import as_judged, finished_run
from pipelines.workspace import Workspace

#: Tasks that are written down in one transaction, and that are read to be sent.
_AT_ONCE, _PAGE = 10_000, 2000

#: How often a plan is made anew because somebody deletes a project meanwhile.
_TRIES = 3


def push(
    workspace: Workspace,
    *,
    run_id: str | None = None,
    annotators: Sequence[str] = (),
    overlap: int | None = None,
    gold: Path | None = None,
    gold_rate: float | None = None,
    referee: str | None = None,
    most: int | None = None,
) -> dict[str, Any]:
    """Give a run's candidates to annotators, as tasks at Label Studio.

    What somebody has been given stays with them until their lease ends; what was pushed before is
    not pushed again. A candidate that people have rejected gives its place under the cap to the
    next survivor of its confusion.

    Args:
        workspace: the workspace.
        run_id: a finished run; the newest one by default.
        annotators: mail addresses, see `review_people.wanted_accounts`.
        overlap: how many different annotators each candidate needs, from now on; by default what
            an earlier push said, else that of the settings.
        gold: a table of gold items, see `review_gold.gold_from_table`.
        gold_rate: share of each queue that are gold items.
        referee: a model that took no part in the run, which orders the queue.
        most: give out at most so many further candidates, the first ones of the queue.

    Returns:
        `run`, `queue` (its length), `pushed` (tasks that came to be at the server), `annotators`
        (`name`, `account`, `url` of the project, `open` tasks), `short` (candidates that too few
        annotators are left for), `without_gold` (annotators who have seen all gold items),
        `unshown` (candidates whose photo cannot be shown), `problems` (a line each), and the counts
        of `review_outcomes.review_counts`.

    Raises:
        UsageError: no run has ended, an annotator has no account, too few annotators, no server
            runs, or a table is wrong.
        BusyError: another review command is at work.
        Interrupted: stopped by the user; the same command goes on.
        ReviewServerError: as `annotation.client_errors` says.
    """
    options = {"review.overlap": overlap, "review.gold_rate": gold_rate, "review.referee": referee}
    workspace = workspace.changed({n: value for n, value in options.items() if value is not None})
    needed = answers_needed(workspace)
    if overlap is None and needed != workspace.settings.review.overlap:
        say(f"each candidate needs {needed} answers, as an earlier push said: --overlap changes it")
        workspace = workspace.changed({"review.overlap": needed})
    run = finished_run(workspace, run_id)
    workspace = as_judged(workspace, run)
    if most is not None and most < 1:
        raise UsageError(f"--most must be 1 or more, not {most}")
    accounts = wanted_accounts(workspace, annotators)
    with workspace.held("review"), stop_on_interrupt() as stop:
        settings = workspace.settings.review
        client = connect(workspace.root, settings, os.environ, lambda: stop.requested)
        people = known_annotators(workspace, client, accounts)
        rate = workspace.settings.review.gold_rate
        if gold is not None:
            gold_from_table(workspace, gold)
            rate = rate or RATE
        return _Push(workspace, client, run, people, overlap, rate, most, stop).work()


class _Push:
    def __init__(
        self,
        workspace: Workspace,
        client: Client,
        run: RowMapping,
        people: Sequence[Mapping[str, Any]],
        overlap: int | None,
        gold_rate: float,
        most: int | None,
        stop: Stop,
    ) -> None:
        self.workspace, self.client, self.run, self.people = workspace, client, run, people
        self.overlap, self.gold_rate, self.most, self.stop = overlap, gold_rate, most, stop
        self.settings = workspace.settings.review
        self.server = server_of(workspace)
        self.photos = Photos(workspace, client)
        self.pushed = 0
        self.unshown: dict[str, str] = {}
        self.no_gold = False
        self.undeleted: str | None = None
        self.referee: dict[str, str] | None = None

    def work(self) -> dict[str, Any]:
        found = reviewed(self.workspace, self.run["id"], self.settings.overlap)
        stand = standing([*found.answers, *found.gold_answers])
        self.answered = {(answer.candidate, answer.annotator) for answer in stand}
        with self.workspace.catalogue.write() as connection:
            gold_items.forget_drawn(connection, self.run["id"])
            gold = gold_items.all_gold(connection)
        withdraw_all(self.workspace)
        self.undeleted = delete_withdrawn(self.workspace, self.client, self.stop)
        left_out = rejected_keys(found) | {row["candidate"] for row in gold}
        queue = review_queue(self.workspace, self.run, left_out)
        if self.gold_rate:
            # A queue may be as long as all of it, and holds each item once; some stay for later.
            wanted = ceil(1.5 * len(queue) * self.gold_rate / (1 - self.gold_rate))
            gold = draw_gold(self.workspace, self.run, queue, wanted)
            self.no_gold = not gold
        gone = retracted_among(self.workspace, (row["sha256"] for row in gold))
        gold = [row for row in gold if row["sha256"] not in gone]
        if self.settings.referee and queue:
            queue, self.referee = refereed(self.workspace, self.run, queue, self.settings.referee)
        self.examples = [
            (one.wnid, one.candidate_id) for one in accepted(self.workspace, self.run["id"], found)
        ]
        for _ in range(_TRIES):
            projects = self._projects()
            plan = self._plan(queue, gold)
            self._write(plan, projects, queue, gold)
            if self._send(projects):
                break
        return self._summary(len(queue), projects, plan)

    def _projects(self) -> dict[str, Project]:
        question = cast(Question, self.workspace.settings.filter.rule)
        space = self.workspace.label_space
        record = {"question": question, "label_space": space.fingerprint}
        page = review_interface(question, space)
        found = {}
        for person in self.people:
            found[person["name"]] = ensure_project(
                self.workspace, self.client, "review", person, page, record
            )
        return found

    def _plan(self, queue: Sequence[Queued], gold: Sequence[RowMapping]) -> Plan:
        existing = self._existing()
        moment = now()
        keys = [one.key for one in queue]
        if self.most is not None:
            held = Counter(past.candidate for past in existing if past.held(moment))
            lacking = [key for key in keys if held[key] < self.settings.overlap]
            later = set(lacking[self.most :])
            keys = [key for key in keys if key not in later]
        return assign(
            keys,
            [person["name"] for person in self.people],
            self.settings.overlap,
            now=moment,
            lease=timedelta(hours=self.settings.lease_hours),
            existing=existing,
            gold={row["candidate"] for row in gold} if self.gold_rate else (),
            gold_rate=self.gold_rate,
            seed=self.settings.seed,
        )

    def _existing(self) -> list[Assignment]:
        """What was given out before, as far as somebody can still answer it or has answered it."""
        found: dict[tuple[str, str], Assignment] = {}
        self.given: dict[tuple[str, str], int] = {}
        with self.workspace.catalogue.read() as connection:
            for row in queues.given_out(connection, "review"):
                pair = (row["candidate"], row["name"])
                here = row["server"] == self.server and row["project_state"] == "open"
                state = row["state"] if here else "gone"
                if pair in self.answered:
                    state = "answered"
                elif state in ("gone", "withdrawn"):
                    if row["state"] != "skipped":
                        continue
                    state = "skipped"
                if pair in found and state != "answered":
                    continue
                found[pair] = Assignment(
                    *pair, row["place"], row["gold"], cast(State, state), row["until"]
                )
                self.given[pair] = row["id"]
        return list(found.values())

    def _write(
        self,
        plan: Plan,
        projects: Mapping[str, Project],
        queue: Sequence[Queued],
        gold: Sequence[RowMapping],
    ) -> None:
        """Record what is given out, before any of it is sent."""
        if self.overlap is not None:
            # Not before there is a plan: a push that is refused changes no outcome.
            remember_needed(self.workspace, self.overlap)
        if plan.new and self.referee is not None:
            remember_referee(self.workspace, self.referee)
        ended = [self.given[past.candidate, past.annotator] for past in plan.lapsed]
        with self.workspace.catalogue.write() as connection:
            queues.mark(connection, ended, state="lapsed")
        of = {one.key: (one.sha256, one.wnid) for one in queue}
        of |= {row["candidate"]: (row["sha256"], row["wnid"]) for row in gold}
        for name, project in projects.items():
            rows = [
                {
                    "candidate": new.candidate,
                    "sha256": of[new.candidate][0],
                    "wnid": of[new.candidate][1],
                    "place": new.place,
                    "gold": new.gold,
                    "until": new.until,
                }
                for new in plan.new
                if new.annotator == name
            ]
            for start in range(0, len(rows), _AT_ONCE):
                with self.workspace.catalogue.write() as connection:
                    queues.give_out(connection, project["id"], rows[start : start + _AT_ONCE])

    def _send(self, projects: Mapping[str, Project]) -> bool:
        """Send what is written down; False where a project has been deleted meanwhile."""
        with self.workspace.catalogue.read() as connection:
            waiting = {
                name: queues.count_unsent(connection, project["id"])
                for name, project in projects.items()
            }
            shown = queues.hashes_of(connection, [number for _, number in self.examples])
        if not any(waiting.values()):
            return True
        examples = [(wnid, shown[number]) for wnid, number in self.examples if number in shown]
        make = TaskMaker(self.workspace, self.run, self.photos, examples)
        self.unshown = make.refused
        with progress("push", sum(waiting.values()), unit="tasks") as bar:
            for name, project in projects.items():
                try:
                    for rows in self._pages(project) if waiting[name] else ():
                        make.prepare(rows)
                        self.pushed += send(
                            self.workspace, self.client, project, rows, make, self.stop, bar
                        )
                except GoneError:
                    if not is_gone(self.workspace, self.client, project):
                        raise
                    return False
        return True

    def _pages(self, project: Project) -> Iterator[list[dict[str, Any]]]:
        """What is to be sent to a project, some thousands of rows at a time."""
        after = (-1, 0)
        while True:
            with self.workspace.catalogue.read() as connection:
                rows = queues.unsent(connection, project["id"], after, _PAGE)
            if not rows:
                return
            after = (rows[-1]["place"], rows[-1]["id"])
            yield rows

    def _summary(self, queue: int, projects: Mapping[str, Project], plan: Plan) -> dict[str, Any]:
        with self.workspace.catalogue.read() as connection:
            open_tasks = queues.open_counts(connection, now())
        problems = [p["problem"] for p in projects.values() if p["problem"]]
        problems += [self.undeleted] if self.undeleted else []
        if self.no_gold:
            problems.append(
                "no gold items are given out, since the run has surely recognised too few photos: "
                "name some with --gold FILE"
            )
        if self.unshown:
            key, why = next(iter(self.unshown.items()))
            problems.append(
                f"{len(self.unshown):,} candidates were not pushed, since their photos cannot be "
                f"shown; the first is {key} ({why}): curate doctor"
            )
        people = [
            {
                "name": person["name"],
                "account": person["account"],
                "url": f"{self.client.url}/projects/{projects[person['name']]['number']}/data",
                "open": open_tasks.get(projects[person["name"]]["id"], 0),
            }
            for person in self.people
        ]
        return {
            **review_counts(self.workspace, self.run["id"]),
            "run": self.run["id"],
            "queue": queue,
            "pushed": self.pushed,
            "annotators": people,
            "short": len(plan.short),
            "without_gold": list(plan.without_gold),
            "unshown": len(self.unshown),
            "problems": problems,
        }
