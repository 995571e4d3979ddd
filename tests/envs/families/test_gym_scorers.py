"""Each scorer of ours on hand-worked answers: right by the rules whatever the form, and no cheap trick pays."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.families import gym_scorers as scorers


def entry(answer=None, **metadata):
    return {"answer": answer, "metadata": metadata}


GAME = entry("", numbers=[73, 85, 1, 42, 14, 49], target=179)
CARDS = entry("", numbers=[5, 1, 2, 8])
QUEENS = entry("Q _", valid_answers=["Q _\n_ Q", "_ Q\nQ _"])
CHAIN = entry(premises=["(P → Q)", "(Q → R)"], variables=["P", "Q", "R"])
P_HOLDS = entry(premises=["P"], variables=["P", "Q", "R"])
SQUARE = entry("", puzzle=[[0, 0, 5], [0, 4, 7], [5, 7, 12]], candidate_numbers=[2, 3, 3])
LOOSE = entry(puzzle=[[0, 0, 3], [0, 0, 3], [3, 3, 6]], candidate_numbers=[1, 2, 1, 2])

TABLE = [
    # texts: spacing is forgiven and nothing else
    (scorers.lines, entry("1 2\n3 4"), ["1 2\n3 4", " 1  2 \n3\t4\n"],
     ["1 2 3 4", "1 2\n3", "12\n34", "", "1 2\n3 4\n5"]),
    (scorers.compact, entry("[1, 2]"), ["[1,2]", "[ 1 , 2 ]"], ["[2, 1]", "1, 2", "[1, 2] [1, 2]"]),
    (scorers.folded, entry("True"), ["true", " TRUE "], ["False", "True False", "not true", ""]),
    (scorers.listed, QUEENS, ["_  Q\nQ  _ "], ["Q _"]),
    (scorers.same_json, entry('{"a": 1}'), ['{ "a" : 1 }', '{"a": 1.0}'],
     ['{"a": true}', '{"a": 1, "b": 2}', "{}", "a: 1"]),
    (scorers.same_json, entry("0.3333333333"), ["0.33333333"], ["0.3333"]),
    (scorers.same_json, entry("[[0,1],[1,0]]"), ["[[0, 1], [1, 0]]"], ["[[0, 1]]", "[" * 3900]),
    (scorers.same_json, entry("null"), ["null"], ["0"]),
    (scorers.same_json, entry("1.5"), ["1.5"], ["9" * 3000]),
    (scorers.same_json, entry("NaN"), [], ["NaN"]),
    # numbers
    (scorers.number, entry("1000"), ["1000", "1,000", "+1000.0", "1e3"],
     ["999", "1000 apples", "1000 or 999", "nan", "٣"]),
    (scorers.number, entry("-3"), ["-3", "-3.00"], ["3", "−3", "--3", ""]),
    (scorers.within(1e-2), entry("2.5"), ["2.5", "2.509"], ["2.52", "inf", "1e99", "9" * 500]),
    (scorers.within(5e-3, relative=True), entry("-0.0014"), ["-0.001398", "-1.4e-3"], ["0", "0.0014", "-0.0015"]),
    (scorers.within(5e-3, relative=True), entry("0.0"), ["0"], ["0.001"]),
    (scorers.to_the_last_place, entry("63.43°"), ["63.43°", "63.435", " 63.44 °"], ["63.45", "63.43, 1", ""]),
    (scorers.to_the_last_place, entry("(1.333, -2.000)"), ["(1.333, -2)", "1.3333,-2.0"], ["(-2, 1.333)", "1.333"]),
    (scorers.number_list, entry("['-3.5', '1']"), ["['-3.5', '1']", "[-3.5, 1.0]", "-3.5, 1"],
     ["[1, -3.5]", "[-3, 1]", "[]"]),
    (scorers.roots, entry("-1.5, 0.0"), ["-1.5, 0", "0, -1.4999"],
     ["0", "-1.5", "0, 0", "-1.5, 0, 1", "none", "x"]),
    (scorers.matrix, entry("3.0 5.22\n4.67 1"), ["3 5.22\n4.67 1", "3 5.23\n4.667 1.0"],
     ["3 5.22 4.67 1", "3 5.3\n4.67 1", "nan"]),
    (scorers.factors, entry("2 × 2 × 3"), ["2 × 2 × 3", "3*2*2", "2x3x2"], ["12", "4 × 3", "2 × 3", "xyzzy", ""]),
    (scorers.hexadecimal, entry("-0xff"), ["-0xff", "-0xFF", "-255"], ["0xff", "ff", "-0x", "1" * 3000]),
    (scorers.probability, entry("0.375"), ["3/8", "0.375", "0.3751"], ["0", "0.3", "3/0"]),
    (scorers.probability, entry("3.051757812e-05"), ["1/32768"], ["0"]),  # within the library's tolerance
    (scorers.complex_number, entry("", result=(3, -2)), ["3.0 - 2.0i", "(3-2j)"],
     ["3 + 2i", "nan", "-2i + 3", "((((3-2i"]),
    (scorers.complex_number, entry("", result=(3, 0)), ["3"], ["3i"]),
    (scorers.complex_number, entry("", result=(0, -1)), ["-i"], ["i"]),
    (scorers.complex_number, entry("", result=(0, 1)), ["0 + i"], ["1"]),
    # expressions
    (scorers.countdown, GAME, ["49*(85 - 1)/14 - 42 - 73", "-42 - 73 + 49*(85 - 1)/14"],
     ["179", "49*(85 - 1)/14 - 42", "49*(85 - 1)/14 - 42 - 73 + 1 - 1", ""]),
    (scorers.countdown, CARDS, ["8*(5*1 - 2)"], ["6*4*1*1", "8*5*1/2"]),  # the library takes any small numbers
    (scorers.countdown, entry("", numbers=[7, 7, 2, 1]), [], ["7*7/2*1"]),  # 24.5, which the library truncates
    (scorers.polynomial, entry("x**2 - 1"), ["-1 + x*x"], ["(x + 1)*(x - 1)", "x**2 + 1", "x y"]),
    (scorers.antiderivative, entry("", integrand="2*x", variable="x"), ["x**2 + C"], ["2*x", "Integral(2*x, x)"]),
    (scorers.conclusion, CHAIN, ["P → R", "¬R → ¬P"],
     ["R → P", "P ∨ ¬P", "x1 ∨ x2", "S → S", "", "P → Q", "¬Q → ¬P", "(P → Q) ∧ (Q → R)"]),
    (scorers.conclusion, P_HOLDS, [], ["(P)", "P ∨ Q"]),  # one premise says it already
    # boards
    (scorers.survo, SQUARE, ["2 3 5\n3 4 7\n5 7 12"],
     ["3 2 5\n3 4 7\n5 7 12", "2 3 5\n3 4 7", "0 0 5\n0 4 7\n5 7 12", "1 4 5\n4 3 7\n5 7 12",
      "2 3 5\n3 4 7\n5 7 ١٢", ""]),
    (scorers.survo, LOOSE, ["1 2 3\n2 1 3\n3 3 6", "2 1 3\n1 2 3\n3 3 6"], ["1 1 3\n2 2 3\n3 3 6"]),
    (scorers.rush_hour, entry(board_config="o" * 12 + "HHoooo" + "o" * 18), ["A+4"], ["A+3"]),
    (scorers.rush_hour, entry(board_config="o" * 12 + "HHoxoo" + "o" * 18), [], ["A+4"]),
]  # fmt: skip


@pytest.mark.parametrize(("scorer", "puzzle", "right", "wrong"), TABLE)
def test_worked_answers(scorer, puzzle, right, wrong):
    assert {answer: scorer(puzzle, answer) for answer in right} == dict.fromkeys(right, 1.0)
    assert {answer: scorer(puzzle, answer) for answer in wrong} == dict.fromkeys(wrong, 0.0)


@pytest.mark.parametrize(
    ("given", "score"),
    [
        *(("Up, well before", 1.0), ("up well", 2 / 3), ("well up before", 1 / 3)),
        *(("up well before or not", 0.6), ("", 0)),
    ],
)
def test_words_in_place_are_counted_and_surplus_words_cost(given, score):
    assert scorers.words(entry("up, well before"), given) == pytest.approx(score)


@given(st.integers(-(10**12), 10**12), st.integers(0, 6))
def test_a_number_is_read_as_it_is_written(digits, places):
    text = f"{digits / 10**places:.{places}f}"
    assert scorers.plain_number(text) == Fraction(text)


def test_contradictory_premises_are_known():
    assert scorers.models(entry(premises=["P", "Q"], variables=["P", "Q"]))
    assert not scorers.models(entry(premises=["P", "¬P"], variables=["P", "Q"]))


BOARD = "oooBooooCBooAACooooooooDoooooDooEEEo"  # two columns block the red car
PARKED = entry(board_config=BOARD)


def test_the_car_leaves_after_the_column_in_its_way_has_moved_and_not_before():
    assert scorers.rush_hour(PARKED, "C-1 A+4") == scorers.rush_hour(PARKED, "C-1 A+1 A+1 A+1 A+1") == 1.0
    for answer in ("C-1 A+3", "A+4 C-1", "C-1 A+4 A+1"):
        assert scorers.rush_hour(PARKED, answer) == 0.0


EVERY_MOVE = " ".join(f"{car}{sign}1" for car in "ABCDE" for sign in "+-") * 20


@pytest.mark.parametrize(
    "answer",
    ["", "A+4", "A+99999999999", "Z+1", "A-1", "C+9", "A+1 " * 501, "solve it", "A + 1", "٣", EVERY_MOVE],
)
def test_an_impossible_move_is_wrong(answer):
    assert scorers.rush_hour(PARKED, answer) == 0.0


FIELD = entry(
    initial_state={
        "0.5_0.5": ["box_red", "target_blue"],
        "0.5_1.5": ["target_red"],
        "1.5_0.5": ["box_blue"],
        "1.5_1.5": ["box_green", "target_green"],
    }
)
GREEN = {"Agent[1.5, 1.5]": "move(box_green, target_green)"}


def test_every_box_delivered_counts():
    assert scorers.box_net(FIELD, scorers.box_net_plan(FIELD)) == 1.0
    assert scorers.box_net(FIELD, json.dumps([GREEN])) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "plan",
    [
        *([{"Agent[0.5, 0.5]": action}] for action in (
            "move(box_red, target_red)", "move(box_red, target_blue)", "move(box_red, square[1.5, 1.5])",
            "move(box_red, square[0.5, 9.5])", 3,
        )),
        [{"Agent[9.5, 9.5]": "move(box_red, target_red)"}], [3], {"a": 1}, 0, None, [{}] * 101, [GREEN, GREEN],
    ],
)  # fmt: skip
def test_an_illegal_action_voids_the_plan(plan):
    assert scorers.box_net(FIELD, json.dumps(plan)) == 0.0
    assert scorers.box_net(FIELD, "[" * 3900) == 0.0
