"""What a run's own files tell: what was trained and what happened (first on a page), its references, its recipe."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from prorl.algo.forecast import forecast
from prorl.config.recipe import DEEP, flat
from prorl.config.schema import RunConfig
from prorl.control.events import Validated
from prorl.control.metrics import STEP, text
from prorl.envs.datasets.catalogue import SOURCES
from prorl.envs.registry import TASKS
from prorl.lab.report.curves import Group, groups, t_interval, told_apart
from prorl.lab.report.page import Section, bullets, fold, heading, paragraph, preformatted
from prorl.lab.tables import Cell, Table, count, duration, escape, points
from prorl.run.history import RECENT, RunHistory

MARKS_SHOWN = 40  # the newest of them
TASKS_NAMED = 20
MOST_WASTED = 0.4  # share of the latest responses that hit the limit or hold no answer
SPAN = 20  # steps at either end that are compared
LINEAGE = "Reference lineage"


def summary_section(runs: Sequence[RunHistory]) -> Section:
    """The first part of a page."""
    if len(runs) == 1:
        return Section(key="summary", title="Summary", html=_one(runs[0]))
    seeds = bullets(filter(None, (_seeds(group) for group in groups(runs))))
    colours = "Runs that differ in nothing but the seed are one colour below: mean and 95 % interval."
    found = [count(len([*grave(run), *remarks(run)]), "thing") for run in runs]
    named = zip(told_apart(runs), found, runs, strict=True)
    folds = (fold(f"{name}: {of} worth a look", _one(run)) for name, of, run in named)
    html = seeds + "".join(folds) + paragraph(colours, tone="soft")
    return Section(key="summary", title="Summary", html=html)


def _one(run: RunHistory) -> str:
    marks = [mark.text for mark in reversed(run.marks)]
    counts = Counter(mark.kind for mark in run.marks if mark.kind != "stop")
    happened = ", ".join(count(number, kind) for kind, number in counts.items())
    decided = fold(f"Everything that was decided ({len(marks)})", bullets(marks[:MARKS_SHOWN]))
    cards = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(about)}</small></dd></div>"
        for name, value, about in _facts(run)
    )
    calm = paragraph("Nothing stands out.", tone="good")
    if len(run.steps) < 2 * SPAN:
        calm = paragraph("Too few steps to say.", tone="soft")
    parts = [
        paragraph(_trained(run)),
        f'<dl class="facts">{"".join(cards)}</dl>',
        heading("What happened"),
        paragraph(f"{happened}." if happened else "Plain training: no reset, no intervention, no command."),
        decided if marks else "",
        heading("Worth a look"),
        bullets(grave(run), tone="bad") + bullets(remarks(run), tone="warn") or calm,
    ]
    return "".join(parts)


def _trained(run: RunHistory) -> str:
    model, listed = run.config.get("model") or {}, run.config.get("tasks") or {}
    tasks = trained_tasks(listed)
    more = f" and {len(tasks) - TASKS_NAMED} more" if len(tasks) > TASKS_NAMED else ""
    rollouts, tokens = (run.steps.total(f"rollout_stats.{name}") for name in ("rollouts", "sampled_tokens"))
    what = f"on {count(len(tasks), 'task')} ({', '.join(tasks[:TASKS_NAMED])}{more}) for"
    name = model.get("path") or "A tiny base, warmed up for this run,"
    if not len(run.steps):
        return f"{name} is to be trained {what} {run.planned:,} steps; no step has been made yet."
    return (
        f"{name} was trained {what} {_progress(run)} steps: {rollouts:,.0f} rollouts with {tokens:,.0f} sampled "
        f"tokens in {duration(run.steps.total('seconds.total'))} of training."
    )


def trained_tasks(listed: Mapping[str, Any]) -> list[str]:
    """The names of those tasks of a recipe that it trains on."""
    return [str(name) for name, settings in listed.items() if _is_trained(str(name), settings or {})]


def _is_trained(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether a task of a recipe has problems for training, as far as can be told without data and own code."""
    if settings.get("weight") == 0:
        return False
    if settings.get("use") or settings.get("kind") or settings.get("grade"):  # the user's own
        return True
    if name in TASKS:
        return bool(TASKS[name](None).levels)
    return name not in SOURCES or SOURCES[name].use == "train"


