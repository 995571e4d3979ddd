"""The supervisor, over small processes that stand for trainers and die in every way."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from prorl.config.schema import DeadlinesConfig
from prorl.run.layout import CHECKPOINTS, HEARTBEAT, LOG, STACKS
from prorl.run.process import Heartbeat
from prorl.run.supervise import CRASHED, Beat, Ending, Patience, Supervisor
from support.processes import eventually, shell, state

QUICK = Patience(lasting=0, first_wait=0.01, longest_wait=0.05, tick=0.05, dump=0.5)

TRAINER = """
import faulthandler, os, signal, sys, time
from pathlib import Path
folder = Path({folder!r})
life = len(list(folder.glob("life-*")))
(folder / f"life-{{life}}").write_text(" ".join([str(os.getpid()), *sys.argv[1:]]))
def heart(step, deadline=60.0):  # imports here: most trainers die without it, and sooner
    from prorl.config.schema import DeadlinesConfig
    from prorl.run.process import Heartbeat
    beating = Heartbeat(folder / "heartbeat.json", DeadlinesConfig(learn=deadline), step=step)
    beating("learn")
    return beating
def die(number=signal.SIGKILL):
    os.kill(os.getpid(), number)
"""


def write_trainer(folder: Path, code: str) -> str:
    """A script that stands for a trainer; `life` is how often it was started before."""
    script = folder / "trainer.py"
    script.write_text(TRAINER.format(folder=str(folder)) + textwrap.dedent(code))
    return str(script)


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def said():
    return []


@pytest.fixture
def supervisor(folder, said):
    """A supervisor over a trainer that runs some code."""

    def make(code: str, patience: Patience = QUICK) -> Supervisor:
        command = [sys.executable, write_trainer(folder, code)]
        return Supervisor(
            [*command, "first"], [*command, "again"], folder, say=said.append, patience=patience
        )

    return make


def lives(folder: Path) -> list[str]:
    """With which argument the trainer was started each time."""
    paths = sorted(folder.glob("life-*"))
    return [path.read_text().split()[1] for path in paths]


@pytest.mark.parametrize(("given", "seed"), [(None, "0"), ("7", "7")])
def test_every_trainer_hashes_texts_alike_unless_the_user_says_how(supervisor, monkeypatch, given, seed):
    """Else a task that goes through a set would ask other prompts after a resume."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    if given is not None:
        monkeypatch.setenv("PYTHONHASHSEED", given)
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    expected = int(subprocess.check_output([sys.executable, "-c", "print(hash('x'))"], env=environment))
    assert supervisor(f"sys.exit(0 if hash('x') == {expected} else 1)").run() == 0


@pytest.mark.parametrize("status", [0, 1, 2, 75, 130, 143])
def test_an_end_that_was_meant_is_the_end(supervisor, folder, said, status):
    (folder / CHECKPOINTS / "step_000000").mkdir(parents=True)  # a train command never resumes what was there
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert supervisor(f"sys.exit({status})").run() == status
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert lives(folder) == ["first"]
    assert said == []


def test_who_fails_at_the_start_and_leaves_nothing_behind_is_not_started_again(supervisor, said):
    code = "import shutil; heart(0); time.sleep(0.3); shutil.rmtree(folder); sys.exit(1)"  # the beat is seen
    assert supervisor(code).run() == 1
    assert said == []


@pytest.mark.parametrize(
    "death", ["die()", "die(signal.SIGSEGV)", "sys.exit(70)", "sys.exit(71)", "heart(0); os._exit(1)"]
)
def test_a_crash_is_followed_by_another_trainer(supervisor, folder, said, death):
    assert supervisor(f"if life == 0: {death}").run() == 0
    assert lives(folder) == ["first", "first"]
    assert len(said) == 2
    assert (folder / LOG).read_text().count("\n") == 2


def test_a_machine_that_can_start_no_trainer_for_a_moment_ends_no_run(supervisor, folder, said, monkeypatch):
    refusals = [BlockingIOError("Resource temporarily unavailable")]

    def start(*arguments, **settings):
        if refusals:
            raise refusals.pop()
        return subprocess_popen(*arguments, **settings)

    subprocess_popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    assert supervisor("").run() == 0
    assert lives(folder) == ["first"]
    assert said[0] == "no trainer can be started: Resource temporarily unavailable"


