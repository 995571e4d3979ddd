"""When a run is saved, what a full disk costs, and what goes: nothing that anything still needs."""

import errno
import shutil
import threading
from types import SimpleNamespace

import pytest

from prorl.config.schema import GuardsConfig, SaveConfig
from prorl.control.events import Started, Stopped, Warned, from_record
from prorl.control.state import RunState
from prorl.envs.files import NoRoomError, StorageError
from prorl.run import checkpoint
from prorl.run.checkpoint import Checkpointer, prune
from prorl.run.history import read_history
from prorl.run.journal import EventLog, read_journal
from prorl.run.process import Interrupt
from prorl.run.store import RunStore
from support.events import stepped


class Learner:
    """Its weights are a number; a write waits for `gate` and fails with `failure`. It is a backend too."""

    def __init__(self) -> None:
        self.learner = self
        self.told = []
        self.weights = 0
        self.failure = None
        self.gate = threading.Event()
        self.gate.set()

    def incidents(self):
        told, self.told = self.told, []
        return told

    def snapshot(self):
        kept = self.weights

        def write(folder):
            self.gate.wait(10)
            if self.failure:
                raise self.failure
            (folder / "model").write_text(str(kept))

        return write


@pytest.fixture
def learner():
    return Learner()


@pytest.fixture
def reports():
    return []


@pytest.fixture
def store(tmp_path, reports):
    with RunStore.create(tmp_path / "run", {}, report=reports.append) as store:
        yield store


@pytest.fixture
def event_log(store):
    event_log = EventLog(store.journal, RunState())
    event_log.record(Started(config_hash="c", reference_hash=None))
    return event_log


@pytest.fixture
def checkpointer(store, learner, event_log):
    def make(memory_stop=0.02, **rules) -> Checkpointer:
        guards = GuardsConfig(memory_stop=memory_stop)
        return Checkpointer(store, learner, event_log, SaveConfig(**rules), guards)

    return make


@pytest.fixture
def go(event_log, store, learner):
    """One step and what follows it, when the write before has ended or while it is under way."""

    def step(checkpointer, number, *, due=True, wait=True, failure=None):
        if wait:
            store.finish_writing()
        learner.weights, learner.failure = number, failure
        state = event_log.record(stepped(number))
        checkpointer.look()
        checkpointer.keep(state, due=due, good_step=0)

    return step


def saved(store):
    store.finish_writing()
    return {step: (path / "model").read_text() for step, path in store.checkpoints().items()}


def warnings(store):
    return [
        event for event in map(from_record, read_journal(store.journal.path)) if isinstance(event, Warned)
    ]


FULL = NoRoomError("the disk is full")


def test_the_weights_are_those_of_its_step_however_long_the_write_takes(checkpointer, store, learner, go):
    keep = checkpointer()
    learner.gate.clear()
    go(keep, 1)
    go(keep, 2, due=False, wait=False)
    assert store.checkpoints() == {}
    threading.Timer(0.1, learner.gate.set).start()
    go(keep, 3, wait=False)  # waits for the write before
    assert 1 in store.checkpoints()
    assert saved(store) == {1: "1", 3: "3"}
    assert store.latest_checkpoint().state["step"] == 3


def test_the_end_of_a_run_waits_for_room_and_is_saved_before_keep_returns(
    checkpointer, store, event_log, learner, monkeypatch
):
    waits = []

    def make_room(text, seconds):
        waits.append(text)
        learner.failure = None

    store.interrupt = SimpleNamespace(is_listening=True, wait=make_room)
    learner.failure = FULL
    checkpointer().keep(event_log.record(Stopped(step=0, reason="done")), due=False, good_step=0)
    assert list(store.checkpoints()) == [0]
    assert waits == ["paused: the disk is full; trying again in 30 s"]


@pytest.mark.parametrize(("minutes", "found"), [(0.0, {}), (1e-9, {1: "1"}), (60.0, {})])
def test_the_clock_saves_too_and_nothing_before_its_time(checkpointer, store, go, minutes, found):
    go(checkpointer(minutes=minutes), 1, due=False)
    assert saved(store) == found


