"""A run's numbers in the real trackers, offline: all of them, once, and on from where it was left."""

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from prorl.envs.errors import ProrlError
from prorl.lab import loggers
from prorl.lab.loggers import LOGGED, log_run, rows
from prorl.run.history import read_history
from prorl.run.layout import JOURNAL, hold_lock
from support.journals import lines
from support.stories import history, write_run


def log_once(run: Path) -> int:
    return log_run(run, "wandb", project="p", follow=False)


class Tracker:
    """Keeps what it is told."""

    def __init__(self):
        self.told, self.fails_at, self.open = [], -1, True

    def log(self, numbers, step):
        if step == self.fails_at:
            raise RuntimeError("no connection.\nand a traceback")
        self.told.append((step, numbers))

    def close(self):
        self.open = False
        if self.fails_at >= 0:
            raise RuntimeError("the end cannot be told either")


@pytest.fixture
def tracker(monkeypatch):
    """What a tracker was told in place of wandb."""
    found = Tracker()
    monkeypatch.setitem(loggers.TRACKERS, "wandb", lambda *_: (found.log, found.close))
    monkeypatch.setattr(loggers, "_module", lambda name: None)
    return found


def test_every_step_and_validation_is_told_once_and_what_is_new_the_next_time(tmp_path, tracker):
    run = write_run(tmp_path / "run", history(4))
    assert log_once(run) == 5
    assert [step for step, _ in tracker.told] == [0, 1, 2, 3, 4]
    assert {"update/kl", "rollout_stats/score"} <= tracker.told[1][1].keys()
    assert "validation/score" in tracker.told[0][1]
    assert log_once(run) == 0
    assert json.loads((run / LOGGED).read_bytes())["wandb"] == 4
    moved = run.rename(tmp_path / "moved")
    assert log_once(moved) == 5, "to a tracker it is another run"


def test_a_run_begun_anew_in_the_place_of_another_is_another_one_to_trackers(tmp_path):
    def known():
        return loggers.tracker_id(read_history(tmp_path / "run"))

    write_run(tmp_path / "run", history(4))
    first = known()
    assert known() == first
    shutil.rmtree(tmp_path / "run")
    write_run(tmp_path / "run", history(4))
    assert known() != first


def test_what_was_sent_is_remembered_in_the_middle_of_a_backlog(tmp_path, tracker, monkeypatch):
    monkeypatch.setattr(loggers, "POLL_SECONDS", 0.0)
    run = read_history(write_run(tmp_path / "run", history(4)))
    sending = loggers._sending(run, "wandb", project="p", follow=False, say=lambda _: None)
    sent = [next(sending) for _ in range(3)]
    assert json.loads((tmp_path / "run" / loggers.LOGGED).read_text())["wandb"] == sent[-1]


def test_a_tracker_that_fails_also_at_its_end_is_one_sentence_and_logging_goes_on(
    tmp_path, tracker, monkeypatch
):
    run = write_run(tmp_path / "run", history(4))
    monkeypatch.setattr(tracker, "fails_at", 3)
    with pytest.raises(
        ProrlError, match="wandb failed after step 2: no connection; the next try goes on from there"
    ):
        log_once(run)
    assert not tracker.open
    monkeypatch.setattr(tracker, "fails_at", -1)
    log_once(run)
    assert [step for step, _ in tracker.told] == [0, 1, 2, 3, 4]


def test_mlflow_that_fails_as_it_begins_can_begin_again_and_gets_names_that_it_takes(tmp_path):
    module = Mock()
    module.search_runs.return_value = []
    module.set_tag.side_effect = [RuntimeError("INTERNAL_ERROR"), None]
    run = read_history(write_run(tmp_path / "run", history(4)))
    with pytest.raises(RuntimeError, match="INTERNAL_ERROR"):
        loggers.TRACKERS["mlflow"](run, "p", module)
    module.end_run.assert_called_once()  # else mlflow would refuse to start another
    log, _ = loggers.TRACKERS["mlflow"](run, "p", module)
    log({"validation/domains/c++": 1.0}, step=3)
    module.log_metrics.assert_called_once_with({"validation/domains/c__": 1.0}, step=3)


