"""What an evaluation says of a model and its base, as tables and sentences for pages, terminals and model cards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from prorl.lab.evals.comparison import (
    Comparison,
    Difference,
    Move,
    TaskPattern,
    boundary,
    compare,
    paired,
    patterns,
)
from prorl.lab.evals.creativity import Creativity, Estimate, Responses
from prorl.lab.evals.evaluation_store import BASE, SLIM, Evaluation, evaluations, read_evaluation, step_of
from prorl.lab.evals.statistics import (
    answered_only,
    by_task,
    curve,
    curves,
    majority_rates,
    mean_over_domains,
    voting,
)
from prorl.lab.tables import Cell, Number, Table, count, listing, points
from prorl.rollout.validation import Part, ProblemResult, unanswered_share

PARTS: Mapping[Part, str] = MappingProxyType({"test": "held-out", "ood": "out of domain"})
"""The parts of an evaluation that a page averages over; difficulty levels have figures of their own."""

NAMES: Mapping[Part, str] = MappingProxyType({**PARTS, "levels": "difficulty-level"})

SHARE = ".1%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A model and the base that it is compared with, in one evaluation."""

    evaluation: str
    base: Evaluation
    trained: Evaluation

    @property
    def ks(self) -> tuple[int, ...]:
        """1, and the most responses that both have."""
        return tuple(sorted({1, min(self.base.samples, self.trained.samples)}))

    def moves(self, *parts: Part) -> list[Move]:
        """The problems of these parts that both were judged on."""
        both = (
            [one for one in evaluation.problems if one.part in parts]
            for evaluation in (self.base, self.trained)
        )
        return paired(*both)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """pass@k of a model and its base on the problems of one part."""

    evaluation: str
    part: Part
    step: int | None  # of the model; None for one from elsewhere
    rows: tuple[Comparison, ...]  # one per domain, and last their mean

    @property
    def title(self) -> str:
        """The evaluation and the kind of problems."""
        return f"{self.evaluation}: {NAMES[self.part]} problems"


def newest_pairs(folder: Path, *, up_to: int | None = None) -> list[Pair]:
    """The newest checkpoint, of step `up_to` at most, and the base of every evaluation of a run that has both.

    Answers and responses are not read.

    Raises:
        StorageError: an evaluation cannot be read.
    """
    pairs = []
    for name, files in evaluations(folder):
        steps = [(step, path) for path in files if (step := step_of(path)) is not None]
        trained = [path for step, path in steps if up_to is None or step <= up_to]
        if files[0].stem == BASE and trained:
            base, last = (read_evaluation(path, columns=SLIM) for path in (files[0], trained[-1]))
            pairs.append(Pair(evaluation=name, base=base, trained=last))
    return pairs


def gains(pair: Pair, ks: Sequence[int] = (), *, parts: Iterable[Part] = NAMES) -> list[Gains]:
    """For every part that both were judged on: pass@k for `ks`, or for 1 and the most responses that both have."""
    return [
        Gains(
            evaluation=pair.evaluation,
            part=part,
            step=pair.trained.step,
            rows=tuple(compare(moves, ks or pair.ks)),
        )
        for part in parts
        if (moves := pair.moves(part))
    ]


def model_name(evaluation: Evaluation | Responses) -> str:
    """What people call the model: `base`, `step 320`, or the name of a model from elsewhere."""
    return (
        evaluation.model if evaluation.step is None or evaluation.model == BASE else f"step {evaluation.step}"
    )


# -- tables


def gain_table(found: Gains, title: str, *, folded: bool = False) -> Table:
    """Base → trained, a row per domain; gains are points with 95 % intervals over problems."""
    ks = found.rows[0].base.ks
    return Table(
        title=title,
        columns=("domain", "problems", *(name for k in ks for name in (f"pass@{k}", f"gain in pass@{k}"))),
        rows=tuple(
            (row.label, row.base.problems, *(cell for at in range(len(ks)) for cell in _gain_cells(row, at)))
            for row in found.rows
        ),
        folded=folded,
    )