def test_a_full_disk_costs_a_checkpoint_and_never_the_run(checkpointer, store, go, monkeypatch):
    monkeypatch.setattr(checkpoint, "RETRY", 0.0)
    keep = checkpointer(keep_last=1)
    go(keep, 1)
    go(keep, 2, failure=FULL)
    go(keep, 3, due=False, failure=FULL)
    assert [warned.step for warned in warnings(store)] == [3]
    assert saved(store) == {1: "1"}
    go(keep, 4, due=False)
    assert saved(store) == {4: "4"}
    assert all("the run goes on and tries again" in warned.text for warned in warnings(store))


def test_a_full_disk_is_not_tried_at_every_step(checkpointer, store, go):
    keep = checkpointer()
    go(keep, 1)
    go(keep, 2, failure=FULL)
    for step in range(3, 9):
        go(keep, step, due=False, failure=FULL)
    assert len(warnings(store)) == 1


def test_room_is_looked_for_before_anything_is_copied(checkpointer, store, learner, go, monkeypatch):
    keep = checkpointer()
    go(keep, 1)
    store.finish_writing()
    monkeypatch.setattr("prorl.envs.files.free_bytes", lambda path: 1)
    monkeypatch.setattr(learner, "snapshot", lambda: pytest.fail("there is no room for it"))
    go(keep, 2)
    (warned,) = warnings(store)
    assert "no space left for a checkpoint" in warned.text


def test_checkpoints_that_were_given_up_make_room(checkpointer, store, reports, go, monkeypatch):
    keep = checkpointer()
    go(keep, 1)
    store.finish_writing()
    (given_up := store.folder / "discarded" / "checkpoints" / "step_000009").mkdir(parents=True)
    monkeypatch.setattr("prorl.envs.files.free_bytes", lambda path: 1 if given_up.exists() else 10**9)
    go(keep, 2)
    store.finish_writing()
    assert [*store.checkpoints()] == [1, 2]
    assert not given_up.exists()
    assert "no other room for the next checkpoint" in reports[-1]
    assert warnings(store) == []


def test_a_run_that_was_moved_writes_nothing_where_it_was(checkpointer, store, go, tmp_path):
    keep = checkpointer()
    go(keep, 1)
    store.finish_writing()
    store.folder.rename(tmp_path / "moved")
    for again in (False, True):
        if again:
            shutil.copytree(tmp_path / "moved", store.folder)
        with pytest.raises(StorageError, match="was moved or deleted while it trained: go on with"):
            keep.look()


def test_a_run_that_cannot_be_saved_even_once_ends(checkpointer, go):
    keep = checkpointer()
    go(keep, 1, failure=FULL)
    with pytest.raises(NoRoomError):
        go(keep, 2, due=False)


def test_an_end_that_cannot_be_saved_is_said(checkpointer, store, event_log, learner, go):
    keep = checkpointer()
    go(keep, 1)
    store.finish_writing()
    learner.failure = FULL
    with pytest.raises(NoRoomError):
        keep.keep(event_log.record(Stopped(step=1, reason="done")), due=True, good_step=0)
    assert saved(store) == {1: "1"}


def test_a_write_that_fails_while_a_run_ends_is_not_told_behind_its_end(
    checkpointer, store, event_log, learner, go
):
    keep = checkpointer()
    go(keep, 1)
    store.finish_writing()
    learner.gate.clear()
    go(keep, 2, failure=FULL)
    threading.Timer(0.1, learner.gate.set).start()
    store.interrupt = SimpleNamespace(
        is_listening=True, wait=lambda text, seconds: setattr(learner, "failure", None)
    )
    keep.keep(event_log.record(Stopped(step=2, reason="done")), due=True, good_step=0)
    assert saved(store) == {1: "1", 2: "2"}
    assert read_history(store.folder).stopped == "done"
    assert warnings(store) == []


@pytest.mark.parametrize("wait", [True, False])
def test_a_bug_in_a_write_is_told_whether_or_not_the_next_one_waits_for_it(
    checkpointer, go, store, learner, wait
):
    keep, bug = checkpointer(), ZeroDivisionError()
    go(keep, 1)
    store.finish_writing()
    learner.gate.clear()
    go(keep, 2, failure=bug)
    threading.Timer(0.1, learner.gate.set).start()
    with pytest.raises(ZeroDivisionError):
        go(keep, 3, wait=wait, failure=bug)


def test_old_checkpoints_go_once_the_new_one_is_safe(checkpointer, store, go):
    keep = checkpointer(keep_last=2)
    for step in range(1, 5):
        go(keep, step)
    assert saved(store) == {3: "3", 4: "4"}


