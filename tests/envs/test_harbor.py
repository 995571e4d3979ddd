"""Folders of Harbor as tasks: real containers of a real engine."""

import shutil
import subprocess
import time
from contextlib import closing
from functools import partial

import pytest

from prorl.build import build_tasks
from prorl.config.recipe import load_recipe
from prorl.config.schema import JudgeConfig
from prorl.envs import harbor
from prorl.envs.check import check_task
from prorl.envs.errors import ProrlError, UsageError
from prorl.envs.extensions import absolute, find
from prorl.envs.extract import extract_script
from prorl.envs.harbor import ENGINES, FORM, MAX_REWARD_BYTES, Environment, HarborTask
from prorl.envs.registry import VerifierSpec, make_task, make_verifier
from prorl.local.judge import LocalJudge
from support.data_rows import all_problems

DOCKERFILE = """
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
WORKDIR /app
"""
TESTS = """#!/bin/sh
test "$COLOUR" = blue || exit 1
cat /app/score.txt > /logs/verifier/reward.txt
"""
SETTINGS = "[agent]\ntimeout_sec = 3.0\n[verifier]\ntimeout_sec = 4.0\nenv = {COLOUR = 'blue'}\n"
# Inside a container, crun refuses mixed cgroups and limits cannot be raised.
PODMAN = (
    '[engine]\nruntime = "runc"\n[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
)


def write_task(folder, instruction="Write 1 to score.txt.", settings=SETTINGS, tests=TESTS):
    """A task of Harbor in a new folder."""
    for part in ("environment", "tests", "solution"):
        (folder / part).mkdir(parents=True)
    (folder / "task.toml").write_text(settings)
    (folder / "instruction.md").write_text(f"{instruction}\n")
    (folder / "environment" / "Dockerfile").write_text(DOCKERFILE)
    (folder / "tests" / "test.sh").write_text(tests)
    (folder / "solution" / "solve.sh").write_text("#!/bin/bash\necho 1 > score.txt\n")
    if busybox := shutil.which("busybox"):
        shutil.copy(busybox, folder / "environment" / "busybox")
    return folder


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """The container engine, once it has run something."""
    place = tmp_path_factory.mktemp("engine")
    (place / "containers.conf").write_text(PODMAN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(place / "containers.conf"))
        found = next(filter(shutil.which, ENGINES), None)
        if found is None or not shutil.which("busybox"):
            pytest.skip("needs podman or docker, and busybox-static")
        environment = str(write_task(place / "trial") / "environment")
        for command in (
            ["build", "--tag", "prorl-trial", environment],
            ["run", "--rm", "--network", "none", "--memory", "64m", "prorl-trial", "/bin/sh", "-c", "true"],
        ):
            try:
                tried = subprocess.run([found, *command], capture_output=True, text=True, timeout=120)
            except subprocess.TimeoutExpired:
                pytest.skip(f"{found} {command[0]} does not come to an end here")
            if tried.returncode:
                pytest.skip(f"{found} cannot run containers here: {tried.stderr[-300:]}")
        yield found


@pytest.fixture(scope="module")
def task(engine, tmp_path_factory):
    """One task, its image built."""
    return HarborTask(write_task(tmp_path_factory.mktemp("harbor") / "one"))


def judge(task, script):
    """The verdict on a response with a script."""
    return task.verify(all_problems(task)[0], f"<think>so</think>It is\n```bash\n{script}\n```\nDone.")


