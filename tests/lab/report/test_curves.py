"""Curves of runs: what is drawn, which runs are one, and what happened, over them."""

import json
import math
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.lab.report import curves
from prorl.lab.report.curves import (
    annotation_traces,
    curve_sections,
    groups,
    over_seeds,
    short,
    smoothed,
    t_interval,
    t_quantile,
    thin,
)
from prorl.lab.report.drawing import PALETTE, label
from prorl.lab.report.page import section_json
from prorl.run.history import read_history
from support import events
from support.journals import run_with

HOSTILE = "</script><img src=x onerror=alert(1)>"


def run(folder: Path, happened=(), *, steps=30, **config):
    stats = events.rollout_stats(top_levels={"word_list": 2}, top_scores={"word_list": 0.5})
    made = [events.stepped(step, rollout_stats=stats) for step in range(1, steps + 1)]
    validations = [events.evaluated(step, 0.2 + step / 100) for step in (0, 10, 20)]
    return read_history(run_with(folder, [*made, *validations, *happened], **config))


def validated(folder: Path, *scores):
    """Runs that differ in their seed, with a validation each."""
    return [
        read_history(run_with(folder / f"{scores}{seed}", [events.evaluated(5, score)], seed=seed))
        for seed, score in enumerate(scores)
    ]


def drawn(runs):
    return {figure.key: figure for section in curve_sections(runs) for figure in section.figures}


def test_every_number_that_the_method_speaks_of_has_a_curve(tmp_path):
    found = drawn([run(tmp_path / "one")])
    assert (
        " ".join(found)
        == "validation reward domains levels top entropy kl grad_norm mismatch clip positions length truncated "
        "informative learning_rate kl_coef length_weight seconds tokens_per_second"
    )
    names = {trace["name"] for trace in found["validation"].data}
    assert names == {"mean pass@1", "mean pass@n", "math", "code"}
    assert curves.NOTES.keys() <= found.keys()


def test_a_run_that_has_not_begun_has_no_curves(tmp_path):
    assert curve_sections([read_history(run_with(tmp_path / "new", []))]) == []


def test_one_run_is_a_smoothed_line_over_a_raw_one_and_ends_at_its_last_step(tmp_path):
    raw, smoothed = [t for t in drawn([run(tmp_path / "one")])["entropy"].data if t["name"] == "entropy"]
    assert not raw["showlegend"]
    assert raw["x"][-1] == smoothed["x"][-1] == 30
    assert raw["y"][-1] == 0.6


def test_no_series_has_more_points_than_a_screen(tmp_path):
    for figure in drawn([run(tmp_path / "long", steps=4000)]).values():
        for trace in figure.data:
            assert len(trace["x"]) == len(trace["y"]) <= curves.POINTS


def test_runs_that_differ_only_in_seed_are_one_colour_and_no_recipe_is_nobodys(tmp_path):
    seeds = [run(tmp_path / f"seed{seed}", seed=seed, save={"every": 5 + seed}) for seed in range(3)]
    other = run(tmp_path / "other", sampling={"temperature": 0.5})
    found = groups([seeds[0], other, *seeds[1:]])
    assert [[one.name for one in group.runs] for group in found] == [["seed0", "seed1", "seed2"], ["other"]]
    assert [group.color for group in found] == list(PALETTE[:2])
    for each in seeds:
        (each.folder / "config.json").write_text("{")
    assert len(groups([read_history(each.folder) for each in seeds])) == 3


def test_a_label_says_which_run_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a long path is broken into lines
    alike = [run(Path(place) / "nano", [events.reset(5)]) for place in "ab"]
    assert [group.label for group in groups(alike)] == [str(one.folder) for one in alike]
    (marks,) = annotation_traces(alike)
    assert [text.partition(":")[0] for text in marks["text"][1::3]] == ["a/nano", "b/nano"]
    long = run(tmp_path / ("n" * 60))
    assert [group.label for group in groups([long])] == [long.name]
    (seeds,) = groups([run(tmp_path / f"{'n' * 30}{seed}", seed=seed) for seed in range(3)])
    assert seeds.label == f"{'n' * 30}0 … {'n' * 30}2 (3 seeds)"


