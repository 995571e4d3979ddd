"""The summary says what happened, with its doubts; the lineage what the journal does; the recipe what was changed."""

import math

import pytest

from prorl.config.recipe import load_recipe, to_json
from prorl.control.events import Resumed, Started
from prorl.lab.report.boundary import measured
from prorl.lab.report.page import section_json
from prorl.lab.report.summary import changes, grave, lineage_section, recipe_section, remarks, summary_section
from prorl.run.history import read_history
from support import events
from support.evaluations import evaluation, results
from support.journals import run_with
from support.stories import keep

CALM = events.rollout_stats(errors=0, truncated=0.01, unanswered=0.01)


def steps(count=50, **changes):
    return [events.stepped(step, **{"rollout_stats": CALM} | changes) for step in range(1, count + 1)]


def turned(**changes):
    """A run that changes after 30 steps."""
    return [*steps(30), *(events.stepped(step, **changes) for step in range(31, 61))]


def stats(**changes):
    return {"rollout_stats": events.rollout_stats(**changes)}


def read(folder, happened, **config):
    return read_history(run_with(folder, happened, **config))


def test_one_run_in_a_minute(tmp_path):
    validations = events.evaluated(0, 0.25), events.evaluated(50, 0.5)
    happened = [*steps(), *validations, events.reset(20), events.reset(40)]
    html = summary_section([read(tmp_path / "one", happened)]).html
    assert "org/model was trained on 1 task (arithmetic) for 50 of 100 steps: 2,400 rollouts" in html
    assert "25.0% → 50.0%" in html
    assert "2 resets." in html
    assert "Nothing stands out." in html


def test_of_many_tasks_some_are_named_and_a_run_that_has_only_begun_has_a_summary(tmp_path):
    tasks = {f"task_{number:02}": {} for number in range(96)}
    html = summary_section([read(tmp_path / "many", [], tasks=tasks)]).html
    assert "96 tasks (task_00, " in html
    assert "task_19 and 76 more)" in html
    assert "is to be trained on 96 tasks" in html
    assert "for 100 steps; no step has been made yet" in html
    assert "Nothing stands out" not in html


@pytest.mark.parametrize(
    ("happened", "told"),
    [
        (steps(update=events.update(skipped=1)), "50 updates skipped"),
        (steps(**stats(errors=3)), "30.0% of all drawn groups were lost to verifier errors"),
        (steps(**stats(truncated=0.5)), "50% of the latest responses hit the length limit"),
        (steps(**stats(unanswered=0.5)), "50% of the latest responses hold no answer"),
        (steps(**stats(accepted=1)), "Only 10% of the problems drawn lately are informative"),
        ([events.intervened(step=3, action="roll_back", from_step=9)], "rolled back 1 time;"),
        (turned(update=events.update(entropy=0.1)), "Entropy fell"),
        (turned(**stats(length=500.0)), "100 to 500"),
        (turned(seconds={"total": 30.0}), "A step takes 30 s now"),
        ([events.evaluated(s, 0.5) for s in (0, 10, 20)], "No validation in code was better"),
    ],
)
def test_trouble_is_named_with_its_numbers_and_calm_is_silent(happened, told, tmp_path):
    calm, run = read(tmp_path / "calm", steps()), read(tmp_path / "run", happened)
    assert [*grave(calm), *remarks(calm)] == []
    assert told in " ".join([*grave(run), *remarks(run)])


@pytest.mark.parametrize(
    ("limits", "told"), [((16, 16), None), ((None, 16), None), ((16, 8), "at 16 tokens")]
)
def test_validations_that_are_cut_off_at_other_lengths_are_not_compared_in_silence(limits, told, tmp_path):
    happened = [
        events.evaluated(step, 0.5, response_limit=limit) for step, limit in zip((0, 9), limits, strict=True)
    ]
    found = [remark for remark in remarks(read(tmp_path / "run", happened)) if "not comparable" in remark]
    assert (
        told is None and not found
    ) or f"up to step 0 are cut off {told} and those from step 9 on" in found[0]


def test_runs_of_one_name_keep_their_own_findings(tmp_path):
    quiet, loud = (read(tmp_path / group / "nano", steps()) for group in "ab")
    loud.notes = ("a line is damaged",)
    html = summary_section([loud, quiet]).html
    counts = [len([*grave(run), *remarks(run)]) for run in (loud, quiet)]
    assert counts[0] != counts[1]
    for run, found in zip((loud, quiet), counts, strict=True):
        assert f"{run.folder}: {found} thing" in html


