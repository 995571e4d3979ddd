"""The tasks of the reasoning-gym library (0.1.25): one row each, all data sets but the compositions of others.

Level 0 is the library's default configuration, as in ProRL. Fourteen rows have trained levels of their own besides,
with short questions; of those level 0 must be asked for, and their last level is a larger size, out of domain, whose
questions no other level can draw. ProRL trained on the 96 tasks that the library had in its first days;
nine came later and are held out here, as three of them are in the paper.

Four things of the library are kept out:
- item i of a dataset is drawn from `Random(seed + i)`, so neighbouring seeds overlap: an item number is a hash here;
- scorers that execute the answer, pay any text, or pay for listing candidates are replaced (`gym_scorers`), and
  consolation scores below 0.1, which look like signal, count as 0;
- metadata may hold today's date: a payload keeps only what the scorer reads;
- some datasets draw from the global generators, change the decimal precision, warn or print (`careless`).
The library takes seconds to import, so that happens at the first problem or verdict.
"""

import io
import random
import re
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from decimal import Context, localcontext
from pathlib import Path
from random import Random
from typing import Any

from prorl.envs.base import Draft, ProceduralTask
from prorl.envs.extract import MAX_ANSWER_CHARS
from prorl.envs.families import gym_datasets as datasets
from prorl.envs.families import gym_scorers as scorers
from prorl.envs.families.gym_scorers import Entry, Scorer
from prorl.envs.types import Solution, Split

PREFIX = "rg_"
DEFAULTS = 0  # the level of the library's default configuration
MIN_PARTIAL, MAX_PARTIAL = 0.1, 0.9  # the library's sums of partial credit can round to more than 1
MAX_UNUSABLE = 1000  # items in a row

_FILE = tomllib.loads(Path(__file__).with_name("gym.toml").read_text(encoding="utf-8"))
_FUNCTIONS = ("scorer", "solution", "usable", "repair", "steps")  # of a row
HELD_OUT_9 = tuple(PREFIX + name for name in _FILE["held_out"])
"""The tasks that are only measured: the library had not them yet when ProRL trained on the other 96."""


