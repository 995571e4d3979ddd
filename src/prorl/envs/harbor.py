"""Folders of Harbor as tasks: the response is one shell script, and the folder's tests judge what it left behind.

Both run in a container of the task's image, one for each response, without network and within the task's limits of
time, memory and processes; podman or docker runs it. As an agent of Harbor, a script may change whatever its user may
in the container: tests that trust a program in there can be deceived.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, PositiveFloat, ValidationError

from prorl.envs.base import NO_ANSWER, OTHER_ROWS, FixedTask, by_split, verdict_of
from prorl.envs.errors import UsageError
from prorl.envs.extract import extract_script
from prorl.envs.files import hash_folder
from prorl.envs.types import Problem, Solution, Verdict

FORM = "Answer with one shell script in a ```bash block. It is run once, in the working directory, without network."
ENGINES = ("podman", "docker")
PROCESSES = 512  # in a container
ENGINE_SECONDS = 60.0  # that starting, copying and the like may take, on a busy machine
OVERHEAD_SECONDS = 10.0  # of these, for one response
MAX_REWARD_BYTES = 1000
MAX_NOTE = 120  # characters

SCRIPT = (  # read to its end first, so that no command of it reads the rest
    "ulimit -f {blocks}; script=$(cat); "
    'exec "$(command -v bash || command -v sh)" -c "$script" < /dev/null > /dev/null 2>&1'
)
TIDY = "kill -9 -1; rm -rf /tests /logs; mkdir -p /tests /logs/verifier; chmod 777 /logs/verifier"
TESTS = "chmod +x /tests/test.sh; exec /tests/test.sh > /logs/verifier/test-stdout.txt 2>&1"
REWARD = f"cd /logs/verifier; head -c {MAX_REWARD_BYTES} reward.txt || head -c {MAX_REWARD_BYTES} reward.json"


class EngineError(UsageError):
    """The container engine did not do what no response can keep it from."""


class Phase(BaseModel):
    """`[agent]`, for us the response's script, or `[verifier]`, the tests."""

    timeout_sec: PositiveFloat = 600.0
    user: str | int | None = None  # that of the image
    env: Mapping[str, str] = {}

    @property
    def options(self) -> list[str]:
        """The same for the engine's `exec`."""
        return [*([] if self.user is None else ["--user", str(self.user)]), *_variables(self.env)]


def _megabytes(said: Any) -> Any:
    """`8G` or `512M` as a number of megabytes; anything else as it is."""
    found = re.fullmatch(r"([0-9]+)\s*([MG])i?B?", said) if isinstance(said, str) else None
    return int(found[1]) * (1024 if found[2] == "G" else 1) if found else said


Megabytes = Annotated[int, Field(gt=0), BeforeValidator(_megabytes)]


class Environment(BaseModel):
    """`[environment]`: the container."""

    docker_image: str | None = None
    build_timeout_sec: PositiveFloat = 600.0
    cpus: PositiveFloat | None = None
    memory_mb: Megabytes = Field(2048, validation_alias=AliasChoices("memory_mb", "memory"))
    # Here the most that one file may have, within a factor of two.
    storage_mb: Megabytes = Field(10_240, validation_alias=AliasChoices("storage_mb", "storage"))
    env: Mapping[str, str] = {}

    @property
    def options(self) -> list[str]:
        """The same for the engine's `run`, without network."""
        bounds = ["--memory", f"{self.memory_mb}m", "--pids-limit", str(PROCESSES)]
        cpus = [] if self.cpus is None else ["--cpus", str(self.cpus)]
        return ["--network", "none", *bounds, *cpus, *_variables(self.env)]


