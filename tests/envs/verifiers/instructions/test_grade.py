"""From checks to scores: examples pass, games do not pay, loose is at least strict."""

import pytest

from prorl.envs.verifiers.instructions import Instruction, check, score, verify
from prorl.envs.verifiers.instructions.table import RULES
from support.instructions import EXAMPLES, PLAIN, PROMPT

NO_COMMA = Instruction(id="punctuation:no_comma")
LOWER = Instruction(id="change_case:english_lowercase")
TITLE = Instruction(id="detectable_format:title")


def words(number, relation="less than"):
    return Instruction(
        id="length_constraints:number_words", kwargs={"num_words": number, "relation": relation}
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_meets_its_instruction(name):
    kwargs, response = EXAMPLES[name]
    assert check(name, kwargs, response, PROMPT)
    assert verify([Instruction(id=name, kwargs=kwargs)], response, prompt=PROMPT).status == "ok"


GAMES = (
    *("", " \n", "ok", ".", "ok " * 50, "the sea and the wind " * 30, "[a] *b* <<c>>"),
    *(PROMPT, f"{PROMPT} {PROMPT}"),
)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("response", GAMES)
def test_games_do_not_pay(name, response):
    kwargs, _ = EXAMPLES[name]
    for mode in ("strict", "loose"):
        assert score([Instruction(id=name, kwargs=kwargs)], response, prompt=PROMPT, mode=mode) == 0


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.given])
def test_only_what_the_instruction_hands_out_is_no_answer(name):
    kwargs, _ = EXAMPLES[name]
    for value in kwargs.values():
        listed = " ".join(value) if isinstance(value, list) else str(value)
        assert not check(name, kwargs, f"{listed} {listed}", PROMPT)


def test_a_limit_on_length_lowers_the_floor_for_all():
    assert score([words(4), NO_COMMA], "Grey water") == 1.0
    assert score([words(4), NO_COMMA], "water") == 0.0
    assert score([words(2)], "water") == 1.0
    assert score([NO_COMMA], "Grey water") == 0.0


def test_a_fixed_answer_lifts_the_floor_only_when_given():
    fixed = Instruction(id="detectable_format:constrained_response")
    assert score([fixed, NO_COMMA], "My answer is no.") == 1.0
    assert score([fixed, NO_COMMA], "no") == 0.0
    assert score([fixed, NO_COMMA], "My answer is yes. My answer is no.", prompt="") == 0.5


def test_fraction_and_binary():
    both = [NO_COMMA, TITLE]
    assert score(both, PLAIN) == 0.5
    assert score(both, PLAIN, grading="binary") == 0.0
    assert score(both, f"<<Winter>> {PLAIN}", grading="binary") == 1.0
    assert verify(both, PLAIN).status == "wrong"
    assert verify(both, "").answered is False
    assert verify(both, PLAIN).answered


@pytest.mark.parametrize(("response", "loose"), [
    (f"Here, in lower case:\n{PLAIN.lower()}", 1.0),
    (f"{PLAIN.lower()}\nI hope this helps!", 1.0),
    (f"Sure!\n{PLAIN.lower()}\nI hope this helps!", 1.0),
    (f"Sure!\n\n{PLAIN}\n\nBye!", 0.0),
    ("Many Words with Capitals, and commas\nok", 0.0),
])  # fmt: skip
def test_loose_forgives_a_first_and_a_last_line(response, loose):
    assert score([LOWER], response) == 0.0
    assert score([LOWER], response, mode="loose") == loose


def test_loose_forgives_asterisks():
    quoted = Instruction(id="startend:quotation")
    assert score([quoted], f'**"{PLAIN}"**') == 0.0
    assert score([quoted], f'**"{PLAIN}"**', mode="loose") == 1.0


def test_a_book_is_not_judged():
    assert score([NO_COMMA], PLAIN * 3000) == 0.0
