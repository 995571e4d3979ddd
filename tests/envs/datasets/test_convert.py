from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.envs.datasets.catalogue import SOURCES
from prorl.envs.datasets.convert import BOXED, LETTER, convert
from prorl.envs.datasets.read import match_columns
from prorl.envs.datasets.records import Drop, SourceRequest
from support.data_rows import ROWS

NUMBER = {"kind": "math", "tolerance": None}


def no_sandbox(job):
    raise AssertionError(f"nothing here needs a sandbox: {job}")


def converted(name, row, run=no_sandbox):
    source = SOURCES[name]
    columns = match_columns(source, SourceRequest(name=name), set(row))
    return convert(source.layout, {field: row[column] for field, column in columns.items()}, run)


def plain(layout, **fields):
    return convert(layout, fields, no_sandbox)


@pytest.mark.parametrize("name", SOURCES)
def test_rows_of_every_source_become_problems(name, run):
    for row in ROWS[name]:
        prepared = converted(name, row, run)
        assert prepared.prompt.startswith(prepared.question[:20])
        assert prepared.payload["kind"] in ("math", "choice", "quantity", "code", "instructions")


def test_math_asks_for_a_box_as_prorl_does():
    prepared = plain("short_answer", prompt=" 1 + 1? ", answer="2")
    assert prepared.prompt == f"1 + 1?\n{BOXED}"
    assert prepared.payload == {**NUMBER, "gold": "2"}
    assert prepared.witness.answer == "2"


def test_a_prompt_that_asks_for_a_box_is_not_told_twice():
    assert plain("short_answer", prompt="1+1? Put it in \\boxed{}.", answer="2").prompt.count("boxed") == 1


@pytest.mark.parametrize(
    ("answer", "gold"),
    [(142.0, "142"), (7, "7"), (0.5, "0.5"), ("$\\frac12$", "\\frac12"), (["$3$", "$-3$"], "3, -3")],
)
def test_answers_of_every_type_become_text(answer, gold):
    assert plain("short_answer", prompt="?", answer=answer).payload["gold"] == gold


@pytest.mark.parametrize("answer", ["", "  ", None, [], [""], ["3", ""]])
def test_a_row_without_an_answer_is_dropped(answer):
    with pytest.raises(Drop, match="no answer"):
        plain("short_answer", prompt="?", answer=answer)


@pytest.mark.parametrize("prompt", ["", None, [], [{"role": "system", "content": "x"}], {"input": None}, 5])
def test_a_row_without_a_prompt_is_dropped(prompt):
    with pytest.raises(Drop, match="no prompt"):
        plain("short_answer", prompt=prompt, answer="1")


@pytest.mark.parametrize(("error", "tolerance"), [("1e-1", 0.1), (None, None), ("", None), ("1e-2,5", None)])
def test_olympiads_tolerance(error, tolerance):
    assert plain("short_answer", prompt="?", answer="1", tolerance=error).payload["tolerance"] == tolerance


@pytest.mark.parametrize(
    ("kind", "answer", "payload"),
    [
        ("Integer", "42", {"kind": "quantity", "gold": "42"}),
        ("Float", "3.0e8 m/s", {"kind": "quantity", "gold": "3.0e8 m/s"}),
        ("Fraction", "1/3", {**NUMBER, "gold": "1/3"}),
        ("Boolean", "No", {"kind": "choice", "gold": "B", "options": ["Yes", "No"]}),
        ("Boolean", "TRUE", {"kind": "choice", "gold": "A", "options": ["True", "False"]}),
        ("Multiple Choice", "(b)", {"kind": "choice", "gold": "B", "options": ["neon", "iron"]}),
    ],
)
def test_webinstruct_is_judged_by_the_type_of_its_answer(kind, answer, payload):
    prepared = plain("typed_answer", prompt="Metal?\nA) neon\nB) iron", answer=answer, type=kind)
    assert prepared.payload == payload


@pytest.mark.parametrize(
    ("kind", "prompt", "answer", "reason"),
    [
        ("Expression", "f?", "x+1", "answer type expression"),
        ("Boolean", "f?", "maybe", "neither"),
        ("Multiple Choice", "no options", "A", "no options"),
        ("Multiple Choice", "A) one B) two", "D", "not among"),
        ("Multiple Choice", "A) one B) two", "Albert", "not among"),
        ("Multiple Choice", "A) one B) one", "A", "the same"),
    ],
)
def test_rows_of_webinstruct_that_cannot_be_judged_are_dropped(kind, prompt, answer, reason):
    with pytest.raises(Drop, match=reason):
        plain("typed_answer", prompt=prompt, answer=answer, type=kind)


