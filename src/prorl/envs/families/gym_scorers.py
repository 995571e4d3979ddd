"""Own scorers for reasoning-gym tasks whose library scorer executes answers, is wrong, or is only equality.

Each is a function of what the task keeps of an entry and of the answer; none evaluates text as code, imports the
library, or does work that is not bounded by the answer's 4 000 characters.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import chain, product
from typing import Any

from prorl.envs.verifiers.expressions import coefficients, is_antiderivative, reaches, truth
from prorl.envs.verifiers.numbers import MAX_PLAIN_CHARS, plain_number

Entry = Mapping[str, Any]
World = Mapping[str, bool]

SIDE = 6  # of a rush hour board
MAX_MOVES = 500
MAX_STEPS = 100


# Texts: equality up to what a reader would not call different


def lines(entry: Entry, answer: str) -> float:
    """The gold answer line by line, whatever the spacing inside a line."""
    return float(_lines(answer) == _lines(entry["answer"]))


def compact(entry: Entry, answer: str) -> float:
    """The gold answer, all white space left out on both sides."""
    return float("".join(answer.split()) == "".join(entry["answer"].split()))


def folded(entry: Entry, answer: str) -> float:
    """The gold answer, white space and case left out on both sides."""
    return float("".join(answer.casefold().split()) == "".join(entry["answer"].casefold().split()))


def words(entry: Entry, answer: str) -> float:
    """The share of words in place, of the gold answer's or the answer's, whichever are more; case is left out.

    The library leaves surplus words unpunished, so that a list of candidates could be right.
    """
    gold, given = (text.casefold().replace(",", " ").split() for text in (entry["answer"], answer))
    in_place: int = sum(one == other for one, other in zip(gold, given, strict=False))
    return in_place / max(len(gold), len(given), 1)


def listed(entry: Entry, answer: str) -> float:
    """One of the texts in `metadata.valid_answers`, line by line."""
    return float(any(_lines(answer) == _lines(valid) for valid in entry["metadata"]["valid_answers"]))


def same_json(entry: Entry, answer: str) -> float:
    """The gold answer's JSON value; floats to one part in a million, true and 1 apart."""
    try:
        given = json.loads(answer)
    except (ValueError, RecursionError):
        return 0.0
    return float(_same(json.loads(entry["answer"]), given))


def _lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def _same(gold: Any, given: Any) -> bool:
    """Recursion follows the gold value, so that a deeply nested answer costs nothing."""
    if isinstance(gold, dict):
        return (
            isinstance(given, dict)
            and gold.keys() == given.keys()
            and all(_same(value, given[key]) for key, value in gold.items())
        )
    if isinstance(gold, list):
        return isinstance(given, list) and len(gold) == len(given) and all(map(_same, gold, given))
    if {type(gold), type(given)} in ({float}, {int, float}):
        try:
            return math.isclose(gold, given, rel_tol=1e-6)
        except OverflowError:  # a whole number beyond every float
            return False
    return type(gold) is type(given) and bool(gold == given)


# Numbers: read by one strict grammar, compared exactly or within a stated tolerance


_UNSIGNED = r"[0-9]+(?:\.[0-9]+)?"
_COMPLEX = (
    re.compile(rf"(?P<real>[+-]?{_UNSIGNED})"),
    re.compile(rf"(?P<imag>[+-]?(?:{_UNSIGNED})?)[ij]"),
    re.compile(rf"(?P<real>[+-]?{_UNSIGNED})(?P<imag>[+-](?:{_UNSIGNED})?)[ij]"),
)


def number(entry: Entry, answer: str) -> float:
    """The gold number exactly, however it is written."""
    value = plain_number(answer)
    return float(value is not None and value == plain_number(entry["answer"]))


def within(tolerance: float) -> Callable[[Entry, str], float]:
    """A scorer: the gold number give or take `tolerance`."""
    return lambda entry, answer: float(_near(plain_number(entry["answer"]), plain_number(answer), tolerance))


def within_share(tolerance: float) -> Callable[[Entry, str], float]:
    """A scorer: the gold number give or take the share `tolerance` of it."""

    def score(entry: Entry, answer: str) -> float:
        gold = plain_number(entry["answer"])
        return float(gold is not None and _near(gold, plain_number(answer), tolerance * abs(gold)))

    return score


