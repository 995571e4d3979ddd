"""A branch is what led to its checkpoint and nothing later; a run goes on only in the environment it needs."""

import shutil

import pytest

from prorl.control.events import Resumed
from prorl.envs.files import StorageError
from prorl.run.journal import read_journal
from prorl.run.layout import read_config
from prorl.run.resume import branch, changes
from prorl.run.store import RunStore

BEGUN = Resumed(step=2, config_hash="d", branched_from="run@2")


def save(text):
    return lambda folder: (folder / "model").write_text(text)


@pytest.fixture
def store(tmp_path):
    """A run of five saved steps, with a reference born at 0 and at 3, whose best validation was that of step 1."""
    with RunStore.create(tmp_path / "parent", {}) as store:
        fill(store)
        yield store


@pytest.fixture
def parent(store):
    return RunStore.open(store.folder)  # it may be training: `store` holds the lock


def fill(store):
    for step in range(5):
        store.journal.append({"began": step})
        if step in (0, 3):
            store.write_reference(f"ref_{step}", save(f"reference {step}"))
        store.journal.append({"step": step})
        state = {"step": step, "best_step": min(step, 1)}
        store.write_checkpoint(step, state, save(f"weights {step}")).result()
    (store.folder / "tokenizer").mkdir()
    (store.folder / "tokenizer" / "tokenizer.json").write_text("{}")
    (store.folder / "evals" / "measurement").mkdir(parents=True)
    for name in ("rules.json", "base.parquet", "step_000004.parquet"):
        (store.folder / "evals" / "measurement" / name).write_text(name)
    store.write_samples(4, [{"text": "of the parent"}])
    (store.folder / "inbox.jsonl").write_text("orders to the parent\n")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_branch_holds_what_led_to_its_checkpoint(parent, tmp_path):
    branch(parent, tmp_path / "branch", parent.checkpoint(2), {"name": "branch"}, BEGUN)
    made = tmp_path / "branch"
    assert names(made / "checkpoints") == ["step_000000", "step_000001", "step_000002"]
    assert names(made / "references") == ["ref_0"]
    assert names(made / "evals" / "measurement") == ["base.parquet", "rules.json"]
    assert names(made / "samples") == []
    assert names(made / "tokenizer") == ["tokenizer.json"]
    assert not (made / "inbox.jsonl").exists()
    with RunStore.open(made) as store:
        assert read_config(made) == {"name": "branch"}
        *copied, told = read_journal(made / "journal.jsonl")
        assert [one["step"] for one in copied if "step" in one] == [0, 1, 2]
        assert (told["kind"], told["branched_from"], told["config_hash"]) == ("resumed", "run@2", "d")
        assert store.latest_checkpoint().step == 2


def test_a_best_checkpoint_that_is_gone_is_not_missed(parent, tmp_path):
    shutil.rmtree(parent.checkpoint_folder(1))
    branch(parent, tmp_path / "branch", parent.checkpoint(4), {}, BEGUN)
    assert names(tmp_path / "branch" / "checkpoints") == ["step_000000", "step_000004"]


def test_what_a_killed_branch_left_goes_and_nothing_of_another(parent, tmp_path):
    for name in ("[ab]", "a"):
        (tmp_path / f".{name}.tmp-0badf00d").mkdir()
    branch(parent, tmp_path / "[ab]", parent.checkpoint(2), {}, BEGUN)
    assert names(tmp_path) == [".a.tmp-0badf00d", "[ab]", "parent"]


def test_what_vanishes_while_a_branch_is_made_is_said_and_leaves_nothing(parent, tmp_path):
    checkpoint = parent.checkpoint(2)
    (parent.folder / "journal.jsonl").rename(parent.folder / "elsewhere")
    with pytest.raises(StorageError, match="try again"):
        branch(parent, tmp_path / "branch", checkpoint, {}, BEGUN)
    assert names(tmp_path) == ["parent"]


THEN = {"torch": "2.13.0", "processor": "AVX2", "tokenizer": "aa", "problems": "bb"}


@pytest.mark.parametrize(
    ("name", "said"), [("tokenizer", "restore them"), ("problems", "restore the code or data")]
)
def test_a_run_does_not_go_on_without_its_tokenizer_and_its_problems(name, said):
    with pytest.raises(StorageError, match=rf"{said}.*--branch"):
        changes(THEN, THEN | {name: "other"}, refuse=True)
    assert changes(THEN, THEN | {name: "other"}, refuse=False) == []


def test_another_version_is_told_and_what_was_never_recorded_is_not_missed():
    assert changes({}, THEN, refuse=True) == changes(THEN, {}, refuse=True) == []
    now = THEN | {"torch": "2.13.1", "processor": "AVX512"}
    first, second = changes(THEN, now, refuse=True)
    assert first.startswith("processor was AVX2 and is now AVX512")
    assert second.startswith("torch was 2.13.0 and is now 2.13.1")
