"""The filter of system calls, instruction by instruction for both architectures, and Landlock against this kernel."""

import errno
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import prorl
from prorl.envs.sandbox.inside import confine

KILL, ALLOW = 0x80000000, 0x7FFF0000
EPERM, ENOSYS = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# read, openat, mmap, exit_group
HARMLESS = {"x86_64": (0, 257, 9, 231), "aarch64": (63, 56, 222, 94)}
# fork family, exec, sockets, kill family, ptrace, foreign memory, mounts, namespaces, new kinds of descriptors
FORBIDDEN = {
    "x86_64": {
        "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "socket": 41, "socketpair": 53,
        "connect": 42, "bind": 49, "sendmsg": 46, "kill": 62, "tkill": 200, "tgkill": 234, "rt_sigqueueinfo": 129,
        "pidfd_send_signal": 424, "pidfd_open": 434, "ptrace": 101, "process_vm_readv": 310,
        "process_vm_writev": 311, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272,
        "setns": 308, "bpf": 321, "keyctl": 250, "add_key": 248, "userfaultfd": 323, "io_uring_setup": 425,
        "io_uring_enter": 426, "perf_event_open": 298, "memfd_create": 319, "memfd_secret": 447, "prctl": 157,
        "arch_prctl": 158, "seccomp": 317, "ioctl": 16, "truncate": 76, "unlink": 87, "rename": 82, "link": 86,
        "symlink": 88, "chmod": 90, "chown": 92, "mkdir": 83, "utimensat": 280, "setuid": 105, "setresuid": 117,
        "setsid": 112, "setpriority": 141, "sched_setaffinity": 203, "sched_setscheduler": 144,
        "clock_settime": 227, "shmget": 29, "msgget": 68, "semget": 64, "mq_open": 240, "inotify_init1": 294,
        "fanotify_init": 300, "open_by_handle_at": 304, "kcmp": 312, "init_module": 175, "reboot": 169,
        "swapon": 167, "quotactl": 179, "personality": 135, "vmsplice": 278, "ioprio_set": 251, "splice": 275,
        "chdir": 80, "fallocate": 285, "timer_create": 222, "openat2": 437, "process_madvise": 440,
    },
    "aarch64": {
        "clone": 220, "execve": 221, "execveat": 281, "socket": 198, "socketpair": 199, "connect": 203, "kill": 129,
        "tkill": 130, "tgkill": 131, "ptrace": 117, "process_vm_readv": 270, "mount": 40, "unshare": 97,
        "setns": 268, "bpf": 280, "keyctl": 219, "userfaultfd": 282, "io_uring_setup": 425, "perf_event_open": 241,
        "memfd_create": 279, "prctl": 167, "seccomp": 277, "ioctl": 29, "truncate": 45, "unlinkat": 35,
        "renameat": 38, "setuid": 146, "setsid": 157, "sched_setaffinity": 122, "clock_settime": 112,
        "pidfd_open": 434, "personality": 92, "chdir": 49, "timer_create": 107, "init_module": 105,
    },
}  # fmt: skip


