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

from __future__ import annotations

import io
import random
import re
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import KW_ONLY, dataclass
from decimal import Context, localcontext
from math import gcd
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

_LEVELS = tomllib.loads(Path(__file__).with_name("gym_levels.toml").read_text(encoding="utf-8"))
_NEW = "puzzle24", "modulo_grid", "game_of_life_halting", "acre", "boxnet", "survo", "kakurasu", "coin_flip"
HELD_OUT_9 = tuple(PREFIX + name for name in (*_NEW, "path_star"))
"""The tasks that are only measured: the library had not them yet when ProRL trained on the other 96."""


def _answer(entry: Entry) -> str | None:
    return None if entry["answer"] is None else str(entry["answer"])


@dataclass(frozen=True, slots=True)
class Row:
    """A dataset of the library, and how its answers are judged."""

    name: str
    scorer: Scorer | None = None  # None: the library's own
    _: KW_ONLY
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

    @property
    def levels(self) -> Mapping[int, Mapping[str, Any]]:
        """The configurations besides level 0, by level."""
        return {int(level): config for level, config in _LEVELS.get(self.name, {}).items()}

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

        Raises:
            ValueError: the dataset yields no usable entry.
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


_DIGITS = "[0-9]{1,99}"  # the scorer divides integers, which a float must hold
_CLOCK = rf"{_DIGITS}:[0-9]{{2}}(?::[0-9]{{2}}(?:\.{_DIGITS})?)?"
_DURATION = rf"{_DIGITS}(?: days?)?|(?:{_DIGITS} days?, ?)?{_CLOCK}"
_TURNS = r"(?:[LRDUBF]w?'?(?:\s+|$)){1,300}"
_REDUCED = ("simplified_numerator", "simplified_denominator")
_INTEGRAL = "integrand variable"
_SWAP, _LOCK = (
    "board pieces start_turn solution is_possible",
    "buttons initial_state initial_value target_value",
)

_WITH_LEVELS = (
    Row("chain_sum", domain="math", steps=datasets.running_totals),
    Row("decimal_chain_sum", domain="math", steps=datasets.running_totals),
    Row("products", domain="math"),
    Row("lcm", domain="math", steps=datasets.common_divisor),
    Row(
        "fraction_simplification",
        domain="math",
        fields="numerator denominator simplified_numerator simplified_denominator",
        form=r"\D*\d+\D+\d+\D*",  # the scorer reads the first fraction anywhere: a list of candidates is wrong
        usable=lambda entry: gcd(*map(entry["metadata"].get, _REDUCED)) == 1,  # not so after ten bad draws
    ),
    Row("base_conversion", domain="code"),
    Row(
        "spell_backward", domain="code", partial=True, steps=lambda entry: " ".join(entry["metadata"]["word"])
    ),
    Row("number_filtering", domain="code"),
    # the scorer reads the first duration and no further
    Row("time_intervals", domain="stem", fields="task_type", form=_DURATION),
    Row("calendar_arithmetic", domain="stem", fields="task"),
    Row("simple_geometry", domain="stem"),
    Row(
        "number_sequence",
        # three in ten have run into a fixed point, mostly 0, where repeating the last term is right
        usable=lambda entry: entry["metadata"]["sequence"][-1] != entry["metadata"]["sequence"][-2],
        repair=datasets.stop_large_sequences,
    ),
    Row("family_relationships"),
    Row("knights_knaves"),
)

