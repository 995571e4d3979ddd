"""What the evaluations of a run say about its reasoning boundary: figures, tables, and sentences about them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from prorl.control.events import LevelRaised
from prorl.envs.files import StorageError
from prorl.envs.registry import TASKS
from prorl.lab import results
from prorl.lab.creativity import INDEX, creativity_tables, read_creativity
from prorl.lab.evals.comparison import differences
from prorl.lab.evals.evaluation_store import BASE, MEASUREMENT, Evaluation, evaluations, readable
from prorl.lab.evals.problems import Part, ProblemResult
from prorl.lab.evals.statistics import Point, curve, majority_rates, powers_up_to, voting
from prorl.lab.report import drawing
from prorl.lab.report.drawing import Drawn, Trace
from prorl.lab.report.page import Section, bullets, paragraph, preformatted
from prorl.lab.report.rollouts import solvable_html
from prorl.lab.results import NAMES, PARTS, Pair
from prorl.lab.tables import Cell, Figure, Number, Table, count, listing, points
from prorl.rollout.pipeline import grouped, unanswered_share
from prorl.run.history import RunHistory
from prorl.run.layout import EVALS

HOW_TO_READ = (
    "The share of problems solved by at least one of k responses; bands are 95 % intervals over problems."
)
ABOUT_INDEX = (
    "The index sums, over lengths of {shortest} to {longest} words, the share of words that lie in no sequence of "
    "that length of the corpus: 0 where all of it is in the corpus. A gain whose interval includes 0 may be chance."
)
PATTERNS = (
    "Guesses are left out. diminish: pass@1 surely up and pass@{k} surely down; plateau: pass@{k} up early and "
    "surely slower after; sustained: still surely up in the second half; gain: surely up; unclear: the intervals "
    "do not decide. {halves} Differences are in percentage points with 95 % intervals over problems."
)
ANSWERED = (
    "A response without an answer fails by its format: the verifier found nothing to judge. What a model gains in "
    "pass@1 of answered, on the problems that both answered, is not the format; of more tries there is no such "
    "number, as a model that answers less often has fewer of them."
)

Curves = Sequence[tuple[Drawn, Sequence[Point]]]
Panels = Mapping[str, Curves]
Draw = Callable[[Sequence[ProblemResult]], Sequence[Point]]
Levels = Mapping[str, Sequence[int]]
"""Task → the levels that the run trains; a task that is not there is not trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One evaluation on a page: its models, the base first and the newest checkpoint last."""

    key: str  # of its sections and figures, which add to it
    suffix: str  # of their titles, where a page has several evaluations
    models: Sequence[Drawn]  # which were all judged on the same problems
    ks: Sequence[int]  # up to the most responses that all models have

    @property
    def parts(self) -> list[Part]:
        """Those parts of `PARTS` in which there are problems."""
        return [part for part in PARTS if self.models[0].evaluation.of(part)]

    def domains(self, part: Part) -> list[str]:
        """The domains of a part's problems."""
        return sorted({problem.domain for problem in self.models[0].evaluation.of(part)})

    @property
    def pair(self) -> Pair | None:
        """The first model and the last one, with what lies between; None where there is one model."""
        base, *others = (model.evaluation for model in self.models)
        if not others:
            return None
        steps = {one.step: one for one in others if one.step is not None}
        middle = results.halfway(steps, base, others[-1])
        return Pair(base=base, trained=others[-1], between=None if middle is None else steps[middle])

    def section(self, key: str, title: str, html: str, **content: Any) -> Section:
        """A section about it."""
        return Section(key=f"{self.key}-{key}", title=f"{title}{self.suffix}", html=html, **content)

    def curves(self, part: Part, draw: Draw | None = None, **about: str) -> Curves:
        """A curve of every model on its problems of a part, all or those of a domain or task; pass@k by default."""
        draw = draw or partial(curve, ks=self.ks)
        return [(model, draw(model.evaluation.of(part, **about))) for model in self.models]

    def figure(
        self, key: str, title: str, note: str, curves: Panels, rate: str = "pass@k", x: Trace | None = None
    ) -> Figure:
        """Curves of a rate (`pass@k`, `maj@k`) by k, unless `x` is another axis, in panels by their names."""
        traces = [
            trace
            for panel, of_models in enumerate(curves.values())
            for model, curve in of_models
            for trace in drawing.curve_traces(model, curve, panel)
        ]
        axes = x or drawing.k_axis(self.ks), drawing.share_axis(rate)
        layout = drawing.panels([drawing.label(name) for name in curves], *axes)
        return Figure(key=f"{self.key}-{key}", title=title, data=tuple(traces), layout=layout, note=note)


