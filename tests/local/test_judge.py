"""The judge survives every verifier: real processes that hang, die, raise and print."""

import importlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from prorl.envs.types import Problem
from prorl.local import children
from prorl.local.children import replacements
from prorl.local.judge import REPLACED, JudgeError, LocalJudge
from prorl.rollout.pipeline import collect_verdicts, judge_all, rejudge_errors
from support.processes import eventually, state

HERE = Path(__file__).parent
DEADLINE = 0.5


@pytest.fixture(scope="module")
def verifiers():
    sys.path.insert(0, str(HERE))  # spawned workers get the parent's path
    yield importlib.import_module("judge_verifiers")
    sys.path.remove(str(HERE))


@pytest.fixture(scope="module")
def judge(verifiers):
    with closing(LocalJudge(verifiers.make_obey, deadline=DEADLINE)) as judge:
        yield judge


def problem(prompt="p"):
    return Problem(task="t", domain="d", index=0, split="train", level=0, prompt=prompt, payload=None)


def judged(judge, texts):
    """Submit all, collect all; tickets are positions in `texts`, backwards so that they are no queue positions."""
    for ticket in reversed(range(len(texts))):
        judge.submit(ticket, problem(f"p{ticket}"), texts[ticket])
    verdicts = {}
    while len(verdicts) < len(texts):
        fresh = judge.poll(wait=True)
        assert fresh, "poll(wait=True) returned nothing while verdicts are outstanding"
        for ticket, verdict in fresh:
            assert ticket not in verdicts
            verdicts[ticket] = verdict
    assert judge.poll(wait=True) == []
    return [verdicts[ticket] for ticket in range(len(texts))]


def is_alive(pid):
    return state(pid) not in ("", "Z", "X")


def test_every_ticket_gets_its_own_verdict(judge):
    verdicts = judged(judge, [str(i / 500) for i in range(500)])
    assert [verdict.score for verdict in verdicts] == [i / 500 for i in range(500)]
    assert [verdict.note for verdict in verdicts] == [f"p{i}" for i in range(500)]
    assert all(verdict.status == "ok" for verdict in verdicts)


def test_a_wait_with_an_end_ends_without_a_verdict_too(judge):
    judge.submit(0, problem(), "sleep 0.3")
    begun = time.monotonic()
    assert judge.poll(wait=True, within=0.05) == []  # not after 0.3 s with a verdict
    assert time.monotonic() - begun >= 0.05
    ((ticket, verdict),) = judge.poll(wait=True, within=DEADLINE)
    assert (ticket, verdict.status) == (0, "ok")
    assert time.monotonic() - begun >= 0.3


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("hang", "deadline of 0.5 s"),
        ("exit 3", "verifier process died, exit code 3"),
        ("raise", "ZeroDivisionError: by zero"),
        ("quote", "ValueError: half a ?"),
        ("sys.exit", "SystemExit: 3"),
        ("None", "TypeError: the verifier returned NoneType, not a Verdict"),
        ("scoreless", "TypeError: float() argument must be a string or a real number, not 'NoneType'"),
        ("nan", "score nan is outside [0, 1]"),
        ("1.5", "score 1.5 is outside [0, 1]"),
    ],
)
def test_misbehaviour_costs_one_item_and_no_neighbour(judge, text, note):
    verdicts = judged(judge, ["0.25"] * 20 + [text] + ["0.75"] * 20)
    bad = verdicts.pop(20)
    assert (bad.score, bad.status, bad.note) == (0.0, "error", note)
    assert [verdict.score for verdict in verdicts] == [0.25] * 20 + [0.75] * 20
    assert all(verdict.status == "ok" for verdict in verdicts)


def test_a_verifier_that_eats_memory_costs_one_item(verifiers):
    with closing(LocalJudge(verifiers.make_obey, memory=200 << 20)) as judge:
        small, large, before = judged(judge, ["eat 1000", f"eat {1 << 30}", "pid"])
        (after,) = judged(judge, ["pid"])
    assert (small.note, small.status) == ("1000", "ok")
    assert (large.status, large.note) == ("error", "MemoryError: ")
    assert before.status == after.status == "ok"
    assert before.note != after.note  # what is judged once more is judged by a worker that has its memory


