"""What a report says about the boundary: the numbers planted in an evaluation, and no markup that a model smuggled
in."""

import json
import re
from dataclasses import replace
from itertools import chain

import pytest

from prorl.algo.pass_at_k import pass_at_k
from prorl.control.events import LevelRaised
from prorl.envs.families.numbers import LinearEquation
from prorl.lab.creativity import Lengths, compare_creativity, write_creativity
from prorl.lab.evals.evaluation_store import write_evaluation
from prorl.lab.evals.problems import Kept
from prorl.lab.report.boundary import boundary_sections, measured, trained_levels
from prorl.lab.report.page import section_json
from prorl.lab.tables import text
from prorl.run.history import RunHistory
from support.evaluations import evaluation, kept, result, results, voted
from support.journals import run_with
from support.stories import keep

HOSTILE = '</script><img src=x onerror=alert(1)><a href="javascript:x">'
SAMPLES = 16
CONFIG = {"tasks": {"t": {"levels": {"2": 1.0, "1": 6.0}}, "linear_equation": {"levels": {}}}}
OURS = re.compile(r"</?b>|<br>|</?extra>")


def shelve(folder, name, *models):
    keep(folder, *models, name=name)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def reading(folder):
    run = RunHistory(folder)
    run.refresh()
    return run


def shown(folder, *models):
    """The sections about a run's evaluation of these models, without the part of the keys that is its name."""
    if models:
        shelve(folder, "evaluation", *models)
    return {one.key.removeprefix("boundary-evaluation-"): one for one in boundary_sections(reading(folder))}


def lines(figure, axis="x"):
    return [one for one in figure.data if one["mode"] == "lines+markers" and one["xaxis"] == axis]


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        keys = value if isinstance(value, dict) else ()
        yield from chain(keys, *map(strings, value.values() if keys else value))


def model(step, solved, far, levels):
    """A model by how many responses pass of held-out problems, those out of domain, and one problem per level."""
    by_level = [result(one, level=at, index=at, part="levels") for at, one in enumerate(levels, 1)]
    problems = [*results(solved), *results(far, part="ood", task="far"), *by_level]
    return evaluation(f"step_{step:06d}" if step else "base", problems, step=step)


BASE = model(0, [8, 4, 0, 0, 3], [0, 1], [8, 2, 0])
HALF = model(4, [9, 4, 0, 6, 2], [0, 1], [9, 4, 1])
LAST = model(8, [9, 9, 0, 16, 0], [0, 2], [16, 9, 5])


@pytest.fixture
def sections(tmp_path):
    return shown(tmp_path, BASE, HALF, LAST)


def test_without_a_evaluation_it_says_so_and_gives_the_command(tmp_path):
    (section,) = boundary_sections(reading(tmp_path / "<b>run"))
    assert "No evaluation is stored" in section.html
    assert "&lt;b&gt;run --k 256" in section.html


def test_a_planted_new_and_a_planted_lost_problem_are_told(sections):
    told = r"beyond guessing 1 of 5 problems are new \(1 surely; chance .* [\d.]+\) and 1 lost \(0 surely; [\d.]+\)"
    assert re.search(told, sections["pass"].html)
    _, table, patterns = sections["moved"].tables
    assert [(*row[:3], *row[4:7]) for row in table.rows if row[0] == "all"] == [
        ("all", "held-out", 5, 2, 1, 1),
        ("all", "out of domain", 2, 1, 0, 0),
    ]
    assert "before and after step 4" in patterns.notes[0]


def test_a_model_from_elsewhere_is_compared_but_nothing_that_training_did(tmp_path):
    moved = shown(tmp_path, BASE, replace(LAST, model="Qwen", step=None))["moved"]
    assert [table.title for table in moved.tables] == [
        "Solved beyond guessing in 16 tries",
        "Who solves what in 16 tries, beyond guessing",
    ]
    assert "Not measured" in measured(reading(tmp_path)).html


def test_problems_that_a_model_could_not_be_judged_on_are_left_out_of_all_figures(tmp_path):
    """As where the verifier of a domain was out while one of the models was measured."""
    problems = [replace(one, domain="code") if one.index < 2 else one for one in BASE.problems]
    base = replace(BASE, problems=tuple(problems))
    left = tuple(one for one in problems if one.domain != "code")
    pages = shown(tmp_path, base, replace(BASE, model="step_000008", step=8, problems=left))
    assert all(line["name"] != "code" for line in lines(pages["pass"].figures[0]))
    (gain, *_) = measured(reading(tmp_path)).figures
    assert all("code" not in trace["y"] for trace in gain.data)


