"""The run directory survives kills, damage, full disks and second trainers."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prorl.config.schema import SaveConfig
from prorl.envs.files import StorageError, encode_json
from prorl.run import layout
from prorl.run.checkpoint import commit, prune, read_manifest
from prorl.run.journal import read_journal
from prorl.run.layout import hold_lock, is_born, read_config
from prorl.run.store import Checkpoint, RunStore
from support.commands import files_limited_to

CONFIG = {"seed": 1, "model": {"layers": 2}}


def save(text):
    """A learner that saves two files, one of them in a folder."""

    def write(folder: Path) -> None:
        (folder / "model.safetensors").write_text(text)
        (folder / "optimizer").mkdir()
        (folder / "optimizer" / "state.bin").write_bytes(bytes(range(200)))

    return write


def refuse(folder: Path) -> None:
    pytest.fail("there is nothing to write")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "runs" / "first"


@pytest.fixture
def reports():
    return []


@pytest.fixture
def store(folder, reports):
    with RunStore.create(folder, CONFIG, report=reports.append) as store:
        yield store


def reopened(store):
    """The same run in another process, as far as locks and memory go."""
    store.__exit__(None, None, None)
    return RunStore.open(store.folder, report=store.report)


def write(store, step, state, weights):
    store.write_checkpoint(step, state, weights).result()
    return store.checkpoint_folder(step)


def train(store, *steps):
    """One journal record and one checkpoint per step."""
    for step in steps:
        store.journal.append({"step": step})
        write(store, step, {"step": step}, save(f"weights {step}"))


def journalled(store):
    return [record["step"] for record in read_journal(store.journal.path) if "step" in record]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def hidden(store):
    return [path.name for path in store.folder.rglob(".*")]


def python(code, *arguments):
    """What another process prints."""
    start = "import os, sys; from pathlib import Path; from prorl.run.store import RunStore, commit\n"
    command = [sys.executable, "-c", start + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


# -- the folder and its lock


def test_a_new_run_is_opened_again_and_nothing_else_is(folder):
    with pytest.raises(StorageError, match="holds no run"):
        RunStore.open(folder)
    RunStore.create(folder, CONFIG)
    RunStore.open(folder)
    assert read_config(folder) == CONFIG


@pytest.fixture
def unborn(store):
    """A run that was killed before its first checkpoint."""
    store.write_reference("ref_000", save("base"))
    store.journal.append({"kind": "started"})
    store.__exit__(None, None, None)
    return store.folder


def test_a_run_that_was_never_saved_makes_way_for_the_same_one(unborn):
    (unborn / "notes.txt").write_text("mine")
    assert not is_born(unborn)
    with RunStore.create(unborn, CONFIG | {"threads": 7}) as store:  # on another machine
        assert journalled(store) == names(unborn / "references") == []
    assert (unborn / "notes.txt").read_text() == "mine"


def test_a_run_whose_checkpoints_are_gone_stays(unborn):
    config = CONFIG | {"save": {"every": 2}}
    (unborn / "config.json").write_bytes(encode_json(config))
    with RunStore.open(unborn) as store:
        for step in (1, 2, 3):
            store.journal.append({"kind": "stepped", "step": step})
    before = (unborn / "journal.jsonl").read_bytes()
    with pytest.raises(
        StorageError, match=r"has 3 steps in its journal and no checkpoint: put its checkpoints back"
    ):
        RunStore.create(unborn, config)
    assert (unborn / "journal.jsonl").read_bytes() == before
    assert names(unborn / "references") == ["ref_000"]


@pytest.mark.parametrize(
    ("config", "harm", "said"),
    [
        (CONFIG | {"seed": 2}, lambda folder: None, "a run of another recipe"),
        (CONFIG, lambda folder: (folder / "checkpoints" / "step_000000").mkdir(), "prorl resume"),
        (CONFIG, lambda folder: (folder / "config.json").write_text("{"), "a run of another recipe"),
        (CONFIG, lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
    ],
)
def test_any_other_run_stays(unborn, config, harm, said):
    harm(unborn)
    with pytest.raises(StorageError, match=said):
        RunStore.create(unborn, config)
    assert names(unborn / "references") == ["ref_000"]


def test_create_after_a_create_that_was_killed(folder):
    RunStore.create(folder, CONFIG)
    (folder / "config.json").unlink()  # it is written last
    RunStore.create(folder, CONFIG)
    assert read_config(folder) == CONFIG


@pytest.mark.parametrize("take", ["RunStore.open(folder).__enter__()", f"RunStore.create(folder, {CONFIG})"])
def test_a_second_trainer_is_refused_and_told_who_holds_the_run(store, take):
    code = f"folder = Path(sys.argv[1])\ntry: {take}\nexcept Exception as error: print(type(error).__name__, error)"
    said = python(code, store.folder)
    assert said.startswith("StorageError")
    assert f"is being trained by process {os.getpid()} on" in said


@pytest.mark.parametrize("released", [True, False])
def test_the_lock_of_a_machine_that_died_is_waited_for(store, reports, monkeypatch, released):
    """A file server keeps it for a while."""
    again, lock = reopened(store), store.folder / "lock"
    with ExitStack() as held:
        held.enter_context(hold_lock(lock))
        lock.write_text("process 7 on elsewhere\n")
        monkeypatch.setattr(layout, "ELSEWHERE", 60.0 if released else 0.0)
        monkeypatch.setattr(
            layout.time, "sleep", lambda seconds: held.close() if seconds == layout.LOOK else None
        )
        with (
            nullcontext() if released else pytest.raises(StorageError, match="process 7 on elsewhere; stop"),
            again,
        ):
            pass
    assert len([text for text in reports if "process 7 on elsewhere" in text]) == released


def test_storage_without_locks_is_told(store, monkeypatch):
    def unlocked(descriptor, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unlocked)
    with pytest.raises(
        StorageError, match=r"has no file locks \(No locks available\): put the run on storage that has"
    ):
        reopened(store).__enter__()


def test_the_lock_ends_with_the_block_and_with_a_failed_start(store):
    again = reopened(store)
    (store.folder / "journal.jsonl").unlink()
    (store.folder / "journal.jsonl").mkdir()
    with pytest.raises(IsADirectoryError):
        again.__enter__()
    (store.folder / "journal.jsonl").rmdir()
    with again:
        train(again, 1)


def test_writing_needs_the_lock_and_reading_does_not(folder, store):
    train(store, 1)
    reader = RunStore.open(folder)
    assert reader.latest_checkpoint().step == 1
    for unlocked in (
        lambda: reader.write_checkpoint(2, {}, refuse),
        lambda: reader.write_reference("r", refuse),
        lambda: prune(reader, SaveConfig(), best=None, good=0),
        lambda: reader.rewind(reader.latest_checkpoint()),
        lambda: reader.write_samples(1, []),
    ):
        with pytest.raises(RuntimeError, match="not locked"):
            unlocked()


# -- checkpoints


def test_a_checkpoint_comes_back(store):
    with pytest.raises(StorageError, match="has no checkpoint yet: begin it again"):
        store.latest_checkpoint()
    store.journal.append({"step": 7})
    path = write(store, 7, {"best": {"score": 0.5}}, save("w"))
    found = store.latest_checkpoint()
    assert (found.path, found.step, found.state) == (path, 7, {"best": {"score": 0.5}})
    assert found.journal_size == store.journal.size
    assert (path / "model.safetensors").read_text() == "w"
    with pytest.raises(StorageError, match="no checkpoint of step 9; it has those of: 7"):
        store.checkpoint(9)


@pytest.mark.parametrize("state", [{"step": 3, "mood": "good"}, {"step": "three"}, {"reference": 1}, []])
def test_the_state_of_another_version_is_told(state):
    one = Checkpoint(step=3, path=Path("step_3"), state=state, journal_size=0, journal_hash="")
    with pytest.raises(StorageError, match="step_3 was written by another version of prorl"):
        assert one.reached


def test_the_newest_is_the_highest_step_also_beyond_six_digits(store):
    train(store, 5, 999_999, 1_000_000)
    assert store.latest_checkpoint().step == 1_000_000


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a bug")])
def test_a_failed_write_leaves_nothing(store, error):
    train(store, 1)

    def fail(folder):
        save("half")(folder)
        raise error

    with pytest.raises(type(error)):
        write(store, 2, {}, fail)
    assert list(store.checkpoints()) == [store.latest_checkpoint().step] == [1]
    assert hidden(store) == []


def test_a_full_disk_leaves_nothing_and_says_so(store):
    train(store, 1)
    with files_limited_to(2000), pytest.raises(StorageError, match="free some space"):
        write(store, 2, {}, lambda folder: (folder / "big").write_bytes(b"x" * 10_000))
    assert store.latest_checkpoint().step == 1
    assert hidden(store) == []


def test_what_a_killed_trainer_left_is_removed_under_the_lock_only(folder, store):
    train(store, 1)
    python(
        "def write(folder): (folder / 'model').write_text('half'); os._exit(9)\n"
        "commit(Path(sys.argv[1]) / 'checkpoints' / 'step_000002', write, {})",
        folder,
    )
    for name in ("checkpoints", "references", "samples"):
        (folder / name / ".base.json.tmp-0badf00d").write_text("half")
    step = store.checkpoint_folder(1)
    step.rename(step.with_name(".step_000001.replaced"))  # killed between the renames of a replacement
    RunStore.open(folder)  # a reader must not remove what a trainer is writing
    assert len(hidden(store)) == 5
    with reopened(store) as again:
        assert hidden(again) == []
        assert again.latest_checkpoint().step == 1


def test_the_same_moment_is_written_once_and_a_damaged_or_an_earlier_one_is_replaced(store):
    train(store, 1)
    path = write(store, 1, {"step": 1}, refuse)
    (path / "model.safetensors").write_text("damaged")
    write(store, 1, {"step": 1}, save("whole"))
    assert (path / "model.safetensors").read_text() == "whole"
    store.journal.append({"stopped": True})
    write(store, 1, {"step": 1, "stopped": True}, save("later"))
    assert store.latest_checkpoint().state["stopped"]
    assert (path / "model.safetensors").read_text() == "later"
    assert hidden(store) == []


FILES = ["model.safetensors", "optimizer/state.bin", "state.json", "manifest.json"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_falls_back_to_the_one_before(store, reports, name, place, bit):
    train(store, *{1, 2}.difference(store.checkpoints()))
    path = store.checkpoint_folder(2) / name
    content = path.read_bytes()
    damaged = bytearray(content)
    damaged[int(place * len(content))] ^= 1 << bit
    path.write_bytes(damaged)
    found = store.latest_checkpoint()
    path.write_bytes(content)
    if found.step == 2:  # a white-space character of the manifest became another one: it says the same
        assert name == "manifest.json"
        assert json.loads(damaged) == json.loads(content)
    else:
        assert found.step == 1
        assert "step_000002" in reports[-1]


@pytest.mark.parametrize("name", FILES)
def test_missing_and_truncated_files_fall_back(store, reports, name):
    train(store, 1, 2, 3)
    (store.checkpoint_folder(2) / name).unlink()
    os.truncate(store.checkpoint_folder(3) / name, 1)
    assert store.latest_checkpoint().step == 1
    assert ["step_000003" in reports[0], "step_000002" in reports[1]] == [True, True]
    with pytest.raises(StorageError, match="step_000003"):
        store.checkpoint(3)


def test_a_copy_under_another_name_and_another_format_are_named(store, reports):
    train(store, 1, 2)
    for name in ("step_000009", "step_000001.bak"):  # the latter is no name of a step
        shutil.copytree(store.checkpoint_folder(1), store.checkpoint_folder(1).with_name(name))
    path = store.checkpoint_folder(2) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    assert store.latest_checkpoint().path == store.checkpoints()[1] == store.checkpoint_folder(1)
    assert "copy of step_000001" in reports[0]
    assert "format 99" in reports[1]


# -- going back


def content_of(store):
    return [names(store.folder / kind) for kind in ("checkpoints", "references")], store.journal.size


def test_rewind_sets_aside_all_that_came_later(store, reports):
    store.write_reference("ref_000", save("base"))
    train(store, 1)
    store.write_reference("ref_001", save("one"))
    train(store, 2)
    first = content_of(store)
    for _ in range(2):  # the second time what was discarded before is replaced
        train(store, 3)
        store.write_reference("ref_002", save("two"))
        train(store, 4)
        for step in (3, 4):
            (store.checkpoint_folder(step) / "state.json").unlink()
        for step in (1, 2, 3):  # of the steps from these on
            store.write_samples(step, [])
        (copy := store.folder / "samples" / "step_000002 (copy).jsonl").touch()  # somebody's own
        store.rewind(store.latest_checkpoint())
        assert content_of(store) == first
        assert names(store.folder / "samples") == ["step_000001.jsonl", copy.name]
        assert journalled(store) == [1, 2]
        assert names(store.folder / "discarded" / "checkpoints") == ["step_000003", "step_000004"]
        assert names(store.folder / "discarded" / "references") == ["ref_002"]
    train(store, 3, 4)  # and life goes on
    assert store.latest_checkpoint().step == 4


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no second file system")
def test_rewind_sets_aside_what_lies_on_another_disk(store):
    train(store, 1, 2)
    with TemporaryDirectory(dir="/dev/shm") as other:
        place = store.folder / "checkpoints"
        shutil.move(place, Path(other) / "moved")
        place.symlink_to(Path(other) / "moved")
        assert place.stat().st_dev != store.folder.stat().st_dev
        store.rewind(store.checkpoint(1))
        assert (names(place), journalled(store)) == (["step_000001"], [1])
        assert names(store.folder / "discarded" / "checkpoints") == ["step_000002"]


def test_a_run_whose_only_checkpoint_was_about_to_be_replaced_is_one(store):
    train(store, 1)
    store.checkpoint_folder(1).rename(store.folder / "checkpoints" / ".step_000001.replaced")
    assert is_born(store.folder)
    with reopened(store) as again:
        assert again.latest_checkpoint().step == 1


def test_rewind_to_the_newest_changes_nothing(store, reports):
    store.write_reference("ref_000", save("base"))
    train(store, 1, 2)
    before = content_of(store)
    store.rewind(store.latest_checkpoint())
    assert content_of(store) == before
    assert reports == []


def measure(store, *files):
    for name in files:
        path = store.folder / "evals" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def measured(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*") if path.name != "lock")


def test_rewind_sets_aside_what_was_measured_of_later_steps(store, reports):
    own = [
        f"suite/{name}" for name in ("base.parquet", "rules.json", "step_000001.parquet", "step_x.parquet")
    ]
    later = ["measurement/step_000003.parquet", "suite/step_000002.parquet"]
    measure(store, *own, *later)
    (store.folder / "evals" / "suite" / "step_000003.parts").mkdir()
    train(store, 1)
    found = store.latest_checkpoint()
    train(store, 2, 3)
    store.rewind(found)
    assert measured(store.folder / "evals") == own
    assert measured(store.folder / "discarded" / "evals") == [*later, "suite/step_000003.parts"]
    measure(store, *later)
    store.rewind(found)
    assert measured(store.folder / "evals") == own


def test_rewind_leaves_an_evaluation_whole_that_is_being_measured(store, reports):
    measure(store, "held/step_000002.parquet", "suite/step_000002.parquet")
    train(store, 1)
    with hold_lock(store.folder / "evals" / "held" / "lock"):
        store.rewind(store.latest_checkpoint())
    assert measured(store.folder / "evals") == ["held/step_000002.parquet"]
    (warning,) = (text for text in reports if "is being measured by process" in text)
    assert "delete step_000002.parquet" in warning


# -- the past of a checkpoint: the journal up to it, and its reference


def flip(path, needle):
    """Flip a bit of the first byte of `needle` in a file."""
    content = path.read_bytes()
    at = content.index(needle)
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def test_damage_before_every_checkpoint_is_refused_with_its_place_and_changes_nothing(store, reports):
    train(store, 1, 2)
    again = reopened(store)
    flip(store.folder / "journal.jsonl", b'"step":1')
    for _ in range(2):
        with (
            again,
            pytest.raises(StorageError, match=r"oldest of them: .*damaged at line 1 \(byte 0\).*from a copy"),
        ):
            again.latest_checkpoint()


def test_more_than_250_steps_are_not_thrown_away_without_asking(store, reports):
    train(store, 2, 252)
    flip(store.checkpoint_folder(252) / "state.json", b"step")
    assert store.latest_checkpoint().step == 2
    train(store, 253)
    for step in (252, 253):
        shutil.rmtree(store.checkpoint_folder(step) / "optimizer")
    with pytest.raises(StorageError, match=r"the last 2 checkpoints .*--branch RUN@STEP"):
        store.latest_checkpoint()


def test_a_journal_of_the_same_length_is_not_the_one(store, reports):
    train(store, 1)
    size = store.journal.size
    store.journal.truncate(0)
    store.journal.append({"step": 7})
    assert store.journal.size == size
    with pytest.raises(StorageError, match="is not the journal that led to"):
        store.latest_checkpoint()


@pytest.mark.parametrize("written_anew", [False, True])
def test_swapped_references_are_refused_for_an_older_checkpoint_whose_reference_is_whole(
    store, reports, written_anew
):
    for step in range(3):
        store.journal.append({"step": step})
        name = f"ref_00{step}"
        reference = {"name": name, "hash": store.write_reference(name, save(name))}
        write(store, step, {"reference": reference}, save(f"weights {step}"))
    first, second = (store.reference_folder(f"ref_00{number}") for number in (1, 2))
    if written_anew:
        for path, text in ((first, "ref_002"), (second, "ref_001")):
            about = read_manifest(path).about
            shutil.rmtree(path)
            commit(path, save(text), about)
    else:
        first.rename(first.with_name("aside"))
        second.rename(first)
        first.with_name("aside").rename(second)
    assert store.latest_checkpoint().step == 0
    word = "is not the reference that" if written_anew else "is a copy of ref_00"
    assert [word in said for said in reports] == [True, True]


# -- references and samples


def test_a_reference_is_stored_once_and_one_that_is_damaged_or_of_another_moment_anew(store):
    digest = store.write_reference("ref_000", save("base"))
    assert store.write_reference("ref_000", refuse) == digest
    assert store.write_reference("ref_001", save("base")) == digest
    assert store.write_reference("ref_002", save("other")) != digest
    (store.reference_folder("ref_000") / "model.safetensors").write_text("basf")
    assert store.write_reference("ref_000", save("base")) == digest
    assert (store.reference_folder("ref_000") / "model.safetensors").read_text() == "base"
    store.journal.append({"step": 1})
    assert store.write_reference("ref_000", save("other")) != digest


def test_samples_of_a_repeated_step_replace_the_first(store):
    store.write_samples(3, [{"text": "a"}, {"text": "ü\n"}])
    path = store.write_samples(3, ({"text": text} for text in "bc"))
    assert path == store.folder / "samples" / "step_000003.jsonl"
    assert [json.loads(line)["text"] for line in path.read_text().splitlines()] == ["b", "c"]
