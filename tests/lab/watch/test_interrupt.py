"""Wishes to stop, and patience."""

import signal
import threading
import time

import pytest

from prorl.envs.files import NoRoomError
from prorl.lab.watch import interrupt as module
from prorl.lab.watch.interrupt import ECHO, Interrupt
from prorl.rollout.pipeline import WaitEnded
from prorl.run.heartbeat import WAITING
from prorl.stopwatch import BETWEEN
from support.runs import quiet


@pytest.fixture
def wish():
    return Interrupt(quiet())


@pytest.mark.parametrize(
    ("kind", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 75), (signal.SIGHUP, 129)],
)
def test_a_signal_is_a_wish_with_its_exit_status(wish, kind, status):
    with wish.listening():
        assert not wish()
        signal.raise_signal(kind)
        assert wish()
    assert wish.status == status


def test_the_second_ctrl_c_ends_at_once_but_an_echo_of_the_first_does_not(wish):
    with wish.listening():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        time.sleep(ECHO)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_scheduler_that_repeats_itself_is_heard_once(wish):
    with wish.listening():
        signal.raise_signal(signal.SIGTERM)
        time.sleep(ECHO)
        signal.raise_signal(signal.SIGTERM)
    assert wish.status == 143


def test_the_handlers_of_before_come_back(wish):
    before = signal.getsignal(signal.SIGTERM)
    with wish.listening():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_hangup_that_was_ignored_at_the_start_stays_ignored(wish):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with wish.listening():
            signal.raise_signal(signal.SIGHUP)
            assert not wish()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_waiting_is_a_phase_of_its_own_and_ends_with_a_wish(wish):
    heard = []
    wish.pulse = heard.append
    wish.wait("because", 0.01)
    assert heard == [WAITING, BETWEEN]
    with wish.listening():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(WaitEnded):
            wish.wait("because", 60)


def test_a_run_that_goes_on_waits_for_room(wish, monkeypatch):
    monkeypatch.setattr(module, "RETRY", 0.01)
    with wish.listening():
        wish.hold(NoRoomError("full"))


def test_a_run_that_has_not_begun_does_not_wait_for_room(wish):
    with pytest.raises(NoRoomError, match="full"):
        wish.hold(NoRoomError("full"))


def test_a_wish_to_stop_ends_the_wait_for_room(wish):
    with wish.listening():
        threading.Timer(0.1, signal.raise_signal, [signal.SIGTERM]).start()
        with pytest.raises(NoRoomError, match="full"):
            wish.hold(NoRoomError("full"))


def test_want_of_memory_is_a_wish_too(wish):
    wish.out_of_memory()
    assert wish()
    assert wish.status == 71
