"""Workings by hand; each repair removes a dependence on more than the item number and leaves the questions alone."""

import random
import sys
from datetime import date
from random import Random

import numpy
import pytest
import reasoning_gym
from reasoning_gym.arithmetic import time_intervals

from prorl.envs.families import gym_datasets as repairs
from prorl.envs.families.gym import ROWS
from prorl.envs.registry import make_task
from support.timing import cpu_seconds

ITEM = 12345678901234567


@pytest.mark.parametrize(
    ("name", "metadata", "steps"),
    [
        ("chain_sum", {"expression": "4 - 1 - 7 + 12"}, "3 -4"),
        ("chain_sum", {"expression": "4 - 1"}, ""),
        ("decimal_chain_sum", {"expression": "3.2 - 0.2 + 2.7"}, "3.0"),
        ("lcm", {"numbers": [24, 18]}, "gcd 6 4*18"),
        ("spell_backward", {"word": "sun"}, "s u n"),
    ],
)
def test_working_by_hand(name, metadata, steps):
    assert ROWS[f"rg_{name}"].steps({"metadata": metadata}) == steps


STRAY = ["X....", ".OX..", "XOO..", ".X.X.", "....."]  # D3 and A4 lend the two and the one their liberties
CAUGHT = ["XX...", "XOX..", "XO...", ".X.O.", "....."]  # at C3 alone, and two stones


@pytest.mark.parametrize(
    ("name", "answer", "about", "usable"),
    [
        ("fraction_simplification", "", {"simplified_numerator": 4, "simplified_denominator": 3}, True),
        ("fraction_simplification", "", {"simplified_numerator": 4, "simplified_denominator": 6}, False),
        ("number_sequence", "", {"sequence": [1, 2, 4]}, True),
        ("number_sequence", "", {"sequence": [4, 0, 0]}, False),
        ("power_function", "9.0", {"base": -3, "exponent": 2}, False),
        ("power_function", "-27.0", {"base": -3, "exponent": 3}, True),
        ("power_function", "9.0", {"base": 3, "exponent": 2}, True),
        ("family_relationships", "mother-in-law", {}, False),
        ("family_relationships", "mother", {}, True),
        ("time_intervals", "00:00:01.000", {"task_type": "time_ms", "format": "%H:%M:%S.%f"}, False),
        ("time_intervals", "9 days, 00:00", {"task_type": "datetime", "format": "%Y-%m-%d (%A) %H:%M"}, False),
        ("time_intervals", "9 days, 01:10", {"task_type": "datetime", "format": "%Y-%m-%d %H:%M"}, True),
        ("mahjong_puzzle", "Pass", {"rounds": [{"cards": "ABKTX"}, {"add": "C"}]}, False),
        ("mahjong_puzzle", "Chi", {"rounds": [{"cards": "ABKTX"}, {"add": "C"}]}, True),
        ("mahjong_puzzle", "Chi", {"rounds": [{"cards": "ABCCX"}, {"add": "C"}]}, False),
        ("mahjong_puzzle", "Peng", {"rounds": [{"cards": "ABCCX"}, {"add": "C"}]}, True),
        ("mahjong_puzzle", "Pass", {"rounds": [{"cards": "AADGX"}, {"add": "K"}]}, True),
        ("tsumego", "C3", {"board": list(map(list, CAUGHT))}, True),
        ("tsumego", "D3", {"board": list(map(list, CAUGHT))}, False),
        ("tsumego", "D3", {"board": list(map(list, STRAY))}, False),
        ("syllogism", "Yes", ("All birds are bees", "Some bees are not chefs", "Some birds are not chefs"), False),
        ("syllogism", "No", ("All birds are bees", "Some bees are not chefs", "Some birds are not chefs"), True),
        ("syllogism", "Yes", ("All cats are pets", "No pets are fish", "No cats are fish"), True),
        # where there are adults, and where there may be none
        *(
            ("syllogism", answer, ("All adults are kin", "No kin are fish", "Some adults are not fish"), True)
            for answer in ("Yes", "No")
        ),
    ],
)  # fmt: skip
def test_wrong_and_degenerate_entries_of_the_library_are_not_used(name, answer, about, usable):
    if isinstance(about, tuple):
        about = dict(zip(("premise1", "premise2", "conclusion"), about, strict=True))
    assert bool(ROWS[f"rg_{name}"].usable({"answer": answer, "metadata": about})) is usable


def dataset(name, size=sys.maxsize):
    return reasoning_gym.create_dataset(name, seed=0, size=size)