def _facts(run: RunHistory) -> Iterator[tuple[str, str, str]]:
    """Numbers that are seen first: what it is, the number, a remark below it."""
    yield "Steps", _progress(run), run.health
    if scores := _validation(run):
        (first_step, first), (last_step, last) = scores[0], scores[-1]
        best = f"; best {run.best.score:.1%} at {run.best.step}" if run.best else ""
        about = f"step {first_step} → {last_step}{best}"
        yield "Validation pass@1", f"{first:.1%} → {last:.1%}", about
    if heading_for := forecast(tuple(scores)):
        about = f"limit of a saturating curve over the steps, {heading_for.low:.0%} to {heading_for.high:.0%}"
        yield "Validation heads for", f"{heading_for.value:.0%}", about
    for metric in STEP:
        if "table" in metric.shown and len(run.steps):
            recent = run.steps.recent(metric.key)
            about = f"{metric.unit or 'mean'}, last {RECENT} steps"
            yield metric.title, text(metric, fmean(recent) if recent else None), about


def _seeds(group: Group) -> str:
    """The gain in the validation over seeds, and that it may be chance where the interval includes zero."""
    scores = [dict(found) for run in group.runs if (found := _validation(run))]
    common = sorted(set.intersection(*map(set, scores))) if scores else []
    if len(scores) < 2 or len(common) < 2:
        return ""
    gains = [of[common[-1]] - of[common[0]] for of in scores]
    low, high = t_interval(gains)
    doubt = "; the interval includes zero, so this may be chance" if low <= 0 <= high else ""
    return (
        f"{group.label}: the validation gained {points(fmean(gains))} points from step {common[0]} to {common[-1]}, "
        f"95 % interval over {len(gains)} seeds {points(low)} to {points(high)}{doubt}."
    )


def _validation(run: RunHistory) -> list[tuple[int, float]]:
    return [(one.step, one.score) for one in run.of(Validated) if math.isfinite(one.score)]


def _progress(run: RunHistory) -> str:
    return f"{run.step:,} of {run.planned:,}" if run.planned else f"{run.step:,}"


# -- findings: rules of thumb for people; nothing acts on them


def grave(run: RunHistory) -> Iterator[str]:
    """What spoils a run, as sentences with the numbers."""
    yield from run.notes
    names = ("update.skipped", "rollout_stats.errors", "rollout_stats.draws")
    skipped, errors, draws = map(run.steps.total, names)
    if skipped:
        yield f"{count(int(skipped), 'update')} skipped, because loss or gradient was not finite."
    if draws and errors / draws > 0.01:
        yield f"{errors / draws:.1%} of all drawn groups were lost to verifier errors: see the verifiers' notes."
    if back := [mark.text for mark in run.marks if mark.kind == "roll back"]:
        yield f"The run was rolled back {count(len(back), 'time')}; the last time: {back[-1]}."
    yield from (text for share, text in _wasted(run) if share > MOST_WASTED)


def remarks(run: RunHistory) -> Iterator[str]:
    """What else deserves a look; none of it is good news."""
    if len(run.steps) >= 2 * SPAN:  # from then on a comparison of the ends says something
        yield from _drifts(run)
    yield from (text for share, text in _wasted(run) if share <= MOST_WASTED)
    yield from cut_otherwise(run)
    accepted, drawn = (_ends(run, f"rollout_stats.{name}")[1] for name in ("accepted", "draws"))
    if drawn and accepted / drawn < 0.2:
        informative = f"Only {accepted / drawn:.0%} of the problems drawn lately are informative"
        yield f"{informative}: the others are too easy or too hard for this policy."
    for name in run.validations.below("domains"):
        scores = [score for score in run.validations.get(f"domains.{name}") if math.isfinite(score)]
        if len(scores) > 2 and max(scores[1:]) <= scores[0]:
            yield f"No validation in {name} was better than the first one ({scores[0]:.1%})."


def _wasted(run: RunHistory) -> Iterator[tuple[float, str]]:
    truncated, unanswered = (_ends(run, f"rollout_stats.{name}")[1] for name in ("truncated", "unanswered"))
    if truncated > 0.1:
        yield truncated, f"{truncated:.0%} of the latest responses hit the length limit."
    if unanswered > 0.2:
        told = f"{unanswered:.0%} of the latest responses hold no answer in the form asked for: a format problem?"
        yield unanswered, told


