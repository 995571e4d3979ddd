"""The run directory survives kills, damage, full disks and second trainers."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prorl.control.state import RunState
from prorl.envs.files import StorageError
from prorl.run.checkpoint import SaveRules, commit, prune, read_manifest
from prorl.run.layout import hold_lock
from prorl.run.store import RunStore

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


def train(store, *steps):
    """One journal record and one checkpoint per step."""
    for step in steps:
        store.journal.append({"step": step})
        store.write_checkpoint(step, {"step": step}, save(f"weights {step}"))


def steps_on_disk(store):
    return sorted(int(path.name[5:]) for path in (store.folder / "checkpoints").glob("step_*"))


def hidden(store):
    return [path.name for path in store.folder.rglob(".*")]


# -- the folder and its lock


def test_a_new_run_is_opened_again(folder):
    RunStore.create(folder, CONFIG)
    assert RunStore.open(folder).config == CONFIG


def test_create_refuses_a_run_and_open_refuses_anything_else(folder):
    with pytest.raises(StorageError, match="holds no run"):
        RunStore.open(folder)
    RunStore.create(folder, CONFIG)
    with pytest.raises(StorageError, match="prorl resume"):
        RunStore.create(folder, {"seed": 2})
    assert RunStore.open(folder).config == CONFIG


def test_create_refuses_a_journal_without_config(store):
    train(store, 1)
    (store.folder / "config.json").unlink()
    with pytest.raises(StorageError, match="already holds a run"):
        RunStore.create(store.folder, CONFIG)


def test_create_after_a_create_that_was_killed(folder):
    RunStore.create(folder, CONFIG)
    (folder / "config.json").unlink()  # it is written last
    assert RunStore.create(folder, CONFIG).config == CONFIG


def test_a_second_trainer_is_refused_and_told_who_holds_the_run(store):
    code = (
        "import sys; from pathlib import Path; from prorl.run.store import RunStore\n"
        "try: RunStore.open(Path(sys.argv[1])).__enter__()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, store.folder], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("StorageError")
    assert f"process {os.getpid()} on" in result.stdout


def test_the_lock_ends_with_the_block_and_with_a_failed_start(store):
    store.__exit__(None, None, None)
    (store.folder / "journal.jsonl").unlink()
    (store.folder / "journal.jsonl").mkdir()
    with pytest.raises(IsADirectoryError):
        store.__enter__()
    (store.folder / "journal.jsonl").rmdir()
    (store.folder / "journal.jsonl").touch()
    with RunStore.open(store.folder) as again:
        train(again, 1)


def test_writing_needs_the_lock_and_reading_does_not(folder, store):
    train(store, 1)
    reader = RunStore.open(folder)
    assert reader.latest_checkpoint().step == 1
    for write in (
        lambda: reader.write_checkpoint(2, {}, refuse),
        lambda: reader.write_reference("r", refuse),
        lambda: prune(reader, SaveRules(), RunState(), position=0, good=0),
        lambda: reader.rewind(None),
        lambda: reader.write_samples(1, []),
    ):
        with pytest.raises(RuntimeError, match="not locked"):
            write()


# -- checkpoints


def test_a_checkpoint_comes_back(store):
    assert store.latest_checkpoint() is None
    store.journal.append({"step": 7})
    path = store.write_checkpoint(7, {"best": {"score": 0.5}}, save("w"))
    found = store.latest_checkpoint()
    assert found.path == path == store.checkpoint_path(7)
    assert (found.step, found.state) == (7, {"best": {"score": 0.5}})
    assert found.journal_size == store.journal.size
    assert (path / "model.safetensors").read_text() == "w"


def test_the_newest_is_the_highest_step_also_beyond_six_digits(store):
    train(store, 5, 999_999, 1_000_000)
    assert store.latest_checkpoint().step == 1_000_000


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a bug")])
def test_a_failed_write_leaves_nothing(store, error):
    train(store, 1)

    def write(folder):
        save("half")(folder)
        raise error

    with pytest.raises(type(error)):
        store.write_checkpoint(2, {}, write)
    assert store.latest_checkpoint().step == 1
    assert steps_on_disk(store) == [1]
    assert hidden(store) == []


def test_a_full_disk_leaves_nothing_and_says_so(store, files_limited_to):
    train(store, 1)

    def raises(folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageError, match=r"step_000002: No space left on device .*free some space"):
        store.write_checkpoint(2, {}, raises)
    with files_limited_to(2000), pytest.raises(StorageError, match="free some space"):
        store.write_checkpoint(2, {}, lambda folder: (folder / "big").write_bytes(b"x" * 10_000))
    assert store.latest_checkpoint().step == 1
    assert hidden(store) == []


def test_what_a_killed_trainer_left_is_removed_under_the_lock_only(folder, store):
    train(store, 1)
    code = (
        "import os, sys; from pathlib import Path; from prorl.run.checkpoint import commit\n"
        "def write(folder): (folder / 'model').write_text('half'); os._exit(9)\n"
        "commit(Path(sys.argv[1]) / 'checkpoints' / 'step_000002', write, {})"
    )
    subprocess.run([sys.executable, "-c", code, folder], check=False)
    assert len(hidden(store)) == 1
    RunStore.open(folder)  # a reader must not remove what a trainer is writing
    assert len(hidden(store)) == 1
    store.__exit__(None, None, None)
    with RunStore.open(folder) as again:
        assert hidden(again) == []
        assert again.latest_checkpoint().step == 1


def test_the_same_moment_is_written_once_and_a_later_one_replaces_it(store):
    train(store, 1)
    store.write_checkpoint(1, {"step": 1}, refuse)
    store.journal.append({"stopped": True})
    store.write_checkpoint(1, {"step": 1, "stopped": True}, save("later"))
    found = store.latest_checkpoint()
    assert found.state["stopped"]
    assert (found.path / "model.safetensors").read_text() == "later"
    assert hidden(store) == []


def test_a_damaged_checkpoint_of_the_same_moment_is_written_again(store):
    train(store, 1)
    (store.checkpoint_path(1) / "model.safetensors").write_text("damaged")
    store.write_checkpoint(1, {"step": 1}, save("whole"))
    assert (store.checkpoint_path(1) / "model.safetensors").read_text() == "whole"


@pytest.mark.parametrize("name", ["checkpoints", "references", "samples"])
def test_a_file_that_a_killed_trainer_half_wrote_is_removed(folder, store, name):
    (folder / name).mkdir(exist_ok=True)
    (folder / name / ".base.json.tmp-0badf00d").write_text("half")
    store.__exit__(None, None, None)
    with RunStore.open(folder):
        assert list((folder / name).iterdir()) == []


def test_a_kill_between_the_renames_of_a_replacement_keeps_the_old_one(folder, store):
    train(store, 1)
    path = store.checkpoint_path(1)
    path.rename(path.with_name(".step_000001.replaced"))
    store.__exit__(None, None, None)
    with RunStore.open(folder) as again:
        assert again.latest_checkpoint().step == 1
        assert hidden(again) == []


def test_the_name_of_the_manifest_is_taken(store):
    with pytest.raises(ValueError, match=r"manifest\.json is the manifest"):
        store.write_checkpoint(1, {}, lambda folder: (folder / "manifest.json").write_text("{}"))


FILES = ["model.safetensors", "optimizer/state.bin", "state.json", "manifest.json"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_falls_back_to_the_one_before(store, reports, name, place, bit):
    train(store, *{1, 2}.difference(steps_on_disk(store)))
    path = store.folder / "checkpoints" / "step_000002" / name
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
    for step, damage in ((2, lambda path: path.unlink()), (3, lambda path: os.truncate(path, 1))):
        damage(store.folder / "checkpoints" / f"step_{step:06d}" / name)
    assert store.latest_checkpoint().step == 1
    assert ["step_000003" in reports[0], "step_000002" in reports[1]] == [True, True]
    with pytest.raises(StorageError, match="step_000003"):
        store.checkpoint_path(3)


def test_a_renamed_checkpoint_is_no_checkpoint_of_that_step(store, reports):
    train(store, 1)
    shutil.copytree(store.checkpoint_path(1), store.folder / "checkpoints" / "step_000009")
    assert store.latest_checkpoint().step == 1
    assert "copy of step_000001" in reports[0]


def test_nothing_whole_is_an_error_not_a_fresh_start(store):
    train(store, 1)
    (store.checkpoint_path(1) / "state.json").unlink()
    with pytest.raises(StorageError, match="none of the last 1 checkpoints"):
        store.latest_checkpoint()


def test_another_format_is_named(store, reports):
    train(store, 1, 2)
    path = store.checkpoint_path(2) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    assert store.latest_checkpoint().step == 1
    assert "format 99" in reports[0]


# -- going back


def test_rewind_sets_aside_all_that_came_later(store, reports):
    store.write_reference("ref_000", save("base"))
    train(store, 1)
    store.write_reference("ref_001", save("one"))
    train(store, 2)
    first = content_of(store)
    train(store, 3)
    store.write_reference("ref_002", save("two"))
    train(store, 4)
    (store.checkpoint_path(4) / "state.json").unlink()
    (store.checkpoint_path(3) / "state.json").unlink()

    store.rewind(store.latest_checkpoint())
    assert content_of(store) == first
    assert [record["step"] for record in store.journal.read()] == [1, 2]
    discarded = sorted(
        path.relative_to(store.folder).as_posix() for path in (store.folder / "discarded").glob("*/*")
    )
    assert discarded == [
        "discarded/checkpoints/step_000003",
        "discarded/checkpoints/step_000004",
        "discarded/references/ref_002",
    ]
    train(store, 3, 4)  # and life goes on
    assert store.latest_checkpoint().step == 4


def content_of(store):
    names = [path.name for kind in ("checkpoints", "references") for path in (store.folder / kind).iterdir()]
    return sorted(names), store.journal.size


def test_rewind_twice_replaces_what_was_discarded_before(store):
    train(store, 1)
    found = store.latest_checkpoint()
    for _ in range(2):
        train(store, 2)
        store.rewind(found)
    assert steps_on_disk(store) == [1]
    assert (store.folder / "discarded" / "checkpoints" / "step_000002" / "manifest.json").exists()


def measure(store, *names):
    for name in names:
        path = store.folder / "evals" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def measured(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*") if path.name != "lock")


def test_rewind_sets_aside_what_was_measured_of_later_steps(store, reports):
    own = [
        "evaluation/base.parquet",
        "evaluation/rules.json",
        "evaluation/step_000001.parquet",
        "evaluation/step_x.parquet",
    ]
    later = ["evaluation/step_000002.parquet", "measurement/step_000003.parquet"]
    measure(store, *own, *later)
    (store.folder / "evals" / "evaluation" / "step_000003.parts").mkdir()
    train(store, 1)
    found = store.latest_checkpoint()
    train(store, 2, 3)
    store.rewind(found)
    assert measured(store.folder / "evals") == own
    assert measured(store.folder / "discarded" / "evals") == [
        later[0],
        "evaluation/step_000003.parts",
        later[1],
    ]
    measure(store, later[0])
    store.rewind(found)
    assert measured(store.folder / "evals") == own


def test_rewind_leaves_an_evaluation_whole_that_is_being_measured(store, reports):
    measure(store, "held/step_000002.parquet", "evaluation/step_000002.parquet")
    train(store, 1)
    with hold_lock(store.folder / "evals" / "held" / "lock"):
        store.rewind(store.latest_checkpoint())
    assert measured(store.folder / "evals") == ["held/step_000002.parquet"]
    (warning,) = (text for text in reports if "is being measured by process" in text)
    assert "delete step_000002.parquet" in warning


def test_rewind_to_the_start(store):
    train(store, 1)
    store.rewind(None)
    assert store.latest_checkpoint() is None
    assert store.journal.size == 0


def test_rewind_to_the_newest_changes_nothing(store, reports):
    store.write_reference("ref_000", save("base"))
    train(store, 1, 2)
    before = content_of(store)
    store.rewind(store.latest_checkpoint())
    assert content_of(store) == before
    assert reports == []


def test_rewind_refuses_a_journal_that_does_not_reach_the_checkpoint(store):
    train(store, 1)
    found = store.latest_checkpoint()
    store.journal.truncate(0)
    with pytest.raises(StorageError, match="does not belong to that checkpoint"):
        store.rewind(found)
    assert steps_on_disk(store) == [1]


# -- the past of a checkpoint: the journal up to it, and its reference


def flip(path, needle, more=0):
    """Flip a bit of the first byte of `needle` in a file."""
    content = path.read_bytes()
    at = content.index(needle) + more
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    return at


@pytest.mark.parametrize(("line", "step"), [(4, 3), (3, 2), (2, 1)])
def test_damage_in_the_journal_falls_back_to_the_checkpoint_before_it(store, reports, line, step):
    train(store, 1, 2, 3, 4)
    store.__exit__(None, None, None)
    path = store.folder / "journal.jsonl"
    content = path.read_bytes()
    at = flip(path, b'"step":%d' % line)
    with RunStore.open(store.folder, report=reports.append) as again:
        found = again.latest_checkpoint()
        assert path.stat().st_size == len(content), "nothing is cut off before the run goes back"
        again.rewind(found)
        assert [record["step"] for record in again.journal.read()] == list(range(1, step + 1))
        train(again, step + 1)
        assert again.latest_checkpoint().step == step + 1
    assert found.step == step
    start = content.rindex(b"\n", 0, at) + 1
    assert all(
        f"journal.jsonl is damaged at line {line} (byte {start})" in said for said in reports[: 5 - line]
    )
    assert "kept in journal.discarded.jsonl" in reports[5 - line]
    assert len((store.folder / "journal.discarded.jsonl").read_bytes()) == len(content) - found.journal_size


def test_damage_behind_the_newest_checkpoint_is_cut_off_and_said(store, reports):
    train(store, 1, 2)
    store.journal.append({"step": 3})
    store.__exit__(None, None, None)
    flip(store.folder / "journal.jsonl", b'"step":3')
    with RunStore.open(store.folder, report=reports.append) as again:
        again.rewind(again.latest_checkpoint())
        assert again.journal.damage is None
    (said,) = reports
    assert "damaged at line 3" in said


def test_damage_before_every_checkpoint_is_refused_with_its_place_and_changes_nothing(store, reports):
    train(store, 1, 2)
    store.__exit__(None, None, None)
    flip(store.folder / "journal.jsonl", b'"step":1')
    for _ in range(2):
        with (
            RunStore.open(store.folder, report=reports.append) as again,
            pytest.raises(StorageError, match=r"oldest of them: .*damaged at line 1 \(byte 0\).*from a copy"),
        ):
            again.latest_checkpoint()


@pytest.mark.parametrize(("newest", "used"), [(250, 1), (252, None)])
def test_more_than_250_steps_are_not_thrown_away_without_asking(newest, used, store, reports):
    train(store, 1, newest)
    flip(store.checkpoint_folder(newest) / "state.json", b"step")
    if used is None:
        with pytest.raises(StorageError, match=r"the last 1 checkpoints .*--branch RUN@STEP"):
            store.latest_checkpoint()
    else:
        assert store.latest_checkpoint().step == used


def test_a_journal_of_the_same_length_is_not_the_one(store, reports):
    train(store, 1)
    size = store.journal.size
    store.journal.truncate(0)
    store.journal.append({"step": 7})
    assert store.journal.size == size
    with pytest.raises(StorageError, match="is not the journal that led to"):
        store.latest_checkpoint()


def with_reference(store, step, name):
    store.journal.append({"step": step})
    reference = {"name": name, "hash": store.write_reference(name, save(name))}
    store.write_checkpoint(step, {"reference": reference}, save(f"weights {step}"))


@pytest.mark.parametrize("written_anew", [False, True])
def test_swapped_references_are_refused_for_an_older_checkpoint_whose_reference_is_whole(
    store, reports, written_anew
):
    for step in range(3):
        with_reference(store, step, f"ref_00{step}")
    first, second = (store.reference_folder(f"ref_00{number}") for number in (1, 2))
    if written_anew:
        for path, text in ((first, "ref_002"), (second, "ref_001")):
            about = read_manifest(path).about
            commit(path, save(text), about)
    else:
        first.rename(first.with_name("aside"))
        second.rename(first)
        first.with_name("aside").rename(second)
    assert store.latest_checkpoint().step == 0
    word = "is not the reference that" if written_anew else "is a copy of ref_00"
    assert [word in said for said in reports] == [True, True]


# -- references


def test_a_reference_is_stored_once(store):
    digest = store.write_reference("ref_000", save("base"))
    assert store.write_reference("ref_000", refuse) == digest
    assert (store.reference_folder("ref_000") / "model.safetensors").read_text() == "base"
    assert store.write_reference("ref_001", save("base")) == digest
    assert store.write_reference("ref_002", save("other")) != digest


def test_a_damaged_reference_and_one_of_another_moment_are_written_again(store):
    digest = store.write_reference("ref_000", save("base"))
    (store.reference_folder("ref_000") / "model.safetensors").write_text("basf")
    assert store.write_reference("ref_000", save("base")) == digest
    assert store.write_reference("ref_000", refuse) == digest
    store.journal.append({"step": 1})
    assert store.write_reference("ref_000", save("other")) != digest


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b"])
def test_reference_names_are_plain(store, name):
    with pytest.raises(ValueError, match="reference name"):
        store.write_reference(name, refuse)


# -- room


def test_samples_of_a_repeated_step_replace_the_first(store):
    store.write_samples(3, [{"text": "a"}, {"text": "ü\n"}])
    path = store.write_samples(3, ({"text": text} for text in "bc"))
    assert path == store.folder / "samples" / "step_000003.jsonl"
    assert [json.loads(line)["text"] for line in path.read_text().splitlines()] == ["b", "c"]
