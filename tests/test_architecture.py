"""What keeps the tree light: who may do without torch, how fast it answers, how long a file may be."""

import pkgutil
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import prorl
import prorl.control
import prorl.envs
import prorl.lab.dashboard
import prorl.lab.report
import prorl.run

SOURCE = Path(prorl.__file__).parent
HEAVY = ("torch", "transformers", "reasoning_gym")
MAX_LINES = 550
# Source: 26,000 lines, 9,000 of them on the path, and: workers 450, the guess floor 250 (62), adaptive levels
# 180 (150), coverage and forecast 130, mismatch by position 50 (20), tasks, data and trackers of the user 1,250
# (100), `verifiers` 240, Harbor 330, the GPU path 80, partial rollouts 310 (290), settings of the learner 30
# (30), a backend that is chosen 80, a quicker base 50, mended edges of long runs 130 (95), GPUs 50, 40 faults that
# a third reading found 230 (110), 45 that a fourth found 225 (40), what a GPU
# showed 55 (30), 46 that a fifth found, wrong golds of six tasks of
# reasoning-gym among them, 350 (120), 50 that a sixth found 120 (70), disks that come back and templates that tell
# the date 30 (20), weights that cross no network and engines that answer with several 40, a dozen that a seventh
# found 90 (40), weights within a GPU and a queue that engines share 55 (15), updates that show progress and clusters
# that lose their head 65 (35), a fused head 35 (35), products by oneDNN and layers in few operations 150 (150),
# collections that leave out what is there 10 (10), 50 that an eighth found 225 (45), a proof beside the first
# tokens 17 (17), states of other versions 4 (4), 19 faults that a ninth found 25 (10), 50 that a tenth found 195
# (75), rolling out in functions that fit a screen 22 (22), small products by MKL, warm-ups that leave fewer cores
# idle and imports beside a command's own 55 (29), for which a figure of reports went, rows that no other run
# replaces and 20 faults that an eleventh found 125 (81), processors of Intel 21 (21), a home for child processes and
# models that are looked for first 24 (14). Less by 271 (38), 151 (35) and 94 (41): readings that only took away.
# Tests: 2,833.
CEILINGS = {"src": (30_985, 162), "tests": (34_786, 211)}  # lines and files
READING_PATH = 11_233  # lines of the core without `APART`
APART = ("api.py", "cli", "learn/base_model.py", "trl.py")
HELP_SECONDS = 1.5  # of computing: a busy machine must not fail a test


def modules(package) -> list[str]:
    return [found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]


LIGHT = [
    "prorl.cli",
    "prorl.loop",
    "prorl.build",
    "prorl.machine",
    "prorl.lab.measurement",
    "prorl.lab.creativity",
    "prorl.commands",
    "prorl.local.judge",
    "prorl.cluster.estimate",
    "prorl.lab.watch.console",
    "prorl.lab.export",
    *modules(prorl.envs),
    *modules(prorl.run),
    *modules(prorl.control),
    *modules(prorl.lab.dashboard),
    *modules(prorl.lab.report),
]


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def imported(names: list[str], packages: tuple[str, ...]) -> str:
    """The first of the modules that imports one of the packages, or nothing."""
    done = python(
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        f"    if set({packages!r}) & sys.modules.keys(): print(name); break"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_needs_no_torch_imports_none():
    assert imported(LIGHT, HEAVY) == ""


def test_the_dashboard_stays_small():
    assert imported(modules(prorl.lab.dashboard), (*HEAVY, "numpy", "pyarrow", "pandas", "plotly")) == ""


def test_the_check_sees_an_import_where_there_is_one():
    assert imported(["prorl.types", "prorl.lab.watch.console"], ("rich",)) == "prorl.lab.watch.console"


def test_help_answers_at_once_and_without_torch():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = python(
        "import sys, prorl.cli\n"
        "sys.argv = ['prorl', '--help']\n"
        "try: prorl.cli.main()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    for command in ("train", "resume", "eval", "tell"):
        assert command in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < HELP_SECONDS


def test_only_the_cluster_backend_knows_ray_and_vllm():
    imports = re.compile(r"^\s*(?:import|from) (?:ray|vllm)\b", re.MULTILINE)
    knowing = {
        path.parent for path in SOURCE.rglob("*.py") if imports.search(path.read_text(encoding="utf-8"))
    }
    assert knowing == {SOURCE / "cluster"}


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix()
)
def test_no_module_is_too_long_to_read(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def size(files) -> tuple[int, int]:
    counts = [len(path.read_text(encoding="utf-8").splitlines()) for path in files]
    return sum(counts), len(counts)


def test_the_house_does_not_grow():
    """Whoever adds lines removes others, or raises a ceiling and says there what it buys."""
    apart = [SOURCE / name for name in ("cluster", "envs", "lab", *APART)]
    path = [file for file in SOURCE.rglob("*.py") if not {file, *file.parents} & set(apart)]
    source = [*SOURCE.rglob("*.py"), SOURCE.parent / "prorl_tasks.py"]
    found = {"src": size(source), "tests": size(Path(__file__).parent.rglob("*.py"))}
    print(f"lines and files: {found}, reading path {size(path)}")
    assert size(path)[0] <= READING_PATH
    for place, (lines, files) in found.items():
        assert lines <= CEILINGS[place][0], place
        assert files <= CEILINGS[place][1], place