def measured(run: RunHistory) -> Section:
    """Whether training worked: the newest checkpoint against the base in the run's largest evaluation."""
    section = Section(key="measured", title="Did it work?")
    unread: list[str] = []
    pairs = results.newest_pairs(run.folder, report=unread.append)
    trouble = bullets(unread, tone="warn")
    pair = max(pairs, key=lambda pair: pair.base.samples, default=None)
    if pair is None:
        missing = f"Not measured against its base yet: `prorl eval {run.folder}` does it."
        return replace(section, html=trouble or paragraph(missing, tone="soft"))
    html, tables = _verdict(pair, ("its base", f"the policy of step {pair.trained.step}"))
    ks = powers_up_to(pair.ks[-1])
    shown = Shown(key="measured", suffix="", models=drawing.drawn([pair.base, pair.trained]), ks=ks)
    figures = [_gain_figure(shown), _pass_figure(shown)] if shown.parts else []
    if tasks := sorted({move.base.task for move in pair.moves("levels")}):
        levels = trained_levels(run)
        figures += [_level_figure(shown, tasks, levels, k) for k in (pair.ks if not figures else (1,))]
    return replace(section, html=trouble + html, tables=tuple(tables), figures=tuple(figures))


def _verdict(pair: Pair, names: tuple[str, str]) -> tuple[str, list[Table]]:
    """What a pair of models gained in every part: sentences, and a table of the domains."""
    html, tables = "", []
    for found in results.gains(pair):
        moved = results.problems_moved(found.moves, pair.ks[-1])
        html += paragraph(results.gain_sentence(found, names), moved)
        tables.append(results.gain_table(found, f"By domain: {NAMES[found.part]} problems"))
    return html, tables


def _gain_figure(shown: Shown) -> Figure:
    """pass@1 of the base and the trained model, a row per domain."""
    x = drawing.share_axis("pass@1")
    y = {"type": "category", "autorange": "reversed"}
    traces: list[Trace] = []
    for panel, part in enumerate(shown.parts):
        for model in shown.models:
            asked = {domain: model.evaluation.of(part, domain=domain) for domain in shown.domains(part)}
            rows = {domain: curve(problems, (1,))[0] for domain, problems in asked.items()}
            traces.append(drawing.dots(model, rows, panel))
    layout = drawing.panels([PARTS[part] for part in shown.parts], x, y)
    layout |= {"meta": {}, "hovermode": "closest"}
    note = "Dots are means over problems, bars 95 % intervals over problems."
    title = "Solved at the first try, before and after"
    return Figure(key=f"{shown.key}-gain", title=title, data=tuple(traces), layout=layout, note=note)


def boundary_sections(run: RunHistory) -> list[Section]:
    """The sections of every evaluation of a run, the one with most responses first; keys are unique within the run.

    The evaluation before and after training is a small one, and left out once another one compares models as well.
    What cannot be read, and a run without any evaluation, is said in a section.
    """
    stored: dict[str, list[Evaluation]] = {}
    trouble: list[str] = []
    for name, paths in evaluations(run.folder):
        if found := [evaluation for evaluation in readable(paths, trouble.append) if evaluation.problems]:
            stored[name] = found
    if any(len(found) > 1 for name, found in stored.items() if name != MEASUREMENT):
        stored.pop(MEASUREMENT, None)
    sections = [
        section
        for name, found in sorted(stored.items(), key=lambda item: -item[1][0].samples)
        for section in _evaluation(name, found, run, f" ({name})" if len(stored) > 1 else "")
    ]
    if trouble:
        html = bullets(trouble, tone="bad")
        sections.append(Section(key="boundary-unread", title="Unread evaluations", html=html))
    if not sections:
        missing = "No evaluation is stored, so nothing can be said of what the model solves now and its base did not."
        html = paragraph(missing, "This command makes one:")
        html += preformatted(f"prorl eval {run.folder} --k 256")
        sections.append(Section(key="boundary", title="Reasoning boundary", html=html))
    return sections


