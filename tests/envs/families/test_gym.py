"""The chosen reasoning-gym tasks: their working by hand, and the traps of the library that they avoid."""

from random import Random

import pytest

from prorl.envs.families.gym import (
    BaseConversion,
    CalendarArithmetic,
    ChainSum,
    DecimalChainSum,
    FractionSimplification,
    KnightsKnaves,
    Lcm,
    NumberFiltering,
    NumberSequence,
    Products,
    SimpleGeometry,
    SpellBackward,
    TimeIntervals,
)


@pytest.mark.parametrize(
    ("task", "metadata", "steps"),
    [
        (ChainSum(), {"expression": "4 - 1 - 7 + 12"}, "3 -4"),
        (ChainSum(), {"expression": "4 - 1"}, ""),
        (DecimalChainSum(), {"expression": "3.2 - 0.2 + 2.7"}, "3.0"),
        (Products(), {"expression": "47 * 23"}, "940+141"),
        (Lcm(), {"numbers": [24, 18]}, "gcd 6 4*18"),
        (FractionSimplification(), {"factor": 4}, "/4"),
        (BaseConversion(), {"decimal_value": 21}, "21"),
        (SpellBackward(), {"word": "sun"}, "s u n"),
        (NumberFiltering(), {"filter_value": "11", "original_numbers": ["19", "6", "11"]}, "19> 6< 11="),
        (
            TimeIntervals(),
            {"task_type": "time", "start_time": "2026-01-02 13:28:00", "end_time": "2026-01-02 13:44:00"},
            "824-808",
        ),
        (
            TimeIntervals(),
            {
                "task_type": "time_seconds",
                "start_time": "2026-01-02 23:59:50",
                "end_time": "2026-01-03 00:00:10",
            },
            "86410-86390",
        ),
        (TimeIntervals(), {"task_type": "date"}, ""),
        (CalendarArithmetic(), {"start_date": "2022-02-07", "offset_days": 17}, "Monday+3"),
        (CalendarArithmetic(), {"start_date": "2022-02-07", "offset_days": -9}, "Monday-2"),
        (SimpleGeometry(), {"total_interior_sum": 180, "sum_of_known_angles": 110.0}, "180-110"),
        (NumberSequence(), {"rule": "multiply by 4"}, "multiply by 4"),
    ],
)
def test_working_by_hand(task, metadata, steps):
    assert task.steps({"metadata": metadata}) == steps


def test_unreduced_fractions_and_collapsed_sequences_are_not_used():
    def fraction(numerator, denominator):
        return {"metadata": {"simplified_numerator": numerator, "simplified_denominator": denominator}}

    assert FractionSimplification().usable(fraction(2, 3))
    assert not FractionSimplification().usable(fraction(4, 6))
    assert NumberSequence().usable({"metadata": {"sequence": [1, 2, 4]}})
    assert not NumberSequence().usable({"metadata": {"sequence": [4, 0, 0]}})


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        (ChainSum(), "{0} 1"),
        (Lcm(), "{0} 12"),
        (KnightsKnaves(), "Zed is a knave. {0}"),
        (CalendarArithmetic(), "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
        (TimeIntervals(), "00:30"),
        (FractionSimplification(), "1/1"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_lists_of_candidates_and_near_misses_earn_nothing(task, answer):
    rng = Random(0)
    for _ in range(10):
        draft = task.generate(rng, 1)
        near = answer.format(draft.witness.answer)
        assert near == draft.witness.answer or task.score(draft.payload, near) == 0


def test_spelling_backward_pays_for_letters_in_place():
    task = SpellBackward()
    payload = (1, {"answer": "nus", "metadata": {}})
    assert task.score(payload, "nus") == 1
    assert task.score(payload, "nut") == pytest.approx(2 / 3)
    assert task.score(payload, "nus and more") < 1
    assert task.score(payload, "xyz") == 0
