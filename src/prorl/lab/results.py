"""What an evaluation says of a model and its base, as tables and sentences for pages, terminals and model cards."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from prorl.envs.files import StorageError
from prorl.envs.mixture import MEAN
from prorl.lab.evals.comparison import (
    Difference,
    Move,
    Outcome,
    TaskPattern,
    boundary,
    compare,
    paired,
    patterns,
    sides,
)
from prorl.lab.evals.evaluation_store import BASE, Evaluation, evaluations, read_evaluation, read_rules
from prorl.lab.evals.problems import Part
from prorl.lab.evals.statistics import (
    answered_only,
    guess_rate,
    majority_rates,
    mean_over_domains,
    mean_rates,
    solved_shares,
    voting,
)
from prorl.lab.tables import Cell, Number, Table, count, listing, points
from prorl.rollout.pipeline import grouped, unanswered_share
from prorl.run.layout import by_step

PARTS: Mapping[Part, str] = MappingProxyType({"test": "held-out", "ood": "out of domain"})
"""The parts of an evaluation that a page averages over; difficulty levels have figures of their own."""

NAMES: Mapping[Part, str] = MappingProxyType({**PARTS, "levels": "difficulty-level"})

SHARE = ".1%"
MOVED: tuple[Outcome, ...] = ("new", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A model and the base that it is compared with, in one evaluation."""

    base: Evaluation
    trained: Evaluation
    between: Evaluation | None = None  # of about half of the training
    evaluation: str = ""  # its name
    sampling: str = ""  # where it is not at temperature 1 of all tokens

    @property
    def ks(self) -> tuple[int, ...]:
        """1, and the most responses that both have."""
        return tuple(sorted({1, min(self.base.samples, self.trained.samples)}))

    def moves(self, *parts: Part) -> list[Move]:
        """The problems of these parts that both were judged on."""
        return paired(self.base.of(*parts), self.trained.problems)

    def by_part(self, parts: Iterable[Part] = PARTS) -> dict[Part, list[Move]]:
        """The same for every part in which there are any."""
        return {part: moves for part in parts if (moves := self.moves(part))}

    def patterns(self, k: int) -> list[TaskPattern]:
        """The pattern of every task, on the problems that all models were judged on; none of one try."""
        if k == 1:
            return []
        middle = self.between.problems if self.between else None
        return patterns(self.base.of(*PARTS), self.trained.problems, between=middle, k=k)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """pass@k of a model and its base on the problems of one part."""

    pair: Pair
    part: Part
    moves: Sequence[Move]
    rows: Mapping[str, Sequence[Difference]]  # for every k, by domain, and last their mean

    @property
    def tasks(self) -> frozenset[str]:
        """Of the problems."""
        return frozenset(move.base.task for move in self.moves)

    @property
    def title(self) -> str:
        """Evaluation, problems and tries at each: runs are compared where it and the tasks are the same."""
        tries = count(self.rows[MEAN][-1].k, "response")
        tasks = count(len(self.tasks), "task") if len(self.tasks) > 1 else next(iter(self.tasks))
        problems = count(len(self.moves), f"{NAMES[self.part]} problem")
        return f"{self.pair.evaluation}: {problems} of {tasks}, {tries} each{self.pair.sampling}"


def newest_pairs(folder: Path, *, up_to: int | None = None, report: Callable[[str], None]) -> list[Pair]:
    """The newest checkpoint, of step `up_to` at most, and the base of every evaluation of a run that has both.

    Answers and responses are not read. An evaluation of which a file cannot be read is left out; `report` is told.
    """
    pairs = []
    for name, files in evaluations(folder):
        trained = [path for step, path in by_step(files).items() if up_to is None or step <= up_to]
        if files[0].stem == BASE and trained:
            try:
                base, last = (read_evaluation(path, texts=False) for path in (files[0], trained[-1]))
                kept = read_rules(files[0].parent).get("sampling", {})
            except StorageError as error:
                report(str(error))
                continue
            said = ((key, kept.get(key, 1.0)) for key in ("temperature", "top_p"))
            sampling = "".join(f", {key} {value:g}" for key, value in said if value != 1.0)
            pairs.append(Pair(evaluation=name, base=base, trained=last, sampling=sampling))
    return pairs


def halfway(steps: Iterable[int], base: Evaluation, trained: Evaluation) -> int | None:
    """The step nearest to half of the way from `base` to `trained`, if any lies on it."""
    start, end = base.step, trained.step
    if start is None or end is None:
        return None
    between = (step for step in steps if start < step < end)
    return min(between, key=lambda step: abs(2 * step - start - end), default=None)


def gains(pair: Pair, ks: Sequence[int] = (), *, parts: Iterable[Part] = NAMES) -> list[Gains]:
    """For every part that both were judged on: pass@k for `ks`, or for 1 and the most responses that both have."""
    return [
        Gains(pair=pair, part=part, moves=moves, rows=compare(moves, ks or pair.ks))
        for part, moves in pair.by_part(parts).items()
    ]


