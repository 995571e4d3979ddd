"""The system calls that a program may make, as a filter for the kernel. All others are refused with EPERM.

A list of what is allowed, not of what is forbidden: a call that a future kernel adds is refused until somebody
has thought about it. Nothing here creates a process or thread, reaches the network, another process or the
clock, changes a file by name, or waives a right that was taken before.
"""

from __future__ import annotations

import errno
import re
import resource
import struct

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# a name, its number on x86-64 / aarch64, - where the architecture lacks the call
_ALLOWED = """
# reading and writing what is open; opening by name is for Landlock to judge
read 0/63  write 1/64  readv 19/65  writev 20/66  pread64 17/67  pwrite64 18/68  lseek 8/62  close 3/57
close_range 436/436  open 2/-  openat 257/56  stat 4/-  lstat 6/-  fstat 5/80  newfstatat 262/79  statx 332/291
access 21/-  faccessat 269/48  faccessat2 439/439  readlink 89/-  readlinkat 267/78  getdents64 217/61
getcwd 79/17  dup 32/23  dup2 33/-  dup3 292/24  pipe 22/-  pipe2 293/59  eventfd2 290/19  ftruncate 77/46
fsync 74/82  umask 95/166
# waiting
poll 7/-  ppoll 271/73  select 23/-  pselect6 270/72  epoll_create1 291/20  epoll_ctl 233/21  epoll_wait 232/-
epoll_pwait 281/22
# its own memory
mmap 9/222  munmap 11/215  mprotect 10/226  mremap 25/216  madvise 28/233  brk 12/214
# signals and timers that only it receives
rt_sigaction 13/134  rt_sigprocmask 14/135  rt_sigreturn 15/139  rt_sigpending 127/136  rt_sigsuspend 130/133
rt_sigtimedwait 128/137  sigaltstack 131/132  alarm 37/-  pause 34/-  setitimer 38/103  getitimer 36/102
restart_syscall 219/128
# reading clocks
clock_gettime 228/113  clock_getres 229/114  clock_nanosleep 230/115  nanosleep 35/101  gettimeofday 96/169
time 201/-  times 100/153  getrusage 98/165
# about itself and the machine
futex 202/98  getpid 39/172  getppid 110/173  gettid 186/178  getuid 102/174  geteuid 107/175  getgid 104/176
getegid 108/177  getgroups 115/158  getpgrp 111/-  getresuid 118/148  getresgid 120/150  sched_yield 24/124
sched_getaffinity 204/123  sysinfo 99/179  uname 63/160  getrandom 318/278  getcpu 309/168  getrlimit 97/163
exit 60/93  exit_group 231/94
"""
_CLONE3 = 435
_FCNTL = (72, 25)
_PRLIMIT64 = (302, 261)
# F_DUPFD..F_SETFL; F_SETOWN and F_SETSIG would deliver a signal of choice to any process of the same user
_LAST_PLAIN_FCNTL = 4
_F_DUPFD_CLOEXEC = 1030

_NUMBER, _ARCH, _ARG0, _ARG1, _ARG2 = 0, 4, 16, 24, 32  # low words in struct seccomp_data (little endian)
_LOAD, _EQUAL, _GREATER, _AT_LEAST, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x06  # BPF instructions
_X32_BIT = 0x40000000
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_Line = tuple[int, int, int, int]  # instruction, lines to skip if true, if false, operand


def assemble(machine: str) -> bytes:
    """The filter as an array of `struct sock_filter`, for one of `AUDIT_ARCH` (`os.uname().machine`)."""
    column = list(AUDIT_ARCH).index(machine)
    lines = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _KILL),
        (_EQUAL, 0, 1, _CLONE3),  # its flags are behind a pointer; told that it is missing, libc tries clone
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        *_only_own_limits(_PRLIMIT64[column]),
        *_only_plain_fcntl(_FCNTL[column]),
        *_only_listed(column),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _only_own_limits(number: int) -> list[_Line]:
    """Not those of others, and no new limit on processor time: to reach it would be a SIGKILL of its own making."""
    return [
        (_EQUAL, 0, 10, number),
        (_LOAD, 0, 0, _ARG0),
        (_EQUAL, 0, 7, 0),
        (_LOAD, 0, 0, _ARG1),
        (_EQUAL, 0, 4, resource.RLIMIT_CPU),
        (_LOAD, 0, 0, _ARG2),  # where the new limit is; both words are zero where it is only read
        (_EQUAL, 0, 3, 0),
        (_LOAD, 0, 0, _ARG2 + 4),
        (_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]


def _only_plain_fcntl(number: int) -> list[_Line]:
    return [
        (_EQUAL, 0, 5, number),
        (_LOAD, 0, 0, _ARG1),
        (_EQUAL, 1, 0, _F_DUPFD_CLOEXEC),
        (_GREATER, 1, 0, _LAST_PLAIN_FCNTL),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]


def _only_listed(column: int) -> list[_Line]:
    """Allow the ranges of consecutive numbers in ascending order; a number below the next range is in none."""
    pairs = [pair.split("/") for pair in re.sub("#.*", "", _ALLOWED).split()[1::2]]
    numbers = sorted(int(pair[column]) for pair in pairs if pair[column] != "-")
    lines: list[_Line] = []
    lows = [number for number in numbers if number - 1 not in numbers]
    highs = [number for number in numbers if number + 1 not in numbers]
    for low, high in zip(lows, highs, strict=True):
        lines += [
            (_GREATER, 3, 0, high),
            (_AT_LEAST, 0, 1, low),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        ]
    return lines
