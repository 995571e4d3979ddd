"""Damaged run directories: what is damaged is said with its place, and nothing ends in a traceback.

Every case is a real finished run of the fake backend with one bit flipped, read by every reader and resumed.
"""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from prorl.commands import INBOX, parse_command, send, tell
from prorl.config.recipe import to_json
from prorl.control.events import Resumed, Warned
from prorl.envs.errors import ProrlError
from prorl.envs.files import encode_json
from prorl.lab.report.sections import sections
from prorl.run.history import UNFINISHED, read_history
from prorl.run.journal import Journal, verify_lines
from prorl.run.layout import CONFIG, JOURNAL
from prorl.run.store import RunStore
from support.commands import done
from support.fake_runs import PLAN, events, run_in
from support.recipes import recipe
from support.stories import write_run

RECIPE = recipe(tasks={"arithmetic": {}, "word_list": {}}, validation={"every": 4}, steps=PLAN.config.steps)
COMMANDS = (["kl.coef=5e-4"], ["validation"], ["note", "from here on"], ["optimizer.lr=0.2", "clip.high=0.3"])


@pytest.fixture(autouse=True)
def _in_memory(monkeypatch) -> None:
    """Nothing here is about what a power cut leaves, and waiting for the disk is nearly all the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished run with resets, validations and commands that were given after its end."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert run_in(folder, PLAN).stopped == "done"
    (folder / CONFIG).write_bytes(encode_json(to_json(RECIPE), indent=2))
    for command in COMMANDS:
        send(folder / INBOX, parse_command(command))
    return folder


def flip(path: Path, dice: random.Random) -> int:
    """Flip a random bit of a file; returns in which byte."""
    content = bytearray(path.read_bytes())
    place = dice.randrange(len(content))
    content[place] ^= 1 << dice.randrange(8)
    path.write_bytes(content)
    return place


def refused(work) -> str:
    """What the work is refused with, if it is; any other exception fails the test."""
    try:
        work()
    except ProrlError as error:
        return str(error)
    return ""


def read_by_all(folder: Path) -> list[str]:
    """What each reader says of a run, or is refused with."""

    def said(read) -> str:
        found: list[str] = []
        return refused(lambda: found.append(read())) or found[0]

    return [
        said(lambda: "\n".join(read_history(folder).notes)),
        said(lambda: sections([read_history(folder)])[0].html),
    ]


def resumed(folder: Path) -> tuple[str, list[str]]:
    """What resuming is refused with, and what it reports; the run is stopped before its first step."""
    reports: list[str] = []

    def resume() -> None:
        _ = RunStore.open(folder).config
        run_in(folder, PLAN, until=lambda state: True, config=RECIPE, report=reports.append)

    return refused(resume), reports


def seals(folder: Path) -> dict[int, int]:
    """Step → bytes of the journal that led to its checkpoint."""
    manifests = (json.loads(path.read_bytes()) for path in folder.glob("checkpoints/*/manifest.json"))
    return {one["about"]["step"]: one["about"]["journal_size"] for one in manifests}


@pytest.mark.parametrize("count", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_every_bit_that_flips_in_the_journal_is_told_and_an_older_checkpoint_used(finished, tmp_path, count):
    dice = random.Random(count)
    for number in range(count):
        folder = tmp_path / str(number)
        shutil.copytree(finished, folder)
        if number % 4 == 0:  # as if killed after the checkpoint before it
            shutil.rmtree(max((folder / "checkpoints").iterdir()))
        place = flip(folder / JOURNAL, dice)
        content = (folder / JOURNAL).read_bytes()
        line = (finished / JOURNAL).read_bytes().count(b"\n", 0, place) + 1
        start = (finished / JOURNAL).read_bytes().rfind(b"\n", 0, place) + 1
        said = f"damaged at line {line} (byte {start})"

        unfinished = not content.endswith(b"\n")
        for seen in read_by_all(folder):
            assert (UNFINISHED if unfinished else said) in seen
        refused(lambda folder=folder: tell(folder, ["note", "hello"]))

        whole = [step for step, size in seals(folder).items() if size <= start]
        refusal, reports = resumed(folder)
        if not whole:
            assert said in refusal
            assert (folder / JOURNAL).read_bytes() == content
            continue
        assert not refusal
        assert any(said in report for report in reports)
        told = [event for event in events(folder) if isinstance(event, (Resumed, Warned))]
        assert [type(event) for event in told] == [Resumed, Warned]
        assert told[0].step == max(whole)
        assert said in told[1].text
        assert verify_lines(folder / JOURNAL).size == (folder / JOURNAL).stat().st_size
        assert content[start:] in (folder / "journal.discarded.jsonl").read_bytes() + b"\n"
        shutil.rmtree(folder)


@pytest.mark.parametrize("count", [10, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name",
    [
        CONFIG,
        INBOX,
        "checkpoints/step_000012/state.json",
        "checkpoints/step_000012/manifest.json",
        "references/*/manifest.json",
        "references/*/model.json",
    ],
)
def test_a_bit_that_flips_in_any_other_file_ends_in_no_traceback(finished, tmp_path, name, count):
    dice = random.Random(count)
    for number in range(count):
        folder = tmp_path / str(number)
        shutil.copytree(finished, folder)
        path = max(folder.glob(name))
        before = path.read_bytes()
        flip(path, dice)
        read_by_all(folder)
        refused(lambda folder=folder: tell(folder, ["note", "hello"]))
        refusal, reports = resumed(folder)
        if (
            "manifest" in name
            or "json" not in path.suffix
            or path.parent.parent.name in ("checkpoints", "references")
        ):
            assert refusal or reports or json.loads(path.read_bytes()) == json.loads(before)
        shutil.rmtree(folder)


def test_one_broken_run_hides_no_other(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    shutil.copytree(finished, tmp_path / "runs" / "whole")
    for name in ("damaged", "deep", "newer"):
        write_run(tmp_path / "runs" / name)
    journal = tmp_path / "runs" / "damaged" / JOURNAL
    journal.write_bytes(journal.read_bytes().replace(b'"stepped"', b'"Stepped"'))
    (tmp_path / "runs" / "deep" / CONFIG).write_bytes(b"[" * 100_000)
    writer = Journal(tmp_path / "runs" / "newer" / JOURNAL)
    writer.append({"kind": "teleported", "step": 4})
    writer.close()
    rows = {line.split()[0]: line for line in reversed(done("status").splitlines()) if line.strip()}
    for name, said in (
        ("whole", "done"),
        ("damaged", "the journal is damaged at line 3 (byte "),
        ("deep", "config.json cannot be read: "),
        ("newer", "1 of kind 'teleported'"),
    ):
        assert said in rows[name]