def _evaluation(name: str, found: Sequence[Evaluation], run: RunHistory, suffix: str) -> list[Section]:
    models, ks = drawing.drawn(found), powers_up_to(min(evaluation.samples for evaluation in found))
    shown = Shown(key=f"boundary-{name}", suffix=suffix, models=models, ks=ks)
    return [
        *([_pass_section(shown), *_compared(shown), _answer_section(shown)] if shown.parts else []),
        *_level_section(shown, trained_levels(run)),
        *_creativity_section(shown, run.folder / EVALS / name / INDEX),
    ]


def _pass_section(shown: Shown) -> Section:
    """pass@k of all models: the mean over domains, then a panel per domain, held-out and out of domain apart."""
    figures = [_pass_figure(shown)]
    for part in shown.parts:
        domains = shown.domains(part)
        if len(domains) > 1:
            by_domain = {domain: shown.curves(part, domain=domain) for domain in domains}
            title = f"pass@k, {PARTS[part]} problems per domain"
            figures.append(shown.figure(f"pass-{part}", title, HOW_TO_READ, by_domain))
    html, tables = _verdict(pair, (pair.base.title, pair.trained.title)) if (pair := shown.pair) else ("", [])
    return shown.section("pass", "pass@k", html, tables=tuple(tables), figures=tuple(figures))


def _pass_figure(shown: Shown) -> Figure:
    mean = {PARTS[part]: shown.curves(part) for part in shown.parts}
    return shown.figure("pass", "pass@k, mean over domains", HOW_TO_READ, mean)


# -- the last model against the base, problem by problem


def _compared(shown: Shown) -> list[Section]:
    """New and lost problems, patterns, newly solvable ones; nothing without a base."""
    pair, k = shown.pair, shown.ks[-1]
    if pair is None or pair.base.model != BASE:
        return []
    found = pair.patterns(k)
    tables = [results.boundary_table(pair), results.moved_table(pair)]
    if found and pair.trained.step is not None:  # else nothing that this training did
        halves = "No checkpoint between was evaluated, so nothing says when."
        if pair.between:
            halves = f"The halves are before and after {pair.between.title}."
        notes = (PATTERNS.format(k=k, halves=halves),)
        tables.append(replace(results.pattern_table(found, k), notes=notes))
    moved = paragraph(results.tasks_moved(found, k))
    return [
        shown.section("moved", "New and lost problems", moved, tables=tuple(tables)),
        shown.section("solvable", "Newly solvable", solvable_html(pair.moves(*NAMES))),
    ]


# -- answers


def _answer_section(shown: Shown) -> Section:
    """Format failures apart from wrong answers, majority votes and response lengths."""
    tables = results.answer_tables(shown.pair, shown.ks[-1]) if shown.pair else []
    voters = [model.evaluation.of(*PARTS) for model in shown.models]

    def vote(problems: Sequence[ProblemResult]) -> list[Point]:
        chosen = voting(problems, *voters)
        return curve(chosen, shown.ks, rates_PK=majority_rates(chosen, shown.ks))

    # all models vote on the same
    parts = {one.part for one in voting(*voters)} if shown.ks[-1] > 1 else set()
    found = {PARTS[part]: shown.curves(part, vote) for part in PARTS if part in parts}
    note = "How often the most frequent answer of k responses is right, over problems on which all can vote."
    title = "maj@k, mean over domains"
    figures = (shown.figure("answers-majority", title, note, found, rate="maj@k"),) if found else ()
    seen = {"tables": (*tables, _outcome_table(shown)), "figures": figures}
    return shown.section("answers", "Format, votes, lengths", paragraph(ANSWERED), **seen)


def _outcome_table(shown: Shown) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for part in shown.parts:
        for domain, model in product(shown.domains(part), shown.models):
            problems = model.evaluation.of(part, domain=domain)
            samples = sum(one.samples for one in problems)
            passed = sum(one.solved for one in problems) / samples
            cut = sum(one.truncated for one in problems) / samples
            silent = unanswered_share(problems)
            shares = (passed, max(0.0, 1 - passed - silent), silent, cut)
            cells = (Number(share, results.SHARE) for share in shares)
            length = Number(fmean(one.length for one in problems), ".1f")
            rows.append((domain, NAMES[part], model.evaluation.title, *cells, length))
    columns = ("domain", "part", "model", "passed", "wrong", "no answer", "cut off", "tokens")
    return Table(title="Responses per domain", columns=columns, rows=tuple(rows), folded=True)


# -- difficulty levels


