"""Families that no run ever trains: what training on the others brings to tasks of another kind.

They have out-of-domain levels only, so asking for a training problem is an error. Answers are simulated
(moves) or derived from all hypotheses that fit the observations (blickets).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, groupby, product
from random import Random
from types import MappingProxyType
from typing import Any

from prorl.envs.base import Draft, ProceduralTask
from prorl.envs.types import Witness

Cell = tuple[int, int]  # row, column
State = tuple[Cell, Cell]  # where the pusher and the box are

MOVES: Mapping[str, Cell] = MappingProxyType({"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)})


class BoxLine(ProceduralTask):
    """Box pushing: `push o to x by UDLR: ..@.|.o..|.x..` asks for moves of `@` that bring o to x: `LD`.

    Rows are separated by `|`; at level 1 there is one row. Every move must be possible: inside the grid, and
    a box that is walked into must have room to move on. At the end the box must stand on the goal.
    """

    name = "box_pushing"
    domain = "logic"
    levels = ()
    ood_levels = (1, 2, 3)
    sizes = ((1, 16), (3, 6), (5, 5))  # rows and columns, by level
    max_moves = 100

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: ((rows, columns), (pusher, box), goal)."""
        size = rows, columns = self.sizes[level - 1]
        cells = list(product(range(rows), range(columns)))
        moves = None
        while moves is None:
            pusher, box, goal = rng.sample(cells, 3)
            moves = _shortest(size, (pusher, box), goal)
        marks = {pusher: "@", box: "o", goal: "x"}
        lines = ("".join(marks.get((row, column), ".") for column in range(columns)) for row in range(rows))
        return Draft(
            prompt=f"push o to x by UDLR: {'|'.join(lines)}",
            payload=(size, (pusher, box), goal),
            witness=Witness(steps=_narrate(size, (pusher, box), moves), answer=moves),
        )

    def score(self, payload: Any, answer: str) -> float:
        """1 if all moves are possible and the last one leaves the box on the goal."""
        size, start, goal = payload
        text = answer.strip()
        if len(text) > self.max_moves or not set(text) <= set(MOVES):
            return 0.0
        state: State | None = start
        for letter in text:
            if state is None:
                return 0.0
            state = move(size, state, letter)
        return float(state is not None and state[1] == goal)


def move(size: Cell, state: State, letter: str) -> State | None:
    """The state after one move of the pusher, who pushes a box that stands in the way; None if impossible."""
    (row, column), box = state
    down, right = MOVES[letter]
    target = (row + down, column + right)
    pushed = (box[0] + down, box[1] + right) if target == box else box
    inside = all(0 <= r < size[0] and 0 <= c < size[1] for r, c in (target, pushed))
    return (target, pushed) if inside else None


def _shortest(size: Cell, start: State, goal: Cell) -> str | None:
    """A shortest solution by breadth-first search; None if there is none."""
    paths: dict[State, str] = {start: ""}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if state[1] == goal:
            return paths[state]
        for letter in MOVES:
            after = move(size, state, letter)
            if after is not None and after not in paths:
                paths[after] = paths[state] + letter
                queue.append(after)
    return None


def _narrate(size: Cell, start: State, moves: str) -> str:
    """`walk DR;push UU`: the moves, grouped by whether they push the box."""

    def kinds() -> Iterator[tuple[str, str]]:
        state: State = start
        for letter in moves:
            after = move(size, state, letter)
            if after is None:
                raise ValueError(f"move {letter} of {moves} is impossible; narrate only a solution")
            yield ("push" if after[1] != state[1] else "walk"), letter
            state = after

    grouped = groupby(kinds(), key=lambda pair: pair[0])
    return ";".join(f"{kind} {''.join(letter for _, letter in pairs)}" for kind, pairs in grouped)


Trial = tuple[str, int]  # objects on the machine, 1 if it was on


class Blicket(ProceduralTask):
    """Blicket machine: on (1) if at least one of the objects on it is a blicket, otherwise off (0).

    `blicket 1/0/?: AB=1 C=0 AD=0; A B D AC` shows three trials and asks about four sets of objects, one
    character each: `0100`. `?` stands for what the trials leave open. Several questions at once, never all with
    the same outcome, make guessing useless.
    """

    name = "blicket"
    domain = "logic"
    levels = ()
    ood_levels = (1, 2, 3)
    sizes = ((4, 3, 4), (5, 4, 5), (6, 5, 6))  # objects, trials and questions, by level

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: (objects, trials, questions). Consistent: trials are observed on hidden blickets."""
        count, trial_count, question_count = self.sizes[level - 1]
        objects = "ABCDEF"[:count]
        answer = ""
        while len(set(answer)) < 2:
            blickets = set(rng.sample(objects, rng.randint(1, count // 2)))
            sets = _distinct_sets(rng, objects, trial_count + question_count)
            trials = tuple((chosen, lights(blickets, chosen)) for chosen in sets[:trial_count])
            questions = tuple(sets[trial_count:])
            answer = predict(objects, trials, questions)
        shown = " ".join(f"{chosen}={on}" for chosen, on in trials)
        singles = zip(objects, predict(objects, trials, objects), strict=True)
        return Draft(
            prompt=f"blicket 1/0/?: {shown}; {' '.join(questions)}",
            payload=(objects, trials, questions),
            witness=Witness(steps=";".join(f"{name}={outcome}" for name, outcome in singles), answer=answer),
        )

    def score(self, payload: Any, answer: str) -> float:
        """1 if every question is answered by what all consistent hypotheses agree on."""
        return float(answer.strip() == predict(*payload))


def _distinct_sets(rng: Random, objects: str, count: int) -> list[str]:
    """Different sets of one to three objects, each written in alphabetical order."""
    sets: dict[str, None] = {}
    while len(sets) < count:
        sets["".join(sorted(rng.sample(objects, rng.randint(1, 3))))] = None
    return list(sets)


def lights(blickets: set[str], chosen: str) -> int:
    """What the machine does with the chosen objects on it."""
    return int(not blickets.isdisjoint(chosen))


def predict(objects: str, trials: Sequence[Trial], questions: Iterable[str]) -> str:
    """For each question `1` or `0` if every hypothesis that explains the trials says so, `?` if they disagree."""
    subsets = (set(names) for size in range(len(objects) + 1) for names in combinations(objects, size))
    fitting = [guess for guess in subsets if all(lights(guess, chosen) == on for chosen, on in trials)]
    outcomes = ({lights(guess, chosen) for guess in fitting} for chosen in questions)
    return "".join("?" if len(outcome) > 1 else str(outcome.pop()) for outcome in outcomes)
