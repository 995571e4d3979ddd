"""A page in a real headless Chromium, and everything it complained about or asked for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def browser_path() -> str | None:
    """The system's Chromium or Chrome; None where Playwright's own has to do."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


needs_chromium = pytest.mark.skipif(
    browser_path() is None or find_spec("playwright") is None,
    reason="no Chromium and Playwright on this machine: apt-get install chromium, pip install playwright",
)


def inaccessible(tab: Any) -> list[str]:
    """What axe-core calls serious or critical on a page."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(tab).response["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path())
        yield browser
        browser.close()


@contextmanager
def looking(
    browser: Browser, width: int = 1280, height: int = 2000, **options: Any
) -> Iterator[tuple[Page, list[str]]]:
    """A tab with no past, and a list that fills with everything it complains about."""
    tab = browser.new_page(viewport={"width": width, "height": height}, **options)
    tab.set_default_timeout(30_000)
    complaints: list[str] = []
    tab.on("console", lambda said: said.type in ("error", "warning") and complaints.append(said.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.accept()))
    # Leaving a page aborts its stream of events.
    tab.on(
        "requestfailed", lambda asked: asked.failure != "net::ERR_ABORTED" and complaints.append(asked.url)
    )
    yield tab, complaints
    tab.close()


@contextmanager
def opened(
    file: Path, width: int = 1280, height: int = 900, **options: Any
) -> Iterator[tuple[Page, list[str]]]:
    """A file in such a tab, which may not ask for anything but the file."""
    address = file.absolute().as_uri()
    with chromium() as browser, looking(browser, width, height, **options) as (tab, trouble):
        tab.on("request", lambda asked: asked.url != address and trouble.append(f"request: {asked.url[:80]}"))
        tab.goto(address)
        yield tab, trouble
