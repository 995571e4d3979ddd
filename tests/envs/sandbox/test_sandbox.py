"""What callers rely on: one result per input whatever the program does, by status, within the limits."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prorl.envs.sandbox.jobs import Job, Limits, Reply
from prorl.envs.sandbox.link import SandboxError, find_numpy
from prorl.envs.sandbox.sandbox import Policy, Sandbox, probe

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def call(sandbox, source, *inputs, **limits):
    job = Job(source=source, entry="f", inputs=inputs, limits=Limits(**limits))
    return [(result.status, result.value) for result in sandbox.run(job)]


def script(sandbox, source, *inputs, **limits):
    job = Job(source=source, inputs=inputs or ("",), limits=Limits(**limits))
    return [(result.status, result.value) for result in sandbox.run(job)]


LEAKS = "import builtins\nseen = getattr(builtins, 'seen', 0)\nbuiltins.seen = 1\nprint(seen, input())"


@pytest.mark.parametrize(
    ("source", "inputs", "outputs"),
    [
        (LEAKS, ["a", "b\n"], ["0 a\n", "0 b\n"]),  # two runs of a script share nothing
        (
            "import sys\nif __name__ == '__main__': print(len(sys.stdin.buffer.read()), sys.argv)",
            ["é" * 200_000],
            ["400000 ['program.py']\n"],
        ),
        ("print(__builtins__.sum([1, 2]))", [""], ["3\n"]),
        ("import atexit\natexit.register(lambda: print('late'))\nimport sys; sys.exit(3)", [""], ["late\n"]),
        (
            "import difflib, argparse, xml.dom, zoneinfo\nprint(difflib.SequenceMatcher(None, 'ab', 'ab').ratio())",
            [""],
            ["1.0\n"],
        ),
    ],
)
def test_a_script_is_the_main_module_of_an_interpreter_of_its_own(sandbox, source, inputs, outputs):
    assert script(sandbox, source, *inputs) == [("ok", output) for output in outputs]


@pytest.mark.parametrize(
    ("source", "inputs", "results"),
    [
        ("def f(a, b=1): return a * b", [[2, 3], ["x", 2], [5]], [("ok", 6), ("ok", "xx"), ("ok", 5)]),
        ("class Solution:\n    def f(self, x): return [x, (x, None)]", [[1]], [("ok", [1, [1, None]])]),
        (
            "import os\ndef f():\n    print('noise' * 10000)\n    os.write(1, b'x')\n    return 7",
            [[]],
            [("ok", 7)],
        ),
        (
            "def f(x):\n    return 6 // x if x else bytearray(10**10)",
            [[2], ["a"], [0], [3]],
            [("ok", 3), ("runtime_error", None), ("memory", None), ("ok", 2)],
        ),
        (
            "import os\ndef f(x):\n    if x == 2: os._exit(0)\n    return x",
            [[1], [2], [3]],
            [("ok", 1), ("runtime_error", None), ("runtime_error", None)],
        ),
        ("def g(): pass", [[], []], [("runtime_error", None)] * 2),
        # results before a hang are kept, and one that is too long costs its input only
        (
            "def f(x):\n    while x == 2: pass\n    return x",
            [[1], [2], [3]],
            [("ok", 1), *[("time", None)] * 2],
        ),
        ("def f(n): return 'x' * n", [[20_000], [3]], [("output", None), ("ok", "xxx")]),
    ],
)
def test_a_function_is_called_once_per_input_and_one_failure_leaves_the_others(
    sandbox, source, inputs, results
):
    assert call(sandbox, source, *inputs, seconds=0.5, output_bytes=10_000) == results


@given(value=PLAIN)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_plain_data_survives_the_way_in_and_out(sandbox, value):
    assert call(sandbox, "def f(x): return x", [value]) == [("ok", value)]


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("x = (", "compile_error"),
        ("(" * 5000, "compile_error"),
        ("1 / 0", "runtime_error"),
        ("import posix; posix._exit(0)", "runtime_error"),
        (
            "import os\nfor n in range(64):\n    try: os.close(n)\n    except OSError: pass\nwhile True: pass",
            "time",
        ),
    ],
)
def test_other_failures_of_a_script_than_by_exhaustion_have_their_status(sandbox, source, status):
    assert script(sandbox, source, seconds=0.5) == [(status, None)]


def test_the_budget_is_shared_by_all_inputs_of_a_script(sandbox):
    started = time.monotonic()
    results = script(sandbox, "import time; time.sleep(float(input()))", "0", "9", "0", "0", seconds=0.6)
    assert [status for status, _ in results] == ["ok", "time", "time", "time"]
    assert time.monotonic() - started < 5


class Starving:
    """A server that ends a child before it begins, where it was given less than the seconds `enough`."""

    def __init__(self, enough):
        self.enough = enough

    def request(self, program, stdin, limits, **_):
        ran = limits.seconds >= self.enough
        report, cause = (b'.[0,"ok",null,""]\n', "exit") if ran else (b"", "time")
        ended = {"signal": 0, "cpu_seconds": 0.0, "peak_bytes": 0, "seconds": 0.9}
        return Reply(report=report, output=b"x", cause=cause, **ended)

    def close(self):
        pass


@pytest.mark.parametrize(("enough", "statuses"), [(1.0, ["ok", "time"]), (2.0, ["sandbox_error", "time"])])
def test_a_script_cannot_use_up_its_time_to_look_like_a_failure_of_the_sandbox(enough, statuses):
    starved = Sandbox("B")
    starved._links[False] = Starving(enough)
    assert [status for status, _ in script(starved, "", "", "", seconds=1.0)] == statuses


NUMPY = """
import sys, numpy as np
a = np.array(sys.stdin.read().split(), dtype=np.int64)
print(a.sum(), np.linalg.det(np.eye(2)), len(np.fft.fft(a)), np.random.randint(10**6), np.sort(a)[::-1])
"""


@pytest.mark.skipif(find_numpy() is None, reason="numpy is not installed")
def test_numpy_is_there_where_it_is_installed_and_brings_no_other_package(sandbox):
    assert script(sandbox, NUMPY, "3 1 2") == [("ok", "6 1.0 3 985772 [3 2 1]\n")]
    source = "import numpy\ndef f(x): return [numpy.float64(x) / 2, numpy.int64(x), numpy.bool_(x == 3)]"
    assert call(sandbox, source, [3]) == [("ok", [1.5, 3, 1.0])]
    source = "import numpy, sys\nprint([p for p in sys.path if 'packages' in p])\nimport pytest"
    assert script(sandbox, source) == [("runtime_error", None)]
    folder = find_numpy()
    for path in ("/packages/numpy", folder, f"{folder}/numpy"):
        source = f"import os, numpy\nprint(os.listdir('{path}'))"
        assert script(sandbox, source) == [("runtime_error", None)]


@pytest.mark.parametrize("found", [None, Path("/nonexistent")])
def test_where_numpy_is_missing_its_import_fails_as_in_plain_python(monkeypatch, found):
    monkeypatch.setattr("prorl.envs.sandbox.sandbox.find_numpy", lambda: found)
    with Sandbox.open(Policy(tier="B")) as opened:
        source = "try:\n    import numpy\nexcept ModuleNotFoundError as error:\n    print(error)"
        assert script(opened, source) == [("ok", "No module named 'numpy'\n")]


def test_a_program_that_does_not_name_numpy_does_not_pay_for_it(monkeypatch):
    with Sandbox.open(Policy(tier="B")) as opened:
        monkeypatch.setattr("prorl.envs.sandbox.sandbox.command", lambda tier, **_: ["/nonexistent/python"])
        assert script(opened, "import sys\nprint('num' + 'py' in sys.modules)") == [("ok", "False\n")]
        assert script(opened, "print('no numpy needed')") == [("sandbox_error", None)], (
            "a server that did not start"
        )
        monkeypatch.undo()
        assert script(opened, "print('numpy needed')") == [("ok", "numpy needed\n")], (
            "an outage is over when it is over"
        )


def test_hashes_and_random_numbers_are_the_same_in_every_server():
    source = "import random\ndef f(): return [list({'a', 'b', 'c', 'd', 'e'}), random.random(), hash('x')]"
    seen = []
    for _ in range(2):
        with Sandbox.open(Policy(tier="B")) as opened:
            seen += call(opened, source, []) + call(opened, source, [])
    assert all(result == seen[0] for result in seen)
    assert seen[0][0] == "ok"


def test_a_program_sees_neither_our_environment_nor_our_modules_and_is_not_root(sandbox, monkeypatch):
    monkeypatch.setenv("PRORL_TEST_SECRET", "s3cret")
    names = "[name for name in sys.modules if name.startswith('prorl')]"
    source = f"import os, sys\ndef f(): return [dict(os.environ), {names}, os.getuid() == 0]"
    assert call(sandbox, source, []) == [("ok", [{}, [], False])]


def test_a_program_may_have_the_stack_that_it_asks_for(sandbox):
    source = (
        "import resource\nno_limit = resource.RLIM_INFINITY\n"
        "resource.setrlimit(resource.RLIMIT_STACK, (no_limit, no_limit))\n"
        "print(resource.getrlimit(resource.RLIMIT_STACK) == (no_limit, no_limit), resource.getrlimit(0)[0] > 0)"
    )
    assert script(sandbox, source) == [("ok", "True True\n")]


def test_no_flag_of_a_stream_is_left_for_the_next_program(sandbox):
    flags = "fcntl.fcntl(n, fcntl.F_GETFL) for n in range(4)"
    look = f"import fcntl\ndef f(): return [{flags}]"
    before = call(sandbox, look, [])
    leave = (
        "import fcntl, os\ndef f(): return [fcntl.fcntl(n, fcntl.F_SETFL, os.O_NONBLOCK) for n in range(4)]"
    )
    assert call(sandbox, leave, []) == [("ok", [0, 0, 0, 0])]
    assert call(sandbox, look, []) == before


def test_outputs_of_a_script_share_a_bound(sandbox, monkeypatch):
    monkeypatch.setattr("prorl.envs.sandbox.sandbox.MAX_RESULT_BYTES", 25)
    assert script(sandbox, "print('x' * 9)", "1", "2", "3") == [
        ("ok", "x" * 9 + "\n"),
        ("ok", "x" * 9 + "\n"),
        ("output", None),
    ]


def test_inputs_of_the_wrong_kind_are_the_callers_mistake(sandbox):
    assert sandbox.run(Job(source="", entry="f", inputs=())) == sandbox.run(Job(source="", inputs=())) == ()
    for entry, argument, sentence in (
        ("f", "text", "positional arguments"),
        (None, [1], "standard input"),
        ("f", [{1, 2}], "plain data"),
        ("f", [{1: 2}], "key of type int"),  # JSON would turn it into text
    ):
        with pytest.raises(SandboxError, match=sentence):
            sandbox.run(Job(source="", entry=entry, inputs=(argument,)))


def test_tier_c_must_be_asked_for_and_says_what_it_lacks():
    with pytest.raises(SandboxError, match=r"sandbox\.unsafe=true"):
        Sandbox.open(Policy(tier="C"))
    with Sandbox.open(Policy(tier="C", unsafe=True)) as opened:
        assert "network" in opened.warning
        assert script(opened, "print(input())", "x") == [("ok", "x\n")]


def test_a_wall_that_does_not_stand_falls_to_tier_b(monkeypatch, tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr("prorl.envs.sandbox.link.find_bubblewrap", lambda: str(broken))
    with Sandbox.open() as opened:
        assert opened.tier == "B"
    with pytest.raises(SandboxError, match=r"No permissions.*apt-get install"):
        Sandbox.open(Policy(tier="A"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to give up")
def test_root_becomes_nobody(sandbox):
    assert script(sandbox, "import os; print(os.getresuid(), os.getgroups())") == [
        ("ok", "(65534, 65534, 65534) []\n")
    ]


def test_the_best_tier_is_opened_and_reported(sandbox):
    with Sandbox.open() as opened:
        assert opened.tier == probe()[1] <= sandbox.tier
        assert opened.warning == ""


def test_a_machine_without_a_wall_falls_to_tier_b_and_what_is_missing_has_a_cost(monkeypatch):
    monkeypatch.setattr("prorl.envs.sandbox.link.find_bubblewrap", lambda: None)
    pieces, tier = probe()
    with Sandbox.open() as opened:
        assert opened.tier == tier == "B"
    findings = {finding.name: finding for finding in pieces}
    assert not findings["bubblewrap"].works
    assert "apt-get install bubblewrap" in findings["bubblewrap"].cost
    assert all(bool(finding.cost) != finding.works for finding in pieces)


BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "sandbox.py"


@pytest.mark.parametrize("kind", ["script", "call"])
def test_it_compares_every_tier_with_a_bare_interpreter(kind):
    sizes = ["--programs", "2", "--repeats", "1", "--workers", "1", "--kind", kind]
    done = subprocess.run([sys.executable, BENCHMARK, *sizes], capture_output=True, text=True, check=True)
    assert "tier B" in done.stdout
    assert "× bare" in done.stdout
    assert "tier C" in done.stdout
