"""Trends of memory and disk: what warns, what does not, what stops."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.run.guards import FEWEST, WINDOW, Guard, GuardRules, Sample, steps_left, take_sample

GB = 10**9


def samples(steps, *, resident=lambda step: GB, available=8 * GB, disk=lambda step: 100 * GB):
    return [
        Sample(step=step, resident=resident(step), available=available, total=16 * GB, disk=disk(step))
        for step in range(steps)
    ]


def texts(taken, rules=None):
    guard = Guard(rules or GuardRules())
    return [finding.text for sample in taken for finding in guard.findings(sample)]


def test_a_leak_is_told_early_and_not_at_every_step():
    said = texts(samples(150, resident=lambda step: GB + step * GB // 10))
    assert said[0] == (
        "memory lasts for about 80 more steps: 8.0 GB left, the trainer holds 2.5 GB and grows"
    )
    assert len(said) == 2  # at the sixteenth step, and a hundred later


def test_a_disk_that_fills_is_told():
    (said,) = texts(samples(60, disk=lambda step: 100 * GB - step * GB))
    assert said.startswith("disk space lasts for about 85 more steps: 85.0 GB left")


@pytest.mark.parametrize(
    "resident",
    [
        lambda step: GB,
        lambda step: GB if step < 30 else 4 * GB,  # one jump is no trend
        lambda step: GB + (step % 7) * 10**7,  # nor is noise
        lambda step: 4 * GB - step * 10**7,
        lambda step: GB + step * 10**6,  # a leak that would take 8,000 steps
    ],
)
def test_what_is_no_trend_is_not_told(resident):
    assert texts(samples(100, resident=resident)) == []


def test_a_checkpoint_that_takes_the_place_of_another_is_no_trend():
    assert texts(samples(100, disk=lambda step: 30 * GB if step % 10 else 24 * GB)) == []


def test_want_of_memory_stops_before_the_machine_dies():
    (sample,) = samples(1, available=GB // 4)
    (finding,) = Guard(GuardRules()).findings(sample)
    assert finding.stop
    assert "250.0 MB of 16.0 GB are left" in finding.text


def test_zeros_switch_it_off():
    rules = GuardRules(warn_steps=0, memory_stop=0.0)
    assert texts(samples(100, resident=lambda step: step * GB, available=1), rules) == []


@given(st.integers(1, 10**9), st.integers(0, 10**12), st.integers(FEWEST, WINDOW))
def test_a_straight_line_is_followed_to_its_end(slope, rest, steps):
    assert steps_left([slope * step for step in range(steps)], rest) == pytest.approx(rest / slope)


@given(st.lists(st.integers(0, 10**12), max_size=FEWEST - 1))
def test_few_steps_are_no_trend(used):
    assert steps_left(used, 1) is None


def test_a_sample_of_this_machine_is_plausible(tmp_path: Path):
    sample = take_sample(3, tmp_path)
    assert sample.step == 3
    assert 10**6 < sample.resident < sample.total
    assert 0 < sample.available <= sample.total
    assert sample.disk > 0
