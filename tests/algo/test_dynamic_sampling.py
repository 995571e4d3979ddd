import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.dynamic_sampling import is_informative, wave_size


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ([1.0, 0.0, 0.0], True),
        ([1.0, 1.0, 1.0], False),  # all right
        ([0.0, 0.0], False),  # all wrong
        ([0.4, 0.4, 0.4], False),  # the same fraction of tests passed
        ([0.0, 0.05, 0.01], False),  # only consolation scores
        ([0.2, 0.3], True),  # 0.3 - 0.2 is 0.09999999999999998
        ([0.2, 0.299], False),
        ([0.5], False),
    ],
)
def test_worked_groups(group, expected):
    assert is_informative(group, 0.1) is expected


@given(st.lists(st.integers(0, 20), min_size=1), st.integers(0, 20))
def test_decimal_scores_are_compared_as_decimals(twentieths, spread):
    group = [value / 20 for value in twentieths]
    assert is_informative(group, spread / 20) == (max(twentieths) - min(twentieths) >= spread)


def chance_to_fill(missing: int, share: float, margin: float) -> float:
    """That a wave holds at least `missing` groups that teach, each doing so with probability `share`: exact."""
    size = wave_size(missing, share, margin)
    return sum(
        math.exp(math.log(math.comb(size, k)) + k * math.log(share) + (size - k) * math.log(1 - share))
        for k in range(missing, size + 1)
    )


@pytest.mark.parametrize("missing", [32, 128, 512])
@pytest.mark.parametrize("share", [0.3, 0.41, 0.7])
def test_a_margin_makes_a_second_wave_rare(missing, share):
    assert 0.4 < chance_to_fill(missing, share, 0.0) < 0.7
    assert chance_to_fill(missing, share, 1.5) > 0.9
    assert wave_size(missing, share, 1.5) < 1.5 * wave_size(missing, share, 0.0)


@given(st.integers(1, 600), st.floats(0, 1), st.floats(0, 3))
def test_a_wave_is_never_smaller_than_what_is_missing_nor_without_end(missing, share, margin):
    assert missing <= wave_size(missing, share, 0.0) <= wave_size(missing, share, margin)
    assert wave_size(missing, share, margin) <= 5 * (missing + 3 * math.sqrt(missing)) + 1


def test_where_all_groups_teach_a_margin_is_nothing():
    assert wave_size(7, 1.0, 3.0) == 7
