"""How people write contest programs: each with an input and what is right for it, and whether it gets it right.

`SCRIPTS` and `CALLS` are right and `WRONG_…` are wrong in plain CPython too; `FORBIDDEN` are right only there.
"""

from __future__ import annotations

from typing import Any

SUM = "3\n1 2 3\n"  # a count and numbers, as most inputs are
GRID = "2 3\na.b\n.#.\n"

# name: (program, standard input, right output)
SCRIPTS: dict[str, tuple[str, str, str]] = {
    # reading
    "input": ("n = int(input())\nprint(sum(map(int, input().split())))", SUM, "6"),
    "input with a prompt": ("x = int(input('')) ; print(x)", "5", "5"),
    "input with spaces around": ("print(*map(int, input().split()))", "  1   2 \n", "1 2"),
    "input until the end": (
     "total = 0\nwhile True:\n    try: total += int(input())\n    except EOFError: break\nprint(total)", "1\n2\n3",
     "6"),
    "iter of input": ("print(sum(int(line) for line in iter(input, '')))", "1\n2\n\n", "3"),
    "readline": ("import sys\ninput = sys.stdin.readline\ninput()\nprint(sum(map(int, input().split())))", SUM,
     "6"),
    "readline with a method": ("import sys\nn = int(sys.stdin.readline())\nprint(sys.stdin.readline().strip()[::-1])",
     SUM, "3 2 1"),
    "readlines": ("import sys\nlines = sys.stdin.readlines()\nprint(len(lines), lines[-1].rstrip())", SUM,
     "2 1 2 3"),
    "read": ("import sys\nprint(sum(map(int, sys.stdin.read().split()[1:])))", SUM, "6"),
    "read from the module's name": ("from sys import stdin\nprint(stdin.read().count(' '))", SUM, "2"),
    "iterate over stdin": ("import sys\nfor line in sys.stdin: print(len(line.split()))", SUM, "1\n3"),
    "map over stdin": ("import sys\nprint(max(max(map(int, line.split())) for line in sys.stdin))", SUM, "3"),
    "next of tokens": ("import sys\ndata = iter(sys.stdin.read().split())\nn = int(next(data))\n"
     "print(sum(int(next(data)) for _ in range(n)))", SUM, "6"),
    "buffer read": ("import sys\nd = sys.stdin.buffer.read().split()\nprint(int(d[0]) + int(d[1]))", SUM, "4"),
    "buffer readline": (
     "import sys\ninput = sys.stdin.buffer.readline\nn = int(input())\nprint(sum(map(int, input().split())))", SUM,
     "6"),
    "splitlines": (
     "import sys\ninput = iter(sys.stdin.read().splitlines()).__next__\nn = int(input())\nprint(input())", SUM,
     "1 2 3"),
    "open 0": ("_, *rows = open(0)\nprint(sum(map(int, rows[0].split())))", SUM, "6"),
    "open 0 read": ("n, *a = map(int, open(0).read().split())\nprint(n, a)", SUM, "3 [1, 2, 3]"),
    "open 0 in binary": ("print(len(open(0, 'rb').read()))", SUM, "8"),
    "open dev stdin": ("with open('/dev/stdin') as f: print(f.read().split()[-1])", SUM, "3"),
    "path of dev stdin": ("from pathlib import Path\nprint(Path('/dev/stdin').open().readline())", SUM, "3"),
    "stdin is another file": ("import sys\nsys.stdin = open(0)\ninput()\nprint(input())", SUM, "1 2 3"),
    "os read": ("import os\nprint(sum(map(int, os.read(0, 10**6).split())))", SUM, "9"),
    "os read of its size": ("import os, io\nstream = io.BytesIO(os.read(0, os.fstat(0).st_size))\nstream.readline()\n"
     "print(sum(map(int, stream.readline().split())))", SUM, "6"),
    "fileinput": ("import fileinput\nprint([line.strip() for line in fileinput.input()])", SUM, "['3', '1 2 3']"),
    "text over bytes": (
     "import sys, io\nlines = io.TextIOWrapper(sys.stdin.buffer, encoding='utf-8')\nprint(lines.read().split())",
     SUM, "['3', '1', '2', '3']"),
    "codecs": ("import codecs, sys\nprint(codecs.getreader('utf-8')(sys.stdin.buffer).read().split()[0])", SUM,
     "3"),
    "a class of fast input": ("import os, sys\nfrom io import BytesIO, IOBase\n"
     "class FastIO(IOBase):\n"
     "    newlines = 0\n"
     "    def __init__(self, file):\n"
     "        self._file, self._fd = file, file.fileno()\n"
     "        self.buffer, self.writable = BytesIO(), 'x' in file.mode or 'r' not in file.mode\n"
     "        self.write = self.buffer.write if self.writable else None\n"
     "    def readline(self):\n"
     "        while self.newlines == 0:\n"
     "            b = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192))\n"
     "            self.newlines = b.count(b'\\n') + (not b)\n"
     "            ptr = self.buffer.tell()\n"
     "            self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)\n"
     "        self.newlines -= 1\n"
     "        return self.buffer.readline()\n"
     "    def flush(self):\n"
     "        if self.writable:\n"
     "            os.write(self._fd, self.buffer.getvalue())\n"
     "            self.buffer.truncate(0), self.buffer.seek(0)\n"
     "class IOWrapper(IOBase):\n"
     "    def __init__(self, file):\n"
     "        self.buffer = FastIO(file)\n"
     "        self.flush, self.writable = self.buffer.flush, self.buffer.writable\n"
     "        self.write = lambda s: self.buffer.write(s.encode('ascii'))\n"
     "        self.readline = lambda: self.buffer.readline().decode('ascii')\n"
     "sys.stdin, sys.stdout = IOWrapper(sys.stdin), IOWrapper(sys.stdout)\n"
     "input = lambda: sys.stdin.readline().rstrip('\\r\\n')\n"
     "n = int(input())\nsys.stdout.write(str(sum(map(int, input().split()))) + '\\n')\nsys.stdout.flush()", SUM,
     "6"),
    "windows lines": ("print(sum(int(input()) for _ in range(2)))", "1\r\n2\r\n", "3"),
    "a grid": ("h, w = map(int, input().split())\ng = [list(input()) for _ in range(h)]\nprint(g[1][1])", GRID,
     "#"),
    "no input at all": ("print('Hello')", "", "Hello"),
    # writing
    "print with an end": ("for i in range(3): print(i, end=' ')", "", "0 1 2"),
    "print with an end and a line": ("for i in range(3): print(i, end=' ')\nprint()", "", "0 1 2\n"),
    "print with a separator": ("print(1, 2, 3, sep='\\n')", "", "1\n2\n3"),
    "print star": ("print(*range(4))", "", "0 1 2 3"),
    "print join": ("print('\\n'.join(map(str, [1, 2])))", "", "1\n2"),
    "trailing spaces": ("print('1 2 ')\nprint('3   ')", "", "1 2\n3"),
    "blank lines at the end": ("print('1\\n\\n\\n')", "", "1"),
    "blank lines between": ("print(1)\nprint()\nprint(2)", "", "1\n2"),
    "blank line at the start": ("print('\\n1')", "", "1"),
    "stdout write": ("import sys\nsys.stdout.write('1\\n')\nsys.stdout.write('2')", "", "1\n2"),
    "stdout writelines": ("import sys\nsys.stdout.writelines(f'{i}\\n' for i in range(2))", "", "0\n1"),
    "stdout buffer": ("import sys\nsys.stdout.buffer.write(b'42\\n')", "", "42"),
    "stdout wrapped": (
     "import sys, io\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint('x')", "", "x"),
    "print is write": ("import sys\nprint = sys.stdout.write\nprint('a\\n')", "", "a"),
    "collected in a text": (
     "import sys, io\nout = io.StringIO()\nprint(1, file=out)\nsys.stdout.write(out.getvalue())", "", "1"),
    "os write": ("import os\nos.write(1, b'7\\n')", "", "7"),
    "debug output": ("import sys\nprint('debug', file=sys.stderr)\nprint(1)", "", "1"),
    "flush": ("import sys\nprint(1, flush=True)\nsys.stdout.flush()", "", "1"),
    "output at the end": ("import atexit\natexit.register(lambda: print('done'))", "", "done"),
    # leaving
    "exit": ("print(1)\nexit()\nprint(2)", "", "1"),
    "exit with 0": ("print(1)\nexit(0)", "", "1"),
    "quit": ("print(1)\nquit()", "", "1"),
    "exit in a function": ("def solve():\n    print('NO')\n    exit()\nsolve()\nprint('YES')", "", "NO"),
    "sys exit": ("import sys\nprint(1)\nsys.exit()", "", "1"),
    "sys exit with 1": ("import sys\nprint(1)\nsys.exit(1)", "", "1"),
    "sys exit with a text": ("import sys\nprint(1)\nsys.exit('bye')", "", "1"),
    "raise SystemExit": ("print(1)\nraise SystemExit", "", "1"),
    "os exit": ("import os, sys\nprint(1)\nsys.stdout.flush()\nos._exit(0)", "", "1"),
    "exit of main": ("import sys\ndef main():\n    print(1)\n    return 0\nsys.exit(main())", "", "1"),
    # shape of a program
    "main guard": ("def main():\n    print(int(input()) * 2)\nif __name__ == '__main__':\n    main()", "4", "8"),
    "main called": ("def main():\n    print(int(input()) * 2)\nmain()", "4", "8"),
    "global state": ("n = 0\ndef add():\n    global n\n    n += 1\nadd()\nadd()\nprint(n)", "", "2"),
    "many cases": ("for _ in range(int(input())):\n    a, b = map(int, input().split())\n    print(a - b)",
     "2\n5 3\n1 2", "2\n-1"),
    "a class": ("class S:\n    def run(self):\n        return int(input()) + 1\nprint(S().run())", "1", "2"),
    "a future import": ("from __future__ import annotations\nx: Unknown = 1\nprint(x)", "", "1"),
    "a dataclass": ("from __future__ import annotations\nfrom dataclasses import dataclass, field\n"
     "@dataclass(order=True)\nclass P:\n    x: int\n    y: list = field(default_factory=list)\nprint(P(1) < P(2))",
     "", "True"),
    "walrus and match": ("match (n := int(input())):\n    case 1: print('one')\n    case _: print(n)", "2", "2"),
    "unicode": ("print(input()[::-1])", "äöü", "üöä"),
    # threads, as they are used for a deep stack
    "main in a thread": ("import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(2**27)\n"
     "def f(n): return 0 if n == 0 else 1 + f(n - 1)\ndef main(): print(f(int(input())))\n"
     "threading.Thread(target=main).start()", "50000", "50000"),
    "main in a thread that is joined": ("import threading\ndef main(): print(int(input()) + 1)\n"
     "t = threading.Thread(target=main)\nt.start()\nt.join()\nprint(t.is_alive())", "1", "2\nFalse"),
    "exit in a thread": ("import threading, sys\ndef main():\n    print(1)\n    sys.exit()\n    print(2)\n"
     "threading.Thread(target=main).start()", "", "1"),
    "threads with arguments and a lock": ("import threading\nlock, total = threading.Lock(), []\n"
     "def add(n):\n    with lock: total.append(n)\n"
     "ts = [threading.Thread(target=add, args=(i,), daemon=True) for i in range(4)]\n"
     "for t in ts: t.start()\nfor t in ts: t.join()\nprint(sum(total))", "", "6"),
    "a thread class": ("import threading\nclass T(threading.Thread):\n    def run(self): print(self.name[:6])\n"
     "t = T()\nt.start()\nt.join()", "", "Thread"),
    # recursion
    "deep recursion": (
     "import sys\nsys.setrecursionlimit(10**7)\ndef f(n):\n    return n and 1 + f(n - 1)\nprint(f(30000))", "",
     "30000"),
    "lru_cache recursion": ("import sys\nfrom functools import lru_cache\nsys.setrecursionlimit(10**6)\n"
     "@lru_cache(None)\ndef f(n): return n if n < 2 else (f(n - 1) + f(n - 2)) % 1000007\nprint(f(3000))", "",
     "109942"),
    "cache": ("from functools import cache\n@cache\ndef f(n): return 1 if n == 0 else n * f(n - 1)\nprint(f(20))",
     "", "2432902008176640000"),
    "stack limit": ("import resource as r, sys\nr.setrlimit(r.RLIMIT_STACK, (r.RLIM_INFINITY, r.RLIM_INFINITY))\n"
     "sys.setrecursionlimit(10**6)\nprint(1)", "", "1"),
    "a trampoline of generators": ("from types import GeneratorType\n"
     "def bootstrap(f, stack=[]):\n"
     "    def wrapped(*args):\n"
     "        if stack: return f(*args)\n"
     "        to = f(*args)\n"
     "        while True:\n"
     "            if type(to) is GeneratorType:\n"
     "                stack.append(to)\n"
     "                to = next(to)\n"
     "            else:\n"
     "                stack.pop()\n"
     "                if not stack: return to\n"
     "                to = stack[-1].send(to)\n"
     "    return wrapped\n"
     "@bootstrap\ndef f(n):\n    if n == 0: yield 0\n    yield 1 + (yield f(n - 1))\nprint(f(5000))", "", "5000"),
    "recursion that is caught": ("def f(): f()\ntry:\n    f()\nexcept RecursionError:\n    print('deep')", "",
     "deep"),
    # the library
    "heapq": ("import heapq\nh = []\nfor x in (3, 1, 2): heapq.heappush(h, -x)\nprint(-heapq.heappop(h))", "", "3"),
    "bisect": ("from bisect import *\nprint(bisect_left([1, 3, 5], 3), bisect([1, 3, 5], 3))", "", "1 2"),
    "collections": (
     "from collections import *\nq = deque([1, 2]); q.rotate(1)\nd = defaultdict(list); d[1].append(2)\n"
     "print(list(q), dict(d), Counter('aab').most_common(1))", "", "[2, 1] {1: [2]} [('a', 2)]"),
    "itertools": ("from itertools import *\nprint(sum(1 for _ in permutations('abc')), *accumulate([1, 2, 3]))", "",
     "6 1 3 6"),
    "math": ("from math import *\nprint(gcd(12, 18), comb(5, 2), isqrt(17), factorial(5))", "", "6 10 4 120"),
    "decimal": ("from decimal import *\ngetcontext().prec = 30\nprint(Decimal(1) / Decimal(7))", "",
     "0.142857142857142857142857142857"),
    "fractions": ("from fractions import Fraction\nprint(Fraction(1, 3) + Fraction(1, 6))", "", "1/2"),
    "generators": ("def g():\n    yield from range(3)\nprint(*g())", "", "0 1 2"),
    "comprehensions": ("print({x: x * x for x in range(3)}, sorted({3, 1, 2}))", "",
     "{0: 0, 1: 1, 2: 4} [1, 2, 3]"),
    "regular expressions": ("import re\nprint(re.findall(r'\\d+', input()))", "a1b22", "['1', '22']"),
    "big numbers": ("print(2 ** 200, pow(3, 10**9, 10**9 + 7), pow(3, -1, 7))", "",
     f"{2**200} {pow(3, 10**9, 10**9 + 7)} 5"),
    "comparing by a function": (
     "from functools import cmp_to_key\norder = cmp_to_key(lambda a, b: -1 if a + b > b + a else 1)\n"
     "print(*sorted(['3', '30', '34'], key=order))", "", "34 3 30"),
    "string": ("import string\nprint(string.ascii_lowercase[:3], ord('a'), chr(98), 'abc'.translate({97: 'x'}))",
     "", "abc 97 b xbc"),
    "binary": ("print(bin(10)[2:], int('ff', 16), f'{5:08b}', (255).bit_length())", "", "1010 255 00000101 8"),
    "datetime": ("from datetime import date, timedelta\nprint(date(2024, 2, 28) + timedelta(2))", "", "2024-03-01"),
    "arrays": ("from array import array\na = array('i', [0]) * 3\na[1] = 5\nprint(a.tolist())", "", "[0, 5, 0]"),
    "time and garbage": ("import time, gc\ngc.disable()\nt = time.time()\nprint(time.time() - t < 5)", "", "True"),
    "json and complex": ("import json\nprint(json.dumps([1, None]), (1 + 2j) * 1j)", "", "[1, null] (-2+1j)"),
    "names of the environment": ("import os\nprint('ONLINE_JUDGE' in os.environ, os.path.exists('input.txt'))", "",
     "False False"),
    # numbers
    "fewer digits": ("print(1 / 2)", "", "0.500000"),
    "more digits": ("print('%.9f' % 0.25)", "", "0.25"),
    "a whole float": ("print(6 / 2)", "", "3"),
    "rounding noise": ("print(0.1 * 3)", "", "0.3"),
    "nearly whole": ("print(2 ** 0.5 * 2 ** 0.5)", "", "2"),
    "an exponent": ("print(1e-7, 1e16)", "", "0.0000001 10000000000000000"),
    "floats among words": ("print(f'Case #1: {1 / 3:.8f}')", "", "Case #1: 0.333333333333"),
    "formatting": ("print('{:.2f}'.format(3.14159), round(2.675, 2), '%d' % 3.9)", "", "3.14 2.67 3"),
}  # fmt: skip

