"""One poll loop per page that is watched, shared by all its readers, which sends only what changed.

Readers wait for versions and not in queues: a slow one skips versions, so nothing grows with the number of readers or
with how long they stay. A message lists the keys of all sections, in order, and holds the sections that changed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from prorl.lab.dashboard.pages import RunPage, RunsPage
from prorl.lab.report.page import Section, section_json, to_script_json

RETRY = 2000  # milliseconds after which a browser that lost the connection asks again

log = logging.getLogger("prorl.lab.dashboard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often pages are composed, in seconds unless said otherwise."""

    interval: float = 1.5  # between two looks, at least
    longest: float = 10.0  # between two looks at a page that takes long to compose
    share: float = 0.2  # of a core that one page may take: the trainer needs it more
    linger: float = 30.0  # that a page is kept after its last reader left, who may only reload
    heartbeat: float = 15.0  # of silence before a comment is sent, so that dead connections are noticed


class Newest:
    """The newest page. One thread may replace it while others read the old or the new one."""

    def __init__(self) -> None:
        # By key: the section, the version of the page in which it last changed, and its JSON.
        self._page: tuple[int, dict[str, tuple[Section, int, str]]] = 0, {}

    @property
    def version(self) -> int:
        """Of the page; 0 before there is any."""
        return self._page[0]

    def take(self, sections: Sequence[Section]) -> None:
        """Make these sections the newest page; a new version where it differs from the one before.

        A section that is the same object as before is not made JSON again: many figures take long.
        """
        version, old = self._page
        new = {}
        for section in sections:
            known, changed, text = old.get(section.key, (None, 0, ""))
            if known is not section:
                fresh = to_script_json(section_json(section))
                changed, text = (changed, text) if fresh == text else (version + 1, fresh)
            new[section.key] = section, changed, text
        different = list(new) != list(old) or any(at > version for _, at, _ in new.values())
        self._page = version + different, new

    def since(self, known: int) -> tuple[str, int]:
        """The message, JSON in one line, for a reader who has version `known`, and the version that it leads to."""
        version, page = self._page
        changed = ",".join(text for _, at, text in page.values() if at > known)
        return f'{{"outline":{to_script_json(list(page))},"sections":[{changed}]}}', version


class Hub:
    """The pages that are watched, by name."""

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._pages: dict[str, _Watched] = {}
        self._closing = False

    async def events(self, name: str, open_page: Callable[[], RunPage | RunsPage]) -> AsyncIterator[str]:
        """The page of that name as server-sent events: whole at first, then what changes; until `close`.

        `open_page` makes the page, without touching a file, where nobody reads it yet. Should composing fail after
        all, the stream ends, and a browser asks again.
        """
        page = self._pages.get(name)
        if page is None:
            page = self._pages[name] = _Watched(open_page())
            page.task = asyncio.create_task(self._keep(name, page))
        page.readers += 1
        try:
            yield f"retry: {RETRY}\n\n"
            version = 0
            while not (self._closing or page.over):
                if page.newest.version > version:
                    message, version = page.newest.since(version)
                    yield f"data: {message}\n\n"
                    continue
                try:
                    await asyncio.wait_for(page.news.wait(), self._pace.heartbeat)
                except TimeoutError:
                    yield ": nothing new\n\n"
        finally:
            page.readers -= 1
            page.left = time.monotonic()

    def close(self) -> None:
        """End all streams now."""
        self._closing = True
        for page in self._pages.values():
            page.wake()

    async def _keep(self, name: str, page: _Watched) -> None:
        pace = self._pace
        try:
            while not self._closing and (page.readers or time.monotonic() - page.left < pace.linger):
                version = page.newest.version
                computed = await asyncio.to_thread(page.renew)
                if page.newest.version > version:
                    page.wake()
                await asyncio.sleep(min(max(pace.interval, computed / pace.share), pace.longest))
        except Exception:
            log.exception("the page %r cannot be composed", name)
        finally:
            # There was no await since the readers were counted, so none can have come in between.
            del self._pages[name]
            page.end()


class _Watched:
    """One page and its readers."""

    def __init__(self, source: RunPage | RunsPage) -> None:
        self.newest = Newest()
        self.news = asyncio.Event()  # of a version, or of the end; then there is another one
        self.over = False  # nothing will come any more
        self.readers = 0
        self.left = time.monotonic()  # when the last reader did
        self.task: asyncio.Task[None] | None = None  # the loop keeps only a weak reference
        self._source = source
        self._looking = threading.Lock()

    def renew(self) -> float:
        """Compose the page, in a thread; returns the CPU seconds that it took."""
        began = time.thread_time()
        with self._looking:
            if not self.over:
                self.newest.take(self._source.look())
        return time.thread_time() - began

    def end(self) -> None:
        """Compose it no more. A look whose task was cancelled goes on in its thread: wait for that one."""
        self.over = True
        self.wake()
        with self._looking:
            self._source.close()

    def wake(self) -> None:
        self.news.set()
        self.news = asyncio.Event()
