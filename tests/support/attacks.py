"""Programs that try to get out of the sandbox. Each says BREACH when it managed what it should not."""

PRELUDE = """
import json, os, sys
A = json.load(sys.stdin)
def attempt(what, action, *args, **kwargs):
    try:
        outcome = action(*args, **kwargs)
    except (OSError, RuntimeError, ValueError) as error:
        print("refused", what, type(error).__name__, error)
    else:
        print("BREACH", what, repr(outcome)[:300])
def must(condition):
    if not condition:
        raise OSError("in vain")
def syscall(what, x86, arm, *args):
    import ctypes, platform
    def call():
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        number = arm if os.uname().machine == "aarch64" else x86
        if number is None:
            raise OSError("no such call here")
        result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if type(a) is int else a for a in args])
        if result == -1:
            raise OSError(ctypes.get_errno(), "errno")
        return result
    attempt(what, call)
"""

# "<row of the attack matrix>": a script; contained if it never prints BREACH and the arena is as it was
MATRIX = {
    "fork": """
        attempt("fork", os.fork)
        attempt("forkpty", os.forkpty)
        attempt("posix_spawn", os.posix_spawn, "/bin/true", ["true"], {})
        for flags in (17, 0x4111, 0x100 | 17):
            syscall("clone", 56, 220, flags, 0, 0, 0, 0)
        syscall("vfork", 58, None)
        syscall("clone3", 435, 435, bytes(64), 64)
    """,
    "files of others": """
        paths = [A["canary"], "/etc/shadow", "/etc/passwd", "/etc/gshadow", "/etc/hostname", "/boot", "/var/log"]
        for path in paths:
            attempt(path, lambda: open(path).read() if not os.path.isdir(path) else os.listdir(path))
        attempt("listing", os.listdir, A["folder"])
        attempt("home", os.listdir, A["home"])
        attempt("mmap", lambda: __import__("mmap").mmap(os.open(A["canary"], os.O_RDONLY), 1))
        attempt("path only", lambda: open("/proc/self/fd/%d" % os.open(A["canary"], os.O_PATH)).read())
    """,
    "environment": """
        if any("SECRET" in name or len(value) == 32 for name, value in os.environ.items()):
            print("BREACH environment", os.environ)
        for pid in ("self", str(os.getppid()), str(A["parent"]), "1"):
            for name in ("environ", "mem", "maps", "cmdline", "root", "cwd", "fd"):
                if (pid, name) not in {("self", "maps"), ("self", "cmdline"), ("self", "fd"), ("self", "environ")}:
                    attempt(pid + name, lambda: os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
        import ctypes
        environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
        index = 0
        while environ and environ[index]:
            if b"SECRET" in environ[index]:
                print("BREACH environ", environ[index])
            index += 1
    """,
    "network": """
        import socket
        def connect(family, address, kind=socket.SOCK_STREAM):
            with socket.socket(family, kind) as one:
                one.settimeout(1)
                one.connect(address)
                return address
        attempt("tcp", connect, socket.AF_INET, ("127.0.0.1", A["port"]))
        attempt("udp", connect, socket.AF_INET, ("127.0.0.1", A["port"]), socket.SOCK_DGRAM)
        attempt("path", connect, socket.AF_UNIX, A["path"])
        attempt("abstract", connect, socket.AF_UNIX, A["abstract"])
        attempt("pair", socket.socketpair)
        for family in (10, 16, 17, 31, 38, 40):
            attempt(f"family {family}", lambda: socket.socket(family, socket.SOCK_RAW).fileno())
        attempt("name", socket.gethostbyname, "example.com")
        import urllib.request
        attempt("url", urllib.request.urlopen, f"http://127.0.0.1:{A['port']}", timeout=1)
        for descriptor in range(64):
            try:
                socket.socket(fileno=os.dup(descriptor)).connect(("127.0.0.1", A["port"]))
            except OSError:
                pass
            else:
                print("BREACH socket", descriptor)
    """,
    "signals to others": """
        for target in (A["bystander"], A["parent"], os.getppid(), -os.getppid(), 1):
            attempt(f"kill {target}", os.kill, target, 9)
        attempt("all", os.kill, -1, 9)
        attempt("group", os.killpg, A["parent"], 9)
        syscall("tgkill", 234, 131, A["bystander"], A["bystander"], 9)
        syscall("tkill", 200, 130, A["bystander"], 9)
        syscall("sigqueue", 129, 138, A["bystander"], 9, bytes(128))
        syscall("pidfd_open", 434, 434, A["bystander"], 0)
        syscall("pidfd_send_signal", 424, 424, 3, 9, 0, 0)
        import fcntl
        for descriptor in range(8):
            attempt("owner", fcntl.fcntl, descriptor, fcntl.F_SETOWN, A["bystander"])
            attempt("signal", fcntl.fcntl, descriptor, 10, 9)
    """,
    "writing outside": """
        for folder in (A["folder"], "/usr", "/tmp", "/var/tmp", "/dev/shm", "/", ".", A["home"], "/run", "/code"):
            name = f"{folder}/breach"
            attempt(name, lambda: open(name, "w").write("x"))
            attempt("mkdir " + name, os.mkdir, name + "d")
            attempt("mknod " + name, os.mknod, name + "n")
            attempt("mkfifo " + name, os.mkfifo, name + "f")
            attempt("symlink " + name, os.symlink, A["canary"], name + "s")
            attempt("link " + name, os.link, A["canary"], name + "l")
            attempt("unnamed " + name, os.open, folder, os.O_TMPFILE | os.O_RDWR)
        attempt("append", lambda: open(A["canary"], "a").write("x"))
        attempt("truncate", os.truncate, A["canary"], 0)
        attempt("unlink", os.unlink, A["canary"])
        attempt("rename", os.rename, A["canary"], A["canary"] + "2")
        attempt("chmod", os.chmod, A["canary"], 0)
        attempt("chown", os.chown, A["canary"], 0, 0)
        attempt("utime", os.utime, A["canary"])
        attempt("xattr", os.setxattr, A["canary"], "user.x", b"x")
    """,
    "daemon": """
        def daemon():
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    import time
                    time.sleep(600)
                os._exit(0)
        attempt("daemon", daemon)
        attempt("setsid", os.setsid)
        syscall("pdeathsig", 157, 167, 1, 0, 0, 0, 0)
    """,
    "namespaces, mounts, ptrace": """
        for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x8000000, 0x4000000, 0x2000000, 0x80):
            syscall(f"unshare {flag:x}", 272, 97, flag)
        for flag in (0x10000000, 0x30000000):
            syscall("clone", 56, 220, flag | 17, 0, 0, 0, 0)
        syscall("setns", 308, 268, 3, 0)
        syscall("mount", 165, 40, b"none", b"/tmp", b"tmpfs", 0, 0)
        syscall("umount", 166, 39, b"/", 2)
        syscall("pivot_root", 155, 41, b".", b".")
        attempt("chroot", os.chroot, "/")
        for call in ((428, 0, b"/", 0), (429, 3, b"", 3, b"", 0), (430, b"tmpfs", 0), (442, 3, b"", 0, 0, 0)):
            syscall("new mount call", call[0], *call)
        for target in (os.getppid(), A["bystander"], A["parent"], 1):
            for request in (16, 0x4206):
                syscall("ptrace", 101, 117, request, target, 0, 0)
        syscall("traceme", 101, 117, 0, 0, 0, 0)
    """,
}