def _gain_cells(row: Comparison, at: int) -> tuple[Cell, Cell]:
    rates = Number(value=row.trained.rates[at], base=row.base.rates[at], form=SHARE)
    return rates, difference_cell(row.differences[at])


def difference_cell(found: Difference | None) -> Number:
    """A difference of pass rates in points, with its interval."""
    if found is None:
        return Number(value=None)
    return Number(value=found.gain, low=found.low, high=found.high, form="points")


def rate_tables(evaluation: Evaluation, ks: Sequence[int]) -> list[Table]:
    """Pass rates of one model: of every part by task, and the mean over domains."""
    tables = []
    for part, title in PARTS.items():
        problems = [problem for problem in evaluation.problems if problem.part == part]
        rows: list[tuple[Cell, ...]] = []
        for row in curves(problems, ks, by=by_task):
            rows.append((row.label, row.problems, *(Number(value=rate, form=SHARE) for rate in row.rates)))
        if rows:
            columns = ("task", "problems", *(f"pass@{k}" for k in ks))
            tables.append(
                Table(title=f"{model_name(evaluation)}: {title} problems", columns=columns, rows=tuple(rows))
            )
    return tables


def gain_tables(pair: Pair, ks: Sequence[int]) -> list[Table]:
    """`gain_table` of every part."""
    names = f"{model_name(pair.base)} → {model_name(pair.trained)}"
    return [gain_table(one, f"{names}: {PARTS[one.part]} problems") for one in gains(pair, ks, parts=PARTS)]


def evaluation_tables(pair: Pair, between: Evaluation | None, ks: Sequence[int]) -> list[Table]:
    """Everything that an evaluation says about two of its models, and about the way between them."""
    ends = (ks[0], ks[-1]) if len(ks) > 1 else tuple(ks)
    tables = gain_tables(pair, ends)
    for part, title in PARTS.items():
        if moves := pair.moves(part):
            middle = None if between is None else [one for one in between.problems if one.part == part]
            before, after = _sides(moves)
            found = patterns(before, after, between=middle, k=ks[-1])
            tables += [
                _curve_table(pair, moves, ks, f"pass@k, mean over domains: {title} problems"),
                pattern_table(found, ks[-1], f"pattern of each task: {title} problems"),
                moved_table(moves, f"who solves what in {pair.base.samples} tries: {title} problems"),
                answer_table(pair, moves, ks[-1], f"answers: {title} problems"),
            ]
    levels = pair.moves("levels")
    return [*tables, level_table(levels, ends, "difficulty levels")] if levels else tables


def _curve_table(pair: Pair, moves: Sequence[Move], ks: Sequence[int], title: str) -> Table:
    *_, mean = compare(moves, ks)
    rows = zip(mean.base.rates, mean.trained.rates, mean.differences, strict=True)
    return Table(
        title=title,
        columns=("k", "base", "model", "gain", "p"),
        rows=tuple(
            (
                str(found.k),
                Number(value=before, form=SHARE),
                Number(value=after, form=SHARE),
                difference_cell(found),
                Number(value=found.p, form=".2g"),
            )
            for before, after, found in rows
        ),
    )


def pattern_table(found: Sequence[TaskPattern], k: int, title: str = "") -> Table:
    """What training did to each task, with the differences that decided it, in points."""
    halves = any(one.early is not None for one in found)
    parts = len({one.part for one in found}) > 1
    return Table(
        title=title,
        columns=(
            *("task", *(("part",) if parts else ()), "pattern", "problems"),
            *("pass@1", "pass@k" if k == 1 else f"pass@{k}"),
            *(("first half", "second half") if halves else ()),
        ),
        rows=tuple(
            (
                *(one.task, *((NAMES[one.part],) if parts else ()), one.pattern, one.problems),
                *(difference_cell(gain) for gain in (one.at_1, one.at_k)),
                *((difference_cell(one.early), difference_cell(one.late)) if halves else ()),
            )
            for one in found
        ),
    )


