"""Servers die and are replaced; nothing outlives the process that opened the sandbox."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from prorl.envs.sandbox.jobs import Job, Limits
from prorl.envs.sandbox.sandbox import Policy, Sandbox
from prorl.envs.verifiers.programs import Tests as HiddenTests
from prorl.envs.verifiers.programs import judge_program
from support.processes import descendants, eventually, state
from support.sandbox_tiers import TIERS, server_pid

SUM = Job(source="print(1 + 1)", inputs=("",))
OPENER = """
import sys
from prorl.envs.sandbox.sandbox import *
from prorl.envs.sandbox.jobs import *
sandbox = Sandbox.open(Policy(tier=sys.argv[1]))
print("open", flush=True)
sandbox.run(Job(source="while True: pass", inputs=("",), limits=Limits(seconds=600)))
"""


def gone(pids):
    return all(state(pid) in ("", "Z", "X") for pid in pids)


def kill(pid):
    """Kill a server, or what contains one, and wait for all inside: they outlive it for a moment."""
    everybody = {pid} | descendants(pid)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: gone(everybody))


@pytest.fixture(params=TIERS)
def tier(request):
    return request.param


def test_a_killed_server_is_replaced_and_the_job_runs(tier):
    with Sandbox.open(Policy(tier=tier)) as sandbox:
        before = server_pid(sandbox)
        kill(before)
        assert [result.value for result in sandbox.run(SUM)] == ["2\n"]
        assert server_pid(sandbox) != before


def test_after_an_interrupt_a_program_gets_its_own_result(tier):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Sandbox.open(Policy(tier=tier)) as sandbox:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                sandbox.run(Job(source="import time; time.sleep(0.4); print('old')", inputs=("",)))
            time.sleep(0.4)
            assert [result.value for result in sandbox.run(SUM)] == ["2\n"]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_server_that_cannot_be_replaced_is_a_sandbox_error(tier, monkeypatch):
    with Sandbox.open(Policy(tier=tier)) as sandbox:
        kill(server_pid(sandbox))
        monkeypatch.setattr("prorl.envs.sandbox.sandbox.command", lambda tier, **_: ["/nonexistent/python"])
        (result,) = sandbox.run(SUM)
        assert result.status == "sandbox_error"
        assert "/nonexistent/python" in result.note
        monkeypatch.undo()
        assert [result.status for result in sandbox.run(SUM)] == ["ok"]


def test_a_server_that_hangs_is_replaced(monkeypatch):
    with Sandbox.open(Policy(tier="B")) as sandbox:
        os.kill(server_pid(sandbox), signal.SIGSTOP)
        monkeypatch.setattr("prorl.envs.sandbox.link.GRACE_SECONDS", 0.5)
        job = Job(source="print(2)", inputs=("",), limits=Limits(seconds=1.0))
        assert [result.value for result in sandbox.run(job)] == ["2\n"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize(("kills", "status"), [(1, "ok"), (2, "error")])
def test_a_program_killed_from_outside_runs_once_more_and_is_never_wrong(tier, number, kills, status):
    tests = HiddenTests(entry=None, inputs=("",), expected=("2",))
    with Sandbox.open(Policy(tier=tier)) as sandbox:
        server, deadline = server_pid(sandbox), time.monotonic() + 20
        servers = descendants(server)

        def kill_programs():
            killed = set()
            while len(killed) < kills and time.monotonic() < deadline:
                for pid in descendants(server) - servers - killed:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
                        killed.add(pid)

        killer = threading.Thread(target=kill_programs)
        killer.start()
        source = f"import time\ntime.sleep({0.5 if kills == 1 else 30})\nprint(2)"
        verdict = judge_program(sandbox.run, source, tests, Limits(seconds=40.0))
        killer.join()
    assert verdict.status == status
    assert kills == 1 or "killed from outside" in verdict.note


def test_time_in_which_sandbox_and_program_are_stopped_does_not_count(tier):
    """The limit is less than they are stopped for, and the program needs a little on either side."""
    with Sandbox.open(Policy(tier=tier)) as sandbox:
        server = server_pid(sandbox)
        servers = {server, *descendants(server)}

        def freeze():
            eventually(lambda: descendants(server) - servers)
            everybody = servers | descendants(server)
            for number, rest in ((signal.SIGSTOP, 1.5), (signal.SIGCONT, 0.0)):
                for pid in everybody:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(rest)

        freezer = threading.Thread(target=freeze)
        freezer.start()
        source = "import time\nfor _ in range(10):\n    time.sleep(0.02)\nprint(2)"
        (result,) = sandbox.run(Job(source=source, inputs=("",), limits=Limits(seconds=1.2)))
        freezer.join()
    assert (result.status, result.value) == ("ok", "2\n")


def test_closing_ends_every_process(tier):
    others = descendants(os.getpid())
    sandbox = Sandbox.open(Policy(tier=tier))
    mine = descendants(os.getpid()) - others
    assert mine
    sandbox.close()
    sandbox.close()
    eventually(lambda: not descendants(os.getpid()) & mine)


def test_everything_dies_with_a_parent_that_is_killed(tier):
    opener = subprocess.Popen(
        [sys.executable, "-c", OPENER, tier], stdout=subprocess.PIPE, env={"PYTHONPATH": ":".join(sys.path)}
    )
    with opener:
        assert opener.stdout.readline() == b"open\n"
        eventually(lambda: len(descendants(opener.pid)) >= 2)  # the server and the program
        everybody = descendants(opener.pid)
        opener.kill()
    eventually(lambda: gone(everybody))
