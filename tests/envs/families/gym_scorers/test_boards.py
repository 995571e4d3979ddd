"""Puzzles are judged by their rules: a solver of ours is right, and an illegal move spoils everything."""

import json
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.families.gym_scorers.boards import (
    SIDE,
    _parked,
    _shift,
    box_net,
    box_net_plan,
    rush_hour,
    survo,
)

BOARD = "oooBooooCBooAACooooooooDoooooDooEEEo"  # two columns block the red car
PARKED = {"answer": None, "metadata": {"board_config": BOARD}}


def solved(board):
    """A shortest solution by breadth-first search."""
    cars, walls = _parked(board)
    queue, seen = deque([(cars, ())]), {str(cars)}
    while queue:
        cars, moves = queue.popleft()
        if cars["A"][-1] == 3 * SIDE - 1:
            return " ".join(moves)
        for car in cars:
            for sign, step in (("+", 1), ("-", -1)):
                after = dict(cars)
                if _shift(after, walls, car, step) and str(after) not in seen:
                    seen.add(str(after))
                    queue.append((after, (*moves, f"{car}{sign}1")))
    return None


def test_a_solution_found_by_search_is_right():
    answer = solved(BOARD)
    assert rush_hour(PARKED, answer) == 1.0
    assert rush_hour(PARKED, f"{answer} A+1") == 0.0


@pytest.mark.parametrize(
    "answer", ["", "A+4", "A+99999999999", "Z+1", "A-1", "C+9", "A+1 " * 501, "solve it", "A + 1", "٣"]
)
def test_an_impossible_move_is_wrong(answer):
    assert rush_hour(PARKED, answer) == 0.0


def test_guessing_every_move_over_and_over_solves_nothing():
    spam = " ".join(f"{car}{sign}1" for car in "ABCDE" for sign in "+-") * 20
    assert rush_hour(PARKED, spam) == 0.0


def test_walls_stand_and_letters_are_as_displayed():
    assert rush_hour({"metadata": {"board_config": "o" * 12 + "HHoooo" + "o" * 18}}, "A+4") == 1.0
    assert rush_hour({"metadata": {"board_config": "o" * 12 + "HHoxoo" + "o" * 18}}, "A+4") == 0.0


FIELD = {
    "answer": None,
    "metadata": {
        "initial_state": {
            "0.5_0.5": ["box_red", "target_blue"],
            "0.5_1.5": ["target_red"],
            "1.5_0.5": ["box_blue"],
            "1.5_1.5": ["box_green", "target_green"],
        }
    },
}


def test_a_plan_of_ours_delivers_every_box():
    assert box_net(FIELD, box_net_plan(FIELD)) == 1.0


def test_every_box_delivered_counts():
    one = [{"Agent[1.5, 1.5]": "move(box_green, target_green)"}]
    assert box_net(FIELD, json.dumps(one)) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "plan",
    [
        [{"Agent[0.5, 0.5]": "move(box_red, target_red)"}],
        [{"Agent[0.5, 0.5]": "move(box_red, target_blue)"}],
        [{"Agent[0.5, 0.5]": "move(box_red, square[1.5, 1.5])"}],
        [{"Agent[0.5, 0.5]": "move(box_red, square[0.5, 9.5])"}],
        [{"Agent[9.5, 9.5]": "move(box_red, target_red)"}],
        [{"Agent[0.5, 0.5]": 3}],
        [3],
        {"a": 1},
        0,
        None,
        [{}] * 101,
    ],
)
def test_an_illegal_plan_delivers_nothing(plan):
    assert box_net(FIELD, json.dumps(plan)) == 0.0


def test_an_illegal_action_voids_what_was_delivered():
    plan = [
        {"Agent[1.5, 1.5]": "move(box_green, target_green)"},
        {"Agent[1.5, 1.5]": "move(box_green, target_green)"},
    ]
    assert box_net(FIELD, json.dumps(plan)) == 0.0
    assert box_net(FIELD, "[" * 3900) == 0.0


SQUARE = {
    "answer": "",
    "metadata": {"puzzle": [[0, 0, 5], [0, 4, 7], [5, 7, 12]], "candidate_numbers": [2, 3, 3]},
}


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("2 3 5\n3 4 7\n5 7 12", 1.0),
        ("3 2 5\n3 4 7\n5 7 12", 0.0),
        ("2 3 5\n3 4 7", 0.0),
        ("0 0 5\n0 4 7\n5 7 12", 0.0),
        ("1 4 5\n4 3 7\n5 7 12", 0.0),
        ("2 3 5\n3 4 7\n5 7 ١٢", 0.0),
        ("", 0.0),
    ],
)
def test_survo(answer, score):
    assert survo(SQUARE, answer) == score


def test_any_solution_of_a_survo_puzzle_is_right():
    loose = {"metadata": {"puzzle": [[0, 0, 3], [0, 0, 3], [3, 3, 6]], "candidate_numbers": [1, 2, 1, 2]}}
    assert survo(loose, "1 2 3\n2 1 3\n3 3 6") == survo(loose, "2 1 3\n1 2 3\n3 3 6") == 1.0


@given(st.text(max_size=80))
def test_no_text_breaks_a_board(text):
    for scorer, puzzle in ((rush_hour, PARKED), (box_net, FIELD), (survo, SQUARE)):
        assert scorer(puzzle, text) == 0.0
