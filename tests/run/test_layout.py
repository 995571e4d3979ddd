"""Where a new run may begin, and when one that never lived makes way."""

import subprocess
import sys

import pytest

from prorl.envs.files import StorageError
from prorl.run.layout import REFERENCES, is_born
from prorl.run.store import RunStore

CONFIG = {"seed": 1, "steps": 3}


@pytest.fixture
def unborn(tmp_path):
    """What a run leaves that was killed before its first checkpoint."""
    folder = tmp_path / "run"
    with RunStore.create(folder, CONFIG) as store:
        store.write_reference("ref_000", lambda path: (path / "model").write_text("base"))
        store.journal.append({"kind": "started"})
    return folder


def test_a_run_that_was_never_saved_makes_way_for_the_same_one(unborn):
    assert not is_born(unborn)
    with RunStore.create(unborn, CONFIG) as store:
        assert list(store.journal.read()) == []
        assert list((unborn / REFERENCES).iterdir()) == []


def test_but_not_for_another_one(unborn):
    with pytest.raises(StorageError, match="already holds a run"):
        RunStore.create(unborn, CONFIG | {"steps": 4})


def test_a_run_that_was_saved_makes_way_for_none(unborn):
    with RunStore.open(unborn) as store:
        store.write_checkpoint(0, {}, lambda path: None)
    assert is_born(unborn)
    with pytest.raises(StorageError, match="prorl resume"):
        RunStore.create(unborn, CONFIG)


def test_a_run_that_is_just_beginning_is_not_taken_over(unborn):
    code = (
        "import sys; from pathlib import Path; from prorl.run.store import RunStore\n"
        f"try: RunStore.create(Path(sys.argv[1]), {CONFIG})\n"
        "except Exception as error: print(error)"
    )
    with RunStore.open(unborn):
        done = subprocess.run(
            [sys.executable, "-c", code, unborn], capture_output=True, text=True, check=True
        )
    assert "is being trained by process" in done.stdout
    assert (unborn / REFERENCES / "ref_000").exists()


def test_what_else_lies_in_the_folder_stays(unborn):
    (unborn / "notes.txt").write_text("mine")
    RunStore.create(unborn, CONFIG)
    assert (unborn / "notes.txt").read_text() == "mine"
