"""How commands end when the system refuses something or nobody reads any more."""

import errno
import os
import pty
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from prorl.cli.main import _train, app
from prorl.envs.errors import ProrlError

WRITER = """
import time
from prorl.cli.outcome import outlive_readers, say
outlive_readers()
print("first", flush=True)
input()
for _ in range(3):
    print("x" * 100_000, flush=True)
    say("y" * 100_000)
print("still in a buffer")
raise SystemExit(7)
"""


def ran(code, *arguments, **streams):
    """Python code run to its end in a process of its own."""
    return subprocess.run([sys.executable, "-c", code, *arguments], check=False, **streams)


@pytest.mark.parametrize("make", [pty.openpty, os.pipe])
def test_output_that_nobody_reads_any_more_ends_no_command(make):
    reading, writing = make()
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=writing, stderr=writing
    )
    os.close(writing)
    assert os.read(reading, 100).startswith(b"first")
    os.close(reading)
    process.communicate(b"\n", timeout=120)
    assert process.returncode == 7


def test_how_processes_end_is_seen_although_whoever_began_the_command_ignores_its_children():
    """Else a trainer that crashed was done, and a sandbox was waited for without end."""
    code = """
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from prorl.cli import main
sys.argv = ["prorl", "--version"]
try:
    main()
except SystemExit:
    sys.exit(subprocess.run(["sh", "-c", "exit 7"]).returncode)
"""
    assert ran(code).returncode == 7


def test_a_setting_given_as_an_option_is_told_how_it_is_said():
    found = CliRunner().invoke(app, ["train", "nano", "--steps", "5"])
    assert found.exit_code == 2
    assert "[KEY=VALUE]..." in found.output


def test_output_that_a_full_disk_cannot_take_is_missed_and_ends_no_command():
    with open("/dev/full", "w") as full:
        assert ran(WRITER.replace("input()", ""), stdout=full, stderr=full).returncode == 7


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_tables_that_a_full_disk_cannot_take_are_a_failure(how):
    command = "from prorl.cli import main; main()"
    with open("/dev/full", "w") as full:
        done = ran(command, "tasks", "list", *how, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("number", "begun", "lasts"),
    [
        (errno.EROFS, False, True),
        (errno.EACCES, False, True),
        (errno.ENOENT, False, True),
        (errno.EIO, False, False),
        (errno.ENOENT, True, False),
    ],
)
def test_what_a_restart_would_meet_again_is_a_failure_and_no_crash(tmp_path, number, begun, lasts):
    def trainer(console, interrupt):
        interrupt.begun = begun
        raise OSError(number, os.strerror(number), "journal.jsonl")

    with pytest.raises(ProrlError if lasts else OSError, match=os.strerror(number)):
        _train(tmp_path, trainer)


@pytest.mark.parametrize(
    ("encoding", "said", "shown"),
    [
        ("ascii", "→", "?"),
        (
            "utf-8:surrogateescape",
            "new verifier \ud83d",
            "new verifier ?",
        ),  # as of locales that are not installed
    ],
)
def test_what_a_terminal_cannot_write_ends_no_command_and_colons_make_no_pictures(encoding, said, shown):
    begin = "from prorl.cli.outcome import outlive_readers, say; outlive_readers()"
    done = ran(
        f"{begin}; print({said!a}); say('FILE.py:X: no')",
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": encoding},
    )
    assert (done.stdout, done.stderr) == (f"{shown}\n".encode(), b"prorl: FILE.py:X: no\n")
