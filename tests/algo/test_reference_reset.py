import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.algo.reference_reset import due

OFF = {"every": 0, "kl_ceiling": None, "kl_count": 2, "kl_window": 4, "stalled_validations": 0, "cooldown": 0}
QUIET = {"since_reset": 1000, "recent_kls": (), "validations_since_best": 0}
kls = st.lists(st.floats(0, 1), max_size=12)


def reason(**changes):
    return due(**(QUIET | OFF | changes))


@given(st.integers(0, 5000), kls, st.integers(0, 50), st.integers(0, 100))
def test_off_values_never_reset(step, recent, validations, cooldown):
    seen = {"since_reset": step, "recent_kls": recent, "validations_since_best": validations}
    assert reason(cooldown=cooldown, **seen) is None


@pytest.mark.parametrize(
    ("recent", "expected"),
    [
        ([0.1, 0.1, 0.1, 0.3], None),  # one spike is not enough
        ([0.3, 0.1, 0.1, 0.3], "kl_ceiling"),
        ([0.3, 0.1, 0.1, 0.1, 0.3], None),  # the first has left the window
        ([0.2, 0.2, 0.2, 0.2], None),  # at the ceiling is not above it
        ([0.3, 0.3], "kl_ceiling"),  # fewer steps than the window
        ([], None),
    ],
)
def test_the_ceiling_must_be_broken_in_m_of_the_last_n_steps(recent, expected):
    assert reason(kl_ceiling=0.2, recent_kls=recent) == expected


EVERY_RULE = {"every": 10, "kl_ceiling": 0.2, "recent_kls": [1.0] * 4}
EVERY_RULE |= {"stalled_validations": 1, "validations_since_best": 5}


def test_reasons_are_given_in_order():
    assert reason(**EVERY_RULE) == "kl_ceiling"
    assert reason(**(EVERY_RULE | {"kl_ceiling": None})) == "stalled_validation"
    assert reason(**(EVERY_RULE | {"kl_ceiling": None, "stalled_validations": 0})) == "schedule"


@given(st.integers(0, 300), st.integers(0, 300))
def test_nothing_resets_within_the_cooldown(since, cooldown):
    got = reason(since_reset=since, cooldown=cooldown, **(EVERY_RULE | {"every": 1}))
    assert (got is None) == (since < cooldown)


@given(st.integers(1, 60), st.integers(0, 60))
def test_a_schedule_alone_resets_at_the_longer_of_interval_and_cooldown(every, cooldown):
    resets, last = [], 0
    for step in range(1, 300):
        if reason(since_reset=step - last, every=every, cooldown=cooldown):
            resets.append(step)
            last = step
    period = max(every, cooldown)
    assert resets == list(range(period, 300, period))
