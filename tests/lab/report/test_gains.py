"""Base → trained from studies: paired by problem, domains alike, newest checkpoint first."""

import pytest

from prorl.lab.report.gains import gains, run_gains
from support.stories import keep, result, study

BASE = study([result(0, 0), result(1, 2), result(2, 4, domain="code", task="one_liner")], step=None)
AFTER = study([result(0, 1), result(1, 4), result(2, 2, domain="code", task="one_liner")])


def table(found):
    return {(gain.part, gain.domain, gain.k): (gain.base, gain.trained) for gain in found}


def test_pass_rates_by_hand():
    assert table(gains("m", BASE, AFTER)) == {
        ("test", "math", 1): (0.25, 0.625),
        ("test", "code", 1): (1.0, 0.5),
        ("test", "mean", 1): (0.625, 0.5625),
        ("test", "math", 4): (0.5, 1.0),
        ("test", "code", 4): (1.0, 1.0),
        ("test", "mean", 4): (0.75, 1.0),
    }


def test_the_interval_of_the_mean_is_about_its_gain():
    before = [result(index, 1, domain=domain) for index, domain in enumerate(["math"] * 9 + ["code"])]
    after = [result(index, 3 if index < 9 else 1, domain=one.domain) for index, one in enumerate(before)]
    found = {gain.domain: gain for gain in gains("m", study(before), study(after)) if gain.k == 1}
    assert found["math"].interval == (0.5, 0.5)  # all changed alike
    assert found["mean"].interval == (0.25, 0.25)  # the domains weigh alike


def test_problems_are_paired_by_name_and_those_without_a_partner_left_out():
    shuffled = study([*reversed(AFTER.problems), result(9, 4)])
    assert table(gains("m", BASE, shuffled)) == table(gains("m", BASE, AFTER))


def test_a_problem_without_a_judged_response_says_nothing():
    silent = study([*AFTER.problems[:1], result(1, 0, samples=0, errors=4), AFTER.problems[2]])
    math = next(gain for gain in gains("m", BASE, silent) if gain.domain == "math")
    assert (math.problems, math.base, math.trained) == (1, 0.0, 0.25)


def test_parts_stay_apart():
    base = study([result(0, 2), result(0, 0, part="ood")])
    found = table(gains("m", base, study([result(0, 4), result(0, 1, part="ood")])))
    assert found["test", "math", 1] == (0.5, 1.0)
    assert found["ood", "math", 1] == (0.0, 0.25)


def test_single_samples_have_one_k():
    single = study([result(0, 1, samples=1)], samples=1)
    assert {gain.k for gain in gains("m", single, single)} == {1}


@pytest.mark.parametrize(("up_to", "step"), [(None, 10), (10, 10), (9, 4)])
def test_the_newest_checkpoint_that_was_measured_counts(tmp_path, up_to, step):
    keep(tmp_path, BASE, AFTER, study(BASE.problems, step=10))
    assert {gain.step for gain in run_gains(tmp_path, up_to=up_to)} == {step}


def test_every_study_that_has_both_is_told(tmp_path):
    keep(tmp_path, BASE, AFTER)
    keep(tmp_path, BASE, AFTER, name="study")
    keep(tmp_path, BASE, name="begun")
    assert {gain.study for gain in run_gains(tmp_path)} == {"measurement", "study"}
    assert run_gains(tmp_path, up_to=3) == []


def test_a_run_without_studies_has_no_gains(tmp_path):
    assert run_gains(tmp_path) == []
