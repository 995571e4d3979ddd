"""Word lists, box pushing and blickets: every rule by hand, all solutions accepted, shortcuts refused."""

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.families.puzzles import (
    HELD_OUT,
    NAMING,
    STYLING,
    WORD_LEVELS,
    WORDS,
    Blicket,
    BoxPushing,
    WordList,
    holds,
    parse_answer,
    predict,
)

WORD_LIST = WordList()


def drafts(task, level, count=100):
    rng = Random(level)
    return [task.generate(rng, level) for _ in range(count)]


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
        *(("DOG;COW", 1), ("dog;cow", 2 / 3), ("dog cow", 1 / 3), ("cow dog", 0)),
        *(("DOG", 0), ("DOG;COW;COW", 0), ("DOG;UNICORN", 0)),
    ],
)
def test_the_score_is_the_share_satisfied_by_an_answer_of_the_right_shape(answer, score):
    payload = (2, (("start", "dog"), ("caps", ""), ("sep", ";")))
    assert WORD_LIST.score(payload, answer) == pytest.approx(score)


@pytest.mark.parametrize("level", WORD_LIST.all_levels)
def test_a_level_says_how_many_constraints_and_each_holds_for_the_solution(level):
    asked, seen = WORD_LEVELS[level - 1], set()
    for draft in drafts(WORD_LIST, level, 150):
        count, constraints = draft.payload
        kinds = [kind for kind, _ in constraints]
        assert count in asked.counts
        assert sum(kind in NAMING for kind in kinds) in asked.naming
        assert sum(kind in STYLING for kind in kinds) in asked.styling
        assert sum(kind in HELD_OUT for kind in kinds) in asked.held_out
        assert len(set(kinds)) == len(kinds)
        seen.update(kinds)
        answer = parse_answer(draft.solution.answer)
        for kind, argument in constraints:
            assert holds((kind, argument), answer)
            assert f"{kind} {argument}".strip() in draft.prompt
        places = zip(draft.solution.steps.split(), answer.words, strict=True)
        assert all(place in ("_", word.lower()) for place, word in places)
    assert seen & set(HELD_OUT) == (set(HELD_OUT) if level == 5 else set())


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6), st.sampled_from(" ;,/-"))
def test_well_formed_answers_are_read_back(words, separator):
    answer = parse_answer(separator.join(words))
    assert answer.words == tuple(words)
    assert {len(word) for word in words} <= {3, 4}
    assert len(words) == 1 or answer.separator == separator


@pytest.mark.parametrize("task", [BoxPushing(), Blicket()], ids=lambda task: task.name)
def test_a_held_out_family_can_never_be_trained(task):
    assert task.splits == {"ood"}
    with pytest.raises(ValueError, match="no level"):
        type(task)({1: 1.0})


BOARD, LINE = ((3, 4), ((0, 2), (1, 1)), (2, 1)), ((1, 5), ((0, 0), (0, 1)), (0, 2))  # `..@.|.o..|.x..`


@pytest.mark.parametrize(
    ("payload", "moves", "score"),
    [
        *((BOARD, "LD", 1), (BOARD, "RLLD", 1)),  # any way that works
        (BOARD, "D", 0),  # walks, but pushes nothing
        (BOARD, "DL", 0),  # pushes the box to (1, 0)
        (BOARD, "ULD", 0),  # leaves the grid
        (BOARD, "LDD", 0),  # the box stands at the wall
        *((BOARD, "ld", 0), (BOARD, "L D", 0)),
        (BOARD, "LD" + "UD" * 30, 1),  # walks away and back, and the box stays
        *((LINE, "R", 1), (LINE, "RR", 0)),  # the box must stay on the goal
    ],
)
def test_box_pushing_by_hand(payload, moves, score):
    assert BoxPushing().score(payload, moves) == score


def test_a_box_on_a_line_needs_the_pusher_behind_it():
    for draft in drafts(BoxPushing(), 1, 40):
        size, ((_, pusher), (_, box)), (_, goal) = draft.payload
        assert size == (1, 16)
        assert pusher < box < goal or pusher > box > goal
        letter = "R" if box < goal else "L"
        assert draft.solution.answer == letter * (abs(box - pusher) - 1 + abs(goal - box))


def test_no_shorter_moves_than_the_solution_solve_a_small_grid():
    for draft in drafts(BoxPushing(), 2, 30):
        length = len(draft.solution.answer) - 1
        if length <= 4:
            tries = ("".join(moves) for moves in product("UDLR", repeat=length))
            assert not any(BoxPushing().score(draft.payload, moves) for moves in tries)


def test_blickets_by_hand():
    trials = (("AB", 1), ("C", 0), ("AD", 0))
    assert predict("ABCD", trials, ("A", "B", "D", "AC")) == "0100"
    assert predict("ABC", (("AB", 1),), ("A", "B", "AB", "C", "ABC")) == "??1?1"
    payload = ("ABCD", trials, ("A", "B", "D", "AC"))
    assert [Blicket().score(payload, answer) for answer in ("0100", "0?00", "010")] == [1, 0, 0]


@pytest.mark.parametrize("level", Blicket.ood_levels)
def test_blicket_answers_extend_what_was_observed(level):
    for draft in drafts(Blicket(), level, 40):
        objects, trials, questions = draft.payload
        observed = "".join(str(on) for _, on in trials)
        assert predict(objects, trials, [chosen for chosen, _ in trials]) == observed
        assert set(questions).isdisjoint(chosen for chosen, _ in trials)
        surely_off = {name for chosen, on in trials if not on for name in chosen}
        for chosen, outcome in zip(questions, draft.solution.answer, strict=True):
            assert (outcome == "0") == (set(chosen) <= surely_off)
