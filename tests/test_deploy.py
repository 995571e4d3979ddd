"""The files of deploy/: linted, and the scripts run for real with Slurm, Ray and prorl played by small programs."""

import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from typer.main import get_command

from prorl.cli.main import app
from prorl.cluster.settings import places
from prorl.config.recipe import load_recipe
from prorl.config.schema import RUNTIME_SECTIONS as SECTIONS

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
SCRIPTS = sorted(DEPLOY.glob("*.sh"))
ACTORS = {
    "scontrol": 'if [ "$1" = show ]; then printf "%s\\n" node-a node-b node-c; fi',
    "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
    "ray": 'if [ "${RAY_DOWN:-}" ]; then exit 1; fi; case "$*" in *--block*) exec sleep 60 ;; esac',
    "python": 'cat > /dev/null; until [ "$(grep -c "^ray start" "$LOG")" = 2 ]; do sleep 0.02; done',  # the nodes
    "hostname": """\
        if [ "$1" != --all-ip-addresses ]; then echo 127.0.1.1 && exit; fi
        echo "${ADDRESSES-10.0.0.1 172.17.0.1}\"""",
    # a doctor says what it is told to; a trainer ends at once, or once SIGUSR1 told it to save: after its step
    "prorl": """\
        if [ "$1" = doctor ]; then exit "${ILL:-0}"; fi
        trap 'sleep 0.3; echo saved >> "$LOG"; exit 75' USR1
        echo ready >> "$LOG"
        if [ "${STATUS:-}" ]; then exit "$STATUS"; fi
        while :; do sleep 0.05; done""",
}


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A folder to submit a job from, whose environment holds the actors; each writes what it was asked into log."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, act in ACTORS.items():
        program = programs / name
        program.write_text(f'#!/bin/bash\necho "{name} $*" >> "$LOG"\n{act}\n')
        program.chmod(0o755)
    (tmp_path / "deploy").symlink_to(DEPLOY)
    return tmp_path