@pytest.mark.slow
def test_a_folder_is_a_task_whose_own_solution_passes(task):
    problem = task.problem(0, *task.splits)
    assert problem.prompt == f"Write 1 to score.txt.\n\n{FORM}"
    found = check_task(task, 1)
    assert (found.faults, found.with_solution, task.domain) == ((), 1, "code")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "score", "status", "note"),
    [
        ("echo 1 > score.txt", 1.0, "ok", ""),
        ("echo 0.25 > /app/score.txt; exit 3", 0.25, "wrong", ""),
        ("echo 7 > score.txt", 0.0, "wrong", "the tests' reward is '7"),
        ("echo much > score.txt", 0.0, "wrong", "the tests' reward is 'much"),
        ("echo 2 > score.txt", 0.0, "wrong", "the tests' reward is '2"),
        ("echo NaN > score.txt", 0.0, "wrong", "the tests' reward is 'NaN"),
        ("cat > notes\necho 1 > score.txt", 1.0, "ok", ""),  # which reads what is given to the script
        ("echo 1 > score.txt; sleep 60", 1.0, "ok", ""),  # what it has done by its deadline counts
        ("mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt", 0.0, "wrong", "reward is ''"),
        ("mkfifo score.txt", 0.0, "wrong", "time"),
        ("rm /bin/sh", 0.0, "wrong", "reward is ''"),
        ("while :; do echo 1 > /logs/verifier/reward.txt; done & sleep 1", 0.0, "wrong", "reward is ''"),
        ("while :; do sh -c 'sleep 99' & done", 0.0, "wrong", ""),
        ("ls /tests && echo 1 > score.txt", 0.0, "wrong", ""),
        ("wget -T 2 http://1.1.1.1 && echo 1 > score.txt", 0.0, "wrong", ""),
    ],
)
def test_the_tests_judge_what_a_script_left(task, script, score, status, note):
    verdict = judge(task, script)
    assert (verdict.score, verdict.status) == (score, status), verdict
    assert note in verdict.note


@pytest.mark.parametrize("written", ["[" * MAX_REWARD_BYTES, "9" * 400, '{"reward": {}}', "[]", "{}"])
def test_nothing_that_a_script_writes_as_its_reward_keeps_it_from_a_verdict(tmp_path, monkeypatch, written):
    folder = write_task(tmp_path / "one")
    monkeypatch.setattr(shutil, "which", lambda _: "engine")
    monkeypatch.setattr(HarborTask, "_ask", lambda *_, **__: (0, written, ""))
    assert judge(HarborTask(folder), "ls").status == "wrong"


@pytest.mark.slow
def test_no_container_is_left_even_where_the_judge_is_killed(task, engine, monkeypatch):
    monkeypatch.setattr(harbor, "token_hex", lambda _: "named")
    judge(task, "sleep 60 & sleep 60")
    assert gone(engine, "prorl-named")
    monkeypatch.setattr(harbor, "ENGINE_SECONDS", -1.25)  # of a container's time 7 - 5 s are left
    monkeypatch.setattr(task, "_ask", partial(task._ask, within=60.0))
    begun = task._container(*task._folders.values())
    begun.__enter__()
    assert not gone(engine, "prorl-named", within=0.0)
    assert gone(engine, "prorl-named")


def gone(engine, name, within=10.0):
    """Whether no container has a name, or loses it within some seconds."""
    until = time.monotonic() + within
    while subprocess.run([engine, "container", "inspect", name], capture_output=True).returncode == 0:
        if time.monotonic() >= until:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.slow
def test_a_recipe_names_a_folder_of_tasks(engine, tmp_path):
    place = tmp_path / "tasks"
    for number in range(3):
        tests = TESTS.replace("cat /app/score.txt", f"grep -cx {number} /app/score.txt")
        write_task(place / f"task{number}", f"Write {number} to score.txt.", tests=tests)
    (place / "task1" / "tests" / "task.toml").write_text("not a task")  # what a task brings is none
    use = absolute("harbor:tasks", tmp_path)
    made = make_task(use)
    asked = all_problems(made)
    assert made.name == "tasks"
    assert sorted(problem.prompt[6] for problem in asked) == [str(number) for number in range(3)]
    right = f"```\necho {asked[0].prompt[6]} > score.txt\n```"
    spec = VerifierSpec(tasks=("tasks",), own={"tasks": find(use)})
    judge = LocalJudge(partial(make_verifier, spec), deadline=60.0)
    verdicts = {}
    with closing(judge):
        for ticket, problem in enumerate(asked[:2]):
            judge.submit(ticket, problem, right)
        while len(verdicts) < 2:
            verdicts |= judge.poll(wait=True)
    assert [verdicts[ticket].score for ticket in range(2)] == [1.0, 0.0], verdicts
    before = find(use).fingerprint
    (place / "task2" / "tests" / "more.txt").touch()
    assert find(use).fingerprint != before
    others = [make_task(use).verify(problem, right).note for problem in asked]
    assert others.count("its rows are not those of the run: start anew") == 1