def test_what_was_not_measured_is_a_dash_and_no_fall(tmp_path):
    run = read(tmp_path / "dead", [*steps(30), *(events.blind(step) for step in range(31, 80))])
    assert summary_section([run]).html.count("<dd>–") == 6
    assert all("Entropy" not in told and "Responses went" not in told for told in remarks(run))


@pytest.mark.parametrize(("gains", "doubtful"), [((0.1, -0.2, 0.15), True), ((0.1, 0.11, 0.12), False)])
def test_an_overlay_says_when_the_gain_over_seeds_may_be_chance(gains, doubtful, tmp_path):
    runs = [
        read(tmp_path / str(at), [events.evaluated(0, 0.2), events.evaluated(9, 0.2 + gain)], seed=at)
        for at, gain in enumerate(gains)
    ]
    doubt = "the interval includes zero, so this may be chance"
    assert (doubt in summary_section(runs).html) is doubtful


def test_a_evaluation_says_whether_it_worked_with_its_doubt(tmp_path):
    run = read(tmp_path / "run", steps())

    def measure(model, step, solved):
        keep(run.folder, evaluation(model, results([0, solved] * 20, 8), step=step), name="evaluation")

    assert f"prorl eval {run.folder}" in measured(run).html
    measure("base", 0, 2)
    measure("step_000010", 10, 2)
    assert "which may be chance" in measured(run).html
    measure("step_000020", 20, 6)
    whole = "Of 40 held-out problems the policy of step 20 solves 37.5% at the first try and its base 12.5%: +25.0"
    assert whole in measured(run).html
    (run.folder / "evals" / "evaluation" / "step_000020.parquet").write_bytes(b"damaged")
    assert "cannot be read" in measured(run).html


# -- references

EVENTS = [
    Started(config_hash="c", reference_hash="aaaa"),
    events.stepped(1),
    events.reset(2, hash="bbbb", reason="kl_ceiling"),
    Resumed(step=2, config_hash="d", branched_from="<b>nano@2"),
    events.reset(6, name="ref_002", parent="ref_001", source_step=4, reason="order", hash="cccc"),
    events.stepped(9),
]


def test_every_reference_is_told_with_its_birth_reason_parent_and_optimizer(tmp_path):
    section = lineage_section(read(tmp_path, EVENTS))
    (table,) = section.tables
    assert [row[:3] for row in table.rows] == [
        ("ref_000", "start", "the base"),
        ("ref_001", "kl ceiling", "ref_000"),
        ("ref_002", "order", "ref_001"),
    ]
    assert table.rows[-1][3:] == (events.reset(1).optimizer, "cccc", "deleted", 6, 4)
    assert "reset twice" in section.html
    assert "a branch of &lt;b&gt;nano@2" in section.html


def test_a_run_without_penalty_held_none(tmp_path):
    section = lineage_section(read(tmp_path, [Started(config_hash="c", reference_hash=None)]))
    assert "No reference was ever held" in section.html


# -- the recipe


def test_the_recipe_shows_first_what_is_not_default():
    config = to_json(load_recipe("nano", ["clip.high=0.5", "steps=7"]))
    found = {key: (value, default) for key, value, default in changes(config)}
    assert found["clip.high"] == ("0.5", "0.28")
    assert found["steps"] == ("7", "3000")
    assert "clip.low" not in found
    assert found["tasks.countdown"][1] == ""


def test_a_recipe_of_another_version_is_shown_as_it_is(tmp_path):
    run = read(tmp_path / "one", [], novelty={"<b>": math.inf}, clip=7)
    html = section_json(recipe_section([run]))["html"]
    assert "novelty.&lt;b&gt;" in html
    assert "<td>clip</td>" in html


def test_what_spoils_a_run_weighs_more_than_a_remark(tmp_path):
    run = read(tmp_path / "run", steps(**stats(errors=0, truncated=0.9, unanswered=0.3)))
    assert [told[:3] for told in grave(run)] == ["90%"]
    assert [told[:3] for told in remarks(run)] == ["30%"]
    html = summary_section([run]).html
    assert html.index('class="bad"') < html.index('class="warn"')


def test_only_tasks_that_are_trained_count_as_trained(tmp_path):
    own = {"mine": {"use": "a.py:B"}, "rows": {"kind": "math", "path": "x"}, "off": {"weight": 0}}
    tasks = {"countdown": {}, "blicket": {}, "rg_sudoku": {}, "aime24": {}, "deepscaler": {}, **own}
    html = summary_section([read(tmp_path / "run", steps(), tasks=tasks)]).html
    assert "was trained on 5 tasks (countdown, rg_sudoku, deepscaler, mine, rows)" in html
