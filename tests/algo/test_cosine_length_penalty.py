import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.cosine_length_penalty import cosine_length_reward

limits = st.integers(1, 20_000)
ETA = {"eta_min": -1.0, "eta_max": 0.0}


@given(limits, st.floats(-3, 0), st.floats(0, 3))
def test_it_runs_from_eta_max_at_length_zero_to_eta_min_at_the_limit(limit, eta_min, eta_max):
    eta = {"eta_min": eta_min, "eta_max": eta_max}
    assert cosine_length_reward(0, limit, **eta) == pytest.approx(eta_max, abs=1e-12)
    assert cosine_length_reward(limit, limit, **eta) == pytest.approx(eta_min, abs=1e-12)
    assert cosine_length_reward(limit + 5, limit, **eta) == cosine_length_reward(limit, limit, **eta)


@given(limits, st.integers(0, 20_000), st.floats(-3, 3))
def test_equal_bounds_are_a_constant(limit, length, eta):
    assert cosine_length_reward(length, limit, eta_min=eta, eta_max=eta) == eta


@pytest.mark.parametrize(("length", "reward"), [(0, 0.0), (25, -0.1464466), (50, -0.5), (75, -0.8535534)])
def test_worked_numbers(length, reward):
    assert cosine_length_reward(length, 100, **ETA) == pytest.approx(reward, abs=1e-7)
