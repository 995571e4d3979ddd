"""Pass rates and votes: by any group, domains alike, with intervals, with and without the format."""

import math
import random
from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.algo.pass_at_k import pass_at_k
from prorl.lab.evals.statistics import (
    answered_only,
    curve,
    grouped,
    interval,
    least_passes,
    majority_rates,
    mean_rates,
    rates,
    solved_shares,
    voting,
)
from prorl.rollout.pipeline import domain_rates, unanswered_share
from support.evaluations import result, results, voted

KS = (1, 2, 16)


def test_a_curve_is_the_mean_over_problems_within_its_interval():
    problems = results([0, 4, 16, 1])
    found = curve(problems, KS)
    assert [at.k for at in found] == list(KS)
    for at in found:
        assert at.rate == pytest.approx(sum(pass_at_k(16, c, at.k) for c in (0, 4, 16, 1)) / 4)
        assert at.low <= at.rate <= at.high


def test_domains_weigh_alike_and_their_rates_are_those_of_validations():
    problems = [*results([16], domain="math", task="a"), *results([0] * 9, domain="code", task="b")]
    assert mean_rates(problems, (1,)) == [0.5]
    problems = [*results([1, 5], domain="math"), *results([9], domain="code")]
    for k in KS:
        domains = grouped(problems, lambda one: one.domain).items()
        of_domain = {name: mean_rates(members, (k,))[0] for name, members in domains}
        assert domain_rates(problems, k) == pytest.approx(of_domain)


def test_of_answered_responses_the_format_is_no_longer_seen():
    silent, mixed = result(0, 16, index=0, unanswered=16), result(4, 16, index=1, unanswered=12)
    (left,) = answered_only([silent, mixed])
    assert (left.samples, left.solved, left.unanswered) == (4, 4, 0)
    assert mean_rates([left], (1,)) == [1.0]
    assert unanswered_share([silent, mixed]) == 28 / 32


def test_answered_responses_of_two_models_are_compared_on_the_same_problems():
    base = [result(0, 16, index=0, unanswered=16), result(4, 16, index=1)]
    trained = [result(8, 16, index=0), result(4, 16, index=1)]
    assert [problem.index for problem in answered_only(trained, base)] == [1]
    assert [problem.index for problem in answered_only(base, trained)] == [1]


# -- the vote against every choice of k responses


CASES = (
    {"a": (3, True), "b": (3, False), "c": (1, False)},
    {"a": (1, True), "b": (2, False), "c": (4, False)},
    {"a": (5, True), "b": (1, False)},
    {"a": (2, False), "b": (2, True), "c": (2, True)},
)


def by_trying_all(votes, silent, k):
    """Expected accuracy over every choice of k responses, tied answers sharing."""
    responses = [name for name, (count, _) in votes.items() for _ in range(count)] + [None] * silent
    chances = []
    for chosen in combinations(responses, k):
        rollout_stats = Counter(name for name in chosen if name is not None)
        best = [name for name in rollout_stats if rollout_stats[name] == max(rollout_stats.values())]
        chances.append(sum(votes[name][1] for name in best) / len(best) if best else 0.0)
    return sum(chances) / len(chances)


@pytest.mark.parametrize("votes", CASES)
@pytest.mark.parametrize("silent", [0, 2])
def test_equals_trying_every_choice_of_k_responses(votes, silent):
    problem = voted(votes, silent=silent)
    ks = range(1, problem.samples + 1)
    exact = [by_trying_all(votes, silent, k) for k in ks]
    assert majority_rates([problem], ks, draws=20_000)[0] == pytest.approx(exact, abs=0.015)


def test_an_answer_judged_both_ways_counts_by_its_share():
    problem = result(1, 3, votes=(*voted({"a": (1, True)}).votes, *voted({"a": (2, False)}).votes))
    assert majority_rates([problem], (3,))[0, 0] == pytest.approx(1 / 3)


def test_a_vote_can_be_repeated_and_every_problem_has_draws_of_its_own():
    problems = [voted(CASES[0]), voted(CASES[0], index=1)]
    found = majority_rates(problems, (2, 3)).tolist()
    assert found == majority_rates(problems, (2, 3)).tolist()
    assert found[0] != found[1]


