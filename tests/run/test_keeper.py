"""Saving beside the training: when, how often, and what a full disk costs."""

import threading
from dataclasses import replace

import pytest

from prorl.control.events import Started, Stopped, Warned, from_record
from prorl.control.state import RunState
from prorl.envs.files import NoRoomError
from prorl.run.guards import GuardRules
from prorl.run.keeper import Keeper, KeepRules
from prorl.run.recorder import Recorder
from prorl.run.retention import Retention
from prorl.run.store import RunStore
from support.events import stepped


class Learner:
    """Its weights are a number; a write waits for `gate` and fails while the disk is full."""

    def __init__(self) -> None:
        self.weights = 0
        self.full = False
        self.gate = threading.Event()
        self.gate.set()

    def snapshot(self):
        kept = self.weights

        def write(folder):
            self.gate.wait(10)
            if self.full:
                raise NoRoomError("the disk is full")
            (folder / "model").write_text(str(kept))

        return write


@pytest.fixture
def learner():
    return Learner()


@pytest.fixture
def store(tmp_path):
    with RunStore.create(tmp_path / "run", {}) as store:
        yield store


@pytest.fixture
def recorder(store):
    recorder = Recorder(store.journal, RunState())
    recorder.record(Started(config_hash="c", reference_hash=None))
    return recorder


@pytest.fixture
def keeper(store, learner, recorder):
    def make(**rules) -> Keeper:
        return Keeper(store, learner, recorder, KeepRules(**rules))

    return make


def go(keeper, recorder, learner, step, *, due=True):
    """One step and the boundary after it."""
    learner.weights = step
    keeper.keep(recorder.record(stepped(step)), due=due, good_step=0)


def saved(store):
    store.finish_writing()
    return {int(path.name[5:]): (path / "model").read_text() for path in store.checkpoints()}


def warnings(store):
    return [event for event in map(from_record, store.journal.read()) if isinstance(event, Warned)]


def test_the_weights_are_those_of_the_boundary_however_long_the_write_takes(keeper, store, recorder, learner):
    keep = keeper()
    learner.gate.clear()
    go(keep, recorder, learner, 1)
    go(keep, recorder, learner, 2, due=False)
    assert store.checkpoints() == []
    learner.gate.set()
    assert saved(store) == {1: "1"}
    assert store.latest_checkpoint().state["step"] == 1


def test_one_write_waits_for_the_one_before(keeper, store, recorder, learner):
    keep = keeper()
    learner.gate.clear()
    go(keep, recorder, learner, 1)
    threading.Timer(0.1, learner.gate.set).start()
    go(keep, recorder, learner, 2)
    assert 1 in {int(path.name[5:]) for path in store.checkpoints()}
    assert saved(store) == {1: "1", 2: "2"}


def test_the_end_of_a_run_is_saved_before_keep_returns(keeper, store, recorder, learner):
    keep = keeper()
    state = recorder.record(Stopped(step=0, reason="interrupted"))
    keep.keep(state, due=False, good_step=0)
    assert [path.name for path in store.checkpoints()] == ["step_000000"]


def test_nothing_is_saved_before_its_time(keeper, store, recorder, learner):
    keep = keeper(minutes=0.0)
    go(keep, recorder, learner, 1, due=False)
    assert saved(store) == {}


def test_the_clock_saves_too(keeper, store, recorder, learner):
    keep = keeper(minutes=1e-9)
    go(keep, recorder, learner, 1, due=False)
    assert saved(store) == {1: "1"}


def test_a_full_disk_costs_a_checkpoint_and_never_the_run(keeper, store, recorder, learner):
    keep = keeper(retry_seconds=0.0)
    go(keep, recorder, learner, 1)
    store.finish_writing()
    learner.full = True
    go(keep, recorder, learner, 2)
    store.finish_writing()
    go(keep, recorder, learner, 3, due=False)
    assert [warned.step for warned in warnings(store)] == [3]
    store.finish_writing()
    learner.full = False
    go(keep, recorder, learner, 4, due=False)
    assert saved(store) == {1: "1", 4: "4"}
    assert all("the run goes on and tries again" in warned.text for warned in warnings(store))