def test_a_worker_makes_room_for_a_new_one(verifiers):
    with closing(LocalJudge(verifiers.make_obey, items_per_worker=3)) as judge:
        first = judged(judge, ["pid"] * 3)
        second = judged(judge, ["pid"] * 2)
    assert len({verdict.note for verdict in first}) == len({verdict.note for verdict in second}) == 1
    assert first[0].note != second[0].note


def test_a_mixture_on_two_workers(verifiers):
    texts = ["0.5"] * 100 + ["raise"] * 20 + ["exit 0"] * 3 + ["hang"] * 2
    Random(0).shuffle(texts)
    with closing(LocalJudge(verifiers.make_obey, deadline=DEADLINE, workers=2)) as judge:
        verdicts = judged(judge, texts)
    assert [verdict.status for verdict in verdicts] == ["ok" if text == "0.5" else "error" for text in texts]


def test_the_time_of_starting_is_not_the_items_time(verifiers):
    with closing(LocalJudge(verifiers.make_obey_slowly, deadline=DEADLINE)) as judge:
        judge.ready()
        judge.submit(0, problem(), "1")
        ((_, verdict),) = judge.poll(wait=True, within=DEADLINE)
        assert verdict.status == "ok"


def test_a_worker_alone_gets_all_that_waits_at_once(judge):
    judged(judge, ["1"])
    for ticket in range(10):
        judge.submit(ticket, problem(), "1")
    judge.poll(wait=False)
    assert len(judge._workers[0].running) == 10
    assert len(collect_verdicts(judge, {}, 10)) == 10


def test_neither_submit_nor_poll_waits_for_a_busy_worker(judge):
    judged(judge, ["1"])
    begin = time.monotonic()
    verdicts = []
    for ticket, text in enumerate(["sleep 0.2"] + ["1" + " " * 10_000] * 100):
        judge.submit(ticket, problem(), text)
        verdicts += judge.poll(wait=False)
    assert time.monotonic() - begin < 0.2
    while len(verdicts) < 101:
        verdicts += judge.poll(wait=True)
    assert all(verdict.status == "ok" for _, verdict in verdicts)


def test_a_hung_program_dies_with_its_verifier(judge, tmp_path):
    pid_file = tmp_path / "pid"
    assert judged(judge, [f"start {pid_file}"])[0].note == "deadline of 0.5 s"
    eventually(lambda: not is_alive(int(pid_file.read_text())))


def test_workers_are_silent_polite_and_without_torch(judge, capfd):
    verdicts = judged(judge, ["print", "about"])
    assert verdicts[1].note == f"torch=False threads=1 nice={min(19, os.nice(0) + 5)} timer=0"
    assert capfd.readouterr() == ("", "")


