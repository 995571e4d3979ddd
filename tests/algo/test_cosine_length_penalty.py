import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.cosine_length_penalty import cosine_length_reward, shaped_reward

limits = st.integers(1, 20_000)
ETA = {"eta_min": -1.0, "eta_max": 0.0}


@given(limits, st.floats(-3, 0), st.floats(0, 3))
def test_it_runs_from_eta_max_at_length_zero_to_eta_min_at_the_limit(limit, eta_min, eta_max):
    eta = {"eta_min": eta_min, "eta_max": eta_max}
    assert cosine_length_reward(0, limit, **eta) == pytest.approx(eta_max, abs=1e-12)
    assert cosine_length_reward(limit, limit, **eta) == pytest.approx(eta_min, abs=1e-12)
    assert cosine_length_reward(limit + 5, limit, **eta) == cosine_length_reward(limit, limit, **eta)


@pytest.mark.parametrize(("length", "reward"), [(0, 0.0), (25, -0.1464466), (50, -0.5), (75, -0.8535534)])
def test_worked_numbers(length, reward):
    assert cosine_length_reward(length, 100, **ETA) == pytest.approx(reward, abs=1e-7)


@given(limits, st.data())
def test_longer_is_never_paid_more(limit, data):
    short, long = sorted(data.draw(st.lists(st.integers(0, limit), min_size=2, max_size=2)))
    assert cosine_length_reward(short, limit, **ETA) >= cosine_length_reward(long, limit, **ETA)


@given(limits, st.integers(0, 20_000), st.floats(-3, 3))
def test_equal_bounds_are_a_constant(limit, length, eta):
    assert cosine_length_reward(length, limit, eta_min=eta, eta_max=eta) == eta


@given(st.floats(0, 1), st.integers(0, 30_000), limits, st.booleans())
def test_off_value_weight_zero_is_the_score_itself(score, length, limit, applies):
    assert shaped_reward(score, length, limit, weight=0.0, applies=applies, **ETA) == score


@given(st.floats(0, 1), st.integers(0, 30_000), limits, st.floats(0, 2))
def test_the_weighted_term_is_added_where_it_applies(score, length, limit, weight):
    share = min(length, limit) / limit
    eta = -1 + 0.5 * (1 + math.cos(math.pi * share))
    on = shaped_reward(score, length, limit, weight=weight, applies=True, **ETA)
    assert on == pytest.approx(score + weight * eta)
    assert shaped_reward(score, length, limit, weight=weight, applies=False, **ETA) == score


@pytest.mark.parametrize(
    ("length", "limit", "eta"),
    [(-1, 10, ETA), (1, 0, ETA), (1, 10, {"eta_min": 0.5, "eta_max": 0.0})],
)
def test_bad_input_is_refused(length, limit, eta):
    with pytest.raises(ValueError, match=r"length|eta_min"):
        cosine_length_reward(length, limit, **eta)