def test_where_a_trainer_was_when_a_signal_killed_it_is_kept(supervisor, folder, said):
    code = """
        (folder / "stacks.txt").write_text("Fatal Python error" if life == 0 else "")
        if life < 2: die(signal.SIGSEGV)
    """
    assert supervisor(code).run() == 0
    (kept,) = folder.glob("stacks-*.txt")
    assert kept.read_text() == "Fatal Python error"
    assert said[0].endswith(f"; stacks in {kept.name}")


def test_it_resumes_as_soon_as_there_is_a_checkpoint(supervisor, folder):
    (folder / CHECKPOINTS).mkdir()
    code = """
        if life == 1: (folder / "checkpoints" / "step_000000").mkdir()
        if life < 3: die()
    """
    assert supervisor(code).run() == 0
    assert lives(folder) == ["first", "first", "again", "again"]


def test_a_failure_while_the_disk_is_gone_is_tried_again(supervisor, folder):
    (folder / CHECKPOINTS / "step_000000").mkdir(parents=True)
    code = """
        there, gone = folder / "checkpoints", folder / "elsewhere"
        if life == 0: there.rename(gone)
        if life == 2: gone.rename(there)
        if life < 2: sys.exit(1)
    """
    assert supervisor(code).run() == 0
    assert lives(folder) == ["first", "again", "again"]


@pytest.mark.parametrize(
    ("end", "tried"),
    [("heart(2); die()", 3), ("heart(2); os._exit(1)", 3), ("heart(2).close(); sys.exit(1)", 1)],
)
def test_who_cannot_begin_in_the_place_of_one_that_did_not_end_by_itself_is_tried_again(
    supervisor, folder, end, tried
):
    """Ray ends a process whose cluster has lost its head, and the next one finds none for a while."""
    (folder / CHECKPOINTS / "step_000000").mkdir(parents=True)
    code = f"if life == 0: {end}\nif life == 1: sys.exit(1)\nheart(3).close()"
    assert supervisor(code).run() == (1 if tried == 1 else 0)
    assert len(lives(folder)) == tried


def test_a_disk_that_stays_away_is_not_taken_for_a_run_that_saved_nothing(supervisor, folder, said):
    (folder / CHECKPOINTS / "step_000000").mkdir(parents=True)
    code = """
        if life == 0: (folder / "checkpoints").rename(folder / "elsewhere")
        sys.exit(1)
    """
    assert supervisor(code).run() == CRASHED
    assert "prorl resume" in said[-1]


def test_a_crash_loop_is_given_up_with_one_sentence_that_names_the_log(supervisor, folder, said):
    (folder / CHECKPOINTS / "step_000000").mkdir(parents=True)
    assert supervisor("heart(2); heart(7); die()").run() == CRASHED  # to fall back is no progress
    assert len(lives(folder)) == QUICK.crashes
    assert "gave up after 4 crashes" in said[-1]
    assert "SIGKILL at step 7 in phase 'learn'" in said[-1]
    assert str(folder / LOG) in said[-1]


def test_trouble_that_passes_in_minutes_ends_no_run_that_has_something_saved(supervisor, folder):
    watch = supervisor("heart(7); life < 6 and die()", replace(QUICK, lasting=300))
    assert watch.run() == CRASHED, "what could not even begin is given up soon"
    (folder / CHECKPOINTS / "step_000000").mkdir(parents=True)
    assert watch.run() == 0
    assert len(lives(folder)) == 7


def test_what_a_run_did_before_a_roll_back_is_no_measure_of_its_progress(supervisor, folder):
    (folder / CHECKPOINTS / "step_000000").mkdir(parents=True)
    code = """
        if life == 0:
            heart(90)
            time.sleep(0.5)
            heart(20)
        heart(20 + life)
        if life < 5: die()
    """
    assert supervisor(code).run() == 0


def test_a_supervisor_begins_although_a_signal_without_a_name_is_held_back(supervisor):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 1])
    try:
        assert supervisor("pass").run() == 0
        assert signal.SIGRTMIN + 1 in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_run_that_is_rolled_back_in_every_life_and_dies_is_given_up(supervisor, folder, said):
    (folder / CHECKPOINTS / "step_000000").mkdir(parents=True)
    assert supervisor("heart(10); time.sleep(0.3); heart(5); time.sleep(0.2); die()").run() == CRASHED
    assert len(lives(folder)) <= QUICK.crashes + 1


