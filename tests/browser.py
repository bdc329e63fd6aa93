"""A page of a real browser, which may take as long as a busy machine needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Page

#: Evaluated in a page: the width of each picture once it is decoded; one that is broken fails.
PICTURES = """async () => Promise.all([...document.images].map(async image => {
    await image.decode();
    return image.naturalWidth;
}))"""


@contextmanager
def browser_page(browser_path: str, width: int, height: int = 900, **how: Any) -> Iterator[Page]:
    """A page of a browser of its own.

    Args:
        browser_path: a Chromium.
        width, height: of what is seen, in pixels.
        how: what else Playwright's `new_page` takes.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path,
            args=["--no-sandbox", "--disable-gpu"],
            timeout=1000 * PATIENCE,
            # Its sockets lie there, whose names must be short.
            env={**os.environ, "TMPDIR": "/tmp"},
        )
        page = browser.new_page(viewport={"width": width, "height": height}, **how)
        page.set_default_timeout(1000 * PATIENCE)
        yield page
        browser.close()
