"""The dashboard as people start it: a process of its own, asked over the network; and a browser to look at it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.browser import browser_path

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A dashboard that runs."""

    process: subprocess.Popen[str]
    printed: str  # its first line
    log: Path  # what it printed on standard error

    @property
    def address(self) -> str:
        """Where it is, without the token."""
        return re.search(r"http://[^#\s]*", self.printed)[0]

    @property
    def token(self) -> str:
        return self.printed.strip().partition("#token=")[2]


@contextmanager
def served(root: Path, log: Path, *options: str) -> Iterator[Served]:
    """A dashboard of the runs below `root`, on a free port; interrupted at the end."""
    command = [sys.executable, "-m", "prorl", "dashboard", str(root), *(options or ("--port", "0"))]
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        yield Served(process=process, printed=process.stdout.readline(), log=log)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)


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