def test_the_beat_of_an_earlier_trainer_of_the_same_number_is_none_of_this_one(supervisor, folder):
    """As in a container that was started again: its processes have the numbers of before."""
    heart = Heartbeat(folder / HEARTBEAT, DeadlinesConfig(), step=3)
    heart("learn")
    watch = supervisor("pass")
    assert watch.run() == 0
    assert watch._beat(os.getpid()) is None
    heart("judge")
    assert watch._beat(os.getpid()).phase == "judge"
    heart.close()


def test_a_crash_loop_before_the_first_checkpoint_names_nothing_that_is_not_there(supervisor, folder, said):
    assert supervisor("die()").run() == CRASHED
    assert "nothing was saved yet" in said[-1]
    assert "prorl resume" not in said[-1]


def test_a_trainer_that_is_started_again_is_told_how_the_one_before_it_ended(supervisor, folder):
    code = """
        (folder / f"told-{life}").write_text(os.environ.get("PRORL_ENDED", "nothing"))
        heart(life)
        life < 5 and die()
    """
    assert supervisor(code).run() == 0  # crashes with progress between them are no loop
    assert [path.read_text() for path in sorted(folder.glob("told-*"))] == [
        "nothing",
        *(f"the trainer was killed by SIGKILL at step {step} in phase 'learn'" for step in range(5)),
    ]


def test_a_hang_is_dumped_killed_and_followed_by_another_trainer(supervisor, folder, said):
    code = """
        def sleeping_beauty(): time.sleep(60)
        if life == 0:
            faulthandler.register(signal.SIGUSR2, file=(folder / "stacks.txt").open("w"))
            heart(0, deadline=0.2)
            sleeping_beauty()
    """
    assert supervisor(code).run() == 0
    (stacks,) = folder.glob("stacks-*.txt")
    assert "sleeping_beauty" in stacks.read_text()
    assert "no sign of life for 0 s in phase 'learn'" in said[0]
    assert said[1] == "the trainer hung at step 0 in phase 'learn'"


def test_one_that_never_gets_to_take_a_run_up_again_hangs_too(folder, said):
    (folder / CHECKPOINTS / "step_000000").mkdir(parents=True)
    patience = replace(QUICK, taking_up=0.5)
    assert Supervisor(["sleep", "60"], ["true"], folder, say=said.append, patience=patience).run() == 0
    assert "no sign of life for 0 s in phase 'taking up'" in said[0]
    assert said[1] == "the trainer hung"


def test_the_beat_of_an_earlier_trainer_condemns_nobody(supervisor, folder):
    code = """
        if life == 0:
            heart(0, deadline=0.1)
            die()
        time.sleep(1)
    """
    assert supervisor(code).run() == 0
    assert len(lives(folder)) == 2


APART = """
from pathlib import Path
import signal, sys
from prorl.run.supervise import Patience, Supervisor
command = [sys.executable, {script!r}]
signal.signal(signal.SIGHUP, signal.{hangup})
patience = Patience(first_wait=0.01, tick=0.05, dump=0.5)
folder = Path({folder!r})
sys.exit(Supervisor([*command, "first"], [*command, "again"], folder, say=print, patience=patience).run())
"""


def write_apart(folder: Path, code: str, hangup: str = "SIG_DFL") -> str:
    """Python that supervises a trainer running some code."""
    return APART.format(script=write_trainer(folder, code), folder=str(folder), hangup=hangup)


@pytest.fixture
def apart(folder):
    """A supervisor in a process of its own, once its trainer is at work."""
    started = []

    def start(code: str, hangup: str = "SIG_DFL") -> subprocess.Popen:
        command = [sys.executable, "-c", write_apart(folder, code, hangup)]
        process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
        started.append(process)
        eventually((folder / HEARTBEAT).exists)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def trainer_of(folder: Path) -> int:
    return int((folder / "life-0").read_text().split()[0])


def alive(pid: int) -> bool:
    return state(pid) not in ("", "Z")


POLITE = """
    asked = []
    statuses = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 75, signal.SIGHUP: 129}
    for kind in statuses:
        if signal.getsignal(kind) != signal.SIG_IGN:
            signal.signal(kind, lambda number, frame: asked.append(number))
    beating = heart(1, deadline=DEADLINE)
    while not asked:
        time.sleep(0.02)
        beating("learn")
    time.sleep(0.2)
    (folder / "asked").write_text(" ".join(map(str, asked)))
    sys.exit(statuses[asked[0]])
""".replace("DEADLINE", "0.6")


