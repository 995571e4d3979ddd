"""The reasoning-gym tasks with short questions and working: a level ladder by configuration, from level 1.

None has a scorer that evaluates the answer as code, none depends on the interpreter's hash seed, and none pays a
constant answer well. Out-of-domain levels are larger sizes whose questions no level of the ladder can draw. Level
0, the library's default configuration, is for runs that train on the library as ProRL did: it must be asked for.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from itertools import accumulate
from math import gcd
from typing import Any, ClassVar

from prorl.envs.families.gym_repairs import stop_large_sequences
from prorl.envs.reasoning_gym import Entry, ReasoningGym

_CLOCK = r"[0-9]+:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?"
_DURATION = re.compile(rf"[0-9]+(?: days?)?|(?:[0-9]+ days?, ?)?{_CLOCK}")


class ChainSum(ReasoningGym):
    """Sums and differences of whole numbers; the working is the running total."""

    name, domain = "rg_chain_sum", "math"
    levels, ood_levels = (0, 1, 2, 3), (4,)
    configs: ClassVar = {
        0: {},
        1: {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
        2: {"min_terms": 3, "max_terms": 3, "min_digits": 1, "max_digits": 2},
        3: {"min_terms": 4, "max_terms": 4, "min_digits": 1, "max_digits": 2},
        4: {"min_terms": 5, "max_terms": 6, "min_digits": 1, "max_digits": 2},
    }

    def steps(self, entry: Entry) -> str:
        """Totals after each term but the first and the last."""
        return _running_totals(entry["metadata"]["expression"])


class DecimalChainSum(ReasoningGym):
    """Sums and differences of decimal numbers; the working is the running total."""

    name, domain = "rg_decimal_chain_sum", "math"
    levels, ood_levels = (0, 1, 2), (3,)
    configs: ClassVar = {
        0: {},
        1: {"max_terms": 2, "max_digits": 1, "max_decimal_places": 1},
        2: {"min_terms": 3, "max_terms": 3, "max_digits": 1, "max_decimal_places": 1},
        3: {"min_terms": 4, "max_terms": 4, "max_digits": 2, "max_decimal_places": 1},
    }

    def steps(self, entry: Entry) -> str:
        """Totals after each term but the first and the last."""
        return _running_totals(entry["metadata"]["expression"])


class Products(ReasoningGym):
    """Products of two numbers; the working is the partial products of long multiplication."""

    name, domain = "rg_products", "math"
    levels, ood_levels = (0, 1), (2,)
    configs: ClassVar = {0: {}, 1: {"min_digits": 2, "max_digits": 2}, 2: {"min_digits": 3, "max_digits": 3}}

    def steps(self, entry: Entry) -> str:
        """The left factor times each digit of the right one, highest first: `47*23` gives `940+141`."""
        left, right = entry["metadata"]["expression"].split(" * ")
        places = range(len(right) - 1, -1, -1)
        parts = (int(left) * int(digit) * 10**place for digit, place in zip(right, places, strict=True))
        return "+".join(map(str, parts))


class Lcm(ReasoningGym):
    """Least common multiple of two numbers; the working names their greatest common divisor."""

    name, domain = "rg_lcm", "math"
    levels, ood_levels = (0, 1, 2), (3,)
    configs: ClassVar = {
        0: {},
        1: {"min_value": 4, "max_value": 20},
        2: {"min_value": 10, "max_value": 40},
        3: {"min_value": 41, "max_value": 99},
    }

    def steps(self, entry: Entry) -> str:
        """`24, 18` gives `gcd 6 4*18`."""
        left, right = entry["metadata"]["numbers"]
        divisor = gcd(left, right)
        return f"gcd {divisor} {left // divisor}*{right}"


class FractionSimplification(ReasoningGym):
    """Fractions to lowest terms; the working is the common factor."""

    name, domain = "rg_fraction_simplification", "math"
    levels, ood_levels = (0, 1, 2), (3,)
    configs: ClassVar = {
        0: {},
        1: {"min_value": 2, "max_value": 12, "min_factor": 2, "max_factor": 9, "styles": ("plain",)},
        2: {"min_value": 2, "max_value": 20, "min_factor": 2, "max_factor": 20, "styles": ("plain",)},
        3: {"min_value": 21, "max_value": 60, "min_factor": 2, "max_factor": 9, "styles": ("plain",)},
    }
    scored_fields = ("numerator", "denominator", "simplified_numerator", "simplified_denominator")

    def usable(self, entry: Entry) -> bool:
        """The library's last resort after ten bad draws does not reduce the answer."""
        metadata = entry["metadata"]
        return gcd(metadata["simplified_numerator"], metadata["simplified_denominator"]) == 1

    def score(self, payload: Any, answer: str) -> float:
        """The library's, which reads the first fraction anywhere: a list of candidates is wrong."""
        return super().score(payload, answer) if len(re.findall(r"\d+", answer)) == 2 else 0.0

    def steps(self, entry: Entry) -> str:
        """`8/12` gives `/4`."""
        return f"/{entry['metadata']['factor']}"


