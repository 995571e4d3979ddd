"""Chains of operators: what an operator does, that nothing can be guessed, and that stopping early is never right."""

from collections import Counter
from random import Random
from types import MappingProxyType

import pytest

from prorl.algo.guess_floor import floor, guess_rates
from prorl.envs.extract import respond
from prorl.envs.families.chains import Chain, DigitAlgebra, OperatorChain, StrandEdits, VariableTrace

FAMILIES = [OperatorChain(), DigitAlgebra(), VariableTrace(), StrandEdits()]
every_family = pytest.mark.parametrize("task", FAMILIES, ids=lambda task: task.name)


@pytest.mark.parametrize(
    ("task", "operator", "before", "after"),
    [
        (FAMILIES[0], "twist", "40731", "40713"),
        (FAMILIES[3], "rev", "GATTACA", "ACATTAG"),
        (FAMILIES[0], "left", "40731", "07314"),
        (FAMILIES[0], "ends", "407315", "507314"),
        (FAMILIES[0], "flip", "40731", "59268"),
        (FAMILIES[1], "sums", "40731", "44145"),
        (FAMILIES[1], "steps", "44145", "40731"),
        (FAMILIES[1], "triple", "40731", "20193"),
        (FAMILIES[2], "b+=5", "47731", "42731"),
        (FAMILIES[2], "a~d", "40731", "30741"),
        (FAMILIES[3], "comp", "GATTACA", "CTAATGT"),
        (FAMILIES[3], "halves", "GATTACA", "TACAGAT"),
        (FAMILIES[3], "purine", "GATTACA", "AGCCGTG"),
    ],
)
def test_what_an_operator_does(task, operator, before, after):
    assert task.operators[operator](before) == after


@every_family
def test_every_operator_is_reversible_so_states_stay_evenly_spread(task):
    rng = Random(0)
    starts = list({"".join(rng.choices(task.symbols, k=rng.randint(*task.widths))) for _ in range(3000)})
    for name, operator in task.operators.items():
        assert len({operator(start) for start in starts}) == len(starts), name


@every_family
@pytest.mark.parametrize("level", [1, 5, 16])
def test_the_working_leads_to_the_answer_and_no_state_on_the_way_is_right(task, level):
    for index in range(20):
        problem = task.problem_at(index, level)
        verb, *rest = problem.prompt.split()
        names, start = " ".join(rest).rsplit(":", 1)
        assert verb == task.verb
        states = [start]
        for name in names.split():
            states.append(task.operators[name](states[-1]))
        assert len(states) == level + 1 == len(set(states))
        steps = "".join(f" {name}{state}" for name, state in zip(["", *names.split()], states, strict=True))
        assert (problem.solution.steps, problem.solution.answer) == (steps, states[-1])
        assert task.verify(problem, respond(steps, f" {states[-1].lower()} ")).score == 1.0
        assert all(task.verify(problem, respond("", state)).score == 0.0 for state in states[:-1])


@every_family
def test_answers_to_other_problems_are_worth_nothing_even_in_256_tries(task):
    answers = [task.problem_at(index, 4).payload for index in range(1000)]
    common = Counter(answers)
    accepted = sum(count * (count - 1) for count in common.values())
    (rate,) = guess_rates([(len(answers) * (len(answers) - 1), accepted)])
    assert floor(rate, 256) < 0.02


def test_a_start_from_which_no_chain_is_long_enough_is_not_drawn():
    class Narrow(Chain):
        name, domain, verb, symbols, widths = "narrow", "logic", "run", "01", (2, 2)
        operators = MappingProxyType({"swap": lambda state: state[::-1]})

    drafts = [Narrow().generate(Random(seed), 1) for seed in range(50)]
    assert {draft.prompt for draft in drafts} == {"run swap:01", "run swap:10"}, "swapping 00 leads nowhere"
