"""A study on a terminal: base → trained, what training did to each task, who solves which problems."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from prorl.lab.evals.comparison import Comparison, Difference, Move, boundary, compare, paired, patterns
from prorl.lab.evals.evaluation_store import Study
from prorl.lab.evals.statistics import (
    MEAN,
    answered_only,
    by_task,
    curve,
    curves,
    majority_rates,
    mean_over_domains,
    voting,
)
from prorl.lab.watch.console import Console
from prorl.rollout.validation import Part, ProblemResult, unanswered_share

TITLES: dict[Part, str] = {
    "test": "held-out problems",
    "ood": "out of domain: larger sizes and families never trained",
}
NONE = "–"
ALL = "all"


def show_rates(console: Console, study: Study, ks: Sequence[int]) -> None:
    """Pass rates of one model: of every part by task, and the mean over domains."""
    for part, title in TITLES.items():
        rows = curves(_of(study, part), ks, by=by_task)
        if rows:
            table = _table(f"{_name(study)}: {title}", "task", "problems", *(f"pass@{k}" for k in ks))
            for row in rows:
                _add(table, row.label, str(row.problems), *map(_percent, row.rates))
            console.rich.print(table)


def show_gains(console: Console, base: Study, trained: Study, ks: Sequence[int]) -> None:
    """The table base → trained of every part, a row per domain; nothing where there is nothing to compare."""
    for part, title in TITLES.items():
        rows = compare(paired(_of(base, part), _of(trained, part)), ks)
        if rows:
            console.rich.print(_gains(f"{_name(base)} → {_name(trained)}: {title}", rows))


def show_boundary(
    console: Console, base: Study, trained: Study, between: Study | None, ks: Sequence[int]
) -> None:
    """What a study says about two of its models, and about the way between them."""
    ends = (ks[0], ks[-1]) if len(ks) > 1 else ks
    show_gains(console, base, trained, ends)
    for part, title in TITLES.items():
        moves = paired(_of(base, part), _of(trained, part))
        if moves:
            middle = None if between is None else _of(between, part)
            console.rich.print(_pass_at_k(f"pass@k, mean over domains, {title}", base, trained, moves, ks))
            console.rich.print(
                _patterns(f"{base.model} → {trained.model} by task, {title}", moves, middle, ks[-1])
            )
            console.rich.print(_fates(f"who solves what in {base.samples} tries, {title}", moves))
            console.rich.print(_format(f"answers, {title}", base, trained, moves, ks[-1]))
    ladders = paired(_of(base, "ladder"), _of(trained, "ladder"))
    if ladders:
        console.rich.print(_ladders(ladders, ends))


def _gains(title: str, rows: Sequence[Comparison]) -> Table:
    ks = rows[0].base.ks
    passes = (f"pass@{k}" for k in ks)
    table = _table(title, "domain", "problems", *passes, f"gain in pass@{ks[0]} [95 % interval]")
    for row in rows:
        rates = (_arrow(row.base.at(k), row.trained.at(k)) for k in ks)
        _add(table, row.label, str(row.base.problems), *rates, _interval(row.differences[0]))
    return table


def _pass_at_k(title: str, base: Study, trained: Study, moves: Sequence[Move], ks: Sequence[int]) -> Table:
    table = _table(title, "k", _name(base), _name(trained), "points [95 % interval]", "p")
    *_, mean = compare(moves, ks)
    for before, after, found in zip(mean.base.rates, mean.trained.rates, mean.differences, strict=True):
        table.add_row(str(found.k), _percent(before), _percent(after), _points(found), f"{found.p:.2g}")
    return table


def _patterns(title: str, moves: Sequence[Move], between: Sequence[ProblemResult] | None, k: int) -> Table:
    table = _table(title, "task", "problems", "points in pass@1", f"points in pass@{k}", "pattern")
    before, after = [move.base for move in moves], [move.trained for move in moves]
    for row in patterns(before, after, between=between, k=k):
        table.add_row(row.task, str(row.problems), _points(row.at_1), _points(row.at_k), row.pattern)
    return table


def _fates(title: str, moves: Sequence[Move]) -> Table:
    """A row per task; `chance` is how many would look new, and as many lost, were both models alike."""
    table = _table(title, "task", "both", "new", "sure", "lost", "sure", "chance", "neither")
    tasks: dict[str, list[Move]] = {}
    for move in moves:
        tasks.setdefault(move.base.task, []).append(move)
    for label, members in (*tasks.items(), (ALL, moves)):
        found = boundary(label, members)
        counts = (found.both, found.new, found.sure_new, found.lost, found.sure_lost)
        _add(table, label, *map(str, counts), f"{found.chance_new:.1f}", str(found.neither))
    return table


def _format(title: str, base: Study, trained: Study, moves: Sequence[Move], k: int) -> Table:
    """What is not ability: whether there is an answer at all, how long, and what a vote makes of many."""
    head = ("no answer", "truncated", "pass@1 of answered", f"maj@{k}", "tokens")
    table = _table(title, "", *head)
    before, after = [move.base for move in moves], [move.trained for move in moves]
    for study, problems, others in ((base, before, after), (trained, after, before)):
        samples = sum(problem.samples for problem in problems)
        answered, votes = answered_only(problems, others), voting(problems, others)
        table.add_row(
            _name(study),
            _percent(unanswered_share(problems)),
            _percent(sum(problem.truncated for problem in problems) / samples),
            _percent(curve("", answered, (1,)).rates[0]) if answered else NONE,
            _majority(votes, k) if votes else NONE,
            f"{sum(problem.length for problem in problems) / len(problems):.1f}",
        )
    return table


def _majority(votes: Sequence[ProblemResult], k: int) -> str:
    (rate,) = mean_over_domains(majority_rates(votes, (k,)), [problem.domain for problem in votes])
    return _percent(rate)


def _ladders(moves: Sequence[Move], ks: Sequence[int]) -> Table:
    table = _table("difficulty ladders", "task", "level", *(f"pass@{k}" for k in ks), "new", "lost")
    rungs: dict[tuple[str, int], list[Move]] = {}
    for move in moves:
        rungs.setdefault((move.base.task, move.base.level), []).append(move)
    for (task, level), members in rungs.items():
        old = curve(task, [move.base for move in members], ks)
        new = curve(task, [move.trained for move in members], ks)
        found = boundary(task, members)
        rates = (f"{before:.0%} → {after:.0%}" for before, after in zip(old.rates, new.rates, strict=True))
        table.add_row(task, str(level), *rates, str(found.new), str(found.lost))
    return table


def _of(study: Study, part: Part) -> list[ProblemResult]:
    return [problem for problem in study.problems if problem.part == part]


def _name(study: Study) -> str:
    return study.model if study.step is None else study.model.replace("_", " ")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def _add(table: Table, label: str, *cells: str) -> None:
    table.add_row(label, *cells, style="bold" if label in (MEAN, ALL) else None)


def _percent(rate: float) -> str:
    return f"{rate:.1%}"


def _arrow(before: float, after: float) -> str:
    return f"{before:.1%} → {after:.1%}"


def _points(difference: Difference) -> str:
    gain, low, high = (100 * value for value in (difference.gain, difference.low, difference.high))
    return f"{gain:+.0f} [{low:+.0f}, {high:+.0f}]"


def _interval(difference: Difference) -> str:
    return f"{difference.gain:+.1%} [{difference.low:+.1%}, {difference.high:+.1%}]"
