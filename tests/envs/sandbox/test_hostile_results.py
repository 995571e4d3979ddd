"""Results that cost the judge time or memory are wrong at a bounded price, on a busy machine too."""

import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from prorl.envs.sandbox.jobs import Limits
from prorl.envs.sandbox.sandbox import Sandbox
from prorl.envs.verifiers.programs import Tests as HiddenTests
from prorl.envs.verifiers.programs import judge_program
from support.parsing import cost
from support.sandbox_tiers import server_pid

LIMITS = Limits(seconds=2.0)
PATIENT = Limits(seconds=20.0)
OWN_PARSES = 10  # of this process's processor time for all results of one program: half a second when idle
CALLS = HiddenTests(entry="f", inputs=tuple([x] for x in range(8)), expected=tuple(range(8)))
TEXTS = tuple(f"{x}\n" for x in range(64))
LINES = HiddenTests(entry=None, inputs=TEXTS, expected=TEXTS)

# Programs whose results are meant to cost the judge time or memory: each is wrong, whatever the judge makes of it.
# A function is asked for its argument, a script to print its input.
FORGER = """
import os
def write(data):
    view = memoryview(data)
    while view:
        view = view[os.write(3, view):]
def claim(index, value):
    write(b'[%d,"ok",%s,""]\\n' % (index, value))
DEEP = b"[" * 97 + b"]" * 97
def many(value, size):
    return b"[" + b",".join([value] * (size // (len(value) + 1))) + b"]"
"""
FORGED = {
    "deep, 8 MB in a line": "claim(0, many(DEEP, 8 << 20))",
    "deep, 1 MB in a line": "claim(0, many(DEEP, 1 << 20))",
    "deep, 1 MB in each line": "for index in range(8): claim(index, many(DEEP, 1 << 20))",
    "deep, just not too many": "claim(0, many(DEEP, (1 << 20) - 2000))",
    "brackets": "claim(0, b'[' * 500_000 + b']' * 500_000)",
    "brackets that stay open": "write(b'[' * (1 << 20) + b'\\n')",
    "empty dicts": "claim(0, many(b'{}', 1 << 20))",
    "texts": "claim(0, many(b'\"\"', 1 << 20))",
    "keys": "claim(0, b'{' + b','.join(b'\"%d\":0' % n for n in range(90_000)) + b'}')",
    "floats": "claim(0, many(b'1.1', 1 << 20))",
    "digits": "claim(0, many(b'9' * 4300, 1 << 20))",
    "a number for an index": "write(b'[' + b'9' * 5000 + b',\"ok\",0,\"\"]\\n')",
    "no numbers": "claim(0, many(b'NaN', 1 << 20))",
    "lone surrogates": "claim(0, many(b'\"\\\\ud800\"', 1 << 20))",
    "quotes and backslashes": "write((b'\\\\\"' * (1 << 19) + b'\\n') * 8)",
    "UTF-16": "write(b'\\x00[' * (1 << 19) + b'\\n')",
    "invalid UTF-8": "write(b'\\xff' * (8 << 20) + b'\\n')",
    "empty lines": "write(b'\\n' * (8 << 20))",
    "a line without end": "while True: write(b' ' * 65536)",
    "byte by byte": "while True: os.write(3, b'\\n')",
}
FUNCTIONS = {name: f"{FORGER}{attack}\ndef f(x): os._exit(0)\n" for name, attack in FORGED.items()} | {
    "deep, in earnest": "def f(x):\n    a = x\n    for _ in range(97): a = [a]\n    return [a] * 5200",
    "wide, in earnest": "def f(x): return [x] * 300_000",
}
SCRIPTS = {
    "1 MB of lines": "print('\\n' * 1_000_000)",
    "1 MB of words": "print('1 ' * 500_000)",
    "1 MB of invalid UTF-8": "import os\nos.write(1, b'\\xff' * 1_000_000)",
}


@contextmanager
def spinning(count):
    """So many other processes that want a core."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def opened():
    with Sandbox.open() as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    ("source", "tests", "neighbours"),
    [pytest.param(source, CALLS, 0, id=name) for name, source in FUNCTIONS.items()]
    + [pytest.param(source, LINES, 0, id=name) for name, source in SCRIPTS.items()]
    + [
        pytest.param(FUNCTIONS["deep, in earnest"], CALLS, 2, id="function, busy"),
        pytest.param(SCRIPTS["1 MB of lines"], LINES, 2, id="script, busy"),
    ],
)
def test_a_result_that_is_made_to_cost_is_wrong_and_bounded(opened, source, tests, neighbours):
    server = server_pid(opened)
    with spinning(neighbours), cost() as own:
        began = time.monotonic()
        verdict = judge_program(opened.run, source, tests, LIMITS)
        assert time.monotonic() - began < LIMITS.seconds + 5
    assert own.parses < OWN_PARSES
    assert (verdict.status, verdict.score) == ("wrong", 0.0)
    assert server_pid(opened) == server
    assert judge_program(opened.run, "def f(x): return x", CALLS, PATIENT).score == 1.0
