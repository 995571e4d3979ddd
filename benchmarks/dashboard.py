"""The dashboard on a long run that goes on: the server's memory, its share of a core, and what it sends.

    python benchmarks/dashboard.py [--steps 3000] [--records 100000] [--readers 3] [--seconds 120]

The run is made up, as in `benchmarks/report.py`; a step is appended every second while several readers listen to
its page and one to the list of runs. With `--runs` Chromium opens a list of so many finished runs instead:

    python benchmarks/dashboard.py --runs 200 --steps 1000
"""

from __future__ import annotations

import argparse
import http.client
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

from prorl.control.events import Stepped
from prorl.run.journal import Journal, read_journal
from prorl.run.layout import JOURNAL
from report import synthesise

TICK = 1.0  # seconds between two steps


class Reader(threading.Thread):
    """Listens to a page as a browser does, and counts what comes."""

    def __init__(self, address: str, path: str) -> None:
        super().__init__(daemon=True)
        found = urlsplit(address)
        self._connection = http.client.HTTPConnection(found.hostname or "", found.port, timeout=60)
        self._path = path
        self.sizes: list[int] = []

    def run(self) -> None:
        """Until the server ends."""
        self._connection.request("GET", self._path)
        with closing(self._connection), self._connection.getresponse() as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    self.sizes.append(len(line))


def resident(pid: int, field: str = "VmRSS") -> float:
    """Megabytes that a process holds now, or held at most (`VmHWM`)."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", text)[1]) / 1024


def computed(pid: int) -> float:
    """Seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def measure(root: Path, folder: Path, options: argparse.Namespace) -> None:
    """Serve, read, append steps, and print."""
    command = [sys.executable, "-m", "prorl", "dashboard", str(root), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = re.search(r"http://[^#\s]*", server.stdout.readline())[0]
    print(f"started {resident(server.pid):6.1f} MB")
    readers = [Reader(address, f"/events/{folder.name}") for _ in range(options.readers)]
    readers.append(Reader(address, "/events/"))
    for reader in readers:
        reader.start()
    while not all(reader.sizes for reader in readers):
        time.sleep(0.1)
    print(f"opened  {resident(server.pid):6.1f} MB, first message {readers[0].sizes[0] / 1e6:.2f} MB")
    steps = cycle(record for record in read_journal(folder / JOURNAL) if record["kind"] == Stepped.kind)
    begin, used = time.monotonic(), computed(server.pid)
    said, step = begin, options.steps
    with closing(Journal(folder / JOURNAL)) as journal:
        while time.monotonic() - begin < options.seconds:
            step += 1
            journal.append(next(steps) | {"step": step})
            time.sleep(TICK)
            if time.monotonic() - said > options.seconds / 6:
                said = time.monotonic()
                print(f"{said - begin:5.0f} s {resident(server.pid):6.1f} MB")
    share = (computed(server.pid) - used) / (time.monotonic() - begin)
    later = readers[0].sizes[1:]
    print(f"at most {resident(server.pid, 'VmHWM'):6.1f} MB; {share:.0%} of a core")
    print(
        f"{len(later)} further messages to each reader, {sum(later) / max(len(later), 1) / 1e6:.2f} MB on average"
    )
    server.send_signal(signal.SIGINT)
    began = time.monotonic()
    server.communicate(timeout=30)
    for reader in readers:
        reader.join()
    print(f"ended {time.monotonic() - began:.1f} s after Ctrl-C with {len(readers)} streams open")


def measure_list(root: Path, options: argparse.Namespace) -> None:
    """Make so many runs, serve them, and open their list: seconds until every row is there."""
    from playwright.sync_api import sync_playwright

    synthesise(root / "run_0", steps=options.steps, records=1)
    for number in range(1, options.runs):
        shutil.copytree(root / "run_0", root / f"run_{number}")
    command = [sys.executable, "-m", "prorl", "dashboard", str(root), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = re.search(r"http://[^#\s]*", server.stdout.readline())[0]
    complete = f"() => document.querySelectorAll('.runs tbody tr').length === {options.runs}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        for opening in ("first", *["again"] * 4):
            tab = browser.new_page()
            begin = time.monotonic()
            tab.goto(address)
            tab.wait_for_function(complete, timeout=120_000)
            print(
                f"{options.runs} runs of {options.steps} steps, {opening}: {time.monotonic() - begin:.2f} s"
            )
            tab.close()
        browser.close()
    server.send_signal(signal.SIGINT)
    server.communicate(timeout=30)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--readers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--runs", type=int, help="open a list of so many runs instead")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as aside:
        if options.runs:
            measure_list(Path(aside, "runs"), options)
            return
        folder = Path(aside, "runs", "long")
        synthesise(folder, steps=options.steps, records=options.records)
        measure(folder.parent, folder, options)


if __name__ == "__main__":
    main()
