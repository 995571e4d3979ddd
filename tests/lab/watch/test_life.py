"""What a trainer leaves behind about how it lived and died."""

import os
import signal
import time

import pytest

from prorl.envs.errors import ProrlError
from prorl.lab.watch.life import alive
from prorl.run.heartbeat import Deadlines, read_beat
from prorl.run.layout import HEARTBEAT, LOG, STACKS

DEADLINES = Deadlines(least={})


def test_it_beats_while_inside_and_leaves_no_empty_file(tmp_path):
    with alive(tmp_path, DEADLINES, step=4) as heart:
        heart("learn")
    beat = read_beat(tmp_path / HEARTBEAT)
    assert (beat.pid, beat.phase, beat.step) == (os.getpid(), "learn", 4)
    assert [path.name for path in tmp_path.iterdir()] == [HEARTBEAT]


def test_it_says_where_it_is_when_asked(tmp_path):
    def where_i_am():
        signal.raise_signal(signal.SIGUSR2)

    with alive(tmp_path, DEADLINES):
        where_i_am()
    assert "where_i_am" in (tmp_path / STACKS).read_text()


def test_what_a_bug_says_is_kept(tmp_path):
    with pytest.raises(ZeroDivisionError), alive(tmp_path, DEADLINES):
        raise ZeroDivisionError
    log = (tmp_path / LOG).read_text()
    assert "ZeroDivisionError" in log
    assert log.startswith(time.strftime("%Y-"))


def test_an_expected_failure_is_no_bug(tmp_path):
    with pytest.raises(ProrlError), alive(tmp_path, DEADLINES):
        raise ProrlError("the recipe is wrong")
    assert not (tmp_path / LOG).exists()
