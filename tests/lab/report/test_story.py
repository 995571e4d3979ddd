"""A run read from its files, whatever state they are in."""

import pytest

from prorl.control.events import Evaluated, Stepped
from prorl.envs.files import StorageError
from prorl.lab.report.story import read_story
from prorl.run.journal import verify_lines
from support.events import evaluated
from support.stories import history, story, write_run


def test_it_is_the_recipe_and_every_event(tmp_path):
    told = read_story(write_run(tmp_path / "nano", seed=7))
    assert (told.name, told.step, told.config["seed"]) == ("nano", 4, 7)
    assert told.events == history()


def test_it_ends_at_a_step_with_what_happened_there(tmp_path):
    told = read_story(write_run(tmp_path / "nano"), up_to=3)
    assert [event.step for event in told.of(Stepped)] == [1, 2, 3]
    assert told.events[-1].kind == "reference_reset"
    assert [exam.step for exam in told.of(Evaluated)] == [0]


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    run = write_run(tmp_path / "nano")
    with (run / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"kind": "stepped", "st')
    assert read_story(run).events == history()


def test_a_run_that_has_not_begun_is_a_story_too(tmp_path):
    told = read_story(write_run(tmp_path / "nano", []))
    assert (told.step, told.best_exam()) == (0, None)


def test_of_equal_exams_the_first_is_the_best():
    told = story([evaluated(0, 0.5), evaluated(2, 0.75), evaluated(4, 0.75)])
    assert told.best_exam().step == 2


@pytest.mark.parametrize("spoil", ["config.json", "journal.jsonl"])
def test_what_is_no_run_is_refused(tmp_path, spoil):
    run = write_run(tmp_path / "nano")
    (run / spoil).unlink()
    with pytest.raises(StorageError, match="check the name"):
        read_story(run)


@pytest.mark.parametrize(
    ("written", "note"),
    [
        (b"{}\n", "the journal is damaged at line 10 "),
        (b"{}", "the last line of the journal is not whole"),
        (None, "events that a newer prorl wrote are left out: 1 of kind 'teleported'"),
    ],
)
def test_what_cannot_be_understood_is_left_out_and_noted(tmp_path, written, note):
    run = write_run(tmp_path / "nano")
    with (run / "journal.jsonl").open("ab") as journal:
        journal.write(
            verify_lines(run / "journal.jsonl").encode({"kind": "teleported"}) if written is None else written
        )
    told = read_story(run)
    assert told.events == history()
    assert told.notes[0].startswith(note)


@pytest.mark.parametrize("config", [b"[]", b"{", b"[" * 100_000])
def test_a_recipe_that_cannot_be_read_is_refused(tmp_path, config):
    run = write_run(tmp_path / "nano")
    (run / "config.json").write_bytes(config)
    with pytest.raises(StorageError, match="no run that can be read"):
        read_story(run)