# … and programs that are not right
WRONG_SCRIPTS: dict[str, tuple[str, str, str]] = {
    "off by one": ("print(sum(map(int, input().split())) + 1)", "1 2", "3"),
    "a crash after the output": ("print(3)\n1 / 0", "", "3"),
    "a failed assertion": ("print(3)\nassert False", "", "3"),
    "reading past the end": ("print(3)\ninput()", "", "3"),
    "leaving too early": ("import sys\nsys.exit()\nprint(3)", "", "3"),
    "leaving without a flush": ("import os\nprint(3)\nos._exit(0)", "", "3"),
    "endless recursion": ("def f(): return f()\nprint(3)\nf()", "", "3"),
    "an unknown name": ("print(undefined_name_of_nothing)", "", "3"),
    "a syntax error": ("print(3", "", "3"),
    "a neighbouring large integer": ("print(10**16)", "", "10000000000000001"),
    "a large integer as a float": ("print(float(10000000000000001))", "", "10000000000000001"),
    "half for a whole": ("print(1000000001 / 2)", "", "500000000"),
    "too inexact": ("print(0.3334)", "", "0.333333333"),
    "another case": ("print('Yes')", "", "YES"),
    "a number as a word": ("print(True)", "", "1"),
    "one line for two": ("print(1, 2)", "", "1\n2"),
    "two lines for one": ("print(1)\nprint(2)", "", "1 2"),
    "a word too many": ("print('answer:', 3)", "", "3"),
    "a list as Python writes it": ("print([1, 2])", "", "1 2"),
    "another order": ("print(2, 1)", "", "1 2"),
    "leading zeros": ("print('0101')", "", "101"),
    "nothing": ("", "", "3"),
    "only an error message": ("import sys\nprint(3, file=sys.stderr)", "", "3"),
    "a main that is never called": ("def main(): print(3)", "", "3"),
}  # fmt: skip

