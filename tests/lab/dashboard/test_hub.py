"""Who looks, how often, and what is sent to whom."""

import asyncio
import json
import math
import time
from collections.abc import Callable
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.lab.dashboard.hub import Hub, Pace, Watched, message
from prorl.lab.report.page import Section, section_json
from prorl.lab.tables import Figure

FAST = Pace(interval=0.01, share=1.0, linger=0.05, heartbeat=60.0)


class Counting:
    """A page that says how often it was looked at, up to `end`; notices when it is closed during a look."""

    def __init__(self, end: int, *, seconds: float = 0.0, broken: bool = False) -> None:
        self.looks, self.end, self.closed = 0, end, 0
        self.seconds, self.broken = seconds, broken
        self.looking = self.closed_meanwhile = False

    def look(self) -> list[Section]:
        if self.broken:
            raise RuntimeError("no page")
        self.looking = True
        time.sleep(self.seconds)
        self.looking = False
        self.looks += 1
        return [Section(key="count", title="", html=str(min(self.looks, self.end)))]

    def close(self) -> None:
        self.closed += 1
        self.closed_meanwhile = self.looking


async def messages(hub: Hub, page: Callable, until: int) -> list[int]:
    """What events say up to the number `until`; who is slow may miss numbers before it."""
    found: list[int] = []
    async with asyncio.timeout(20), aclosing(hub.events("run", page)) as stream:
        async for event in stream:
            if event.startswith("data: "):
                [one] = json.loads(event.removeprefix("data: "))["sections"]
                found.append(int(one["html"]))
            if found and found[-1] >= until:
                return found
    return found


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("together", [True, False])
def test_readers_share_one_loop_and_a_page_outlives_a_reload(together):
    opened = []

    async def main() -> None:
        hub = Hub(Pace(interval=0.01, share=1.0, linger=60.0))
        readers = [messages(hub, lambda: opened.append(Counting(2)) or opened[-1], 2) for _ in range(3)]
        if together:
            await asyncio.gather(*readers)
        else:
            for reader in readers:
                await reader

    asyncio.run(main())
    assert len(opened) == 1


def test_nobody_looks_at_what_nobody_reads():
    async def main() -> None:
        page = Counting(2)
        hub = Hub(FAST)
        found = await messages(hub, lambda: page, 2)
        assert found == sorted(set(found))
        await until(lambda: page.closed)
        looks = page.looks
        await asyncio.sleep(0.05)
        assert (page.looks, page.closed) == (looks, 1)
        assert await messages(hub, lambda: page, 2) == [2]  # and it can be opened again

    asyncio.run(main())


def test_silence_is_broken_so_that_dead_connections_are_noticed():
    async def main() -> list[str]:
        hub = Hub(Pace(interval=0.01, heartbeat=0.02))
        async with aclosing(hub.events("run", lambda: Counting(1))) as stream:
            return [await anext(stream) for _ in range(4)]

    retry, *others = asyncio.run(main())
    assert retry.startswith("retry: ")
    assert sum(event.startswith("data: ") for event in others) == 1
    assert sum(event.startswith(":") and event.endswith("\n\n") for event in others) == 2


def test_closing_ends_every_stream():
    async def main() -> None:
        page = Counting(1)
        hub = Hub(FAST)
        streams = [asyncio.create_task(messages(hub, lambda: page, 99)) for _ in range(3)]
        await until(lambda: page.looks > 1)
        hub.close()
        async with asyncio.timeout(20):
            await asyncio.gather(*streams)

    asyncio.run(main())


def test_a_stream_ends_with_a_page_that_cannot_be_composed_and_can_be_opened_anew():
    async def main() -> list[int]:
        hub, broken = Hub(FAST), Counting(0, broken=True)
        assert await messages(hub, lambda: broken, 1) == []
        assert broken.closed == 1
        return await messages(hub, lambda: Counting(1), 1)

    assert asyncio.run(main()) == [1]


def test_a_page_is_closed_after_its_last_look_when_the_server_is_cut_off():
    page = Counting(1, seconds=0.1)

    async def main() -> None:
        reader = asyncio.create_task(messages(Hub(FAST), lambda: page, 1))
        await until(lambda: page.looking)
        assert not reader.done()

    asyncio.run(main())  # cancels what is left
    assert (page.looks, page.closed, page.closed_meanwhile) == (1, 1, False)


# -- what is sent


def section(key: str, html: str, value: float = math.nan) -> Section:
    figure = Figure(key=f"{key}-f", title="f", data=({"y": [value]},), layout={})
    return Section(key=key, title=key.upper(), html=html, figures=(figure,))


SECTIONS = st.lists(
    st.builds(
        section, st.sampled_from("abc"), st.sampled_from(["", "</script><b>"]), st.sampled_from([0.0, 1.0])
    ),
    max_size=3,
    unique_by=lambda one: one.key,
)


class Reader:
    """Does what the page's script does with messages."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.sections: dict[str, dict] = {}

    def take(self, page: Watched) -> list[dict]:
        told = json.loads(message(page.newest, self.known))
        self.known = page.newest
        self.sections |= {one["key"]: one for one in told["sections"]}
        self.sections = {key: self.sections[key] for key in told["outline"]}
        return list(self.sections.values())


@given(st.lists(st.tuples(SECTIONS, st.booleans()), min_size=1, max_size=8))
def test_who_follows_and_who_comes_late_see_the_newest_page(pages):
    page, follower = Watched(None), Reader()
    for sections, reads in pages:
        page.take(sections)
        if reads:
            follower.take(page)
    assert follower.take(page) == Reader().take(page) == [section_json(one) for one in pages[-1][0]]


def test_only_what_changed_is_sent_and_made_json(monkeypatch):
    made = []
    monkeypatch.setattr(
        "prorl.lab.dashboard.hub.section_json", lambda one: made.append(one) or section_json(one)
    )
    page, still, seen = Watched(None), section("b", "same"), []
    for value in (1.0, 2.0, 2.0):
        page.take([section("a", "old", value), still])
        seen.append(page.newest)
    assert seen[1] is seen[2]  # so that nobody is woken
    [sent] = json.loads(message(seen[1], seen[0]))["sections"]
    assert (sent["key"], made.count(still)) == ("a", 1)


def test_a_message_is_one_line_of_ascii():
    page = Watched(None)
    page.take([section("a", "two\nlines\u2028and </script>")])
    text = message(page.newest, {})
    assert text.isascii()
    assert len(text.splitlines()) == 1
