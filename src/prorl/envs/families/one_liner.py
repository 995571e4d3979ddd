"""One-line Python programs: find the expression in x behind four examples, judged by running it in the sandbox.

An expression is x followed by operators, factors before addends, so that it reads from left to right without
brackets. Its level is its number of operators: 1 to 3 are trained, 4 is out of domain.
Only puzzles with one solution are asked: no other expression of any level fits what is shown. So whoever finds an
expression of the family that fits has found the one that passes, and there is nothing to gain by guessing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from operator import add, floordiv, mod, mul, sub
from random import Random
from types import MappingProxyType
from typing import Any

from prorl.envs.base import NO_ANSWER, Draft, ProceduralTask
from prorl.envs.extract import extract_answer
from prorl.envs.sandbox.jobs import Limits
from prorl.envs.types import Problem, Verdict, Witness
from prorl.envs.verifiers.programs import OwnSandbox, Runner, Tests, judge_program

Step = tuple[str, int | None]  # an operator and its right operand; None stands for x
Expression = tuple[Step, ...]
Puzzle = tuple[Expression, int]  # an expression and the first of the inputs on which it is shown

STARTS = range(10)
SHOWN = (
    0,
    1,
    2,
    8,
)  # inputs, from the start: neighbours give differences, the far one tells a line from a wave
INPUTS = range(40)
HIDDEN = 8
MAX_EQUAL = 2  # hidden tests with the same output: what a constant can pass
MIN_VALUES = 5  # that an expression has on all inputs: with fewer, constants would pass
MAX_CHARS = 60
REMEMBERED = 4096  # verdicts
LIMITS = Limits(seconds=1.0, memory_bytes=256 << 20, output_bytes=1 << 16)

_OPERATORS: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {"+": add, "-": sub, "*": mul, "//": floordiv, "%": mod}
)
_SCALES: tuple[Step, ...] = tuple(("*", number) for number in range(2, 10))
_CURVES: tuple[Step, ...] = (
    ("*", None),
    *(("//", number) for number in range(2, 6)),
    *(("%", number) for number in range(5, 10)),
)
_SHIFTS: tuple[Step, ...] = tuple((sign, number) for sign, number in product("+-", range(1, 10)))
_SLOPES: tuple[Step, ...] = (("+", None), ("-", None))


class OneLiner(ProceduralTask):
    """`f(1)=3 f(2)=5 f(3)=7 f(4)=9 f=?` asks for `x*2+1`; its score is the share of eight hidden tests passed."""

    name = "one_liner"
    domain = "code"
    levels = (1, 2, 3)
    ood_levels = (4,)

    def __init__(self, weights: Mapping[int, float] | None = None) -> None:
        super().__init__(weights)
        self._run: Runner = OwnSandbox()
        self._judged: dict[tuple[Any, str], Verdict] = {}

    def use_sandbox(self, run: Runner) -> None:
        """Run answers with `run` instead of a sandbox of this task's own."""
        self._run = run

    def generate(self, rng: Random, level: int) -> Draft:
        """The payload is the hidden tests, on inputs that are not shown; the working takes differences."""
        expression, start = rng.choice(puzzles()[level])
        shown = [start + offset for offset in SHOWN]
        examples = " ".join(f"f({x})={value(expression, x)}" for x in shown)
        return Draft(
            prompt=f"{examples} f=?",
            payload=_draw_tests(rng, expression, shown),
            witness=Witness(steps=_working(expression, shown), answer=show(expression)),
        )

    def score(self, payload: Any, answer: str) -> float:
        """The share of hidden tests passed; a failure of the sandbox passes none."""
        return self._judge(payload, answer).score

    def verify(self, problem: Problem, text: str) -> Verdict:
        """Extract the expression and run it; a failure of the sandbox is an error, not a score."""
        answer = extract_answer(text)
        return NO_ANSWER if answer is None else self._judge(problem.payload, answer)

    def _judge(self, payload: Any, answer: str) -> Verdict:
        """Rollouts of one problem often agree, and a program in the sandbox is as good as a function: ask once."""
        known = self._judged.get((payload, answer))
        if known is not None:
            return known
        verdict = self._run_tests(payload, answer)
        if verdict.status != "error":
            if len(self._judged) >= REMEMBERED:
                self._judged.clear()
            self._judged[payload, answer] = verdict
        return verdict

    def _run_tests(self, payload: Any, answer: str) -> Verdict:
        if len(answer) > MAX_CHARS or len(answer.splitlines()) != 1:
            return Verdict(score=0.0, status="wrong", note="not one short line")
        inputs, expected = zip(*payload, strict=True)
        tests = Tests(entry="f", inputs=tuple([x] for x in inputs), expected=expected)
        return judge_program(self._run, f"def f(x): return ({answer})", tests, LIMITS)


def value(expression: Expression, x: int) -> int:
    """What an expression gives at x.

    >>> value((("*", 2), ("+", 1)), 5)
    11
    """
    result = x
    for operator, operand in expression:
        result = _OPERATORS[operator](result, x if operand is None else operand)
    return result


def show(expression: Expression) -> str:
    """An expression as Python.

    >>> show((("*", None), ("-", 3)))
    'x*x-3'
    """
    return "x" + "".join(
        f"{operator}{'x' if operand is None else operand}" for operator, operand in expression
    )


@cache
def puzzles() -> Mapping[int, tuple[Puzzle, ...]]:
    """By level, every expression at every start where what is shown fits this expression alone."""
    fitting: dict[tuple[int, ...], list[Puzzle]] = {}
    for expression in expressions():
        values = [value(expression, x) for x in INPUTS]
        if len(set(values)) < MIN_VALUES:
            continue
        for start in STARTS:
            shown = (values[start + offset] for offset in SHOWN)
            fitting.setdefault((start, *shown), []).append((expression, start))
    found: dict[int, list[Puzzle]] = {}
    for candidates in fitting.values():
        if len(candidates) == 1:
            found.setdefault(len(candidates[0][0]), []).append(candidates[0])
    return {level: tuple(level_puzzles) for level, level_puzzles in found.items()}


def expressions() -> Iterator[Expression]:
    """The family, each function once: at most two factors, then at most one x and one number to add or take away."""
    straight: list[Expression] = [(), *((scale,) for scale in _SCALES)]
    curved: list[Expression] = [*((curve,) for curve in _CURVES), *product(_CURVES, _SCALES)]
    shifts: list[Expression] = [(), *((shift,) for shift in _SHIFTS)]
    for head, tail in product(straight, shifts):
        if head or tail:
            yield head + tail
    slopes: list[Expression] = [(), *((slope,) for slope in _SLOPES)]
    for head, slope, tail in product(curved, slopes, shifts):
        yield head + slope + tail


def _draw_tests(rng: Random, expression: Expression, shown: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Inputs that are not shown with their outputs, few of which are equal: a constant must not pay."""
    unseen = [x for x in INPUTS if x not in shown]
    while True:
        tests = tuple((x, value(expression, x)) for x in sorted(rng.sample(unseen, HIDDEN)))
        if max(Counter(result for _, result in tests).values()) <= MAX_EQUAL:
            return tests


def _working(expression: Expression, shown: Sequence[int]) -> str:
    """The differences of what is shown, then what the factors alone give: the rest is what they lack."""
    differences = " ".join(str(value(expression, x + 1) - value(expression, x)) for x in shown[:2])
    factors = tuple(step for step in expression if step[0] not in "+-")
    if factors in ((), expression):
        return differences
    return f"{differences}; {show(factors)}: {' '.join(str(value(factors, x)) for x in shown)}"