def test_workers_hash_texts_alike(verifiers, monkeypatch):
    """Else a verifier that goes through a set would judge by another order in each."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    hashes = set()
    for _ in range(2):
        with closing(LocalJudge(verifiers.make_obey)) as judge:
            hashes.add(judged(judge, ["hash"])[0].note)
    assert len(hashes) == 1


def test_ctrl_c_is_the_parents_business(judge):
    (before,) = judged(judge, ["pid"])
    os.kill(int(before.note), signal.SIGINT)
    assert judged(judge, ["pid"])[0].note == before.note


def test_an_idle_worker_that_dies_is_replaced_at_no_cost(judge):
    (before,) = judged(judge, ["pid"])
    os.kill(int(before.note), signal.SIGKILL)
    eventually(lambda: not is_alive(int(before.note)))
    (after,) = judged(judge, ["pid"])
    assert after.status == "ok"
    assert after.note != before.note


def test_an_idle_worker_that_takes_nothing_is_replaced_at_no_cost(verifiers, monkeypatch):
    monkeypatch.setattr(children, "SEND_SECONDS", 1)
    with closing(LocalJudge(verifiers.make_obey, deadline=DEADLINE)) as judge:
        judge.ready()
        os.kill(judge._workers[0].process.pid, signal.SIGSTOP)
        (verdict,) = judged(judge, ["1" + " " * 2_000_000])
        assert (verdict.score, verdict.status) == (1.0, "ok")
        assert sum(judge.replaced().values()) == 1


@pytest.mark.parametrize("last", ["1", "hang"])
def test_close_leaves_no_process(verifiers, last):
    others = set(multiprocessing.active_children())
    judge = LocalJudge(verifiers.make_obey, workers=2)
    pids = {verdict.note for verdict in judged(judge, ["pid"] * 2)}
    judge.submit(0, problem(), last)
    judge.poll(wait=False)
    begin = time.monotonic()
    judge.close()
    assert time.monotonic() - begin < 4
    assert set(multiprocessing.active_children()) <= others
    assert not any(is_alive(int(pid)) for pid in pids)
    judge.close()
    with pytest.raises(RuntimeError, match="closed"):
        judge.submit(1, problem(), "1")


@pytest.mark.parametrize(
    ("factory", "reason"),
    [("make_nothing", "FileNotFoundError: no such data set"), ("make_exit", "exit code 7")],
)
def test_verifiers_that_cannot_be_built_are_no_verdict(verifiers, factory, reason):
    with closing(LocalJudge(getattr(verifiers, factory))) as judge:
        judge.submit(0, problem(), "1")
        with pytest.raises(JudgeError, match=reason):
            judge.poll(wait=True)
    with closing(LocalJudge(getattr(verifiers, factory))) as judge, pytest.raises(JudgeError, match=reason):
        judge.ready()


@pytest.mark.parametrize(
    ("text", "failure"), [("die", "verifier process died, exit code 3"), ("hang", "deadline of 0.5 s")]
)
def test_what_takes_its_worker_down_is_judged_twice_and_an_error(judge, tmp_path, text, failure):
    judge.replaced()
    asked = [(problem(), text) for text in ["0.25"] * 5 + [f"{text} {tmp_path / 'trace'}"] + ["0.75"] * 5]
    verdicts = rejudge_errors(
        judge, asked, judge_all(judge, dict(enumerate(asked))), lambda *_: pytest.fail("waited")
    )
    assert [ticket for ticket, verdict in verdicts.items() if verdict.status != "ok"] == [5]
    assert (verdicts[5].status, verdicts[5].note) == ("error", failure)
    assert text == "hang" or (tmp_path / "trace").read_text() == "xx"
    assert judge.replaced() == {f"{failure} (t)": 2}
    assert judge.incidents() == []


def test_a_storm_is_told_in_one_sentence_of_bounded_length():
    assert replacements(Counter(), REPLACED) == []
    reasons = Counter({f"start failed: OSError: {number}": number for number in range(1000)})
    (told,) = replacements(reasons, REPLACED)
    assert told.startswith("judge workers replaced: 999 × start failed: OSError: 999; 998 × ")
    assert len(told) < 400


TRAINER = """
import os, sys, time
from prorl.local.judge import LocalJudge
from prorl.envs.types import Problem
sys.path.insert(0, {here!r})
from judge_verifiers import make_obey

if __name__ == "__main__":
    problem = Problem(task="t", domain="d", index=0, split="train", level=0, prompt="", payload=None)
    judge = LocalJudge(make_obey, deadline={deadline})
    {body}
"""


def trainer(folder, body, deadline):
    """A process that does so with a judge."""
    script = folder / "trainer.py"
    script.write_text(TRAINER.format(here=str(HERE), deadline=deadline, body="\n    ".join(body)))
    return subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("last", ["1", "hang"])
def test_no_worker_outlives_a_killed_trainer(tmp_path, last):
    body = (
        'judge.submit(0, problem, "pid")',
        "print(judge.poll(wait=True)[0][1].note, flush=True)",
        f"judge.submit(1, problem, {last!r})",
        "judge.poll(wait=False)",
        "time.sleep(0.1)",
        "os._exit(1)",
    )
    told, _ = trainer(tmp_path, body, 0.2).communicate(timeout=60)
    pid = int(re.fullmatch(r"(\d+)\n", told)[1])
    eventually(lambda: not is_alive(pid))


def test_time_in_which_all_are_stopped_is_nobodys(tmp_path):
    """As where a terminal, a debugger or a container stops a tree of processes, for longer than a deadline."""
    pid_file = tmp_path / "pid"
    body = (
        f"judge.submit(0, problem, {f'meet {pid_file}'!r})",
        "((_, verdict),) = judge.poll(wait=True)",
        "print(verdict.status, judge.incidents())",
        "judge.close()",
    )
    stopped = trainer(tmp_path, body, 1.0)
    eventually(lambda: pid_file.exists() and pid_file.read_text())
    pids = (stopped.pid, int(pid_file.read_text()))
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(1.2)
    pid_file.unlink()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)  # the trainer is awake before its worker
    assert stopped.communicate(timeout=10)[0] == "ok []\n"
