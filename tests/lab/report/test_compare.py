"""Runs side by side: groups of seeds, differing keys, and every number against its definition."""

import math
from dataclasses import replace

import pytest

from prorl.control.events import Resumed
from prorl.lab.report.compare import comparison
from prorl.lab.report.curves import repetitions, t_interval
from prorl.lab.results import Pair, gains
from prorl.lab.tables import Number, Several
from support.events import blind, command, evaluated, intervened, reset, rollout_stats, stepped, update
from support.stories import evaluation, history, recipe, result, story


def tables(*stories, found=()):
    return comparison(stories, [found, *[()] * (len(stories) - 1)])


def compared(*stories, found=()):
    """What every run says, by topic and title; runs of one group in their order."""

    def values(cell):
        if isinstance(cell, Several):
            return [value for one in cell.cells for value in values(one)]
        return [cell.value if isinstance(cell, Number) else cell]

    return {
        (table.title, row[0]): tuple(value for cell in row[1:] for value in values(cell))
        for table in tables(*stories, found=found)
        for row in table.rows
    }


def mean(*scores):
    """The cell of the last validation's pass@1 of runs that differ in their seed."""
    runs = [story([evaluated(0, score)], seed=seed) for seed, score in enumerate(scores)]
    table = next(one for one in tables(*runs) if one.title == "last validation")
    return next(row[1].mean for row in table.rows if row[0] == "pass@1")


# -- what belongs together


@pytest.mark.parametrize(
    ("settings", "together"),
    [
        ([{}, {"steps": 99}, {"name": "other"}, {"steps": 99}], [(0, 2), (1, 3)]),
        ([{}, {"save": recipe()["save"] | {"keep_last": 99}}], [(0, 1)]),
        ([{"seed": 1}, {"seed": 1}, {"seed": 2}], [(0, 2), (1,)]),
    ],
    ids=["whatever it is called", "care for the process changes no result", "one seed is no repetition"],
)
def test_seeds_of_one_recipe_are_a_group(settings, together):
    runs = [story(**{"seed": seed} | changes) for seed, changes in enumerate(settings)]
    assert repetitions(runs) == together


def test_runs_that_share_steps_are_no_repetitions():
    def origin(parent):
        return [Resumed(step=2, config_hash="c", branched_from=parent)]

    parent = story(seed=0)
    children = [story(origin(f"{parent.folder.name}@2"), seed=seed) for seed in (1, 2)]
    assert repetitions([parent, *children]) == [(0,), (1,), (2,)]
    others = [story(origin(f"other{seed}@2"), seed=seed) for seed in (1, 2)]
    assert repetitions(others) == [(0, 1)], "of parents that differ in their seed"


def test_seeds_have_a_mean_with_students_interval():
    found = mean(0.1, 0.2, 0.4)
    assert found.value == pytest.approx(0.7 / 3)
    assert (found.low, found.high) == t_interval([0.1, 0.2, 0.4])


@pytest.mark.parametrize("odd", [math.inf, math.nan])
def test_there_is_no_mean_where_a_run_has_no_number(odd):
    assert mean(0.5, odd) is None


def test_only_keys_that_differ_are_shown_side_by_side():
    kl = recipe()["kl"] | {"coef": 0.01}
    table = compared(story(seed=1), story(seed=2, kl=kl, format=None))
    shown = {title: values for (topic, title), values in table.items() if topic == "recipe"}
    assert shown == {"seed": ("1", "2"), "kl.coef": ("0.001", "0.01"), "format": ("lenient", None)}


def test_cost_is_summed_over_the_steps():
    seconds = {"seconds": {"generate": 6.0, "learn": 3.0, "total": 10.0}}
    stats = (rollout_stats(sampled_tokens=400 * step) for step in (1, 2, 3))
    table = compared(story([stepped(at, rollout_stats=of, **seconds) for at, of in enumerate(stats, 1)]))
    assert table["run", "steps"] == (3,)
    assert table["run", "hours in steps"] == (pytest.approx(30 / 3600),)
    assert table["run", "tokens sampled"] == (2400,)
    assert table["run", "tokens sampled per second"] == (pytest.approx(80),)
    assert table["run", "overhead"] == (pytest.approx(0.1),)


