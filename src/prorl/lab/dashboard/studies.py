"""Sections made of a run's measurements, composed by a process of their own whenever those changed.

Reading Parquet takes tens of megabytes that a server which runs for weeks would never give back. The process is
started and looked after without waiting: until it is done, the page shows what it showed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from prorl.lab.report.page import Section, paragraph, section_json, to_script_json
from prorl.lab.tables import Figure
from prorl.run.layout import EVALS

NICENESS = 10  # training comes first


class Studies:
    """The sections about one run's measurements."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[tuple[str, int]] | None = None  # those that `sections` tells of, or will
        self._composing: _Composing | None = None
        self.measured = ""  # the summary's part, as HTML
        self.sections: Sequence[Section] = ()

    def refresh(self) -> bool:
        """Take over what was composed, and have composed what changed. Returns at once, whether anything is new."""
        if self._composing is None:
            found = sorted(_dated((self._folder / EVALS).glob("*/*.parquet")))
            if found != self._files:
                self._files = found
                self._composing = _Composing(self._folder)
        elif self._composing.done():
            self.measured, self.sections = self._composing.result()
            self.close()
            return True
        return False

    def close(self) -> None:
        """Let go of a process that still composes."""
        if self._composing is not None:
            self._composing.close()
            self._composing = None


class _Composing:
    """A process that composes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._aside = tempfile.TemporaryDirectory(prefix="prorl-")
        self._made = Path(self._aside.name, "sections.json")
        command = [sys.executable, "-m", __name__, str(folder), str(self._made)]
        # In a group of its own: Ctrl-C in the terminal is the server's to answer.
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)

    def done(self) -> bool:
        return self._process.poll() is not None

    def result(self) -> tuple[str, list[Section]]:
        """What it composed, for the summary and below; where it failed, a section that says so."""
        if self._process.returncode:
            lost = (
                f"The measurements in {self._folder / EVALS} cannot be shown; the server's terminal says why."
            )
            return "", [Section(key="boundary", title="Boundary", html=paragraph(lost, tone="bad"))]
        made = json.loads(self._made.read_bytes())
        return made["measured"], [_section(data) for data in made["sections"]]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._aside.cleanup()


def _dated(paths: Iterable[Path]) -> Iterator[tuple[str, int]]:
    """The files that are there, with the time of their last change: a study may be renewed at this moment."""
    for path in paths:
        with suppress(FileNotFoundError):
            yield str(path), path.stat().st_mtime_ns


def _section(data: Mapping[str, Any]) -> Section:
    return Section(**{**data, "figures": tuple(Figure(**figure) for figure in data["figures"])})


def main(folder: Path, made: Path) -> None:
    """What the process does: compose what there is to say about a run's measurements."""
    from prorl.lab.report.boundary import boundary_sections
    from prorl.lab.report.moved import measured

    os.nice(NICENESS)
    sections = [section_json(section) for section in boundary_sections(folder)]
    said = to_script_json({"measured": measured(folder), "sections": sections})
    made.write_text(said, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