def job(stage: Path, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    environment = {
        "PATH": os.environ["PATH"],
        "LOG": str(stage / "log"),
        "SLURM_SUBMIT_DIR": str(stage),
        "SLURM_JOB_NODELIST": "node-[a-c]",
        "SLURM_JOB_ID": "7",
        **variables,
    }
    return subprocess.Popen([DEPLOY / "slurm.sh", *arguments], env=environment, start_new_session=True)


def ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(timeout=120)
    finally:
        with suppress(ProcessLookupError):  # Slurm ends what a batch script leaves: here the two `ray start`
            os.killpg(process.pid, signal.SIGKILL)


def log(stage: Path) -> list[str]:
    return (stage / "log").read_text().splitlines()


def line(stage: Path, start: str) -> str:
    (found,) = [entry for entry in log(stage) if entry.startswith(start)]
    return found


def tool(name: str) -> str:
    path = Path(sys.executable).parent / name
    if not path.exists():
        pytest.skip(f"{name} is not installed: pip install -e .[dev]")
    return str(path)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_shellcheck_finds_nothing(script):
    done = subprocess.run([tool("shellcheck"), script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert os.access(script, os.X_OK)


def test_hadolint_finds_nothing():
    # DL3008: versions of the distribution's packages vanish from its mirrors, so pinning them would break the build
    lint = [tool("hadolint"), "--ignore", "DL3008", DEPLOY / "Containerfile"]
    done = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_job_begins_a_run_on_all_its_nodes(stage):
    assert ended(job(stage, "prorl_v2", "seed=1", STATUS="0")) == 0
    head = line(stage, "srun --overlap --cpu-bind=none --nodes=1 ")
    assert "--ntasks=1 --nodelist=node-a ray start --head --node-ip-address=10.0.0.1 --port=6379" in head
    workers = line(stage, "srun --overlap --cpu-bind=none --nodes=2 ")
    assert "--ntasks=2 --exclude=node-a bash -c" in workers
    line(stage, "ray start --address=10.0.0.1:6379 ")
    assert line(stage, "python") == "python - 10.0.0.1:6379 3"
    assert [entry for entry in log(stage) if entry.startswith("prorl")] == [
        "prorl doctor --backend ray --address 10.0.0.1:6379 --run runs/prorl_v2 --recipe prorl_v2 seed=1",
        "prorl train prorl_v2 seed=1 --run runs/prorl_v2 --backend ray --address 10.0.0.1:6379",
    ]
    assert not any(entry.startswith("scontrol requeue") for entry in log(stage))


def test_a_run_named_by_its_recipe_file_begins_whatever_the_doctor_finds(stage):
    assert ended(job(stage, "recipes/mine.yaml", ILL="1", STATUS="0")) == 0
    assert "prorl train recipes/mine.yaml --run runs/mine " in line(stage, "prorl train")


def test_a_run_with_a_checkpoint_goes_on_with_the_settings_that_a_resume_may_change(stage):
    plain = {"backend", "workers", "log"}  # the script says where to compute; the last is a key, no section
    changes = [*(f"{section}.key=1" for section in SECTIONS if section not in plain), "log=wandb"]
    assert len(changes) == 5
    (stage / "runs" / "prorl_v2" / "checkpoints" / "step_0000010").mkdir(parents=True)
    assert ended(job(stage, "prorl_v2", "seed=1", *changes, "optimizer.lr=1", STATUS="0")) == 0
    resume = "prorl resume runs/prorl_v2 --backend ray --address 10.0.0.1:6379"
    assert line(stage, "prorl") == " ".join((resume, *changes))


@pytest.mark.parametrize(
    ("variables", "ip"),
    [
        ({"ADDRESSES": "127.0.1.1 169.254.3.4 fe80::1 10.0.0.7 192.168.0.1"}, "10.0.0.7"),
        ({"HEAD_IP": "192.168.0.1"}, "192.168.0.1"),
        ({"ADDRESSES": "", "HEAD_IP": "192.168.0.1"}, "192.168.0.1"),
    ],
)
def test_the_head_is_where_other_nodes_reach_it(stage, variables, ip):
    assert ended(job(stage, "prorl_v2", STATUS="0", **variables)) == 0
    assert f"--node-ip-address={ip} " in line(stage, "ray start --head")
    assert f"--address {ip}:6379" in line(stage, "prorl train")


def test_a_job_on_a_node_without_an_address_ends_with_a_sentence(stage, capfd):
    assert ended(job(stage, "prorl_v2", ADDRESSES="127.0.0.1 fe80::1")) == 1
    assert capfd.readouterr().err == "node-a has no IPv4 address that other nodes could reach: set HEAD_IP\n"
    assert not any(entry.startswith("srun") for entry in log(stage))


def test_before_the_time_is_up_the_run_is_saved_and_the_job_queued_again(stage):
    process = job(stage, "prorl_v2")
    deadline = time.monotonic() + 120
    while not (stage / "log").exists() or "ready" not in log(stage):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGUSR1)
    assert ended(process) == 75
    assert log(stage)[-2:] == ["saved", "scontrol requeue 7"]


@pytest.mark.parametrize(
    ("program", "act"),
    [
        # while the nodes are waited for; and while the doctor looks, whom bash waits for before it hears anything
        ("python", 'cat > /dev/null; kill -USR1 "$PPID"; sleep 0.2'),
        ("prorl", 'if [ "$1" = doctor ]; then kill -USR1 "$(ps -o ppid= "$PPID")"; sleep 0.5; fi'),
        # while Ray's head does not answer
        ("ray", 'case "$*" in *--block*) exec sleep 60 ;; *) kill -USR1 "$PPID"; exit 1 ;; esac'),
    ],
    ids=["before the trainer", "before it listens", "before Ray answers"],
)
def test_a_job_told_to_stop_before_it_trains_is_queued_again(stage, program, act):
    path = stage / ".venv" / "bin" / program
    path.write_text(f'#!/bin/bash\necho "{program} $*" >> "$LOG"\n{act}\n')
    assert ended(job(stage, "prorl_v2")) == 75
    assert "scontrol requeue 7" in log(stage)
    assert not any(entry.startswith("prorl train") for entry in log(stage))


@pytest.mark.parametrize(("status", "begun"), [({"STATUS": "70"}, True), ({"RAY_DOWN": "1"}, False)])
def test_a_job_that_fails_is_not_queued_again(stage, status, begun):
    assert ended(job(stage, "prorl_v2", **status)) == (70 if begun else 1)
    assert any(entry.startswith("prorl") for entry in log(stage)) == begun
    assert not any(entry.startswith("scontrol requeue") for entry in log(stage))


RAY_OF_ONE_NODE = """\
import time
ticks = iter(range(0, 10_000, 100))
time.monotonic, time.sleep = lambda: next(ticks), lambda seconds: None
init, nodes = lambda **options: None, lambda: [{"Alive": True}]
"""


def test_nodes_that_do_not_join_are_told_with_the_way_out(tmp_path):
    (waiting,) = re.findall(r"<< 'WAIT'\n(.+)\nWAIT\n", (DEPLOY / "slurm.sh").read_text(), re.DOTALL)
    (tmp_path / "ray.py").write_text(RAY_OF_ONE_NODE)

    def wait(nodes: int) -> subprocess.CompletedProcess[str]:
        asked = [sys.executable, "-", "10.0.0.1:6379", str(nodes)]
        paths = {"PYTHONPATH": str(tmp_path)}
        return subprocess.run(asked, input=waiting, capture_output=True, text=True, env=paths, check=False)

    assert wait(1).returncode == 0
    few = wait(2)
    assert few.returncode == 1
    assert "only 1 of 2 nodes joined the Ray cluster at 10.0.0.1:6379 in ten minutes" in few.stderr
    assert few.stderr.endswith("check that the nodes reach that address, or set HEAD_IP\n")


def test_slurm_is_asked_for_a_signal_to_the_script_and_a_requeue():
    asked = re.findall(r"^#SBATCH (\S+)", (DEPLOY / "slurm.sh").read_text(), re.MULTILINE)
    assert {"--requeue", "--open-mode=append", "--ntasks-per-node=1", "--exclusive", "--mem=0"} <= set(asked)
    (notice,) = [option for option in asked if option.startswith("--signal=B:USR1@")]
    assert notice in (ROOT / "docs" / "operations.md").read_text()


# -- Kubernetes and the image


def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text())
    return found


RAY_JOB = manifest("kuberay.yaml")
CLUSTER = RAY_JOB["spec"]["rayClusterSpec"]
HEAD, (WORKERS,) = CLUSTER["headGroupSpec"], CLUSTER["workerGroupSpecs"]
PODS = [group["template"]["spec"] for group in (HEAD, WORKERS)]
GPU_NODE = PODS[1]["containers"][0]["resources"]
ENTRYPOINT = RAY_JOB["spec"]["entrypoint"].split()


def test_the_ray_job_has_what_kuberay_requires():
    assert (RAY_JOB["apiVersion"], RAY_JOB["kind"]) == ("ray.io/v1", "RayJob")
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,45}[a-z0-9])?", RAY_JOB["metadata"]["name"])
    assert WORKERS["minReplicas"] <= WORKERS["replicas"] <= WORKERS["maxReplicas"]
    for group in (HEAD, WORKERS):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    for pod in PODS:
        assert pod["securityContext"]["fsGroup"] == user_of_the_image()
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert container["image"]
    assert GPU_NODE["limits"]["nvidia.com/gpu"] == 8


