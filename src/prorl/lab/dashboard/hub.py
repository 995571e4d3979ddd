"""One poll loop per page that somebody looks at, shared by all who do; none for pages that nobody looks at.

Readers wait for versions and not in queues: who is slow skips versions, so nothing grows with the number of readers
or with how long they stay.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from prorl.lab.dashboard.parts import Parts
from prorl.lab.report.page import Section

RETRY = 2000  # milliseconds after which a browser that lost us asks again


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often pages are looked at, in seconds unless said otherwise."""

    interval: float = 1.5  # between two looks, at least
    longest: float = 10.0  # between two looks at a page that takes long to compose
    share: float = 0.2  # of a core that one page may take: the trainer needs it more
    linger: float = 30.0  # that a page is kept after its last reader left, who may only reload
    heartbeat: float = 15.0  # of silence before a comment is sent, so that dead connections are noticed

    def pause(self, computed: float) -> float:
        """Seconds until the next look after one that took so many seconds of a core."""
        return min(max(self.interval, computed / self.share), self.longest)


PACE = Pace()

log = logging.getLogger("prorl.lab.dashboard")


class Page(Protocol):
    """What composes a page from files, again and again."""

    def look(self) -> Sequence[Section]:
        """The page by what the files say now. Called in a thread, one call at a time; does not raise."""

    def close(self) -> None:
        """Nobody looks any more. Called once, never during a look."""


class Hub:
    """The pages that are looked at, by name."""

    def __init__(self, pace: Pace = PACE) -> None:
        self._pace = pace
        self._pages: dict[str, _Watched] = {}
        self._closing = asyncio.Event()

    async def events(self, name: str, open_page: Callable[[], Page]) -> AsyncIterator[str]:
        """The page of that name as server-sent events: whole at first, then what changes; until `close`.

        `open_page` makes what composes it, without touching a file, where nobody reads it yet. Should composing fail
        after all, the stream ends, and a browser asks again.
        """
        page = self._pages.get(name) or self._open(name, open_page())
        page.readers += 1
        try:
            yield f"retry: {RETRY}\n\n"
            version = 0
            while not (self._closing.is_set() or page.over):
                if page.parts.version > version:
                    message, version = page.parts.since(version)
                    yield f"data: {message}\n\n"
                elif not await page.changed(self._pace.heartbeat):
                    yield ": nothing new\n\n"
        finally:
            page.readers -= 1
            page.left = time.monotonic()

    def close(self) -> None:
        """End all streams now."""
        self._closing.set()
        for page in self._pages.values():
            page.wake()

    def _open(self, name: str, source: Page) -> _Watched:
        page = self._pages[name] = _Watched(source)
        page.task = asyncio.create_task(self._keep(name, page))
        return page

    async def _keep(self, name: str, page: _Watched) -> None:
        try:
            while page.wanted(self._pace.linger) and not self._closing.is_set():
                version = page.parts.version
                computed = await asyncio.to_thread(page.renew)
                if page.parts.version > version:
                    page.wake()
                await asyncio.sleep(self._pace.pause(computed))
        except Exception:
            log.exception("the page %r cannot be composed", name)
        finally:
            del self._pages[name]  # with no await since `wanted`: nobody can have come in between
            page.end()


class _Watched:
    """What is known of one page, and who reads it."""

    def __init__(self, source: Page) -> None:
        self.source = source
        self.parts = Parts()
        self.over = False  # nothing will come any more
        self.readers = 0
        self.left = time.monotonic()  # when the last reader did
        self.task: asyncio.Task[None] | None = None  # the loop keeps only a weak reference
        self._news = asyncio.Event()
        self._looking = threading.Lock()

    def wanted(self, linger: float) -> bool:
        """Whether somebody reads it, or did a moment ago."""
        return self.readers > 0 or time.monotonic() - self.left < linger

    def renew(self) -> float:
        """Compose the page, in a thread; returns the seconds of a core that it took, not those it waited for one."""
        began = time.thread_time()
        with self._looking:
            if not self.over:
                self.parts.take(self.source.look())
        return time.thread_time() - began

    def end(self) -> None:
        """Compose it no more. A look whose loop was cancelled goes on in its thread: that one is waited for."""
        self.over = True
        self.wake()
        with self._looking:
            self.source.close()

    def wake(self) -> None:
        """Let everybody look who waits."""
        self._news.set()
        self._news = asyncio.Event()

    async def changed(self, seconds: float) -> bool:
        """Wait for the next version, so long at most; whether it came."""
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            return False
        return True
