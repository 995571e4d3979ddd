"""Programs that try to be scored for what they did not compute: worth nothing, and no excuse either."""

import pytest

from prorl.envs.sandbox.jobs import Limits
from prorl.envs.verifiers.programs import Tests as HiddenTests
from prorl.envs.verifiers.programs import judge_program
from support.programs import programs

LIMITS = Limits(seconds=1.0, memory_bytes=256 << 20, output_bytes=1 << 18)
PATIENT = Limits(seconds=10.0)
TEXTS = programs("cheats.txt")
SCRIPTS = {name: source for name, (source,) in TEXTS["scripts"].items()}
ALWAYS = {
    base: TEXTS["always equal"]["class"][0].format(base=base)
    for base in ("int", "list", "str", "dict", "float", "object")
}
FUNCTIONS = {
    **{name: source for name, (source,) in TEXTS["functions"].items()},
    **{f"{base} that equals everything": source for base, source in ALWAYS.items()},
    "object that claims a class": f"{ALWAYS['object']}Always.__class__ = property(lambda self: list)",
    "list of what equals everything": f"{ALWAYS['int']}def f(x): return [Always(), Always()]",
}
INPUTS = range(20, 26)
FUNCTION_TESTS = HiddenTests(
    entry="f", inputs=tuple([x] for x in INPUTS), expected=tuple([2 * x + 1, x] for x in INPUTS)
)
SCRIPT_TESTS = HiddenTests(
    entry=None, inputs=tuple(f"{x}\n" for x in INPUTS), expected=tuple(f"{100000 * x}\n" for x in INPUTS)
)
NEARLY = HiddenTests(entry=None, inputs=SCRIPT_TESTS.inputs, expected=SCRIPT_TESTS.expected, tolerance=1e-9)


@pytest.mark.parametrize(
    ("source", "tests"),
    [pytest.param(source, FUNCTION_TESTS, id=name) for name, source in FUNCTIONS.items()]
    + [pytest.param(source, SCRIPT_TESTS, id=f"{name}, exact") for name, source in SCRIPTS.items()]
    + [pytest.param(source, NEARLY, id=f"{name}, tolerant") for name, source in SCRIPTS.items()],
)
def test_a_program_that_cheats_is_worth_nothing(sandbox, source, tests):
    verdict = judge_program(sandbox.run, source, tests, LIMITS)
    assert (verdict.score, verdict.status) == (0.0, "wrong"), verdict


@pytest.mark.parametrize(
    ("source", "tests"),
    [
        ("def f(x): return [2 * x + 1, x]", FUNCTION_TESTS),
        ("def f(x): return (2 * x + 1, x)", FUNCTION_TESTS),
        ("class Solution:\n    def f(self, x): return [2 * x + 1, x]", FUNCTION_TESTS),
        ("import sys\ndef f(x):\n    print('noise')\n    return [2 * x + 1, x]", FUNCTION_TESTS),
        ("print(100000 * int(input()))", SCRIPT_TESTS),
        ("import sys\nprint(int(sys.stdin.read()) * 10 ** 5, '\\n')", SCRIPT_TESTS),
    ],
)
def test_an_honest_program_is_worth_everything(sandbox, source, tests):
    verdict = judge_program(sandbox.run, source, tests, PATIENT)
    assert (verdict.score, verdict.status) == (1.0, "ok"), verdict


def test_a_program_that_is_right_on_half_of_the_tests_is_worth_half(sandbox):
    half = "def f(x): return [2 * x + 1, x] if x % 2 else 1 / 0"
    assert judge_program(sandbox.run, half, FUNCTION_TESTS, PATIENT).score == 0.5
    dies = "import os\ndef f(x):\n    if x == 23: os._exit(0)\n    return [2 * x + 1, x]"
    verdict = judge_program(sandbox.run, dies, FUNCTION_TESTS, PATIENT)
    assert (verdict.score, verdict.status) == (0.5, "wrong")
