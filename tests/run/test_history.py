"""A run as its files tell it, whatever state they are in: followed, at a glance, up to a step, and its references."""

import errno
import fcntl
import json
import math
import os
import shutil
import socket
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.config.schema import DeadlinesConfig
from prorl.control.events import Intervened, Resumed, Started, Stopped, Validated, to_record
from prorl.control.state import fold
from prorl.envs.files import StorageError
from prorl.run import layout
from prorl.run.history import RECENT, UNFINISHED, RunHistory, health, read_events, read_history
from prorl.run.journal import verify_lines
from prorl.run.layout import CONFIG, JOURNAL, LOCK, holder, runs_below
from prorl.run.process import Heartbeat
from prorl.run.store import RunStore
from prorl.stopwatch import WAITING
from support import events
from support.defaults import some_detectors, some_plan
from support.events import evaluated, reset, stepped
from support.journals import chained, lines, run_with

EVENTS = (*events.one_of_each(), *(events.stepped(step) for step in range(2, 9)), events.evaluated(8, 0.5))
BYTES = lines(EVENTS)


def content(run):
    """All that a record says, comparable: NaN equals itself in bytes."""
    columns = [
        (table.steps.tolist(), {name: column.tobytes() for name, column in table.values.items()})
        for table in (run.steps, run.validations)
    ]
    return columns, run.config, run.marks, run.events, run.stopped, run.health, run.notes


@given(cuts=st.lists(st.integers(0, len(BYTES)), max_size=6))
def test_any_split_of_the_journal_gives_the_same_record(cuts, tmp_path_factory):
    folder = run_with(tmp_path_factory.mktemp("run"), [])
    reader = RunHistory(folder)
    for end in (*sorted(cuts), len(BYTES)):
        with (folder / JOURNAL).open("ab") as file:
            file.write(BYTES[file.tell() : end])
        reader.refresh()
    assert content(reader) == content(read_history(folder))
    assert len(reader.steps) == 8


LONG = [events.stepped(step) for step in range(1, 61)]
LONG[30:30] = [
    events.evaluated(30, 0.25),
    Stopped(step=30, reason="told to"),
    Resumed(step=30, config_hash="h"),
]


@given(cuts=st.lists(st.integers(0, len(lines(LONG))), max_size=4))
def test_a_brief_record_tells_all_but_early_steps(cuts, tmp_path_factory):
    folder = run_with(tmp_path_factory.mktemp("run"), [])
    brief, data = RunHistory(folder, brief=True), lines(LONG)
    for end in (*sorted(cuts), len(data)):
        with (folder / JOURNAL).open("ab") as file:
            file.write(data[file.tell() : end])
        brief.refresh()
    full = read_history(folder)
    assert content(brief)[1:] == content(full)[1:]
    assert list(brief.steps.steps)[-RECENT:] == list(full.steps.steps)[-RECENT:]
    assert (brief.step, brief.steps_per_hour) == (full.step, full.steps_per_hour)
    assert cuts or len(brief.steps) == RECENT


@given(before=st.integers(0, len(EVENTS)), kept=st.integers(0, len(EVENTS)), after=st.integers(0, 5))
def test_a_journal_that_was_cut_and_went_on_is_read_anew(before, kept, after, tmp_path_factory):
    folder = run_with(tmp_path_factory.mktemp("run"), EVENTS[:before])
    reader = RunHistory(folder)
    reader.refresh()
    later = [events.stepped(20 + step, seconds={"total": 3.0 + step}) for step in range(after)]
    (folder / JOURNAL).write_bytes(
        lines([*EVENTS[: min(before, kept)], Resumed(step=1, config_hash="c"), *later])
    )
    reader.refresh()
    assert content(reader) == content(read_history(folder))


@pytest.fixture
def reader(tmp_path):
    """It has read a whole run."""
    reader = RunHistory(run_with(tmp_path / "run", EVENTS))
    assert reader.refresh()
    assert not reader.refresh()
    return reader


def test_a_replaced_journal_with_the_same_end_is_read_anew(reader, tmp_path):
    (tmp_path / "other").write_bytes(lines([events.stepped(1, learning_rate=7.0)]) + BYTES)
    os.replace(tmp_path / "other", reader.folder / JOURNAL)
    assert reader.refresh()
    assert reader.steps.get("learning_rate")[0] == 7.0


