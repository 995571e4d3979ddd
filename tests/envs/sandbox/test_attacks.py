"""Programs that attack: each is contained, by what can be seen from outside, and the next program is served."""

import json
import os
import re
import site
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

import prorl
from prorl.envs.sandbox.jobs import Job, Limits
from prorl.envs.sandbox.sandbox import Policy, Sandbox
from support.arena import Arena, descendants
from support.attacks import MATRIX, PRELUDE
from support.attacks_further import FURTHER
from support.exhaustion import EXHAUSTION
from support.normal_user import run_as_normal_user
from support.sandbox_tiers import TIERS

ATTACKS = MATRIX | FURTHER
QUICK = Limits(seconds=0.2, memory_bytes=256 << 20, output_bytes=1 << 20)
PATIENT = replace(QUICK, seconds=30)  # for what ends earlier, however busy the machine is
ENOUGH = Limits(seconds=10.0, memory_bytes=256 << 20, output_bytes=1 << 20)
PATIENCE = 5.0  # seconds beyond the limit, on a busy machine
FOREIGN_CALLS = ("32-bit calls", "x32 calls")
HARMLESS_ALONE = (
    "files of others",
    "environment",
    "program in memory",
    "pipes of the kernel",
    "raw machine code",
)


@pytest.fixture(scope="module")
def arena():
    built = Arena()
    yield built
    built.close()


@pytest.fixture(scope="module", params=TIERS)
def sandbox(request, arena):
    """Opened when the arena stands: what it inherits of it, it must not pass on."""
    with Sandbox.open(Policy(tier=request.param)) as opened:
        yield opened


def run(sandbox, arena, source, limits=ENOUGH):
    """The result of a script that attacks; fails if it left a trace outside or broke the sandbox."""
    processes, server = descendants(), sandbox.server_pid
    began = time.monotonic()
    (result,) = sandbox.run(Job(source=source, inputs=(json.dumps(arena.facts()),), limits=limits))
    assert time.monotonic() - began < limits.seconds + PATIENCE
    assert arena.damage() == []
    assert descendants() == processes
    assert result.status != "sandbox_error", result.note
    assert arena.secret not in f"{result.value}{result.note}"
    (healthy,) = sandbox.run(Job(source="print(6 * 7)", inputs=("",)))
    assert healthy.value == "42\n"
    assert sandbox.server_pid == server
    return result


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in FOREIGN_CALLS])
def test_an_attack_is_refused(sandbox, arena, name):
    result = run(sandbox, arena, PRELUDE + textwrap.dedent(ATTACKS[name]))
    assert result.status == "ok", result
    assert "BREACH" not in result.value


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other processors have one table of system calls")
@pytest.mark.parametrize("name", FOREIGN_CALLS)
def test_a_call_by_another_table_is_the_end(sandbox, arena, name):
    result = run(sandbox, arena, PRELUDE + textwrap.dedent(ATTACKS[name]))
    assert result.status == "runtime_error"
    assert "killed by signal" in result.note


@pytest.mark.parametrize("name", EXHAUSTION)
def test_a_program_that_uses_up_everything_is_ended(sandbox, arena, name):
    source, statuses = EXHAUSTION[name]
    limits = QUICK if "time" in statuses else PATIENT
    assert run(sandbox, arena, source, limits).status in statuses


def test_nothing_is_left_for_the_next_program(sandbox, arena):
    litter = """
        import builtins, json, math, random, sys
        builtins.litter = math.litter = json.litter = sys.litter = 1
        sys.path.append("/litter"); sys.modules["litter"] = math; os.environ["litter"] = "1"
        json.loads = json.dumps = os.write = builtins.print = builtins.compile = None
        random.seed(5); os.umask(0o123)
    """
    look = """
        import builtins, math, random
        print([hasattr(place, "litter") for place in (builtins, math, json, sys)], "/litter" in sys.path,
              "litter" in sys.modules, dict(os.environ), os.umask(0) == 0o123, random.random())
    """
    before = run(sandbox, arena, PRELUDE + textwrap.dedent(look))
    run(sandbox, arena, PRELUDE + textwrap.dedent(litter))
    assert run(sandbox, arena, PRELUDE + textwrap.dedent(look)) == before
    assert before.value.startswith("[False, False, False, False] False False {} False")


@pytest.mark.parametrize("name", HARMLESS_ALONE)
def test_the_same_attack_works_without_a_sandbox(name):
    """The attacks are real: what is refused above is not a mistake in the program that tries it."""
    arena = Arena()
    try:
        bare = subprocess.run(
            [sys.executable, "-I", "-S", "-c", PRELUDE + textwrap.dedent(ATTACKS[name])],
            input=json.dumps({**arena.facts(), "home": str(arena.folder)}),
            capture_output=True,
            text=True,
            cwd=arena.folder,
        )
        assert "BREACH" in bare.stdout
    finally:
        arena.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests already run as a normal user")
def test_all_of_this_holds_for_a_normal_user():
    packages = [str(Path(prorl.__path__[0]).parent), *site.getsitepackages()]
    root = Path(__file__).parents[3]
    try:
        trial = run_as_normal_user(["-c", "import pytest, hypothesis, prorl"], root, packages)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"cannot become a normal user here: {error}")
    if trial.returncode:
        pytest.skip(f"a normal user cannot read this project: {trial.stderr[-200:]}")
    options = ["-p", "no:cacheprovider", "-k", "not without_a_sandbox"]
    again = run_as_normal_user(["-m", "pytest", *options, str(Path(__file__))], root, packages)
    assert again.returncode == 0, again.stdout[-8000:]
    passed = re.search(r"(\d+) passed", again.stdout)
    assert passed
    assert int(passed[1]) >= len(ATTACKS) + len(EXHAUSTION)