class Settings(BaseModel):
    """What is used of `task.toml`."""

    agent: Phase = Phase()
    verifier: Phase = Phase()
    environment: Environment = Environment()


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """One task of Harbor. `image` is the one that it names, or the name of the one to build: a hash of its files."""

    path: Path
    key: str  # hash of all files
    instruction: str
    image: str
    solution: Solution | None  # solution/solve.sh, where that needs no file beside it
    settings: Settings

    @property
    def seconds(self) -> float:
        """What script and tests may take together."""
        return self.settings.agent.timeout_sec + self.settings.verifier.timeout_sec


class HarborTask(FixedTask):
    """The tasks of Harbor below a folder; a problem carries the hash of its task's files.

    Images that are missing are pulled or built first, which may take long; nothing else uses the network.
    """

    def __init__(self, place: Path) -> None:
        """`place` is the folder of a task, or has such folders in it.

        Raises UsageError: there is none, one is more than a single turn in one container, or no engine is installed;
        EngineError: an image can be neither pulled nor built.
        """
        self._folders = {folder.key: folder for folder in map(_read, _places(place))}
        self.verdict_seconds = max(folder.seconds for folder in self._folders.values()) + OVERHEAD_SECONDS
        self._engine = next(filter(shutil.which, ENGINES), "")
        if not self._engine:
            raise UsageError(f"tasks of Harbor need {' or '.join(ENGINES)}: apt-get install podman")
        self._make_images()
        asked = by_split((key, folder.instruction) for key, folder in self._folders.items())
        super().__init__(place.name, "code", asked)

    def ask(self, key: str) -> dict[str, Any]:
        """The instruction, and the folder's own solution."""
        folder = self._folders[key]
        return {"prompt": f"{folder.instruction}\n\n{FORM}", "payload": key, "solution": folder.solution}

    def verify(self, problem: Problem, text: str) -> Verdict:
        """The reward that the tests write once the script has ended or its time is over.

        Tests that write none, or do not end, are a wrong response: it may have broken what they need.
        """
        folder, script = self._folders.get(problem.payload), extract_script(text)
        if folder is None:
            return OTHER_ROWS
        if script is None:
            return NO_ANSWER
        try:
            with self._container(folder) as name:
                return self._judged(folder, name, script)
        except EngineError as error:
            return Verdict(score=0.0, status="error", note=str(error))

    def _judged(self, folder: Folder, name: str, script: str) -> Verdict:
        agent, verifier = folder.settings.agent, folder.settings.verifier
        shell = (name, "/bin/sh", "-c")
        run = SCRIPT.format(blocks=folder.settings.environment.storage_mb << 10)
        with suppress(subprocess.TimeoutExpired):  # what it has done by then is judged
            self._ask("exec", "-i", *agent.options, *shell, run, given=script, within=agent.timeout_sec)
        try:
            self._ask("exec", "--user", "0", *shell, TIDY)
            self._do("cp", f"{folder.path / 'tests'}/.", f"{name}:/tests")
            self._ask("exec", *verifier.options, *shell, TESTS, within=verifier.timeout_sec)
            written = self._ask("exec", "--user", "0", *shell, REWARD)[1]
        except subprocess.TimeoutExpired:
            return Verdict(score=0.0, status="wrong", note="time")
        try:
            reward = json.loads(written)
        except (ValueError, RecursionError):
            reward = None
        verdict = verdict_of(reward.get("reward") if isinstance(reward, dict) else reward)
        if verdict.status == "error":  # a response may have written it
            return Verdict(score=0.0, status="wrong", note=f"the tests' reward is {written!r:.60}")
        return verdict

    @contextmanager
    def _container(self, folder: Folder) -> Iterator[str]:
        """A container that ends with the block; by itself, when its time is over, should this process be killed."""
        name, bounds = f"prorl-{token_hex(8)}", folder.settings.environment.options
        options = ("--detach", "--rm", "--name", name, "--entrypoint", "/bin/sh", *bounds)
        most = folder.seconds + 4 * ENGINE_SECONDS
        try:
            self._do("run", *options, folder.image, "-c", f"exec sleep {most:.0f}")
            yield name
        finally:
            with suppress(subprocess.TimeoutExpired):
                self._ask("kill", name)

    def _make_images(self) -> None:
        """Pull or build what is missing, and say so."""
        wanted = {folder.image: folder for folder in self._folders.values()}
        if self._ask("image", "inspect", *wanted)[0] == 0:
            return
        for done, (image, folder) in enumerate(wanted.items(), start=1):
            if self._ask("image", "inspect", image)[0] == 0:
                continue
            print(f"image {done} of {len(wanted)}, of {folder.path.name}", file=sys.stderr)
            environment = folder.settings.environment
            build = ("build", "--tag", image, str(folder.path / "environment"))
            make = ("pull", image) if environment.docker_image else build
            self._do(*make, within=environment.build_timeout_sec)

    def _do(self, *command: str, within: float = ENGINE_SECONDS) -> None:
        """Have the engine do what no response can keep it from. Raises EngineError: it did not."""
        try:
            status, _, said = self._ask(*command, within=within)
        except subprocess.TimeoutExpired:
            raise EngineError(f"{self._engine} {command[0]} took more than {within:g} s") from None
        if status:
            last = said.strip().rpartition("\n")[2]
            raise EngineError(f"{self._engine} {command[0]} failed: {last[:MAX_NOTE]}")

    def _ask(self, *command: str, given: str = "", within: float = ENGINE_SECONDS) -> tuple[int, str, str]:
        """Its exit status and what it said, whatever that is. Raises TimeoutExpired."""
        call, given_bytes = [self._engine, *command], given.encode("utf-8", "replace")
        done = subprocess.run(call, input=given_bytes, capture_output=True, timeout=within, check=False)
        return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def _places(place: Path) -> list[Path]:
    """The folders with a task.toml that are in no other one, sorted. Raises UsageError: there is none."""
    folders = {file.parent for file in place.rglob("task.toml")}
    if not folders:
        raise UsageError(f"there is no task.toml in {place} or below it")
    return sorted(folder for folder in folders if folders.isdisjoint(folder.parents))