def test_only_new_bytes_are_read(reader, monkeypatch):
    new = chained([to_record(events.stepped(9))], verify_lines(reader.folder / JOURNAL))
    parsed = []
    monkeypatch.setattr("prorl.run.journal.decode_json", lambda data: parsed.append(data) or json.loads(data))
    with (reader.folder / JOURNAL).open("ab") as file:
        file.write(new)
    assert reader.refresh()
    assert len(parsed) == 1


@pytest.mark.parametrize("gone", [CONFIG, JOURNAL])
def test_a_file_that_vanishes_is_no_failure(gone, reader):
    (reader.folder / gone).unlink()
    assert reader.refresh()
    assert (len(reader.steps) == 0) == (gone == JOURNAL)
    assert bool(reader.notes) == (gone == CONFIG)


def test_an_edited_config_is_seen(reader):
    run_with(reader.folder, EVENTS, steps=777)
    assert reader.refresh()
    assert reader.config["steps"] == 777


def test_what_a_newer_version_wrote_is_left_out_and_said(tmp_path):
    folder = run_with(tmp_path / "run", EVENTS)
    newer = [
        {"kind": "teleported", "step": 9},
        {"kind": "warned", "step": 9, "text": "hot", "mood": "new field"},
        to_record(events.stepped(9)) | {"extra": [1]},
        to_record(events.stepped(10)) | {"rollout_stats": {"score": 0.25}},
        to_record(events.stepped(10**30)),
        to_record(events.stepped("ten")),
        to_record(events.intervened()) | {"numbers": 3},
        {"no kind": 1},
    ]
    whole = (folder / JOURNAL).read_bytes()
    (folder / JOURNAL).write_bytes(
        whole + chained(newer, verify_lines(folder / JOURNAL)) + b"no json\n" + b"{}"
    )
    run = read_history(folder)
    assert run.steps.steps[-1] == 9
    assert run.marks[-1].text.endswith("hot")
    damaged, left_out, unfinished = run.notes
    assert (
        damaged
        == f"the journal is damaged at line {len(EVENTS) + 9} (byte {(folder / JOURNAL).stat().st_size - 10})"
    )
    assert left_out.endswith(
        "left out: 1 of kind 'intervened', 3 of kind 'stepped', 1 of kind 'teleported', 1 of kind None"
    )
    assert unfinished == UNFINISHED


def test_numbers_that_are_not_finite_come_back(tmp_path):
    update = events.update(kl=math.nan, grad_norm=math.inf)
    run = read_history(run_with(tmp_path / "run", [events.stepped(1, update=update)]))
    assert math.isnan(run.steps.get("update.kl")[0])
    assert run.steps.get("update.grad_norm")[0] == math.inf


def test_marks_say_what_happened_in_words(tmp_path):
    rolled = events.intervened(step=4, action="roll_back", from_step=9, lr_scale=0.5, lr_until=20)
    run = read_history(
        run_with(tmp_path / "run", [Started(config_hash="c", reference_hash="h"), events.reset(3), rolled])
    )
    assert [(mark.step, mark.kind) for mark in run.marks] == [(3, "reset"), (4, "roll back")]
    assert "rolled back from step 9" in run.marks[1].text
    assert len(run.references) == 2


def test_it_ends_at_a_step_with_what_happened_there(tmp_path):
    told = [stepped(1), evaluated(1, 0.5), stepped(2), reset(2), stepped(3), Stopped(step=3, reason="done")]
    run = read_history(run_with(tmp_path / "run", told), up_to=2)
    assert run.steps.steps.tolist() == [1, 2]
    assert run.events == [told[1], told[3]]
    assert run.health == "done"


@pytest.mark.parametrize("spoil", [CONFIG, JOURNAL])
def test_what_is_no_run_is_refused(tmp_path, spoil):
    run = run_with(tmp_path / "run", EVENTS)
    assert tuple(read_events(run)) == EVENTS
    (run / spoil).unlink()
    for read in (read_history, lambda run: [*read_events(run)] if spoil == JOURNAL else read_history(run)):
        with pytest.raises(StorageError, match="check the name"):
            read(run)


@pytest.fixture
def run(tmp_path):
    """A run of three steps of ten seconds each, with a validation and a reset; nobody trains it."""
    folder = tmp_path / "runs" / "nano"
    with RunStore.create(folder, {"steps": 100}) as store:
        for event in (
            Started(config_hash="c", reference_hash="a"),
            stepped(1),
            evaluated(1, 0.25),
            reset(1),
            stepped(2),
            stepped(3),
        ):
            store.journal.append(to_record(event))
    return folder


