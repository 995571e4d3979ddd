"""Random and mutated answers against every verifier: no exception, no hang, no score outside [0, 1], no code run.

A verifier joins by one entry in `VERIFIERS`: a function from an answer to a score.
"""

import re
import sys
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prorl.envs.verifiers.choice import choice_of
from prorl.envs.verifiers.instructions import Instruction
from prorl.envs.verifiers.instructions import verify as verify_instructions
from prorl.envs.verifiers.math import gold_verifies, math_equal
from prorl.envs.verifiers.programs import same_output
from prorl.envs.verifiers.quantity import quantity_equal
from support.timing import cpu_seconds

GOLDS = ["42", r"\frac{3}{4}", r"x^2+\sqrt{2}", "(1, 2)", r"(-\infty,1)\cup(2,\infty)", "2x+y=3", "x>2", "1, 2, 3",
         r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"5\text{ cm}", "50%", "Tuesday", r"\lfloor x\rfloor"]  # fmt: skip
OPTIONS = ["2 m/s", "4 m/s", "All of them", r"$\frac{1}{2}$"]

RULES = tuple(Instruction(id=name, kwargs=kwargs) for name, kwargs in (
    ("keywords:frequency", {"keyword": "rain", "frequency": 2, "relation": "at least"}),
    ("detectable_format:json_format", {}), ("language:response_language", {"language": "de"}),
    ("punctuation:no_comma", {}),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "less than"}),
))  # fmt: skip
VERIFIERS = {
    "math": lambda answer: max(math_equal(answer, gold) for gold in GOLDS),
    "math, gold": gold_verifies,
    "choice": lambda answer: choice_of(answer, OPTIONS) == "B",
    "quantity": lambda answer: max(quantity_equal(answer, gold) for gold in ("12 m/s", "25 °C", "3.5", "50 %")),
    "instructions": lambda answer: verify_instructions(RULES, answer).score,
    "program": lambda answer: same_output(answer, "12\n3.5 0.25\n", 1e-6),
}  # fmt: skip
MOST_SECONDS = 2.0

CODE = [
    "__import__('os').system('touch pwned')", "().__class__.__bases__[0].__subclasses__()", "exec('import os')",
    "eval(1+1)", r"\operatorname{exec}(1)", r"x.__init__.__globals__", "open('pwned','w')", "lambda: 0",
    "[print(1) for x in (1,)]", "Symbol('x', cls=print)", "{1: __builtins__}", "f'{1}'", r"\text{import os}",
    "x; import os", "1 if open('pwned', 'w') else 2", r"\input{/etc/passwd}", r"\write18{touch pwned}",
    "%s%n{0.__class__}",
]  # fmt: skip
SEEDS = [
    *GOLDS, *OPTIONS, *CODE, "9^{9^{9^9}}", "10000000!", r"\binom{9999}{5000}", "(" * 60 + "x" + ")" * 60, "½",
    "9" * 200, r"\sin^2 x", r"3 \pm \sqrt{2}", "1 \\le x < 3", "12 m/s", r"5\,\mathrm{kg\,m\,s^{-2}}", "25 °C", "x²",
    r"\gcd(4,6)", r"\max\{1,2\}", r"\left(\frac{1}{2},3\right]", r"\sum_{k=1}^{10} k", "|x|-1", "2:3", "1010_2",
    "B. 4 m/s",
]  # fmt: skip
PIECES = [
    *"0123456789xye+-*/^_=<>()[]{}|!,.:;%$&\\ '\"\n", "\\frac", "\\sqrt", "\\pm", "\\cup", "\\infty", "\\le",
    "\\text{", "\\log", "\\sin", "^{", "**", "and", "or", " km", "\\circ", "\\gcd", "\\lfloor", "e9", "\u0660",
    "\x00", "√", "−", "{}", "\\\\",
]  # fmt: skip