def _drifts(run: RunHistory) -> Iterator[str]:
    before, after = _ends(run, "update.entropy")
    if after < 0.5 * before:
        yield f"Entropy fell from {before:.3f} to {after:.3f} nats per token: does the policy still explore?"
    before, after = _ends(run, "rollout_stats.length")
    if after > 2 * before or after < before / 2:
        yield f"Responses went from {before:.0f} to {after:.0f} tokens in the mean: read some."
    before, after = _ends(run, "seconds.total")
    if after > 1.5 * before:
        yield f"A step takes {after:.3g} s now and took {before:.3g} s at first."


def _ends(run: RunHistory, name: str) -> tuple[float, float]:
    finite = [value for value in run.steps.get(name) if math.isfinite(value)]
    return (fmean(finite[:SPAN]), fmean(finite[-SPAN:])) if finite else (math.nan, math.nan)


def cut_otherwise(run: RunHistory) -> list[str]:
    """Where validations began to be cut off at another length: no difference across such a place is the policy's."""
    return [
        f"Validations up to step {before.step} are cut off at {before.response_limit:,} tokens and those from step "
        f"{after.step} on at {after.response_limit:,}, as sampling.response_limit was changed between: they are not "
        "comparable."
        for before, after in pairwise(run.of(Validated))
        if before.response_limit and after.response_limit and before.response_limit != after.response_limit
    ]


# -- references


def lineage_section(run: RunHistory) -> Section:
    """Every reference the run ever held: born when, why, of which policy; and the runs this one branched from."""
    born, parents = run.references, run.branches
    origin = f"This run is a branch of {', itself of '.join(reversed(parents))}." if parents else ""
    if not born:
        text = paragraph(f"No reference was ever held: the run pays no KL penalty. {origin}")
        unbegun = paragraph("The run has not begun.", tone="soft")
        return Section(key="lineage", title=LINEAGE, html=text if run.events else unbegun)
    times = {1: "never reset", 2: "reset once", 3: "reset twice"}
    text = paragraph(
        f"The reference was {times.get(len(born), f'reset {len(born) - 1} times')}; {born[-1].name} of step "
        f"{born[-1].step} is in use. A reset takes the policy of a step as the new reference, so that the KL penalty "
        f"no longer pulls back to an older one. {origin}"
    )
    last = ("hash", "on disk", "born at step", "policy of step")
    rows: list[tuple[Cell, ...]] = []
    for one in born:
        told = (one.name, one.reason.replace("_", " "), one.parent or "the base", one.optimizer)
        rows.append((*told, one.hash[:12], run.condition(one), one.step, one.source_step))
    table = Table(title="", columns=("reference", "reason", "parent", "optimizer", *last), rows=tuple(rows))
    return Section(key="lineage", title=LINEAGE, html=text, tables=(table,))


# -- the recipe


def recipe_section(runs: Sequence[RunHistory]) -> Section:
    """Every run's recipe: what differs from the defaults, and all of it."""
    whole, tables, single = "", [], len(runs) == 1
    for name, run in zip(told_apart(runs), runs, strict=True):
        if not run.config:
            whole += paragraph(f"The recipe of {name} cannot be read.", tone="warn")
            continue
        title = "What differs from the defaults" if single else name
        about = "The whole recipe" if single else f"{name}: the whole recipe"
        rows, columns = tuple(changes(run.config)), ("setting", "here", "default")
        tables.append(Table(title=title, columns=columns, rows=rows, folded=not single))
        whole += fold(about, preformatted(json.dumps(run.config, indent=2, ensure_ascii=False)))
    return Section(key="recipe", title="Recipe", html=whole, tables=tuple(tables))


def changes(config: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Dotted key, value and default of every setting that is not at its default; no default reads as empty."""
    # Built without the fields that every recipe must say: these have no default.
    defaults = RunConfig.model_construct().model_dump(mode="json")  # type: ignore[call-arg]
    found = []
    for section, settings in config.items():
        depth = DEEP if section in defaults else 1
        default = dict(flat({section: defaults[section]})) if section in defaults else {}
        for key, value in flat({section: settings}, depth):
            if value != default.get(key):
                found.append((key, as_text(value), as_text(default[key]) if key in default else ""))
    return found


def as_text(value: Any) -> str:
    """A setting as it is shown."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