def verdict(program, number, *arguments, arch):
    """What the kernel would return for a system call."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, arch, 0, *padded)
    lines = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        code, on_true, on_false, operand = lines[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif code == 0x06:
            return operand
        else:
            holds = {0x15: accumulator == operand, 0x25: accumulator > operand, 0x35: accumulator >= operand}[
                code
            ]
            at += on_true if holds else on_false


@pytest.fixture(params=ARCHITECTURES)
def machine(request):
    return request.param


@pytest.fixture
def judge(machine):
    program = confine.assemble(machine)
    return lambda number, *arguments: verdict(program, number, *arguments, arch=ARCHITECTURES[machine])


def test_what_an_interpreter_needs_is_allowed(machine, judge):
    assert {judge(number) for number in HARMLESS[machine]} == {ALLOW}


def test_what_reaches_beyond_the_process_is_refused(machine, judge):
    answers = {name: judge(number) for name, number in FORBIDDEN[machine].items()}
    assert {name for name, answer in answers.items() if answer != EPERM} == set()


def test_clone3_looks_missing_so_that_libc_falls_back(judge):
    assert judge(435) == ENOSYS


@pytest.mark.parametrize("pointer", [0x1000, 1 << 32])
def test_limits_can_be_changed_of_oneself_only_and_that_on_processor_time_be_read(machine, judge, pointer):
    number = {"x86_64": 302, "aarch64": 261}[machine]
    assert judge(number, 0, 3) == ALLOW
    assert judge(number, 1234, 3) == EPERM
    assert judge(number, 0, 0, 0) == ALLOW
    assert judge(number, 0, 0, pointer) == EPERM
    assert judge(number, 0, 3, pointer) == ALLOW
    assert judge({"x86_64": 160, "aarch64": 164}[machine], 0) == EPERM


def test_fcntl_cannot_direct_signals(machine, judge):
    number = {"x86_64": 72, "aarch64": 25}[machine]
    assert {judge(number, 5, command) for command in (0, 1, 2, 3, 4, 1030)} == {ALLOW}
    assert {judge(number, 5, command) for command in (8, 10, 1031)} == {EPERM}


def test_other_architectures_and_x32_are_killed(machine):
    program = confine.assemble(machine)
    (foreign,) = set(ARCHITECTURES.values()) - {ARCHITECTURES[machine]}
    assert verdict(program, 0, arch=foreign) == KILL
    assert verdict(program, 0, arch=0x40000003) == KILL  # i386
    assert verdict(program, 0x40000000 | 57, arch=ARCHITECTURES[machine]) == KILL


@given(number=st.integers(450, 0x3FFFFFFF), machine=st.sampled_from(sorted(ARCHITECTURES)))
def test_calls_that_do_not_exist_yet_are_refused(number, machine):
    assert verdict(confine.assemble(machine), number, arch=ARCHITECTURES[machine]) == EPERM


pytestmark = pytest.mark.skipif(confine.landlock_abi() == 0, reason="this kernel has no Landlock")

RESTRICTED = """
import os, socket, sys
sys.path.append(sys.argv[1])
from prorl.envs.sandbox.inside import confine
version = min(int(sys.argv[3]), confine.landlock_abi())
confine.prctl(confine.SET_NO_NEW_PRIVS, 1)
folder = os.open(sys.argv[2], os.O_PATH)
confine.apply(confine.Confinement(rules=confine.ruleset(version, [folder]), filter=None, keep=()))
def attempt(action):
    try:
        action()
        return "done"
    except OSError as error:
        return type(error).__name__
inside, outside = sys.argv[2] + "/file", sys.argv[2] + "/../outside"
print(
    attempt(lambda: open(inside).read()),
    attempt(lambda: os.listdir(sys.argv[2])),
    attempt(lambda: open(outside).read()),
    attempt(lambda: open(inside, "a")),
    attempt(lambda: os.unlink(inside)),
    attempt(lambda: open(sys.argv[2] + "/new", "w")),
    attempt(lambda: os.mkdir(sys.argv[2] + "/folder")),
    attempt(lambda: os.execv("/bin/true", ["true"])),
)
"""


@pytest.mark.parametrize("version", range(1, 8))
def test_reading_beneath_the_named_folder_is_all_that_is_left(tmp_path, version):
    (tmp_path / "named").mkdir()
    (tmp_path / "named" / "file").write_text("x")
    (tmp_path / "outside").write_text("x")
    source = str(prorl.__path__[0]).removesuffix("/prorl")
    done = subprocess.run(
        [sys.executable, "-c", RESTRICTED, source, tmp_path / "named", str(version)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["done", "done", *["PermissionError"] * 6]
    assert (tmp_path / "named" / "file").read_text() == "x"
