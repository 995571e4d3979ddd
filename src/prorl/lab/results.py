"""What an evaluation says of a model and its base, as tables and sentences for pages, terminals and model cards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    sides,
)
from prorl.lab.evals.creativity import Creativity, Estimate, Responses
from prorl.lab.evals.evaluation_store import BASE, Evaluation, Subject, evaluations, read_evaluation, step_of
from prorl.lab.evals.problems import Part, ProblemResult
from prorl.lab.evals.statistics import (
    MEAN,
    answered_only,
    grouped,
    majority_rates,
    mean_over_domains,
    mean_rates,
    voting,
)
from prorl.lab.tables import Cell, Number, Table, count, listing, points
from prorl.rollout.validation import unanswered_share

PARTS: Mapping[Part, str] = MappingProxyType({"test": "held-out", "ood": "out of domain"})
"""The parts of an evaluation that a page averages over; difficulty levels have figures of their own."""

NAMES: Mapping[Part, str] = MappingProxyType({**PARTS, "levels": "difficulty-level"})

SHARE = ".1%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A model and the base that it is compared with, in one evaluation."""

    base: Evaluation
    trained: Evaluation
    evaluation: str = ""  # its name

    @property
    def ks(self) -> tuple[int, ...]:
        """1, and the most responses that both have."""
        return tuple(sorted({1, min(self.base.samples, self.trained.samples)}))

    def moves(self, *parts: Part) -> list[Move]:
        """The problems of these parts that both were judged on."""
        base, trained = (
            [one for one in evaluation.problems if one.part in parts]
            for evaluation in (self.base, self.trained)
        )
        return paired(base, trained)


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
    """
    pairs = []
    for name, files in evaluations(folder):
        steps = [(step, path) for path in files if (step := step_of(path)) is not None]
        trained = [path for step, path in steps if up_to is None or step <= up_to]
        if files[0].stem == BASE and trained:
            base, last = (read_evaluation(path, texts=False) for path in (files[0], trained[-1]))
            pairs.append(Pair(evaluation=name, base=base, trained=last))
    return pairs


def gains(pair: Pair, ks: Sequence[int] = (), *, parts: Iterable[Part] = NAMES) -> list[Gains]:
    """For every part that both were judged on: pass@k for `ks`, or for 1 and the most responses that both have."""
    return [
        Gains(evaluation=pair.evaluation, part=part, step=pair.trained.step, rows=tuple(rows))
        for part in parts
        if (rows := compare(pair.moves(part), ks or pair.ks))
    ]


def model_name(model: Subject | Responses) -> str:
    """What people call the model: `base`, `step 320`, or the name of a model from elsewhere."""
    return model.model if model.step is None or model.model == BASE else f"step {model.step}"


# -- tables


def gain_table(found: Gains, title: str) -> Table:
    """Base → trained, a row per domain; gains are points with 95 % intervals over problems."""
    ks = [of_k.k for of_k in found.rows[0].differences]
    columns = ("domain", "problems", *(name for k in ks for name in (f"pass@{k}", f"gain in pass@{k}")))
    rows: list[tuple[Cell, ...]] = []
    for row in found.rows:
        cells = (cell for of_k in row.differences for cell in (_rate_cell(of_k), difference_cell(of_k)))
        rows.append((row.label, row.problems, *cells))
    return Table(title=title, columns=columns, rows=tuple(rows))


def _rate_cell(found: Difference) -> Number:
    return Number(value=found.trained, base=found.base, form=SHARE)


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
        if not problems:
            continue
        rows: list[tuple[Cell, ...]] = []
        for label, members in [*grouped(problems, lambda one: one.task).items(), (MEAN, problems)]:
            cells = (Number(value=rate, form=SHARE) for rate in mean_rates(members, ks))
            rows.append((label, len(members), *cells))
        columns = ("task", "problems", *(f"pass@{k}" for k in ks))
        name = f"{model_name(evaluation)}: {title} problems"
        tables.append(Table(title=name, columns=columns, rows=tuple(rows)))
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
            before, after = sides(moves)
            found = patterns(before, after, between=middle, k=ks[-1])
            tables += [
                _curve_table(moves, ks, f"pass@k, mean over domains: {title} problems"),
                pattern_table(found, ks[-1], f"pattern of each task: {title} problems"),
                moved_table(moves, f"who solves what in {pair.base.samples} tries: {title} problems"),
                answer_table(pair, moves, ks[-1], f"answers: {title} problems"),
            ]
    levels = pair.moves("levels")
    return [*tables, level_table(levels, ends, "difficulty levels")] if levels else tables


def _curve_table(moves: Sequence[Move], ks: Sequence[int], title: str) -> Table:
    rows = tuple(
        (
            *(str(of_k.k), Number(value=of_k.base, form=SHARE), Number(value=of_k.trained, form=SHARE)),
            *(difference_cell(of_k), Number(value=of_k.p, form=".2g")),
        )
        for of_k in compare(moves, ks)[-1].differences
    )
    return Table(title=title, columns=("k", "base", "model", "gain", "p"), rows=rows)


def pattern_table(found: Sequence[TaskPattern], k: int, title: str = "") -> Table:
    """What training did to each task, with the differences that decided it, in points."""
    halves = any(one.early is not None for one in found)
    parts = len({one.part for one in found}) > 1
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        name = (one.task, *((NAMES[one.part],) if parts else ()))
        shown = (one.at_1, one.at_k, *((one.early, one.late) if halves else ()))
        rows.append((*name, one.pattern, one.problems, *map(difference_cell, shown)))
    columns = ("task", *(("part",) if parts else ()), "pattern", "problems", "pass@1")
    columns += ("pass@k" if k == 1 else f"pass@{k}", *(("first half", "second half") if halves else ()))
    return Table(title=title, columns=columns, rows=tuple(rows))


def moved_table(moves: Sequence[Move], title: str, *, folded: bool = False) -> Table:
    """Who solves how many problems of each task: both, new, lost, neither; how many chance alone would move."""
    parts = list(dict.fromkeys(move.base.part for move in moves))
    rows: list[tuple[Cell, ...]] = []
    for part in parts:
        members = [move for move in moves if move.base.part == part]
        for task in [*dict.fromkeys(move.base.task for move in members), None]:
            row = boundary([move for move in members if task in (None, move.base.task)])
            new, lost = (Number(value=chance, form=".1f") for chance in (row.chance_new, row.chance_lost))
            cells = (row.new, row.sure_new, new, row.lost, row.sure_lost, lost, row.neither)
            name = (task or "all", *((NAMES[part],) if len(parts) > 1 else ()))
            rows.append((*name, row.problems, row.both, *cells))
    names = (f"{of}{what}" for what in ("new", "lost") for of in ("", "surely ", "chance "))
    columns = ("task", *(("part",) if len(parts) > 1 else ()), "problems", "both", *names, "neither")
    return Table(title=title, columns=columns, rows=tuple(rows), folded=folded)


def answer_table(pair: Pair, moves: Sequence[Move], k: int, title: str) -> Table:
    """What is not ability: whether there is an answer at all, how long, and what a vote makes of many."""
    before, after = sides(moves)
    rows: list[tuple[Cell, ...]] = []
    for evaluation, problems, others in ((pair.base, before, after), (pair.trained, after, before)):
        samples = sum(problem.samples for problem in problems)
        answered, votes = answered_only(problems, others), voting(problems, others)
        shares = (
            unanswered_share(problems),
            sum(problem.truncated for problem in problems) / samples,
            mean_rates(answered, (1,))[0] if answered else None,
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
    for (task, level), members in grouped(moves, lambda move: (move.base.task, move.base.level)).items():
        found = boundary(members)
        old, new = (mean_rates(side, ks) for side in sides(members))
        rates = (Number(value=b, base=a, form=".0%") for a, b in zip(old, new, strict=True))
        rows.append((task, level, *rates, found.new, found.lost))
    columns = ("task", "level", *(f"pass@{k}" for k in ks), "new", "lost")
    return Table(title=title, columns=columns, rows=tuple(rows), folded=folded)


# -- sentences


def gain_sentence(moves: Sequence[Move], title: str, ks: Sequence[int], names: tuple[str, str]) -> str:
    """pass@1 and pass@k of base and trained model with the gains, and whether these may be chance."""
    told = []
    for found in compare(moves, ks)[-1].differences:
        tries = "at the first try" if found.k == 1 else f"within {found.k} tries"
        doubt = "" if found.up or found.down else ", which may be chance"
        told.append(
            f"{found.trained:.1%} {tries} and {names[0]} {found.base:.1%}: {points(found.gain)} points, 95 % "
            f"interval {points(found.low)} to {points(found.high)}{doubt}"
        )
    return f"Of {len(moves)} {title} problems {names[1]} solves {'; '.join(told)}."


def problems_moved(moves: Sequence[Move], k: int) -> str:
    """How many problems became solvable and how many were lost, beside what chance alone would give."""
    row = boundary(moves)
    return (
        f"Never solved by the base in {k} tries and solved now: {row.new} of {count(row.problems, 'problem')} "
        f"({row.sure_new} surely); lost: {row.lost} ({row.sure_lost} surely). Were both models equally good at each "
        f"problem, chance alone would give about {row.chance_new:.1f} new and {row.chance_lost:.1f} lost."
    )


def tasks_moved(found: Sequence[TaskPattern], k: int) -> str:
    """On which tasks pass@k moved beyond chance, in a sentence per part; as plainly where it did not."""
    told = []
    for part, title in PARTS.items():
        gained = {one.task: one.at_k for one in found if one.part == part}
        if not gained:
            continue
        up = [task for task, gain in gained.items() if gain.up]
        down = [task for task, gain in gained.items() if gain.down]
        tasks = count(len(gained), f"{title} task")
        rose = f"rose on {len(up)} of {tasks}: {listing(up)}" if up else f"rose on none of {tasks}"
        fell = f", and surely fell on {len(down)}: {listing(down)}" if down else ""
        told.append(
            f"The reasoning boundary, pass@{k}, surely {rose}{fell} (95 % intervals; by chance about "
            f"{0.025 * len(gained):.1f} would seem so either way)."
        )
    return " ".join(told)


# -- creativity


def creativity_tables(found: Creativity) -> list[Table]:
    """The creativity index of every model per part and domain, and the gains over the first model."""
    names = {one.model: model_name(one) for one in found.models}
    lengths = f"{found.lengths.shortest} to {found.lengths.longest} words"
    columns = ["domain", *(f"{of} of {name}" for name in names.values() for of in ("index", "gain"))]
    del columns[2]  # the first model's gain over itself
    tables = []
    for part, title in NAMES.items():
        of_part = {(row.domain, row.model): row for row in found.rows if row.part == part}
        rows: list[tuple[Cell, ...]] = []
        for domain in dict.fromkeys(domain for domain, _ in of_part):
            several = [of_part.get((domain, model)) for model in names]
            cells = [
                _estimate(estimate, form)
                for row in several
                for estimate, form in (
                    (row.index if row else None, ".2f"),
                    (row.gain if row else None, "+.2f"),
                )
            ]
            rows.append((domain, cells[0], *cells[2:]))
        if rows:
            name = f"Creativity index ({lengths}): {title} problems"
            tables.append(Table(title=name, columns=tuple(columns), rows=tuple(rows)))
    about = Table(
        title="Responses that were counted",
        columns=("model", "responses", "words each", "too short", "floor"),
        rows=tuple(
            (
                *(names[one.model], one.counted, Number(value=one.words, form=".1f")),
                *(one.short, Number(value=one.floor, form=".2f")),
            )
            for one in found.models
        ),
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
