"""The training data: which problem stands at draw k, and the fixed held-out sets that validations use.

A draw is a pure function of (seed, draw, split, weights), so the cursor of a run is one integer. The rows of a data
set come in epochs: every row once, in another order each time. Which is next follows from how many of
the draws before fell to the set, as if the present weights had held from the start: new ones cut an epoch short.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import accumulate, count, islice
from types import MappingProxyType

from prorl.envs.base import FixedTask, LevelWeights, ProceduralTask, canonical
from prorl.envs.datasets.prepare import DatasetTask
from prorl.envs.errors import UsageError
from prorl.envs.seeds import derive, permuted, purpose
from prorl.envs.types import Problem, Split, Task, conversation

INDEX_BITS = 31
UNIT = 2.0**-63  # `derive` gives 63 bits
MAX_REPEATS = 200  # repeats in a row after which a task counts as having no further distinct problem
MIN_LEVELS = 3
KEPT = 256  # problems drawn last that are kept; those of data sets can be large
MEAN = "mean"  # over all domains, as tables call it
ALWAYS_LEVELLED = ("rg_graph_color",)  # the levels that ProRL shows


class Mixture:
    """An ordered set of tasks with relative weights."""

    def __init__(self, entries: Sequence[tuple[Task, float]], seed: int) -> None:
        """`entries` are tasks, each of its own name, and how often each is drawn relative to the others.

        The order matters. Weights are as the recipe checks them: not negative, and not all zero.
        """
        self._tasks = {task.name: task for task, _ in entries}
        self._domains = dict.fromkeys(task.domain for task, _ in entries)  # in order of first appearance
        if MEAN in self._domains:
            raise UsageError(
                f"a domain cannot be called {MEAN!r}, as the mean over all domains is: say another name"
            )
        self._seed = seed
        self.weights = MappingProxyType({task.name: float(weight) for task, weight in entries})
        self._drawn = lru_cache(KEPT)(self._draw)

    def problem(
        self,
        draw: int,
        split: Split,
        weights: Mapping[str, float] | None = None,
        levels: Mapping[str, LevelWeights] | None = None,
    ) -> Problem:
        """The problem at `draw`: a hash chooses a task that has this split, and another one its 31-bit index.

        Of a data set the index is the row that the permutation of this epoch puts there. `weights` replaces the
        mixture's own for the tasks it names, and `levels` says of procedural tasks how often each level is drawn. The
        last `KEPT` problems are kept. Raises ValueError: no task to draw from.
        """
        chosen = {**self.weights, **(weights or {})}
        present = tuple(
            (name, weight) for name, weight in chosen.items() if weight and split in self._tasks[name].splits
        )
        if not present:
            raise ValueError(f"no task with a positive weight has {split} problems")
        return self._drawn(draw, split, present, tuple(levels.items()) if levels else ())

    def _draw(
        self,
        draw: int,
        split: Split,
        weights: tuple[tuple[str, float], ...],
        levels: tuple[tuple[str, LevelWeights], ...],
    ) -> Problem:
        turns = _turns(self._seed, split, weights)
        task = self._tasks[turns.owner(draw)]
        if not isinstance(task, FixedTask):
            index = derive(self._seed, "index", purpose(split), draw) >> (63 - INDEX_BITS)
            if isinstance(task, ProceduralTask):
                return task.problem(index, split, dict(levels).get(task.name))
            return task.problem(index, split)
        size = task.row_count(split)
        epoch, place = divmod(turns.before(draw, task.name), size)
        return task.problem(
            permuted(place, size, self._seed, "epoch", task.name, purpose(split), epoch), split
        )

    def fingerprint(self, count: int) -> str:
        """Identity of what is asked and shown in the first draws: it changes when weights or a task's code do."""
        digest = blake2b(digest_size=8)
        for draw in range(count):
            problem = self.problem(draw, "train")
            digest.update(f"{problem.task}\n{problem.prompt}\n{problem.solution}\n".encode())
        return digest.hexdigest()

    def rows_fingerprint(self) -> str:
        """Identity of all rows of data sets, right answers included; empty without any."""
        return " ".join(task.fingerprint for task in self._tasks.values() if isinstance(task, DatasetTask))

    def pass_threshold(self, task: str) -> float:
        """Score from which a response to a problem of `task` counts as solved."""
        return self._tasks[task].pass_threshold

    def validation_problems(self, split: Split, per_domain: int) -> tuple[Problem, ...]:
        """`per_domain` problems with distinct prompts of every domain that has the split, the same at every call.

        Inside a domain the tasks share the problems in proportion to their weights; what a task with few distinct
        prompts cannot give is left to the others. The seed plays no part, so that runs are comparable. Raises
        ValueError: a domain with fewer distinct prompts.
        """
        validation: list[Problem] = []
        for domain in self._domains:
            streams = {
                name: _distinct(partial(task.problem, split=split))
                for name, task in self._tasks.items()
                if task.domain == domain and split in task.splits and self.weights[name] > 0
            }
            problems = list(islice(self._shared_out(streams), per_domain))
            if streams and len(problems) < per_domain:
                found = f"{len(problems)} distinct {split} problems"
                raise ValueError(f"domain {domain} has {found}, not {per_domain}")
            validation.extend(problems)
        return tuple(validation)

    def unmeasured(self, split: Split) -> list[str]:
        """The domains that are trained on without having a problem of a split."""
        drawn = [task for name, task in self._tasks.items() if self.weights[name] > 0]
        measured = {task.domain for task in drawn if split in task.splits}
        trained = dict.fromkeys(task.domain for task in drawn if "train" in task.splits)
        return [domain for domain in trained if domain not in measured]

    def _shared_out(self, streams: Mapping[str, Iterator[Problem]]) -> Iterator[Problem]:
        """Problems of several tasks in turn, at every moment as near to their weights as whole numbers allow."""
        taken = dict.fromkeys(streams, 0)
        while taken:
            name = min(taken, key=lambda candidate: (taken[candidate] + 0.5) / self.weights[candidate])
            problem = next(streams[name], None)
            if problem is None:
                del taken[name]
            else:
                taken[name] += 1
                yield problem

    def levelled_tasks(self) -> tuple[str, ...]:
        """Of every domain the first trained task of the largest weight with three levels; and graph colouring."""
        chosen = set(ALWAYS_LEVELLED)
        for domain in self._domains:
            levelled = [
                name
                for name, task in self._tasks.items()
                if task.domain == domain and "train" in task.splits and len(task.all_levels) >= MIN_LEVELS
            ]
            chosen.add(max(levelled, key=self.weights.__getitem__, default=""))
        return tuple(name for name in self._tasks if name in chosen and self.weights[name] > 0)

    def level_problems(self, name: str, per_level: int) -> tuple[Problem, ...]:
        """`per_level` distinct problems of every level, the easiest first; as few for all as the smallest has."""
        task = self._tasks[name]
        streams = [_distinct(partial(task.problem_at, level=level)) for level in task.all_levels]
        levels = [list(islice(stream, per_level)) for stream in streams]
        return tuple(problem for level in levels for problem in level[: min(map(len, levels))])