def test_sizes_may_have_units():
    said = Environment.model_validate({"memory": "8G", "storage": "512M"})
    assert (said.memory_mb, said.storage_mb) == (8192, 512)
    assert Environment.model_validate({"memory_mb": 100}).options[2:4] == ["--memory", "100m"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            "[environment]\nmemory = '8 bananas'",
            r"task.toml: environment.memory: Input should be a valid integer",
        ),
        ("[agent]\ntimeout_sec = 'long'", r"task.toml: agent.timeout_sec: Input should be a valid number"),
        ("[agent", r"Expected ']'"),
        ("[[steps]]\nname = 'first'", "has several steps; here a task is one script in one container"),
        ("[environment]\ngpus = 1", "needs a GPU"),
        ("[verifier]\nenvironment_mode = 'separate'", "is judged in another container"),
        ("[verifier]\nenv = {KEY = '${KEY}'}", "takes values from outside"),
    ],
)
def test_what_is_more_than_one_script_in_one_container_is_refused(tmp_path, settings, sentence):
    write_task(tmp_path / "one", settings=settings)
    with pytest.raises(UsageError, match=sentence):
        make_task(f"harbor:{tmp_path}")


def test_a_folder_without_tasks_and_one_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match=r"there is no task\.toml in"):
        make_task(f"harbor:{tmp_path}")
    with pytest.raises(UsageError, match="there is no such folder"):
        make_task(f"harbor:{tmp_path}/nowhere")


@pytest.mark.slow
def test_a_judge_that_would_not_wait_for_the_tests_is_refused(engine, tmp_path):
    place = write_task(tmp_path / "one")
    config = load_recipe("nano", [f"tasks.mine.use=harbor:{place}", "judge.deadline=16"])
    with pytest.raises(ProrlError, match=r"task mine may take 17 s: set judge\.deadline=17"):
        build_tasks(config)
    assert "mine" in build_tasks(config.model_copy(update={"judge": JudgeConfig(deadline=17)})).weights


@pytest.mark.slow
def test_a_script_is_run_by_the_user_of_the_image_or_of_the_settings(engine, tmp_path):
    tests = "#!/bin/sh\ntest $(id -u) = 0 -a $(stat -c %u /app/mine) = USER && echo 1 > /logs/verifier/reward.txt\n"
    own = DOCKERFILE.replace("WORKDIR", "RUN mkdir -m 777 /app\nUSER 1234\nWORKDIR")
    for user, settings in (("1234", ""), ("4321", "user = 4321\n")):
        said = f"[agent]\n{settings}[verifier]\nuser = 'root'\n"
        folder = write_task(tmp_path / user, settings=said, tests=tests.replace("USER", user))
        (folder / "environment" / "passwd").write_text("root:x:0:0::/:/bin/sh\n")
        (folder / "environment" / "Dockerfile").write_text(
            own.replace("WORKDIR", "COPY passwd /etc/\nWORKDIR")
        )
        assert judge(HarborTask(folder), "touch mine").score == 1.0


@pytest.mark.slow
def test_an_image_that_cannot_be_built_is_said(engine, tmp_path):
    folder = write_task(tmp_path / "one")
    (folder / "environment" / "Dockerfile").write_text("FROM scratch\nCOPY nothing /\n")
    with pytest.raises(UsageError, match=f"^harbor:.*one: {engine} build failed: .*nothing"):
        make_task(f"harbor:{folder}")


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("```bash\nls\n```\n```\nout\n```", "ls"),
        ("```sh\nls\n```\n```SHELL\npwd\n```", "pwd"),
        ("```\nls\n```\n```python\nx\n```", "ls"),
        ("```python\nx\n```", None),
        ("<think>```bash\nls\n```", None),
        ("<think>```bash\nls\n```</think>```bash\npwd\n```", "pwd"),
    ],
)
def test_the_last_block_of_a_shell_is_the_script(text, script):
    assert extract_script(text) == script
