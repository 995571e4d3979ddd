"""Programs that attack or cheat: contained, worth nothing, leaving nothing, and the next program is served."""

import json
import os
import re
import site
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import prorl
from prorl.envs.sandbox.jobs import Job, Limits
from prorl.envs.sandbox.sandbox import Policy, Sandbox
from support.arena import Arena
from support.normal_user import run_as_normal_user
from support.processes import descendants
from support.programs import programs
from support.sandbox_tiers import TIERS, server_pid

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
TEXTS = programs("attacks.txt")
PRELUDE = TEXTS["prelude"]["prelude"][0]
ATTACKS = {name: PRELUDE + source for name, (source,) in TEXTS["attacks"].items()}
# Programs that use up whatever they can get, and the statuses that are right.
EXHAUSTION = {
    "memory bomb": ("data = []\nwhile True: data.append(bytes(1 << 27))", {"memory"}),
    "memory bomb that swallows": (
        "data = []\nwhile True:\n    try: data.append(bytearray(1 << 22))\n    except MemoryError: pass",
        {"time", "memory", "runtime_error"},
    ),
    "shared memory map": (
        "import mmap\nkeep = [mmap.mmap(-1, 1 << 28) for _ in range(99)]",
        {"memory", "runtime_error"},
    ),
    "loop": ("while True: pass", {"time"}),
    "loop that swallows": (
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        {"time"},
    ),
    "blocked signals": ("import signal\nsignal.pthread_sigmask(0, range(1, 65))\nwhile True: pass", {"time"}),
    "regex": ("import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')", {"time"}),
    "power": ("print(len(str(10 ** 10 ** 8)))", {"time", "runtime_error", "memory"}),
    "digits": ("import sys\nsys.set_int_max_str_digits(0)\nprint(len(str(7 ** 10_000_000)))", {"time"}),
    "sleep": ("import time\ntime.sleep(1000)", {"time"}),
    "sleep in C": ("import signal\nsignal.pause()", {"time"}),
    "clock put back": ("import time\ntime.monotonic = time.time = lambda: 0.0\nwhile True: pass", {"time"}),
    "timer storm": (
        "import signal\nsignal.signal(14, lambda *_: None)\nsignal.setitimer(0, 1e-5, 1e-5)\nwhile True: pass",
        {"time"},
    ),
    "flood": ("while True: print('x' * 9999)", {"output"}),
    "flood of stderr": ("import os\nwhile True: os.write(2, b'x' * 99999)", {"time"}),
    "flood of results": ("import os\nwhile True: os.write(3, b'x' * 99999)", {"output"}),
    "quiet flood": ("import os\nwhile True: os.write(1, b'')", {"time"}),
    "files": (
        "import os\nfor n in range(9999): open(f'/tmp/{n}', 'w').write('x' * 1 << 20)",
        {"runtime_error"},
    ),
    "descriptors": ("import os\nwhile True: os.pipe()", {"runtime_error"}),
    "full pipe": (
        "import fcntl, os\nr, w = os.pipe()\nfcntl.fcntl(w, fcntl.F_SETFL, os.O_NONBLOCK)\n"
        "while True: os.write(w, b'x' * 65536)",
        {"runtime_error"},
    ),
    "recursion": ("def f(): f()\nf()", {"runtime_error"}),
    "deep recursion": (
        "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): f()\nf()",
        {"runtime_error", "memory", "time"},
    ),
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", {"runtime_error"}),
    "abort": ("import os\nos.abort()", {"runtime_error"}),
    "kills itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", {"runtime_error"}),
    "has itself killed": (
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
        {"runtime_error"},
    ),
    "stops itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", {"runtime_error", "time"}),
    "endless generator": ("sum(1 for _ in iter(int, 1))", {"time"}),
    "endless exit": ("import atexit\natexit.register(lambda: [None for _ in iter(int, 1)])", {"time"}),
    "endless destructor": (
        "class D:\n    def __del__(self):\n        while True: pass\nd = D()\ndel d",
        {"time"},
    ),
    "endless hook": (
        "import sys\ndef hook(*_):\n    while True: pass\nsys.excepthook = sys.unraisablehook = hook\n"
        "class D:\n    def __del__(self): 1 / 0\nD()",
        {"time"},
    ),
    "endless trace": (
        "import sys\ndef trace(*_):\n    while True: pass\nsys.settrace(trace)\ndef f(): pass\nf()",
        {"time"},
    ),
    "brackets": ("x = " + "(" * 100_000, {"compile_error", "memory"}),
    "long constant": ("x = " + "9" * 100_000, {"compile_error"}),
    "folding": ("x = " + "-" * 50_000 + "1", {"compile_error", "memory", "runtime_error"}),
    "null byte": ("x = 1\0", {"compile_error"}),
    "lone surrogate": ("x = '\ud800'", {"compile_error"}),
}


@pytest.fixture(scope="module")
def arena():
    with closing(Arena()) as built:
        yield built