def now(run, later=0.0):
    return (run / "journal.jsonl").stat().st_mtime + later


def append(run, event):
    with RunStore.open(run) as store:
        store.journal.append(to_record(event))


def condition(run, at=None):
    """The health of a run, now or at another time."""
    seen = read_history(run)
    if at is None:
        return seen.state
    return health(run, begun=bool(seen.events), stopped=seen.stopped, now=at)


def test_progress_rate_age_validation_and_decisions(run):
    seen = read_history(run)
    assert (seen.name, seen.step, seen.planned) == ("nano", 3, 100)
    assert seen.steps_per_hour == pytest.approx(360)
    assert seen.written == now(run)
    assert [(event.step, event.score) for event in seen.of(Validated)] == [(1, 0.25)]
    assert [mark.kind for mark in seen.marks] == ["reset"]


def test_a_run_that_has_only_a_folder(tmp_path):
    RunStore.create(tmp_path / "run", {"steps": 1})
    seen = read_history(tmp_path / "run")
    assert (seen.health, seen.step, seen.steps_per_hour, seen.best) == ("not begun", 0, None, None)


def test_a_run_that_nobody_trains_and_one_that_goes_on_after_its_end(run):
    for event, said in (
        (Stopped(step=3, reason="done"), "done"),
        (stepped(4), "crashed"),
        (Stopped(step=4, reason="interrupted"), "stopped: interrupted"),
    ):
        append(run, event)
        assert condition(run) == said


@pytest.mark.parametrize(
    ("phase", "later", "health"),
    [
        ("learn", 0, "running: process {pid}, learn"),
        ("learn", 100, "hung? process {pid} has been silent for 100 s in phase learn"),
        (WAITING, 1e6, "waiting: process {pid}, waiting"),
    ],
)
def test_a_run_that_is_trained(run, phase, later, health):
    with RunStore.open(run):
        heart = Heartbeat(run / "heartbeat.json", DeadlinesConfig(learn=50.0))
        heart(phase)
        heart.close()
        at = json.loads((run / "heartbeat.json").read_bytes())["at"]
        assert condition(run, at + later) == health.format(pid=os.getpid())
    assert condition(run) == "crashed"


def test_a_policy_that_no_longer_works_is_no_running_one(run):
    plan = some_plan(seed=0, steps=9, detectors=some_detectors())
    validations = [evaluated(0, 0.5), evaluated(1, 0.0)]
    with RunStore.open(run):
        heart = Heartbeat(run / "heartbeat.json", DeadlinesConfig(learn=50.0))
        heart.follow(plan, validations[-1], fold(validations))
        heart("learn")
        heart.close()
        told = f"degraded: the validation is at most 14% of the best one; process {os.getpid()}, learn"
        assert condition(run) == told


def test_the_beat_of_a_dead_trainer_says_nothing_about_the_living(run):
    beat = {"pid": 1, "count": 1, "phase": "learn", "deadline": 1.0, "step": 3, "at": 0.0}
    (run / "heartbeat.json").write_text(json.dumps(beat))
    with RunStore.open(run):
        assert condition(run) == f"running: process {os.getpid()}"