def test_a_model_that_did_not_change_has_not_moved_the_boundary(tmp_path):
    sections = shown(tmp_path, BASE, replace(BASE, model="step_000008", step=8))
    assert "surely rose on none of 1 held-out task " in sections["moved"].html
    assert "surely rose on none of 1 out of domain task " in sections["moved"].html
    assert "beyond guessing 0 of 5 problems" in sections["pass"].html
    assert sections["pass"].html.count("which may be chance") == 3
    assert "No problem is solved now that the base did not" in sections["solvable"].html


def test_the_curves_are_pass_at_k_of_every_model(sections):
    found = lines(sections["pass"].figures[0])
    assert [line["name"] for line in found] == ["base", "step 4", "step 8"]
    assert list(found[0]["x"]) == [1, 2, 4, 8, 16]
    expected = [sum(pass_at_k(SAMPLES, c, k) for c in (8, 4, 0, 0, 3)) / 5 for k in found[0]["x"]]
    assert list(found[0]["y"]) == pytest.approx(expected)


def test_levels_are_curves_and_those_that_are_trained_are_shaded(sections):
    figure, _ = sections["levels"].figures
    (shade,) = figure.layout["shapes"]
    assert (shade["x0"], shade["x1"]) == (0.5, 2.5)
    assert list(lines(figure)[-1]["y"]) == [1.0, 9 / 16, 5 / 16]


@pytest.mark.parametrize(
    ("name", "asked", "raised", "trained"),
    [
        ("linear_equation", {"levels": {}}, None, LinearEquation.levels),  # without weights all of the task
        ("t", {"levels": {"3": 1.0, "1": 6.0, "9": 0.0}}, None, (3, 1)),
        ("linear_equation", {"levels": {}, "adaptive": {"start": 2}}, None, (1, 2)),
        ("linear_equation", {"levels": {}, "adaptive": {"start": 2}}, 3, (1, 2, 3)),
        # What a parent reached does not lower the levels of its branch.
        ("linear_equation", {"levels": {}, "adaptive": {"start": 4}}, 3, LinearEquation.levels),
        ("linear_equation", {"levels": {}, "adaptive": None}, 3, LinearEquation.levels),
    ],
)
def test_the_levels_that_are_trained_are_those_of_the_recipe(tmp_path, name, asked, raised, trained):
    tops = {"countdown": 4, **({name: raised} if raised else {})}
    happened = [LevelRaised(step=4, task=task, level=top) for task, top in tops.items()]
    assert trained_levels(reading(run_with(tmp_path, happened, tasks={name: asked}))) == {name: trained}


@pytest.mark.parametrize(
    ("tasks", "beyond", "told"),
    [
        (CONFIG["tasks"], 4, "pass@1 surely rose on 1 of 1 task, t (+25.0 points)"),
        (CONFIG["tasks"], 0, "pass@16 surely rose on none of 1 task."),
        ({"t": {"levels": {}}}, 4, None),  # it is not known which levels are trained
    ],
)
def test_a_rise_above_the_trained_levels_is_told(tmp_path, tasks, beyond, told):
    def climbed(model, step, beyond):
        above = results([beyond] * 8, part="levels", level=5)
        return evaluation(model, [*results([9] * 8), *results([9] * 8, part="levels"), *above], step=step)

    shelve(tmp_path, "evaluation", climbed("base", 0, 0), climbed("step_000008", 8, beyond))
    (tmp_path / "config.json").write_text(json.dumps({"tasks": tasks}))
    html = shown(tmp_path)["levels"].html
    assert told in html if told else "Above the trained levels" not in html


def test_format_failures_are_told_apart_from_wrong_answers(tmp_path):
    base = evaluation("base", [voted({"7": (4, True), "8": (4, False)}, silent=8)], step=0)
    judged = replace(voted({"7": (8, True), "8": (8, False)}), errors=3)
    last = evaluation("step_000008", [judged], step=8)
    answers, outcomes = shown(tmp_path, base, last)["answers"].tables
    assert answers.columns[1:5] == ("no answer", "cut off", "pass@1 of answered", "maj@16")
    assert answers.columns[5:] == ("tokens", "not judged")
    assert [" ".join(map(text, row)) for row in answers.rows] == [
        "base 50.0% 0.0% 50.0% 50.0% 9.0 0",
        "step 8 0.0% 0.0% 50.0% 50.0% 9.0 3",
    ]
    passed_wrong_silent_cut_tokens = [[0.25, 0.25, 0.5, 0.0, 9.0], [0.5, 0.5, 0.0, 0.0, 9.0]]
    assert [[cell.value for cell in row[3:]] for row in outcomes.rows] == passed_wrong_silent_cut_tokens


