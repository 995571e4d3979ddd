"""Compact constraint families: graph colouring, truth tables, countdown.

Each has a small exact grammar for answers, bounded before any work is done. Every solution scores 1, not only
the witness: colourings are checked edge by edge, tables row by row, expressions by exact evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Any

from prorl.envs.base import Draft, ProceduralTask
from prorl.envs.types import Witness
from prorl.envs.verifiers.expressions import reaches

Edge = tuple[int, int]


class GraphColouring(ProceduralTask):
    """Three colours, different ones along every edge: `color 4: 01 21 03 32; 2=3` asks for four digits, `1232`.

    The digits of an answer are the colours 1-3 of vertices 0, 1, 2 ... One vertex is coloured already; without
    that, one answer would fit a quarter of all graphs of four vertices. The level is the number of vertices
    less two; sizes 4 and 5 are trained, 3 and 6 to 8 show how far the skill carries.
    """

    name = "graph_colouring"
    domain = "logic"
    levels = (2, 3)
    ood_levels = (1, 4, 5, 6)
    edge_share = 0.8  # of the pairs that the hidden colouring allows

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: (size, edges, (vertex, its given colour)). Solvable: edges respect a hidden colouring."""
        size = level + 2
        hidden = rng.sample((1, 2, 3), 3) + rng.choices((1, 2, 3), k=size - 3)
        rng.shuffle(hidden)
        allowed = [pair for pair in combinations(range(size), 2) if hidden[pair[0]] != hidden[pair[1]]]
        count = max(size - 1, sum(rng.random() < self.edge_share for _ in allowed))
        edges = tuple((a, b) if rng.random() < 0.5 else (b, a) for a, b in rng.sample(allowed, count))
        given = rng.randrange(size)
        colours = _first_colouring(size, edges, {given: hidden[given]})
        shown = " ".join(f"{a}{b}" for a, b in edges)
        return Draft(
            prompt=f"color {size}: {shown}; {given}={hidden[given]}",
            payload=(size, edges, (given, hidden[given])),
            witness=Witness(
                steps=_colouring_steps(edges, colours),
                answer="".join(str(colours[vertex]) for vertex in range(size)),
            ),
        )

    def score(self, payload: Any, answer: str) -> float:
        """1 for a digit 1-3 per vertex that keeps the given colour and differs along every edge."""
        size, edges, (given, colour) = payload
        text = answer.strip()
        if len(text) != size or not set(text) <= set("123"):
            return 0.0
        return float(text[given] == str(colour) and all(text[a] != text[b] for a, b in edges))


def _conflicts(vertex: int, edges: Sequence[Edge], colours: dict[int, int]) -> set[int]:
    """Colours that the coloured neighbours of a vertex have."""
    neighbours = (b if a == vertex else a for a, b in edges if vertex in (a, b))
    return {colours[neighbour] for neighbour in neighbours if neighbour in colours}


def _first_colouring(size: int, edges: Sequence[Edge], colours: dict[int, int]) -> dict[int, int]:
    """The lexicographically first completion of `colours`, in the order in which vertices were coloured.

    Empty if there is none. The first rather than the hidden one: the witness is a function of the prompt.
    """
    vertex = next((vertex for vertex in range(size) if vertex not in colours), None)
    if vertex is None:
        return colours
    for colour in sorted({1, 2, 3} - _conflicts(vertex, edges, colours)):
        if found := _first_colouring(size, edges, colours | {vertex: colour}):
            return found
    return {}


def _colouring_steps(edges: Sequence[Edge], colours: dict[int, int]) -> str:
    """`3=2;0!2=1`: vertex 3 has colour 2; vertex 0 has a neighbour of colour 2 and gets 1."""
    steps: list[str] = []
    done: dict[int, int] = {}
    for vertex, colour in colours.items():
        taken = "".join(map(str, sorted(_conflicts(vertex, edges, done))))
        steps.append(f"{vertex}!{taken}={colour}" if taken else f"{vertex}={colour}")
        done[vertex] = colour
    return ";".join(steps)


