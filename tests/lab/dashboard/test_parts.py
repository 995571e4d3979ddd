"""What is sent: everything to who comes, what changed to who stays, and both see the same page."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from prorl.lab.dashboard.parts import Parts
from prorl.lab.report.page import Section, section_json
from prorl.lab.tables import Figure

KEYS = st.sampled_from(["a", "b", "c"])
FIGURES = st.builds(
    lambda key, value: (key, value), KEYS, st.sampled_from([0.0, 1.0, math.nan, "</script><b>"])
)


def section(key: str, html: str, figures: list[tuple[str, object]]) -> Section:
    return Section(
        key=key,
        title=key.upper(),
        html=html,
        figures=tuple(
            Figure(key=f"{key}-{name}", title=name, data=({"y": [value]},), layout={})
            for name, value in dict(figures).items()
        ),
    )


SECTIONS = st.lists(
    st.builds(section, KEYS, st.sampled_from(["", "<p>x</p>"]), st.lists(FIGURES, max_size=3)),
    max_size=3,
    unique_by=lambda one: one.key,
)


class Reader:
    """Does what the page's script does with messages."""

    def __init__(self) -> None:
        self.version = 0
        self.sections: dict[str, dict] = {}

    def take(self, parts: Parts) -> None:
        text, self.version = parts.since(self.version)
        message = json.loads(text)
        for part in message["parts"]:
            known = self.sections.setdefault(part["key"], {"figures": {}})
            if "figure" in part:
                known["figures"][part["figure"]["key"]] = part["figure"]
            else:
                known |= {name: part[name] for name in ("key", "title", "html")}
        self.sections = {
            key: self.sections[key]
            | {"figures": {name: self.sections[key]["figures"][name] for name in figures}}
            for key, figures in message["outline"].items()
        }

    def page(self) -> list[dict]:
        return [one | {"figures": list(one["figures"].values())} for one in self.sections.values()]


@given(st.lists(st.tuples(SECTIONS, st.booleans()), min_size=1, max_size=8))
def test_who_follows_and_who_comes_late_see_the_newest_page(pages):
    parts, follower = Parts(), Reader()
    for sections, reads in pages:
        parts.take(sections)
        if reads:
            follower.take(parts)
    follower.take(parts)
    newcomer = Reader()
    newcomer.take(parts)
    assert follower.page() == newcomer.page() == [section_json(one) for one in pages[-1][0]]


def test_only_the_parts_that_changed_are_sent():
    parts = Parts()
    parts.take([section("a", "old", [("a", 1.0), ("b", 1.0)]), section("b", "same", [])])
    parts.take([section("a", "old", [("a", 1.0), ("b", 2.0)]), section("b", "same", [])])
    [part] = json.loads(parts.since(1)[0])["parts"]
    assert part["figure"]["key"] == "a-b"


def test_a_section_that_is_the_same_object_is_not_cut_again(monkeypatch):
    made = []
    monkeypatch.setattr(
        "prorl.lab.dashboard.parts.section_json", lambda one: made.append(one) or section_json(one)
    )
    parts, still = Parts(), section("a", "x", [("a", 1.0)])
    for step in range(3):
        parts.take([still, section("b", str(step), [])])
    assert made.count(still) == 1
    assert parts.version == 3


def test_the_same_page_is_no_new_version():
    parts = Parts()
    parts.take([section("a", "x", [("a", math.nan)])])
    parts.take([section("a", "x", [("a", math.nan)])])
    assert parts.version == 1


def test_a_message_is_one_line_of_ascii():
    parts = Parts()
    parts.take([section("a", "two\nlines\u2028and </script>", [])])
    text, _ = parts.since(0)
    assert text.isascii()
    assert len(text.splitlines()) == 1