def mutated(rng):
    """A seed with up to eight pieces cut, doubled, swapped or put in."""
    text = rng.choice(SEEDS)
    for _ in range(rng.randrange(9)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.randrange(6))
        other = rng.choice(SEEDS)
        piece = rng.choice(["", text[start:end] * 2, rng.choice(PIECES), other[: rng.randrange(9)]])
        text = text[:start] + piece + text[end:]
    return text


answers = st.one_of(
    st.text(max_size=80),
    st.randoms(use_true_random=False).map(mutated),
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
)


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Imports and caches of sympy belong to no answer."""
    for seed in SEEDS:
        for verify in VERIFIERS.values():
            verify(seed)


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", VERIFIERS)
def test_fuzz(name, count):
    @settings(max_examples=count)
    @given(answers)
    @example("\\")
    @example("{" * 299)
    def every(answer):
        scores = []
        took = cpu_seconds(lambda: scores.append(VERIFIERS[name](answer)), enough=MOST_SECONDS)
        assert took < MOST_SECONDS
        assert all(0 <= float(score) <= 1 for score in scores)

    every()


# What sympy itself compiles: numerals that latex2sympy's lexer cut out, and arithmetic on tuples of exponents.
# Source made of these words, a0, b0, r0, … and numbers can reach nothing else.
MONOMIALS = {f"monomial_{name}" for name in ("mul", "pow", "mulpow", "ldiv", "div", "lcm", "gcd")}
NUMERALS = {"from", "sympy", "import", "Integer", "Float"}
WORDS = MONOMIALS | NUMERALS | {"def", "A", "B", "k", "if", "else", "return", "None"}


def is_harmless_source(source):
    words = set(re.findall(r"[^\W\d]\w*", source))
    return {word for word in words if not re.fullmatch("[abcr][0-9]+", word)} <= WORDS


def is_harmless_code(code):
    return code.co_filename == "<string>" and set(code.co_names) <= WORDS


class Watch:
    """Audit events that an answer has no business to cause; reading modules of the libraries is their own."""

    FORBIDDEN = ("os.", "subprocess.", "socket.", "ctypes.", "shutil.", "pty.", "pickle.", "builtins.input")
    HARMLESS = ("os.listdir", "os.scandir")
    PATHS = tuple({str(Path(module.__file__).parent.parent) for module in map(__import__, ("sympy", "os"))})

    def __init__(self):
        self.on = False
        self.seen = []
        sys.addaudithook(self.hook)  # for the life of the process, so it listens only inside `watching`

    def hook(self, event, arguments):
        if self.on and self.is_forbidden(event, arguments):
            self.seen.append((event, str(arguments)[:200]))

    def is_forbidden(self, event, arguments):
        if event == "exec":
            return not (arguments[0].co_filename.startswith(self.PATHS) or is_harmless_code(arguments[0]))
        if event == "compile":
            source, filename = arguments
            if source is None:  # a syntax tree, which nothing here may build
                return True
            return not (str(filename).startswith(self.PATHS) or is_harmless_source(bytes(source).decode()))
        if event == "import":
            libraries = ("sympy", "mpmath.", "latex2sympy2_extended", "math_verify", "antlr4")
            return not arguments[0].startswith(libraries)
        if event == "open":
            return arguments[2] & 0b11 != 0  # anything but reading
        return event.startswith(self.FORBIDDEN) and event not in self.HARMLESS


WATCH = Watch()


@contextmanager
def watching():
    WATCH.seen.clear()
    WATCH.on = True
    try:
        yield WATCH.seen
    finally:
        WATCH.on = False


@pytest.mark.parametrize(
    "code", ["compile('1', '<answer>', 'eval')", "exec('pass')", "open('/dev/null', 'w').close()"]
)
def test_the_watch_sees_code_that_runs(code):
    with watching() as seen:
        exec(code)
    assert len({event for event, _ in seen}) >= 1


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)], ids=["some", "many"])
@pytest.mark.parametrize("name", VERIFIERS)
def test_no_answer_runs_code(name, count):
    rng = Random(f"{name} {count}")
    texts = [*CODE, *(mutated(rng) for _ in range(count))]
    with watching() as seen:
        for text in texts:
            VERIFIERS[name](text)
    assert seen == []