@pytest.mark.parametrize(
    ("memory_stop", "said"),
    [
        (0.02, ["memory is nearly used up: 250.0 MB of 16.0 GB are left; stopping, saved"]),
        (0.015, []),
        (0.0, []),
    ],
)
def test_want_of_memory_asks_to_stop(checkpointer, store, event_log, monkeypatch, memory_stop, said):
    monkeypatch.setattr(checkpoint, "machine_memory", lambda: (16 * 10**9, 10**9 // 4))
    store.interrupt = Interrupt(lambda text: None)
    keep = checkpointer(memory_stop=memory_stop)
    event_log.record(stepped(1))
    for _ in range(2):  # the same step again, of a paused run
        keep.look()
    assert store.interrupt() == bool(said)
    assert [warned.text for warned in warnings(store)] == said


def test_what_was_mended_is_journalled_once_after_the_next_step(checkpointer, store, learner, go):
    learner.told = ["engine 1 has died", "engine 0 was silent"]
    keep = checkpointer()
    go(keep, 1)
    go(keep, 2, due=False)
    told = [(warned.step, warned.text) for warned in warnings(store)]
    assert told == [(1, "engine 1 has died"), (1, "engine 0 was silent")]


def save(text):
    return lambda folder: (folder / "model").write_text(text)


def train(store, *steps, **state):
    for step in steps:
        store.journal.append({"step": step})
        store.write_checkpoint(step, {"step": step, **state}, save(f"weights {step}")).result()


@pytest.mark.parametrize(
    ("last", "every", "best", "good", "left"),
    [
        (1, 0, None, 0, [0, 9]),
        (2, 0, None, 0, [0, 5, 9]),
        (1, 0, 2, 7, [0, 2, 5, 9]),
        (2, 0, 9, 0, [0, 5, 9]),
        (9, 0, None, 0, [0, 2, 5, 9]),
        (1, 0, 7, 0, [0, 9]),
        (1, 5, None, 0, [0, 5, 9]),
    ],
)
def test_the_newest_the_base_the_best_the_good_and_those_of_the_cadence_stay(
    store, last, every, best, good, left
):
    train(store, 0, 2, 5, 9)
    prune(store, SaveConfig(keep_last=last, keep_every=every), best=best, good=good)
    assert list(store.checkpoints()) == left


@pytest.mark.parametrize(("good", "left"), [(9, [0, 5, 7, 9]), (3, [0, 2, 3, 5, 7, 9])])
def test_what_was_the_best_at_a_checkpoint_to_return_to_stays_with_it(store, good, left):
    train(store, 0)
    for step, best in ((2, 2), (3, 2), (5, 5), (7, 5), (9, 9)):
        train(store, step, best_step=best)
    prune(store, SaveConfig(keep_last=2), best=9, good=good)
    assert list(store.checkpoints()) == left


def test_a_state_that_cannot_be_read_names_no_best_and_ends_no_run(store):
    train(store, 1, 2, best_step=1)
    state = store.checkpoint_folder(2) / "state.json"
    state.write_bytes(b"?" * state.stat().st_size)
    prune(store, SaveConfig(keep_last=1), best=2, good=2)
    assert list(store.checkpoints()) == [2]


def test_a_run_whose_checkpoints_are_gone_goes_on_and_saves_new_ones(checkpointer, store, go):
    keep = checkpointer()
    go(keep, 1)
    store.finish_writing()
    shutil.rmtree(store.checkpoint_folder(1).parent)
    go(keep, 2)
    assert saved(store) == {2: "2"}


@pytest.mark.parametrize(("damaged", "good", "left"), [(4, 0, [3, 4]), (2, 2, [1, 2, 4])])
def test_a_damaged_checkpoint_counts_neither_as_the_newest_nor_as_the_last_good_one(
    store, damaged, good, left
):
    train(store, 1, 2, 3, 4)
    (store.checkpoint_folder(damaged) / "model").unlink()
    prune(store, SaveConfig(keep_last=1), best=None, good=good)
    assert list(store.checkpoints()) == left


def test_a_failed_deletion_is_reported_and_not_fatal(store, reports, monkeypatch):
    train(store, 1, 2)

    def remove(folder):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", remove)  # root, who may run the tests, is denied nothing
    prune(store, SaveConfig(keep_last=1), best=None, good=0)
    (said,) = reports
    assert said.startswith(f"cannot delete {store.checkpoint_folder(1)}, ")
    assert said.endswith("Permission denied")
