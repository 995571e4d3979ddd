"""The floor under every instruction: what is empty, monotonous, echoed or handed out is no content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.verifiers.instructions.content import MIN_DISTINCT, floor, says_something

PROMPT = "Write a short note about the sea in winter, please."
NOTE = "Cold wind moves over grey water."


def says(response, prompt=PROMPT, given=frozenset(), least=MIN_DISTINCT):
    return says_something(response, prompt, given=given, least=least)


def test_a_short_sentence_says_something():
    assert says(NOTE)
    assert says(NOTE, prompt="")


@pytest.mark.parametrize("response", [
    "", " \n", "ok", "...", "ok ok ok ok ok ok", "one two three four",
    PROMPT, PROMPT.upper(), " ".join([PROMPT] * 3), f"{PROMPT} Sure thing.",
    "a short note about the sea in winter, please", "I like the old sea. " * 40,
])  # fmt: skip
def test_these_say_nothing(response):
    assert not says(response)


def test_an_echo_with_an_answer_is_judged_by_the_answer():
    assert says(f"{PROMPT}\n{NOTE}")


def test_a_piece_of_the_prompt_may_be_the_answer():
    assert says(
        "hi guys the work was done", prompt="Put this in lower case: Hi guys. The work was done. " * 2
    )


def test_handed_out_words_do_not_count():
    assert not says(NOTE, given=frozenset({"cold", "grey"}))
    assert says(NOTE, given=frozenset({"cold"}))


def test_long_varied_text_passes_and_long_repetition_fails():
    story = " ".join(f"Line {i} tells of day{i} and wind{i % 7}." for i in range(200))
    assert says(story)
    assert not says(f"{NOTE} " * 30)


@pytest.mark.parametrize(("room", "given", "least"), [
    (None, (), 5), (300, (), 5), (9, (), 5), (8, (), 4), (4, (), 2), (1, (), 1), (0, (), 1),
    (12, ("a",) * 11, 5), (12, tuple("abcdefghijk"), 1),
])  # fmt: skip
def test_floor(room, given, least):
    assert floor(room, frozenset(given)) == least


@given(st.integers(1, 50), st.sets(st.text(min_size=1), max_size=60))
def test_the_floor_can_be_met_within_the_room(room, handed_out):
    least = floor(room, frozenset(handed_out))
    assert 1 <= least <= min(MIN_DISTINCT, room)
