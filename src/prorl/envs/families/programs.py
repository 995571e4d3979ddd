"""Compact coding families: a list program from three examples, and a one-line Python expression from four.

List programs are run here, by a small interpreter. One-liners are Python, so they are run in the sandbox.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise, product
from operator import add, floordiv, mod, mul, sub
from random import Random
from typing import Any, NamedTuple

from prorl.envs.base import Draft, ProceduralTask, draft
from prorl.envs.sandbox.jobs import Limits
from prorl.envs.types import Verdict
from prorl.envs.verifiers.programs import OwnSandbox, Runner, Tests, judge_program

Program = tuple[str, ...]
Values = tuple[int, ...]

MAX_OPS = 16  # and no operator makes a list longer: whatever the program, it ends at once

OPS: Mapping[str, Callable[[Values], Values]] = {
    "neg": lambda xs: tuple(-x for x in xs),
    "inc": lambda xs: tuple(x + 1 for x in xs),
    "dbl": lambda xs: tuple(2 * x for x in xs),
    "rev": lambda xs: xs[::-1],
    "sort": lambda xs: tuple(sorted(xs)),
    "uniq": lambda xs: tuple(dict.fromkeys(xs)),
    "tail": lambda xs: xs[1:],
    "init": lambda xs: xs[:-1],
    "even": lambda xs: tuple(x for x in xs if x % 2 == 0),
    "odd": lambda xs: tuple(x for x in xs if x % 2 == 1),
    "head": lambda xs: xs[:1],
    "max": lambda xs: (max(xs),) if xs else (),
    "min": lambda xs: (min(xs),) if xs else (),
    "sum": lambda xs: (sum(xs),),
}


def parse_program(text: str) -> Program | None:
    """One to `MAX_OPS` operator names separated by white space; None for anything else."""
    program = tuple(text.split())
    return program if 1 <= len(program) <= MAX_OPS and set(program) <= OPS.keys() else None


def trace(program: Program, values: Values) -> tuple[Values, ...]:
    """The list after each operator; the last one is the result."""
    return tuple(accumulate(program, lambda state, name: OPS[name](state), initial=values))[1:]


_PAIRS = (
    "neg-max rev-tail sort-init dbl-sum inc-even tail-min odd-neg uniq-rev even-dbl max-inc init-neg sum-dbl"
)
HELD_OUT_PAIRS = frozenset(tuple(pair.split("-")) for pair in _PAIRS.split())
PAIRS_SHOWN, TESTS_HIDDEN = 3, 8
MAX_SHOWN_VALUE = 99  # keeps prompts and working short
INPUT_DRAWS = 300


class ProgramLevel(NamedTuple):
    """What a level draws from: program lengths, input lengths, and whether it needs a held-out pair or bans them."""

    ops: tuple[int, ...]
    lengths: tuple[int, ...]
    held_out_pair: bool = False


PROGRAM_LEVELS = (
    *(ProgramLevel((1,), (3, 4)), ProgramLevel((2,), (3, 4)), ProgramLevel((3,), (4, 5))),
    *(ProgramLevel((2, 3), (3, 4), held_out_pair=True), ProgramLevel((4,), (4, 5))),
)


class ListSynthesis(ProceduralTask):
    """Three input and output pairs ask for a program; its score is the share of eight hidden tests that it passes.

    Levels 1 to 3 never have a pair of `HELD_OUT_PAIRS` in a row; out of domain are programs with such a pair (4) and
    longer ones (5). On every input every operator makes a new list, so that none is idle or undoes another.
    """

    name, domain, levels, ood_levels = "list_synthesis", "code", (1, 2, 3), (4, 5)

    def generate(self, rng: Random, level: int) -> Draft:
        """The payload is the hidden tests, whose inputs are distinct from the shown ones; the working traces one."""
        program, inputs = _draw_examples(rng, PROGRAM_LEVELS[level - 1])
        tests = tuple((values, trace(program, values)[-1]) for values in inputs)
        shown = "; ".join(f"{_text(values)} => {_text(result)}" for values, result in tests[:PAIRS_SHOWN])
        states = zip(program, trace(program, inputs[0]), strict=True)
        steps = " ".join(f"{name}:{_text(state)}" for name, state in states)
        return draft(f"{shown}; ops?", tests[PAIRS_SHOWN:], steps, " ".join(program))

    def score(self, payload: Any, answer: str) -> float:
        """The share of hidden tests passed; a text that is no program passes none."""
        program = parse_program(answer)
        if program is None:
            return 0.0
        passed: int = sum(trace(program, values)[-1] == result for values, result in payload)
        return passed / len(payload)


def _text(values: Values) -> str:
    return " ".join(map(str, values))


def _draw_examples(rng: Random, level: ProgramLevel) -> tuple[Program, list[Values]]:
    """A program and distinct inputs on which no operator is idle; drops a program for which these are rare."""
    while True:
        first = _draw_input(rng, level)
        program = _grow(rng, first, level)
        if not program or level.held_out_pair != any(pair in HELD_OUT_PAIRS for pair in pairwise(program)):
            continue
        inputs = [first]
        for _ in range(INPUT_DRAWS):
            values = _draw_input(rng, level)
            states = [values, *trace(program, values)]
            idle = any(not _is_new(state, states[:place]) for place, state in enumerate(states) if place)
            if not idle and values not in inputs:
                inputs.append(values)
            if len(inputs) == PAIRS_SHOWN + TESTS_HIDDEN:
                return program, inputs


def _grow(rng: Random, values: Values, level: ProgramLevel) -> Program:
    """A program of which no operator is idle on the values; empty after a dead end."""
    program: Program = ()
    states = [values]
    for _ in range(rng.choice(level.ops)):
        after = {
            name: OPS[name](states[-1])
            for name in OPS
            if level.held_out_pair or (*program[-1:], name) not in HELD_OUT_PAIRS
        }
        choices = [name for name, state in after.items() if _is_new(state, states)]
        if not choices:
            return ()
        program = (*program, rng.choice(choices))
        states.append(after[program[-1]])
    return program


def _draw_input(rng: Random, level: ProgramLevel) -> Values:
    return tuple(rng.randint(0, 9) for _ in range(rng.choice(level.lengths)))


def _is_new(state: Values, earlier: list[Values]) -> bool:
    return bool(state) and state not in earlier and all(abs(value) <= MAX_SHOWN_VALUE for value in state)


# one-liners

Step = tuple[str, int | None]  # an operator and its right operand; None stands for x
Expression = tuple[Step, ...]
Puzzle = tuple[Expression, int]  # an expression and the first of the inputs on which it is shown

STARTS = range(10)
SHOWN = (0, 1, 2, 8)  # from the start: neighbours give differences, the far one tells a line from a wave
INPUTS = range(40)
HIDDEN = 8
MAX_EQUAL = 2  # hidden tests with the same output: what a constant can pass
MIN_VALUES = 5  # that an expression has on all inputs: with fewer, constants would pass
MAX_CHARS = 60
REMEMBERED = 4096  # verdicts
LIMITS = Limits(seconds=1.0, memory_bytes=256 << 20, output_bytes=1 << 16)

_OPERATORS: Mapping[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul, "//": floordiv, "%": mod}
_SCALES: tuple[Step, ...] = tuple(("*", number) for number in range(2, 10))
_DIVISIONS = (*(("//", number) for number in range(2, 6)), *(("%", number) for number in range(5, 10)))
_CURVES: tuple[Step, ...] = (("*", None), *_DIVISIONS)
_SHIFTS: tuple[Step, ...] = tuple(product("+-", range(1, 10)))
_SLOPES: tuple[Step, ...] = (("+", None), ("-", None))


class OneLiner(ProceduralTask):
    """`f(1)=3 f(2)=5 f(3)=7 f(9)=19 f=?` asks for `x*2+1`; its score is the share of eight hidden tests passed.

    An expression is x followed by operators, factors before addends, so that it reads from left to right without
    brackets. Its level is its number of operators. Only puzzles with one solution are asked: no other expression of
    any level fits what is shown, so there is nothing to gain by guessing.
    """

    name, domain, levels, ood_levels = "one_liner", "code", (1, 2, 3), (4,)

    def __init__(self, weights: Mapping[int, float] | None = None) -> None:
        super().__init__(weights)
        self.run_program: Runner = OwnSandbox()
        self._judged: dict[tuple[Any, str], Verdict] = {}

    def generate(self, rng: Random, level: int) -> Draft:
        """The payload is the hidden tests, on inputs that are not shown; the working takes differences."""
        expression, start = rng.choice(puzzles()[level])
        shown = [start + offset for offset in SHOWN]
        examples = " ".join(f"f({x})={value(expression, x)}" for x in shown)
        payload = _draw_tests(rng, expression, shown)
        return draft(f"{examples} f=?", payload, _working(expression, shown), show(expression))

    def score(self, payload: Any, answer: str) -> Verdict:
        """The share of hidden tests passed, remembered, as rollouts of one problem often agree.

        A failure of the sandbox is an error.
        """
        known = self._judged.get((payload, answer))
        if known is not None:
            return known
        if len(answer) > MAX_CHARS or len(answer.splitlines()) != 1:
            return Verdict(score=0.0, status="wrong", note="not one short line")
        inputs, expected = zip(*payload, strict=True)
        tests = Tests(entry="f", inputs=tuple([x] for x in inputs), expected=expected)
        verdict = judge_program(self.run_program, f"def f(x): return ({answer})", tests, LIMITS)
        # A stall of the machine may bring a timeout, too.
        if verdict.status != "error" and verdict.note != "time":
            if len(self._judged) >= REMEMBERED:
                self._judged.clear()
            self._judged[payload, answer] = verdict
        return verdict


def value(expression: Expression, x: int) -> int:
    """What an expression gives at x."""
    result = x
    for operator, operand in expression:
        result = _OPERATORS[operator](result, x if operand is None else operand)
    return result


def show(expression: Expression) -> str:
    """An expression as Python: `x*x-3` for `(("*", None), ("-", 3))`."""
    return "x" + "".join(f"{operator}{'x' if number is None else number}" for operator, number in expression)


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
    alone = [candidates[0] for candidates in fitting.values() if len(candidates) == 1]
    levels = (*OneLiner.levels, *OneLiner.ood_levels)
    return {level: tuple(puzzle for puzzle in alone if len(puzzle[0]) == level) for level in levels}


def expressions() -> Iterator[Expression]:
    """The family, each function once: at most two factors, then at most one x and one number to add or take away."""
    shifts: list[Expression] = [(), *zip(_SHIFTS)]
    slopes: list[Expression] = [(), *zip(_SLOPES)]
    yield from shifts[1:]
    for scale, tail in product(zip(_SCALES), shifts):
        yield scale + tail
    for curve, slope, tail in product([*zip(_CURVES), *product(_CURVES, _SCALES)], slopes, shifts):
        yield curve + slope + tail


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
