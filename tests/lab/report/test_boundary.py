"""What a report says about the boundary: the numbers planted in an evaluation, and no markup that a model smuggled
in."""

import json
import re
from dataclasses import replace
from itertools import chain

import pytest

from prorl.algo.pass_at_k import pass_at_k
from prorl.envs.families.numbers import LinearEquation
from prorl.lab.evals.creativity import Creativity, Estimate, Lengths, Responses, Row, write_creativity
from prorl.lab.evals.evaluation_store import write_evaluation
from prorl.lab.report.boundary import boundary_sections, measured, trained_levels
from prorl.lab.report.page import section_json
from prorl.rollout.validation import Kept
from support.evaluations import evaluation, result, results, voted

HOSTILE = '</script><img src=x onerror=alert(1)><a href="javascript:x">'
SAMPLES = 16
CONFIG = {"tasks": {"t": {"levels": {"2": 1.0, "1": 6.0}}, "linear_equation": {"levels": {}}}}
OURS = re.compile(r"</?b>|<br>|</?extra>")


def shelve(folder, name, *models):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    place = folder / "evals" / name
    place.mkdir(parents=True)
    for one in models:
        write_evaluation(place / f"{one.model}.parquet", one)
    return folder


def by_key(sections):
    return {section.key: section for section in sections}


def figures(sections):
    return {figure.key: figure for section in sections for figure in section.figures}


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from chain(value, *map(strings, value.values()))
    elif isinstance(value, list):
        yield from chain.from_iterable(map(strings, value))


def by_level(rates):
    return [result(solved, level=level, index=level, part="levels") for level, solved in enumerate(rates, 1)]


BASE = evaluation(
    "base",
    [*results([8, 4, 0, 0, 3]), *results([0, 1], part="ood", task="far"), *by_level([8, 2, 0])],
    step=0,
)
HALF = evaluation(
    "step_000004",
    [*results([9, 4, 0, 6, 2]), *results([0, 1], part="ood", task="far"), *by_level([9, 4, 1])],
    step=4,
)
LAST = evaluation(
    "step_000008",
    [*results([9, 9, 0, 16, 0]), *results([0, 2], part="ood", task="far"), *by_level([16, 9, 5])],
    step=8,
)


@pytest.fixture
def sections(tmp_path):
    return boundary_sections(shelve(tmp_path, "evaluation", BASE, HALF, LAST))


def test_without_a_evaluation_it_says_so_and_gives_the_command(tmp_path):
    (section,) = boundary_sections(tmp_path / "<b>run")
    assert "No evaluation is stored" in section.html
    assert "&lt;b&gt;run --k 256" in section.html


def test_a_planted_new_and_a_planted_lost_problem_are_told(sections):
    text = by_key(sections)["boundary-evaluation-pass"].html
    assert (
        "Never solved by the base in 16 tries and solved now: 1 of 5 problems (1 surely); lost: 1 (0" in text
    )
    table, _ = by_key(sections)["boundary-evaluation-moved"].tables
    assert [row[:6] for row in table.rows if row[0] == "all"] == [
        ("all", "held-out", 5, 2, 1, 1),
        ("all", "out of domain", 2, 1, 0, 0),
    ]


def test_a_model_from_elsewhere_is_compared_but_nothing_that_training_did(tmp_path):
    other = replace(LAST, model="Qwen", step=None)
    folder = shelve(tmp_path, "evaluation", BASE, other)
    moved = by_key(boundary_sections(folder))["boundary-evaluation-moved"]
    assert [table.title for table in moved.tables] == ["Who solves what, per task"]
    assert "Not measured" in measured(folder)


def test_a_model_that_did_not_change_has_not_moved_the_boundary(tmp_path):
    twin = replace(BASE, model="step_000008", step=8)
    sections = by_key(boundary_sections(shelve(tmp_path, "evaluation", BASE, twin)))
    text = sections["boundary-evaluation-moved"].html
    assert "surely rose on none of 1 held-out task " in text
    assert "surely rose on none of 1 out of domain task " in text
    assert "solved now: 0 of 5 problems" in sections["boundary-evaluation-pass"].html
    assert sections["boundary-evaluation-pass"].html.count("which may be chance") == 4
    assert "No problem that the base never solved" in sections["boundary-evaluation-solvable"].html


def test_the_curves_are_pass_at_k_of_every_model(sections):
    lines = [
        trace
        for trace in figures(sections)["boundary-evaluation-pass"].data
        if trace["mode"] == "lines+markers" and trace["xaxis"] == "x"
    ]
    assert [line["name"] for line in lines] == ["base", "step 4", "step 8"]
    assert list(lines[0]["x"]) == [1, 2, 4, 8, 16]
    expected = [sum(pass_at_k(SAMPLES, c, k) for c in (8, 4, 0, 0, 3)) / 5 for k in lines[0]["x"]]
    assert list(lines[0]["y"]) == pytest.approx(expected)


