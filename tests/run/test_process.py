"""A trainer's process: its heartbeat, requests to stop, and what memory and disk it has left."""

import json
import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from prorl.config.schema import DeadlinesConfig
from prorl.control.state import fold
from prorl.envs.errors import ProrlError
from prorl.envs.files import NoRoomError
from prorl.rollout.pipeline import WaitEnded
from prorl.run import process
from prorl.run.layout import HEARTBEAT, LOG, STACKS
from prorl.run.supervise import read_beat
from prorl.stopwatch import BETWEEN, WAITING, Stopwatch
from support.defaults import some_detectors, some_plan
from support.events import evaluated

DEADLINES = DeadlinesConfig(learn=10.0, generate=5.0, between=3.0, factor=20.0)


@pytest.fixture
def heart(tmp_path):
    heart = process.Heartbeat(tmp_path / "heartbeat.json", DEADLINES, step=3)
    yield heart
    heart.close()


def test_every_phase_is_seen_while_it_lasts_and_between_phases_too(heart, tmp_path):
    seen = [read_beat(tmp_path)]
    clock = Stopwatch(heart)
    for name in ("generate", "learn"):
        with clock.phase(name):
            seen.append(read_beat(tmp_path))
    seen.append(read_beat(tmp_path))
    assert [beat.phase for beat in seen] == [BETWEEN, "generate", "learn", BETWEEN]
    assert [beat.deadline for beat in seen] == [3, 5, 10, 3]
    assert len({beat.count for beat in seen}) == 4


def test_the_phases_of_an_validation_beat_under_its_name():
    heard = []
    with Stopwatch(heard.append, within="validation").phase("judge"):
        assert heard == ["validation"]
    assert heard == ["validation", BETWEEN]


def test_a_beat_tells_the_step_and_that_the_policy_no_longer_works_until_it_does(heart, tmp_path):
    plan = some_plan(seed=0, steps=9, detectors=some_detectors())
    events = [evaluated(0, 0.5), evaluated(1, 0.01), evaluated(2, 0.4)]
    told = [(read_beat(tmp_path).step, "")]
    for last in range(1, 4):
        heart.follow(plan, events[last - 1], replace(fold(events[:last]), step=last + 3))
        heart("learn")
        told.append((read_beat(tmp_path).step, read_beat(tmp_path).trouble))
    assert told == [(3, ""), (4, ""), (5, "the validation is at most 16% of the best one"), (6, "")]
    assert (tmp_path / "heartbeat.json").stat().st_size == process.SIZE, "the file never grows"


@pytest.mark.parametrize(
    ("phase", "durations", "seconds"),
    [
        ("learn", [], 10),
        ("learn", [0.1] * 5, 10),
        ("learn", [2, 3, 100], 60),  # twenty times the usual, which one slow step does not change
        (WAITING, [1.0], float("inf")),
        ("unheard of", [], float("inf")),
    ],
)
def test_a_deadline_is_generous(phase, durations, seconds):
    assert process.deadline(DEADLINES, phase, durations) == seconds


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff" * process.SIZE])
def test_what_is_no_beat_is_none(tmp_path, content):
    path = tmp_path / "heartbeat.json"
    assert read_beat(tmp_path) is None
    path.write_bytes(content)
    assert read_beat(tmp_path) is None


def test_a_jump_of_the_wall_clock_changes_no_duration(heart, tmp_path, monkeypatch):
    clock = Stopwatch(heart)
    for _ in range(3):
        with clock.phase("learn"):
            monkeypatch.setattr(time, "time", lambda: -1e9)
        monkeypatch.setattr(time, "time", lambda: 1e12)
    assert clock.seconds()["total"] < 60
    heart("learn")
    assert json.loads((tmp_path / "heartbeat.json").read_bytes())["deadline"] == 10


def test_it_beats_while_inside_and_leaves_no_empty_file(tmp_path):
    with process.alive(tmp_path, DEADLINES, step=4) as heart:
        heart("learn")
    beat = read_beat(tmp_path)
    assert (beat.pid, beat.phase, beat.step) == (os.getpid(), "learn", 4)
    assert [path.name for path in tmp_path.iterdir()] == [HEARTBEAT]


def test_it_says_where_it_is_when_asked(tmp_path):
    def where_i_am():
        signal.raise_signal(signal.SIGUSR2)

    with process.alive(tmp_path, DEADLINES):
        where_i_am()
    assert "where_i_am" in (tmp_path / STACKS).read_text()


