"""The other 91 tasks of reasoning-gym: one row each, at the library's default configuration, which is level 0.

ProRL trained on the 96 tasks that the library had in its first days; nine came later and are held out here, as
three of them are in the paper. With `domains/gym.py` these are all 105 tasks that are not compositions of others.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from prorl.envs.families import gym_repairs as repairs
from prorl.envs.families import gym_scorers as scorers
from prorl.envs.reasoning_gym import DEFAULTS, PREFIX, Config, Entry, ReasoningGym

Scorer = Callable[[Entry, str], float]

_HELD_OUT = (
    "puzzle24",
    "modulo_grid",
    "game_of_life_halting",
    "acre",
    "boxnet",
    "survo",
    "kakurasu",
    "coin_flip",
    "path_star",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A dataset of the library and how its answers are judged."""

    name: str
    scorer: Scorer | None = scorers.lines  # None: the library's own
    fields: tuple[str, ...] = ()  # metadata that the scorer reads
    partial: bool = False  # whether a score below 1 means partly right
    form: str | None = None  # what an answer must look like before the library's scorer sees it
    solution: Callable[[Entry], str | None] | None = None  # where it is not the entry's `answer`
    usable: Callable[[Entry], bool] | None = None
    repair: Callable[[Any], None] | None = None
    size: int = sys.maxsize
    item_bits: int = 63
    careless: bool = False
    rungs: Mapping[int, Config] = field(default_factory=dict)  # of a ladder, from level 1; never trained


def _from(field: str) -> Callable[[Entry], str | None]:
    return lambda entry: str(entry["metadata"][field])


def _colouring(entry: Entry) -> str:
    return json.dumps(
        {str(vertex): colour for vertex, colour in entry["metadata"]["possible_answer"].items()}
    )


def _squared_sine(entry: Entry) -> str:
    """Whether sympy finds sin² or -cos² for the integral of sin·cos depends on the hash seed: always sin²."""
    form = r"(-?)((?:[0-9]+\*)?)cos(\([^()]*\)\*\*2(?:/[0-9]+)? \+ C)"
    match = re.fullmatch(form, entry["answer"])
    return f"{'' if match[1] else '-'}{match[2]}sin{match[3]}" if match else str(entry["answer"])


def _is_changed(entry: Entry) -> bool:
    """Whether a rule applies: in a third of the library's items none does, and repeating the question is right."""
    return bool(entry["answer"] != entry["metadata"]["string"])


def _ran(entry: Entry) -> bool:
    """Whether codeio's program ran: the library gives two empty objects where it failed."""
    return bool(entry["metadata"]["input_data"]) and entry["metadata"]["output_data"] != {}


def _unsolved(entry: Entry) -> None:
    """The library knows no solution."""


_TURNS = r"(?:[LRDUBF]w?'?(?:\s+|$)){1,300}"

