"""Runs side by side: groups of seeds, differing keys, and every number against its definition."""

import math

import pytest

from prorl.algo.t_interval import t_interval
from prorl.lab.report.compare import rows, spread
from prorl.lab.report.gains import Gain
from prorl.lab.report.groups import repetitions
from support.events import blind, evaluated, intervened, order, reset, stepped, tally, update
from support.stories import history, recipe, story


def compared(*stories, gains=None):
    """Every row by section and title."""
    nothing = [()] * len(stories)
    found = rows(stories, gains or nothing)
    return {(row.section, row.title): row for row in found}


def value(row):
    (only,) = row.values
    return only


# -- what belongs together


def test_seeds_of_one_recipe_are_a_group_whatever_it_is_called():
    runs = [story(seed=1), story(seed=2, steps=99), story(seed=3, name="other"), story(seed=4, steps=99)]
    assert repetitions([run.config for run in runs]) == [(0, 2), (1, 3)]


def test_the_care_for_a_process_makes_no_other_experiment():
    care = recipe()["save"] | {"keep_last": 99}
    assert repetitions([run.config for run in (story(seed=1), story(seed=2, save=care))]) == [(0, 1)]


def test_the_same_seed_again_is_no_repetition():
    assert repetitions([run.config for run in (story(seed=1), story(seed=1), story(seed=2))]) == [
        (0, 2),
        (1,),
    ]


def test_a_spread_is_students():
    found = spread([0.1, 0.2, 0.4])
    assert (found.low, found.high) == t_interval([0.1, 0.2, 0.4])
    assert (found.mean, found.n) == (pytest.approx(0.7 / 3), 3)


@pytest.mark.parametrize(
    "values", [[0.5], [0.5, None], [0.5, math.inf], [0.5, math.nan], ["none", "none"], []]
)
def test_there_is_no_spread_of_less(values):
    assert spread(values) is None


# -- recipes


def test_only_keys_that_differ_are_shown_side_by_side():
    kl = recipe()["kl"] | {"coef": 0.01}
    table = compared(story(seed=1), story(seed=2, kl=kl, format=None))
    shown = {title: row.values for (section, title), row in table.items() if section == "recipe"}
    assert shown == {"seed": ("1", "2"), "kl.coef": ("0.001", "0.01"), "format": ("lenient", None)}


# -- numbers


def test_cost_is_summed_over_the_steps():
    seconds = {"generate": 6.0, "learn": 3.0, "total": 10.0}
    steps = [stepped(step, tally=tally(sampled_tokens=400 * step), seconds=seconds) for step in (1, 2, 3)]
    table = compared(story(steps))
    assert value(table["run", "steps"]) == 3
    assert value(table["run", "hours in steps"]) == pytest.approx(30 / 3600)
    assert value(table["run", "tokens sampled"]) == 2400
    assert value(table["run", "tokens sampled per second"]) == pytest.approx(80)
    assert value(table["run", "overhead"]) == pytest.approx(0.1)


def test_the_end_is_a_mean_over_the_last_twenty_steps():
    steps = [stepped(step, update=update(kl=100.0 if step <= 5 else float(step))) for step in range(1, 26)]
    assert value(compared(story(steps))["mean of the last 20 steps", "KL, nats per token"]) == 15.5


def test_the_end_is_a_mean_over_what_was_measured():
    half = story([*map(stepped, range(1, 11)), *map(blind, range(11, 21))])
    table = compared(half, story(map(blind, range(1, 21))))
    end = {
        title: row.values for (section, title), row in table.items() if section == "mean of the last 20 steps"
    }
    assert end["Entropy, nats per token"] == (pytest.approx(0.6), None)
    assert [values[1] for values in end.values()] == [None] * 6


def test_exams_first_last_best_and_in_common():
    one = story([evaluated(0, 0.1), evaluated(50, 0.6), evaluated(100, 0.4, domains={"math": 0.4})])
    two = story([evaluated(0, 0.2), evaluated(50, 0.3)])
    table = compared(one, two)
    assert table["first exam", "pass@1"].values == (0.1, 0.2)
    assert table["last exam", "pass@1"].values == (0.4, 0.3)
    assert table["best exam", "pass@1"].values == (0.6, 0.3)
    assert table["last exam in common", "after step"].values == (50, 50)
    assert table["last exam in common", "pass@1"].values == (0.6, 0.3)
    assert table["last exam", "code"].values == (None, 0.3)


def test_the_last_exam_is_not_told_twice_where_it_is_in_common():
    assert ("last exam in common", "pass@1") not in compared(story(history()), story(history()))


def test_decisions_are_counted_by_reason_and_refused_orders_are_none():
    events = [
        reset(1),
        reset(2),
        reset(3, reason="kl_ceiling"),
        intervened(),
        order("pause"),
        order("set", refused="no such knob"),
    ]
    table = compared(story(events), story())
    assert table["decisions", "reference resets"].values == ("schedule ×2, kl_ceiling", "none")
    assert table["decisions", "interventions"].values == ("kl_spike: warn", "none")
    assert table["decisions", "orders"].values == ("pause", "none")


def test_measurements_are_the_means_over_domains():
    def gain(domain, base):
        return Gain(
            study="m",
            step=4,
            part="test",
            domain=domain,
            k=1,
            problems=9,
            base=base,
            trained=0.5,
            interval=(0.1, 0.4),
        )

    table = compared(story(), story(), gains=[[gain("math", 0.0), gain("mean", 0.25)], []])
    assert table["m: test", "pass@1, base"].values == (0.25, None)
    assert table["m: test", "pass@1, gain"].values == (0.25, None)
    assert table["m: test", "pass@1, gain"].intervals == ((0.1, 0.4), None)


def test_a_run_that_has_not_begun_has_blanks():
    table = compared(story([]), story(history()))
    assert table["run", "steps"].values == (None, 4)
    assert table["first exam", "pass@1"].values == (None, 0.25)
    assert table["mean of the last 20 steps", "Entropy, nats per token"].values == (None, 0.6)