# -- tables


def gain_table(found: Gains, title: str) -> Table:
    """Base → trained at the smallest and the largest k, a row per domain; gains are points with 95 % intervals."""
    ends = slice(None, None, max(1, len(found.rows[MEAN]) - 1))  # the first and the last k
    ks = [of_k.k for of_k in found.rows[MEAN][ends]]
    columns = ("domain", "problems", *(name for k in ks for name in (f"pass@{k}", f"gain in pass@{k}")))
    rows: list[tuple[Cell, ...]] = []
    for label, of_domain in found.rows.items():
        cells: list[Cell] = [label, of_domain[0].problems]
        for of_k in of_domain[ends]:
            cells += (Number(of_k.trained, SHARE, base=of_k.base), difference_cell(of_k))
        rows.append(tuple(cells))
    return Table(title=title, columns=columns, rows=tuple(rows), folded=True)


def difference_cell(found: Difference | None) -> Number:
    """A difference of pass rates in points, with its interval."""
    if found is None:
        return Number(None)
    return Number(found.gain, "points", low=found.low, high=found.high)


def rate_tables(evaluation: Evaluation, ks: Sequence[int]) -> list[Table]:
    """Pass rates of one model: of every part by task, and the mean over domains; and by difficulty level."""
    tables = []
    for part, title in {**PARTS, "levels": "levels of"}.items():
        if problems := evaluation.of(part):
            by_task = grouped(problems, lambda one: (one.task,))
            by_level = grouped(problems, lambda one: (one.task, one.level))
            named = [*by_task.items(), ((MEAN,), problems)] if part in PARTS else [*by_level.items()]
            rows: list[tuple[Cell, ...]] = []
            for label, members in named:
                cells = (Number(rate, SHARE) for rate in mean_rates(members, ks))
                rows.append((*label, len(members), *cells))
            places = ("task",) if part in PARTS else ("task", "level")
            columns = (*places, "problems", *(f"pass@{k}" for k in ks))
            name = f"{evaluation.title}: {title} problems"
            tables.append(Table(title=name, columns=columns, rows=tuple(rows)))
    return tables


def gain_tables(pair: Pair, ks: Sequence[int]) -> list[Table]:
    """`gain_table` of every part."""
    names = f"{pair.base.title} → {pair.trained.title}"
    return [gain_table(one, f"{names}: {PARTS[one.part]} problems") for one in gains(pair, ks, parts=PARTS)]


def evaluation_tables(pair: Pair, ks: Sequence[int]) -> list[Table]:
    """Everything that an evaluation says about two of its models, and about the way between them."""
    tables = [*gain_tables(pair, ks), *map(_curve_table, gains(pair, ks, parts=PARTS))]
    if tables:
        tables += [
            boundary_table(pair),
            moved_table(pair),
            *([pattern_table(found, ks[-1])] if (found := pair.patterns(ks[-1])) else []),
            *answer_tables(pair, ks[-1]),
        ]
    return [*tables, *level_tables(pair, tuple(dict.fromkeys((ks[0], ks[-1]))))]


def _curve_table(found: Gains) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for of_k in found.rows[MEAN]:
        rates = Number(of_k.base, SHARE), Number(of_k.trained, SHARE)
        rows.append((str(of_k.k), *rates, difference_cell(of_k), Number(of_k.p, ".2g")))
    title = f"pass@k, mean over domains: {PARTS[found.part]} problems"
    return Table(title=title, columns=("k", "base", "model", "gain", "p"), rows=tuple(rows))


def pattern_table(found: Sequence[TaskPattern], k: int) -> Table:
    """What training did to each task, with the differences that decided it, in points."""
    halves = ("first half", "second half") if any(one.early for one in found) else ()
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        decided = (one.at_1, one.at_k, *((one.early, one.late) if halves else ()))
        rows.append(
            (one.task, NAMES[one.part], one.pattern, one.at_k.problems, *map(difference_cell, decided))
        )
    rates = (f"pass@{name} beyond guessing" for name in (1, k))
    columns = ("task", "part", "pattern", "problems", *rates, *halves)
    return Table(title="Pattern of each task", columns=columns, rows=tuple(rows))


def boundary_table(pair: Pair) -> Table:
    """How much of pass@k, k the most responses, is luck, and what lies beyond it; domains weighed alike."""
    k = pair.ks[-1]
    rows: list[tuple[Cell, ...]] = []
    for part, moves in pair.by_part().items():
        base, trained = (solved_shares(side, k) for side in sides(moves))
        for name, share in base.items():
            rows.append((NAMES[part], name, Number(share, SHARE), Number(trained[name], SHARE)))
    columns = ("part", "problems", pair.base.title, pair.trained.title)
    return Table(title=f"Solved beyond guessing {_in_tries(k)}", columns=columns, rows=tuple(rows))