def probability(entry: Entry, answer: str) -> float:
    """The gold probability as a decimal or a fraction, to one part in a thousand.

    Relative, since the library's absolute 1e-4 calls 0 right for fifteen heads in a row.
    """
    numerator, bar, denominator = answer.partition("/")
    value, divisor = plain_number(numerator), plain_number(denominator) if bar else Fraction(1)
    if value is None or not divisor:
        return 0.0
    gold = Fraction(entry["answer"])
    return float(_near(gold, value / divisor, gold / 1000))


def to_the_last_place(entry: Entry, answer: str) -> float:
    """The gold numbers, comma-separated, each to one unit of the last decimal place that its gold shows."""
    gold, given = (_listed(text.strip("() °\n")) for text in (entry["answer"], answer))
    if len(gold) != len(given):
        return 0.0
    places = (10.0 ** -len(text.partition(".")[2]) for text in gold)
    pairs = zip(gold, given, places, strict=True)
    return float(all(_near(plain_number(want), plain_number(got), place) for want, got, place in pairs))


def number_list(entry: Entry, answer: str) -> float:
    """The gold list of numbers in its order; brackets and quotes are decoration."""
    gold, given = (
        [plain_number(item) for item in _listed(re.sub(r"[\[\]'\"]", "", text))]
        for text in (entry["answer"], answer)
    )
    return float(None not in given and gold == given)


def roots(entry: Entry, answer: str) -> float:
    """All gold numbers in any order, each to a thousandth, and no others."""
    gold = sorted(Fraction(item) for item in _listed(entry["answer"]))
    given = [plain_number(item) for item in _listed(answer)]
    values = sorted(value for value in given if value is not None)
    if not len(given) == len(gold) == len(values):
        return 0.0
    return float(all(_near(want, got, 1e-3) for want, got in zip(gold, values, strict=True)))


def matrix(entry: Entry, answer: str) -> float:
    """The gold matrix, cell by cell to one hundredth."""
    gold, given = _lines(entry["answer"]), _lines(answer)
    if [len(row) for row in gold] != [len(row) for row in given]:
        return 0.0
    cells = zip(chain.from_iterable(gold), chain.from_iterable(given), strict=True)
    return float(all(_near(plain_number(want), plain_number(got), 0.0101) for want, got in cells))


def factors(entry: Entry, answer: str) -> float:
    """The prime factors of the gold answer in any order, joined by ×, * or x."""
    gold, given = ([item.strip() for item in re.split(r"[×*x]", text)] for text in (entry["answer"], answer))
    return float(sorted(gold) == sorted(given))


def hexadecimal(entry: Entry, answer: str) -> float:
    """The gold whole number, with a base prefix or in base ten."""
    if len(answer) > MAX_PLAIN_CHARS:
        return 0.0
    try:
        return float(int(answer, 0) == int(entry["answer"], 16))
    except ValueError:
        return 0.0


def complex_number(entry: Entry, answer: str) -> float:
    """`metadata.result`, a pair (real, imaginary), written like `3 - 2i`; parts of value 0 may be left out."""
    text = "".join(answer.lower().split()).removeprefix("(").removesuffix(")")
    match = next(filter(None, (form.fullmatch(text) for form in _COMPLEX)), None)
    if match is None or len(text) > MAX_PLAIN_CHARS:
        return 0.0
    parts = {"real": "0", "imag": "0"} | match.groupdict()
    if parts["imag"] in ("", "+", "-"):
        parts["imag"] += "1"
    given = [Fraction(parts["real"]), Fraction(parts["imag"])]
    return float(given == [Fraction(part) for part in entry["metadata"]["result"]])


def _near(gold: Fraction | None, given: Fraction | None, tolerance: float | Fraction) -> bool:
    """Whether two numbers differ by at most the tolerance, with a little room for its own rounding."""
    if gold is None or given is None:
        return False
    return abs(gold - given) <= Fraction(tolerance) * Fraction(1001, 1000)


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]


# Expressions


