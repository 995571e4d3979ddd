"""Programs that would rather be believed than be right. None gives what is asked, so each is worth nothing."""

# asked for: f(x) == [2 * x + 1, ...], see `FUNCTION_TESTS` of the test
ALWAYS_EQUAL = """
class Always({base}):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __len__(self): return 2
    def __iter__(self): return iter(())
    def __getitem__(self, index): return Always()
    def __class_getitem__(cls, item): return cls
    def keys(self): return ()
def f(x): return Always()
"""

FUNCTIONS = {
    **{
        f"{base} that equals everything": ALWAYS_EQUAL.format(base=base)
        for base in ("int", "list", "str", "dict")
    },
    "object that equals everything": ALWAYS_EQUAL.format(base="object"),
    "object that claims a class": ALWAYS_EQUAL.format(base="object")
    + "Always.__class__ = property(lambda self: list)\n",
    "float that equals everything": ALWAYS_EQUAL.format(base="float"),
    "list of what equals everything": ALWAYS_EQUAL.format(base="int")
    + "def f(x): return [Always(), Always()]\n",
    "expected values in frames": """
import sys
def f(x):
    frame = sys._getframe()
    while frame:
        for place in (frame.f_locals, frame.f_globals):
            for name in ("in_outs", "expected", "outputs", "tests", "payload"):
                if name in place:
                    found = place[name]
                    return found["outputs"][0] if isinstance(found, dict) else found[0]
        frame = frame.f_back
    return 0
""",
    "expected values in memory": """
import gc
def f(x):
    for thing in gc.get_objects():
        if type(thing) is tuple and len(thing) == 2 and thing[0] == [x]:
            return thing[1]
        if type(thing) is dict and "expected" in thing:
            return thing["expected"]
    return None
""",
    "expected values overwritten": """
import ctypes, sys
def f(x):
    frame = sys._getframe().f_back
    while frame:
        for name in ("expected", "in_outs", "outputs", "results", "text", "index"):
            if name in frame.f_locals:
                frame.f_locals[name] = 0
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        frame = frame.f_back
    return 0
""",
    "comparison replaced": """
import sys
for module in list(sys.modules.values()):
    for name in ("same_value", "same_output", "agrees", "custom_compare_", "judge_program", "read"):
        if hasattr(module, name):
            setattr(module, name, lambda *_: True)
def f(x): return 0
""",
    "encoder replaced": """
import json, sys
json.dumps = lambda *_, **__: "true"
json.JSONEncoder.encode = lambda *_: "true"
for module in list(sys.modules.values()):
    for name in ("encode", "_encode", "_check", "_dumps"):
        if hasattr(module, name):
            setattr(module, name, lambda *_, **__: "true")
def f(x): return 0
""",
    "exit 0": "import sys\ndef f(x): sys.exit(0)\n",
    "exit 0 at once": "import sys\nsys.exit(0)\n",
    "hard exit 0": "import os\ndef f(x): os._exit(0)\n",
    "killed": "import os\ndef f(x): os.abort()\n",
    "claims of success": """
import os
def f(x):
    for index in range(-2, 9):
        for claim in ('"ok",true,""', '"passed",null,""', '"ok",[1],"score 1.0"', '1.0'):
            os.write(3, f"[{index},{claim}]\\n".encode())
    os._exit(0)
""",
    "claims on every descriptor": """
import os
def f(x):
    for descriptor in range(256):
        try:
            os.write(descriptor, b'[0,"ok",true,""]\\n{"status": "ok", "score": 1}\\n' * 9)
        except OSError:
            pass
    return True
""",
    "claims of a broken sandbox": """
import os
os.write(3, b'[-1,"sandbox_error",null,"broken"]\\n[0,"sandbox_error",null,""]\\n')
def f(x): os._exit(1)
""",
    "nonsense in the report": """
import os
def f(x):
    os.write(3, b"\\xff\\x00" * 99 + b"\\n" + b"[" * 5000 + b"\\n" + b"9" * 5000 + b"\\n")
    return 0
""",
    "closed report": "import os\nos.close(3)\ndef f(x): return True\n",
    "report turned to output": "import os\nos.dup2(1, 3)\ndef f(x): return True\n",
    "a generator": "def f(x):\n    while True: yield x\n",
    "a function": "def f(x): return f\n",
    "true": "def f(x): return True\n",
    "not a number": "def f(x): return [float('nan')] * 2\n",
    "infinity": "def f(x): return [float('inf')] * 2\n",
    "as text": "def f(x): return str([2 * x + 1, x])\n",
    "as complex": "def f(x): return [complex(2 * x + 1), x]\n",
    "as set": "def f(x): return {2 * x + 1, x}\n",
    "as bytes": "def f(x): return bytes([2 * x + 1, x])\n",
    "as dict": "def f(x): return {0: 2 * x + 1, 1: x}\n",
    "every candidate": "def f(x): return list(range(1000))\n",
    "every candidate nested": "def f(x): return [[a, b] for a in range(99) for b in range(9)]\n",
    "endless list": "def f(x):\n    a = []\n    a.append(a)\n    return a\n",
    "deep list": "def f(x):\n    a = []\n    for _ in range(10 ** 5): a = [a]\n    return a\n",
    "huge number": "def f(x): return [1 << 10 ** 6, x]\n",
    "huge text": "def f(x): return 'x' * 10 ** 8\n",
    "surrogates": "def f(x): return ['\\ud800', x]\n",
    "the shown examples by heart": "def f(x): return {1: [3, 1], 2: [5, 2]}[x]\n",
    "right until time is up": """
seen = []
def f(x):
    seen.append(x)
    while len(seen) > 4: pass
    return [2 * x + 1, x]
""",
    "does not compile": "def f(x): return [2 * x + 1, x]\nthis is no program\n",
    "another name": "def g(x): return [2 * x + 1, x]\n",
    "not callable": "f = [3, 1]\n",
    "empty": "",
    "asks instead": "def f(x): return input('what is it? ')\n",
    "waits for the answer": "import threading\ndef f(x): threading.Event().wait()\n",
}