def test_the_heat_map_has_the_bases_easiest_problem_first_in_every_row(tmp_path):
    shuffled = replace(LAST, problems=LAST.problems[::-1])
    sections = boundary_sections(shelve(tmp_path, "evaluation", BASE, shuffled))
    heat = figures(sections)["boundary-evaluation-moved-map"].data[0]
    assert heat["y"] == ["base", "step 8"]
    base, last = heat["z"]
    assert base == sorted(base, reverse=True)
    assert [text.split()[1].rstrip(",") for text in heat["text"][1]] == ["0", "1", "4", "3", "2"]
    assert last[3] == 0  # always solved
    assert base[3] == last[4] == min(base)  # never


def test_the_trained_levels_of_a_levels_are_shaded(sections):
    (shade,) = figures(sections)["boundary-evaluation-levels-1"].layout["shapes"]
    assert (shade["x0"], shade["x1"]) == (0.5, 2.5)
    lines = [
        trace for trace in figures(sections)["boundary-evaluation-levels-1"].data if trace["mode"] != "none"
    ]
    assert list(lines[-1]["y"]) == [1.0, 9 / 16, 5 / 16]


def test_a_task_without_weights_trains_all_its_own_levels(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert trained_levels(tmp_path) == {"t": (2, 1), "linear_equation": LinearEquation.levels}


def test_a_rise_above_the_trained_levels_is_told_with_its_levels(tmp_path):
    def climbed(model, step, beyond):
        levels = [
            *results([9] * 8),
            *results([9] * 8, part="levels"),
            *results([beyond] * 8, part="levels", level=5),
        ]
        return evaluation(model, levels, step=step)

    base = climbed("base", 0, 0)
    higher = by_key(
        boundary_sections(shelve(tmp_path / "up", "evaluation", base, climbed("step_000008", 8, 4)))
    )
    same = by_key(
        boundary_sections(shelve(tmp_path / "same", "evaluation", base, climbed("step_000008", 8, 0)))
    )
    assert "pass@1 surely rose on 1 of 1 task, t (+25.0 points)" in higher["boundary-evaluation-levels"].html
    assert "pass@16 surely rose on none of 1 task." in same["boundary-evaluation-levels"].html


def test_format_failures_are_told_apart_from_wrong_answers(tmp_path):
    base = evaluation("base", [voted({"7": (4, True), "8": (4, False)}, silent=8)], step=0)
    last = evaluation("step_000008", [voted({"7": (8, True), "8": (8, False)})], step=8)
    sections = boundary_sections(shelve(tmp_path, "evaluation", base, last))
    answers, outcomes = by_key(sections)["boundary-evaluation-answers"].tables
    shares = [dict(zip(answers.columns, row, strict=True)) for row in answers.rows]
    assert [row["no answer"].value for row in shares] == [0.5, 0.0]
    assert [row["pass@1 of answered"].value for row in shares] == [0.5, 0.5]
    assert [[cell.value for cell in row[3:]] for row in outcomes.rows] == [
        [0.25, 0.25, 0.5, 0.0, 9.0],
        [0.5, 0.5, 0.0, 0.0, 9.0],
    ]


def test_the_measurement_gives_way_to_a_evaluation_that_compares(tmp_path):
    shelve(tmp_path, "measurement", BASE, LAST)
    assert "boundary-measurement-pass" in by_key(boundary_sections(tmp_path))
    shelve(tmp_path, "evaluation", BASE)
    assert "boundary-measurement-pass" in by_key(boundary_sections(tmp_path))
    shelve(tmp_path, "other", BASE, LAST)
    assert "boundary-measurement-pass" not in by_key(boundary_sections(tmp_path))


def test_keys_are_unique_among_several_evaluations(tmp_path):
    shelve(tmp_path, "evaluation", BASE, LAST)
    sections = boundary_sections(shelve(tmp_path, "other", BASE, HALF, LAST))
    keys = [section.key for section in sections] + [
        figure.key for section in sections for figure in section.figures
    ]
    anchors = [section.key for section in sections]
    assert len(set(anchors)) == len(anchors)
    assert len(set(figures(sections))) == len(keys) - len(anchors)


def test_a_base_alone_is_drawn_and_compared_with_nothing(tmp_path):
    keys = by_key(boundary_sections(shelve(tmp_path, "evaluation", BASE)))
    assert list(keys) == [
        "boundary-evaluation-pass",
        "boundary-evaluation-answers",
        "boundary-evaluation-levels",
    ]


def test_checkpoints_without_a_base_are_not_called_new_or_lost(tmp_path):
    keys = by_key(boundary_sections(shelve(tmp_path, "evaluation", HALF, LAST)))
    assert "boundary-evaluation-moved" not in keys
    assert "and step 4 " in keys["boundary-evaluation-pass"].html


def test_a_damaged_evaluation_is_said_and_the_others_are_shown(tmp_path):
    shelve(tmp_path, "evaluation", BASE, LAST)
    shelve(tmp_path, "broken")
    (tmp_path / "evals" / "broken" / "base.parquet").write_bytes(b"PAR1")
    sections = by_key(boundary_sections(tmp_path))
    assert "measure again" in sections["boundary-unread"].html
    assert "boundary-evaluation-moved" in sections


def test_nothing_of_a_model_or_a_task_reaches_the_page_as_markup(tmp_path):
    kept = Kept(sample=0, text=HOSTILE, tokens=3, finish=HOSTILE, score=1.0, status=HOSTILE, note=HOSTILE)

    def poisoned(one, model):
        problems = [
            replace(problem, task=HOSTILE, domain=problem.domain + HOSTILE, prompt=HOSTILE, kept=(kept,))
            for problem in one.problems
        ]
        return replace(one, model=model, problems=tuple(problems))

    shelve(tmp_path, "evaluation", poisoned(BASE, "base"))
    place = tmp_path / "evals" / "evaluation"
    write_evaluation(place / "alien.parquet", replace(poisoned(LAST, HOSTILE), step=None))
    sections = boundary_sections(tmp_path)
    assert by_key(sections)["boundary-evaluation-solvable"].html.count("&lt;img") >= 3
    for section in sections:
        assert "<img" not in section.html
        assert "<a " not in section.html
        assert "<script" not in section.html
        for figure in section_json(section)["figures"]:
            for text in chain(strings(figure["data"]), strings(figure["layout"])):
                assert "<" not in OURS.sub("", text), text


def test_every_section_is_plain_json(sections):
    for section in sections:
        json.dumps(section_json(section), allow_nan=False)


def test_the_interval_of_a_gain_is_the_same_all_over_the_page(sections, tmp_path):
    whole = measured(tmp_path)
    found = re.findall("95 % interval ([^ ]+ to [^ ,;.]+)", by_key(sections)["boundary-evaluation-pass"].html)
    assert len(found) == 4
    assert all(interval in whole for interval in found)


def test_what_is_not_the_format_is_told_on_problems_that_both_answered(tmp_path):
    base = evaluation("base", [result(4, unanswered=8), result(0, unanswered=16, index=1)], step=0)
    last = evaluation("step_000008", [result(12), result(16, index=1)], step=8)
    sections = by_key(boundary_sections(shelve(tmp_path, "evaluation", base, last)))
    answers, _ = sections["boundary-evaluation-answers"].tables
    assert [row[answers.columns.index("pass@1 of answered")].value for row in answers.rows] == [0.5, 0.75]


# -- the creativity index


def creativity_section(folder, gain=1.0):
    """The section of a run with the index of a base and a checkpoint."""

    def estimate(mean):
        return Estimate(problems=9, mean=mean, low=mean - 0.5, high=mean + 1)

    models = ("base", 0, 2.0, None), ("step_000008", 8, 3.0, estimate(gain))
    found = Creativity(
        corpus="<b>pages",
        corpus_documents=3,
        corpus_words=12_000,
        lengths=Lengths(),
        models=tuple(
            Responses(model=model, step=step, counted=18, short=0, words=40.0, floor=0.25)
            for model, step, *_ in models
        ),
        rows=tuple(
            Row(part="test", domain=domain, model=model, index=estimate(index), gain=change)
            for domain in ("math", "mean")
            for model, _, index, change in models
        ),
    )
    write_creativity(
        shelve(folder, "evaluation", BASE, LAST) / "evals" / "evaluation" / "creativity.json", found
    )
    return by_key(boundary_sections(folder))["boundary-evaluation-creativity"]


def test_the_index_of_every_model_and_its_gain_are_told_with_their_intervals(tmp_path):
    html = section_json(creativity_section(tmp_path))["html"]
    assert "2.00 (1.50 to 3.00)</td>" in html
    assert "3.00 (2.50 to 4.00)</td>" in html
    assert "+1.00 (+0.50 to +2.00)</td>" in html
    assert "0.25</td>" in html  # the index if the corpus held all responses
    assert "corpus: &lt;b&gt;pages, 12,000 words" in html


def test_without_an_index_there_is_no_section_and_a_damaged_one_is_said(tmp_path):
    shelve(tmp_path, "evaluation", BASE, LAST)
    assert "boundary-evaluation-creativity" not in by_key(boundary_sections(tmp_path))
    (tmp_path / "evals" / "evaluation" / "creativity.json").write_text("{")
    damaged = by_key(boundary_sections(tmp_path))["boundary-evaluation-creativity"]
    assert "cannot be read" in damaged.html