def _read(path: Path) -> Folder:
    """Raises UsageError: a file is missing or nonsense, or the task is more than one turn in one container."""
    try:
        said = tomllib.loads((path / "task.toml").read_text("utf-8"))
        settings = Settings.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path / 'task.toml'}: {where}: {first['msg']}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from None
    environment, container = path / "environment", said.get("environment", {})
    phases = (settings.agent, settings.verifier, settings.environment)
    found = {
        "has several steps": "steps" in said,
        "has several containers": any(environment.glob("docker-compose.y*ml")),
        "is judged in another container": said.get("verifier", {}).get("environment_mode") == "separate",
        "needs a GPU": container.get("gpus"),
        "needs an MCP server": container.get("mcp_servers"),
        "takes values from outside": any("${" in value for phase in phases for value in phase.env.values()),
        "has no instruction.md": not (path / "instruction.md").is_file(),
        "has no tests/test.sh": not (path / "tests" / "test.sh").is_file(),
        "has neither docker_image nor environment/Dockerfile": not settings.environment.docker_image
        and not (environment / "Dockerfile").is_file(),
    }
    if obstacle := next((words for words, holds in found.items() if holds), None):
        raise UsageError(f"{path} {obstacle}; here a task is one script in one container, without network")
    solution = sorted((path / "solution").glob("*"))
    alone = [file.name for file in solution] == ["solve.sh"]
    script = f"```bash\n{solution[0].read_text('utf-8')}\n```" if alone else ""
    return Folder(
        path=path,
        key=hash_folder(path),
        instruction=(path / "instruction.md").read_text("utf-8").strip(),
        image=settings.environment.docker_image or f"prorl-harbor:{hash_folder(environment)}",
        solution=Solution(steps="", answer=script) if script else None,
        settings=settings,
    )


def _variables(values: Mapping[str, str]) -> list[str]:
    return [part for name, value in values.items() for part in ("--env", f"{name}={value}")]
