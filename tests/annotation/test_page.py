"""The labelling pages in a real Label Studio and a real browser, by keyboard."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from annotation.answers import Decision, Question
from annotation.client_errors import GoneError
from annotation.interface import Purpose, blind_interface, review_interface
from annotation.parsing import Parsed, read_annotation
from annotation.server import served
from annotation.task_data import Shown, task
from curate.labels.classes import LabelClass
from curate.labels.space import LabelSpace, load_label_space
from tests.annotation.browsing import Person, somebody
from tests.annotation.serving import Served
from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

# The first test to run may have to install it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SPACE = load_label_space("imagenet-1k")
TABBY, TIGER_CAT, SCHOOL_BUS, ACORN = "n02123045", "n02123159", "n04146614", "n12267677"

# Of a photo of twice its height: the ten views' places.
BOXES = [(0.28, 0.06, 0.44, 0.88), (0.0, 0.0, 0.44, 0.88), (0.56, 0.12, 0.44, 0.88)]


class Reviewing(Person):
    """Somebody at the shared server, and the projects made for them."""

    def __init__(self, server: Served, page: Page, image: str) -> None:
        super().__init__(page)
        self.server, self.image = server, image
        self.made: list[int] = []

    def open(self, label_config: str, tasks: list[dict[str, Any]]) -> int:
        """Make a project, and open its first task as an annotator does."""
        client = self.server.client()
        settings = {"show_collab_predictions": False, "enable_empty_annotation": False}
        project = int(client.create_project("the page", label_config, **settings)["id"])
        self.made.append(project)
        client.create_local_storage(project, str(served(self.server.root) / "images"))
        client.import_tasks(project, tasks)
        self.open_queue(client.url, project)
        return project

    def task(self, purpose: Purpose, claimed: LabelClass, *offered: str) -> dict[str, Any]:
        classes = [SPACE.get(wnid) for wnid in offered]
        shown = Shown("c" * 32, self.image, claimed, [self.image], BOXES, classes)
        return dict(task(shown, purpose))

    def dismiss(self) -> None:
        """Close the message: Label Studio takes Enter for itself, and Escape closes it, but not
        before the message has the focus, some time after it is seen."""
        self.press_until("Escape", self.page.locator(".ant-modal-wrap").is_hidden)

    def visible(self, text: str) -> bool:
        return self.page.get_by_text(text, exact=False).first.is_visible()

    def checked(self) -> list[str]:
        found = self.page.evaluate(
            "[...document.querySelectorAll('.curate input:checked')].map(box => box.name)"
        )
        return [str(name) for name in found]

    def answers(
        self, project: int, question: Question, purpose: Purpose, space: LabelSpace = SPACE
    ) -> list[Parsed]:
        client = self.server.client()
        found = []
        for stored in client.updated_tasks(project, client.clock() - timedelta(hours=1)):
            for made in stored["annotations"]:
                read = read_annotation(made, question=question, space=space, purpose=purpose)
                assert isinstance(read, Parsed), read
                assert (read.seconds or 0) > 0
                found.append(read)
        return found


@pytest.fixture(scope="module")
def reviewing(
    running: Served, browser_path: str, package_photos: list[tuple[Path, int]]
) -> Iterator[Reviewing]:
    from PIL import Image

    folder = running.root / "images" / "pa"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(package_photos[3][0], folder / "square.jpg")
    with Image.open(package_photos[5][0]) as photo:
        photo.resize((448, 224)).save(folder / "wide.jpg")
    account = next(a for a in running.kept["accounts"] if a["email"] == "ann@example.org")
    url = running.client().url
    image = "/data/local-files/?d=images/pa/wide.jpg"
    with somebody(browser_path, url, account, lambda page: Reviewing(running, page, image)) as made:
        yield made
    for project in made.made:
        with suppress(GoneError):
            running.client().delete_project(project)


@pytest.fixture
def fits(reviewing: Reviewing) -> Callable[[str], None]:
    """Sees to it that what a selector finds comes to be within the window, above the bar with the
    buttons."""

    def inside(selector: str) -> bool:
        box = reviewing.page.locator(selector).locator("visible=true").last.bounding_box()
        bar = reviewing.page.locator(".lsf-bottombar").bounding_box()
        return (
            box is not None
            and bar is not None
            and box["x"] >= 0
            and box["x"] + box["width"] <= 1400
            and box["y"] + box["height"] <= bar["y"]
        )

    return lambda selector: wait_until(lambda: inside(selector), f"{selector} in the window")


def test_a_photo_is_answered_by_three_keys_and_corrected_by_a_few_more(
    reviewing: Reviewing, fits: Callable[[str], None]
) -> None:
    page = reviewing.page
    tasks = [
        reviewing.task("review", SPACE.get(ACORN), TIGER_CAT, SCHOOL_BUS),
        reviewing.task("review", SPACE.get(TABBY), SCHOOL_BUS),
    ]
    project = reviewing.open(review_interface("misclassified", SPACE), tasks)
    assert page.locator(".curate-claim").inner_text() == "acorn"
    fits(".lsf-image")
    fits(".lsf-choices .lsf-choice")
    assert not reviewing.visible("also clearly there")
    assert not reviewing.visible("school bus")
    reviewing.press("1")
    page.get_by_text("also clearly there").wait_for()
    assert reviewing.visible("school bus")
    fits(".lsf-choices .lsf-choice")
    # Nobody misses the follow-up.
    reviewing.press("Control+Enter")
    page.get_by_text("0: none").wait_for()
    reviewing.dismiss()
    reviewing.press("0")
    wait_until(lambda: len(reviewing.checked()) == 2)
    reviewing.submit()

    page.locator(".curate-claim h4", has_text="tabby").wait_for()
    reviewing.ready()
    assert reviewing.checked() == []
    reviewing.press("1", "a", "2")
    page.get_by_text("What is it?").wait_for()
    assert not reviewing.visible("also clearly there")
    reviewing.choose_class("tiger cat")
    reviewing.press("q")
    page.locator("textarea[name=note]").focus()
    # The bus is hidden by now, and is not sent.
    before = ["No, it is something else", "school bus", "tiny or far away"]
    wait_until(lambda: reviewing.checked() == before)
    page.keyboard.type("1 and w are no keys here")
    assert reviewing.checked() == before
    reviewing.press("Tab")
    reviewing.submit()

    first, second = reviewing.answers(project, "misclassified", "review")
    assert (first.decision, first.also, first.reasons) == (Decision.VALID, (), ())
    assert second.decision is Decision.WRONG_LABEL
    assert (second.corrected, second.reasons) == (TIGER_CAT, ("too-small",))
    assert (second.also, second.note) == ((), "1 and w are no keys here")


def test_classes_that_appear_are_told_of_an_outlier_and_names_are_only_text(
    reviewing: Reviewing, fits: Callable[[str], None]
) -> None:
    page = reviewing.page
    hostile = '<img src=x onerror="alert(1)">'
    own = LabelClass("own", hostile, (hostile, "$claim"), parents=("$image <b>bold</b>",))
    space = LabelSpace("own", [*SPACE.classes[280:300], own])
    asked = reviewing.task("review", own, TABBY)
    asked["data"]["offered"].insert(1, {"value": hostile, "alias": "own", "hotkey": "s"})
    project = reviewing.open(review_interface("outlier", space), [asked])
    assert page.locator(".curate-claim").inner_text() == hostile
    assert "<b>bold</b>" in page.locator(".curate-definition").inner_text()
    assert page.locator(".curate-definition b").count() == 0
    fits(".lsf-choices .lsf-choice")
    reviewing.press("2")
    page.get_by_text("Which of these").wait_for()
    assert reviewing.visible(hostile)
    reviewing.press("s")
    reviewing.choose_class("tiger cat")
    reviewing.submit()
    (answer,) = reviewing.answers(project, "outlier", "review", space)
    assert answer.decision is Decision.CLASS_VISIBLE
    assert answer.also == (TIGER_CAT, "own")


def test_the_views_are_drawn_where_the_photo_is_for_whoever_asks(reviewing: Reviewing) -> None:
    page = reviewing.page
    asked = reviewing.task("review", SPACE.get(ACORN), TABBY)
    space = LabelSpace("few", SPACE.classes[:9])
    project = reviewing.open(review_interface("misclassified", space), [asked])
    frame = page.locator(".curate-frame")
    assert not frame.is_visible()
    page.locator(".curate-crops summary").focus()
    reviewing.press("Space")
    frame.wait_for()
    page.wait_for_function("document.querySelector('.curate-frame img').naturalWidth === 448")
    photo = page.locator(".lsf-image").bounding_box()
    over = frame.bounding_box()
    assert photo is not None
    assert over is not None
    for side in ("x", "y", "width", "height"):
        assert over[side] == pytest.approx(photo[side], abs=2)  # type: ignore[literal-required]
    assert page.locator(".curate-corner").count() == 2
    centre = page.locator(".curate-centre").bounding_box()
    assert centre is not None
    assert centre["width"] == pytest.approx(centre["height"], abs=2)
    assert centre["x"] - photo["x"] == pytest.approx(0.28 * photo["width"], abs=2)
    reviewing.press("Space")
    frame.wait_for(state="hidden")
    # What it shows may be valid, and yet not be where most evaluations look.
    reviewing.press("1")
    page.get_by_text("But it is not visible in the centre crop").wait_for()
    reviewing.press("0", "n")
    reviewing.submit()
    (answer,) = reviewing.answers(project, "misclassified", "review", space)
    assert (answer.decision, answer.reasons) == (Decision.VALID, ("outside-centre",))


def test_whoever_is_told_no_label_picks_a_class_or_none(reviewing: Reviewing) -> None:
    page = reviewing.page
    tasks = [reviewing.task("blind", SPACE.get(ACORN)), reviewing.task("blind", SPACE.get(TABBY))]
    project = reviewing.open(blind_interface(SPACE), tasks)
    assert page.get_by_text("acorn").count() == 0
    assert page.locator(".curate-claim, .curate-crops").count() == 0
    reviewing.choose_class("tiger cat")
    number = page.locator(".lsf-current-task__task-id")
    before = number.inner_text()
    reviewing.submit()
    number.filter(has_not_text=before).wait_for()
    reviewing.ready()
    reviewing.press("1")
    reviewing.submit()
    first, second = reviewing.answers(project, "misclassified", "blind")
    assert (first.decision, first.picked) == (None, TIGER_CAT)
    assert (second.decision, second.picked) == (None, None)
