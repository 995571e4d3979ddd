"""What stays on disk and what goes, and that nothing goes which anything still needs."""

import errno

import pytest

from prorl.run import sealed
from prorl.run.retention import Retention, prune, prune_checkpoints
from prorl.run.store import RunStore


@pytest.fixture
def reports():
    return []


@pytest.fixture
def store(tmp_path, reports):
    with RunStore.create(tmp_path / "run", {}, report=reports.append) as store:
        yield store


def save(text):
    return lambda folder: (folder / "model").write_text(text)


def train(store, *steps, reference=None):
    for step in steps:
        store.journal.append({"step": step})
        state = {"step": step, "reference": reference and {"name": reference}}
        store.write_checkpoint(step, state, save(f"weights {step}"))


def on_disk(store, kind="checkpoints"):
    return {path.name for path in (store.folder / kind).iterdir()}


def steps(store):
    return {int(name.removeprefix("step_")) for name in on_disk(store)}


@pytest.mark.parametrize(
    ("last", "every", "keep", "left"),
    [
        (1, 0, (), {9}),
        (2, 0, (), {5, 9}),
        (1, 0, {2, 5}, {2, 5, 9}),
        (2, 0, {9}, {5, 9}),
        (9, 0, (), {0, 2, 5, 9}),
        (1, 0, {7}, {9}),
        (1, 5, (), {0, 5, 9}),
    ],
)
def test_the_newest_the_chosen_and_those_of_the_cadence_stay(store, last, every, keep, left):
    train(store, 0, 2, 5, 9)
    prune_checkpoints(store, Retention(keep_last=last, keep_every=every), keep=keep)
    assert steps(store) == left


def test_a_damaged_checkpoint_never_counts_as_the_newest(store):
    train(store, 1, 2, 3)
    (store.checkpoint_path(3) / "model").unlink()
    prune_checkpoints(store, Retention(keep_last=1), keep=())
    assert store.latest_checkpoint().step == 2


def test_one_must_stay(store):
    with pytest.raises(ValueError, match="keep_last is 0"):
        prune_checkpoints(store, Retention(keep_last=0), keep=())


def test_a_failed_deletion_is_reported_and_not_fatal(store, reports, monkeypatch):
    train(store, 1, 2)

    def remove(folder):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(sealed, "remove", remove)  # root, who may run the tests, is denied nothing
    prune_checkpoints(store, Retention(keep_last=1), keep=())
    assert reports == [f"cannot delete the old checkpoint {store.checkpoint_path(1)}: Permission denied"]


@pytest.fixture
def with_references(store):
    """Four references: of the base, of a checkpoint that stays, of none, and the live one."""
    for number, step in enumerate((0, 5, 7, 9)):
        store.write_reference(f"ref_{number}", save(f"reference {number}"))
        train(store, step, reference=f"ref_{number}")
    return store


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ("all", {"ref_0", "ref_1", "ref_2", "ref_3"}),
        ("needed", {"ref_0", "ref_1", "ref_3"}),
    ],
)
def test_a_reference_stays_while_a_checkpoint_needs_it(with_references, rule, left):
    store = with_references
    rules = Retention(keep_last=1, keep_references=rule)
    prune(store, rules, position=store.journal.size, best=5, live="ref_3")
    assert steps(store) == {0, 5, 9}
    assert on_disk(store, "references") == left


def test_nothing_goes_while_a_checkpoint_does_not_say_what_it_needs(with_references, reports):
    store = with_references
    (store.checkpoint_folder(5) / "state.json").write_text("{")
    rules = Retention(keep_last=1, keep_references="needed")
    prune(store, rules, position=store.journal.size, best=5, live="ref_3")
    assert len(on_disk(store, "references")) == 4
    assert "no reference is deleted" in reports[-1]


def test_the_live_reference_stays_although_no_checkpoint_holds_it_yet(with_references):
    store = with_references
    rules = Retention(keep_last=1, keep_references="needed")
    store.write_reference("ref_live", save("live"))
    position = store.journal.size
    store.journal.append({"step": 10})
    store.write_reference("ref_later", save("born while the checkpoint was being written"))
    prune(store, rules, position=position, best=None, live="ref_live")
    assert on_disk(store, "references") == {"ref_0", "ref_3", "ref_live", "ref_later"}
