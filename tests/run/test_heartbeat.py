"""A trainer's sign of life, and who may be called dead."""

import json
import time

import pytest

from prorl.control.events import Stopped
from prorl.control.state import RunState, fold
from prorl.run.heartbeat import SIZE, WAITING, Beat, Deadlines, Heart, Vigil, read_beat
from prorl.stopwatch import BETWEEN, Stopwatch
from support.defaults import some_detectors, some_plan
from support.events import evaluated

DEADLINES = Deadlines(least={"learn": 10.0, "generate": 5.0, BETWEEN: 3.0}, factor=20.0)


def beat(count=1, deadline=10.0):
    return Beat(pid=1, count=count, phase="learn", deadline=deadline, step=0, at=0.0)


@pytest.fixture
def heart(tmp_path):
    heart = Heart(tmp_path / "heartbeat.json", DEADLINES, step=3)
    yield heart
    heart.close()


def test_every_phase_is_seen_while_it_lasts_and_between_phases_too(heart, tmp_path):
    seen = [read_beat(tmp_path / "heartbeat.json")]
    clock = Stopwatch(heart)
    for name in ("generate", "learn"):
        with clock.phase(name):
            seen.append(read_beat(tmp_path / "heartbeat.json"))
    seen.append(read_beat(tmp_path / "heartbeat.json"))
    assert [beat.phase for beat in seen] == [BETWEEN, "generate", "learn", BETWEEN]
    assert [beat.deadline for beat in seen] == [3, 5, 10, 3]
    assert len({beat.count for beat in seen}) == 4


def test_the_phases_of_an_exam_beat_under_its_name():
    heard = []
    with Stopwatch(heard.append, within="exam").phase("judge"):
        assert heard == ["exam"]
    assert heard == ["exam", BETWEEN]


def test_the_step_follows_the_run(heart, tmp_path):
    assert read_beat(tmp_path / "heartbeat.json").step == 3
    heart.follow(some_plan(seed=0, steps=9), Stopped(step=4, reason="done"), RunState(step=4))
    heart("learn")
    assert (read_beat(tmp_path / "heartbeat.json").step, read_beat(tmp_path / "heartbeat.json").trouble) == (
        4,
        "",
    )


def test_a_beat_tells_that_the_policy_no_longer_works_until_it_does(heart, tmp_path):
    plan = some_plan(seed=0, steps=9, detectors=some_detectors())
    events = [evaluated(0, 0.5), evaluated(1, 0.01), evaluated(2, 0.4)]
    told = []
    for last in range(1, 4):
        heart.follow(plan, events[last - 1], fold(events[:last]))
        heart("learn")
        told.append(read_beat(tmp_path / "heartbeat.json").trouble)
    assert told == ["", "the exam is at most 16% of the best one", ""]


def test_the_file_never_grows(heart, tmp_path):
    for _ in range(50):
        heart("learn")
    assert (tmp_path / "heartbeat.json").stat().st_size == SIZE


@pytest.mark.parametrize(
    ("phase", "durations", "deadline"),
    [
        ("learn", [], 10),
        ("learn", [0.1] * 5, 10),
        ("learn", [2, 3, 100], 60),  # twenty times the usual, which one slow step does not change
        (WAITING, [1.0], float("inf")),
        ("unheard of", [], float("inf")),
    ],
)
def test_a_deadline_is_generous(phase, durations, deadline):
    assert DEADLINES.of(phase, durations) == deadline


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff" * SIZE])
def test_what_is_no_beat_is_none(tmp_path, content):
    path = tmp_path / "heartbeat.json"
    assert read_beat(path) is None
    path.write_bytes(content)
    assert read_beat(path) is None


def test_silence_is_counted_until_the_next_beat():
    vigil = Vigil()
    assert not vigil.overdue(beat(1), 100.0), "the first look says nothing about how long it has been"
    assert not vigil.overdue(beat(1), 9.0)
    assert not vigil.overdue(beat(2), 9.0)
    assert not vigil.overdue(beat(2), 10.0)
    assert vigil.overdue(beat(2), 0.5)


def test_a_pause_on_purpose_has_no_end():
    vigil = Vigil()
    assert not any(vigil.overdue(beat(deadline=float("inf")), 1e9) for _ in range(3))


def test_a_jump_of_the_wall_clock_changes_no_duration(heart, tmp_path, monkeypatch):
    clock = Stopwatch(heart)
    for _ in range(3):
        with clock.phase("learn"):
            monkeypatch.setattr(time, "time", lambda: -1e9)
        monkeypatch.setattr(time, "time", lambda: 1e12)
    assert clock.seconds()["total"] < 60
    heart("learn")
    assert json.loads((tmp_path / "heartbeat.json").read_bytes())["deadline"] == 10
