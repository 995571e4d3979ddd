"""Own scorers for reasoning-gym tasks whose library scorer executes answers, is wrong, or is only equality.

Each is a function of what the task keeps of an entry and of the answer; none evaluates text as code, imports the
library, or does work that is not bounded by the answer's 4 000 characters.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import chain, product, repeat
from typing import Any

from prorl.envs.verifiers.expressions import coefficients, is_antiderivative, reaches, truth

Entry = Mapping[str, Any]
World = Mapping[str, bool]

Scorer = Callable[[Entry, str], float]

SIDE = 6  # of a rush hour board
MAX_MOVES, MAX_STEPS = 500, 100  # of cars, of boxes
MAX_NUMBER_CHARS = 60


def same(read: Callable[[str], Any]) -> Scorer:
    """A scorer: what `read` makes of the answer is what it makes of the gold answer; None is never right."""

    def score(entry: Entry, answer: str) -> float:
        given = read(answer)
        return float(given is not None and given == read(entry["answer"]))

    return score


def within(tolerance: float, *, relative: bool = False) -> Scorer:
    """A scorer: the gold number give or take `tolerance`, or that share of the gold number."""

    def score(entry: Entry, answer: str) -> float:
        gold, given = plain_number(entry["answer"]), plain_number(answer)
        unit = abs(gold) if relative and gold is not None else 1
        return float(_near(gold, given, tolerance * unit))

    return score


# Texts: equality up to what a reader would not call different


def _lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


lines = same(_lines)  # line by line, whatever the spacing inside a line
compact = same(lambda text: "".join(text.split()))  # without white space
folded = same(lambda text: "".join(text.casefold().split()))  # without white space and case


def words(entry: Entry, answer: str) -> float:
    """The share of words in place, case left out; surplus words, free in the library, count as out of place."""
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


def _same(gold: Any, given: Any) -> bool:
    """Recursion follows the gold value, so that a deeply nested answer costs nothing."""
    if isinstance(gold, dict):
        same_keys = isinstance(given, dict) and gold.keys() == given.keys()
        return same_keys and all(_same(value, given[key]) for key, value in gold.items())
    if isinstance(gold, list):
        return isinstance(given, list) and len(gold) == len(given) and all(map(_same, gold, given))
    if {type(gold), type(given)} in ({float}, {int, float}):
        try:
            return math.isclose(gold, given, rel_tol=1e-6)
        except OverflowError:  # a whole number beyond every float
            return False
    return type(gold) is type(given) and bool(gold == given)


# Numbers: read by one strict grammar, compared exactly or within a stated tolerance

_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9,]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?")
_UNSIGNED = r"[0-9]+(?:\.[0-9]+)?"
_COMPLEX = (
    re.compile(rf"(?P<real>[+-]?{_UNSIGNED})"),
    re.compile(rf"(?P<imag>[+-]?(?:{_UNSIGNED})?)[ij]"),
    re.compile(rf"(?P<real>[+-]?{_UNSIGNED})(?P<imag>[+-](?:{_UNSIGNED})?)[ij]"),
)


def plain_number(text: str) -> Fraction | None:
    """A decimal number with an optional exponent and commas between digits; None for anything else.

    >>> plain_number("-1,000.50"), plain_number("nan") is None
    (Fraction(-2001, 2), True)
    """
    text = text.strip()
    if len(text) > MAX_NUMBER_CHARS or not _NUMBER.fullmatch(text):
        return None
    return Fraction(text.replace(",", "").removesuffix("."))


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]


def _numbers(text: str) -> list[Fraction] | None:
    """Numbers between commas; None where one is none."""
    values = [plain_number(item) for item in _listed(text)]
    return None if None in values else [value for value in values if value is not None]


def _whole(text: str) -> int | None:
    """A whole number with a base prefix or in base ten."""
    try:
        return int(text, 0) if len(text) <= MAX_NUMBER_CHARS else None
    except ValueError:
        return None


number = same(plain_number)  # exactly, however it is written
to_a_hundredth, to_a_millionth, to_half_a_percent = within(1e-2), within(1e-6), within(5e-3, relative=True)
number_list = same(lambda text: _numbers(re.sub(r"[\[\]'\"]", "", text)))  # decorated by brackets, quotes
factors = same(lambda text: sorted(item.strip() for item in re.split(r"[×*x]", text)))  # in any order
hexadecimal = same(_whole)


def probability(entry: Entry, answer: str) -> float:
    """The gold probability to a thousandth of it; the library's absolute 1e-4 calls 0 right for fifteen heads."""
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
    return float(all(map(_near, map(plain_number, gold), map(plain_number, given), places)))


