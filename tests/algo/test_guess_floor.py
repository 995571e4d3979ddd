"""The guess floor: worked numbers, and what it calls luck on simulated guessers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.guess_floor import FEWEST, dealt, floor, guess_rates, least_passes, tail


def beyond_guessing(solved, rates, tried=None):
    """`tried`: guesses and accepted ones of each problem; none were accepted unless said."""
    least = least_passes(solved, rates, tried or [(256, 0)] * len(solved))
    return [passes >= enough for (_, passes), enough in zip(solved, least, strict=True)]


def test_the_floor_is_the_chance_of_one_hit_in_k_guesses():
    assert floor(0.25, 1) == pytest.approx(0.25)
    assert floor(0.25, 3) == pytest.approx(1 - 0.75**3)
    assert floor(1e-12, 256) == pytest.approx(256e-12)
    assert floor(1.0, 16) == 1.0


def test_the_rate_is_the_larger_of_a_problems_own_share_and_that_of_its_kind():
    assert guess_rates([(64, 0), (64, 16), (64, 0)]) == [16.5 / 193, 0.25, 16.5 / 193]
    assert guess_rates([(256, 0)] * 40) == [0.5 / 10241] * 40
    assert floor(0.5 / 10241, 256) < 0.02, (
        "none of ten thousand guesses was right: 256 tries hit next to nothing"
    )
    assert guess_rates([(FEWEST - 1, 3)]) == [None]


def test_the_tail_is_the_binomials():
    chances = [0.3**c * 0.7 ** (4 - c) * ways for c, ways in enumerate((1, 4, 6, 4, 1))]
    assert [tail(4, c, 0.3) for c in range(5)] == pytest.approx([sum(chances[c:]) for c in range(5)])
    assert tail(65_536, 65_536, 0.5) == 0.0
    assert tail(65_536, 100, 0.5) == 1.0, "far below what guesses would give"
    assert tail(1001, 501, 0.5) == pytest.approx(0.5)
    assert tail(10, 1, 1.0) == 1.0


def test_who_guesses_solves_nothing_beyond_guessing_and_who_knows_does():
    rng = np.random.default_rng(0)
    rates = list(rng.beta(0.3, 3, size=2000))
    guessed = [(64, int(c)) for c in rng.binomial(64, rates)]
    assert sum(c > 0 for _, c in guessed) > 1000
    assert sum(beyond_guessing(guessed, rates)) <= 2, "at a false discovery rate of 5 %, of next to none"
    known = [(64, 60)] * 200
    assert all(beyond_guessing(known + guessed, [0.1] * 200 + rates)[:200])


def test_one_pass_counts_where_no_guess_is_ever_right_or_nothing_is_known_of_guesses():
    assert beyond_guessing([(256, 1), (256, 0)], [5e-5, 5e-5]) == [True, False]
    assert beyond_guessing([(16, 1), (16, 0)], [None, None]) == [True, False]
    assert beyond_guessing([], []) == []


def test_the_least_passes_are_those_that_the_cut_lets_through():
    solved, rates = [(16, 12), (16, 3), (16, 0), (64, 9)], [0.1, 0.1, 0.1, 0.1]
    assert beyond_guessing(solved, rates) == [True, False, False, False]
    none = [(64, 0)] * 4
    assert least_passes(solved, rates, none)[0] == 12, "the cut is at the one that stands out"
    assert least_passes([(4, 0), (4, 1)], [0.5, 0.5], none[:2]) == [5, 5], (
        "nothing stands out: no number of passes would"
    )
    assert least_passes([(4, 0), (4, 1)], [None, None], none[:2]) == [1, 1]


@given(st.lists(st.integers(0, 16), min_size=1, max_size=12))
def test_the_false_discovery_rate_is_held_as_benjamini_and_hochberg_say(passes):
    chances = sorted(tail(16, c, 0.3) for c in passes)
    let_through = [rank for rank, p in enumerate(chances, start=1) if p <= 0.05 * rank / len(chances)]
    found = beyond_guessing([(16, c) for c in passes], [0.3] * len(passes))
    assert sum(found) == max(let_through, default=0)


def test_a_rate_that_a_problems_own_guesses_tell_is_known_no_better_than_they_tell_it():
    """By Fisher's exact test."""
    assert dealt(4, 3, 2) == pytest.approx((3 / 21, 12 / 21, 6 / 21))
    found = least_passes([(4, 4)], [0.25], [(4, 1)])
    assert found == [5], "4 of 4 against 1 of 4: 4 of 56 ways, 7 %"
    assert least_passes([(4, 4)], [0.25], [(4, 0)]) == [4], "0.4 % at a rate that is known"


@pytest.mark.parametrize("rates", [[0, 0, 0, 0.3], [0.1, 0.5], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0.05]])
def test_who_guesses_solves_nothing_where_problems_are_guessed_unlike_each_other(rates):
    rng = np.random.default_rng(0)
    rates = np.resize(rates, 60)
    false = 0
    for _ in range(60):
        passed, accepted = rng.binomial(256, rates), rng.binomial(256, rates)
        tried = [(256, int(c)) for c in accepted]
        false += any(beyond_guessing([(256, int(c)) for c in passed], guess_rates(tried), tried))
    assert false <= 3, "5 % of the sets"
