"""Programs that use up whatever they can get, and how each may end."""

# source, and the statuses that are right
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