def trained_levels(run: RunHistory) -> Levels:
    """What a run's recipe says of the levels of each task; a task without weights for them trains all its own, and
    one whose levels are adaptive those that have come into play.

    A recipe that cannot be read, which a page says elsewhere, says nothing.
    """
    try:
        found, raised = {}, run.of(LevelRaised)
        for name, asked in run.config["tasks"].items():
            drawn = [int(level) for level, weight in asked["levels"].items() if weight]
            levels = drawn or (TASKS[name](None).levels if name in TASKS else ())
            if adaptive := asked.get("adaptive"):  # a branch may begin above what its parent reached
                top = max([adaptive["start"], *(event.level for event in raised if event.task == name)])
                levels = [level for level in levels if level <= top]
            found[name] = tuple(levels)
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _level_section(shown: Shown, trained: Levels) -> list[Section]:
    """pass@1 and pass@k by level, a panel per task, all models; nothing where no model was asked by level."""
    tasks = sorted({problem.task for problem in shown.models[0].evaluation.of("levels")})
    if not tasks:
        return []
    ends = tuple(dict.fromkeys((1, shown.ks[-1])))
    tables = tuple(results.level_tables(shown.pair, ends)) if shown.pair else ()
    html = paragraph(_beyond(shown, trained, ends), "Shaded are the levels that the run trains.")
    figures = tuple(_level_figure(shown, tasks, trained, k) for k in ends)
    return [shown.section("levels", "Difficulty levels", html, tables=tables, figures=figures)]


def _level_figure(shown: Shown, tasks: Sequence[str], trained: Levels, k: int) -> Figure:
    note = f"pass@{k} by difficulty; bands are 95 % intervals over problems, shaded levels are trained."
    by_task = {task: shown.curves("levels", partial(_by_level, k=k), task=task) for task in tasks}
    x = {"dtick": 1, "title": {"text": "level"}, "unifiedhovertitle": {"text": "level %{x}"}}
    figure = shown.figure(f"levels-{k}", f"Difficulty levels, pass@{k}", note, by_task, rate=f"pass@{k}", x=x)
    grey = drawing.faded(drawing.GREY, 0.14)
    look = {"type": "rect", "layer": "below", "fillcolor": grey, "line": {"width": 0}, "y0": 0, "y1": 1}
    shades = [
        {
            **look,
            "xref": drawing.axis("x", panel),
            "yref": f"{drawing.axis('y', panel)} domain",
            "x0": min(levels) - 0.5,
            "x1": max(levels) + 0.5,
        }
        for panel, task in enumerate(tasks)
        if (levels := trained.get(task))
    ]
    return replace(figure, layout={**figure.layout, "shapes": shades})


def _by_level(problems: Sequence[ProblemResult], k: int) -> list[Point]:
    """The rate at every level, as a curve over levels instead of k's."""
    by_level = sorted(grouped(problems, lambda one: one.level).items())
    return [replace(curve(of_level, (k,))[0], k=level) for level, of_level in by_level]


def _beyond(shown: Shown, trained: Levels, ks: Sequence[int]) -> str:
    """For which tasks pass@k surely rose above the trained levels."""
    pair = shown.pair
    if pair is None:
        return ""
    tops = {task: max(levels, default=math.inf) for task, levels in trained.items()}  # inf: not known
    above = [one for one in pair.moves("levels") if one.base.level > tops.get(one.base.task, -1)]
    by_task = sorted(grouped(above, lambda move: move.base.task).items())
    found = {task: differences(moves, ks) for task, moves in by_task}
    told = []
    for place, k in enumerate(ks):
        up = [f"{task} ({points(of[place].gain)} points)" for task, of in found.items() if of[place].up]
        where = f"pass@{k} surely rose on {len(up) or 'none'} of {count(len(found), 'task')}"
        told.append(f"{where}, {listing(up)}" if up else where)
    against = f"{pair.trained.title} against {pair.base.title}"
    return f"Above the trained levels, {against}: {'; '.join(told)}." if found else ""


# -- creativity


def _creativity_section(shown: Shown, path: Path) -> list[Section]:
    """The creativity index per domain of every model that has one, with intervals; nothing where none has."""
    if not path.exists():
        return []
    try:
        found = read_creativity(path)
    except StorageError as error:
        return [shown.section("creativity", "Creativity", paragraph(str(error), tone="bad"))]
    lengths = found.lengths
    html = paragraph(ABOUT_INDEX.format(shortest=lengths.shortest, longest=lengths.longest))
    return [shown.section("creativity", "Creativity", html, tables=tuple(creativity_tables(found)))]
