"""What cannot be checked is refused when it is read; nulls are absent, zeros are not."""

import pickle

import pytest

from prorl.envs.errors import ProrlError
from prorl.envs.verifiers.instructions import (
    KNOWN_IDS,
    Instruction,
    UnknownInstructionError,
    check,
    read,
    validate,
    verify,
)
from support.instructions import EXAMPLES

BAD = [
    ("keywords:nonsense", {}),
    ("", {}),
    ("keywords:existence", {}),
    ("keywords:existence", {"keywords": []}),
    ("keywords:existence", {"keywords": ["a", ""]}),
    ("keywords:existence", {"keywords": "abc"}),
    ("keywords:existence", {"keywords": ["a"], "number": 2}),
    ("keywords:frequency", {"keyword": "a", "frequency": 2}),
    ("keywords:frequency", {"keyword": "a", "frequency": None, "relation": "at least"}),
    ("keywords:frequency", {"keyword": "a", "frequency": 2, "relation": "at most"}),
    ("keywords:frequency", {"keyword": "a", "frequency": 2, "relation": ["at least"]}),
    ("keywords:frequency", {"keyword": "a", "frequency": 0, "relation": "at least"}),
    ("keywords:frequency", {"keyword": "a", "frequency": 0, "relation": "less than"}),
    ("keywords:frequency", {"keyword": "a", "frequency": -1, "relation": "at least"}),
    ("keywords:frequency", {"keyword": "a", "frequency": 1.5, "relation": "at least"}),
    ("keywords:frequency", {"keyword": "a", "frequency": float("nan"), "relation": "at least"}),
    ("keywords:frequency", {"keyword": "a", "frequency": float("inf"), "relation": "at least"}),
    ("keywords:frequency", {"keyword": "a", "frequency": True, "relation": "at least"}),
    ("keywords:letter_frequency", {"letter": "ab", "let_frequency": 2, "let_relation": "at least"}),
    ("length_constraints:number_words", {"num_words": 1, "relation": "less than"}),
    ("length_constraints:number_sentences", {"num_sentences": 1, "relation": "less than"}),
    ("letters:letter_counting", {"N": 1, "relation": "less than"}),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 0}),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 3, "first_word": "a"},
    ),
    ("language:response_language", {"language": "tlh"}),
    ("language:response_language", {"language": ["en"]}),
    ("punctuation:no_comma", {"comma": 1}),
    ("count:word_count_range", {"min_words": 5, "max_words": 4}),
    ("count:conjunctions", {"small_n": 8}),
    ("copy:repeat_phrase", {"phrase": "two words", "small_n": 2}),
    ("new:copy_span_idx", {"prompt_to_repeat": "abc", "n_start": 2, "n_end": 9}),
]


@pytest.mark.parametrize(("name", "kwargs"), BAD)
def test_what_cannot_be_checked_is_refused_and_never_a_point(name, kwargs):
    bad = Instruction(id=name, kwargs=kwargs)
    with pytest.raises(UnknownInstructionError) as caught:
        validate(bad)
    assert isinstance(caught.value, ProrlError)
    assert "\n" not in str(caught.value)
    with pytest.raises(UnknownInstructionError):
        check(name, kwargs, "A long and sound answer to the question.", "")
    verdict = verify(
        (Instruction(id="punctuation:no_comma"), bad), "A long and sound answer to the question."
    )
    assert (verdict.status, verdict.score) == ("error", 0.0)
    assert verdict.note == str(caught.value)


def test_every_known_id_has_an_example():
    assert EXAMPLES.keys() == KNOWN_IDS


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_missing_or_an_odd_argument_is_refused(name):
    kwargs, _ = EXAMPLES[name]
    validate(Instruction(id=name, kwargs=kwargs))
    with pytest.raises(UnknownInstructionError):
        validate(Instruction(id=name, kwargs={**kwargs, "odd": 1}))
    for absent in kwargs:
        with pytest.raises(UnknownInstructionError):
            validate(Instruction(id=name, kwargs={**kwargs, absent: None}))


def test_nulls_are_absent_zeros_are_kept_and_floats_of_tables_are_counts():
    validate(Instruction(id="punctuation:no_comma", kwargs={"num_words": None, "keywords": None}))
    span = {"prompt_to_repeat": "abc def", "n_start": 0, "n_end": 3}
    assert check("new:copy_span_idx", span, "abc", "")
    assert check(
        "detectable_format:number_bullet_lists", {"num_bullets": 0}, "Cold wind over grey water.", ""
    )
    assert check(
        "length_constraints:number_words",
        {"num_words": 5.0, "relation": "at least"},
        "Cold wind over grey water.",
        "",
    )


def test_read_takes_the_columns_of_the_data():
    found = read(["punctuation:no_comma", "detectable_format:title"], [None, {}])
    assert [item.id for item in found] == ["punctuation:no_comma", "detectable_format:title"]
    assert pickle.loads(pickle.dumps(found)) == found
    for ids, kwargs in ((["punctuation:no_comma"], []), ([], []), (["x:y"], [{}])):
        with pytest.raises(UnknownInstructionError):
            read(ids, kwargs)