def roots(entry: Entry, answer: str) -> float:
    """All gold numbers in any order, each to a thousandth, and no others."""
    gold, given = (sorted(_numbers(text) or ()) for text in (entry["answer"], answer))
    return float(len(gold) == len(given) and all(map(_near, gold, given, repeat(1e-3))))


def matrix(entry: Entry, answer: str) -> float:
    """The gold matrix, cell by cell to one hundredth."""
    gold, given = _lines(entry["answer"]), _lines(answer)
    if [len(row) for row in gold] != [len(row) for row in given]:
        return 0.0
    cells = zip(chain(*gold), chain(*given), strict=True)
    return float(all(_near(plain_number(want), plain_number(got), 0.0101) for want, got in cells))


def complex_number(entry: Entry, answer: str) -> float:
    """`metadata.result`, a pair (real, imaginary), written like `3 - 2i`; parts of value 0 may be left out."""
    text = "".join(answer.lower().split()).removeprefix("(").removesuffix(")")
    match = next(filter(None, (form.fullmatch(text) for form in _COMPLEX)), None)
    if match is None or len(text) > MAX_NUMBER_CHARS:
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


# Expressions

# multiplied out: an unexpanded product, such as the question itself, earns nothing; the library executes answers
polynomial = same(coefficients)


def countdown(entry: Entry, answer: str) -> float:
    """`metadata.target`, without one 24, from `metadata.numbers`, each once; the library's 24 takes any numbers."""
    metadata = entry["metadata"]
    return float(reaches(answer, metadata["numbers"], metadata.get("target", 24), signed=True))


def antiderivative(entry: Entry, answer: str) -> float:
    """An antiderivative of `metadata.integrand`; the library pays an unevaluated `Integral(...)` in full."""
    metadata = entry["metadata"]
    return float(is_antiderivative(answer, metadata["integrand"], metadata["variable"]))


def conclusion(entry: Entry, answer: str) -> float:
    """Whether the answer follows from `metadata.premises` without being a tautology or a bare variable, from no
    single one of them, and without saying as much as some of them joined, which would only be read off.

    The first two exceptions are the library's; it calls them trivial and pays a quarter, here they earn nothing. It
    also evaluates over every name in the answer, so thirty invented names cost it 2^30 evaluations.
    """
    worlds = _worlds(entry)
    everywhere = [truth(answer, world) for world in worlds]
    is_atom = len(answer.replace("(", "").replace(")", "").strip()) == 1
    if None in everywhere or all(everywhere) or is_atom:
        return 0.0
    numbers = set(range(len(worlds)))  # of worlds
    said = {number for number in numbers if everywhere[number]}
    premises = entry["metadata"]["premises"]
    held = [{number for number in numbers if truth(premise, worlds[number])} for premise in premises]
    implied = [each for each in held if said <= each]
    if said == numbers.intersection(*implied) or any(each <= said for each in held):
        return 0.0
    return float(numbers.intersection(*held) <= said)


def models(entry: Entry) -> list[World]:
    """The worlds in which all premises hold; where there is none, everything follows."""
    premises = entry["metadata"]["premises"]
    return [world for world in _worlds(entry) if all(truth(premise, world) for premise in premises)]


def _worlds(entry: Entry) -> list[World]:
    variables: Sequence[str] = entry["metadata"]["variables"]
    values = product((False, True), repeat=len(variables))
    return [dict(zip(variables, row, strict=True)) for row in values]


# Boards: legal by the puzzle's own rules, whichever solution it is

_SHIFT = re.compile(r"([A-Z])([+-])([1-9])")
_AGENT = re.compile(r"Agent\[([0-9]\.5), ([0-9]\.5)\]")
_MOVE = re.compile(r"move\((box_[a-z]+), (?:(target_[a-z]+)|square\[([0-9]\.5), ([0-9]\.5)\])\)")


