"""Judges as real Ray actors: the verdicts of a `LocalJudge`, whatever happens to the actors."""

import signal
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from prorl.envs.datasets.catalogue import SourceRequest
from prorl.envs.datasets.prepare import DatasetTask, prepare
from prorl.envs.extensions import find, load_task
from prorl.envs.extract import respond
from prorl.envs.registry import VerifierSpec, make_task, make_verifier
from prorl.envs.sandbox.link import SandboxError
from prorl.envs.types import Problem
from prorl.local.judge import JudgeError, LocalJudge
from prorl.rollout.pipeline import collect_verdicts, judge_all, rejudge_errors
from support.cluster import actors, local_ray
from support.data_rows import write_jsonl
from support.mishaps import AMISS, CURSED, make_mishap
from support.processes import eventually

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]

VERIFIERS = Path(__file__).parents[1] / "local"  # the module `judge_verifiers`
TASKS = ("arithmetic", "linear_equation", "word_list", "one_liner")
DEADLINE = 1.0


@pytest.fixture(scope="module")
def verifiers():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(VERIFIERS)
        import judge_verifiers

        yield judge_verifiers


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Processes on it find the module of verifiers too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", ":".join([str(VERIFIERS), *filter(None, sys.path)]))
        with local_ray(4):
            yield


def hosted(make, judges=1, *, check=str, deadline=DEADLINE):
    """A `RayJudge` that is closed at the end of a `with`; a `check` says nothing where all is well."""
    from prorl.cluster.judge import JudgeActor, RayJudge

    actor = ray.remote(JudgeActor).options(num_cpus=1)
    return closing(RayJudge(lambda _: actor.remote(make), judges, deadline=deadline, check=check))


def obeying(verifiers, **options):
    return partial(LocalJudge, verifiers.make_obey, **{"deadline": DEADLINE, "workers": 2} | options)


def problem(prompt="p"):
    return Problem(task="t", domain="d", index=0, split="train", level=0, prompt=prompt, payload=None)


def items(texts):
    return {ticket: (problem(f"p{ticket}"), text) for ticket, text in enumerate(texts)}


def said(verdicts):
    """All of a verdict but the time it took."""
    return {
        ticket: (verdict.score, verdict.status, verdict.note, verdict.answered)
        for ticket, verdict in verdicts.items()
    }


def domains():
    """Right, wrong and empty answers to problems of all tasks; the programs of one run in the sandbox."""
    answers = {}
    for name in TASKS:
        task = make_task(name)
        for index in range(4):
            asked = task.problem(index, "train")
            for text in (respond("so", asked.solution.answer), respond("so", "lambda: 1"), "nothing"):
                answers[len(answers)] = (asked, text)
    return answers


def verdicts_of_both(make, queued, judges, *, deadline=DEADLINE):
    """What judges on nodes say, which is what one beside the driver says; and what is told of them."""
    with closing(make()) as local:
        wanted = said(judge_all(local, queued))
    with hosted(make, judges, deadline=deadline) as judge:
        assert said(judge_all(judge, queued)) == wanted
        assert judge.poll(wait=True) == []
        return list(wanted.values()), judge.incidents()


@pytest.mark.parametrize("judges", [1, 3])
def test_verdicts_of_real_domains_are_those_of_one_local_judge(judges):
    make = partial(LocalJudge, partial(make_verifier, VerifierSpec(tasks=TASKS)))
    verdicts, incidents = verdicts_of_both(make, domains(), judges, deadline=8.0)
    assert incidents == []
    scores = [score for score, *_ in verdicts]
    assert scores.count(1.0) >= 16
    assert scores.count(0.0) >= 16


@pytest.mark.parametrize("judges", [1, 2])
def test_misbehaviour_costs_one_item_whoever_judges(verifiers, judges):
    texts = [str(number / 400) for number in range(400)]
    for at, bad in ((7, "hang"), (90, "exit 3"), (91, "raise"), (200, "1.5"), (399, "None")):
        texts[at] = bad
    verdicts, (workers,) = verdicts_of_both(obeying(verifiers), items(texts), judges)
    assert sum(status == "error" for _, status, *_ in verdicts) == 5
    assert "1 × deadline of 1 s (t)" in workers
    assert "1 × verifier process died, exit code 3 (t)" in workers


def test_a_poll_without_wait_returns_at_once(verifiers):
    with hosted(obeying(verifiers, workers=1)) as judge:
        assert judge.poll(wait=False) == []
        judge.submit(0, problem(), "sleep 0.5")
        begun = time.monotonic()
        assert judge.poll(wait=False) == []
        assert time.monotonic() - begun < 0.4
        assert [ticket for ticket, _ in judge.poll(wait=True)] == [0]


