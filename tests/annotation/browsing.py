"""Somebody in a browser at a real Label Studio, who answers by keyboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from tests.annotation.serving import logged_in
from tests.browser import browser_page
from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page


P = TypeVar("P", bound="Person")


class Person:
    """Somebody who has logged in.

    Attributes:
        page: of their browser.
        dialogs: what scripts have said, which must be nothing.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.dialogs: list[str] = []
        page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))

    def open_queue(self, url: str, project: int) -> None:
        """Open a project's queue at its first task without an answer, and see its photo."""
        self.page.goto(f"{url}/projects/{project}/data?labeling=1")
        self.ready()

    def ready(self) -> None:
        self.page.wait_for_selector("[data-testid=bottombar-submit-button]")
        # Drawn, not only asked for.
        self.page.wait_for_function(
            "(document.querySelector('.curate-photo .lsf-image img') || {}).naturalWidth > 0"
        )

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def press_until(self, key: str, seen: Callable[[], bool]) -> None:
        """Press a key until something is so: it may come before the page heeds it."""

        def pressed() -> bool:
            self.press(key)
            # Twenty looks before it is pressed again.
            return any(seen() or self.page.wait_for_timeout(100) for _ in range(20))

        wait_until(lambda: seen() or pressed(), f"what {key} leads to")

    def choose_class(self, name: str) -> None:
        """Find a class by typing its name; the first step down is its group."""
        self.page.locator(".htx-taxonomy input:visible").focus()
        self.press("Enter")
        search = self.page.get_by_test_id("taxonomy-search").locator("visible=true")
        search.wait_for()
        self.page.wait_for_function(
            "document.activeElement.getAttribute('data-testid') === 'taxonomy-search'"
        )
        self.page.keyboard.type(name)
        # The search waits until nobody types, and then leaves one class and its group.
        self.page.wait_for_function(
            """name => {
                const titles = [...document.querySelectorAll('.ant-select-tree-title')]
                    .filter(title => title.offsetParent).map(title => title.innerText);
                return titles.length === 2 && titles[1].startsWith(name);
            }""",
            arg=name,
        )
        self.press("ArrowDown", "ArrowDown", "Enter")
        self.page.locator(".ant-select-selection-item:visible", has_text=name).wait_for()
        self.press_until("Escape", search.is_hidden)
        self.page.wait_for_function("document.activeElement === document.body")

    def submit(self) -> None:
        with self.page.expect_response(
            lambda answer: answer.request.method == "POST" and "/annotations" in answer.url
        ) as told:
            self.press("Control+Enter")
        assert told.value.status == 201


@contextmanager
def somebody(
    browser_path: str, url: str, account: dict[str, Any], make: Callable[[Page], P]
) -> Iterator[P]:
    """Log in with an account's `email` and `password`, in a browser of their own.

    Args:
        browser_path: a Chromium.
        url: of the server.
        account: whose.
        make: makes of its page who is given.
    """
    with browser_page(browser_path, 1400) as page:
        with logged_in(url, **account) as session:
            page.context.add_cookies(
                [{"name": c.name, "value": c.value or "", "url": url} for c in session.cookies]
            )
        person = make(page)
        yield person
    assert person.dialogs == []