def test_what_a_bug_says_is_kept(tmp_path):
    with pytest.raises(ZeroDivisionError), process.alive(tmp_path, DEADLINES):
        raise ZeroDivisionError
    log = (tmp_path / LOG).read_text()
    assert "ZeroDivisionError" in log
    assert log.startswith(time.strftime("%Y-"))


def test_an_expected_failure_is_no_bug(tmp_path):
    with pytest.raises(ProrlError), process.alive(tmp_path, DEADLINES):
        raise ProrlError("the recipe is wrong")
    assert not (tmp_path / LOG).exists()


@pytest.fixture
def wish():
    return process.Interrupt(lambda text: None)


@pytest.mark.parametrize(
    ("kind", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 75), (signal.SIGHUP, 129)],
)
def test_a_signal_is_a_wish_with_its_exit_status(wish, kind, status):
    before = signal.getsignal(kind)
    with wish.listening():
        assert not wish()
        signal.raise_signal(kind)
        assert wish()
    assert wish.status == status
    assert signal.getsignal(kind) is before


def test_the_second_ctrl_c_ends_at_once_but_an_echo_of_the_first_does_not(wish):
    with wish.listening():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        time.sleep(process.ECHO)
        signal.raise_signal(signal.SIGTERM)  # nor does a scheduler that repeats itself
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert wish.status == 130


def test_the_first_ctrl_c_of_a_run_that_stops_for_memory_ends_nothing_at_once(wish):
    with wish.listening():
        wish.stop_for_memory()
        assert (wish(), wish.status) == (True, 71)
        time.sleep(process.ECHO)
        signal.raise_signal(signal.SIGINT)
    assert wish.status == 130


def test_a_hangup_that_was_ignored_at_the_start_stays_ignored(wish):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with wish.listening():
            signal.raise_signal(signal.SIGHUP)
            assert not wish()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_run_in_a_thread_hears_no_signal_and_is_no_failure(wish):
    heard = []

    def run() -> None:
        with wish.listening():
            heard.append((wish.is_listening, wish()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert heard == [(True, False)]


def test_waiting_is_a_phase_of_its_own_and_ends_with_a_wish(wish):
    heard = []
    wish.heartbeat = heard.append
    wish.wait("because", 0.01)
    assert heard == [WAITING, BETWEEN]
    with wish.listening():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(WaitEnded):
            wish.wait("because", 60)


def full(times):
    """A write that finds no room so many times."""
    left = [NoRoomError("full")] * times

    def write():
        if left:
            raise left.pop()
        return "written"

    return write


def test_a_run_that_goes_on_waits_for_room(wish, monkeypatch):
    monkeypatch.setattr(process, "RETRY", 0.01)
    with wish.listening():
        assert process.retry_on_full_disk(full(3), wish) == "written"


def test_without_anybody_to_wait_or_before_a_run_begins_there_is_no_waiting_for_room(wish):
    for interrupt in (None, wish):
        with pytest.raises(NoRoomError, match="full"):
            process.retry_on_full_disk(full(1), interrupt)


def test_a_wish_to_stop_does_not_give_up_what_there_is_room_for_by_then(wish, monkeypatch):
    monkeypatch.setattr(process, "RETRY", 60)
    with wish.listening():
        os.kill(os.getpid(), signal.SIGUSR1)
        assert process.retry_on_full_disk(full(1), wish) == "written"


def test_a_wish_to_stop_ends_the_wait_for_room(wish):
    with wish.listening():
        threading.Timer(0.1, signal.raise_signal, [signal.SIGTERM]).start()
        with pytest.raises(NoRoomError, match="full"):
            process.retry_on_full_disk(full(2), wish)


def test_the_memory_of_a_job_is_the_least_of_its_groups_without_the_file_cache(tmp_path, monkeypatch):
    job = tmp_path / "system" / "job_1"
    job.mkdir(parents=True)
    for group, limit, used in (
        (tmp_path, "max", 0),
        (job.parent, 900 << 20, 300 << 20),
        (job, 800 << 20, 700 << 20),
    ):
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text(f"{used}\n")
        (group / "memory.stat").write_text(f"anon 7\ninactive_file {100 << 20}\nactive_file {100 << 20}\n")
    monkeypatch.setattr(process, "CGROUP", tmp_path)
    monkeypatch.setattr(process, "GROUPS", tmp_path / "cgroup")
    total, available = process.machine_memory()  # nobody says which group it is
    assert 900 << 20 < available <= total, "of this machine"
    (tmp_path / "cgroup").write_text("12:cpu:/elsewhere\n0::/system/job_1\n")
    assert process.machine_memory() == (800 << 20, 300 << 20)
    (job / "memory.max").write_text("max\n")
    assert process.machine_memory()[0] == 900 << 20
