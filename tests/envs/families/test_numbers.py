"""Numbers, expressions and quantities: by hand, by substitution, and against answers that look right and are not.

What every task promises (solutions, splits, baselines, hostile texts) is in `test_contract.py`.
"""

import re
from collections import Counter
from fractions import Fraction
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.families import numbers
from prorl.envs.families.numbers import (
    HELD_OUT_LAWS,
    TRAINED_LAWS,
    Arithmetic,
    Countdown,
    LinearEquation,
    PhysicalLaw,
    convert,
)
from prorl.envs.verifiers.quantity import unit_of

INTEGERS = (Arithmetic(), LinearEquation())
LAWS = PhysicalLaw()


def levels_of(*tasks):
    settings = [(task, level) for task in tasks for level in task.all_levels]
    return pytest.mark.parametrize(
        ("task", "level"), settings, ids=lambda value: getattr(value, "name", value)
    )


def drafts(task, level, count=100):
    rng = Random(level)
    return [task.generate(rng, level) for _ in range(count)]


@levels_of(*INTEGERS)
def test_an_integer_scores_one_and_its_neighbours_and_other_texts_zero(task, level):
    for draft in drafts(task, level):
        right = int(draft.solution.answer)
        assert task.score(draft.payload, f" {right}\n") == 1
        texts = (draft.prompt, draft.solution.steps, f"{right} {right}", f"{right}+0", f"{right}.0", "")
        for wrong in (str(right + 1), str(right - 1), *texts):
            assert task.score(draft.payload, wrong) == 0


@levels_of(*INTEGERS, Countdown(), LAWS)
def test_no_constant_answer_pays_and_problems_vary(task, level):
    batch = drafts(task, level, 500)
    assert Counter(draft.solution.answer for draft in batch).most_common(1)[0][1] < 0.1 * len(batch)
    assert len({draft.prompt for draft in batch}) > 0.8 * len(batch)


@levels_of(Arithmetic())
def test_every_equation_of_a_working_is_true(task, level):
    for draft in drafts(task, level):
        for step in draft.solution.steps.split(";"):
            first, second, total = re.fullmatch(r"(-?\d+)([-+]\d+)=(-?\d+)", step).groups()
            assert int(first) + int(second) == int(total)


@pytest.mark.parametrize(
    ("task", "payload", "answer", "score"),
    [
        (Arithmetic(), (16, 67, -53), "30", 1),
        (Arithmetic(), (16, 67), "16+67", 0),
        (Arithmetic(), (-1151,), "$-1151$", 1),
        (Arithmetic(), (-1151,), "−1151", 1),
        (Countdown(), ((4, 6, 8, 3), 26), r"4 \times (8−3)+6", 1),
        (LinearEquation(), (2, 16, 0, -8), "-12", 1),  # 2x+16=-8
        (LinearEquation(), (3, 16, 5, -8), "12", 1),  # 3x+16=5x-8
        (LinearEquation(), (3, 16, 5, -8), "x=12", 0),
        (Countdown(), ((4, 6, 8, 3), 26), "4*6+8-6", 0),  # 6 twice, 3 not at all
        (Countdown(), ((4, 6, 8, 3), 26), "4*8-6", 0),  # 26, but 3 is not used
        (Countdown(), ((4, 6, 8, 3), 26), "26", 0),
        (Countdown(), ((4, 6, 8, 3), 26), "(4*8-6)*3/3", 0),
        (Countdown(), ((4, 6, 8, 3), 26), "4*(8-3)+6", 1),
        (Countdown(), ((4, 6, 8, 3), 26), "4*(8-3)+6=26", 0),
        (Countdown(), ((8, 3, 8, 3), 24), "8/(3-8/3)", 1),  # exact fractions on the way
        (Countdown(), ((5, 5), 10), "5+5", 1),
        (Countdown(), ((5, 5), 10), "5+5+5-5", 0),
        *((Countdown(), ((2, 3, 4), 9), "+".join(order), 1) for order in permutations("234")),
    ],
)
def test_by_hand(task, payload, answer, score):
    assert task.score(payload, answer) == score


def test_the_prompt_states_the_equation_of_the_payload():
    for draft in (draft for level in LinearEquation.levels for draft in drafts(LinearEquation(), level)):
        a, b, c, d = draft.payload
        equation = draft.prompt.removeprefix("solve ").removesuffix(" x=?")
        left, right = equation.replace("x", "*x").split("=")
        for x in (-3, 0, 5):
            assert (eval(left, {"x": x}), eval(right, {"x": x})) == (a * x + b, c * x + d)


@levels_of(Countdown())
def test_a_countdown_asks_what_its_verifier_checks(task, level):
    for draft in drafts(task, level):
        numbers, target = draft.payload
        assert draft.prompt == f"make {target} from {' '.join(map(str, numbers))} once each"
        assert draft.solution.steps.endswith(f"={target}")
        for wrong in ("", draft.solution.answer[:-1], draft.solution.steps + ";", "(" * 9999):
            assert task.score(draft.payload, wrong) == 0


