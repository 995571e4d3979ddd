"""What the summary says is what happened, with its doubts; the recipe shows what was changed."""

import math

import pytest

from prorl.config.recipe import load_recipe, to_json
from prorl.lab.evals.evaluation_store import Evaluation, write_evaluation
from prorl.lab.report.boundary import measured
from prorl.lab.report.page import section_json
from prorl.lab.report.summary import changes, findings, recipe_section, summary_section
from prorl.rollout.validation import ProblemResult
from prorl.run.history import read_history
from support import events
from support.journals import run_with

CALM = events.rollout_stats(errors=0, truncated=0.01, unanswered=0.01)


def steps(count=50, **changes):
    return [events.stepped(step, **{"rollout_stats": CALM} | changes) for step in range(1, count + 1)]


def read(folder, happened, **config):
    return read_history(run_with(folder, happened, **config))


def test_one_run_in_a_minute(tmp_path):
    happened = [
        *steps(),
        events.evaluated(0, 0.25),
        events.evaluated(50, 0.5),
        events.reset(20),
        events.reset(40),
    ]
    html = summary_section([read(tmp_path / "one", happened)]).html
    assert "org/model was trained on 1 task (arithmetic) for 50 of 100 steps: 2,400 rollouts" in html
    assert "25.0% → 50.0%" in html
    assert "2 resets." in html
    assert "Nothing stands out." in html


def test_of_many_tasks_some_are_named_and_the_others_counted(tmp_path):
    tasks = {f"task_{number:02}": {} for number in range(96)}
    html = summary_section([read(tmp_path / "many", [], tasks=tasks)]).html
    assert "96 tasks (task_00, " in html
    assert "task_19 and 76 more)" in html


def test_a_run_that_has_only_begun_has_a_summary(tmp_path):
    assert "0 of 100" in summary_section([read(tmp_path / "new", [])]).html


@pytest.mark.parametrize(
    ("happened", "told"),
    [
        (steps(update=events.update(skipped=1)), "50 updates were skipped"),
        (
            steps(rollout_stats=events.rollout_stats(errors=3)),
            "30.0% of all drawn groups were lost to verifier errors",
        ),
        (
            steps(rollout_stats=events.rollout_stats(truncated=0.5)),
            "50% of the latest responses hit the length limit",
        ),
        (
            steps(rollout_stats=events.rollout_stats(unanswered=0.5)),
            "50% of the latest responses hold no answer",
        ),
        (
            steps(rollout_stats=events.rollout_stats(accepted=1)),
            "Only 10% of the problems drawn lately are informative",
        ),
        ([events.intervened(step=3, action="roll_back", from_step=9)], "rolled back 1 time;"),
        (
            [*steps(30), *(events.stepped(s, update=events.update(entropy=0.1)) for s in range(31, 61))],
            "Entropy fell",
        ),
        (
            [
                *steps(30),
                *(events.stepped(s, rollout_stats=events.rollout_stats(length=500.0)) for s in range(31, 61)),
            ],
            "100 to 500",
        ),
        (
            [*steps(30), *(events.stepped(s, seconds={"total": 30.0}) for s in range(31, 61))],
            "A step takes 30 s now",
        ),
        ([events.evaluated(s, 0.5) for s in (0, 10, 20)], "No validation in code was better"),
    ],
)
def test_trouble_is_named_with_its_numbers_and_calm_is_silent(happened, told, tmp_path):
    assert findings(read(tmp_path / "calm", steps())) == []
    assert told in " ".join(findings(read(tmp_path / "run", happened)))


def test_what_was_not_measured_is_a_dash_and_no_fall(tmp_path):
    run = read(tmp_path / "dead", [*steps(30), *(events.blind(step) for step in range(31, 80))])
    html = summary_section([run]).html
    assert "Entropy fell" not in html
    assert html.count("<dd>–") == 6
    assert all("Entropy" not in told and "Responses went" not in told for told in findings(run))


def test_an_overlay_says_when_the_gain_over_seeds_may_be_chance(tmp_path):
    def seeds(name, gains):
        return [
            read(
                tmp_path / f"{name}{at}", [events.evaluated(0, 0.2), events.evaluated(9, 0.2 + gain)], seed=at
            )
            for at, gain in enumerate(gains)
        ]

    doubt = "the interval includes zero, so this may be chance"
    assert doubt in summary_section(seeds("a", (0.1, -0.2, 0.15))).html
    assert doubt not in summary_section(seeds("b", (0.1, 0.11, 0.12))).html


def evaluation(model, step, rate, samples=8):
    problems = tuple(
        ProblemResult(
            task="arithmetic",
            domain="math",
            part="test",
            level=1,
            index=index,
            prompt="p",
            samples=samples,
            solved=round(rate * samples) if index % 2 else 0,
            unanswered=0,
            truncated=0,
            errors=0,
            length=9.0,
        )
        for index in range(40)
    )
    return Evaluation(model=model, step=step, samples=samples, seconds=1.0, problems=problems)


def test_a_evaluation_says_whether_it_worked_with_its_doubt(tmp_path):
    shelf = tmp_path / "run" / "evals" / "evaluation"
    shelf.mkdir(parents=True)
    assert "prorl eval run" in measured(tmp_path / "run")
    write_evaluation(shelf / "base.parquet", evaluation("base", 0, 0.25))
    write_evaluation(shelf / "step_000010.parquet", evaluation("step_000010", 10, 0.25))
    assert "which may be chance" in measured(tmp_path / "run")
    write_evaluation(shelf / "step_000020.parquet", evaluation("step_000020", 20, 0.75))
    html = measured(tmp_path / "run")
    assert (
        "Of 40 held-out problems the policy of step 20 solves 37.5% at the first try and its base 12.5%: +25.0"
        in html
    )
    (shelf / "step_000020.parquet").write_bytes(b"damaged")
    assert "cannot be read" in measured(tmp_path / "run")


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
