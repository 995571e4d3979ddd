"""From instructions to a verdict: what cannot be checked is refused, examples pass, games do not pay."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.envs.errors import ProrlError
from prorl.envs.verifiers.instruction_checks import says_something
from prorl.envs.verifiers.instructions import RULES, Instruction, UnknownInstructionError, validate, verify
from support.instructions import EXAMPLES, PLAIN, PROMPT
from support.timing import cpu_seconds

NO_COMMA = Instruction(id="punctuation:no_comma")
TITLE = Instruction(id="detectable_format:title")
SOUND = "A long and sound answer to the question."
WIND = "Cold wind over grey water."


def score(name, kwargs, response, prompt=""):
    return verify([Instruction(id=name, kwargs=kwargs)], response, prompt=prompt).score


BAD = [
    ("keywords:nonsense", {}),
    ("", {}),
    *(("keywords:existence", kwargs) for kwargs in (
        {}, {"keywords": []}, {"keywords": ["a", ""]}, {"keywords": "abc"}, {"keywords": ["a"], "number": 2},
    )),
    *(("keywords:frequency", {"keyword": "a", **kwargs}) for kwargs in (
        {"frequency": 2}, {"frequency": None, "relation": "at least"}, {"frequency": 2, "relation": "at most"},
        {"frequency": 2, "relation": ["at least"]}, {"frequency": 0, "relation": "less than"},
    )),
    *(("keywords:frequency", {"keyword": "a", "frequency": number, "relation": "at least"}) for number in (
        0, -1, 1.5, float("nan"), float("inf"), True,
    )),
    ("keywords:letter_frequency", {"letter": "ab", "let_frequency": 2, "let_relation": "at least"}),
    ("length_constraints:number_words", {"num_words": 1, "relation": "less than"}),
    ("length_constraints:number_sentences", {"num_sentences": 1, "relation": "less than"}),
    ("letters:letter_counting", {"N": 1, "relation": "less than"}),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 0}),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 3, "first_word": "a"}),
    ("language:response_language", {"language": "tlh"}),
    ("language:response_language", {"language": ["en"]}),
    ("punctuation:no_comma", {"comma": 1}),
    ("count:word_count_range", {"min_words": 5, "max_words": 4}),
    ("count:conjunctions", {"small_n": 8}),
    ("copy:repeat_phrase", {"phrase": "two words", "small_n": 2}),
    ("new:copy_span_idx", {"prompt_to_repeat": "abc", "n_start": 2, "n_end": 9}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kwargs"), BAD)
def test_what_cannot_be_checked_is_refused_and_never_a_point(name, kwargs):
    bad = Instruction(id=name, kwargs=kwargs)
    with pytest.raises(UnknownInstructionError) as caught:
        validate(bad)
    assert isinstance(caught.value, ProrlError)
    assert "\n" not in str(caught.value)
    for instructions in ([bad], [NO_COMMA, bad]):
        verdict = verify(instructions, SOUND)
        assert (verdict.status, verdict.score, verdict.note) == ("error", 0.0, str(caught.value))


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_missing_or_an_odd_argument_is_refused(name):
    kwargs, _ = EXAMPLES[name]
    validate(Instruction(id=name, kwargs=kwargs))
    for wrong in ({**kwargs, "odd": 1}, *({**kwargs, absent: None} for absent in kwargs)):
        with pytest.raises(UnknownInstructionError):
            validate(Instruction(id=name, kwargs=wrong))


def test_nulls_are_absent_zeros_are_kept_and_floats_of_tables_are_counts():
    validate(Instruction(id="punctuation:no_comma", kwargs={"num_words": None, "keywords": None}))
    span = {"prompt_to_repeat": "abc def", "n_start": 0, "n_end": 3}
    assert score("new:copy_span_idx", span, "abc") == 1
    assert score("new:copy_span_idx", span | {"prompt_to_repeat": ["abc def"]}, "abc") == 1
    nowhere = {"keyword": "…", "n": 1, "m": 9}  # of no word at all no place is the right one
    assert score("keywords:keyword_specific_position", nowhere, "One two.") == 0
    assert score("detectable_format:number_bullet_lists", {"num_bullets": 0}, WIND) == 1
    five = {"num_words": 5.0, "relation": "at least"}
    assert score("length_constraints:number_words", five, WIND) == 1


GAMES = (
    *("", " \n", "ok", ".", "ok " * 50, "the sea and the wind " * 30, "[a] *b* <<c>>"),
    *(PROMPT, f"{PROMPT} {PROMPT}"),
)


def test_every_known_id_has_an_example():
    assert EXAMPLES.keys() == RULES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_meets_its_instruction_and_games_do_not_pay(name):
    kwargs, response = EXAMPLES[name]
    verdict = verify([Instruction(id=name, kwargs=kwargs)], response, prompt=PROMPT)
    assert (verdict.status, verdict.score) == ("ok", 1.0)
    assert [game for game in GAMES if score(name, kwargs, game, PROMPT)] == []


@pytest.mark.parametrize("name", [
    "keywords:existence", "keywords:frequency", "keywords:word_once", "keywords:keyword_specific_position",
    "length_constraints:nth_paragraph_first_word", "detectable_content:postscript", "startend:end_checker",
    "detectable_format:multiple_sections", "combination:repeat_prompt", "first_word:first_word_answer",
    "first_word:first_word_sent", "last_word:last_word_answer", "last_word:last_word_sent", "copy:repeat_phrase",
    "count:count_increment_word", "count:keywords_multiple",
])  # fmt: skip
def test_only_what_the_instruction_hands_out_is_no_answer(name):
    kwargs, _ = EXAMPLES[name]
    for value in kwargs.values():
        listed = " ".join(value) if isinstance(value, list) else str(value)
        assert not score(name, kwargs, f"{listed} {listed}", PROMPT)


def test_a_limit_on_length_lowers_the_floor_for_all():
    four, two = (
        Instruction(id="length_constraints:number_words", kwargs={"num_words": n, "relation": "less than"})
        for n in (4, 2)
    )
    assert verify([four, NO_COMMA], "Grey water").score == 1.0
    assert verify([four, NO_COMMA], "water").score == 0.0
    assert verify([two], "water").score == 1.0
    assert verify([NO_COMMA], "Grey water").score == 0.0


def test_a_fixed_answer_lifts_the_floor_only_when_given():
    fixed = Instruction(id="detectable_format:constrained_response")
    assert verify([fixed, NO_COMMA], "My answer is no.").score == 1.0
    assert verify([fixed, NO_COMMA], "no").score == 0.0
    assert verify([fixed, NO_COMMA], "My answer is yes. My answer is no.").score == 0.5


def test_the_score_is_the_share_that_is_met():
    verdict = verify([NO_COMMA, TITLE], PLAIN)
    assert (verdict.score, verdict.status, verdict.answered) == (0.5, "wrong", True)
    assert not verify([NO_COMMA, TITLE], "").answered
    assert verify([NO_COMMA], PLAIN * 3000).score == 0.0, "a book is not judged"


INSTRUCTIONS = [Instruction(id=name, kwargs=kwargs) for name, (kwargs, _) in EXAMPLES.items()]
READ = {
    name: (RULES[name].test, {key: RULES[name].arguments[key](value) for key, value in kwargs.items()})
    for name, (kwargs, _) in EXAMPLES.items()
}
PIECES = (
    *" \n\t.,!?*-[]<>{}\"'“”…。、_`#:1９aZéß你ก\u0301\u200d\ufffd",
    *("***", "******", "<<", ">>", "```json\n", "P.S.", "Section 1", "My answer is yes.", "\n\n", "\n* ", "\r\n"),
    *(response for _, response in EXAMPLES.values()), PROMPT,
)  # fmt: skip
RESPONSES = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from(PIECES), max_size=20).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=20).map(" ".join),
    st.builds(
        lambda text, at, put: text[:at] + put + text[at + len(put) // 2 :],
        st.sampled_from([response for _, response in EXAMPLES.values()]),
        st.integers(0, 80),
        st.sampled_from(PIECES) | st.text(max_size=5),
    ),
)


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_any_response_under_every_rule(count):
    """Also without the floor, which would hide a rule that raises; twice the same."""

    @settings(max_examples=count)
    @given(RESPONSES)
    def judge(response):
        met = {name for name, (test, arguments) in READ.items() if test(response, **arguments)}
        assert met == {name for name, (test, arguments) in READ.items() if test(response, **arguments)}
        verdict = verify(INSTRUCTIONS, response, prompt=PROMPT)
        assert verdict.status != "error"
        assert verdict.score in (0.0, len(met) / len(READ))

    judge()


HOSTILE = (
    *("*", "[", "<<", "<<a ", "[a", ".", ".)", "\n", " ", "\n ", "a ", "a.", "a'", "_", '"', "{", "```\n", "A. "),
    *("*a", "**a ", "P.", "P. ", "-", "1. ", "Section 1 ", "the cold wind ", "\u0301", "你", "<<a b>>", "İ", "ﷺ"),
    *("the ", "tide\n\n", "say hello. ", "******", "\n* ", "9", "1.", "a-"),
)  # fmt: skip


@pytest.mark.parametrize("size", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("piece", HOSTILE)
def test_time_grows_with_the_length_only(piece, size):
    """The signs at the end undo a match that ran to the end; the limit is 100 times what a rule takes."""
    response = piece * (size // len(piece)) + "x\n"
    calls = {name: lambda rule=rule: rule[0](response, **rule[1]) for name, rule in READ.items()}
    calls["floor"] = lambda: says_something(response, response[: size // 2], given=frozenset(), least=5)
    for name, call in calls.items():
        assert cpu_seconds(call, enough=size / 40_000) < size / 40_000, name