def test_seeds_are_drawn_as_mean_in_its_interval(tmp_path):
    found = drawn(validated(tmp_path, 0.1, 0.2, 0.6))["validation"]
    band, mean = [trace for trace in found.data if trace["name"] == "mean pass@1"]
    assert mean["y"] == [0.3]
    half = 4.303 * 0.2645751 / math.sqrt(3)
    assert sorted(band["y"]) == pytest.approx([0.3 - half, 0.3 + half], abs=1e-4)


def test_an_interval_below_zero_does_not_take_the_axis_with_it(tmp_path):
    clipped, free = (drawn(validated(tmp_path, *of))["validation"] for of in ((0.0, 0.5), (-0.5, 0.0)))
    assert min(min(trace["y"]) for trace in clipped.data) < 0
    assert clipped.layout["yaxis"]["autorangeoptions"] == {"clipmin": 0}
    assert "autorangeoptions" not in free.layout["yaxis"]


def test_an_overlay_has_a_figure_per_curve_and_a_colour_per_run(tmp_path):
    runs = [run(tmp_path / "a"), run(tmp_path / "b", steps=20, sampling={"temperature": 0.5})]
    validation = drawn(runs)["validation-0"]
    assert validation.title == "Validation: mean pass@1"
    assert [(trace["name"], trace["line"]["color"]) for trace in validation.data] == [
        *zip("ab", PALETTE, strict=False)
    ]


def test_layers_of_several_seeds_are_means_without_bands(tmp_path):
    runs = [run(tmp_path / f"s{seed}", seed=seed) for seed in range(3)]
    (layer,) = [trace for trace in drawn(runs)["seconds"].data if trace["name"] == "generate"]
    assert layer["stackgroup"]
    assert set(layer["y"]) == {6.0}


def test_every_kind_of_mark_is_one_trace_with_its_reason(tmp_path):
    happened = [
        *(events.reset(5), events.reset(15)),
        events.intervened(step=7),
        events.intervened(step=3, action="roll_back", from_step=9),
        events.command("note", step=8, text=HOSTILE),
    ]
    one = run(tmp_path / "one", happened)
    marks = {trace["name"]: trace for trace in annotation_traces([one])}
    assert marks.keys() == {"reset", "intervention", "roll back", "command"}
    assert [x for x in marks["reset"]["x"] if x is not None] == [5, 5, 15, 15]
    assert "reference reset at step 15 (schedule)" in marks["reset"]["text"][4]
    assert "&lt;/script&gt;" in "".join(marks["command"]["text"])
    (both,) = annotation_traces([run(tmp_path / "two"), run(tmp_path / "three", [events.reset(5)])])
    assert both["text"][1].startswith("three: reference reset")
    assert max(both["y"][:2]) < max(marks["reset"]["y"][:2]) == 1


def test_all_kinds_that_a_reader_tells_have_a_colour(tmp_path):
    told = {mark.kind for mark in read_history(run_with(tmp_path / "one", events.one_of_each())).marks}
    assert told - {"stop"} <= curves.MARK_COLORS.keys()


def test_hostile_names_are_text_in_figures(tmp_path):
    stats = events.rollout_stats(domain_scores={HOSTILE: 0.5})
    happened = [events.stepped(1, rollout_stats=stats), events.evaluated(1, 0.5, domains={HOSTILE: 1.0})]
    found = drawn([read_history(run_with(tmp_path / "x", happened))]).values()
    assert not any("<" in trace["name"] for figure in found for trace in figure.data)