class _Turns:
    """Which task every draw falls to under weights that do not change, and how many a task had before a draw."""

    def __init__(self, seed: int, split: Split, weights: tuple[tuple[str, float], ...]) -> None:
        self._key = (seed, "task", split)
        self._names = [name for name, _ in weights]
        self._bounds = list(accumulate(weight for _, weight in weights))
        self._counted = 0
        self._draws = {name: array("Q") for name in self._names}  # those counted, in order

    def owner(self, draw: int) -> str:
        """The task that a hash chooses."""
        point = derive(*self._key, draw) * UNIT * self._bounds[-1]
        return self._names[min(bisect_right(self._bounds, point), len(self._names) - 1)]

    def before(self, draw: int, name: str) -> int:
        """How many draws before this one fell to the task: 4 µs for each one not counted yet."""
        for earlier in range(self._counted, draw):
            self._draws[self.owner(earlier)].append(earlier)
        self._counted = max(self._counted, draw)
        return bisect_left(self._draws[name], draw)


_turns = lru_cache(maxsize=16)(_Turns)  # of the last weights in use


def _distinct(problem_at: Callable[[int], Problem]) -> Iterator[Problem]:
    seen: set[str] = set()
    repeats = 0
    for index in count():
        problem = problem_at(index)
        key = canonical(conversation(problem.history, problem.prompt))
        repeats = repeats + 1 if key in seen else 0
        if repeats > MAX_REPEATS:
            return
        if not repeats:
            seen.add(key)
            yield problem
