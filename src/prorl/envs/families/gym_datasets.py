"""What single datasets of reasoning-gym need: repairs, entries that are used, workings, solutions.

The repairs make an item depend on its number alone: the library leaves the order of sets to the interpreter's hash
seed, or draws a whole dataset at once. Each changes one new dataset object in place.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial, wraps
from itertools import accumulate, compress, product
from math import gcd
from random import Random
from string import ascii_uppercase
from typing import Any

from prorl.envs.families.gym_scorers import Entry

Move = tuple[str, str, str]  # colour, from, to

MAX_TERM = 1000  # of a number sequence, as in the library

_PURE_MODULES = (
    "abc bisect cmath collections collections.abc copy dataclasses decimal enum fractions functools heapq itertools "
    "json math numbers numpy operator queue re statistics string types typing"
)
_IMPURE_NAMES = (
    "set frozenset hash id object globals locals vars print input open exec eval compile __import__"
)
PURE_MODULES, IMPURE_NAMES = frozenset(_PURE_MODULES.split()), frozenset(_IMPURE_NAMES.split())


class SortedSet(frozenset[str]):
    """A set of strings whose order does not depend on the hash seed."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))

    def __sub__(self, other: Any) -> SortedSet:
        return SortedSet(super().__sub__(other))


class _Chosen(Sequence[Any]):
    """What a function chooses at each place, instead of a list that is drawn when the dataset is made."""

    def __init__(self, choose: Callable[[int], Any], size: int = sys.maxsize) -> None:
        self._choose, self._size = choose, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: Any) -> Any:
        return self._choose(place)


def sort_letters(dataset: Any) -> None:
    """Isomorphic strings and ransom notes choose from a set of letters."""
    dataset.letters = SortedSet(dataset.letters)


def sort_monomials(dataset: Any) -> None:
    """Polynomial multiplication chooses from a set of monomials."""
    unsorted = dataset._get_monomials
    dataset._get_monomials = lambda rng: sorted(unsorted(rng), key=str)


def sort_neighbours(dataset: Any) -> None:
    """A word ladder's example path depends on the order of neighbours; its size is limited without need."""
    dataset.size = sys.maxsize
    for graph in dataset.word_graphs.values():
        graph.update({word: SortedSet(neighbours) for word, neighbours in graph.items()})


def draw_templates(dataset: Any) -> None:
    """GSM symbolic and list functions choose the template of every item when the dataset is made."""
    templates = sorted(set(dataset.task_indices))
    dataset.task_indices = _Chosen(lambda item: Random(f"choice {item}").choice(templates))


def draw_blickets(dataset: Any) -> None:
    """ACRE draws all of its questions when the dataset is made.

    An item is the first of a data set of ten, whose six, two and two questions of each kind are shuffled.
    """
    made, config, train = type(dataset), type(dataset.config), dataset.config.train
    dataset.questions = _Chosen(lambda item: made(config(train=train, seed=item, size=10)).questions[0])


def order_knights(dataset: Any) -> None:
    """Knight swap's example solution depends on the order of a set, and some of its impossible puzzles are not."""
    dataset.game_logic.solve_swap = partial(shortest_swap, dataset.game_logic.is_knight_move)


def shortest_swap(
    is_move: Callable[[str, str], bool], board: Mapping[str, Any], pieces: Mapping[str, Any], turn: str
) -> list[Move] | None:
    """A shortest swap by breadth-first search, or None. Every knight's move between two squares counts.

    The library makes puzzles impossible by removing moves, which the question does not show.
    """
    squares = sorted(board)
    reach = {here: [there for there in squares if is_move(here, there)] for here in squares}
    white, black = (tuple(square for square in squares if pieces[square] == colour) for colour in ("w", "B"))
    start = (white, black, turn) if turn == "w" else (black, white, turn)  # whose turn it is, the others
    ways: dict[Any, list[Move]] = {start: []}
    waiting = [start]
    for state in waiting:
        mine, theirs, side = state
        if (mine, theirs) == ((black, white) if side == "w" else (white, black)):
            return ways[state]
        for here in mine:
            for there in reach[here]:
                moved = tuple(sorted(there if square == here else square for square in mine))
                after = (theirs, moved, "B" if side == "w" else "w")
                if there not in (*mine, *theirs) and after not in ways:
                    ways[after] = [*ways[state], (side, here, there)]
                    waiting.append(after)
    return None