def moved_table(moves: Sequence[Move], title: str, *, folded: bool = False) -> Table:
    """Who solves how many problems of each task: both, new, lost, neither; how many chance alone would move."""
    parts = list(dict.fromkeys(move.base.part for move in moves))
    rows: list[tuple[Cell, ...]] = []
    for part in parts:
        members = [move for move in moves if move.base.part == part]
        for task in [*dict.fromkeys(move.base.task for move in members), None]:
            row = boundary("", [move for move in members if task in (None, move.base.task)])
            new, lost = (Number(value=chance, form=".1f") for chance in (row.chance_new, row.chance_lost))
            cells = (row.new, row.sure_new, new, row.lost, row.sure_lost, lost, row.neither)
            name = (task or "all", *((NAMES[part],) if len(parts) > 1 else ()))
            rows.append((*name, row.problems, row.both, *cells))
    names = (f"{of}{what}" for what in ("new", "lost") for of in ("", "surely ", "chance "))
    columns = ("task", *(("part",) if len(parts) > 1 else ()), "problems", "both", *names, "neither")
    return Table(title=title, columns=columns, rows=tuple(rows), folded=folded)


def answer_table(pair: Pair, moves: Sequence[Move], k: int, title: str) -> Table:
    """What is not ability: whether there is an answer at all, how long, and what a vote makes of many."""
    before, after = _sides(moves)
    rows: list[tuple[Cell, ...]] = []
    for evaluation, problems, others in ((pair.base, before, after), (pair.trained, after, before)):
        samples = sum(problem.samples for problem in problems)
        answered, votes = answered_only(problems, others), voting(problems, others)
        shares = (
            unanswered_share(problems),
            sum(problem.truncated for problem in problems) / samples,
            curve("", answered, (1,)).rates[0] if answered else None,
            _majority(votes, k) if votes else None,
        )
        length = sum(problem.length for problem in problems) / len(problems)
        cells = (Number(value=share, form=SHARE) for share in shares)
        rows.append((model_name(evaluation), *cells, Number(value=length, form=".1f")))
    columns = ("model", "no answer", "cut off", "pass@1 of answered", f"maj@{k}", "tokens")
    return Table(title=title, columns=columns, rows=tuple(rows))


def _majority(votes: Sequence[ProblemResult], k: int) -> float:
    (rate,) = mean_over_domains(majority_rates(votes, (k,)), [problem.domain for problem in votes])
    return rate


def level_table(moves: Sequence[Move], ks: Sequence[int], title: str, *, folded: bool = False) -> Table:
    """Pass rates of every task by difficulty level, and the problems that are new and lost there."""
    rows: list[tuple[Cell, ...]] = []
    levels: dict[tuple[str, int], list[Move]] = {}
    for move in moves:
        levels.setdefault((move.base.task, move.base.level), []).append(move)
    for (task, level), members in levels.items():
        old, new = (curve(task, side, ks).rates for side in _sides(members))
        found = boundary(task, members)
        rates = (Number(value=b, base=a, form=".0%") for a, b in zip(old, new, strict=True))
        rows.append((task, level, *rates, found.new, found.lost))
    columns = ("task", "level", *(f"pass@{k}" for k in ks), "new", "lost")
    return Table(title=title, columns=columns, rows=tuple(rows), folded=folded)


def _sides(moves: Sequence[Move]) -> tuple[list[ProblemResult], list[ProblemResult]]:
    return [move.base for move in moves], [move.trained for move in moves]


# -- sentences


def gain_sentence(moves: Sequence[Move], title: str, ks: Sequence[int], names: tuple[str, str]) -> str:
    """pass@1 and pass@k of base and trained model with the gains, and whether these may be chance."""
    mean = compare(moves, ks)[-1]
    told = []
    for at, found in enumerate(mean.differences):
        tries = "at the first try" if found.k == 1 else f"within {found.k} tries"
        doubt = "" if found.up or found.down else ", which may be chance"
        told.append(
            f"{mean.trained.rates[at]:.1%} {tries} and {names[0]} {mean.base.rates[at]:.1%}: {points(found.gain)} "
            f"points, 95 % interval {points(found.low)} to {points(found.high)}{doubt}"
        )
    return f"Of {len(moves)} {title} problems {names[1]} solves {'; '.join(told)}."


