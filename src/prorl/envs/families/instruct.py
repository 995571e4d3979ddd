"""Instruction following: write words from a small vocabulary under constraints, scored by the share satisfied.

The number of words is the shape of the answer, not one of the constraints: another number of words, a word
outside the vocabulary or mixed separators score 0, so that a stock answer earns next to nothing. Constraints are
read off a witness and so can all be satisfied at once. Two kinds appear out of domain only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Any

from prorl.envs.base import Draft, ProceduralTask
from prorl.envs.types import Witness

_VOCABULARY = (
    "ant ape arm axe bat bed bee bird boat bus cap cat corn cow cup dog door duck egg elk fan fig fish fox frog "
    "goat gum hat hen ice ink jam jar key kid kite lamp leaf log map milk moon mug nest net nut oak owl pan pig "
    "pot rain rat rope rug sea ship sun tea toad tree van wolf yak"
)
WORDS = tuple(_VOCABULARY.split())
SEPARATORS = " ;,/-"
AVOIDABLE = (
    "abeginoprstu"  # letters common enough in the vocabulary that a stock answer often breaks the rule
)

NAMING = ("start", "end", "has")  # these name a word, so no stock answer satisfies them
STYLING = ("no", "sorted", "caps", "sep")
HELD_OUT = ("len", "desc")
ORDERS = frozenset({"sorted", "desc"})

Constraint = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A well-formed answer: vocabulary words as written, and what stands between them."""

    words: tuple[str, ...]
    separator: str

    @property
    def lower(self) -> tuple[str, ...]:
        """The words in lower case."""
        return tuple(word.lower() for word in self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """What a level draws from: word counts, and how many constraints of each sort."""

    counts: tuple[int, ...]
    naming: tuple[int, ...]
    styling: tuple[int, ...]
    held_out: tuple[int, ...] = (0,)


LADDER = (
    Rung(counts=(2, 3), naming=(1,), styling=(0,)),
    Rung(counts=(2, 3, 4), naming=(1,), styling=(1,)),
    Rung(counts=(3, 4, 5), naming=(1, 2), styling=(1, 2)),
    Rung(counts=(3, 4, 5), naming=(2, 3), styling=(3,)),
    Rung(counts=(2, 3, 4), naming=(1,), styling=(0, 1), held_out=(1,)),
)


class WordList(ProceduralTask):
    """`3 words: start dog, no e` asks for three words; the score is the share of the constraints that hold."""

    name = "word_list"
    domain = "instruct"
    levels = (1, 2, 3)
    ood_levels = (4, 5)

    def generate(self, rng: Random, level: int) -> Draft:
        """The working is the answer's skeleton: the words that the prompt names, in place."""
        rung = LADDER[level - 1]
        kinds = _draw_kinds(rng, rung)
        words = _draw_words(rng, rng.choice(rung.counts), kinds)
        constraints = tuple((kind, _read_off(rng, kind, words)) for kind in kinds)
        named = {argument.split()[0] for kind, argument in constraints if kind in NAMING}
        return Draft(
            prompt=f"{len(words)} words: {', '.join(map(_phrase, constraints))}",
            payload=(len(words), constraints),
            witness=Witness(
                steps=" ".join(word if word in named else "_" for word in words),
                answer=_write(words, dict(constraints)),
            ),
        )

    def score(self, payload: Any, answer: str) -> float:
        """The share of constraints satisfied; 0 unless the answer is the asked number of vocabulary words."""
        count, constraints = payload
        parsed = parse_answer(answer)
        if parsed is None or len(parsed.words) != count:
            return 0.0
        return sum(holds(constraint, parsed) for constraint in constraints) / len(constraints)


def parse_answer(text: str) -> Answer | None:
    """Vocabulary words with the same single separator between all of them; None for anything else."""
    gaps = {gap.strip() or " " for gap in re.findall(r"[^A-Za-z]+", text)}
    separator = gaps.pop() if gaps else " "
    words = tuple(re.split(r"[^A-Za-z]+", text))
    if gaps or separator not in SEPARATORS or len(separator) != 1:
        return None
    if any(word.lower() not in WORDS for word in words):
        return None
    return Answer(words=words, separator=separator)


def holds(constraint: Constraint, answer: Answer) -> bool:
    """Whether a well-formed answer satisfies one constraint; the case of letters matters to `caps` only.

    Raises:
        ValueError: a kind of constraint that does not exist.
    """
    kind, argument = constraint
    words = answer.lower
    match kind:
        case "start":
            return words[0] == argument
        case "end":
            return words[-1] == argument
        case "has":
            word, times = argument.split()
            return words.count(word) == int(times)
        case "no":
            return all(argument not in word for word in words)
        case "sorted":
            return list(words) == sorted(words)
        case "desc":
            return list(words) == sorted(words, reverse=True)
        case "caps":
            return all(word.isupper() for word in answer.words)
        case "sep":
            return answer.separator == argument
        case "len":
            return all(len(word) == int(argument) for word in words)
    raise ValueError(f"no constraint kind {kind!r}; there are {', '.join(NAMING + STYLING + HELD_OUT)}")


def _draw_kinds(rng: Random, rung: Rung) -> list[str]:
    held_out = rng.sample(HELD_OUT, rng.choice(rung.held_out))
    orders = ORDERS.intersection(held_out)
    styling = [kind for kind in STYLING if not (orders and kind in ORDERS)]
    naming = rng.sample(NAMING, rng.choice(rung.naming))
    return naming + rng.sample(styling, rng.choice(rung.styling)) + held_out


def _draw_words(rng: Random, count: int, kinds: list[str]) -> list[str]:
    vocabulary = WORDS
    if "len" in kinds:
        length = rng.choice((3, 4))
        vocabulary = tuple(word for word in WORDS if len(word) == length)
    while True:
        words = [rng.choice(vocabulary) for _ in range(count)]
        if "has" in kinds and rng.random() < 0.5:
            words[0] = words[-1]
        rng.shuffle(words)
        if ORDERS.intersection(kinds):
            words.sort(reverse="desc" in kinds)
        if "no" not in kinds or _avoided(words):
            return words


def _avoided(words: list[str]) -> list[str]:
    return [letter for letter in AVOIDABLE if not any(letter in word for word in words)]


def _read_off(rng: Random, kind: str, words: list[str]) -> str:
    """The argument with which the witness satisfies a constraint of this kind."""
    match kind:
        case "start":
            return words[0]
        case "end":
            return words[-1]
        case "has":
            word = max(words, key=words.count)
            return f"{word} {words.count(word)}"
        case "no":
            return rng.choice(_avoided(words))
        case "sep":
            return rng.choice(SEPARATORS.strip())
        case "len":
            return str(len(words[0]))
    return ""


def _phrase(constraint: Constraint) -> str:
    return " ".join(constraint).strip()


def _write(words: list[str], arguments: dict[str, str]) -> str:
    text = arguments.get("sep", " ").join(words)
    return text.upper() if "caps" in arguments else text