def test_a_trainer_is_not_kept_out_by_who_only_looks(run):
    assert holder(run) is None
    descriptor = os.open(run / "lock", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    looking = threading.Timer(0.03, os.close, [descriptor])
    looking.start()
    with RunStore.open(run):
        assert holder(run) == os.getpid()
    looking.join()


def test_a_trainer_on_another_machine_is_known_by_its_files_alone(run):
    (run / "lock").write_text("process 7 on elsewhere.example\n")
    assert condition(run, now(run, 30)) == "elsewhere: last written 30 s ago by elsewhere.example"
    Heartbeat(run / "heartbeat.json", DeadlinesConfig()).close()
    os.utime(run / "heartbeat.json", (now(run, 20), now(run, 20)))
    assert condition(run, now(run, 30)) == "elsewhere: last written 10 s ago by elsewhere.example"
    (run / "lock").write_text(f"process 7 on {socket.gethostname()}\n")
    assert condition(run) == "crashed"
    append(run, Stopped(step=3, reason="done"))
    (run / "lock").write_text("process 7 on elsewhere.example\n")
    assert condition(run) == "done"  # what a run elsewhere says itself is believed


def test_a_mounted_directory_without_locks_is_read_all_the_same(run, monkeypatch):
    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    (run / "lock").write_text("process 7 on elsewhere.example\n")
    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert condition(run, now(run, 30)).startswith("elsewhere: ")


@pytest.mark.parametrize("config", [b"{\n", b"[]", b"[" * 100_000, b"\xff"])
def test_a_config_that_cannot_be_read_is_said(run, config):
    (run / "config.json").write_bytes(config)
    assert condition(run).startswith("crashed; config.json cannot be read: ")


def test_a_damaged_journal_is_said_with_its_place_and_the_rest_is_shown(run):
    content = (run / "journal.jsonl").read_bytes()
    (run / "journal.jsonl").write_bytes(content.replace(b'"score":0.25', b'"score":0.75'))
    assert condition(run).startswith("crashed; the journal is damaged at line 3 (byte ")
    assert (read_history(run).step, read_history(run).of(Validated)) == (3, [])


def test_runs_are_found_below_a_folder(run, tmp_path):
    (tmp_path / "runs" / "notes").mkdir()
    assert runs_below(tmp_path / "runs") == [run]
    assert runs_below(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: None, "stored"),
        (lambda path: (path / "model").unlink(), "damaged"),
        (shutil.rmtree, "deleted"),
    ],
)
def test_the_condition_of_what_is_stored(tmp_path, harm, said):
    with RunStore.create(tmp_path / "run", {}) as store:
        digest = store.write_reference("ref_000", lambda folder: (folder / "model").write_text("w"))
        store.journal.append(to_record(Started(config_hash="c", reference_hash=digest)))
    run = read_history(tmp_path / "run")
    harm(tmp_path / "run" / "references" / "ref_000")
    assert run.condition(run.references[0]) == said


BACK = Intervened(step=0, detector="command", action="roll_back", reason="r", numbers={}, from_step=1)


@pytest.mark.parametrize(
    ("then", "health"),
    [
        ((), "paused: told to pause"),
        ((events.command("resume"),), "waiting"),
        (
            (
                events.command("stop"),
                Stopped(step=1, reason="told to stop"),
                Resumed(step=1, config_hash="c"),
            ),
            "waiting",
        ),
        ((Resumed(step=1, config_hash="c", branched_from="nano@1"),), "waiting"),
        ((replace(BACK, paused="told to pause"),), "paused: told to pause"),
        ((BACK,), "waiting"),
    ],
)
def test_a_run_that_was_told_to_pause_is_paused_and_not_waiting(tmp_path, then, health):
    run = run_with(tmp_path / "run", [EVENTS[0], stepped(1), events.command("pause"), *then])
    with layout.hold_lock(run / LOCK):
        heart = Heartbeat(run / "heartbeat.json", DeadlinesConfig())
        heart(WAITING)
        heart.close()
        assert read_history(run).health.startswith(health)
        beat = json.loads((run / "heartbeat.json").read_bytes()) | {"trouble": "no answers"}
        (run / "heartbeat.json").write_text(json.dumps(beat))
        degraded = f"{health}; no answers" if health.startswith("paused") else "degraded: no answers"
        assert read_history(run).health.startswith(degraded), "a pause is told first"


def test_a_branch_that_validates_something_else_does_not_tell_its_parents_scores(tmp_path):
    def told(**about):
        origin = Resumed(step=4, config_hash="c", branched_from="easy@4", **about)
        parent, own = [evaluated(0, 0.8), evaluated(4, 0.9)], [evaluated(4, 0.1), evaluated(8, 0.3)]
        records = [*EVENTS[:1], *parent, origin, *own]
        history = read_history(run_with(tmp_path / f"run{len(about)}", records))
        return (
            [event.score for event in history.of(Validated)],
            list(history.validations.get("score")),
            history.best.score,
        )

    assert told() == ([0.8, 0.9, 0.1, 0.3], [0.8, 0.9, 0.1, 0.3], 0.9)
    assert told(same_validation=False) == ([0.1, 0.3], [0.1, 0.3], 0.3)


def test_the_best_validation_is_the_one_that_the_run_goes_by(tmp_path):
    longer = [evaluated(step, score, response_limit=64) for step, score in ((0, 0.5), (4, 0.9))]
    cut = [evaluated(step, score, response_limit=8) for step, score in ((8, 0.1), (9, 0.2), (10, 0.2))]
    assert read_history(run_with(tmp_path / "run", [*EVENTS[:1], *longer, *cut])).best == cut[1]
