"""Who solves what, paired differences and patterns: what is planted is found, and chance gives what it should."""

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest

from prorl.lab.evals.comparison import SURE, boundary, compare, differences, paired, patterns
from support.evaluations import result, results

N = 256


def test_planted_new_and_lost_problems_are_found():
    moves = paired(results([0, 90, 200, 0, 0], N), results([120, 0, 210, 0, 1], N))
    assert [move.outcome for move in moves] == ["new", "lost", "both", "neither", "new"]
    assert [move.sure for move in moves] == [True, True, False, False, False], "one response may be luck"
    assert (moves[-1].chance["new"], moves[-1].chance["lost"]) == pytest.approx((0.5, 0.5))
    found = boundary(moves)
    assert found.outcomes == {"both": 1, "new": 2, "lost": 1, "neither": 1}
    assert found.sure == {"new": 1, "lost": 1}


def test_the_chance_is_that_of_dealing_the_responses_to_the_two_models_at_random():
    move = paired([result(0, 4)], [result(3, 5)])[0]
    deals = list(combinations(range(9), 5))  # which responses are the trained model's; 0, 1 and 2 passed
    new = sum({0, 1, 2} <= set(deal) for deal in deals) / len(deals)
    lost = sum(not {0, 1, 2} & set(deal) for deal in deals) / len(deals)
    assert (move.chance["new"], move.chance["lost"]) == pytest.approx((new, lost))


@pytest.mark.parametrize(("samples", "rate"), [(256, 0.0), (16, 0.2), (64, 0.1), (256, 0.05), (256, 0.02)])
def test_what_chance_would_give_is_what_two_measurements_of_one_model_give(samples, rate):
    """Where guesses are often right, a problem is new although the base passed a few times, as guesses would."""
    rng = np.random.default_rng(1)
    skill = rate * rng.choice([1, 1.5, 2, 3], size=3000) if rate else rng.beta(0.1, 4, size=3000)
    tried = samples if rate else 0
    guessed = [{"guesses": tried, "guessed": int(hits)} for hits in rng.binomial(tried, rate, size=3000)]

    def measured():
        passed = enumerate(rng.binomial(samples, skill))
        return [result(int(c), samples, index=at, task=f"t{at % 20}", **guessed[at]) for at, c in passed]

    found = boundary(paired(measured(), measured()))
    assert found.outcomes["new"] > 40
    for outcome in ("new", "lost"):
        assert found.chance[outcome] == pytest.approx(found.outcomes[outcome], rel=0.3 if rate else 0.15)
    assert found.sure.total() <= (0.03 if rate else SURE) * found.outcomes.total()


def test_each_model_is_measured_by_its_own_guesses():
    lucky, plain = [result(4, 16, guesses=64, guessed=16)], [result(4, 16)]
    assert [paired(*two)[0].outcome for two in ((lucky, plain), (plain, lucky))] == ["new", "lost"]


def test_only_problems_that_both_were_judged_on_are_paired_and_a_level_is_another_problem():
    base = [*results([1, 2, 3]), result(0, 0, index=4, errors=4)]
    trained = [result(0, 0, index=2, errors=4), *results([4, 5])[::-1], result(1, index=4)]
    assert [(move.base.solved, move.trained.solved) for move in paired(base, trained)] == [(1, 4), (2, 5)]
    assert paired([result(1, level=1, part="levels")], [result(1, level=2, part="levels")]) == []


# -- differences


def domains(**solved):
    return [
        problem for name, numbers in solved.items() for problem in results(numbers, 4, domain=name, task=name)
    ]


def test_the_interval_of_the_mean_is_that_of_the_domains_however_unequal_they_are():
    moves = paired(domains(math=[0], code=[0] * 20), domains(math=[4], code=[0, 4] * 10))
    math, code, mean = (row[0] for row in compare(moves, (1,)).values())
    assert (math.low, math.high, mean.gain) == (1.0, 1.0, 0.75)
    assert code.low < 0.5 < code.high < mean.gain
    assert mean.low < mean.gain < mean.high


def test_a_model_gains_nothing_on_itself():
    assert compare([], (1,)) == {}
    same = domains(math=[0, 2, 4], code=[1])
    for row in compare(paired(same, same), (1, 4)).values():
        for found in row:
            assert (found.gain, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)
            assert (found.up, found.down) == (False, False)