SOURCES = (
    Source(name="ab"),
    Source(name="acre", scorer=scorers.folded, repair=repairs.draw_blickets, size=10),
    Source(name="advanced_geometry", scorer=scorers.to_the_last_place),
    Source(name="aiw", scorer=scorers.number),
    Source(name="arc_1d"),
    Source(name="arc_agi"),
    Source(name="basic_arithmetic", scorer=scorers.number),
    Source(name="bf", careless=True),
    Source(name="binary_alternation", scorer=scorers.number),
    Source(name="binary_matrix"),
    Source(name="bitwise_arithmetic", scorer=scorers.hexadecimal),
    Source(
        name="boxnet",
        scorer=scorers.box_net,
        fields=("initial_state",),
        partial=True,
        solution=scorers.box_net_plan,
    ),
    Source(name="caesar_cipher"),
    Source(name="circuit_logic", scorer=scorers.number),
    Source(
        name="codeio", scorer=scorers.same_json, usable=_ran, repair=repairs.keep_pure_programs, careless=True
    ),
    Source(name="coin_flip", scorer=scorers.probability),
    Source(name="color_cube_rotation", scorer=scorers.folded),
    Source(name="complex_arithmetic", scorer=scorers.complex_number, fields=("result",)),
    Source(name="count_bits", scorer=scorers.number),
    Source(name="count_primes", scorer=scorers.number),
    Source(name="countdown", scorer=scorers.countdown, fields=("numbers", "target")),
    Source(name="course_schedule", scorer=scorers.folded),
    Source(name="cryptarithm", scorer=None, fields=("words_letters", "result_letters", "allow_leading_zero")),
    Source(name="decimal_arithmetic", scorer=scorers.within(1e-6), careless=True),
    Source(name="dice", scorer=scorers.compact),
    Source(name="emoji_mystery", scorer=None, partial=True),
    Source(name="figlet_font", scorer=scorers.folded),
    Source(name="futoshiki"),
    Source(name="game_of_life", scorer=scorers.same_json),
    Source(name="game_of_life_halting", scorer=scorers.folded),
    Source(name="gcd", scorer=scorers.number),
    Source(
        name="graph_color",
        scorer=None,
        fields=("puzzle",),
        solution=_colouring,
        rungs={n: {"min_num_vertices": n, "max_num_vertices": n} for n in range(6, 21, 2)},
    ),
    Source(name="group_anagrams", scorer=None, fields=("solution",)),
    Source(name="gsm_symbolic", scorer=scorers.number, repair=repairs.draw_templates, size=10_000),
    Source(
        name="intermediate_integration",
        scorer=scorers.antiderivative,
        fields=("integrand", "variable"),
        solution=_squared_sine,
    ),
    Source(name="isomorphic_strings", scorer=scorers.folded, repair=repairs.sort_letters),
    Source(name="jugs", scorer=None, fields=("puzzle",)),
    Source(
        name="kakurasu", scorer=None, fields=("row_sums", "col_sums", "n_rows", "n_cols"), form=r"[01\s]+"
    ),
    Source(
        name="knight_swap",
        scorer=None,
        fields=("board", "pieces", "start_turn", "solution", "is_possible"),
        partial=True,
        repair=repairs.order_knights,
    ),
    Source(name="largest_island", scorer=scorers.number),
    Source(name="leg_counting", scorer=scorers.number),
    Source(name="letter_counting", scorer=scorers.number),
    Source(name="letter_jumble", scorer=scorers.words, partial=True),
    Source(
        name="list_functions",
        scorer=scorers.compact,
        repair=repairs.draw_templates,
        size=10_000,
        careless=True,
    ),
    Source(name="mahjong_puzzle", scorer=scorers.folded),
    Source(name="manipulate_matrix"),
    Source(name="maze", scorer=scorers.number),
    Source(name="mini_sudoku"),
    Source(name="modulo_grid"),
    Source(name="n_queens", scorer=scorers.listed, fields=("valid_answers",)),
    Source(name="needle_haystack", scorer=scorers.folded),
    Source(name="number_format", scorer=scorers.within(1e-2)),
    Source(name="number_sorting", scorer=scorers.number_list),
    Source(name="palindrome_generation", scorer=None, fields=("letters",)),
    Source(name="palindrome_partitioning", scorer=None, fields=("solution",)),
    Source(name="path_star"),
    Source(name="polynomial_equations", scorer=scorers.roots),
    Source(name="polynomial_multiplication", scorer=scorers.polynomial, repair=repairs.sort_monomials),
    Source(name="pool_matrix", scorer=scorers.matrix, item_bits=31, careless=True),
    Source(name="power_function", scorer=scorers.within_share(5e-3)),
    Source(name="prime_factorization", scorer=scorers.factors),
    Source(
        name="propositional_logic",
        scorer=scorers.conclusion,
        fields=("premises", "variables"),
        solution=_from("example_answer"),
        usable=scorers.consistent,
    ),
    Source(name="puzzle24", scorer=scorers.twenty_four, fields=("numbers",)),
    Source(
        name="quantum_lock",
        scorer=None,
        fields=("buttons", "initial_state", "initial_value", "target_value"),
        partial=True,
        form=r"[ABC→>,\s-]+",
    ),
    Source(name="ransom_note", scorer=scorers.folded, repair=repairs.sort_letters),
    Source(name="rearc"),
    Source(name="rectangle_count", scorer=scorers.number),
    Source(name="rotate_matrix"),
    Source(name="rotten_oranges", scorer=scorers.number),
    Source(
        name="rubiks_cube",
        scorer=None,
        fields=("cube_size", "scramble_moves"),
        form=_TURNS,
        solution=_from("example_correct_answer"),
    ),
    Source(name="rush_hour", scorer=scorers.rush_hour, fields=("board_config",), solution=_unsolved),
    Source(name="self_reference", scorer=scorers.number),
    Source(name="sentence_reordering", scorer=scorers.words, partial=True),
    Source(name="shortest_path", scorer=None, fields=("matrix",), partial=True),
    Source(name="simple_equations", scorer=scorers.number),
    Source(name="simple_integration", scorer=scorers.antiderivative, fields=("integrand", "variable")),
    Source(name="sokoban", scorer=None, fields=("gamestr",), form=r"[LRUD]{1,1000}"),
    Source(name="spiral_matrix"),
    Source(name="string_insertion"),
    Source(name="string_manipulation", usable=_is_changed),
    Source(name="string_splitting"),
    Source(name="string_synthesis"),
    Source(name="sudoku"),
    Source(name="survo", scorer=scorers.survo, fields=("puzzle", "candidate_numbers")),
    Source(name="syllogism", scorer=scorers.folded),
    Source(
        name="tower_of_hanoi",
        scorer=None,
        fields=("num_disks", "num_pegs", "start_peg", "target_peg", "solution_length"),
        partial=True,
    ),
    Source(name="tsumego", scorer=scorers.folded),
    Source(
        name="word_ladder",
        scorer=None,
        fields=("start_word", "end_word"),
        repair=repairs.sort_neighbours,
        size=1,
    ),
    Source(name="word_sequence_reversal", scorer=scorers.compact),
    Source(name="word_sorting", scorer=scorers.words, partial=True),
    Source(name="zebra_puzzles", scorer=scorers.folded),
)