def keep_pure_programs(dataset: Any) -> None:
    """Of codeio's programs, draw those whose output follows from their input: no sets, clocks, files or chance.

    The programs are the library's, written by a language model; what is left out is also what could do harm. They
    are parsed as they are drawn, and an impure one is replaced by the next pure one.
    """
    rows = type(dataset)._jsonl_data

    def pure(place: int) -> Any:
        while not _is_pure(rows[place]["code_sample"], rows[place]["input_generator"]):
            place = (place + 1) % len(rows)
        return rows[place]

    type(dataset)._jsonl_data = _Chosen(pure, len(rows))


def _is_pure(program: str, generator: str) -> bool:
    """`generator` may use `random`, which it shares with the library's own stream and is seeded for each item."""
    return _uses_only(program, PURE_MODULES) and _uses_only(generator, PURE_MODULES | {"random"})


def _uses_only(source: str, modules: frozenset[str]) -> bool:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names) if not {name.name for name in names} <= modules:
                return False
            case ast.ImportFrom(module=module) if module not in modules:
                return False
            case ast.Set() | ast.SetComp():
                return False
            case ast.Name(id=name) if name in IMPURE_NAMES:
                return False
            case ast.Attribute(attr=attribute) if attribute.startswith("__") or (
                attribute == "random" and "random" not in modules
            ):
                return False
    return True


def stop_large_sequences(dataset: Any) -> None:
    """Number sequences: give up a rule at its first term beyond 1000, for which the library would reject it later.

    It squares such terms on, for most of a minute in one item of a hundred; the items stay the same.
    """
    rule = sys.modules[type(dataset).__module__].PatternRule
    apply = getattr(rule.apply, "__wrapped__", rule.apply)

    @wraps(apply)
    def stopping(self: Any, sequence: list[int], position: int) -> int:
        term: int = apply(self, sequence, position)
        if abs(term) > MAX_TERM:
            raise OverflowError  # which the library takes for a rejected rule
        return term

    rule.apply = stopping


# entries that are used


def is_reduced(entry: Entry) -> bool:
    """Whether a fraction is simplified as far as it goes, which it is not after ten bad draws."""
    metadata = entry["metadata"]
    return gcd(metadata["simplified_numerator"], metadata["simplified_denominator"]) == 1


def goes_on(entry: Entry) -> bool:
    """Not for the three number sequences in ten in a fixed point, mostly 0: repeating the last term is right."""
    return bool(entry["metadata"]["sequence"][-1] != entry["metadata"]["sequence"][-2])


def has_output(entry: Entry) -> bool:
    """Whether a program of codeio ran: the library gives two empty objects where it failed."""
    return bool(entry["metadata"]["input_data"] and entry["metadata"]["output_data"] != {})


def is_changed(entry: Entry) -> bool:
    """Not for the third of string manipulations in which no rule applies: repeating the question is right."""
    return bool(entry["answer"] != entry["metadata"]["string"])


def has_one_reading(entry: Entry) -> bool:
    """Not for an even power of a negative number: asked as -3^2, answered as (-3)^2."""
    metadata = entry["metadata"]
    return bool(metadata["base"] >= 0 or metadata["exponent"] % 2)


def is_of_blood(entry: Entry) -> bool:
    """Not for relations by marriage, which the library turns round: the son's wife is called a mother-in-law."""
    return "-in-law" not in entry["answer"]


def is_whole_interval(entry: Entry) -> bool:
    """Not for milliseconds, cut off from a float, nor for `(Monday) 10:15`, of which the library drops the time."""
    return entry["metadata"]["task_type"] != "time_ms" and "(%A) %H" not in entry["metadata"]["format"]


def is_called_by_the_rules(entry: Entry) -> bool:
    """Whether the last card's call follows from the hand: the library calls cards that it draws at random "Pass"."""
    *before, last = entry["metadata"]["rounds"]
    hand = before[-1]["cards"] if before else re.findall(r"initial cards (\w+)", entry["question"])[0]
    near = {step: chr(ord(last["add"]) + step) in hand for step in (-2, -1, 1, 2)}
    runs = (near[-2] and near[-1]) or (near[-1] and near[1]) or (near[1] and near[2])
    call = "Peng" if hand.count(last["add"]) > 1 else "Chi" if runs else "Pass"
    return bool(entry["answer"] == call)