def _answer(entry: Entry) -> str | None:
    return None if entry["answer"] is None else str(entry["answer"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A dataset of the library, and how its answers are judged: a table of `gym.toml`."""

    name: str
    scorer: Scorer | None = None  # None: the library's own
    domain: str = "logic"
    fields: str = ""  # metadata that the scorer reads, separated by spaces
    partial: bool = False  # whether a score below 1 means partly right
    form: str | None = None  # what an answer must look like before the library's scorer sees it
    solution: Callable[[Entry], str | None] = _answer
    usable: Callable[[Entry], Any] | None = None  # false for the library's rare wrong or degenerate entries
    repair: Callable[[Any], None] | None = None  # changes a new dataset in place
    size: int = sys.maxsize  # what the dataset is created with
    item_bits: int = 63  # item numbers that the dataset can take
    careless: bool = False  # whether drawing an item has effects outside the dataset
    steps: Callable[[Entry], str] = lambda entry: ""  # the working at levels from 1
    levels: Mapping[int, Mapping[str, Any]]  # the library's options at each level but 0

    @property
    def has_trained_levels(self) -> bool:
        """Whether levels besides 0 can be trained: those that count from 1, not the sizes of graph colouring."""
        return 1 in self.levels


class ReasoningGym(ProceduralTask):
    """The dataset of one row. The row must see to it that item i depends on `seed + i` and the level alone."""

    def __init__(self, row: Row, weights: Mapping[int, float] | None = None) -> None:
        self.row = row
        self.name, self.domain = PREFIX + row.name, row.domain
        if row.has_trained_levels:
            *trained, last = row.levels
            self.levels, self.ood_levels = (DEFAULTS, *trained), (last,)
        else:
            self.levels, self.ood_levels = ((), (DEFAULTS,)) if self.name in HELD_OUT_9 else ((DEFAULTS,), ())
        drawn = [level for level in self.levels if level != DEFAULTS] or self.levels
        super().__init__(weights or dict.fromkeys(drawn, 1.0))
        self._datasets: dict[int, Any] = {}

    @property
    def splits(self) -> frozenset[Split]:
        """As for every task; but level 0 can draw what out-of-domain levels ask, so with it there are none."""
        return super().splits - ({"ood"} if self.weights.get(DEFAULTS) else set())

    @property
    def all_levels(self) -> tuple[int, ...]:
        """The levels by size; the library's default configuration is none of them."""
        return tuple(sorted(self.row.levels))

    def generate(self, rng: Random, level: int) -> Draft:
        """One entry of the level's dataset, at a random item number.

        Raises ValueError: the dataset yields no usable entry.
        """
        dataset = self._dataset(level)
        for _ in range(MAX_UNUSABLE):
            item = rng.getrandbits(self.row.item_bits)
            with _isolated(item) if self.row.careless else nullcontext():
                entry: Entry = dataset[item]
            solution = self.row.solution(entry)
            metadata = {name: entry["metadata"][name] for name in self.row.fields.split()}
            kept = {"answer": solution, "metadata": metadata}
            if self._usable(entry, kept) and len(solution or "") <= MAX_ANSWER_CHARS:
                break
        else:
            raise ValueError(f"task {self.name}: {MAX_UNUSABLE} items in a row are unusable")
        steps = self.row.steps(entry) if level != DEFAULTS else ""
        known = None if solution is None else Solution(steps=steps, answer=solution)
        return Draft(prompt=entry["question"].strip(), payload=(level, kept), solution=known)

    def score(self, payload: Any, answer: str) -> float:
        """The row's scorer, or the library's on an answer of the row's form; its exceptions are for `verify`.

        Partial credit counts only where the row says so, and then from 0.1 to 0.9.
        """
        level, entry = payload
        if self.row.scorer is not None:
            score = self.row.scorer(entry, answer)
        elif self.row.form is not None and not re.fullmatch(self.row.form, answer):
            return 0.0
        else:
            scratch = {**entry, "metadata": dict(entry["metadata"])}  # some scorers write into their entry
            with redirect_stdout(None):  # some print what they think of an answer
                score = float(self._dataset(level).score_answer(answer, scratch))
        if score == 1.0:
            return 1.0
        return min(score, MAX_PARTIAL) if self.row.partial and score >= MIN_PARTIAL else 0.0

    def _usable(self, entry: Entry, kept: Entry) -> bool:
        """Where no level besides 0 is trained, also false for an entry whose own solution is not right."""
        if self.row.usable is not None and not self.row.usable(entry):
            return False
        if self.row.has_trained_levels or kept["answer"] is None:
            return True
        return self.score((DEFAULTS, kept), kept["answer"].strip()) == 1.0

    def _dataset(self, level: int) -> Any:
        if level not in self._datasets:
            import reasoning_gym

            config = self.row.levels.get(level, {})
            with warnings.catch_warnings(action="ignore"):  # it leaves files open
                made = reasoning_gym.create_dataset(self.row.name, seed=0, size=self.row.size, **config)
            if self.row.repair is not None:
                self.row.repair(made)
            self._datasets[level] = made
        return self._datasets[level]


@contextmanager
def _isolated(seed: int) -> Iterator[None]:
    """Run library code that prints, warns, changes the decimal context, or draws from the global generators."""
    import numpy

    states = random.getstate(), numpy.random.get_state()
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    try:
        silent = warnings.catch_warnings(action="ignore")
        with redirect_stdout(io.StringIO()), localcontext(Context()), silent:
            yield
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])


def _row(name: str, facts: Mapping[str, Any]) -> Row:
    """A row of the file, in which functions stand by their names in `gym_datasets` and `gym_scorers`."""
    code = vars(datasets) | vars(scorers)
    called = {key: code[facts[key]] for key in _FUNCTIONS if key in facts}
    levels = {int(level): config for level, config in facts.get("levels", {}).items()}
    return Row(name=name, **{**facts, **called, "levels": levels})


_PLAIN = {name: {"scorer": by} for by, names in _FILE["scored_by"].items() for name in names.split()}
_ROWS = [_row(name, facts) for name, facts in {**_FILE["tasks"], **_PLAIN}.items()]
ROWS = {
    PREFIX + row.name: row
    for row in sorted(_ROWS, key=lambda row: "" if row.has_trained_levels else row.name)
}
"""Every task of the library by its name here."""