# datasets of which nothing need be said but how their answers are scored
_PLAIN: Mapping[Scorer, str] = {
    scorers.lines: """ab arc_1d arc_agi binary_matrix caesar_cipher futoshiki manipulate_matrix mini_sudoku
        modulo_grid path_star rearc rotate_matrix spiral_matrix string_insertion string_splitting
        string_synthesis sudoku""",
    scorers.folded: """color_cube_rotation course_schedule figlet_font game_of_life_halting mahjong_puzzle
        needle_haystack syllogism tsumego zebra_puzzles""",
    scorers.compact: "dice word_sequence_reversal",
    scorers.same_json: "game_of_life",
    scorers.number: """aiw basic_arithmetic binary_alternation circuit_logic count_bits count_primes gcd
        largest_island leg_counting letter_counting maze rectangle_count rotten_oranges self_reference
        simple_equations""",
    scorers.to_the_last_place: "advanced_geometry",
    scorers.hexadecimal: "bitwise_arithmetic",
    scorers.probability: "coin_flip",
    scorers.within(1e-2): "number_format",
    scorers.number_list: "number_sorting",
    scorers.roots: "polynomial_equations",
    scorers.within(5e-3, relative=True): "power_function",
    scorers.factors: "prime_factorization",
}
_SPECIAL = (
    Row("acre", scorers.folded, repair=datasets.draw_blickets, size=10),
    Row("bf", scorers.lines, careless=True),
    Row("boxnet", scorers.box_net, fields="initial_state", partial=True, solution=scorers.box_net_plan),
    Row(
        "codeio",
        scorers.same_json,
        # the library gives two empty objects where the program failed
        usable=lambda entry: entry["metadata"]["input_data"] and entry["metadata"]["output_data"] != {},
        repair=datasets.keep_pure_programs,
        careless=True,
    ),
    Row("complex_arithmetic", scorers.complex_number, fields="result"),
    Row("countdown", scorers.countdown, fields="numbers target"),
    Row("cryptarithm", fields="words_letters result_letters allow_leading_zero"),
    Row("decimal_arithmetic", scorers.within(1e-6), careless=True),
    Row("emoji_mystery", partial=True),
    Row("graph_color", fields="puzzle", solution=datasets.colouring),
    Row("group_anagrams", fields="solution"),
    Row("gsm_symbolic", scorers.number, repair=datasets.draw_templates, size=10_000),
    Row("intermediate_integration", scorers.antiderivative, fields=_INTEGRAL, solution=datasets.squared_sine),
    Row("isomorphic_strings", scorers.folded, repair=datasets.sort_letters),
    Row("jugs", fields="puzzle"),
    Row("kakurasu", fields="row_sums col_sums n_rows n_cols", form=r"[01\s]+"),
    Row("knight_swap", fields=_SWAP, partial=True, repair=datasets.order_knights),
    Row("letter_jumble", scorers.words, partial=True),
    Row("list_functions", scorers.compact, repair=datasets.draw_templates, size=10_000, careless=True),
    Row("n_queens", scorers.listed, fields="valid_answers"),
    Row("palindrome_generation", fields="letters"),
    Row("palindrome_partitioning", fields="solution"),
    Row("polynomial_multiplication", scorers.polynomial, repair=datasets.sort_monomials),
    Row("pool_matrix", scorers.matrix, item_bits=31, careless=True),
    Row(
        "propositional_logic",
        scorers.conclusion,
        fields="premises variables",
        solution=lambda entry: str(entry["metadata"]["example_answer"]),
        usable=scorers.models,
    ),
    Row("puzzle24", scorers.countdown, fields="numbers"),
    Row("quantum_lock", fields=_LOCK, partial=True, form=r"[ABC→>,\s-]+"),
    Row("ransom_note", scorers.folded, repair=datasets.sort_letters),
    Row(
        "rubiks_cube",
        fields="cube_size scramble_moves",
        form=_TURNS,
        solution=lambda entry: str(entry["metadata"]["example_correct_answer"]),
    ),
    Row("rush_hour", scorers.rush_hour, fields="board_config", solution=lambda entry: None),
    Row("sentence_reordering", scorers.words, partial=True),
    Row("shortest_path", fields="matrix", partial=True),
    Row("simple_integration", scorers.antiderivative, fields=_INTEGRAL),
    Row("sokoban", fields="gamestr", form=r"[LRUD]{1,1000}"),
    Row(
        "string_manipulation",
        scorers.lines,
        # in a third of the library's items no rule applies, and repeating the question is right
        usable=lambda entry: entry["answer"] != entry["metadata"]["string"],
    ),
    Row("survo", scorers.survo, fields="puzzle candidate_numbers"),
    Row("tower_of_hanoi", fields="num_disks num_pegs start_peg target_peg solution_length", partial=True),
    Row("word_ladder", fields="start_word end_word", repair=datasets.sort_neighbours, size=1),
    Row("word_sorting", scorers.words, partial=True),
)


_UNLEVELLED = (*_SPECIAL, *(Row(name, by) for by, names in _PLAIN.items() for name in names.split()))
ROWS = {PREFIX + row.name: row for row in (*_WITH_LEVELS, *sorted(_UNLEVELLED, key=lambda row: row.name))}
"""Every task of the library by its name here."""