class TruthTable(ProceduralTask):
    """All rows of a formula: `truth pqr 000..111: ~(r|q)&p` asks for the eight bits `00001000`.

    A formula of level n has n + 1 binary connectives, and each of them matters: none gives a constant or just
    repeats an operand.
    """

    name = "truth_table"
    domain = "logic"
    levels = (1, 2, 3)
    ood_levels = (4, 5)

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: the formula in postfix notation, one character a token."""
        postfix = _postfix(rng, level + 1)
        return Draft(
            prompt=f"truth pqr 000..111: {_infix(postfix)}",
            payload=postfix,
            witness=Witness(steps=_truth_steps(postfix), answer=f"{truth_row(postfix):08b}"),
        )

    def score(self, payload: Any, answer: str) -> float:
        """1 for all eight rows right: a share of rows would reward guessing."""
        return float(answer.strip() == f"{truth_row(payload):08b}")


_ROWS = (("p", 0b00001111), ("q", 0b00110011), ("r", 0b01010101))  # first bit: p = q = r = 0
_NEGATED_SHARE = 0.25


def _postfix(rng: Random, connectives: int) -> str:
    """A random formula over p, q, r with that many binary connectives."""
    body = rng.choice("pqr") if connectives == 0 else _connection(rng, connectives)
    return body + "~" if rng.random() < _NEGATED_SHARE else body


def _connection(rng: Random, connectives: int) -> str:
    """Two random formulas joined by a connective that matters, redrawn until it does."""
    while True:
        split = rng.randrange(connectives)
        left, right = _postfix(rng, split), _postfix(rng, connectives - 1 - split)
        body = left + right + rng.choice("&|^")
        if truth_row(body) not in (0, 255, truth_row(left), truth_row(right)):
            return body


def _apply(operator: str, left: int, right: int) -> int:
    if operator == "&":
        return left & right
    return left | right if operator == "|" else left ^ right


def truth_row(postfix: str) -> int:
    """The eight values of a formula as a byte, row 000 in the highest bit."""
    rows = dict(_ROWS)
    stack: list[int] = []
    for token in postfix:
        if token in rows:
            stack.append(rows[token])
        elif token == "~":
            stack.append(255 ^ stack.pop())
        else:
            right, left = stack.pop(), stack.pop()
            stack.append(_apply(token, left, right))
    return stack[0]


def _infix(postfix: str) -> str:
    """Every connective in parentheses but the outermost, so that no rule of precedence is needed."""
    stack: list[str] = []
    for token in postfix:
        if token in "pqr":
            stack.append(token)
        elif token == "~":
            stack.append("~" + stack.pop())
        else:
            right, left = stack.pop(), stack.pop()
            stack.append(f"({left}{token}{right})")
    return stack[0][1:-1] if postfix[-1] in "&|^" else stack[0]


def _truth_steps(postfix: str) -> str:
    """`a=r|q=01110111;b=~a&p=00001000`: the row of every connective, under a letter that later steps use."""
    stack: list[tuple[str, int]] = []  # how later steps name a subformula, and its row
    steps: list[str] = []
    rows = dict(_ROWS)
    for token in postfix:
        if token in rows:
            stack.append((token, rows[token]))
        elif token == "~":
            name, row = stack.pop()
            stack.append(("~" + name, 255 ^ row))
        else:
            (right, right_row), (left, left_row) = stack.pop(), stack.pop()
            name, row = chr(ord("a") + len(steps)), _apply(token, left_row, right_row)
            steps.append(f"{name}={left}{token}{right}={row:08b}")
            stack.append((name, row))
    if postfix[-1] == "~":
        name, row = stack[0]
        steps.append(f"{name}={row:08b}")
    return ";".join(steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountdownRung:
    """How many numbers are given, and the largest of them."""

    numbers: int
    largest: int


class Countdown(ProceduralTask):
    """`make 26 from 4 6 8 3 once each` asks for an expression such as `(6-4)*(8+5)` with that value.

    The rule, exactly: the four operations and parentheses, no sign before a number, every given number as
    often as it is given and no other number, no rounding. The target by itself is therefore wrong.
    """

    name = "countdown"
    domain = "logic"
    levels = (1, 2, 3, 4)
    ood_levels = (5, 6)
    largest_total = 999
    rungs = (
        CountdownRung(numbers=2, largest=30),
        CountdownRung(numbers=3, largest=12),
        CountdownRung(numbers=4, largest=12),
        CountdownRung(numbers=4, largest=30),
        CountdownRung(numbers=5, largest=30),
        CountdownRung(numbers=6, largest=30),
    )

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: (numbers, target). Solvable: the target is the end of a chain of exact operations."""
        rung = self.rungs[level - 1]
        numbers = [rng.randint(2, rung.largest) for _ in range(rung.numbers)]
        total, shown, last, steps = numbers[0], str(numbers[0]), "", []
        for number in numbers[1:]:
            operator = rng.choice(self._operators(total, number))
            result = {"+": total + number, "-": total - number, "*": total * number, "/": total // number}
            steps.append(f"{total}{operator}{number}={result[operator]}")
            group = operator in "*/" and last in ("+", "-")
            shown = f"({shown}){operator}{number}" if group else f"{shown}{operator}{number}"
            total, last = result[operator], operator
        rng.shuffle(numbers)
        return Draft(
            prompt=f"make {total} from {' '.join(map(str, numbers))} once each",
            payload=(tuple(numbers), total),
            witness=Witness(steps=";".join(steps), answer=shown),
        )

    def _operators(self, total: int, number: int) -> list[str]:
        """What keeps the total a positive whole number; only `+`, always possible, can pass the bound."""
        operators = ["+"]
        if total > number:
            operators.append("-")
        if total * number <= self.largest_total:
            operators.append("*")
        if total % number == 0:
            operators.append("/")
        return operators

    def score(self, payload: Any, answer: str) -> float:
        """1 for an expression over exactly the given numbers whose exact value is the target."""
        numbers, target = payload
        return float(reaches(answer, numbers, target))
