"""A page in a real headless Chromium, and everything it complained about or asked for."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

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
def opened(file: Path, **context: Any) -> Iterator[tuple[Any, list[str]]]:
    """A file in a tab, with a list that fills with errors, dialogs and requests of anything but the file."""
    from playwright.sync_api import sync_playwright

    trouble: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path())
        tab = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | context).new_page()
        address = file.absolute().as_uri()
        tab.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        tab.on("console", lambda said: said.type == "error" and trouble.append(f"console: {said.text}"))
        tab.on("dialog", lambda dialog: (trouble.append("dialog"), dialog.dismiss()))
        tab.on("request", lambda asked: asked.url != address and trouble.append(f"request: {asked.url[:80]}"))
        tab.goto(address)
        yield tab, trouble
        browser.close()