class BaseConversion(ReasoningGym):
    """Numbers from one base to another; the working is the number in base ten."""

    name, domain = "rg_base_conversion", "code"
    levels, ood_levels = (0, 1, 2), (3,)
    configs: ClassVar = {
        0: {},
        1: {"min_base": 8, "max_base": 10, "min_value": 8, "max_value": 63},
        2: {"min_base": 2, "max_base": 10, "min_value": 8, "max_value": 99},
        3: {"min_base": 11, "max_base": 16, "min_value": 16, "max_value": 99},
    }

    def steps(self, entry: Entry) -> str:
        """The value in base ten."""
        return str(entry["metadata"]["decimal_value"])


class SpellBackward(ReasoningGym):
    """Words spelled backward, with credit for each letter in place; the working spells the word out."""

    name, domain = "rg_spell_backward", "code"
    levels, ood_levels = (0, 1, 2, 3), (4,)
    configs: ClassVar = {
        0: {},
        1: {"min_word_len": 3, "max_word_len": 4},
        2: {"min_word_len": 5, "max_word_len": 6},
        3: {"min_word_len": 7, "max_word_len": 8},
        4: {"min_word_len": 9, "max_word_len": 10},
    }
    partial_credit = True

    def steps(self, entry: Entry) -> str:
        """`sun` gives `s u n`."""
        return " ".join(entry["metadata"]["word"])


class NumberFiltering(ReasoningGym):
    """The numbers of a list that lie above or below a bound; the working compares each one with it."""

    name, domain = "rg_number_filtering", "code"
    levels, ood_levels = (0, 1, 2), (3,)
    configs: ClassVar = {
        0: {},
        1: {"min_numbers": 3, "max_numbers": 4, "max_decimals": 0, "min_value": 0, "max_value": 30},
        2: {"min_numbers": 5, "max_numbers": 5, "max_decimals": 0, "min_value": -30, "max_value": 30},
        3: {"min_numbers": 6, "max_numbers": 7, "max_decimals": 0, "min_value": -30, "max_value": 30},
    }

    def steps(self, entry: Entry) -> str:
        """Each number with the sign of its comparison with the bound: `19> 6< 11=`."""
        bound = float(entry["metadata"]["filter_value"])
        numbers = entry["metadata"]["original_numbers"]
        return " ".join(f"{text}{_sign(float(text), bound)}" for text in numbers)