def is_best_capture(entry: Entry) -> bool:
    """Whether the move captures more than any other: stray stones of the library may lend its target liberties."""
    board: Sequence[str] = entry["metadata"]["board"]
    points = {(row, column): stone for row, line in enumerate(board) for column, stone in enumerate(line)}
    left = {point for point, stone in points.items() if stone == "O"}
    taken = Counter[tuple[int, int]]()
    while left:
        group, liberties = [left.pop()], set[tuple[int, int]]()
        for row, column in group:
            for there in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
                if there in left:
                    left.remove(there)
                    group.append(there)
                elif points.get(there) == ".":
                    liberties.add(there)
        if len(liberties) == 1:
            taken[liberties.pop()] += len(group)
    move = len(board) - int(entry["answer"][1:]), ascii_uppercase.index(entry["answer"][0])
    return taken[move] > max((stones for other, stones in taken.items() if other != move), default=0)


_STATEMENT = re.compile(r"(All|No|Some) (.+) are (not |)(.+)")


def is_sound(entry: Entry) -> bool:
    """Whether a syllogism's answer is right, be there something of every kind or not: the library's is not always."""
    told = [_STATEMENT.fullmatch(entry["metadata"][name]) for name in ("premise1", "premise2", "conclusion")]
    *premises, concluded = [found.groups() for found in told if found]
    names = sorted({name for _, one, _, other in (*premises, concluded) for name in (one, other)})
    things = list(product((False, True), repeat=len(names)))
    worlds = [list(compress(things, there)) for there in product((False, True), repeat=len(things))]

    def holds(statement: Sequence[str], world: Sequence[Sequence[bool]]) -> bool:
        how, subject, negated, predicate = statement
        one, other = names.index(subject), names.index(predicate)
        found = [thing[other] != bool(negated) for thing in world if thing[one]]
        return all(found) if how == "All" else any(found) == (how == "Some")

    possible = [world for world in worlds if all(holds(premise, world) for premise in premises)]
    full = [world for world in possible if all(map(any, zip(*world, strict=True))) and world]
    follows = (all(holds(concluded, world) for world in among) for among in (possible, full))
    return (entry["answer"] == "Yes") in follows


# workings


def running_totals(entry: Entry) -> str:
    """Totals after each term but the first and the last."""
    first, *rest = entry["metadata"]["expression"].split(" ")
    signed = (Decimal(sign + term) for sign, term in zip(rest[::2], rest[1::2], strict=True))
    return " ".join(str(total) for total in list(accumulate(signed, initial=Decimal(first)))[1:-1])


def common_divisor(entry: Entry) -> str:
    """`24, 18` gives `gcd 6 4*18`."""
    left, right = entry["metadata"]["numbers"]
    divisor = gcd(left, right)
    return f"gcd {divisor} {left // divisor}*{right}"


def spelled(entry: Entry) -> str:
    """The letters of the word."""
    return " ".join(entry["metadata"]["word"])


# solutions that are not the entry's `answer`


def unknown(entry: Entry) -> None:
    """Where the library has no solution."""


def example(entry: Entry) -> str:
    """The example that stands beside the question."""
    metadata = entry["metadata"]
    return str(metadata.get("example_answer", metadata.get("example_correct_answer")))


def colouring(entry: Entry) -> str:
    """The colouring that the library found, as the question asks for it."""
    return json.dumps({str(vertex): n for vertex, n in entry["metadata"]["possible_answer"].items()})


def squared_sine(entry: Entry) -> str:
    """Whether sympy finds sin² or -cos² for the integral of sin·cos depends on the hash seed: always sin²."""
    written = r"(-?)((?:[0-9]+\*)?)cos(\([^()]*\)\*\*2(?:/[0-9]+)? \+ C)"
    match = re.fullmatch(written, entry["answer"])
    return f"{'' if match[1] else '-'}{match[2]}sin{match[3]}" if match else str(entry["answer"])
