"""What the evaluations of a run say about its reasoning boundary: figures, tables, and sentences about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from prorl.envs.files import StorageError, decode_json
from prorl.envs.registry import TASKS, make_task
from prorl.lab.evals.comparison import Difference, differences, paired, patterns
from prorl.lab.evals.evaluation_store import MEASUREMENT, Evaluation, evaluations, read_evaluation
from prorl.lab.evals.statistics import (
    Curve,
    answered_only,
    by_domain,
    by_level,
    by_task,
    curve,
    grouped,
    majority_rates,
    powers_up_to,
    voting,
)
from prorl.lab.report.drawing import (
    GREY,
    PALETTE,
    Drawn,
    Trace,
    axis,
    bar,
    curves_figure,
    drawn,
    faded,
    k_axis,
    label,
    panels,
    share_axis,
)
from prorl.lab.report.moved import creativity_section, moved_section, pattern_section
from prorl.lab.report.page import Section, bullets, paragraph, preformatted
from prorl.lab.report.rollouts import solvable_section
from prorl.lab.results import PARTS, Pair, answer_table, gain_sentence, level_table
from prorl.lab.tables import Figure, Table, count, listing, percent, points
from prorl.rollout.validation import Part, ProblemResult, unanswered_share
from prorl.run.layout import CONFIG, EVALS

CREATIVITY = "creativity.json"  # beside the models of an evaluation
HOW_TO_READ = (
    "The share of problems solved by at least one of k responses; bands are 95 % intervals over problems."
)
OUTCOMES = (
    ("passed", PALETTE[2]),
    ("wrong answer", faded(PALETTE[1], 0.5)),
    ("no answer", faded(GREY, 0.55)),
)
FRAME_PIXELS, ROW_PIXELS = 130, 24

Levels = Mapping[str, Sequence[int]]
"""Task → the levels that the run trains; a task that is not there is not trained."""


def boundary_sections(folder: Path) -> list[Section]:
    """The sections of every evaluation of a run, the one with most responses first; keys are unique within the run.

    The evaluation before and after training is a small one, and left out once another one compares models as well.
    What cannot be read, and a run without any evaluation, is said in a section.
    """
    stored, trouble = _read(folder)
    compared = any(len(found) > 1 for name, found in stored.items() if name != MEASUREMENT)
    shown = [name for name in stored if name != MEASUREMENT or not compared]
    shown.sort(key=lambda name: -stored[name][0].samples)
    sections = [
        section
        for name in shown
        for section in _evaluation(name, stored[name], folder, f" ({name})" if len(shown) > 1 else "")
    ]
    if trouble:
        html = bullets(trouble, tone="bad")
        sections.append(Section(key="boundary-unread", title="Unread evaluations", html=html))
    return sections or [_absent(folder)]


def _read(folder: Path) -> tuple[dict[str, list[Evaluation]], list[str]]:
    """The models of every evaluation that holds problems, and what is wrong with those that cannot be read."""
    stored: dict[str, list[Evaluation]] = {}
    trouble: list[str] = []
    for name, paths in evaluations(folder):
        try:
            found = [evaluation for evaluation in map(read_evaluation, paths) if evaluation.problems]
        except StorageError as error:
            trouble.append(str(error))
            continue
        if found:
            stored[name] = found
    return stored, trouble


def _absent(folder: Path) -> Section:
    html = paragraph(
        "No evaluation is stored, so nothing can be said of what the model solves now that its base could not. "
        "This command makes one:"
    ) + preformatted(f"prorl eval {folder} --k 256")
    return Section(key="boundary", title="Reasoning boundary", html=html)


def _evaluation(name: str, found: Sequence[Evaluation], run: Path, suffix: str) -> list[Section]:
    key, models = f"boundary-{name}", drawn(found)
    ks = powers_up_to(min(model.evaluation.samples for model in models))
    asked = [model for model in models if model.of(*PARTS)]
    sections: list[Section | None] = []
    if asked:
        sections.append(_pass_section(asked, ks, f"{key}-pass", f"pass@k{suffix}"))
        sections += _compared(asked, ks[-1], key, suffix)
        sections.append(_answer_section(asked, ks, f"{key}-answers", f"Format, votes, lengths{suffix}"))
    sections.append(_level_section(models, run, ks[-1], f"{key}-levels", f"Difficulty levels{suffix}"))
    path = run / EVALS / name / CREATIVITY
    sections.append(creativity_section(path, models, f"{key}-creativity", f"Creativity{suffix}"))
    return [section for section in sections if section]


def _compared(models: Sequence[Drawn], k: int, key: str, suffix: str) -> list[Section]:
    """The last model against the base, problem by problem; nothing without a base or a problem that both have."""
    base, trained = models[0], models[-1]
    before, after = base.of(*PARTS), trained.of(*PARTS)
    if not base.is_base or trained is base or not paired(before, after):
        return []
    last = trained.evaluation.step or 0
    steps = {model.evaluation.step: model for model in models[1:-1] if model.evaluation.step is not None}
    between = steps[min(steps, key=lambda step: abs(step - last / 2))] if steps else None
    found = patterns(before, after, between=between.of(*PARTS) if between else None, k=k)
    name = between.name if between else None
    pattern = pattern_section(found, name, k, f"{key}-patterns", f"Patterns{suffix}")
    return [
        moved_section(models, found, k, f"{key}-moved", f"New and lost problems{suffix}"),
        # A model from elsewhere is not what this training made of the base.
        *([] if trained.evaluation.step is None else [pattern]),
        solvable_section(base.evaluation, trained.evaluation, f"{key}-solvable", f"Newly solvable{suffix}"),
    ]


def _pair(models: Sequence[Drawn]) -> Pair:
    return Pair(evaluation="", base=models[0].evaluation, trained=models[-1].evaluation)


# -- pass@k


def _pass_section(models: Sequence[Drawn], ks: Sequence[int], key: str, title: str) -> Section:
    """pass@k of all models: the mean over domains, then a panel per domain, held-out and out of domain apart."""
    parts = [part for part in PARTS if models[0].of(part)]
    base, trained = models[0], models[-1]
    html = "".join(
        paragraph(gain_sentence(moves, PARTS[part], (1, ks[-1]), (base.name, trained.name)))
        for part in parts
        if trained is not base and (moves := _pair(models).moves(part))
    )
    figures = [
        curves_figure(
            *(key, "pass@k, mean over domains", HOW_TO_READ, models),
            {PARTS[part]: partial(_curve_of, part=part, ks=ks) for part in parts},
            *(k_axis(ks), share_axis("pass@k")),
        )
    ]
    for part in parts:
        domains = sorted(grouped(models[0].of(part), by_domain))
        if len(domains) > 1:
            drawn_by = {domain: partial(_curve_of, part=part, ks=ks, domain=domain) for domain in domains}
            name = f"pass@k per domain, {PARTS[part]}"
            figures.append(
                curves_figure(
                    *(f"{key}-{part}", name, HOW_TO_READ, models),
                    *(drawn_by, k_axis(ks), share_axis("pass@k")),
                )
            )
    return Section(key=key, title=title, html=html, figures=tuple(figures))


def _curve_of(model: Drawn, *, part: Part, ks: Sequence[int], domain: str | None = None) -> Curve | None:
    problems = [one for one in model.of(part) if domain in (None, one.domain)]
    return curve("", problems, ks) if problems else None


# -- answers


def _answer_section(models: Sequence[Drawn], ks: Sequence[int], key: str, title: str) -> Section:
    """Format failures apart from wrong answers, majority votes and response lengths.

    A base that does not know the format fails for another reason than one that does not know the answer.
    """
    base, trained = models[0], models[-1]
    pair = [base] if base is trained else [base, trained]
    tables: list[Table] = []
    if base is not trained:
        for part in PARTS:
            if moves := _pair(models).moves(part):
                title_of = f"Answers: {PARTS[part]} problems"
                tables.append(answer_table(_pair(models), moves, ks[-1], title_of))
    figures = (_outcomes(pair, f"{key}-outcomes"), _majority_figure(pair, ks, f"{key}-majority"))
    return Section(
        key=key,
        title=title,
        html=paragraph(*map(_formed, pair), _format_free(base, trained)),
        tables=tuple(tables),
        figures=(*(figure for figure in figures if figure), _lengths(models, f"{key}-length")),
    )


def _formed(model: Drawn) -> str:
    problems = model.of(*PARTS)
    truncated = sum(problem.truncated for problem in problems) / sum(problem.samples for problem in problems)
    return (
        f"Of the responses of {model.name} {percent(unanswered_share(problems))} hold no answer and "
        f"{percent(truncated)} were cut off at the length limit."
    )


def _format_free(base: Drawn, trained: Drawn) -> str:
    """pass@1 without the responses that hold no answer, on problems that both models answered at all.

    Of pass@k there is no such number: a model that answers less often has fewer of the k tries.
    """
    before, after = base.of(*PARTS), trained.of(*PARTS)
    first, last = answered_only(before, after), answered_only(after, before)
    if base is trained or not first:
        return ""
    rates = [curve("", problems, (1,)).at(1) for problems in (first, last)]
    return (
        f"Among responses that do hold one, pass@1 went from {percent(rates[0])} to {percent(rates[1])} on the "
        f"{count(len(first), 'problem')} that both answered: this part of the gain is not the format."
    )


def _outcomes(models: Sequence[Drawn], key: str) -> Figure:
    """A bar per domain and model, of all its responses."""
    parts = [part for part in PARTS if models[0].of(part)]
    traces: list[Trace] = []
    for panel, part in enumerate(parts):
        bars = [
            (label(domain), model.label, problems)
            for domain in sorted(grouped(models[0].of(part), by_domain))
            for model in models
            if (problems := [problem for problem in model.of(part) if problem.domain == domain])
        ]
        y = [[domain for domain, _, _ in bars], [model for _, model, _ in bars]]
        for place, (name, color) in enumerate(OUTCOMES):
            x = [_shares(problems)[place] for _, _, problems in bars]
            traces.append(bar(name, color, panel, orientation="h", x=x, y=y, hovertemplate="%{x:.1%}"))
    layout = panels(
        [PARTS[part] for part in parts],
        {"tickformat": ".0%", "range": [0, 1], "title": {"text": "responses"}},
        {"type": "multicategory", "autorange": "reversed", "showgrid": False, "showdividers": False},
        columns=2,
        own_y=True,  # a part may lack a domain
    )
    rows = len(models) * len(grouped(models[0].of(*PARTS), by_domain))
    layout |= {"barmode": "stack", "bargap": 0.25, "hovermode": "y unified"}
    layout |= {"height": FRAME_PIXELS + ROW_PIXELS * rows}
    layout["grid"]["xgap"] = 0.3
    note = "A response without an answer fails by its format: the verifier found nothing to judge."
    title = "Passed, wrong, without an answer"
    return Figure(key=key, title=title, data=tuple(traces), layout=layout, note=note)


def _shares(problems: Sequence[ProblemResult]) -> tuple[float, float, float]:
    """Of all responses: passed, answered wrongly, without an answer."""
    samples = sum(problem.samples for problem in problems)
    passed = sum(problem.solved for problem in problems) / samples
    silent = unanswered_share(problems)
    return passed, max(0.0, 1 - passed - silent), silent


def _majority_figure(models: Sequence[Drawn], ks: Sequence[int], key: str) -> Figure | None:
    """maj@k, mean over domains; None where no problem can be voted on."""
    everybody = [model.of(*PARTS) for model in models]

    def voted(model: Drawn, part: Part) -> Curve | None:
        problems = voting(model.of(part), *everybody)
        return curve("", problems, ks, rates_PK=majority_rates(problems, ks)) if problems else None

    parts = [part for part in PARTS if voting(models[0].of(part), *everybody)]
    if not parts:
        return None
    note = "How often the most frequent answer of k responses is right, over problems on which all can vote."
    return curves_figure(
        *(key, "maj@k, mean over domains", note, models),
        {PARTS[part]: partial(voted, part=part) for part in parts},
        *(k_axis(ks), share_axis("maj@k")),
    )


def _lengths(models: Sequence[Drawn], key: str) -> Figure:
    parts = [part for part in PARTS if models[0].of(part)]
    traces: list[Trace] = []
    for panel, part in enumerate(parts):
        for model in models:
            domains = sorted(grouped(model.of(part), by_domain).items())
            x = [label(domain) for domain, _ in domains]
            y = [fmean(problem.length for problem in problems) for _, problems in domains]
            traces.append(bar(model.label, model.color, panel, x=x, y=y, hovertemplate="%{y:.1f}"))
    tokens = {"rangemode": "tozero", "title": {"text": "tokens"}}
    layout = panels([PARTS[part] for part in parts], {"type": "category"}, tokens, columns=2) | {
        "bargap": 0.3
    }
    return Figure(key=key, title="Mean response length", data=tuple(traces), layout=layout)


# -- difficulty levels


def _level_section(models: Sequence[Drawn], run: Path, k: int, key: str, title: str) -> Section | None:
    """pass@1 and pass@k by level, a panel per task, all models; None where none was asked by level."""
    tasks = sorted(grouped(models[0].of("levels"), by_task))
    if not tasks:
        return None
    trained, moves = trained_levels(run), _pair(models).moves("levels")
    ends = (1, k) if k > 1 else (1,)
    compared = models[0] is not models[-1] and moves
    return Section(
        key=key,
        title=title,
        html=paragraph(
            _beyond(models[0], models[-1], tasks, trained, (1, k)),
            "Shaded are the levels that the run trains.",
        ),
        tables=(level_table(moves, ends, "Numbers per level", folded=True),) if compared else (),
        figures=tuple(_level_figure(models, tasks, trained, size, f"{key}-{size}") for size in (1, k)),
    )


def trained_levels(folder: Path) -> Levels:
    """What a run's recipe says of the levels of each task; a task without weights for them trains all its own.

    A recipe that cannot be read, which a page says elsewhere, says nothing.
    """
    try:
        config: Mapping[str, Any] = decode_json((folder / CONFIG).read_bytes())
        return {
            name: tuple(map(int, asked["levels"])) or (make_task(name).levels if name in TASKS else ())
            for name, asked in config["tasks"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _level_figure(models: Sequence[Drawn], tasks: Sequence[str], trained: Levels, k: int, key: str) -> Figure:
    def by_task_of(model: Drawn, task: str) -> Curve | None:
        problems = [one for one in model.of("levels") if one.task == task]
        return _by_level(problems, k) if problems else None

    figure = curves_figure(
        *(key, f"Difficulty levels, pass@{k}"),
        f"pass@{k} by difficulty; bands are 95 % intervals over problems, shaded levels are trained.",
        models,
        {task: partial(by_task_of, task=task) for task in tasks},
        {"dtick": 1, "title": {"text": "level"}, "unifiedhovertitle": {"text": "level %{x}"}},
        share_axis(f"pass@{k}"),
    )
    shades = [
        {
            "type": "rect",
            "layer": "below",
            "xref": axis("x", panel),
            "yref": f"{axis('y', panel)} domain",
            "x0": min(levels) - 0.5,
            "x1": max(levels) + 0.5,
            "y0": 0,
            "y1": 1,
            "fillcolor": faded(GREY, 0.14),
            "line": {"width": 0},
        }
        for panel, task in enumerate(tasks)
        if (levels := trained.get(task))
    ]
    return replace(figure, layout={**figure.layout, "shapes": shades})


def _by_level(problems: Sequence[ProblemResult], k: int) -> Curve:
    """The rate at every level, as a curve over levels instead of k's."""
    levels = sorted(grouped(problems, by_level).items())
    rates = [curve("", members, (k,)) for _, members in levels]
    return Curve(
        label="",
        problems=len(problems),
        ks=tuple(level for level, _ in levels),
        rates=tuple(rate.rates[0] for rate in rates),
        low=tuple(rate.low[0] for rate in rates),
        high=tuple(rate.high[0] for rate in rates),
    )


def _beyond(base: Drawn, last: Drawn, tasks: Sequence[str], trained: Levels, ks: Sequence[int]) -> str:
    """For which tasks pass@k surely rose above the trained levels."""
    found: dict[str, tuple[Difference, ...]] = {}
    moves = paired(base.of("levels"), last.of("levels"))
    for task in tasks:
        highest = max(trained.get(task, ()), default=-1)
        above = [move for move in moves if move.base.task == task and move.base.level > highest]
        if above:
            found[task] = differences(above, ks)
    if base is last or not found:
        return ""
    told = []
    for place, k in enumerate(ks):
        up = [
            f"{task} ({points(gains[place].gain)} points)" for task, gains in found.items() if gains[place].up
        ]
        where = f"pass@{k} surely rose on {len(up) or 'none'} of {count(len(found), 'task')}"
        told.append(f"{where}, {listing(up)}" if up else where)
    return f"Above the trained levels, {last.name} against {base.name}: {'; '.join(told)}."