def moved_table(pair: Pair) -> Table:
    """Who solves how many problems of each task: both, new, lost, neither; how many chance alone would move."""
    rows: list[tuple[Cell, ...]] = []
    k = pair.ks[-1]
    for part, moves in pair.by_part().items():
        by_task = grouped(moves, lambda move: move.base.task)
        for task, members in [*by_task.items(), ("all", moves)]:
            found = boundary(members)
            counts: list[Cell] = [found.outcomes["both"]]
            for what in MOVED:
                # One try tells nothing of how often the next would pass.
                told = (found.sure[what], Number(found.chance[what], ".1f")) if k > 1 else (Number(None),) * 2
                counts += (found.outcomes[what], *told)
            counts.append(found.outcomes["neither"])
            rows.append((task, NAMES[part], len(members), _luck(members, k), *counts))
    names = (f"{of}{what}" for what in MOVED for of in ("", "surely ", "chance "))
    columns = ("task", "part", "problems", "guesses", "both", *names, "neither")
    title = f"Who solves what {_in_tries(k)}, beyond guessing"
    return Table(title=title, columns=columns, rows=tuple(rows))


def _in_tries(k: int) -> str:
    return "at the first try" if k == 1 else f"in {k} tries"


def _luck(moves: Sequence[Move], k: int) -> Number:
    """What guesses alone would solve within k tries, answers of the trained model beside those of the base."""
    base, trained = (guess_rate(side, k) for side in sides(moves))
    return Number(trained, ".0%", base=base)


def answer_tables(pair: Pair, k: int) -> list[Table]:
    """What is not ability: whether there is an answer, how long, what a vote makes of many, what was not judged."""
    tables = []
    for part, moves in pair.by_part().items():
        before, after = sides(moves)
        rows: list[tuple[Cell, ...]] = []
        for model, problems, others in ((pair.base, before, after), (pair.trained, after, before)):
            answered, votes = answered_only(problems, others), voting(problems, others)
            shares = [
                unanswered_share(problems),
                sum(problem.truncated for problem in problems) / sum(one.samples for one in problems),
                mean_rates(answered, (1,))[0] if answered else None,
            ]
            if k > 1:
                shares += mean_over_domains(majority_rates(votes, (k,)), votes) if votes else [None]
            length = Number(sum(one.length for one in problems) / len(problems), ".1f")
            errors = sum(one.errors for one in problems)
            rows.append((model.title, *(Number(one, SHARE) for one in shares), length, errors))
        majority = [f"maj@{k}"] if k > 1 else []
        columns = ("model", "no answer", "cut off", "pass@1 of answered", *majority, "tokens", "not judged")
        tables.append(Table(title=f"Answers: {PARTS[part]} problems", columns=columns, rows=tuple(rows)))
    return tables


def level_tables(pair: Pair, ks: Sequence[int]) -> list[Table]:
    """Pass rates of every task by difficulty level, and the problems new and lost there, if any were asked."""
    rows: list[tuple[Cell, ...]] = []
    by_level = grouped(pair.moves("levels"), lambda move: (move.base.task, move.base.level))
    for (task, level), moves in by_level.items():
        found = boundary(moves).outcomes
        old, new = (mean_rates(side, ks) for side in sides(moves))
        rates = (Number(b, ".0%", base=a) for a, b in zip(old, new, strict=True))
        rows.append((task, level, *rates, _luck(moves, ks[-1]), found["new"], found["lost"]))
    columns = ("task", "level", *(f"pass@{k}" for k in ks), f"guesses@{ks[-1]}", "new", "lost")
    table = Table(title="By difficulty level", columns=columns, rows=tuple(rows), folded=True)
    return [table] if rows else []


# -- sentences


def gain_sentence(found: Gains, names: tuple[str, str]) -> str:
    """pass@1 of base and trained model with the gain, and whether it may be chance."""
    of_1 = found.rows[MEAN][0]
    doubt = "" if of_1.up or of_1.down else ", which may be chance"
    return (
        f"Of {count(of_1.problems, f'{NAMES[found.part]} problem')} {names[1]} solves {of_1.trained:.1%} at the "
        f"first try and {names[0]} {of_1.base:.1%}: {points(of_1.gain)} points, 95 % interval {points(of_1.low)} to "
        f"{points(of_1.high)}{doubt}."
    )


def problems_moved(moves: Sequence[Move], k: int) -> str:
    """How many problems became solvable and how many were lost, beside what chance alone would give."""
    found = boundary(moves)
    of, sure = found.outcomes, found.sure
    new = f" ({sure['new']} surely; chance alone would give {found.chance['new']:.1f})" if k > 1 else ""
    lost = f" ({sure['lost']} surely; {found.chance['lost']:.1f})" if k > 1 else ""
    return (
        f"{_in_tries(k).capitalize()} and beyond guessing {of['new']} of {count(len(moves), 'problem')} are new{new} "
        f"and {of['lost']} lost{lost}."
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
            f"The reasoning boundary, pass@{k} beyond guessing, surely {rose}{fell} (95 % intervals; by chance about "
            f"{0.025 * len(gained):.1f} would seem so either way)."
        )
    return " ".join(told)
