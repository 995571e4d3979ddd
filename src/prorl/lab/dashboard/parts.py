"""A page cut into parts, so that only what changed is sent. No file, no clock, no network.

A part is a figure, or what a section is without its figures. A message lists every section with its figures by key,
in order, and holds the parts that changed; whoever has taken in all messages, or the first alone, has the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prorl.lab.report.page import Section, section_json, to_script_json

Key = tuple[str, ...]  # a section's, or a section's and a figure's


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """A section as JSON texts, each with the version of the page in which it last changed."""

    section: Section
    texts: Mapping[Key, tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Newest:
    version: int = 0
    cuts: Mapping[str, _Cut] = field(default_factory=dict)  # by section, in the order of the page


class Parts:
    """The newest page. One thread may take pages in while others read: they see the one before or the new one."""

    def __init__(self) -> None:
        self._newest = _Newest()

    @property
    def version(self) -> int:
        """Of the page; 0 before there is any."""
        return self._newest.version

    def take(self, sections: Sequence[Section]) -> None:
        """Make these sections the newest page; a new version where it differs from the one before.

        A section that is the same object as before is not looked at again: JSON of many figures takes long.
        """
        old = self._newest
        cuts = {
            section.key: _cut(section, old.cuts.get(section.key), old.version + 1) for section in sections
        }
        changed = _order(cuts) != _order(old.cuts) or any(
            cuts[key].texts != old.cuts[key].texts for key in cuts
        )
        self._newest = _Newest(version=old.version + changed, cuts=cuts)

    def since(self, version: int) -> tuple[str, int]:
        """The message, JSON in one line, for a reader who has that version, and the version that it leads to."""
        newest = self._newest
        changed = (
            text for cut in newest.cuts.values() for changed, text in cut.texts.values() if changed > version
        )
        outline = {
            key: [name for _, *names in cut.texts for name in names] for key, cut in newest.cuts.items()
        }
        return f'{{"outline":{to_script_json(outline)},"parts":[{",".join(changed)}]}}', newest.version


def _cut(section: Section, old: _Cut | None, version: int) -> _Cut:
    if old is not None and old.section is section:
        return old
    known = {} if old is None else old.texts
    texts = {key: to_script_json(part) for key, part in _parts(section).items()}
    return _Cut(
        section=section,
        texts={
            key: known[key] if key in known and known[key][1] == text else (version, text)
            for key, text in texts.items()
        },
    )


def _order(cuts: Mapping[str, _Cut]) -> list[Key]:
    return [key for cut in cuts.values() for key in cut.texts]


def _parts(section: Section) -> dict[Key, Mapping[str, Any]]:
    whole = section_json(section)
    figures = whole.pop("figures")
    return {
        (section.key,): whole,
        **{(section.key, figure["key"]): {"key": section.key, "figure": figure} for figure in figures},
    }