def problems_moved(moves: Sequence[Move], k: int) -> str:
    """How many problems became solvable and how many were lost, beside what chance alone would give."""
    row = boundary("", moves)
    return (
        f"Never solved by the base in {k} tries and solved now: {row.new} of {count(row.problems, 'problem')} "
        f"({row.sure_new} surely); lost: {row.lost} ({row.sure_lost} surely). Were both models equally good at each "
        f"problem, chance alone would give about {row.chance_new:.1f} new and {row.chance_lost:.1f} lost."
    )


def tasks_moved(found: Sequence[TaskPattern], k: int) -> str:
    """On which tasks pass@k moved beyond chance, in a sentence per part; as plainly where it did not."""
    parts = [(title, [one for one in found if one.part == part]) for part, title in PARTS.items()]
    return " ".join(_moved(title, chosen, k) for title, chosen in parts if chosen)


def _moved(title: str, chosen: Sequence[TaskPattern], k: int) -> str:
    def names(of: Callable[[Difference], bool]) -> list[str]:
        return [one.task for one in chosen if of(one.at_k)]

    up, down = names(lambda gain: gain.up), names(lambda gain: gain.down)
    tasks = count(len(chosen), f"{title} task")
    rose = f"surely rose on {len(up)} of {tasks}: {listing(up)}" if up else f"surely rose on none of {tasks}"
    fell = f", and surely fell on {len(down)}: {listing(down)}" if down else ""
    return (
        f"The reasoning boundary, pass@{k}, {rose}{fell} (95 % intervals; by chance about {0.025 * len(chosen):.1f} "
        "would seem so either way)."
    )


# -- creativity


def creativity_tables(found: Creativity) -> list[Table]:
    """The creativity index of every model per part and domain, and the gains over the first model."""
    names = {one.model: model_name(one) for one in found.models}
    lengths = f"{found.lengths.shortest} to {found.lengths.longest} words"
    columns = ["domain", *(f"{of} of {name}" for name in names.values() for of in ("index", "gain"))]
    del columns[2]  # the first model's gain over itself
    tables = []
    for part, title in NAMES.items():
        rows = [row for row in found.rows if row.part == part]
        cells: dict[str, list[Cell]] = {}
        for domain in dict.fromkeys(row.domain for row in rows):
            of_model = {row.model: row for row in rows if row.domain == domain}
            for at, name in enumerate(names):
                row = of_model.get(name)
                shown = [_estimate(row.index if row else None, ".2f")]
                shown += [_estimate(row.gain if row else None, "+.2f")] if at else []
                cells.setdefault(domain, []).extend(shown)
        if rows:
            shown_rows = tuple((domain, *several) for domain, several in cells.items())
            name = f"Creativity index ({lengths}): {title} problems"
            tables.append(Table(title=name, columns=tuple(columns), rows=shown_rows))
    models = tuple(
        (
            names[one.model],
            one.counted,
            Number(value=one.words, form=".1f"),
            one.short,
            Number(value=one.floor, form=".2f"),
        )
        for one in found.models
    )
    about = Table(
        title="Responses that were counted",
        columns=("model", "responses", "words each", "too short", "floor"),
        rows=models,
        notes=(
            f"corpus: {found.corpus}, {found.corpus_words:,} words, documents: {found.corpus_documents:,}",
            f"too short: of fewer than {found.lengths.shortest} words; floor: the index if the corpus held them all",
        ),
    )
    return [*tables, about]


def _estimate(estimate: Estimate | None, form: str) -> Number:
    if estimate is None:
        return Number(value=None)
    return Number(value=estimate.mean, low=estimate.low, high=estimate.high, form=form)
