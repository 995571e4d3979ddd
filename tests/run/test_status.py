"""How a run is doing, from its files."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from prorl.control.events import Started, Stopped, to_record
from prorl.control.state import fold
from prorl.run.heartbeat import WAITING, Deadlines, Heart
from prorl.run.status import holder, runs_below, status
from prorl.run.store import RunStore
from support.defaults import some_detectors, some_plan
from support.events import evaluated, reset, stepped


@pytest.fixture
def run(tmp_path):
    """A run of three steps of ten seconds each, with an exam and a reset; nobody trains it."""
    folder = tmp_path / "runs" / "nano"
    with RunStore.create(folder, {"steps": 100}) as store:
        for event in (
            Started(config_hash="c", reference_hash="a"),
            stepped(1),
            evaluated(1, 0.25),
            reset(1),
            stepped(2),
            stepped(3),
        ):
            store.journal.append(to_record(event))
    return folder


def now(run, later=0.0):
    return (run / "journal.jsonl").stat().st_mtime + later


def append(run, event):
    with RunStore.open(run) as store:
        store.journal.append(to_record(event))


def test_progress_rate_age_exam_and_decisions(run):
    seen = status(run, now=now(run, 90))
    assert (seen.name, seen.step, seen.steps) == ("nano", 3, 100)
    assert seen.steps_per_hour == pytest.approx(360)
    assert seen.age == pytest.approx(90)
    assert (seen.exam.step, seen.exam.score) == (1, 0.25)
    assert [event.kind for event in seen.decisions] == ["reference_reset"]


@pytest.mark.parametrize(
    ("reason", "health"), [("done", "done"), ("interrupted", "stopped: interrupted"), (None, "crashed")]
)
def test_a_run_that_nobody_trains(run, reason, health):
    if reason:
        append(run, Stopped(step=3, reason=reason))
    assert status(run).health == health


def test_a_run_that_has_only_a_folder(tmp_path):
    RunStore.create(tmp_path / "run", {"steps": 1})
    seen = status(tmp_path / "run")
    assert (seen.health, seen.step, seen.steps_per_hour, seen.exam) == ("not begun", 0, None, None)


@pytest.mark.parametrize(
    ("phase", "later", "health"),
    [
        ("learn", 0, "running: process {pid}, learn"),
        ("learn", 100, "hung? process {pid} has been silent for 100 s in phase learn"),
        (WAITING, 1e6, "waiting: process {pid}, waiting"),
    ],
)
def test_a_run_that_is_trained(run, phase, later, health):
    with RunStore.open(run):
        heart = Heart(run / "heartbeat.json", Deadlines(least={"learn": 50.0}))
        heart(phase)
        heart.close()
        at = json.loads((run / "heartbeat.json").read_bytes())["at"]
        assert status(run, now=at + later).health == health.format(pid=os.getpid())
    assert status(run).health == "crashed"


def test_a_policy_that_no_longer_works_is_no_running_one(run):
    plan = some_plan(seed=0, steps=9, detectors=some_detectors())
    exams = [evaluated(0, 0.5), evaluated(1, 0.0)]
    with RunStore.open(run):
        heart = Heart(run / "heartbeat.json", Deadlines(least={"learn": 50.0}))
        heart.follow(plan, exams[-1], fold(exams))
        heart("learn")
        heart.close()
        told = f"degraded: the exam is at most 14% of the best one; process {os.getpid()}, learn"
        assert status(run).health == told
    assert status(run).health == "crashed"


def test_the_beat_of_a_dead_trainer_says_nothing_about_the_living(run):
    code = (
        "import sys; from pathlib import Path; from prorl.run.heartbeat import Deadlines, Heart\n"
        "Heart(Path(sys.argv[1]) / 'heartbeat.json', Deadlines(least={'learn': 1.0}))('learn')"
    )
    subprocess.run([sys.executable, "-c", code, run], check=True)
    with RunStore.open(run):
        assert status(run).health == f"running: process {os.getpid()}"


def test_looking_takes_no_lock(run):
    with RunStore.open(run):
        assert holder(run) == os.getpid()
    assert holder(run) is None
    with RunStore.open(run):  # and left none behind
        pass


def test_a_trainer_is_not_kept_out_by_who_only_looks(run):
    descriptor = os.open(run / "lock", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    looking = threading.Timer(0.03, os.close, [descriptor])
    looking.start()
    with RunStore.open(run):
        assert holder(run) == os.getpid()
    looking.join()


def test_a_trainer_on_another_machine_is_known_by_its_files_alone(run):
    (run / "lock").write_text("process 7 on elsewhere.example\n")
    assert status(run, now=now(run, 30)).health == "elsewhere: last written 30 s ago by elsewhere.example"
    Heart(run / "heartbeat.json", Deadlines(least={})).close()
    os.utime(run / "heartbeat.json", (now(run, 20), now(run, 20)))
    assert status(run, now=now(run, 30)).health == "elsewhere: last written 10 s ago by elsewhere.example"
    (run / "lock").write_text(f"process 7 on {socket.gethostname()}\n")
    assert status(run).health == "crashed"


def test_a_mounted_directory_without_locks_is_read_all_the_same(run, monkeypatch):
    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    (run / "lock").write_text("process 7 on elsewhere.example\n")
    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert status(run, now=now(run, 30)).health.startswith("elsewhere: ")


def test_what_a_run_elsewhere_says_itself_is_believed(run):
    append(run, Stopped(step=3, reason="done"))
    (run / "lock").write_text("process 7 on elsewhere.example\n")
    assert status(run).health == "done"


@pytest.mark.parametrize(
    "config", [b"{\n", b"[]", b'{"Steps": 1}', b'{"steps": "x"}', b"[" * 100_000, b"\xff"]
)
def test_a_config_that_cannot_be_read_is_said(run, config):
    (run / "config.json").write_bytes(config)
    assert status(run).health.startswith("unreadable")


def test_a_damaged_journal_is_said_with_its_place_and_the_rest_is_shown(run):
    content = (run / "journal.jsonl").read_bytes()
    (run / "journal.jsonl").write_bytes(content.replace(b'"score":0.25', b'"score":0.75'))
    seen = status(run)
    assert seen.health.startswith("crashed; the journal is damaged at line 3 (byte ")
    assert (seen.step, seen.exam) == (3, None)


def test_what_a_newer_version_wrote_is_shown_as_far_as_it_is_known(run):
    with RunStore.open(run) as store:
        store.journal.append(to_record(stepped(4)) | {"novelty": 1})
        store.journal.append({"kind": "teleported", "step": 4})
    seen = status(run)
    assert seen.health == "crashed; events that a newer prorl wrote are left out: 1 of kind 'teleported'"
    assert seen.step == 4
    with RunStore.open(run) as store:
        store.journal.append(to_record(stepped(5, seconds=3.0)))
    assert status(run).health.startswith("unreadable: TypeError")


def test_runs_are_found_below_a_folder(run, tmp_path):
    (tmp_path / "runs" / "notes").mkdir()
    assert runs_below(tmp_path / "runs") == [run]
    assert runs_below(tmp_path / "nowhere") == []
