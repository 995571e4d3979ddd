"""Results that cost the judge time or memory are wrong at a bounded price, on a busy machine too."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from prorl.envs.sandbox.jobs import Limits
from prorl.envs.sandbox.sandbox import Sandbox
from prorl.envs.verifiers.programs import Tests as HiddenTests
from prorl.envs.verifiers.programs import judge_program
from support.hostile_results import FUNCTIONS, SCRIPTS
from support.parsing import cost
from support.sandbox_tiers import server_pid

LIMITS = Limits(seconds=2.0)
PATIENT = Limits(seconds=20.0)
OWN_PARSES = 10  # of this process's processor time for all results of one program: half a second when idle
CALLS = HiddenTests(entry="f", inputs=tuple([x] for x in range(8)), expected=tuple(range(8)))
TEXTS = tuple(f"{x}\n" for x in range(64))
LINES = HiddenTests(entry=None, inputs=TEXTS, expected=TEXTS)


@pytest.fixture
def busy():
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for process in spinning:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def opened():
    with Sandbox.open() as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    ("source", "tests"),
    [pytest.param(source, CALLS, id=name) for name, source in FUNCTIONS.items()]
    + [pytest.param(source, LINES, id=name) for name, source in SCRIPTS.items()],
)
def test_a_result_that_is_made_to_cost_is_wrong_and_bounded(opened, source, tests):
    is_wrong_and_bounded(opened, source, tests)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("source", "tests"),
    [(FUNCTIONS["deep, in earnest"], CALLS), (SCRIPTS["1 MB of lines"], LINES)],
    ids=["function", "script"],
)
def test_it_is_so_on_a_busy_machine(opened, source, tests):
    is_wrong_and_bounded(opened, source, tests)


def is_wrong_and_bounded(opened, source, tests):
    server = server_pid(opened)
    with cost() as own:
        began = time.monotonic()
        verdict = judge_program(opened.run, source, tests, LIMITS)
        assert time.monotonic() - began < LIMITS.seconds + 5
    assert own.parses < OWN_PARSES
    assert (verdict.status, verdict.score) == ("wrong", 0.0)
    assert server_pid(opened) == server
    assert judge_program(opened.run, "def f(x): return x", CALLS, PATIENT).score == 1.0