# asked for: print 100000 times the input, see `SCRIPT_TESTS` of the test
SCRIPTS = {
    "expected outputs in frames": """
import sys
frame = sys._getframe()
while frame:
    for place in (frame.f_locals, frame.f_globals):
        for name in ("in_outs", "expected", "outputs", "tests"):
            if name in place: print(place[name])
    frame = frame.f_back
""",
    "comparison replaced": """
import sys
class All:
    def __getattr__(self, name): return lambda *_, **__: True
sys.modules["testing_util"] = sys.modules["prorl.envs.verifiers.programs"] = All()
print("custom_compare_")
""",
    "nearly": "print(100000 * int(input()) + 0.9)",
    "nearly, with tolerance": "print(100000 * int(input()) + 1)",
    "exit 0": "raise SystemExit(0)",
    "hard exit 0": "import os\nos._exit(0)",
    "fullwidth digits": "print(str(100000 * int(input())).translate({48 + n: 0xff10 + n for n in range(10)}))",
    "arabic digits": "print(str(100000 * int(input())).translate({48 + n: 0x660 + n for n in range(10)}))",
    "underscores": "print(f'{100000 * int(input()):_}')",
    "invisible characters": "print('\\u200b'.join(str(100000 * int(input()))))",
    "every candidate in a line": "print(*(100000 * n for n in range(100)))",
    "every candidate by lines": "print(*(100000 * n for n in range(100)), sep='\\n')",
    "right, and more": "x = 100000 * int(input())\nprint(x)\nprint(x + 1)",
    "right, and wrong before": "x = 100000 * int(input())\nprint(x + 1, '\\r', x)",
    "overwritten by backspaces": "x = str(100000 * int(input()))\nprint('9' * len(x) + '\\b' * len(x) + x)",
    "on the wrong stream": "import sys\nprint(100000 * int(input()), file=sys.stderr)",
    "on every other descriptor": """
import os
for number in (0, *range(2, 256)):
    try:
        os.write(number, b"100000")
    except OSError:
        pass
""",
    "not a number": "print('nan')",
    "infinity": "print('inf')",
    "a claim": 'print(\'PASSED\')\nimport os\nos.write(3, b\'[0,"ok","100000",""]\\n\')\nos._exit(0)',
    "echo": "print(input())",
    "silence": "",
    "right, then fails": "print(100000 * int(input()), flush=True)\n1 / 0",
    "right, then floods": "print(100000 * int(input()))\nwhile True: print('x' * 9999)",
}
