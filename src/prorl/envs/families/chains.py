"""Chains of operators: every operator is easy, and the level is how many follow one another.

A model that has seen short chains knows all the parts of a long one, but not how to keep going. So levels that were
shown, levels that are trained and levels that are never drawn are three different questions. All operators map
distinct states to distinct states, so final states are as evenly spread as the first ones: none is worth guessing.
"""

from collections.abc import Callable, Mapping
from itertools import accumulate, combinations
from random import Random
from typing import Any, ClassVar

from prorl.envs.base import Draft, ProceduralTask, draft

Operators = Mapping[str, Callable[[str], str]]


class Chain(ProceduralTask):
    """`run left inc:40731` asks for the state after all operators; the working shows each with the state after it.

    It begins with the state given, so that the first operator is applied to what stands as near as it does for all
    others: else most errors of a small model are in its first step, more of them the longer the chain.
    No state comes twice, so whoever stops early is never right. States differ in width, so that the length of a
    working does not say how many operators are done; with one width a small model counts tokens instead of operators.
    """

    levels, ood_levels = tuple(range(1, 15)), (15, 16)
    verb: str
    symbols: str
    widths: tuple[int, int]  # of a state, from and to
    operators: ClassVar[Operators]

    def generate(self, rng: Random, level: int) -> Draft:
        """Payload: the final state."""
        while True:
            start = "".join(rng.choices(self.symbols, k=rng.randint(*self.widths)))
            walk = [("", start)]
            while len(walk) <= level:
                reached = {name: operator(walk[-1][1]) for name, operator in self.operators.items()}
                seen = {state for _, state in walk}
                if not (fresh := [step for step in reached.items() if step[1] not in seen]):
                    break
                walk.append(rng.choice(fresh))
            else:
                names = " ".join(name for name, _ in walk[1:])
                steps = "".join(f" {name}{state}" for name, state in walk)
                return draft(f"{self.verb} {names}:{start}", walk[-1][1], steps, walk[-1][1])

    def score(self, payload: Any, answer: str) -> float:
        """1 for the final state, white space and case aside."""
        return float("".join(answer.split()).upper() == payload)


def _on_digits(function: Callable[[list[int]], list[int]]) -> Callable[[str], str]:
    """An operator on digits, taken modulo ten."""
    return lambda state: "".join(str(digit % 10) for digit in function([int(symbol) for symbol in state]))


def _each(function: Callable[[int], int]) -> Callable[[str], str]:
    return _on_digits(lambda digits: [function(digit) for digit in digits])


_MOVES: Operators = {
    "left": lambda state: state[1:] + state[0],
    "right": lambda state: state[-1] + state[:-1],
    "swap": lambda state: state[1] + state[0] + state[2:],
    "twist": lambda state: state[:-2] + state[-1] + state[-2],
}


class OperatorChain(Chain):
    """Moves and shifts of digits."""

    name, domain, verb, symbols, widths = "operator_chain", "logic", "run", "0123456789", (4, 8)
    operators: ClassVar[Operators] = {
        # Without `rev`, which a small base does not know of eight digits; what is never right is not learned.
        **_MOVES,
        "ends": lambda state: state[-1] + state[1:-1] + state[0],
        "inc": _each(lambda d: d + 1),
        "dec": _each(lambda d: d - 1),
        "flip": _each(lambda d: 9 - d),
        "jump": _each(lambda d: d + 5),
        "first": _on_digits(lambda digits: [digits[0] + 1, *digits[1:]]),
        "last": _on_digits(lambda digits: [*digits[:-1], digits[-1] + 1]),
    }


class DigitAlgebra(Chain):
    """Linear maps of digits modulo ten."""

    name, domain, verb, symbols, widths = "digit_algebra", "math", "calc", "0123456789", (4, 8)
    operators: ClassVar[Operators] = {
        "triple": _each(lambda d: 3 * d),
        "seven": _each(lambda d: 7 * d),
        "neg": _each(lambda d: -d),
        "five": _each(lambda d: d + 5),
        "sums": _on_digits(lambda digits: list(accumulate(digits))),
        "steps": _on_digits(lambda digits: [b - a for a, b in zip([0, *digits], digits, strict=False)]),
        "fold": _on_digits(lambda digits: [*digits[:-1], digits[0] + digits[-1]]),
        "shift": _MOVES["left"],
    }


def _add(place: int, number: int) -> Callable[[str], str]:
    return _on_digits(lambda digits: [d + number * (at == place) for at, d in enumerate(digits)])


def _exchange(one: int, other: int) -> Callable[[str], str]:
    """Exchanges the symbols at two places, the first of them given first."""
    return lambda s: s[:one] + s[other] + s[one + 1 : other] + s[one] + s[other + 1 :]


class VariableTrace(Chain):
    """Statements on the first of several variables of one digit: `a+=3` adds modulo ten, `a~b` exchanges."""

    name, domain, verb, symbols, widths = "variable_trace", "code", "trace", "0123456789", (4, 8)
    operators: ClassVar[Operators] = {
        **{f"{variable}+={k}": _add(place, k) for place, variable in enumerate("abcd") for k in (1, 3, 5)},
        **{f"{'abcd'[i]}~{'abcd'[j]}": _exchange(i, j) for i, j in combinations(range(4), 2)},
    }


def _bases(table: str) -> Callable[[str], str]:
    return lambda state: state.translate(str.maketrans("ACGT", table))


class StrandEdits(Chain):
    """What is done to a strand of bases; the complement is that of Watson and Crick."""

    name, domain, verb, symbols, widths = "strand_edits", "stem", "edit", "ACGT", (6, 9)
    operators: ClassVar[Operators] = {
        "comp": _bases("TGCA"),
        "purine": _bases("GTAC"),  # A ↔ G, C ↔ T: transitions
        "keto": _bases("CATG"),  # A ↔ C, G ↔ T
        "rev": lambda state: state[::-1],
        "left": _MOVES["left"],
        "right": _MOVES["right"],
        "halves": lambda state: state[len(state) // 2 :] + state[: len(state) // 2],
        "swap": _MOVES["swap"],
    }