@pytest.mark.parametrize(
    ("kind", "status"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 75), (signal.SIGHUP, 129)],
)
def test_a_signal_is_passed_on_and_the_documented_status_comes_back(apart, folder, kind, status):
    process = apart(POLITE)
    process.send_signal(kind)
    assert process.wait(timeout=120) == status
    assert (folder / "asked").read_text() == str(int(kind))


@pytest.mark.parametrize("stopped", ["supervisor", "both"])
def test_who_is_stopped_and_continued_lives_on(apart, folder, stopped):
    """Longer than a tick, and than the trainer's deadline."""
    process = apart(POLITE)
    whom = {"supervisor": [process.pid], "trainer": [trainer_of(folder)]}
    for seconds in (0.2, 0.2, 1.0):
        for kind in (signal.SIGSTOP, signal.SIGCONT):
            for pid in whom.get(stopped, [*whom["trainer"], *whom["supervisor"]]):
                os.kill(pid, kind)
            time.sleep(seconds if kind == signal.SIGSTOP else 0.1)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 143
    assert lives(folder) == ["first"]


def test_ctrl_z_and_fg_at_a_terminal(folder):
    (folder / "supervise.py").write_text(write_apart(folder, POLITE))
    with shell() as terminal:
        terminal.type(f"{sys.executable} {folder / 'supervise.py'}\n")
        eventually((folder / HEARTBEAT).exists)
        for _ in range(3):
            terminal.type("\x1a")
            eventually(lambda: state(trainer_of(folder)) == "T")
            time.sleep(0.1)
            terminal.type("fg\n")
            eventually(lambda: state(trainer_of(folder)) != "T")
        terminal.type("\x03")
        eventually((folder / "asked").exists)
        terminal.type("echo status $?\n")
        terminal.expect("status 130")
    assert (folder / "asked").read_text() == "2"
    assert lives(folder) == ["first"]


def test_a_hangup_is_ignored_under_nohup(apart, folder):
    process = apart(POLITE, hangup="SIG_IGN")
    process.send_signal(signal.SIGHUP)
    os.kill(trainer_of(folder), signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 143


@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_ctrl_backslash_stops_at_once_and_says_where_the_trainer_was(apart, folder, send):
    code = """
        from prorl.config.schema import DeadlinesConfig
        from prorl.run.process import alive
        with alive(folder, DeadlinesConfig(), step=3):
            time.sleep(60)
    """
    process = apart(code)
    eventually((folder / STACKS).exists)
    time.sleep(0.3)  # from the file to the handler
    send(process.pid, signal.SIGQUIT)
    assert process.wait(timeout=120) == 131
    (stacks,) = folder.glob("stacks-*.txt")
    assert "trainer.py" in stacks.read_text()
    said = process.stdout.read()
    assert f"killed by SIGQUIT at step 3 in phase 'between'; stacks in {stacks.name}" in said
    assert "stopped at once, unsaved" in said


def test_a_trainer_that_is_asked_to_stop_and_crashes_is_not_started_again(apart, folder):
    process = apart("heart(1); time.sleep(60)")  # it does not listen: the signal kills it
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 143
    assert lives(folder) == ["first"]


def test_the_trainer_dies_with_its_supervisor(apart, folder):
    code = """
        (folder / "mask").write_text(str(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        heart(1)
        time.sleep(60)
    """
    process = apart(code)
    assert (folder / "mask").read_text() == "set()", "it starts with no signal held back"
    pid = trainer_of(folder)
    assert alive(pid)
    process.kill()
    eventually(lambda: not alive(pid))


def test_waits_double_up_to_the_longest():
    patience = Patience(first_wait=1, longest_wait=60)
    assert [patience.wait(crashes) for crashes in (1, 2, 3, 6, 7, 99)] == [1, 2, 4, 32, 60, 60]


def test_an_ending_says_what_is_known():
    beat = Beat(pid=1, count=1, phase="sync", deadline=1.0, step=9, at=0.0)
    assert str(Ending(status=-9, beat=None, reached=0, hung=False)) == "the trainer was killed by SIGKILL"
    assert str(Ending(status=-40, beat=None, reached=0, hung=False)) == "the trainer was killed by 40"
    assert str(Ending(status=70, beat=beat, reached=9, hung=False)) == (
        "the trainer ended with status 70 at step 9 in phase 'sync'"
    )
    assert "for want of memory, saved" in str(Ending(status=71, beat=beat, reached=9, hung=False))