TWO_SUM = (
    "class Solution:\n    def f(self, nums: List[int], target: int) -> List[int]:\n"
    "        seen: Dict[int, int] = {}\n"
    "        for i, x in enumerate(nums):\n            if target - x in seen: return [seen[target - x], i]\n"
    "            seen[x] = i"
)

# name: (function or class `Solution` with a method f, arguments, right result)
CALLS: dict[str, tuple[str, list[Any], Any]] = {
    "function": ("def f(a, b): return a + b", [1, 2], 3),
    "solution with types": (TWO_SUM, [[2, 7, 11], 9], [0, 1]),
    "solution with an optional": (
     "class Solution:\n    def f(self, x: Optional[int] = None) -> 'Tuple[int, Any]': return x, None", [3],
     [3, None]),
    "names of the prelude": (
     "def f(a):\n    c = Counter(a); d = defaultdict(int); q = deque(a); h = list(a); heapify(h)\n"
     "    return [gcd(4, 6), bisect_left(a, 2), c[1], heappop(h), inf > 1, reduce(add, a), ascii_lowercase[0]]",
     [[1, 2]], [2, 1, 1, 1, True, 3, "a"]),
    "modules of the prelude": (
     "def f(a): return [math.sqrt(a), len(list(itertools.permutations('ab'))), collections.Counter('x')['x'], "
     "heapq.nsmallest(1, [2, 1]), bisect.bisect([1], 1), functools.reduce(max, [1, 2]), re.sub('a', 'b', 'a'), "
     "string.digits[1], sys.maxsize > 0]", [4], [2, 2, 1, [1], 1, 2, "b", "1", True]),
    "a cached method": (
     "class Solution:\n    @cache\n    def g(self, n): return n if n < 2 else self.g(n - 1) + self.g(n - 2)\n"
     "    def f(self, n): return self.g(n)", [60], 1548008755920),
    "an inner cache": ("class Solution:\n    def f(self, n):\n        @lru_cache(None)\n"
     "        def dp(i): return 0 if i == 0 else 1 + dp(i - 1)\n"
     "        return dp(n)", [800], 800),
    "recursion without a limit set": ("def f(n): return 0 if n == 0 else 1 + f(n - 1)", [20_000], 20_000),
    "pow with three arguments": ("def f(a): return [pow(a, 2, 7), abs(-1), max(1, 2), sum([1]), open is not None]",
     [3], [2, 1, 2, 1, True]),
    "own imports": ("from math import sqrt\nimport collections\ndef f(a): return sqrt(a)", [9], 3),
    "a helper class": (
     "class Node:\n    def __init__(self, v): self.v = v\nclass Solution:\n    def f(self, v): return Node(v).v",
     [5], 5),
    "a test below the guard": ("def f(a): return a\nif __name__ == '__main__':\n    print(f(int(input())))", [5],
     5),
    "prints too": ("def f(a):\n    print('debug', a)\n    return a", [5], 5),
    "a tuple for a list": ("def f(): return (1, (2, 3))", [], [1, [2, 3]]),
    "a whole float": ("def f(): return 4 / 2", [], 2),
    "an integer for a float": ("def f(): return 2", [], 2.0),
    "rounding noise": ("def f(): return [0.1 * 3]", [], [0.3]),
    "a bool for a number": ("def f(): return 1 == 1", [], 1),
    "a number for a bool": ("def f(): return [1, 0]", [], [True, False]),
    "integer keys": ("def f(): return {1: 2, 3: {4: 5}}", [], {"1": 2, "3": {"4": 5}}),
    "a counter": ("def f(s): return Counter(s)", ["aab"], {"a": 2, "b": 1}),
    "a defaultdict": ("def f(s):\n    d = defaultdict(list)\n    d[s].append(1)\n    return d", ["a"], {"a": [1]}),
    "an ordered dict": ("def f(): return OrderedDict(b=1, a=2)", [], {"a": 2, "b": 1}),
    "a named tuple": ("P = namedtuple('P', 'x y')\ndef f(): return [P(1, 2)]", [], [[1, 2]]),
    "nothing": ("def f(a): a.sort()", [[2, 1]], None),
    "text": ("def f(s): return s[::-1]", ["abc"], "cba"),
    "a generator made a list": ("def f(n): return list(x * x for x in range(n))", [3], [0, 1, 4]),
}  # fmt: skip
WRONG_CALLS: dict[str, tuple[str, list[Any], Any]] = {
    "text for a number": ("def f(): return '3'", [], 3),
    "a number for text": ("def f(): return 3", [], "3"),
    "a neighbouring large integer": ("def f(): return 10**16", [], 10**16 + 1),
    "a large integer as a float": ("def f(): return 1e16", [], 10**16 + 1),
    "too inexact": ("def f(): return 0.3334", [], 0.33333333),
    "half for a whole": ("def f(): return 500000000.5", [], 500000000),
    "another order": ("def f(): return [2, 1]", [], [1, 2]),
    "one element too few": ("def f(): return [1]", [], [1, 2]),
    "a list for its element": ("def f(): return [3]", [], 3),
    "another key": ("def f(): return {1: 2}", [], {"2": 2}),
    "nothing for a list": ("def f(a): a.append(1)", [[0]], [0, 1]),
    "an exception": ("def f(): raise ValueError", [], None),
    "the wrong number of arguments": ("def f(a): return 3", [], 3),
    "no such function": ("def g(): return 3", [], 3),
    "printed and not returned": ("def f(): print(3)", [], 3),
    "a set": ("def f(): return {1, 2}", [], [1, 2]),
    "a generator": ("def f():\n    yield 1", [], [1]),
    "an exit": ("import sys\ndef f(): sys.exit()", [], None),
}  # fmt: skip

