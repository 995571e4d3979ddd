"""The vote against every choice of k responses."""

from collections import Counter
from itertools import combinations

import pytest

from prorl.lab.evals.statistics import majority_rates, voting
from support.studies import result, voted

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
        tally = Counter(name for name in chosen if name is not None)
        best = [name for name in tally if tally[name] == max(tally.values())]
        chances.append(sum(votes[name][1] for name in best) / len(best) if best else 0.0)
    return sum(chances) / len(chances)


@pytest.mark.parametrize("votes", CASES)
@pytest.mark.parametrize("silent", [0, 2])
def test_equals_trying_every_choice_of_k_responses(votes, silent):
    problem = voted(votes, silent=silent)
    ks = range(1, problem.samples + 1)
    exact = [by_trying_all(votes, silent, k) for k in ks]
    assert majority_rates([problem], ks, draws=20_000)[0] == pytest.approx(exact, abs=0.015)


def test_all_responses_need_no_chance():
    assert majority_rates([voted({"a": (3, True), "b": (2, False)})], (5,), draws=1)[0, 0] == 1.0
    assert majority_rates([voted({"a": (2, True), "b": (2, False)})], (4,), draws=1)[0, 0] == 0.5


def test_one_response_is_pass_at_1():
    problem = voted({"a": (3, True), "b": (5, False)}, silent=2)
    assert majority_rates([problem], (1,), draws=20_000)[0, 0] == pytest.approx(0.3, abs=0.015)


def test_an_answer_judged_both_ways_counts_by_its_share():
    problem = result(1, 3, votes=(*voted({"a": (1, True)}).votes, *voted({"a": (2, False)}).votes))
    assert majority_rates([problem], (3,))[0, 0] == pytest.approx(1 / 3)


def test_the_same_seed_gives_the_same_vote():
    problems = [voted(CASES[0]), voted(CASES[1], index=1)]
    assert majority_rates(problems, (2, 3)).tolist() == majority_rates(problems, (2, 3)).tolist()
    assert majority_rates(problems, (3,), seed=1).tolist() != majority_rates(problems, (3,), seed=2).tolist()


def test_programs_are_not_voted_on_but_silence_is_no_program():
    program, silent, answered = result(3), result(0, unanswered=16, index=1), voted({"a": (1, True)}, index=2)
    assert voting([program, silent, answered]) == [silent, answered]
    assert majority_rates([silent], (4,)).tolist() == [[0.0]]


def test_models_are_compared_on_what_all_of_them_vote_on():
    silent, program = result(0, unanswered=16), result(3)
    answered = voted({"a": (1, True)}, index=1)
    assert voting([silent, answered], [program, answered]) == [answered]
    assert voting([program, answered], [silent, answered]) == [answered]