class TimeIntervals(ReasoningGym):
    """How long something took; the working subtracts in minutes, seconds or days."""

    name, domain = "rg_time_intervals", "stem"
    levels, ood_levels = (0, 1, 2, 3), (4,)
    configs: ClassVar = {
        0: {},
        1: {"task_types": ["time"], "max_time_difference_seconds": 2 * 3600},
        2: {"task_types": ["time"], "max_time_difference_seconds": 12 * 3600},
        3: {"task_types": ["time_seconds"], "max_time_difference_seconds": 3600},
        4: {"task_types": ["date"], "max_date_difference_days": 60},
    }
    scored_fields = ("task_type",)
    scorer_raises = (OverflowError,)  # a duration of hundreds of digits

    def score(self, payload: Any, answer: str) -> float:
        """The library's, which reads the first duration and no further: a list of candidates is wrong."""
        return super().score(payload, answer) if _DURATION.fullmatch(answer) else 0.0

    def steps(self, entry: Entry) -> str:
        """`13:28 to 13:44` gives `824-808`, in minutes of the day; empty for dates."""
        metadata = entry["metadata"]
        if metadata["task_type"] == "date":
            return ""
        start, end = (datetime.fromisoformat(metadata[key]) for key in ("start_time", "end_time"))
        midnight = start.replace(hour=0, minute=0, second=0)
        unit = 60 if metadata["task_type"] == "time" else 1
        since = [int((moment - midnight).total_seconds()) // unit for moment in (end, start)]
        return f"{since[0]}-{since[1]}"


class CalendarArithmetic(ReasoningGym):
    """The weekday some days before or after a date; the working is the offset within the week."""

    name, domain = "rg_calendar_arithmetic", "stem"
    levels, ood_levels = (0, 1, 2), (3,)
    configs: ClassVar = {
        0: {},
        1: {"tasks": ["weekday_offset"], "offset_upper_bound": 9},
        2: {"tasks": ["weekday_offset"], "offset_upper_bound": 30},
        3: {"tasks": ["weekday_offset"], "offset_upper_bound": 60, "year": 2023},
    }
    scored_fields = ("task",)

    def steps(self, entry: Entry) -> str:
        """The start and whole weeks taken off the offset: `Monday+3`."""
        start = datetime.fromisoformat(entry["metadata"]["start_date"])
        return f"{start:%A}{_within_week(entry['metadata']['offset_days']):+d}"


class SimpleGeometry(ReasoningGym):
    """The last angle of a polygon; the working is the angles' total and what it is taken from."""

    name, domain = "rg_simple_geometry", "stem"
    levels, ood_levels = (0, 1, 2), (3,)
    configs: ClassVar = {
        0: {},
        1: {"min_sides": 3, "max_sides": 3},
        2: {"min_sides": 4, "max_sides": 4},
        3: {"min_sides": 5, "max_sides": 5},
    }

    def steps(self, entry: Entry) -> str:
        """`86, 24` gives `180-110`."""
        metadata = entry["metadata"]
        return f"{metadata['total_interior_sum']}-{metadata['sum_of_known_angles']:g}"


class NumberSequence(ReasoningGym):
    """The next number of a sequence; the working is the rule. Out of domain are longer sequences."""

    name, domain = "rg_number_sequence", "logic"
    levels, ood_levels = (0, 1, 2), (3,)
    configs: ClassVar = {
        0: {},
        1: {"min_terms": 4, "max_terms": 5, "max_complexity": 1},
        2: {"min_terms": 4, "max_terms": 5, "max_complexity": 2},
        3: {"min_terms": 6, "max_terms": 6, "max_complexity": 2},
    }

    def repair(self, dataset: Any) -> None:
        """Without this, one item in a hundred takes most of a minute."""
        stop_large_sequences(dataset)

    def usable(self, entry: Entry) -> bool:
        """Three in ten sequences have run into a fixed point, mostly 0, where repeating the last term is right."""
        *_, last, answer = entry["metadata"]["sequence"]
        return bool(last != answer)

    def steps(self, entry: Entry) -> str:
        """The library's words for the rule."""
        return str(entry["metadata"]["rule"])


class FamilyRelationships(ReasoningGym):
    """What two people of a described family are to each other."""

    name, domain = "rg_family_relationships", "logic"
    levels, ood_levels = (0, 1, 2), (3,)
    configs: ClassVar = {
        0: {},
        1: {"min_family_size": 4, "max_family_size": 4},
        2: {"min_family_size": 5, "max_family_size": 6},
        3: {"min_family_size": 7, "max_family_size": 8},
    }

    def steps(self, entry: Entry) -> str:
        """None: the story is the working."""
        return ""


class KnightsKnaves(ReasoningGym):
    """Who always lies: the one task here with questions of 400 characters and more."""

    name, domain = "rg_knights_knaves", "logic"
    levels, ood_levels = (0, 1), (2,)
    configs: ClassVar = {0: {}, 1: {"n_people": 2}, 2: {"n_people": 3}}

    def steps(self, entry: Entry) -> str:
        """None: the answer already goes from person to person."""
        return ""


def _running_totals(expression: str) -> str:
    first, *rest = expression.split(" ")
    signed = [
        Decimal(first),
        *(Decimal(sign + term) for sign, term in zip(rest[::2], rest[1::2], strict=True)),
    ]
    return " ".join(str(total) for total in list(accumulate(signed))[1:-1])


def _sign(value: float, bound: float) -> str:
    if value == bound:
        return "="
    return ">" if value > bound else "<"


def _within_week(days: int) -> int:
    return days % 7 if days >= 0 else -(-days % 7)