def test_a_call_carries_many_items(verifiers):
    from prorl.cluster.judge import JudgeActor, RayJudge

    class Counting(JudgeActor):
        calls = 0

        def exchange(self, items):
            self.calls += 1
            return super().exchange(items)

        def told(self):
            return self.calls

    actor = ray.remote(Counting).options(num_cpus=1).remote(obeying(verifiers))
    with closing(RayJudge(lambda _: actor, 1, deadline=DEADLINE, check=str)) as judge:
        verdicts = {}
        for ticket, (asked, text) in items(["1"] * 2000).items():
            judge.submit(ticket, asked, text)
            verdicts |= dict(judge.poll(wait=False)) if ticket % 10 == 0 else {}
        assert len(collect_verdicts(judge, verdicts, 2000)) == 2000
        assert ray.get(actor.told.remote()) < 100


def test_items_go_to_the_judges_in_turn(verifiers):
    with hosted(obeying(verifiers, workers=1), 2) as judge:
        verdicts = judge_all(judge, items(["pid"] * 20))
    pids = [verdicts[ticket].note for ticket in range(20)]
    assert len(set(pids)) == 2
    assert pids == pids[:2] * 10


@pytest.fixture
def impatient(monkeypatch):
    """A silent actor is one that is silent for four seconds."""
    monkeypatch.setattr("prorl.cluster.judge.ANSWER_SECONDS", 3.0)


@pytest.mark.parametrize(
    ("kind", "how"), [(signal.SIGKILL, "has died"), (signal.SIGSTOP, "was silent")], ids=["killed", "stopped"]
)
def test_a_lost_judge_is_replaced_and_given_what_it_owed(verifiers, impatient, kind, how):
    texts = ["0.5"] * 40 + ["hang", "sleep 0.5", "sleep 0.5"] + ["0.25"] * 40
    with hosted(obeying(verifiers), 2) as judge:
        for ticket, (asked, text) in items(texts).items():
            judge.submit(ticket, asked, text)
        verdicts = dict(judge.poll(wait=True))
        victim = actors("JudgeActor")[-1]
        workers = [child for child in victim.children(recursive=True) if "spawn_main" in str(child.cmdline())]
        assert len(workers) == 2
        victim.send_signal(kind)
        while len(verdicts) < len(texts):
            verdicts |= dict(judge.poll(wait=True))
        incident, replaced = judge.incidents()
        assert f"{how} and is replaced" in incident
        assert f"1 × deadline of {DEADLINE:g} s (t)" in replaced
        assert judge.incidents() == []
        assert verdicts[40].note == f"deadline of {DEADLINE:g} s"
        assert sum(verdict.status == "ok" for verdict in verdicts.values()) == len(texts) - 1
        eventually(lambda: not victim.is_running())
        eventually(lambda: not any(worker.is_running() for worker in workers))
        assert judge_all(judge, items(["1"] * 4))[3].score == 1


def test_a_node_that_can_start_no_worker_for_a_while_is_waited_for(tmp_path):
    tasks = ("arithmetic", "word_list")
    problems = [make_task(name).problem(index, "train") for name in tasks for index in range(4)]
    asked = [(problem, respond("so", problem.solution.answer)) for problem in problems]
    waits = []

    def wait(why, seconds):
        waits.append(why)
        (tmp_path / CURSED).unlink(missing_ok=True)
        time.sleep(seconds)

    with hosted(partial(LocalJudge, partial(make_mishap, tmp_path), deadline=DEADLINE)) as judge:
        (tmp_path / AMISS).write_text("SIGKILL")
        (tmp_path / CURSED).touch()
        verdicts = rejudge_errors(judge, asked, judge_all(judge, dict(enumerate(asked)), wait), wait)
        assert {verdict.status for verdict in verdicts.values()} == {"ok"}
        (workers,) = judge.incidents()
    assert waits[0].startswith(
        f"paused: node {ray.util.get_node_ip_address()}: no judge can be started (MemoryError"
    )
    assert "1 × verifier process died, exit code -9" in workers


def test_close_leaves_no_process(verifiers):
    with hosted(obeying(verifiers, deadline=30.0), 2) as judge:
        judge_all(judge, items(["1"] * 8))
        hosts = actors("JudgeActor")
        workers = [worker for host in hosts for worker in host.children(recursive=True)]
        assert len(workers) >= 4
        judge.submit(0, problem(), "hang")
        judge.poll(wait=False)
    eventually(lambda: not any(process.is_running() for process in (*hosts, *workers)))
    with pytest.raises(RuntimeError, match="closed"):
        judge.submit(1, problem(), "1")


