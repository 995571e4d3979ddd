"""One poll loop per page that is watched, shared by all its readers, which sends only what changed.

Readers look at the newest page and not at queues: a slow one skips what came between, so nothing grows with how long
they stay. A message lists the keys of all sections, in order, and holds the sections that changed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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


Texts = Mapping[str, str]
"""A page: the JSON of its sections by their keys, in order. It is replaced and never changed."""


def message(page: Texts, known: Texts) -> str:
    """JSON in one line that leads a reader from the page that it knows to another one."""
    changed = ",".join(text for key, text in page.items() if text != known.get(key))
    return f'{{"outline":{to_script_json(list(page))},"sections":[{changed}]}}'


class Hub:
    """The pages that are watched, by name."""

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._pages: dict[str, Watched] = {}
        self._closing = False

    async def events(self, name: str, open_page: Callable[[], RunPage | RunsPage]) -> AsyncIterator[str]:
        """The page of that name as server-sent events: whole at first, then what changes; until `close`.

        `open_page` makes the page, without touching a file, where nobody reads it yet. Should composing fail after
        all, the stream ends, and a browser asks again.
        """
        page = self._pages.get(name)
        if page is None:
            page = self._pages[name] = Watched(open_page())
            page.task = asyncio.create_task(self._keep(name, page))
        page.readers += 1
        try:
            yield f"retry: {RETRY}\n\n"
            known: Texts = {}
            while not (self._closing or page.over):
                if (newest := page.newest) and newest is not known:
                    yield f"data: {message(newest, known)}\n\n"
                    known = newest
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

    async def _keep(self, name: str, page: Watched) -> None:
        pace = self._pace
        try:
            while not self._closing and (page.readers or time.monotonic() - page.left < pace.linger):
                before = page.newest
                computed = await asyncio.to_thread(page.renew)
                if page.newest is not before:
                    page.wake()
                await asyncio.sleep(min(max(pace.interval, computed / pace.share), pace.longest))
        except Exception:
            log.exception("the page %r cannot be composed", name)
        finally:
            # There was no await since the readers were counted, so none can have come in between.
            del self._pages[name]
            page.end()


class Watched:
    """One page and its readers."""

    def __init__(self, source: RunPage | RunsPage) -> None:
        self.newest: Texts = {}  # of the page; empty before the first look
        self.news = asyncio.Event()  # of another page, or of the end; then there is another one
        self.over = False  # nothing will come any more
        self.readers = 0
        self.left = time.monotonic()  # when the last reader did
        self.task: asyncio.Task[None] | None = None  # the loop keeps only a weak reference
        self._source = source
        self._sections: Mapping[str, Section] = {}  # of the newest page
        self._looking = threading.Lock()

    def renew(self) -> float:
        """Compose the page, in a thread; returns the CPU seconds that it took."""
        began = time.thread_time()
        with self._looking:
            if not self.over:
                self.take(self._source.look())
        return time.thread_time() - began

    def take(self, sections: Sequence[Section]) -> None:
        """Make these sections the newest page, if it differs from the one before.

        A section that is the same object as before is not made JSON again: many figures take long.
        """
        page = {}
        for one in sections:
            same = self._sections.get(one.key) is one
            page[one.key] = self.newest[one.key] if same else to_script_json(section_json(one))
        self._sections = {one.key: one for one in sections}
        if list(page.items()) != list(self.newest.items()):
            self.newest = page

    def end(self) -> None:
        """Compose it no more. A look whose task was cancelled goes on in its thread: wait for that one."""
        self.over = True
        self.wake()
        with self._looking:
            self._source.close()

    def wake(self) -> None:
        """Let all readers look whether there is something new."""
        self.news.set()
        self.news = asyncio.Event()