def test_numbers_that_are_not_finite_are_gaps_in_valid_json(tmp_path):
    broken = [
        events.stepped(step, update=events.update(kl=value, entropy=math.inf))
        for step, value in enumerate((0.5, math.nan, -math.inf, 0.25), start=1)
    ]
    found = curve_sections([read_history(run_with(tmp_path / "one", broken))])
    text = json.dumps([section_json(section) for section in found], allow_nan=False)
    assert "[0.5,null,null,0.25]" in text.replace(" ", "")
    assert "entropy" not in drawn([read_history(tmp_path / "one")])
    assert short([1 / 3, math.nan, -math.inf, 2e-7]) == [0.333333, None, None, 2e-7]


def test_labels_are_wrapped_and_never_markup():
    assert label("a < b & c") == "a &lt; b &amp; c"
    assert label("word " * 40, width=20).count("<br>") == 7
    assert "\ud800" not in label("half \ud800")


CURVES = st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=400)


@given(ys=CURVES, limit=st.integers(8, 60))
def test_thinning_keeps_ends_extremes_and_order(ys, limit):
    xs = list(range(len(ys)))
    kept_x, kept_y = thin(xs, ys, limit)
    assert len(kept_x) == len(kept_y) <= max(limit, 2)
    assert (kept_x[0], kept_x[-1]) == (xs[0], xs[-1])
    assert kept_x == sorted(set(kept_x))
    assert all(ys[x] == y or math.isnan(y) for x, y in zip(kept_x, kept_y, strict=True))
    finite = [y for y in ys if math.isfinite(y)]
    if finite:
        drawn = [y for y in kept_y if math.isfinite(y)]
        assert (min(drawn), max(drawn)) == (min(finite), max(finite))
    if len(ys) <= limit:
        assert kept_x == xs


def test_a_stretch_without_numbers_is_a_gap():
    ys = [1.0] * 100 + [math.nan] * 100 + [1.0] * 100
    xs, kept = thin(range(300), ys, 30)
    assert any(math.isnan(y) for x, y in zip(xs, kept, strict=True) if 100 <= x < 200)


@pytest.mark.parametrize(
    ("ys", "smooth"),
    [
        ([0.0, 3.0, 6.0, 9.0], [1.5, 3.0, 6.0, 7.5]),
        ([1.0, math.inf, 3.0, math.nan, 5.0], [1.0, math.nan, 3.0, math.nan, 5.0]),
    ],
)
def test_smoothed_is_the_mean_of_the_neighbours_without_what_is_missing(ys, smooth):
    assert smoothed(ys, window=3) == pytest.approx(smooth, nan_ok=True)


def test_seeds_become_mean_and_t_interval_at_common_steps():
    found = over_seeds([{1: 1.0, 2: 2.0, 3: 9.0}, {1: 3.0, 2: 2.0}, {1: 5.0, 2: 2.0}])
    half = 4.30265 * stdev([1.0, 3.0, 5.0]) / math.sqrt(3)
    assert found == {1: pytest.approx((3, 3 - half, 3 + half), abs=1e-4), 2: (2.0, 2.0, 2.0)}


@pytest.mark.parametrize(("values", "mean"), [([1.0], 1.0), ([1.0, math.inf], math.nan)])
def test_one_run_and_a_gap_have_no_interval(values, mean):
    assert over_seeds([{1: value} for value in values])[1] == pytest.approx(
        (mean, *[math.nan] * 2), nan_ok=True
    )


# -- intervals over seeds


@pytest.mark.parametrize(
    ("freedom", "printed"),  # any statistics textbook
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (10, 2.228), (29, 2.045), (10_000, 1.96)],
)
def test_the_quantile_is_the_one_in_print(freedom, printed):
    assert t_quantile(freedom) == pytest.approx(printed, abs=5e-4)


def test_it_covers_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(3.0, 2.0, size=(4000, 3)).tolist()
    covered = fmean(low <= 3.0 <= high for low, high in map(t_interval, draws))
    assert covered == pytest.approx(0.95, abs=0.01)