OWN_TASK = """
import time
from dataclasses import dataclass
from prorl.envs import ProceduralTask, draft

@dataclass(frozen=True)
class Number:
    value: int

class Sums(ProceduralTask):
    domain, levels = "math", (1, 2)

    def generate(self, rng, level):
        number = rng.randrange(10 ** (3 * level))
        return draft(f"Add one to {number}.", Number(number), steps="", answer=str(number + 1))

    def score(self, payload, answer):
        if answer == "hang":
            time.sleep(3600)
        return float(int(answer) == payload.value + 1)
"""
OWN_REWARD = """
import time

def score(response, row, gold):
    if response == "hang":
        time.sleep(3600)
    return float(response) / row["of"]
"""


@pytest.mark.parametrize("judges", [1, 2])
def test_code_of_the_user_s_own_judges_from_its_text_alone(tmp_path, judges):
    """Its file is gone before the judges start, as on a machine that has no copy; what fails costs one item."""
    codes = {"sums": (OWN_TASK, "Sums"), "halves": (OWN_REWARD, "score")}
    own = {}
    for name, (text, entry) in codes.items():
        (tmp_path / f"{name}.py").write_text(text)
        own[name] = find(f"{tmp_path / name}.py:{entry}")
        (tmp_path / f"{name}.py").unlink()
    rows = write_jsonl(tmp_path / "rows.jsonl", [{"prompt": f"Say {n}.", "of": n} for n in (2, 4)])
    prepare([SourceRequest(name="halves", graded=True, path=str(rows))], tmp_path, lambda *_: None)
    path = tmp_path / "halves.parquet"
    spec = VerifierSpec(tasks=("sums",), datasets={"halves": path}, own=own)
    asked, halves = load_task(own["sums"], "sums").problem(0, "train"), DatasetTask("halves", path)
    row = halves.problem(0, min(halves.splits))
    answers = (asked.solution.answer, "0", "no number", "hang")
    texts = [(asked, respond("so", answer)) for answer in answers]
    texts += [(row, text) for text in ("1", "2", "no number", "hang", "9")]
    queued = dict(enumerate(texts * 2))
    deadline = 2 * DEADLINE  # a worker that is started anew reads the user's code, beside others that start
    make = partial(LocalJudge, partial(make_verifier, spec), deadline=deadline, workers=2)
    verdicts, incidents = verdicts_of_both(make, queued, judges, deadline=deadline)
    assert [status for _, status, *_ in verdicts].count("error") == 2 * 5
    assert len(incidents) == 1  # a sentence for all workers


class Silent:
    """A judge that starts and is never heard of again."""

    def start(self, check):
        return check()

    def exchange(self, items):
        signal.pause()


def test_judges_that_never_answer_are_given_up(impatient, monkeypatch):
    from prorl.cluster.cluster import MOST_RESTARTS, LostError
    from prorl.cluster.judge import RayJudge

    monkeypatch.setattr("prorl.cluster.judge.START_SECONDS", 1.0)
    started = []

    def start(index):
        started.append(ray.remote(Silent).options(num_cpus=1).remote())
        return started[-1]

    judge = RayJudge(start, 1, deadline=0.5, check=str)
    judge.submit(0, problem(), "1")
    with pytest.raises(LostError, match=r"judge 0 was silent, the 4th without a verdict"):
        judge.poll(wait=True)
    assert len(judge.incidents()) == MOST_RESTARTS
    assert len(started) == 1 + MOST_RESTARTS
    ray.kill(started[-1])


def unsafe():
    raise SandboxError("programs cannot be run safely here")


def lax():
    return "Tier C limits little."


def test_a_node_that_cannot_judge_is_named_at_the_start(verifiers, tmp_path):
    node = rf"node {ray.util.get_node_ip_address()} cannot judge: "
    with pytest.raises(JudgeError, match=rf"{node}programs cannot be run safely.*cluster.judges=0"):
        hosted(obeying(verifiers), check=unsafe)
    spec = VerifierSpec(datasets={"deepscaler": tmp_path / "deepscaler.parquet"})
    without = partial(LocalJudge, partial(make_verifier, spec))
    with pytest.raises(
        JudgeError, match=rf"{node}.*deepscaler.parquet is missing.*give it what the driver has"
    ):
        hosted(without)


def test_what_a_check_warns_of_is_told_once(verifiers):
    with hosted(obeying(verifiers), 2, check=lax) as judge:
        assert judge.incidents() == ["Tier C limits little."]