# physical laws

NO_VOLTS = (
    "1" * 10 + "V",
    *["", "12", "V", "12A", "12 v", "V12", "12 12V", "3*4V", "1/0V", "12V.", "=12V", "1e3V"],
)


@pytest.mark.parametrize(
    ("answer", "unit", "expected"),
    [
        *(("12V", "V", 12), (" 12  mV ", "V", Fraction(12, 1000)), ("1/2A", "A", Fraction(1, 2))),
        *(("36km/h", "m/s", 10), ("0.5 kg", "g", 500), ("-3m/s", "m/s", -3), ("1000kg/m3", "g/cm3", 1)),
        ("5N*m", "J", 5),
        *((rf"{number}\text{{s}}", "s", 12) for number in ("12", r"12\,", r"12\ ", "12 ")),
        *((r"$12\,\mathrm{s}$", "s", 12), (r"3\ \text{m/s}^2", "m/s^2", 3), ("−3 m/s", "m/s", -3)),
        *((text, "V", None) for text in NO_VOLTS),
    ],
)
def test_conversion_by_hand(answer, unit, expected):
    assert convert(answer, unit) == expected


@pytest.mark.parametrize(
    ("formula", "unknown", "known", "number", "unit"),
    [
        ("V=I*R", "V", (("I", 3), ("R", 4)), "12", "V"),
        ("rho=m/V", "rho", (("m", 260), ("V", 13)), "20", "g/cm3"),
        ("n=m/M", "m", (("n", 2), ("M", 18)), "36", "g"),
        ("W=F*d", "d", (("W", 20), ("F", 5)), "4", "m"),
        ("v=u+a*t", "a", (("v", 20), ("u", 5), ("t", 3)), "5", "m/s2"),
        ("N=N0/2^(t/T)", "N", (("N0", 80), ("T", 3), ("t", 6)), "20", "g"),
        ("N=N0/2^(t/T)", "t", (("N0", 80), ("T", 3), ("N", 10)), "9", "h"),
        ("N=N0/2^(t/T)", "T", (("N0", 80), ("t", 6), ("N", 20)), "180", "min"),
        ("C1*V1=C2*V2", "V2", (("C1", 3), ("V1", 40), ("C2", 2)), "60", "mL"),
        ("R=R1+R2+R3", "R2", (("R", 12), ("R1", 3), ("R3", 5)), "4", "ohm"),
    ],
)
def test_every_law_by_hand(formula, unknown, known, number, unit):
    payload = (formula, unknown, known)
    assert LAWS.score(payload, number + unit) == 1
    for wrong in (f"1{number}{unit}", number, unit):
        assert LAWS.score(payload, wrong) == 0
    if unit == "min":  # half-lives that give absurd exponents
        for wrong in ("0h", "1/999999999h", "999999999h", "-3h", "1/2h"):
            assert LAWS.score(payload, wrong) == 0


@levels_of(LAWS)
def test_number_and_unit_both_count(task, level):
    formulas = {law.formula for law in (HELD_OUT_LAWS if level in task.ood_levels else TRAINED_LAWS)}
    for draft in drafts(task, level):
        assert draft.payload[0] in formulas
        answer = draft.solution.answer
        number = answer[: len(answer) - len(answer.lstrip("0123456789"))]
        unit = answer[len(number) :]
        assert task.score(draft.payload, f" {number} {unit}\n") == 1
        wrong_unit = "km" if unit_of(unit).dimension != unit_of("km").dimension else "s"
        for wrong in (number, unit, number + wrong_unit, f"{int(number) + 1}{unit}", f"-{answer}", ""):
            assert task.score(draft.payload, wrong) == 0
        assert draft.solution.steps.endswith("=" + answer) == (level in task.levels)


@pytest.mark.parametrize("law", [*TRAINED_LAWS, *HELD_OUT_LAWS], ids=lambda law: law.formula)
def test_drawn_values_satisfy_the_law_and_changed_ones_do_not(law):
    values = [Fraction(value) for value in law.draw(Random(1), 20)]
    assert len(values) == len(law.units)
    assert law.holds(*values)
    for place in range(len(values)):
        assert not law.holds(*values[:place], values[place] + 1, *values[place + 1 :])


@given(st.text())
def test_an_integer_is_read_whole_or_not_at_all(text):
    read = numbers.parse_integer(text)
    assert read is None or int(text) == read


@pytest.mark.parametrize("kind", [Countdown, PhysicalLaw])
def test_no_problem_of_a_split_is_one_of_another_split_in_another_order(kind):
    for level in (1, 2):
        task = kind({level: 1.0})
        train, test = (
            {tuple(map(in_any_order, task.problem(at, split).payload)) for at in range(count)}
            for split, count in (("train", 3000), ("test", 200))
        )
        assert not train & test


def in_any_order(part):
    return tuple(sorted(part)) if isinstance(part, tuple) else part