def test_programs_are_not_voted_on_but_silence_is_no_program():
    program, silent, answered = result(3), result(0, unanswered=16, index=1), voted({"a": (1, True)}, index=2)
    assert voting([program, silent, answered]) == [silent, answered]
    assert majority_rates([silent], (4,)).tolist() == [[0.0]]
    unwritten, written = (replace(one, task="programs") for one in (silent, program))
    assert voting([unwritten, written, answered]) == [answered], "one that nobody wrote is no vote either"


def test_models_are_compared_on_what_all_of_them_vote_on():
    silent, program = result(0, unanswered=16), result(3)
    answered = voted({"a": (1, True)}, index=1)
    assert voting([silent, answered], [program, answered]) == [answered]
    assert voting([program, answered], [silent, answered]) == [answered]


def ends(values, *, seed, resamples=2000, domains=None):
    problems = [result(0, domain=domain) for domain in domains or ["math"] * len(values)]
    (low,), (high,) = interval(np.array([values], float).T, problems, seed=seed, resamples=resamples)
    return low, high


@settings(max_examples=20)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=15), st.integers(0, 2**62))
def test_an_interval_is_reproducible_and_ordered_within_the_data(values, seed):
    low, high = ends(values, seed=seed, resamples=50)
    assert (low, high) == ends(values, seed=seed, resamples=50)
    assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12


def test_the_interval_matches_the_normal_one_on_many_problems():
    rng = random.Random(7)
    values = [float(rng.random() < 0.3) for _ in range(400)]
    mean = sum(values) / 400
    error = math.sqrt(mean * (1 - mean) / 400)
    low, high = ends(values, seed=3)
    assert low == pytest.approx(mean - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(mean + 1.96 * error, abs=0.15 * error)


def test_domains_weigh_alike_in_an_interval_however_unequal_they_are():
    assert ends([1.0] + [0.0] * 9, seed=0, domains=["few"] + ["many"] * 9) == (0.5, 0.5)


def test_columns_are_resampled_together():
    values, problems = np.random.default_rng(0).random((30, 1)), [result(0)] * 30
    for once, twice in interval(np.hstack([values, 2 * values]), problems, seed=4, resamples=50):
        assert twice == pytest.approx(2 * once)
    assert interval(values, problems, seed=4) != interval(values, problems, seed=5)


# -- guessing


def test_problems_that_guesses_would_solve_as_often_are_not_solved():
    lucky = [result(4, 64, index=index, guesses=64, guessed=6) for index in range(20)]
    known = [result(60, 64, index=index, guesses=64, guessed=6) for index in range(20, 25)]
    assert all(least > 4 for least in least_passes([*lucky, *known])[:20])
    assert all(least <= 60 for least in least_passes([*lucky, *known])[20:])
    assert least_passes(results([1, 0])) == [1, 1], "nothing is known of guesses"


def test_shares_say_what_is_luck_and_what_is_solved_how_often():
    problems = [
        result(solved, 64, index=index, guesses=64, guessed=16) for index, solved in enumerate((20, 64, 0, 2))
    ]
    found = solved_shares(problems, 64)
    assert found["pass@64"] == 0.75
    assert found["guesses alone, @64"] == pytest.approx(1, abs=1e-6)
    assert found["solved beyond guessing"] == 0.25
    shares = [found[f"solved in 1/{of} of the tries or more"] for of in (64, 16, 2)]
    assert shares == [0.75, 0.5, 0.25]
    assert solved_shares(results([1, 0]), 16)["guesses alone, @16"] is None
    programs = [result(1, 64, index=index, task="programs") for index in range(4)]
    assert solved_shares([*problems, *programs], 64)["guesses alone, @64"] == pytest.approx(0.5, abs=1e-6)


def test_rates_are_those_of_each_problem_at_each_k_and_of_all_there_is_where_k_is_more():
    problems = [result(solved, samples) for samples, solved in ((4, 1), (8, 0), (4, 1), (2, 2))]
    found = [[pass_at_k(one.samples, one.solved, k) for k in (1, 2)] for one in problems]
    assert rates(problems, (1, 2)).tolist() == found
    assert rates([result(1, 2), result(1, 4)], (4,)).tolist() == [[1.0], [1.0]]