def countdown(entry: Entry, answer: str) -> float:
    """`metadata.target` from `metadata.numbers`, each once."""
    return float(reaches(answer, entry["metadata"]["numbers"], entry["metadata"]["target"], signed=True))


def twenty_four(entry: Entry, answer: str) -> float:
    """24 from `metadata.numbers`; the library accepts any four small numbers."""
    return float(reaches(answer, entry["metadata"]["numbers"], 24, signed=True))


def polynomial(entry: Entry, answer: str) -> float:
    """The gold polynomial multiplied out; an unexpanded product, such as the question itself, earns nothing.

    The library reads answers by sympy's parser, which executes text.
    """
    given = coefficients(answer)
    return float(given is not None and given == coefficients(entry["answer"]))


def antiderivative(entry: Entry, answer: str) -> float:
    """An antiderivative of `metadata.integrand` in `metadata.variable`.

    The library pays an unevaluated `Integral(...)` in full.
    """
    metadata = entry["metadata"]
    return float(is_antiderivative(answer, metadata["integrand"], metadata["variable"]))


def conclusion(entry: Entry, answer: str) -> float:
    """Whether the answer follows from `metadata.premises` without being a tautology or a bare variable.

    The two exceptions are the library's; it calls them trivial and pays a quarter, here they earn nothing. It also
    evaluates over every name in the answer, so thirty invented names cost it 2^30 evaluations.
    """
    everywhere = [truth(answer, world) for world in _worlds(entry)]
    is_atom = len(answer.replace("(", "").replace(")", "").strip()) == 1
    if None in everywhere or all(everywhere) or is_atom:
        return 0.0
    return float(all(truth(answer, world) for world in _models(entry)))


def consistent(entry: Entry) -> bool:
    """Whether the premises can all hold; from a contradiction everything follows."""
    return bool(_models(entry))


def _worlds(entry: Entry) -> list[World]:
    variables: Sequence[str] = entry["metadata"]["variables"]
    values = product((False, True), repeat=len(variables))
    return [dict(zip(variables, row, strict=True)) for row in values]


def _models(entry: Entry) -> list[World]:
    premises = entry["metadata"]["premises"]
    return [world for world in _worlds(entry) if all(truth(premise, world) for premise in premises)]


# Boards: legal by the puzzle's own rules, whichever solution it is


_SHIFT = re.compile(r"([A-Z])([+-])([1-9])")
_AGENT = re.compile(r"Agent\[([0-9]\.5), ([0-9]\.5)\]")
_MOVE = re.compile(r"move\((box_[a-z]+), (?:(target_[a-z]+)|square\[([0-9]\.5), ([0-9]\.5)\])\)")


def rush_hour(entry: Entry, answer: str) -> float:
    """Whether the moves lead the car A to the exit; every move must be possible in full.

    The library skips what is impossible, so that a long enough list of guesses solves easy boards, and it never
    comes back from `A+99999999999`. Cars are lettered as displayed, in the order of `metadata.board_config`.
    """
    moves = [_SHIFT.fullmatch(move) for move in answer.split()]
    cars, walls = _parked(entry["metadata"]["board_config"])
    if len(moves) > MAX_MOVES:
        return 0.0
    for move in moves:
        if move is None or move[1] not in cars:
            return 0.0
        for _ in range(int(move[3])):
            if not _shift(cars, walls, move[1], 1 if move[2] == "+" else -1):
                return 0.0
    return float(cars["A"][-1] == 3 * SIDE - 1)


def _parked(board: str) -> tuple[dict[str, list[int]], frozenset[int]]:
    """The cells of each car by its displayed letter, and the walls."""
    labels = sorted(set(board) - {"o", "x"})
    cars = {
        chr(ord("A") + rank): [cell for cell, mark in enumerate(board) if mark == label]
        for rank, label in enumerate(labels)
    }
    return cars, frozenset(cell for cell, mark in enumerate(board) if mark == "x")


