"""List programs: the ladder's promises, worked answers, and what cheap programs earn."""

from itertools import pairwise
from random import Random

import pytest

from prorl.envs.families.code import HELD_OUT_PAIRS, HIDDEN, LADDER, ListSynthesis, ListTrace
from prorl.envs.families.listlang import OPS, parse_program, parse_values, run, trace

TRACE, SYNTHESIS = ListTrace(), ListSynthesis()
LEVELS = (*TRACE.levels, *TRACE.ood_levels)


def drafts(task, level, count=60):
    rng = Random(level)
    return [task.generate(rng, level) for _ in range(count)]


def program_of(task, draft):
    return parse_program(draft.prompt.split("|")[0] if task is TRACE else draft.witness.answer)


@pytest.mark.parametrize("task", [TRACE, SYNTHESIS], ids=lambda task: task.name)
@pytest.mark.parametrize("level", LEVELS)
def test_program_lengths_and_held_out_pairs_are_as_the_ladder_says(task, level):
    rung = LADDER[level - 1]
    for draft in drafts(task, level):
        program = program_of(task, draft)
        assert len(program) in rung.ops
        assert rung.held_out_pair == any(pair in HELD_OUT_PAIRS for pair in pairwise(program))


@pytest.mark.parametrize("level", LEVELS)
def test_no_operator_is_idle_on_any_hidden_test(level):
    for draft in drafts(SYNTHESIS, level):
        program = parse_program(draft.witness.answer)
        for values, result in draft.payload:
            states = (values, *trace(program, values))
            assert len(set(states)) == len(states)
            assert states[-1] == result != ()


@pytest.mark.parametrize("level", LEVELS)
def test_hidden_inputs_are_distinct_and_never_shown(level):
    for draft in drafts(SYNTHESIS, level):
        shown = {parse_values(pair.split("=>")[0]) for pair in draft.prompt.split(";")[:3]}
        hidden = {values for values, _ in draft.payload}
        assert len(shown) == 3
        assert len(hidden) == HIDDEN
        assert not shown & hidden


def test_the_working_of_a_trace_is_the_lists_on_the_way():
    draft = next(d for d in drafts(TRACE, 3) if d.prompt.startswith("max neg dbl |"))
    values = parse_values(draft.prompt.split("|")[1].removesuffix("=>"))
    top = max(values)
    assert draft.witness.steps == f"max:{top} neg:{-top}"
    assert draft.witness.answer == str(-2 * top)


@pytest.mark.parametrize(
    ("answer", "score"),
    [("-2", 1), ("[-2]", 1), (" -2 ", 1), ("-2 -7", 0), ("2", 0), ("", 0), ("minus two", 0), ("-2 or 2", 0)],
)
def test_a_trace_is_right_or_wrong(answer, score):
    assert TRACE.score((-2,), answer) == score


def test_any_right_program_counts_and_a_half_right_one_counts_half():
    ascending = tuple(((n, n + 1), (n + 1,)) for n in range(4))
    descending = tuple(((n + 1, n), (n + 1,)) for n in range(4))
    payload = ascending + descending
    assert SYNTHESIS.score(payload, "max") == 1
    assert SYNTHESIS.score(payload, "sort tail") == 1
    assert SYNTHESIS.score(payload, "tail") == 0.5
    assert SYNTHESIS.score(payload, "min") == 0


@pytest.mark.parametrize(
    "answer", ["", "rev rev", "2 7 5", "lambda xs: xs", "max; min", "dbl " * 17, "dbl " * 16]
)
def test_texts_that_are_no_program_and_idle_programs_pass_nothing(answer):
    assert all(SYNTHESIS.score(draft.payload, answer) == 0 for draft in drafts(SYNTHESIS, 2, 20))


@pytest.mark.parametrize("level", LEVELS)
def test_no_single_operator_earns_much(level):
    batch = drafts(SYNTHESIS, level)
    for name in OPS:
        assert sum(SYNTHESIS.score(draft.payload, name) for draft in batch) / len(batch) < 0.25


def test_the_payload_agrees_with_the_interpreter():
    for draft in drafts(TRACE, 2):
        program, values = draft.prompt.removesuffix("=>").split("|")
        assert run(parse_program(program), parse_values(values)) == draft.payload