@pytest.fixture(scope="module", params=TIERS)
def sandbox(request, arena):
    """Opened when the arena stands: what it inherits of it, it must not pass on."""
    with Sandbox.open(Policy(tier=request.param)) as opened:
        yield opened


def run(sandbox, arena, source, limits=ENOUGH):
    """The result of a script that attacks; fails if it left a trace outside or broke the sandbox."""
    processes, server = descendants(os.getpid()), server_pid(sandbox)
    began = time.monotonic()
    (result,) = sandbox.run(Job(source=source, inputs=(json.dumps(arena.facts()),), limits=limits))
    assert time.monotonic() - began < limits.seconds + PATIENCE
    assert arena.damage() == []
    assert descendants(os.getpid()) == processes
    assert result.status != "sandbox_error", result.note
    assert arena.secret not in f"{result.value}{result.note}"
    (healthy,) = sandbox.run(Job(source="print(6 * 7)", inputs=("",)))
    assert healthy.value == "42\n"
    assert server_pid(sandbox) == server
    return result


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in FOREIGN_CALLS])
def test_an_attack_is_refused(sandbox, arena, name):
    result = run(sandbox, arena, ATTACKS[name])
    assert result.status == "ok", result
    assert "BREACH" not in result.value


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other processors have one table of system calls")
@pytest.mark.parametrize("name", FOREIGN_CALLS)
def test_a_call_by_another_table_is_the_end(sandbox, arena, name):
    result = run(sandbox, arena, ATTACKS[name])
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


def test_a_crash_cannot_be_dumped(sandbox, arena):
    """What may be dumped has files in /proc that belong to its user, all else to root."""
    look = "import resource\nprint(resource.getrlimit(resource.RLIMIT_CORE))\n"
    look += "try: print(os.stat('/proc/self/stat').st_uid)\nexcept OSError: print('no /proc')"
    core, owner = run(sandbox, arena, PRELUDE + look).value.splitlines()
    assert core == "(0, 0)"
    assert owner == ("no /proc" if sandbox.tier == "A" else "0")


def test_inside_the_wall_only_the_interpreter_can_be_seen(sandbox, arena):
    if sandbox.tier == "A":
        names = ["/etc/passwd", "/home", "/proc/1", "/tmp", "/var"]
        result = run(sandbox, arena, f"{PRELUDE}print([name for name in {names} if os.path.exists(name)])")
        assert result.value == "[]\n"


@pytest.mark.parametrize("name", HARMLESS_ALONE)
def test_the_same_attack_works_without_a_sandbox(name):
    """The attacks are real: what is refused above is not a mistake in the program that tries it."""
    with closing(Arena()) as arena:
        bare = subprocess.run(
            [sys.executable, "-I", "-S", "-c", ATTACKS[name]],
            input=json.dumps({**arena.facts(), "home": str(arena.folder)}),
            capture_output=True,
            text=True,
            cwd=arena.folder,
        )
        assert "BREACH" in bare.stdout


@pytest.mark.slow
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


# searches the heap and Python's arenas; writing from an address that is not mapped fails instead of crashing
SEARCH = """
import ctypes, os, re
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
libc.write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
libc.write.restype = ctypes.c_ssize_t
reader, writer = os.pipe()
PAGE = 4096

def pages(address, step):
    while libc.write(writer, address, PAGE) == PAGE:
        yield os.read(reader, PAGE)
        address += step

def memory():
    end = libc.sbrk(0) // PAGE * PAGE
    yield from pages(end - PAGE, -PAGE)
    for thing in (object(), pages, os.environ, [0] * 1000):
        here = id(thing) // PAGE * PAGE
        yield from pages(here, PAGE)
        yield from pages(here - PAGE, -PAGE)

mark = re.compile(rb"(SOURCE|INPUT|OUTPUT|OWN)_MARK_[0-9]{4}")  # which does not match itself
text = "OWN_MARK_4567"
found = set()
size = 0
for page in memory():
    size += 1
    found.update(mark.findall(page))
print(size > 500, sorted(found))
"""


def test_nothing_of_an_earlier_program_is_in_memory(sandbox):
    # small texts would be overwritten soon
    source, words = "# SOURCE_MARK_1234\n" * 1000, "INPUT_MARK_3456 " * 1000
    script = source + "import sys\nprint(sys.stdin.read(), ('OUTPUT' + '_MARK_2345 ') * 1000)"
    function = source + "def f(x): return [x, ('OUTPUT' + '_MARK_2345 ') * 1000]"
    secret = Job(source=script, inputs=(words,))
    call = Job(source=function, entry="f", inputs=([words],))
    for job in (secret, call) * 3:
        assert "OUTPUT_MARK_2345" in str(sandbox.run(job)[0].value)
    (result,) = sandbox.run(Job(source=SEARCH, inputs=("",)))
    assert (result.status, result.value) == ("ok", "True [b'OWN']\n")