def test_a_run_that_is_followed_tells_a_validation_with_its_step_and_says_what_is_new(
    tmp_path, tracker, monkeypatch
):
    whole, said = history(4), []
    early = whole[:-2]  # the last validation has not ended
    run = write_run(tmp_path / "run", early, validation={"every": 4})
    looks = iter([early, whole])
    monkeypatch.setattr(loggers.time, "sleep", lambda _: (run / JOURNAL).write_bytes(lines(next(looks))))
    assert log_run(run, "wandb", project="p", follow=True, say=said.append) == 5
    assert "validation/score" in dict(tracker.told)[4]
    assert said == ["wandb has run up to step 3", "wandb has run up to step 4"]


def test_a_tracker_that_cannot_be_reached_is_tried_again_while_the_run_goes_on(
    tmp_path, tracker, monkeypatch
):
    run, said = write_run(tmp_path / "run", history(4)[:-1]), []

    def mend(seconds):
        tracker.fails_at = -1
        if seconds != loggers.RETRY:
            (run / JOURNAL).write_bytes(lines(history(4)))

    monkeypatch.setattr(tracker, "fails_at", 3)
    monkeypatch.setattr(loggers.time, "sleep", mend)
    assert log_run(run, "wandb", project="p", follow=True, say=said.append) == 5
    assert [step for step, _ in tracker.told] == [0, 1, 2, 3, 4]
    assert "trying again in 60 s" in said[0]


def test_a_run_has_one_logger_for_each_tracker(tmp_path, tracker):
    run = write_run(tmp_path / "run", history(4))
    with hold_lock(run / "wandb.lock"), pytest.raises(ProrlError, match="is being logged by process"):
        log_once(run)


def test_a_validation_that_a_crash_cut_off_is_told_when_it_has_been_made_again(tmp_path, tracker):
    run = write_run(tmp_path / "run", history(4)[:-2], validation={"every": 4})
    assert log_once(run) == 4
    (run / JOURNAL).write_bytes(lines(history(4)))
    assert log_once(run) == 1
    assert "validation/score" in dict(tracker.told)[4]


def test_a_tracker_that_is_not_installed_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ProrlError, match="pip install wandb"):
        log_once(write_run(tmp_path / "run", history(1)))


def told(run: Path, to: str, tmp_path: Path) -> str:
    """The real command with the real tracker, which may write to nothing but the test's folder."""
    settings = {
        "WANDB_MODE": "offline",
        "WANDB_DIR": tmp_path,
        "TRACKIO_DIR": tmp_path / "trackio",
        "MLFLOW_TRACKING_URI": tmp_path / "mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "HOME": tmp_path,
        "PATH": "/usr/bin:/bin",
    }
    ended = subprocess.run(
        [sys.executable, "-m", "prorl", "log", str(run), "--to", to, "--once", "--project", "mine"],
        env={key: str(value) for key, value in settings.items()},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("to", ["wandb", "trackio", "mlflow"])
def test_a_real_tracker_is_told(tmp_path, to):
    pytest.importorskip(to)
    run = write_run(tmp_path / "run", history(3))
    assert "4 steps sent" in told(run, to, tmp_path)
    assert "0 steps sent" in told(run, to, tmp_path)
    expected = dict(rows(read_history(run), after=-1))[3]["update/kl"]
    if to == "mlflow":
        (path,) = tmp_path.glob("mlruns/*/*/metrics/update/kl")
        assert float(path.read_text().splitlines()[-1].split()[1]) == expected
    elif to == "trackio":
        (path,) = (tmp_path / "trackio").glob("mine*.db")
        with sqlite3.connect(path) as stored:
            (found,) = stored.execute("select metrics from metrics where step = 3").fetchall()
        assert json.loads(found[0])["update/kl"] == expected
    else:
        (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
        assert b"update/kl" in path.read_bytes()
