"""Code: predict what a list program prints, and find a list program from three examples.

Both share one ladder. Rungs 1 to 3 have one to three operators and never a pair of `HELD_OUT_PAIRS` in a row;
the out-of-domain rungs are programs with such a pair (4) and longer programs (5).
On every input every operator makes a list that was not there before, so that no operator is idle, none undoes
another, and the identity passes no test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from random import Random
from typing import Any

from prorl.envs.base import Draft, ProceduralTask
from prorl.envs.families.listlang import OPS, ListLangError, parse_program, parse_values, run, show, trace
from prorl.envs.types import Witness

Program = tuple[str, ...]
Values = tuple[int, ...]

HELD_OUT_PAIRS = frozenset(
    {
        ("neg", "max"),
        ("rev", "tail"),
        ("sort", "init"),
        ("dbl", "sum"),
        ("inc", "even"),
        ("tail", "min"),
        ("odd", "neg"),
        ("uniq", "rev"),
        ("even", "dbl"),
        ("max", "inc"),
        ("init", "neg"),
        ("sum", "dbl"),
    }
)
SHOWN, HIDDEN = 3, 8
MAX_SHOWN_VALUE = 99  # keeps prompts and working short
INPUT_DRAWS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """What a level draws from: program lengths, input lengths, and whether it needs a held-out pair or bans them."""

    ops: tuple[int, ...]
    lengths: tuple[int, ...]
    held_out_pair: bool = False


LADDER = (
    Rung(ops=(1,), lengths=(3, 4)),
    Rung(ops=(2,), lengths=(3, 4)),
    Rung(ops=(3,), lengths=(4, 5)),
    Rung(ops=(2, 3), lengths=(3, 4), held_out_pair=True),
    Rung(ops=(4,), lengths=(4, 5)),
)


class ListTrace(ProceduralTask):
    """`neg min | 2 7 5 9 =>` asks for the list that the program makes of the input."""

    name = "list_trace"
    domain = "code"
    levels = (1, 2, 3)
    ood_levels = (4, 5)

    def generate(self, rng: Random, level: int) -> Draft:
        """The working shows the list after each operator but the last."""
        program, values = _draw_program(rng, LADDER[level - 1])
        result = run(program, values)
        return Draft(
            prompt=f"{' '.join(program)} | {show(values)} =>",
            payload=result,
            witness=Witness(steps=_working(program[:-1], values), answer=show(result)),
        )

    def score(self, payload: Any, answer: str) -> float:
        """1 for exactly the right list."""
        try:
            return float(parse_values(answer) == payload)
        except ListLangError:
            return 0.0


class ListSynthesis(ProceduralTask):
    """Three input and output pairs ask for a program; its score is the share of eight hidden tests that it passes."""

    name = "list_synthesis"
    domain = "code"
    levels = (1, 2, 3)
    ood_levels = (4, 5)

    def generate(self, rng: Random, level: int) -> Draft:
        """The payload is the hidden tests, whose inputs are distinct from the shown ones; the working traces one."""
        program, inputs = _draw_examples(rng, LADDER[level - 1])
        tests = tuple((values, run(program, values)) for values in inputs)
        shown = "; ".join(f"{show(values)} => {show(result)}" for values, result in tests[:SHOWN])
        return Draft(
            prompt=f"{shown}; ops?",
            payload=tests[SHOWN:],
            witness=Witness(steps=_working(program, inputs[0]), answer=" ".join(program)),
        )

    def score(self, payload: Any, answer: str) -> float:
        """The share of hidden tests passed; a text that is no program passes none."""
        try:
            program = parse_program(answer)
        except ListLangError:
            return 0.0
        return sum(_passes(program, values, result) for values, result in payload) / len(payload)


def _passes(program: Program, values: Values, result: Values) -> bool:
    try:
        return run(program, values) == result
    except ListLangError:
        return False


def _working(program: Program, values: Values) -> str:
    states = trace(program, values)
    return " ".join(f"{name}:{show(state)}" for name, state in zip(program, states, strict=True))


def _draw_program(rng: Random, rung: Rung) -> tuple[Program, Values]:
    """A program of the rung and an input on which it is lively; draws again after a dead end."""
    while True:
        values = _draw_input(rng, rung)
        program = _grow(rng, values, rng.choice(rung.ops), rung)
        if program and rung.held_out_pair == any(pair in HELD_OUT_PAIRS for pair in pairwise(program)):
            return program, values


def _grow(rng: Random, values: Values, length: int, rung: Rung) -> Program | None:
    program: Program = ()
    states = [values]
    for _ in range(length):
        after = {name: OPS[name](states[-1]) for name in OPS if _allowed(program, name, rung)}
        choices = [name for name, state in after.items() if _is_new(state, states)]
        if not choices:
            return None
        program = (*program, rng.choice(choices))
        states.append(after[program[-1]])
    return program


def _draw_examples(rng: Random, rung: Rung) -> tuple[Program, list[Values]]:
    """A program and distinct inputs on which it is lively; drops a program for which such inputs are rare."""
    while True:
        program, first = _draw_program(rng, rung)
        draws = (_draw_input(rng, rung) for _ in range(INPUT_DRAWS))
        inputs = list(islice(_distinct(first, draws, program), SHOWN + HIDDEN))
        if len(inputs) == SHOWN + HIDDEN:
            return program, inputs


def _distinct(first: Values, draws: Iterator[Values], program: Program) -> Iterator[Values]:
    seen = {first}
    yield first
    for values in draws:
        if values not in seen and _is_lively(program, values):
            seen.add(values)
            yield values


def _draw_input(rng: Random, rung: Rung) -> Values:
    return tuple(rng.randint(0, 9) for _ in range(rng.choice(rung.lengths)))


def _is_lively(program: Program, values: Values) -> bool:
    states = [values]
    for name in program:
        state = OPS[name](states[-1])
        if not _is_new(state, states):
            return False
        states.append(state)
    return True


def _is_new(state: Values, earlier: list[Values]) -> bool:
    return bool(state) and state not in earlier and all(abs(value) <= MAX_SHOWN_VALUE for value in state)


def _allowed(program: Program, name: str, rung: Rung) -> bool:
    return rung.held_out_pair or not program or (program[-1], name) not in HELD_OUT_PAIRS
