"""Laws with units: conversion, hand-worked cases of every law, and answers that miss the number or the unit."""

from collections import Counter
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.extract import respond
from prorl.envs.families.stem import HELD_OUT, TRAINED, PhysicalLaw, convert
from prorl.envs.verifiers.units import unit_of

TASK = PhysicalLaw()
LEVELS = (*TASK.levels, *TASK.ood_levels)


def drafts(level, count=150):
    rng = Random(level)
    return [TASK.generate(rng, level) for _ in range(count)]


@pytest.mark.parametrize(
    ("answer", "unit", "expected"),
    [
        ("12V", "V", 12),
        (" 12  mV ", "V", Fraction(12, 1000)),
        ("36km/h", "m/s", 10),
        ("0.5 kg", "g", 500),
        ("1/2A", "A", Fraction(1, 2)),
        ("-3m/s", "m/s", -3),
        ("1000kg/m3", "g/cm3", 1),
        ("5N*m", "J", 5),
    ],
)
def test_conversion_by_hand(answer, unit, expected):
    assert convert(answer, unit) == expected


@pytest.mark.parametrize(
    "answer",
    ["", "12", "V", "12A", "12 v", "V12", "12 12V", "3*4V", "1/0V", "12V.", "=12V", "1e3V", "1" * 10 + "V"],
)
def test_what_is_no_voltage(answer):
    assert convert(answer, "V") is None


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
    assert TASK.score(payload, number + unit) == 1
    assert TASK.score(payload, f"1{number}{unit}") == 0
    assert TASK.score(payload, number) == 0
    assert TASK.score(payload, unit) == 0


@pytest.mark.parametrize("answer", ["0h", "1/999999999h", "999999999h", "-3h", "1/2h"])
def test_half_lives_that_give_absurd_exponents_are_wrong(answer):
    payload = ("N=N0/2^(t/T)", "T", (("N", 20), ("N0", 80), ("t", 6)))
    assert TASK.score(payload, answer) == 0


@pytest.mark.parametrize("level", LEVELS)
def test_witness_is_right_and_number_and_unit_both_count(level):
    for draft in drafts(level):
        answer = draft.witness.answer
        number = answer[: len(answer) - len(answer.lstrip("0123456789"))]
        unit = answer[len(number) :]
        assert TASK.score(draft.payload, f" {number} {unit}\n") == 1
        wrong_unit = "km" if unit_of(unit).dimension != unit_of("km").dimension else "s"
        for wrong in (
            number,
            unit,
            number + wrong_unit,
            f"{int(number) + 1}{unit}",
            f"-{answer}",
            draft.prompt,
            "",
        ):
            assert TASK.score(draft.payload, wrong) == 0
        assert draft.witness.steps.endswith("=" + answer)


@pytest.mark.parametrize("level", LEVELS)
def test_no_constant_answer_pays_and_texts_are_short(level):
    batch = drafts(level, 500)
    assert Counter(draft.witness.answer for draft in batch).most_common(1)[0][1] < 0.06 * len(batch)
    assert len({draft.prompt for draft in batch}) > 0.9 * len(batch)
    assert max(len(draft.prompt) for draft in batch) <= 60
    assert max(len(draft.witness.steps) + len(draft.witness.answer) for draft in batch) <= 45


@pytest.mark.parametrize("split", ["train", "exam", "test", "ood"])
def test_problems_are_pure_and_laws_are_held_out(split):
    formulas = {law.formula for law in (HELD_OUT if split == "ood" else TRAINED)}
    for index in range(40):
        problem = TASK.problem(index, split)
        assert problem == TASK.problem(index, split)
        assert problem.payload[0] in formulas
        assert TASK.verify(problem, respond(problem.witness.steps, problem.witness.answer)).score == 1


@pytest.mark.parametrize("law", [*TRAINED, *HELD_OUT], ids=lambda law: law.formula)
def test_drawn_values_satisfy_the_law_and_changed_ones_do_not(law):
    values = {symbol: Fraction(value) for symbol, value in law.draw(Random(1), 20).items()}
    assert set(values) == {symbol for symbol, _ in law.units}
    assert law.holds(values)
    for symbol in values:
        assert not law.holds(values | {symbol: values[symbol] + 1})


@given(st.one_of(st.text(), st.from_regex(r"-?[0-9./]{1,12} ?(V|h|g|km/h)", fullmatch=True)))
def test_no_text_raises(text):
    for index in range(8):
        assert TASK.score(TASK.problem(index, "train").payload, text) in (0.0, 1.0)
