"""Whatever the response: no exception, a score in [0, 1], the same twice, strict never above loose, bounded time."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.envs.verifiers.instructions import Instruction, score
from prorl.envs.verifiers.instructions.content import says_something
from prorl.envs.verifiers.instructions.table import RULES
from support.instructions import EXAMPLES, PROMPT

INSTRUCTIONS = [Instruction(id=name, kwargs=kwargs) for name, (kwargs, _) in EXAMPLES.items()]
RULES_READ = {
    name: (RULES[name].test, {key: RULES[name].arguments[key](value) for key, value in kwargs.items()})
    for name, (kwargs, _) in EXAMPLES.items()
}
PIECES = (
    *" \n\t.,!?*-[]<>{}\"'“”…。、_`#:1９aZéß你ก\u0301\u200d\ufffd",
    *(
        "***",
        "******",
        "<<",
        ">>",
        "```json\n",
        "P.S.",
        "Section 1",
        "My answer is yes.",
        "\n\n",
        "\n* ",
        "\r\n",
    ),
    *(response for _, response in EXAMPLES.values()),
    PROMPT,
)


def mutated(text, at, put):
    return text[:at] + put + text[at + len(put) // 2 :]


RESPONSES = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from(PIECES), max_size=20).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=20).map(" ".join),
    st.builds(
        mutated,
        st.sampled_from([response for _, response in EXAMPLES.values()]),
        st.integers(0, 80),
        st.sampled_from(PIECES) | st.text(max_size=5),
    ),
)
SCORED = st.tuples(st.sampled_from(INSTRUCTIONS), RESPONSES)


def met(response):
    """The rules that a response meets, without the floor under them, which would hide a rule that raises."""
    return {name for name, (test, arguments) in RULES_READ.items() if test(response, **arguments)}


def run_score(instruction, response):
    strict = score([instruction], response, prompt=PROMPT)
    assert strict in (0.0, 1.0)
    assert strict <= score([instruction], response, prompt=PROMPT, mode="loose") <= 1.0
    assert strict == score([instruction], response, prompt=PROMPT)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(RESPONSES)
def test_any_response_under_every_rule(response):
    assert met(response) == met(response)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(SCORED)
def test_any_response_scored(drawn):
    run_score(*drawn)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None)
@given(RESPONSES)
def test_ten_thousand_responses_under_every_rule(response):
    assert met(response) <= RULES.keys()
    strict, loose = (score(INSTRUCTIONS, response, prompt=PROMPT, mode=mode) for mode in ("strict", "loose"))
    assert 0.0 <= strict <= loose <= 1.0


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None)
@given(SCORED)
def test_ten_thousand_responses_scored(drawn):
    run_score(*drawn)


HOSTILE = (
    *(
        "*",
        "[",
        "<<",
        "<<a ",
        "[a",
        ".",
        ".)",
        "\n",
        " ",
        "\n ",
        "a ",
        "a.",
        "a'",
        "_",
        '"',
        "{",
        "```\n",
        "A. ",
    ),
    *(
        "*a",
        "**a ",
        "P.",
        "P. ",
        "-",
        "1. ",
        "Section 1 ",
        "the cold wind ",
        "\u0301",
        "你",
        "<<a b>>",
        "İ",
        "ﷺ",
    ),
    *("the ", "tide\n\n", "say hello. ", "******", "\n* ", "9", "1.", "a-"),
)


@pytest.mark.parametrize("size", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("piece", HOSTILE)
def test_time_grows_with_the_length_only(piece, size):
    """The signs at the end undo a match that ran to the end; the limit is 100 times what a rule takes."""
    response = piece * (size // len(piece)) + "x\n"
    for name, (test, arguments) in RULES_READ.items():
        started = time.process_time()
        test(response, **arguments)
        assert time.process_time() - started < size / 40_000, name
    started = time.process_time()
    says_something(response, response[: size // 2], given=frozenset(), least=5)
    assert time.process_time() - started < size / 40_000
