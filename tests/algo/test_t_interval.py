"""Student's interval against printed tables, the normal limit and its own promise."""

from statistics import NormalDist, fmean

import numpy as np
import pytest

from prorl.algo.t_interval import t_interval, t_quantile


@pytest.mark.parametrize(
    ("freedom", "level", "printed"),  # any statistics textbook
    [
        (1, 0.95, 12.706),
        (2, 0.95, 4.303),
        (3, 0.95, 3.182),
        (4, 0.95, 2.776),
        (10, 0.95, 2.228),
        (29, 0.99, 2.756),
    ],
)
def test_the_quantile_is_the_one_in_print(freedom, level, printed):
    assert t_quantile(freedom, level) == pytest.approx(printed, abs=5e-4)


def test_with_many_degrees_it_is_the_normal_one():
    assert t_quantile(10_000, 0.95) == pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-3)


def test_equal_values_leave_no_doubt():
    assert t_interval([0.5, 0.5, 0.5]) == (0.5, 0.5)


def test_it_covers_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(3.0, 2.0, size=(4000, 3)).tolist()
    covered = fmean(low <= 3.0 <= high for low, high in map(t_interval, draws))
    assert covered == pytest.approx(0.95, abs=0.01)
