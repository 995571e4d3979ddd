"""Texts that a reader would call the same are the same, and no others."""

import pytest

from prorl.envs.families.gym_scorers import text


def entry(answer, **metadata):
    return {"answer": answer, "metadata": metadata}


@pytest.mark.parametrize(
    ("scorer", "gold", "right", "wrong"),
    [
        (
            text.lines,
            "1 2\n3 4",
            ["1 2\n3 4", " 1  2 \n3\t4\n"],
            ["1 2 3 4", "1 2\n3", "12\n34", "", "1 2\n3 4\n5"],
        ),
        (text.compact, "[1, 2]", ["[1,2]", "[ 1 , 2 ]"], ["[2, 1]", "1, 2", "[1, 2] [1, 2]"]),
        (text.folded, "True", ["true", " TRUE "], ["False", "True False", "not true", ""]),
    ],
)
def test_spacing_is_forgiven_and_nothing_else(scorer, gold, right, wrong):
    assert [scorer(entry(gold), answer) for answer in right] == [1.0] * len(right)
    assert [scorer(entry(gold), answer) for answer in wrong] == [0.0] * len(wrong)


@pytest.mark.parametrize(
    ("given", "score"),
    [
        ("Up, well before", 1.0),
        ("up well", 2 / 3),
        ("well up before", 1 / 3),
        ("up well before or not", 0.6),
        ("", 0.0),
    ],
)
def test_words_in_place_are_counted_and_surplus_words_cost(given, score):
    assert text.words(entry("up, well before"), given) == pytest.approx(score)


def test_any_listed_board_is_right():
    puzzle = entry("Q _", valid_answers=["Q _\n_ Q", "_ Q\nQ _"])
    assert text.listed(puzzle, "_  Q\nQ  _ ") == 1.0
    assert text.listed(puzzle, "Q _") == 0.0


@pytest.mark.parametrize(
    ("gold", "given", "score"),
    [
        ('{"a": 1}', '{ "a" : 1 }', 1.0),
        ('{"a": 1}', '{"a": 1.0}', 1.0),
        ('{"a": 1}', '{"a": true}', 0.0),
        ('{"a": 1}', '{"a": 1, "b": 2}', 0.0),
        ('{"a": 1}', "{}", 0.0),
        ('{"a": 1}', "a: 1", 0.0),
        ("0.3333333333", "0.33333333", 1.0),
        ("0.3333333333", "0.3333", 0.0),
        ("[[0,1],[1,0]]", "[[0, 1], [1, 0]]", 1.0),
        ("[[0,1],[1,0]]", "[[0, 1]]", 0.0),
        ("[[0,1],[1,0]]", "[" * 3900, 0.0),
        ("null", "null", 1.0),
        ("null", "0", 0.0),
        ('"1"', "1", 0.0),
        ("1.5", "9" * 3000, 0.0),
        ("NaN", "NaN", 0.0),
    ],
)
def test_json_is_compared_by_value(gold, given, score):
    assert text.same_json(entry(gold), given) == score