def test_the_end_is_a_mean_over_what_the_last_twenty_steps_measured():
    steps = [stepped(step, update=update(kl=100.0 if step <= 5 else float(step))) for step in range(1, 26)]
    assert compared(story(steps))["mean of the last 20 steps", "KL, nats per token"] == (15.5,)
    half = story([*map(stepped, range(1, 11)), *map(blind, range(11, 21))])
    table = compared(half, story(map(blind, range(1, 21))))
    end = {title: values for (topic, title), values in table.items() if topic == "mean of the last 20 steps"}
    assert end["Entropy, nats per token"] == (pytest.approx(0.6), None)
    assert [values[1] for values in end.values()] == [None] * 6


def test_validations_first_last_best_and_in_common():
    one = story([evaluated(0, 0.1), evaluated(50, 0.6), evaluated(100, 0.4, domains={"math": 0.4})])
    two = story([evaluated(0, 0.2), evaluated(50, 0.3)])
    table = compared(one, two)
    assert table["first validation", "pass@1"] == (0.1, 0.2)
    assert table["last validation", "pass@1"] == (0.4, 0.3)
    assert table["best validation", "pass@1"] == (0.6, 0.3)
    assert table["last validation in common", "after step"] == (50, 50)
    assert table["last validation in common", "pass@1"] == (0.6, 0.3)
    assert table["last validation", "code"] == (None, 0.3)
    assert ("last validation in common", "pass@1") not in compared(story(history()), story(history()))


def test_decisions_are_counted_by_reason_and_refused_orders_are_none():
    commands = command("pause"), command("set", refused="no such hyperparameter")
    resets = reset(1), reset(2), reset(3, reason="kl_ceiling")
    table = compared(story([*resets, intervened(), *commands]), story())
    assert table["decisions", "reference resets"] == ("schedule ×2, kl_ceiling", "none")
    assert table["decisions", "interventions"] == ("kl_spike: warn", "none")
    assert table["decisions", "commands"] == ("pause", "none")


def test_evaluations_are_the_means_over_domains():
    base, trained = ([result(0, passed), result(1, 2, domain="code")] for passed in (0, 2))
    found = gains(Pair(evaluation="m", base=evaluation(base, step=None), trained=evaluation(trained)))
    runs, title = (story(), story(steps=7)), "m: 2 held-out problems of countdown, 4 responses each"
    table = compared(*runs, found=found)
    assert table[title, "after step"] == (4, None)
    assert table[title, "pass@1, base"] == table[title, "pass@1, gain"] == (0.25, None)
    cell = next(one for one in tables(*runs, found=found) if one.title == title).rows[3][1]
    assert (cell.low, cell.high) == (0.25, 0.25)


def test_what_was_asked_otherwise_is_another_table():
    one, other, more = (
        gains(Pair(evaluation="m", base=evaluation(of, step=None), trained=evaluation(of)))
        for of in ([result(0, 1)], [result(0, 1, task="other")], [result(0, 1), result(1, 1)])
    )
    cooler = replace(one[0], pair=replace(one[0].pair, sampling=", temperature 0.6"))
    found = comparison([story(), story(), story()], [one, other, [cooler, *more]])
    assert [table.title for table in found if table.title.startswith("m: ")] == [
        "m: 1 held-out problem of countdown, 4 responses each",
        "m: 1 held-out problem of other, 4 responses each",
        "m: 1 held-out problem of countdown, 4 responses each, temperature 0.6",
        "m: 2 held-out problems of countdown, 4 responses each",
    ]


def test_runs_of_one_name_are_told_apart():
    first, other = story(steps=7), story()
    (table, *_) = tables(first, other)
    assert table.columns == ("", str(first.folder), str(other.folder))
    assert tables(first)[0].columns == ("", "nano")


def test_a_run_that_has_not_begun_has_blanks():
    table = compared(story([]), story(history()))
    assert table["run", "steps"] == (None, 4)
    assert table["first validation", "pass@1"] == (None, 0.25)
    assert table["mean of the last 20 steps", "Entropy, nats per token"] == (None, 0.6)