def test_the_ray_job_starts_the_script_of_the_image():
    script, recipe, run, address, *changes = ENTRYPOINT
    assert Path(script).relative_to("/opt/prorl") == Path("deploy/start.sh")
    assert (ROOT / "recipes" / f"{recipe}.yaml").exists()
    assert run.startswith("/data/")  # the volume that outlives the cluster
    assert address == "auto"
    config = load_recipe(recipe, ["backend=ray", *changes])
    assert config.device == "cuda"  # the head, where the loop runs, has none
    gpus = GPU_NODE["limits"]["nvidia.com/gpu"]
    assert sum(places(config)) == WORKERS["replicas"] * gpus
    assert config.threads * gpus <= int(GPU_NODE["requests"]["cpu"])


def test_data_and_model_are_prepared_where_the_ray_job_looks_for_them():
    document = manifest("prepare.yaml")
    assert (document["apiVersion"], document["kind"]) == ("batch/v1", "Job")
    pod = document["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    volumes = [volume["name"] for volume in pod["volumes"]]
    for theirs in PODS:
        assert pod["securityContext"] == theirs["securityContext"]
        assert volumes == [volume["name"] for volume in theirs["volumes"]]
        assert pod["volumes"][0] == theirs["volumes"][0]  # the claim
        (one,) = theirs["containers"]
        assert all(container[key] == one[key] for key in ("image", "volumeMounts"))
        assert [variable for variable in container["env"] if variable["name"] != "HF_TOKEN"] == one["env"]
    prepare, fetch = (part.split() for part in container["command"][-1].split(" && "))
    recipe = ENTRYPOINT[1]
    assert prepare == ["prorl", "data", "prepare", recipe]
    assert fetch == ["hf", "download", load_recipe(recipe).model.path]
    (token,) = [variable for variable in container["env"] if variable["name"] == "HF_TOKEN"]
    assert token["valueFrom"]["secretKeyRef"]["optional"]  # without it the gated set is left out


def test_prorl_takes_the_options_that_it_is_called_with():
    text = (DEPLOY / "start.sh").read_text()
    (where,) = re.findall(r"where=\((.+)\)", text)
    called = re.findall(r"^ *(?:exec )?prorl (\w+) (.+)", text.replace('"${where[@]}"', where), re.MULTILINE)
    assert [command for command, _ in called] == ["resume", "doctor", "train"]
    for command, arguments in called:
        taken = {
            option for parameter in get_command(app).commands[command].params for option in parameter.opts
        }
        assert set(re.findall(r"--[a-z-]+", arguments)) <= taken


def test_the_image_pins_what_belongs_together():
    text = (DEPLOY / "Containerfile").read_text()
    assert re.search(r"^FROM \S+:\d+\.\d+\.\d+\S*$", text, re.MULTILINE)
    required = map(Requirement, re.findall(r'[\w\[\]-]+(?:==|>=)[^\s"]+', text))
    pinned = {requirement.name: requirement for requirement in required}
    assert f"=={CLUSTER['rayVersion']}" == str(pinned["ray"].specifier)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    ours = {requirement.name: requirement.specifier for requirement in map(Requirement, project)}
    for package, version in (("torch", "2.13.0"), ("transformers", "5.19")):
        assert version in pinned[package].specifier
        assert version in ours[package]


def user_of_the_image() -> int:
    (user,) = re.findall(r"^USER (\d+)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    return int(user)


def test_the_image_has_what_the_probes_of_kuberay_call_and_copies_what_exists():
    text = (DEPLOY / "Containerfile").read_text()
    (packages,) = re.findall(r"apt-get install (.+?)&&", text, re.DOTALL)
    assert "wget" in packages.split()
    copied = re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE)
    for path in " ".join(copied).split():
        assert (ROOT / path).exists(), path