def test_what_is_not_the_format_is_told_on_problems_that_both_answered(tmp_path):
    base = evaluation("base", [result(4, unanswered=8), result(0, unanswered=16, index=1)], step=0)
    last = evaluation("step_000008", [result(12), result(16, index=1)], step=8)
    answers, _ = shown(tmp_path, base, last)["answers"].tables
    assert [row[answers.columns.index("pass@1 of answered")].value for row in answers.rows] == [0.5, 0.75]


def test_the_measurement_gives_way_to_a_evaluation_that_compares(tmp_path):
    for name, models, there in (
        ("measurement", (BASE, LAST), True),
        ("evaluation", (BASE,), True),
        ("other", (BASE, LAST), False),
    ):
        shelve(tmp_path, name, *models)
        assert ("boundary-measurement-pass" in shown(tmp_path)) is there


def test_keys_are_unique_among_several_evaluations(tmp_path):
    shelve(tmp_path, "evaluation", BASE, LAST)
    sections = boundary_sections(reading(shelve(tmp_path, "other", BASE, HALF, LAST)))
    for keys in ([one.key for one in sections], [figure.key for one in sections for figure in one.figures]):
        assert len(set(keys)) == len(keys)


def test_a_base_alone_is_compared_with_nothing_and_checkpoints_alone_are_not_new_or_lost(tmp_path):
    assert list(shown(tmp_path / "base", BASE)) == ["pass", "answers", "levels"]
    sections = shown(tmp_path / "steps", HALF, LAST)
    assert "moved" not in sections
    assert "and step 4 " in sections["pass"].html


def test_what_is_damaged_or_foreign_is_said_and_the_others_are_shown(tmp_path):
    shelve(tmp_path, "broken")
    shelve(tmp_path, "evaluation", BASE, LAST)
    for file in ("broken/base.parquet", "evaluation/notes.parquet"):
        (tmp_path / "evals" / file).write_bytes(b"PAR1")
    sections = shown(tmp_path)
    unread = sections["boundary-unread"].html
    assert unread.count("measure again") == 2
    assert "notes.parquet" in unread
    assert "moved" in sections


def test_nothing_of_a_model_or_a_task_reaches_the_page_as_markup(tmp_path):
    poison = Kept(sample=0, text=HOSTILE, tokens=3, finish=HOSTILE, score=1.0, status=HOSTILE, note=HOSTILE)

    def poisoned(one, model):
        problems = [
            replace(problem, task=HOSTILE, domain=problem.domain + HOSTILE, prompt=HOSTILE, kept=(poison,))
            for problem in one.problems
        ]
        return replace(one, model=model, problems=tuple(problems))

    shelve(tmp_path, "evaluation", poisoned(BASE, "base"))
    alien = replace(poisoned(LAST, HOSTILE), step=None)
    write_evaluation(tmp_path / "evals" / "evaluation" / "alien.parquet", alien)
    sections = shown(tmp_path)
    assert sections["solvable"].html.count("&lt;img") >= 3
    for section in map(section_json, sections.values()):
        assert not re.search("<(img|a |script)", section["html"])
        for figure in section["figures"]:
            for string in chain(strings(figure["data"]), strings(figure["layout"])):
                assert "<" not in OURS.sub("", string), string


def test_every_section_is_plain_json(sections):
    json.dumps([section_json(section) for section in sections.values()], allow_nan=False)


def test_the_interval_of_a_gain_is_the_same_all_over_the_page(sections, tmp_path):
    found = re.findall("95 % interval ([^ ]+ to [^ ,;.]+)", sections["pass"].html)
    assert len(found) == 3
    assert all(interval in measured(reading(tmp_path)).html for interval in found)


# -- the creativity index


def test_the_index_of_every_model_and_its_gain_are_told_with_their_intervals(tmp_path):
    assert "creativity" not in shown(tmp_path, BASE, LAST)
    models = [
        evaluation("base", [result(1, kept=kept("a b c d")), result(1, index=1, kept=kept("a b x y"))]),
        evaluation("new", [result(1, kept=kept("u v w x")), result(1, index=1, kept=kept("a y c z"))]),
    ]
    found = compare_creativity(models, ["a b c"], corpus="<b>pages", lengths=Lengths(shortest=1, longest=5))
    path = tmp_path / "evals" / "evaluation" / "creativity.json"
    write_creativity(path, found)
    html = section_json(shown(tmp_path)["creativity"])["html"]
    for row in found.rows:
        for one, form in ((row.index, ".2f"), *([(row.gain, "+.2f")] if row.gain else [])):
            assert f">{one.mean:{form}} ({one.low:{form}} to {one.high:{form}})</td>" in html
    assert ">1.00</td>" in html, "the floor: the longest sequences have one word more than the responses"
    assert "corpus: &lt;b&gt;pages, 3 words" in html
    path.write_text("{")
    assert "cannot be read" in shown(tmp_path)["creativity"].html
