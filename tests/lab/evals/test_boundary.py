"""Who solves what: planted new and lost problems are found, and what chance would give is what chance gives."""

from itertools import combinations

import numpy as np
import pytest

from prorl.lab.evals.comparison import SURE, boundary, paired
from support.studies import result, results

N = 256


def moved(base: int, trained: int, samples: int = N):
    (move,) = paired([result(base, samples)], [result(trained, samples)])
    return move


def test_planted_new_and_lost_problems_are_found():
    moves = paired(results([0, 90, 200, 0], N), results([120, 0, 210, 0], N))
    assert [move.fate for move in moves] == ["new", "lost", "both", "neither"]
    assert [move.sure for move in moves] == [True, True, False, False]
    found = boundary("t", moves)
    assert (found.both, found.new, found.lost, found.neither, found.problems) == (1, 1, 1, 1, 4)
    assert (found.sure_new, found.sure_lost) == (1, 1)


def test_one_lucky_response_is_new_but_not_sure():
    move = moved(0, 1)
    assert (move.fate, move.sure) == ("new", False)
    assert move.chance == (0.5, 0.5)


def test_the_chance_is_that_of_dealing_the_responses_to_the_two_models_at_random():
    move = paired([result(0, 4)], [result(3, 5)])[0]
    deals = list(combinations(range(9), 5))  # which responses are the trained model's; 0, 1 and 2 passed
    new = sum({0, 1, 2} <= set(deal) for deal in deals) / len(deals)
    lost = sum(not {0, 1, 2} & set(deal) for deal in deals) / len(deals)
    assert move.chance == pytest.approx((new, lost))


def test_what_chance_would_give_is_what_two_measurements_of_one_model_give():
    rng = np.random.default_rng(1)
    skill = rng.beta(0.1, 4, size=3000)
    first, second = (results(map(int, rng.binomial(N, skill)), N) for _ in range(2))
    found = boundary("same", paired(first, second))
    assert found.new > 100
    assert found.chance_new == pytest.approx(found.new, rel=0.15)
    assert found.chance_lost == pytest.approx(found.lost, rel=0.15)
    assert found.sure_new + found.sure_lost <= SURE * found.problems


def test_only_problems_that_both_were_judged_on_are_paired():
    base, trained = results([1, 2, 3]), results([4, 5])[::-1]
    assert [(move.base.solved, move.trained.solved) for move in paired(base, trained)] == [(1, 4), (2, 5)]


def test_a_level_of_a_ladder_is_another_problem():
    assert paired([result(1, level=1, part="ladder")], [result(1, level=2, part="ladder")]) == []