def _shift(cars: dict[str, list[int]], walls: frozenset[int], car: str, direction: int) -> bool:
    """Move a car by one cell; False, and nothing moves, where something is in the way."""
    cells = cars[car]
    stride = cells[1] - cells[0]
    front = cells[-1] if direction > 0 else cells[0]
    ahead = front + direction * stride
    on_board = ahead // SIDE == front // SIDE if stride == 1 else 0 <= ahead < SIDE * SIDE
    taken = walls.union(*(other for name, other in cars.items() if name != car))
    if not on_board or ahead in taken:
        return False
    cars[car] = [cell + direction * stride for cell in cells]
    return True


def box_net(entry: Entry, answer: str) -> float:
    """The share of boxes that the plan brings to targets of their colour; an illegal action voids the plan.

    `metadata.initial_state` maps `x_y` to the boxes and targets of a square. The library ignores illegal actions,
    or raises.
    """
    try:
        plan = json.loads(answer)
    except (ValueError, RecursionError):
        return 0.0
    squares = {name: list(things) for name, things in entry["metadata"]["initial_state"].items()}
    boxes = _boxes(squares)
    if not isinstance(plan, list) or len(plan) > MAX_STEPS:
        return 0.0
    for step in plan:
        if not isinstance(step, dict) or not all(_act(squares, *action) for action in step.items()):
            return 0.0
    return (boxes - _boxes(squares)) / boxes


def _act(squares: dict[str, list[str]], agent: str, action: Any) -> bool:
    """Carry out one agent's action; False where it is malformed or not possible."""
    who, what = _AGENT.fullmatch(agent), _MOVE.fullmatch(action) if isinstance(action, str) else None
    if who is None or what is None:
        return False
    here = f"{who[1]}_{who[2]}"
    box, target = what[1], what[2]
    if box not in squares.get(here, ()):
        return False
    if target is not None:
        if target not in squares[here] or target.removeprefix("target") != box.removeprefix("box"):
            return False
        squares[here].remove(target)
    else:
        there = f"{what[3]}_{what[4]}"
        distance = abs(float(who[1]) - float(what[3])) + abs(float(who[2]) - float(what[4]))
        if there not in squares or distance != 1:
            return False
        squares[there].append(box)
    squares[here].remove(box)
    return True


def _boxes(squares: Mapping[str, list[str]]) -> int:
    return sum(thing.startswith("box_") for things in squares.values() for thing in things)


def box_net_plan(entry: Entry) -> str:
    """A plan that brings one box after the other to its target, rows first; not the shortest."""
    squares = entry["metadata"]["initial_state"]
    where = {thing: name for name, things in squares.items() for thing in things}
    steps: list[dict[str, str]] = []
    for box in (thing for things in squares.values() for thing in things if thing.startswith("box_")):
        target = box.replace("box", "target")
        at, goal = ([float(part) for part in where[thing].split("_")] for thing in (box, target))
        for axis in (0, 1):
            while at[axis] != goal[axis]:
                agent = f"Agent[{at[0]}, {at[1]}]"
                at[axis] += 1 if goal[axis] > at[axis] else -1
                steps.append({agent: f"move({box}, square[{at[0]}, {at[1]}])"})
        steps.append({f"Agent[{at[0]}, {at[1]}]": f"move({box}, {target})"})
    return json.dumps(steps)


def survo(entry: Entry, answer: str) -> float:
    """Whether zeros of `metadata.puzzle` are filled with `candidate_numbers` so that rows and columns add up.

    By the rules, since a puzzle may have more solutions than the one the library compares with.
    """
    puzzle = entry["metadata"]["puzzle"]
    rows = [line.split() for line in answer.strip().splitlines()]
    if [len(row) for row in rows] != [len(row) for row in puzzle]:
        return 0.0
    if not all(cell.isascii() and cell.isdigit() and len(cell) < 6 for row in rows for cell in row):
        return 0.0
    board = [[int(cell) for cell in row] for row in rows]
    pairs = [
        pair for given, filled in zip(puzzle, board, strict=True) for pair in zip(given, filled, strict=True)
    ]
    kept = all(given in (0, filled) for given, filled in pairs)
    used = sorted(filled for given, filled in pairs if given == 0)
    sums = all(sum(line[:-1]) == line[-1] for line in (*board, *zip(*board, strict=True)))
    return float(kept and sums and used == sorted(entry["metadata"]["candidate_numbers"]))
