"""Sections about a run's evaluations, composed by a child process whenever those changed.

Reading Parquet takes tens of megabytes that a server which runs for weeks would never give back. The process is
started and polled without waiting: until it is done, the page shows what it showed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from prorl.lab.report.page import Section, paragraph, section_json, to_script_json
from prorl.lab.tables import Figure
from prorl.run.layout import EVALS

NICENESS = 10  # training comes first


class Evaluations:
    """The sections about one run's evaluations."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, int] | None = None  # by time of change: those that `sections` shows, or will
        self._process: subprocess.Popen[bytes] | None = None
        self._made = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self.measured = ""  # the summary's part, as HTML
        self.sections: Sequence[Section] = ()

    def refresh(self) -> bool:
        """Take over what was composed, and have composed what changed. Returns at once, whether anything is new."""
        if self._process is None:
            found = {}
            for path in sorted((self._folder / EVALS).glob("*/*.parquet")):
                with suppress(FileNotFoundError):  # it may be replaced at this moment
                    found[path] = path.stat().st_mtime_ns
            if found != self._files:
                self._files = found
                self._made.seek(0)
                self._made.truncate()
                command = [sys.executable, "-m", __name__, str(self._folder)]
                # In a group of its own: Ctrl-C in the terminal is the server's to answer.
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=self._made, process_group=0
                )
        elif self._process.poll() is not None:
            self._take(failed=self._process.returncode != 0)
            self._process = None
            return True
        return False

    def close(self) -> None:
        """End the child process if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._made.close()

    def _take(self, *, failed: bool) -> None:
        if failed:
            lost = (
                f"The measurements in {self._folder / EVALS} cannot be shown; the server's terminal says why."
            )
            self.measured = ""
            self.sections = [Section(key="boundary", title="Boundary", html=paragraph(lost, tone="bad"))]
            return
        self._made.seek(0)
        made = json.load(self._made)
        self.measured = made["measured"]
        self.sections = [
            Section(**{**data, "figures": tuple(Figure(**figure) for figure in data["figures"])})
            for data in made["sections"]
        ]


def main(folder: Path) -> None:
    """The child process: print the sections about a run's evaluations as JSON."""
    from prorl.lab.report.boundary import boundary_sections, measured

    os.nice(NICENESS)
    sections = [section_json(section) for section in boundary_sections(folder)]
    print(to_script_json({"measured": measured(folder), "sections": sections}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