def test_the_p_value_is_that_of_all_sign_flips():
    base, trained = results([0, 1, 2, 0, 3, 1, 0, 2], 4), results([2, 1, 4, 1, 2, 3, 1, 3], 4)
    gains = [(b.solved - a.solved) / 4 for a, b in zip(base, trained, strict=True)]
    sums = [abs(np.dot(signs, gains)) for signs in product((-1, 1), repeat=len(gains))]
    exact = np.mean(np.array(sums) >= abs(sum(gains)) - 1e-12)
    (found,) = differences(paired(base, trained), (1,))
    assert found.p == pytest.approx(exact, abs=0.02)


def test_few_problems_that_agree_are_not_enough():
    (found,) = differences(paired(results([0] * 3, 4), results([4] * 3, 4)), (1,))
    assert (found.low, found.high) == (1.0, 1.0)
    assert not found.up
    (found,) = differences(paired(results([0] * 8, 4), results([4] * 8, 4)), (1,))
    assert found.up


def test_false_alarms_are_as_rare_as_promised():
    rng = np.random.default_rng(0)
    alarms = 0
    for trial in range(100):
        skill = rng.beta(0.5, 1, size=40)
        base, trained = (results(map(int, rng.binomial(16, skill))) for _ in range(2))
        (found,) = differences(paired(base, trained), (16,), seed=trial)
        alarms += found.up or found.down
    assert alarms <= 0.1 * 100


# -- patterns on curves whose truth is known


PROBLEMS, SAMPLES, TRIALS = 60, 64, 30


def skills(truth, rng):
    """Chances to solve each problem: of the base, halfway, at the end."""
    base = rng.beta(0.5, 2, size=PROBLEMS) * (rng.random(PROBLEMS) < 0.5)
    never, order = base == 0, rng.random(PROBLEMS)
    if truth == "nothing":
        return base, base, base
    if truth == "diminish":  # what it knew it says more often, and what it hardly knew no more
        kept = base > np.median(base[base > 0])
        return base, np.where(kept, base**0.5, base / 4), np.where(kept, base**0.3, 0)
    early = np.where(never & (order < 0.4), 0.2, base**0.7)
    if truth == "plateau":
        return base, early, early
    return base, early, np.where(never & (order >= 0.4), 0.2, early)


def found(truth, trial, *, halfway=True):
    rng = np.random.default_rng([trial, *truth.encode()])
    base, between, trained = (
        results(map(int, rng.binomial(SAMPLES, skill)), SAMPLES) for skill in skills(truth, rng)
    )
    (row,) = patterns(base, trained, between=between if halfway else None, k=SAMPLES)
    return row.pattern


@pytest.mark.parametrize(
    ("truth", "halfway", "said"),
    [
        *((truth, True, truth) for truth in ("diminish", "plateau", "sustained")),
        *(("nothing", halfway, "unclear") for halfway in (True, False)),
        ("diminish", False, "diminish"),
        ("sustained", False, "gain"),  # two models do not tell when
    ],
)
def test_a_pattern_is_recognised_and_nothing_is_said_where_nothing_happened(truth, halfway, said):
    counts = Counter(found(truth, trial, halfway=halfway) for trial in range(TRIALS))
    assert counts[said] >= 0.9 * TRIALS, counts


@pytest.mark.parametrize("end", [1, 20])
def test_what_fell_again_is_no_plateau(end):
    base, between, trained = (
        [20 if index < solved else 0 for index in range(40)] for solved in (20, 38, end)
    )
    (row,) = patterns(results(base, 64), results(trained, 64), between=results(between, 64), k=64)
    assert row.late.down
    assert row.pattern == "unclear"


def test_what_a_verifier_could_not_judge_costs_both_models_as_many_tries():
    base, trained = results([8] * 20, 256), results([2] * 20, 64, errors=192)
    (at_k,) = differences(paired(base, trained), (256,))
    (alone,) = differences(paired(base, results([2] * 20, 64)), (64,))
    assert (at_k.base, at_k.trained) == (alone.base, alone.trained)
    assert at_k.base < 1


def test_tasks_and_parts_are_decided_apart_on_their_common_problems():
    base = [*results([0] * 12), *results([16] * 12, part="ood"), *results([3] * 12, task="u")]
    trained = [*results([16] * 12), *results([0] * 12, part="ood"), *results([3] * 11, task="u")]
    rows = {(row.task, row.part): row for row in patterns(base, trained, k=16)}
    assert {key: row.pattern for key, row in rows.items()} == {
        ("t", "test"): "gain",
        ("t", "ood"): "unclear",
        ("u", "test"): "unclear",
    }
    assert rows["u", "test"].at_k.problems == 11
    assert rows["t", "test"].at_k.gain == 1.0
    assert rows["t", "test"].early is None
    (single,) = patterns(results([0]), results([16]), k=16)
    assert single.pattern == "unclear", "a single problem decides nothing"
