"""Commands run in this process, and what can be said about how they ended."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from prorl.cli import app


def prorl(*arguments: object) -> Result:
    """A command run in this process: without a supervisor, which would start another one."""
    plainly = ["--no-supervise"] if arguments[0] in ("train", "resume") else []
    return CliRunner().invoke(app, [*map(str, arguments), *plainly])


def done(*arguments: object) -> str:
    """Standard output of a command that succeeds."""
    result = prorl(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def tables(*arguments: object) -> list[dict[str, Any]]:
    """The tables of a command's `--json`."""
    return json.loads(done(*arguments, "--json"))["tables"]


def refused(*arguments: object, untouched: Path | None = None) -> str:
    """The one sentence of a command that fails as it should, and changes nothing below a folder."""
    before = untouched and tree(untouched)
    result = prorl(*arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert (untouched and tree(untouched)) == before
    return sentence(result.exit_code, result.stderr)


def sentence(status: int, stderr: str) -> str:
    lines = stderr.splitlines()
    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith("prorl: ")
    return lines[0].removeprefix("prorl: ")


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder, files with their content, without what only a process in it needs."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if path.name not in ("lock", "heartbeat.json")
    }


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """A real limit of the system: a write beyond it fails half-way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