def test_a_full_disk_is_not_tried_at_every_step(keeper, store, recorder, learner):
    keep = keeper(retry_seconds=1000.0)
    go(keep, recorder, learner, 1)
    store.finish_writing()
    learner.full = True
    go(keep, recorder, learner, 2)
    for step in range(3, 9):
        store.finish_writing()
        go(keep, recorder, learner, step, due=False)
    assert len(warnings(store)) == 1


def test_room_is_looked_for_before_anything_is_copied(keeper, store, recorder, learner, monkeypatch):
    keep = keeper(retry_seconds=0.0)
    go(keep, recorder, learner, 1)
    store.finish_writing()
    monkeypatch.setattr("prorl.run.keeper.free_bytes", lambda path: 1)
    monkeypatch.setattr(learner, "snapshot", lambda: pytest.fail("there is no room for it"))
    go(keep, recorder, learner, 2)
    (warned,) = warnings(store)
    assert "no space left for a checkpoint" in warned.text


def test_a_run_that_cannot_be_saved_even_once_ends(keeper, store, recorder, learner):
    keep = keeper()
    learner.full = True
    go(keep, recorder, learner, 1)
    store.finish_writing()
    with pytest.raises(NoRoomError):
        go(keep, recorder, learner, 2, due=False)


def test_an_end_that_cannot_be_saved_is_said(keeper, store, recorder, learner):
    keep = keeper()
    go(keep, recorder, learner, 1)
    store.finish_writing()
    learner.full = True
    with pytest.raises(NoRoomError):
        keep.keep(recorder.record(Stopped(step=1, reason="done")), due=True, good_step=0)
    assert saved(store) == {1: "1"}


def test_a_bug_in_a_write_is_not_taken_for_a_full_disk(keeper, store, recorder, learner):
    keep = keeper()
    go(keep, recorder, learner, 1)

    def broken():
        def write(folder):
            raise ZeroDivisionError

        return write

    store.finish_writing()
    learner.snapshot = broken
    go(keep, recorder, learner, 2)
    store.finish_writing()
    with pytest.raises(ZeroDivisionError):
        go(keep, recorder, learner, 3)


def test_old_checkpoints_go_once_the_new_one_is_safe(keeper, store, recorder, learner):
    keep = keeper(retention=Retention(keep_last=2))
    for step in range(1, 5):
        go(keep, recorder, learner, step)
    assert saved(store) == {3: "3", 4: "4"}


def test_a_failed_write_deletes_nothing(keeper, store, recorder, learner):
    keep = keeper(retention=Retention(keep_last=1), retry_seconds=1000.0)
    go(keep, recorder, learner, 1)
    store.finish_writing()
    learner.full = True
    go(keep, recorder, learner, 2)
    assert saved(store) == {1: "1"}


def test_want_of_memory_raises_the_alarm_once_per_boundary(store, learner, recorder):
    alarms = []
    rules = KeepRules(guard=GuardRules(memory_stop=0.999999))
    keep = Keeper(store, learner, recorder, rules, alarm=lambda: alarms.append(1))
    state = recorder.record(stepped(1))
    keep.keep(state, due=False, good_step=0)
    keep.keep(replace(state), due=False, good_step=0)  # the same boundary again, of a paused run
    assert alarms == [1]
    assert "memory is nearly used up" in warnings(store)[0].text


def test_what_was_mended_is_journalled_once_at_the_next_boundary(store, learner, recorder):
    told = [["engine 1 has died", "engine 0 was silent"], []]
    keep = Keeper(store, learner, recorder, incidents=lambda: told.pop(0))
    go(keep, recorder, learner, 1)
    go(keep, recorder, learner, 2, due=False)
    assert warnings(store) == [
        Warned(step=1, text="engine 1 has died"),
        Warned(step=1, text="engine 0 was silent"),
    ]
    store.finish_writing()