def test_a_sorted_set_is_a_set_in_order():
    letters = repairs.SortedSet("hello")
    assert list(letters) == ["e", "h", "l", "o"]
    assert list(letters - {"l"}) == ["e", "h", "o"]
    assert "h" in letters


def test_choices_by_item_number_use_every_template():
    gsm = dataset("gsm_symbolic", 10_000)
    templates = set(gsm.task_indices)
    repairs.draw_templates(gsm)
    assert {gsm.task_indices[item] for item in range(2000)} == templates
    assert gsm[ITEM] == gsm[ITEM]


def test_blickets_are_drawn_in_the_librarys_proportions():
    acre = dataset("acre", 10)
    repairs.draw_blickets(acre)
    answers = [acre[item]["answer"] for item in range(40)]
    assert set(answers) == {"on", "off", "undetermined"}
    assert acre[ITEM]["question"] == acre[ITEM]["question"]


RING = ("A1", "B3", "C1", "A2", "C3", "B1", "A3", "C2")  # the squares a knight visits around the centre


def test_our_knights_need_as_many_moves_as_the_librarys():
    puzzles = reasoning_gym.create_dataset("knight_swap", seed=0, size=3, max_nodes=7, impossible_ratio=0.0)
    theirs = puzzles.game_logic.solve_swap
    repairs.order_knights(puzzles)
    for puzzle in (puzzles[item]["metadata"] for item in range(2)):
        solution = theirs(puzzle["board"], puzzle["pieces"], puzzle["start_turn"])
        assert len(puzzle["solution"]) == len(solution) > 0


def test_an_impossible_swap_is_impossible_with_every_move_that_the_question_shows():
    logic = dataset("knight_swap").game_logic
    line = {square: [*RING[max(0, at - 1) : at], *RING[at + 1 : at + 2]] for at, square in enumerate(RING)}
    pieces = {**dict.fromkeys(RING), "A1": "w", "C1": "B"}
    assert logic.solve_swap(line, pieces, "w") is None  # as on a line that ends at A1 and C2
    repairs.order_knights(puzzles := dataset("knight_swap"))
    assert puzzles.game_logic.solve_swap(line, pieces, "w") is not None  # but the ring is closed
    blocked = {"A1": "w", "B3": "B"}
    assert puzzles.game_logic.solve_swap(blocked, blocked, "w") is None


def test_long_sequences_stop_early_and_stay_the_same():
    sequences = dataset("number_sequence")
    before = [sequences[item]["question"] for item in range(12)]
    repairs.stop_large_sequences(sequences)
    repairs.stop_large_sequences(sequences)
    assert [sequences[item]["question"] for item in range(12)] == before
    rng = Random(3)
    items = [rng.getrandbits(63) for _ in range(300)]  # among them one that took a minute
    assert cpu_seconds(lambda: [sequences[item] for item in items], enough=5) < 5


@pytest.mark.parametrize(
    ("imports", "result", "pure"),
    [
        *(("import math", "math.sqrt(n)", True), ("", "sorted(list(n))", True)),
        *(("import numpy as np", "np.random.rand()", False), ("import random", "random.random()", False)),
        *(("from datetime import date", "str(date.today())", False), ("import os.path", "1", False)),
        *(("", "list({c for c in n})", False), ("", "list(set(n))", False), ("", "hash(n)", False)),
        *(("", "open(n).read()", False), ("", "n.__class__.__name__", False)),
    ],
)
def test_programs_that_depend_on_more_than_their_input_are_left_out(imports, result, pure):
    program = f"{imports}\ndef main_solution(n):\n    return {result}"
    assert repairs._is_pure(program, "import random\ndef generate_inputs(random):\n    return {}") == pure


def test_drawing_leaves_the_global_generators_and_the_console_alone(capsys):
    careless = [name for name, row in ROWS.items() if row.careless]
    states = random.getstate(), numpy.random.get_state()[1].tolist()
    for name in careless:
        make_task(name).problem(0, "train")
    assert (random.getstate(), numpy.random.get_state()[1].tolist()) == states
    assert capsys.readouterr() == ("", "")


def test_time_intervals_do_not_ask_about_today(monkeypatch):
    def drawn(year):
        today = type("Day", (date,), {"today": classmethod(lambda cls: date(year, 2, 28))})
        monkeypatch.setattr(time_intervals, "date", today)
        task, rng = make_task("rg_time_intervals", {0: 1.0}), Random(0)
        return [task.generate(rng, 0) for _ in range(40)]

    assert drawn(2023) == drawn(2024)
