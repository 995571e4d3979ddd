"""What of a row only the sandbox may open, and the programs of ours that open it there.

LiveCodeBench packs its private tests as a pickle; HumanEval+ has tests that are code.
"""

from typing import Any

from prorl.envs.datasets.catalogue import DataError, Drop
from prorl.envs.sandbox.jobs import Job, Limits
from prorl.envs.verifiers.programs import Runner

OPENING = Limits(seconds=30.0, memory_bytes=2 << 30, output_bytes=8 << 20)

# the private tests of a LiveCodeBench row as `[{input, output}, …]`
PACKED = """
import base64, itertools, json, pickle, zlib

def opened(packed, max_tests, max_test_chars, max_total_chars):
    tests = pickle.loads(zlib.decompress(base64.b64decode(packed)))
    if isinstance(tests, (str, bytes)):
        tests = json.loads(tests)
    tests = [{"input": test["input"], "output": test["output"]} for test in tests]
    tests = [test for test in tests if len(json.dumps(test)) <= max_test_chars]
    count = min(len(tests), max_tests)
    spread = [tests[position * len(tests) // count] for position in range(count)]
    totals = itertools.accumulate(len(json.dumps(test)) for test in spread)
    return [test for test, total in zip(spread, totals) if total <= max_total_chars]
"""
# the test of a HumanEval+ row as `[[arguments, what the solution returns, expected, tolerance], …]`
ASSERTS = """
import copy, sys, types

def opened(solution, test, entry):
    # The tests compare with numpy where they compare floats at all; here the comparison is only noted.
    sys.modules.setdefault("numpy", types.ModuleType("numpy"))
    program = {"__name__": "solution"}
    exec(solution, program)
    candidate = program[entry]
    calls, compared = [], []

    def noted_call(*arguments):
        if has_other_keys(arguments):
            raise ValueError("keys that JSON would make text")
        calls.append(copy.deepcopy(arguments))
        return candidate(*arguments)

    def noted_comparison(out, expected, tolerance):
        compared.append(copy.deepcopy((out, expected, tolerance)))

    tests = {"__name__": "test"}
    exec(test, tests)
    if "assertion" not in tests:
        raise ValueError("no comparison to note")
    tests["assertion"] = noted_comparison
    tests["check"](noted_call)
    if not compared or len(compared) != len(calls):
        raise ValueError("a test that is no comparison of one output")
    return [[list(given), *rest] for given, rest in zip(calls, compared)]

def has_other_keys(value):
    if isinstance(value, dict):
        return any(not isinstance(key, str) or has_other_keys(value[key]) for key in value)
    return isinstance(value, (list, tuple)) and any(map(has_other_keys, value))
"""


def opened(run: Runner, source: str, arguments: list[Any]) -> Any:
    """What `opened(*arguments)` of a trusted program returns, inside the sandbox.

    A failure on this row drops it; one of the sandbox itself would drop all rows, so it is a `DataError`.
    """
    (result,) = run(Job(source=source, entry="opened", inputs=(arguments,), limits=OPENING))
    if result.status == "sandbox_error":
        raise DataError(f"the sandbox that opens packed tests failed ({result.note}): see `prorl doctor`")
    if result.status != "ok" or not isinstance(result.value, list):
        raise Drop("tests that cannot be opened")
    return result.value