def rush_hour(entry: Entry, answer: str) -> float:
    """Whether the moves lead the car A to the exit; every move must be possible in full.

    The library skips what is impossible, so that a long enough list of guesses solves easy boards, and it never
    comes back from `A+99999999999`. Cars are lettered as displayed, in the order of `metadata.board_config`.
    """
    board, moves = entry["metadata"]["board_config"], answer.split()
    labels = sorted(set(board) - {"o", "x"})
    cars = {
        chr(ord("A") + rank): [cell for cell, mark in enumerate(board) if mark == label]
        for rank, label in enumerate(labels)
    }
    walls = [cell for cell, mark in enumerate(board) if mark == "x"]
    driven = len(moves) <= MAX_MOVES and all(_drive(cars, walls, move) for move in moves)
    return float(driven and cars["A"][-1] == 3 * SIDE - 1)


def _drive(cars: dict[str, list[int]], walls: Sequence[int], move: str) -> bool:
    """Move a car cell by cell; False where the move is malformed or something is in the way."""
    match = _SHIFT.fullmatch(move)
    if match is None or match[1] not in cars:
        return False
    cells = cars[match[1]]
    taken = {*walls, *chain(*(other for name, other in cars.items() if name != match[1]))}
    stride = cells[1] - cells[0]
    step = stride if match[2] == "+" else -stride
    for _ in range(int(match[3])):
        front = cells[-1] if step > 0 else cells[0]
        ahead = front + step
        on_board = ahead // SIDE == front // SIDE if stride == 1 else 0 <= ahead < SIDE * SIDE
        if not on_board or ahead in taken:
            return False
        cells = [cell + step for cell in cells]
    cars[match[1]] = cells
    return True


def box_net(entry: Entry, answer: str) -> float:
    """The share of boxes that the plan brings to targets of their colour; an illegal action voids the plan.

    `metadata.initial_state` maps `x_y` to the things in a square. The library ignores illegal actions, or raises.
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
    here, (box, target, *to) = f"{who[1]}_{who[2]}", what.groups()
    if box not in squares.get(here, ()):
        return False
    if target is not None:
        if target not in squares[here] or target.removeprefix("target") != box.removeprefix("box"):
            return False
        squares[here].remove(target)
    else:
        distance = sum(abs(float(one) - float(other)) for one, other in zip(who.groups(), to, strict=True))
        if "_".join(to) not in squares or distance != 1:
            return False
        squares["_".join(to)].append(box)
    squares[here].remove(box)
    return True


def _boxes(squares: Mapping[str, list[str]]) -> int:
    return sum(thing.startswith("box_") for things in squares.values() for thing in things)


def box_net_plan(entry: Entry) -> str:
    """A plan that brings one box after the other to its target, rows first; not the shortest."""
    squares = entry["metadata"]["initial_state"]
    where = {
        thing: [float(part) for part in name.split("_")]
        for name, things in squares.items()
        for thing in things
    }
    steps: list[dict[str, str]] = []
    for box in (thing for things in squares.values() for thing in things if thing.startswith("box_")):
        target = box.replace("box", "target")
        at, goal = where[box], where[target]
        for axis in (0, 1):
            while at[axis] != goal[axis]:
                agent = f"Agent{at}"
                at[axis] += 1 if goal[axis] > at[axis] else -1
                steps.append({agent: f"move({box}, square{at})"})
        steps.append({f"Agent{at}": f"move({box}, {target})"})
    return json.dumps(steps)


def survo(entry: Entry, answer: str) -> float:
    """Whether zeros of `metadata.puzzle` are filled with `candidate_numbers` so that rows and columns add up."""
    puzzle, rows = entry["metadata"]["puzzle"], _lines(answer)
    if [len(row) for row in rows] != [len(row) for row in puzzle]:
        return 0.0
    if not all(cell.isascii() and cell.isdigit() and len(cell) < 6 for cell in chain(*rows)):
        return 0.0
    board = [[int(cell) for cell in row] for row in rows]
    pairs = list(zip(chain(*puzzle), chain(*board), strict=True))
    kept = all(given in (0, filled) for given, filled in pairs)
    used = sorted(filled for given, filled in pairs if given == 0)
    sums = all(sum(line[:-1]) == line[-1] for line in (*board, *zip(*board, strict=True)))
    return float(kept and sums and used == sorted(entry["metadata"]["candidate_numbers"]))
