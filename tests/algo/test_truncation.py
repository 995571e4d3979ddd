import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.cosine_length_penalty import shaped_reward
from prorl.algo.truncation import truncated_score

unit = st.floats(0, 1)


@given(unit, unit)
def test_a_response_that_ended_itself_keeps_its_score(score, scale):
    assert truncated_score(score, False, scale) == score


@given(unit)
def test_off_value_scale_one_is_the_score_itself(score):
    assert truncated_score(score, True, 1.0) == score


@given(unit, unit)
def test_a_truncated_response_is_worth_its_scaled_score(score, scale):
    assert truncated_score(score, True, scale) == score * scale


def test_it_composes_with_the_length_term():
    reward = shaped_reward(
        truncated_score(1.0, True, 0.25), 100, 100, weight=0.1, eta_min=-1.0, eta_max=0.0, applies=True
    )
    assert reward == pytest.approx(0.25 - 0.1)


@pytest.mark.parametrize("scale", [-0.1, 1.1, float("nan")])
def test_a_scale_outside_the_unit_interval_is_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        truncated_score(1.0, False, scale)