# name: (script, standard input, right output, its row in docs/sandbox.md)
FORBIDDEN: dict[str, tuple[str, str, str, str]] = {
    "threads that wait for each other": ("import queue, threading\nq = queue.Queue()\n"
     "t = threading.Thread(target=lambda: print(q.get()))\nt.start()\nq.put(3)\nt.join()", "", "3",
     "| 1 | threads that wait for each other"),
    "low-level threads": ("import _thread, time\ndone = []\n_thread.start_new_thread(done.append, (3,))\n"
     "while not done: time.sleep(0.001)\nprint(done[0])", "", "3", "| 2 | `_thread`"),
    "a subprocess": (
     "import subprocess, sys\nprint(subprocess.run(['/bin/echo', '3'], capture_output=True, text=True).stdout)", "",
     "3", "| 2 |"),
    "asyncio": ("import asyncio\nasync def main(): print(3)\nasyncio.run(main())", "", "3", "| 3 | `asyncio`"),
    "a temporary file": (
     "import tempfile\nf = tempfile.TemporaryFile('w+')\nf.write('3')\nf.seek(0)\nprint(f.read())", "", "3",
     "| 4 | temporary files"),
    "a socket": ("import socket\na, b = socket.socketpair()\na.send(b'3')\nprint(b.recv(1).decode())", "", "3",
     "| 3 |"),
    "another package": ("import pytest\nprint(3)", "", "3", "| 5 | packages other than numpy"),
}  # fmt: skip