@pytest.mark.parametrize(
    ("solution", "payload"),
    [
        ("so \\boxed{\\frac{1}{2}}", {**NUMBER, "gold": "\\frac{1}{2}"}),
        ("first 3 N. Hence the answer is 4 N.", {"kind": "quantity", "gold": "4 N"}),
        ("Answer: $x=3$", {**NUMBER, "gold": "x=3"}),
    ],
)
def test_the_short_answer_is_found_in_a_worked_solution(solution, payload):
    assert plain("worked_solution", prompt="?", solution=solution).payload == payload


@pytest.mark.parametrize("solution", ["", "We integrate both sides.", "The answer is " + "long " * 30])
def test_a_solution_without_a_short_answer_is_dropped(solution):
    with pytest.raises(Drop, match="no short answer"):
        plain("worked_solution", prompt="?", solution=solution)


@pytest.mark.parametrize(
    "options",
    [
        ["argon", "iron"],
        {"A": "argon", "B": "iron", "C": None},
        [{"A": "argon", "B": None}, {"A": None, "B": "iron"}],
        '{"A": "argon", "B": "iron"}',
    ],
)
def test_options_in_all_forms_are_listed_where_the_question_does_not(options):
    prepared = plain("options", prompt="Which is a metal?", options=options, answer="B")
    assert prepared.prompt == f"Which is a metal?\nA. argon\nB. iron\n{LETTER}"
    assert prepared.payload == {"kind": "choice", "gold": "B", "options": ["argon", "iron"]}


def test_a_template_around_a_question_goes():
    (row,) = ROWS["nemotron_mcqa"]
    prepared = converted("nemotron_mcqa", row)
    assert "Say X" not in prepared.prompt
    assert prepared.prompt.endswith(LETTER)
    assert prepared.prompt.count("Argon") == 1


def test_gpqa_is_shuffled_alike_every_time_and_not_always_alike():
    prepared = [converted("gpqa_diamond", row) for row in ROWS["gpqa_diamond"]]
    assert prepared == [converted("gpqa_diamond", row) for row in ROWS["gpqa_diamond"]]
    for problem in prepared:
        gold, options = problem.payload["gold"], problem.payload["options"]
        assert options["ABCD".index(gold)] == "the proton"
        assert sorted(options) == ["the electron", "the neutrino", "the photon", "the proton"]
    assert len({problem.payload["gold"] for problem in prepared}) > 1


def test_instructions_get_no_text_on_the_form_and_lose_their_nulls_but_not_their_zeros():
    arguments = [{"frequency": 0, "keyword": "sun", "relation": "less than", "num_words": None}, None]
    ids = ["keywords:frequency", "punctuation:no_comma"]
    prepared = plain("instructions", prompt="Write.", ids=ids, arguments=arguments)
    assert prepared.prompt == "Write."
    first, second = prepared.payload["instructions"]
    assert first["kwargs"] == {"frequency": 0, "keyword": "sun", "relation": "less than"}
    assert second == {"id": "punctuation:no_comma", "kwargs": {}}


@pytest.mark.parametrize(("ids", "arguments"), [([], []), (["a:b"], []), (None, None), (["a:b"], 5)])
def test_instructions_without_matching_arguments_are_dropped(ids, arguments):
    with pytest.raises(Drop, match="arguments"):
        plain("instructions", prompt="Write.", ids=ids, arguments=arguments)


cells = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.just("A. x B. y"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "source", [s for s in SOURCES.values() if s.layout != "asserts"], ids=lambda s: s.name
)
@settings(max_examples=30)
@given(data=st.data())
def test_whatever_the_cells_hold_a_row_is_used_or_dropped(source, data):
    fields = {field: data.draw(cells) for field in (*source.columns, *source.optional)}
    fields["private"] = ""  # what is packed is opened in a sandbox; its own tests see to that
    with suppress(Drop):
        assert convert(source.layout, fields, no_sandbox).question
