"""Word lists: every constraint by hand, shape before constraints, and no constraint that the witness breaks."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.families.instruct import (
    HELD_OUT,
    LADDER,
    NAMING,
    STYLING,
    WORDS,
    WordList,
    holds,
    parse_answer,
)

TASK = WordList()
LEVELS = (*TASK.levels, *TASK.ood_levels)


def drafts(level, count=150):
    rng = Random(level)
    return [TASK.generate(rng, level) for _ in range(count)]


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (("start", "dog"), "dog cat", "cat dog"),
        (("end", "dog"), "cat dog", "dog cat"),
        (("has", "dog 2"), "dog cat dog", "dog cat cat"),
        (("has", "dog 1"), "dog cat", "dog dog"),
        (("no", "e"), "dog cat", "dog bed"),
        (("sorted", ""), "bed cat dog", "bed dog cat"),
        (("sorted", ""), "bed bed dog", "dog bed bed"),
        (("desc", ""), "dog cat bed", "cat dog bed"),
        (("caps", ""), "DOG CAT", "Dog Cat"),
        (("sep", ";"), "dog;cat", "dog cat"),
        (("sep", "-"), "dog - cat", "dog;cat"),
        (("len", "4"), "wolf bird", "wolf dog"),
    ],
)
def test_constraints_by_hand(constraint, good, bad):
    assert holds(constraint, parse_answer(good))
    assert not holds(constraint, parse_answer(bad))


@pytest.mark.parametrize(
    "text", ["", " ", "dog horse", "dog;cat pig", "dog; ", ";dog", "dog.cat", "dog1", "д"]
)
def test_what_is_no_word_list(text):
    assert parse_answer(text) is None


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("DOG;COW", 1),
        ("dog;cow", 2 / 3),
        ("dog cow", 1 / 3),
        ("cow dog", 0),
        ("DOG", 0),
        ("DOG;COW;COW", 0),
        ("DOG;UNICORN", 0),
    ],
)
def test_the_score_is_the_share_satisfied_by_an_answer_of_the_right_shape(answer, score):
    payload = (2, (("start", "dog"), ("caps", ""), ("sep", ";")))
    assert TASK.score(payload, answer) == pytest.approx(score)


@pytest.mark.parametrize("level", LEVELS)
def test_constraints_per_level(level):
    rung = LADDER[level - 1]
    for draft in drafts(level):
        kinds = [kind for kind, _ in draft.payload[1]]
        assert draft.payload[0] in rung.counts
        assert sum(kind in NAMING for kind in kinds) in rung.naming
        assert sum(kind in STYLING for kind in kinds) in rung.styling
        assert sum(kind in HELD_OUT for kind in kinds) in rung.held_out
        assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("level", LEVELS)
def test_each_constraint_holds_for_the_witness_and_is_named_in_the_prompt(level):
    for draft in drafts(level):
        answer = parse_answer(draft.witness.answer)
        for kind, argument in draft.payload[1]:
            assert holds((kind, argument), answer)
            assert f"{kind} {argument}".strip() in draft.prompt


def test_the_working_is_the_answer_with_free_places_left_open():
    for draft in drafts(3):
        places = draft.witness.steps.split()
        words = parse_answer(draft.witness.answer).lower
        assert all(place in ("_", word) for place, word in zip(places, words, strict=True))


def test_the_held_out_kinds_occur_only_out_of_domain():
    seen = {level: {kind for draft in drafts(level) for kind, _ in draft.payload[1]} for level in LEVELS}
    assert not set(HELD_OUT) & set.union(*(seen[level] for level in TASK.levels))
    assert set(HELD_OUT) <= seen[5]


def test_the_vocabulary_is_short_distinct_words():
    assert len(set(WORDS)) == len(WORDS) == 64
    assert {len(word) for word in WORDS} == {3, 4}


def test_an_unknown_kind_is_an_error():
    with pytest.raises(ValueError, match="rhyme"):
        holds(("rhyme", "dog"), parse_answer("dog"))


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6), st.sampled_from(" ;,/-"))
def test_well_formed_answers_are_read_back(words, separator):
    answer = parse_answer(separator.join(words))
    assert answer.words == tuple(words)
    assert len(words) == 1 or answer.separator == separator


@given(st.text())
def test_no_text_breaks_the_scorer(text):
    assert 0 <= TASK.score((2, (("start", "dog"), ("no", "e"))), text) <= 1
