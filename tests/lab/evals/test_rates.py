"""Pass rates with intervals: by any group, domains alike, with and without the format."""

import pytest

from prorl.algo.pass_at_k import pass_at_k
from prorl.lab.evals.statistics import answered_only, by_level, by_task, curve, curves, powers_up_to, rates
from prorl.rollout.validation import domain_rates, unanswered_share
from support.studies import result, results

KS = (1, 2, 16)


def test_a_curve_is_the_mean_over_problems_within_its_interval():
    problems = results([0, 4, 16, 1])
    found = curve("all", problems, KS)
    for k, rate, low, high in zip(KS, found.rates, found.low, found.high, strict=True):
        assert rate == pytest.approx(sum(pass_at_k(16, c, k) for c in (0, 4, 16, 1)) / 4)
        assert low <= rate <= high
    assert found.at(2) == found.rates[1]


def test_there_is_a_curve_per_group_and_one_of_the_mean_over_domains():
    problems = [*results([16], domain="math", task="a"), *results([0] * 9, domain="code", task="b")]
    math, code, mean = curves(problems, (1,))
    assert [(row.label, row.problems) for row in (math, code, mean)] == [
        ("math", 1),
        ("code", 9),
        ("mean", 10),
    ]
    assert (math.rates, code.rates, mean.rates) == ((1.0,), (0.0,), (0.5,))
    assert [row.label for row in curves(problems, (1,), by=by_task)] == ["a", "b", "mean"]


def test_levels_are_groups_too():
    ladder = [result(16, index=0, level=1), result(0, index=0, level=2)]
    assert [(row.label, row.rates) for row in curves(ladder, (1,), by=by_level)][:2] == [
        ("1", (1.0,)),
        ("2", (0.0,)),
    ]


def test_no_problems_have_no_curves():
    assert curves([], KS) == []


def test_domain_rates_are_those_of_the_curves():
    problems = [*results([1, 5], domain="math"), *results([9], domain="code")]
    for k in KS:
        of_curves = {row.label: row.at(k) for row in curves(problems, KS)[:-1]}
        assert domain_rates(problems, k) == pytest.approx(of_curves)


def test_a_problem_with_fewer_judged_responses_is_counted_with_those_it_has():
    assert rates([result(1, 2)], (16,)).tolist() == [[1.0]]


def test_of_answered_responses_the_format_is_no_longer_seen():
    silent, mixed = result(0, 16, index=0, unanswered=16), result(4, 16, index=1, unanswered=12)
    (left,) = answered_only([silent, mixed])
    assert (left.samples, left.solved, left.unanswered) == (4, 4, 0)
    assert curve("", [left], (1,)).rates == (1.0,)
    assert unanswered_share([silent, mixed]) == 28 / 32


@pytest.mark.parametrize(
    ("largest", "ks"), [(1, (1,)), (2, (1, 2)), (12, (1, 2, 4, 8, 12)), (256, tuple(2**p for p in range(9)))]
)
def test_powers_go_up_to_the_largest(largest, ks):
    assert powers_up_to(largest) == ks


def test_answered_responses_of_two_models_are_compared_on_the_same_problems():
    base = [result(0, 16, index=0, unanswered=16), result(4, 16, index=1)]
    trained = [result(8, 16, index=0), result(4, 16, index=1)]
    assert [problem.index for problem in answered_only(trained, base)] == [1]
    assert [problem.index for problem in answered_only(base, trained)] == [1]
