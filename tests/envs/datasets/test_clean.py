import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.datasets.clean import SHARED_BY, Duplicates, Overlap, check_gold
from prorl.envs.datasets.records import Drop

PLANTED = "a lighthouse keeper counts seven ships and then nine more before the fog hides all of them"


def instructions(name, **kwargs):
    return {"kind": "instructions", "instructions": [{"id": name, "kwargs": kwargs}], "checkers": None}


@pytest.mark.parametrize(
    "payload",
    [
        {"kind": "math", "gold": "\\frac{1}{2}", "tolerance": None},
        {"kind": "math", "gold": "3, -3", "tolerance": None},
        {"kind": "choice", "gold": "B", "options": ["one", "two"]},
        {"kind": "quantity", "gold": "20 g/cm^3"},
        instructions("punctuation:no_comma"),
        {"kind": "code", "entry": None, "inputs": ["1"], "expected": ["1"], "tolerance": None},
    ],
)
def test_a_good_gold_passes(payload):
    check_gold(payload, "")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"kind": "quantity", "gold": "about three"}, "own verifier"),
        ({"kind": "math", "gold": "", "tolerance": None}, "own verifier"),
        ({"kind": "choice", "gold": "C", "options": ["one", "two"]}, "own verifier"),
        (instructions("keywords:unheard_of"), "nobody can check"),
        (instructions("keywords:existence"), "nobody can check"),
    ],
)
def test_a_gold_that_its_verifier_refuses_is_dropped(payload, reason):
    with pytest.raises(Drop, match=reason):
        check_gold(payload, "")


def test_a_question_counts_once_whatever_its_case_and_spacing():
    duplicates = Duplicates()
    duplicates.check("How  many?")
    with pytest.raises(Drop, match="duplicate"):
        duplicates.check("how many?\n")
    duplicates.check("How much?")


def overlap(*questions, words=13):
    found = Overlap(words)
    for question in questions:
        found.add(question)
    return found


def drops(found, question):
    try:
        found.check(question)
    except Drop:
        return True
    return False


def test_a_planted_passage_is_found_whatever_surrounds_it():
    found = overlap(f"Problem 7. {PLANTED.upper()}! How many?")
    assert drops(found, f"In a story, {PLANTED.replace(' ', ', ')}")
    assert not drops(
        found, "a lighthouse keeper counts seven ships and then eight more before the fog hides two"
    )


def test_short_questions_overlap_only_as_a_whole():
    found = overlap("Solve x^2 = 9.")
    assert drops(found, "solve X^2=9")
    assert not drops(found, "Solve x^2 = 9 over the integers.")


def test_what_many_evaluation_questions_share_is_boilerplate():
    questions = [f"{PLANTED} and {n}" for n in range(SHARED_BY + 1)]
    assert drops(overlap(*questions[:-1]), PLANTED)
    assert not drops(overlap(*questions), PLANTED)


def test_zero_words_switches_it_off():
    assert not drops(overlap(PLANTED, words=0), PLANTED)


@given(st.text(min_size=1), st.integers(1, 20))
def test_every_question_overlaps_itself(question, words):
    assert drops(overlap(question, words=words), question)
