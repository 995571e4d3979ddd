"""Contest programs as people write them: the judge's verdict is that of plain CPython, at every tier."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from prorl.envs.sandbox.jobs import Limits
from prorl.envs.sandbox.sandbox import Policy, Sandbox
from prorl.envs.verifiers.programs import Tests as HiddenTests
from prorl.envs.verifiers.programs import judge_program, same_output, same_value
from support import plain_python
from support.programs import programs
from support.sandbox_tiers import TIERS

TOLERANCE = 1e-6
LIMITS = Limits(seconds=20, memory_bytes=1 << 30)
IMPATIENT = Limits(seconds=0.5)
TEXTS = programs("contest_idioms.txt")
FORBIDDEN = TEXTS["forbidden scripts"]  # right in plain Python alone, each with its row in docs/sandbox.md
TABLE = [
    pytest.param(source, entry, given, expected, not kind.startswith("wrong"), id=f"{kind} {name}")
    for kind, entry in (("scripts", None), ("wrong scripts", None), ("calls", "f"), ("wrong calls", "f"))
    for name, (source, given, expected) in TEXTS[kind].items()
]


def outcome_of(run, source, entry, given, expected, limits=LIMITS):
    """The verdict on a program that is given one test."""
    tests = HiddenTests(entry=entry, inputs=(given,), expected=(expected,), tolerance=TOLERANCE)
    return judge_program(run, source, tests, limits)


def spoiled(expected):
    """Another value of the same form, which the same program does not give."""
    match expected:
        case bool():
            return not expected
        case int() | float():
            return expected + 1
        case str():
            return f"x{expected}"
        case list():
            return [*expected[:-1], spoiled(expected[-1])]
        case dict():
            return {**expected, "another": 1}
    return 0


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """What plain CPython makes of every program of the tables: (output, errors)."""
    jobs = [param.values[:3] for param in TABLE]
    jobs += [(source, None, given) for source, given, *_ in FORBIDDEN.values()]
    done = subprocess.run(
        [sys.executable, "-E", plain_python.__file__, str(tmp_path_factory.mktemp("plain"))],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip([json.dumps(job) for job in jobs], json.loads(done.stdout), strict=True))


@pytest.fixture(scope="module", params=TIERS)
def run(request):
    """A sandbox that runs each program once."""
    done = {}

    with Sandbox.open(Policy(tier=request.param)) as sandbox:

        def once(job):
            key = (job.source, json.dumps(job.inputs))
            done[key] = done.get(key) or sandbox.run(job)
            return done[key]

        yield once


def is_right_in_plain_python(plain, source, entry, given, expected):
    output, errors = plain[json.dumps((source, entry, given))]
    if "Error" in errors:  # not the exit status: graders ignore it
        return False
    if entry is None:
        return same_output(output, expected, TOLERANCE)
    return bool(output) and same_value(json.loads(output), expected, TOLERANCE)


@pytest.mark.parametrize(("source", "entry", "given", "expected", "right"), TABLE)
def test_the_judge_agrees_with_plain_python(plain, run, source, entry, given, expected, right):
    assert is_right_in_plain_python(plain, source, entry, given, expected) is right
    verdict = outcome_of(run, source, entry, given, expected)
    assert verdict.status == ("ok" if right else "wrong"), verdict
    if right:
        assert outcome_of(run, source, entry, given, spoiled(expected)).score == 0


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_is_forbidden_on_purpose_is_wrong_and_is_documented(plain, run, name):
    source, given, expected, documented = FORBIDDEN[name]
    assert is_right_in_plain_python(plain, source, None, given, expected)
    assert outcome_of(run, source, None, given, expected, IMPATIENT).status == "wrong"
    page = (Path(__file__).parents[3] / "docs" / "sandbox.md").read_text()
    assert documented in page


def test_the_table_is_large():
    assert len(TABLE) >= 80


def test_a_script_may_leave_out_the_imports_that_graders_prepend(run):
    assert (
        outcome_of(run, "print(gcd(4, 6), math.pi > 3, Counter('a')['a'])", None, "", "2 True 1").score == 1
    )
    assert outcome_of(run, "print(stdin.read(), file=stdout)", None, "5", "5").score == 1


def test_names_of_the_prelude_are_hidden_by_a_programs_own(run):
    source = "count = 5\ndef f(e):\n    global count\n    count += e\n    return [count, 'gcd' in globals()]"
    assert outcome_of(run, source, "f", [1], [6, False]).score == 1
