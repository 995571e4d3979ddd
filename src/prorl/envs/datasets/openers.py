"""Programs of ours that run inside the sandbox, since what they open or execute comes from a data set.

Invariant: they return plain data within the caps they are given. What a hostile row makes of them stays in the
sandbox, and its result is only ever compared with what a model's program does.
"""

OPEN_PACKED = """
import base64, json, pickle, zlib

def opened(packed, max_tests, max_test_chars, max_total_chars):
    tests = pickle.loads(zlib.decompress(base64.b64decode(packed)))
    if isinstance(tests, (str, bytes)):
        tests = json.loads(tests)
    tests = [{"input": test["input"], "output": test["output"]} for test in tests]
    tests = [test for test in tests if len(json.dumps(test)) <= max_test_chars]
    count = min(len(tests), max_tests)
    kept, room = [], max_total_chars
    for test in (tests[position * len(tests) // count] for position in range(count)):
        room -= len(json.dumps(test))
        if room < 0:
            break
        kept.append(test)
    return kept
"""
"""`opened(packed, …)`: the private tests of a LiveCodeBench row as `[{input, output}, …]`."""

OPEN_ASSERTS = """
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
        if not (out == expected or close(out, expected, tolerance or 1e-6)):
            raise ValueError("the solution fails its own test")
        compared.append((expected, tolerance))

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

def close(out, expected, tolerance):
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(out, (list, tuple))
            and len(out) == len(expected)
            and all(close(*pair, tolerance) for pair in zip(out, expected))
        )
    numbers = (int, float)
    return (
        isinstance(out, numbers)
        and isinstance(expected, numbers)
        and abs(out - expected) <= tolerance * max(1.0, abs(expected))
    )
"""
"""`opened(solution, test, entry)`: the test of a HumanEval+ row as `[[arguments, expected, tolerance], …]`."""
