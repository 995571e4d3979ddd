"""Boards that are played or filled in: legal by the puzzle's own rules, whichever solution it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

Entry = Mapping[str, Any]

SIDE = 6  # of a rush hour board
MAX_MOVES = 500
MAX_STEPS = 100
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
