from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.truncation import truncated_score

unit = st.floats(0, 1)


@given(unit, unit | st.just(1.0))  # the off value
def test_only_a_truncated_response_is_worth_its_scaled_score(score, scale):
    assert truncated_score(score, False, scale) == score
    assert truncated_score(score, True, scale) == score * scale