class LibraryTask(ReasoningGym):
    """A dataset at the library's default configuration, trained or, for the nine late ones, only measured."""

    domain = "logic"
    source: ClassVar[Source]

    def steps(self, entry: Entry) -> str:
        """None at the library's default configuration."""
        return ""

    def solution(self, entry: Entry) -> str | None:
        """The entry's answer, or what the row makes of its metadata."""
        return self.source.solution(entry) if self.source.solution else super().solution(entry)

    def usable(self, entry: Entry) -> bool:
        """Also false for an entry whose own solution is not right by the scorer."""
        if self.source.usable is not None and not self.source.usable(entry):
            return False
        solution = self.solution(entry)
        return solution is None or self.score((DEFAULTS, self.kept(entry)), solution.strip()) == 1.0

    def repair(self, dataset: Any) -> None:
        """As the row says."""
        if self.source.repair is not None:
            self.source.repair(dataset)

    def score(self, payload: Any, answer: str) -> float:
        """The row's scorer, or the library's on an answer of the row's form."""
        if self.source.scorer is not None:
            return self.counted(self.source.scorer(payload[1], answer))
        if self.source.form is not None and not re.fullmatch(self.source.form, answer):
            return 0.0
        return super().score(payload, answer)


def _task(row: Source) -> type[LibraryTask]:
    """The task of one row."""
    held_out = row.name in _HELD_OUT

    class Task(LibraryTask):
        __doc__ = f"`{row.name}` of reasoning-gym."
        source = row
        configs: ClassVar = MappingProxyType({DEFAULTS: {}, **row.rungs})
        name = PREFIX + row.name
        levels: ClassVar = () if held_out else (DEFAULTS,)
        ood_levels: ClassVar = (DEFAULTS,) if held_out else ()
        scored_fields, partial_credit = row.fields, row.partial
        careless, item_bits, size = row.careless, row.item_bits, row.size

    return Task


LIBRARY_TASKS = tuple(_task(row) for row in SOURCES)
HELD_OUT_9 = tuple(PREFIX + name for name in _HELD_OUT)
