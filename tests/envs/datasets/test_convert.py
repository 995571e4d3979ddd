"""Rows of every source become problems or are dropped for a reason; nothing of a row runs in this process."""

import base64
import json
import math
import os
import pickle
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prorl.envs.datasets import convert as module
from prorl.envs.datasets.catalogue import SOURCES, DataError, Drop, SourceRequest, match_columns
from prorl.envs.datasets.convert import BOXED, COMPLETE, LETTER, STDIN, convert
from prorl.envs.datasets.opening import OPENING
from prorl.envs.extract import extract_code
from prorl.envs.grading import tests_of as asked
from prorl.envs.sandbox.jobs import CaseResult
from prorl.envs.verifiers.programs import judge_program
from support.data_rows import CONTEST, HUMANEVAL, ROWS, eurus, pack


def no_sandbox(job):
    raise AssertionError(f"nothing here needs a sandbox: {job}")


def fields_of(name, row):
    columns = match_columns(SOURCES[name], SourceRequest(name=name), set(row))
    return {field: row[column] for field, column in columns.items()}


def choice(gold, *options):
    return {"kind": "choice", "gold": gold, "options": list(options)}


def plain(layout, **fields):
    return convert(layout, fields, no_sandbox)


def test_math_asks_for_a_box_as_prorl_does_but_not_twice():
    prepared = plain("short_answer", prompt=" 1 + 1? ", answer="2")
    assert prepared.prompt == f"1 + 1?\n{BOXED}"
    assert prepared.payload == number("2")
    assert prepared.solution.answer == "2"
    assert plain("short_answer", prompt="1+1? Put it in \\boxed{}.", answer="2").prompt.count("boxed") == 1


METAL = "Metal?\nA) neon\nB) iron"


def number(gold, tolerance=None):
    return {"kind": "math", "gold": gold, "tolerance": tolerance}


def quantity(gold):
    return {"kind": "quantity", "gold": gold}


@pytest.mark.parametrize(
    ("layout", "fields", "payload"),
    [
        ("short_answer", {"answer": 142.0}, number("142")),
        ("short_answer", {"answer": 7}, number("7")),
        ("short_answer", {"answer": 0.5}, number("0.5")),
        ("short_answer", {"answer": "$\\frac12$"}, number("\\frac12")),
        ("short_answer", {"answer": ["$3$", "$-3$"]}, number("3, -3")),
        ("short_answer", {"answer": "so $x^2$ is \\boxed{\\frac{1}{2}}."}, number("\\frac{1}{2}")),
        ("short_answer", {"answer": "1", "tolerance": "1e-1"}, number("1", 0.1)),
        ("short_answer", {"answer": "1", "tolerance": None}, number("1")),
        ("short_answer", {"answer": "1", "tolerance": ""}, number("1")),
        ("short_answer", {"answer": "1", "tolerance": "1e-2,5"}, number("1")),
        ("short_answer", {"answer": "1", "tolerance": 10**400}, number("1")),
        ("typed_answer", {"type": "Integer", "answer": "42"}, quantity("42")),
        ("typed_answer", {"type": "Float", "answer": "3.0e8 m/s"}, quantity("3.0e8 m/s")),
        ("typed_answer", {"type": "Fraction", "answer": "1/3"}, number("1/3")),
        ("typed_answer", {"type": "Boolean", "answer": "No"}, choice("B", "Yes", "No")),
        ("typed_answer", {"type": "Boolean", "answer": "TRUE"}, choice("A", "True", "False")),
        ("typed_answer", {"type": "Boolean", "answer": True}, choice("A", "True", "False")),
        ("typed_answer", {"type": "Multiple Choice", "answer": "(b)"}, choice("B", "neon", "iron")),
        ("options", {"options": [True, False], "answer": True}, choice("A", "True", "False")),
        ("options", {"options": [False, True], "answer": True}, choice("B", "False", "True")),
        ("worked_solution", {"solution": "so \\boxed{\\frac{1}{2}}"}, number("\\frac{1}{2}")),
        ("worked_solution", {"solution": "Answer: $x=3$"}, number("x=3")),
        ("worked_solution", {"solution": "first 3 N. Hence the answer is 4 N."}, quantity("4 N")),
        ("worked_solution", {"solution": "The answer is approximately 3.2 m."}, quantity("3.2 m")),
        ("worked_solution", {"solution": "The final answer is: 42"}, quantity("42")),
        ("worked_solution", {"solution": "The answer is **5**."}, quantity("5")),
        ("short_answer", {"answer": "each has \\boxed{7}\nthen total #### 42"}, number("42")),
        ("worked_solution", {"solution": "**Answer:** $\\frac12$"}, number("\\frac12")),
        ("short_answer", {"answer": "\\boxed{7}\n\n#### Verification\nIt holds."}, number("7")),
    ],
)
def test_what_judging_needs_is_read_from_answers_of_every_form(layout, fields, payload):
    assert plain(layout, prompt=METAL, **fields).payload == payload


@pytest.mark.parametrize(
    ("layout", "fields", "reason"),
    [
        *(("short_answer", {"answer": one}, "no answer") for one in ("", "  ", None, [], [""], ["3", ""])),
        *(("short_answer", {"answer": one}, "no answer") for one in (math.nan, math.inf, -math.inf)),
        *(
            ("short_answer", {"prompt": prompt, "answer": "1"}, "no prompt")
            for prompt in ("", None, [], [{"role": "system", "content": "x"}], {"input": None}, 5)
        ),
        *(("short_answer", {"answer": one}, "true or false") for one in (True, False, ["3", True])),
        ("options", {"options": ["Yes", "No"], "answer": True}, "not among"),  # no place either
        ("options", {"options": ["1", "2"], "answer": 1}, "place or letter and another one's text"),
        ("options", {"options": ["O", "A", "B", "AB"], "answer": "A"}, "place or letter and another one's"),
        ("options", {"options": {"text": ["a", "b"], "other": ["c", "d"]}, "answer": "A"}, "no options"),
        ("typed_answer", {"type": "Expression", "answer": "x+1"}, "answer type expression"),
        ("typed_answer", {"type": "Boolean", "answer": "maybe"}, "neither"),
        ("typed_answer", {"type": "Multiple Choice", "answer": "A", "prompt": "none"}, "no options"),
        ("typed_answer", {"type": "Multiple Choice", "answer": "D"}, "not among"),
        ("typed_answer", {"type": "Multiple Choice", "answer": "Albert"}, "not among"),
        ("typed_answer", {"type": "Multiple Choice", "answer": "A", "prompt": "A) one B) one"}, "the same"),
        ("worked_solution", {"solution": ""}, "no short answer"),
        ("worked_solution", {"solution": "We integrate both sides."}, "no short answer"),
        ("worked_solution", {"solution": "The answer is " + "long " * 30}, "no short answer"),
        ("instructions", {"ids": [], "arguments": []}, "arguments"),
        ("instructions", {"ids": ["a:b"], "arguments": []}, "arguments"),
        ("instructions", {"ids": None, "arguments": None}, "arguments"),
        ("instructions", {"ids": ["a:b"], "arguments": 5}, "arguments"),
        ("instructions", {"ids": [["a:b"]], "arguments": [{}]}, "no text"),
    ],
)
def test_rows_that_cannot_be_judged_are_dropped(layout, fields, reason):
    with pytest.raises(Drop, match=reason):
        plain(layout, **{"prompt": METAL, **fields})


@pytest.mark.parametrize(
    "options",
    [
        ["argon", "iron"],
        {"A": "argon", "B": "iron", "C": None},
        [{"A": "argon", "B": None}, {"A": None, "B": "iron"}],
        '{"A": "argon", "B": "iron"}',
        {"text": ["argon", "iron"], "label": ["A", "B"]},
    ],
)
def test_options_in_all_forms_are_listed_where_the_question_does_not(options):
    prepared = plain("options", prompt="Which is a metal?", options=options, answer="B")
    assert prepared.prompt == f"Which is a metal?\nA. argon\nB. iron\n{LETTER}"
    assert prepared.payload == {"kind": "choice", "gold": "B", "options": ["argon", "iron"]}


@pytest.mark.parametrize(
    ("options", "answer", "gold"),
    [
        ({"text": ["argon", "iron"], "label": ["1", "2"]}, "2", "B"),
        (["argon", "iron"], 1, "B"),
        (["argon", "iron"], "1", "B"),  # from CSV
        (["2", "0"], 1, "B"),
        (["2", "1"], 1, "B"),
        ([2, 1], "1", "B"),
        ({"A": None, "B": "argon", "C": "iron"}, "C", "B"),
        ([{"B": "iron"}, {"A": "argon"}], "B", "A"),
        ([{"A": "argon"}, {"B": "iron"}], 1, "B"),
    ],
)
def test_the_right_option_is_said_by_its_label_or_its_place(options, answer, gold):
    assert plain("options", prompt="Which?", options=options, answer=answer).payload["gold"] == gold


def test_a_chat_under_input_keeps_what_was_said_before():
    turns = [{"role": role, "content": role} for role in ("system", "user", "assistant", "user")]
    assert module.user_text({"input": turns}) == "user"
    assert [role for role, _ in module.history_of({"input": turns})] == ["system", "user", "assistant"]


def test_options_that_only_happen_to_stand_in_the_question_are_listed():
    question = "Two towns A: Ayr (population 4) and B: Bo (population 3) are 12 km apart. How far is half?"
    prepared = plain("options", prompt=question, options=["1", "2", "4", "3"], answer="A")
    assert "\nA. 1\nB. 2\nC. 4\nD. 3" in prepared.prompt


def test_what_csv_makes_of_lists_is_read():
    chat = '[{"role": "system", "content": "Be terse."}, {"role": "user", "content": "What is 2+2?"}]'
    assert module.user_text(chat) == "What is 2+2?"
    assert module.history_of(chat) == (("system", "Be terse."),)
    prepared = plain("instructions", prompt="Write.", ids='["punctuation:no_comma"]', arguments="[{}]")
    assert prepared.payload["instructions"] == [{"id": "punctuation:no_comma", "kwargs": {}}]


def test_a_template_around_a_question_goes():
    (row,) = ROWS["nemotron_mcqa"]
    prepared = plain("options", **fields_of("nemotron_mcqa", row))
    assert "Say X" not in prepared.prompt
    assert prepared.prompt.endswith(LETTER)
    assert prepared.prompt.count("Argon") == 1


def test_gpqa_is_shuffled_alike_every_time_and_not_always_alike():
    prepared, again = (
        [plain("distractors", **fields_of("gpqa_diamond", row)) for row in ROWS["gpqa_diamond"]] for _ in "12"
    )
    assert prepared == again
    for problem in prepared:
        gold, options = problem.payload["gold"], problem.payload["options"]
        assert options["ABCD".index(gold)] == "the proton"
        assert sorted(options) == ["the electron", "the neutrino", "the photon", "the proton"]
    assert len({problem.payload["gold"] for problem in prepared}) > 1


def test_instructions_get_no_text_on_the_form_and_lose_their_nulls_but_not_their_zeros():
    arguments = [{"frequency": 0, "relation": "less than", "num_words": None}, None]
    prepared = plain("instructions", prompt="Write.", ids=["a:b", "c:d"], arguments=arguments)
    assert prepared.prompt == "Write."
    assert prepared.payload["instructions"] == [
        {"id": "a:b", "kwargs": {"frequency": 0, "relation": "less than"}},
        {"id": "c:d", "kwargs": {}},
    ]


# coding problems


def broken_sandbox(job):
    return (CaseResult(status="sandbox_error", note="no server"),)


def from_eurus(question="Add.", **tests):
    row = eurus(question, **tests)
    return plain("tests", prompt=row["prompt"], tests=row["reward_model"])


def contest(row, run, **changes):
    return convert("contest", fields_of("livecodebench", row) | changes, run)


def asserts(run, **changes):
    return convert("asserts", fields_of("humaneval_plus", HUMANEVAL[0]) | changes, run)


PAYLOAD = {"kind": "code", "entry": None, "tolerance": 1e-6, "maybe_wrapped": False}


def test_a_script_of_eurus_keeps_its_tests_and_loses_its_system_prompt_and_its_own_request():
    prepared = from_eurus("Add the numbers.", inputs=["1 2\n", ["3", " 4"]], outputs=["3\n", [7]])
    assert prepared.question == "Add the numbers."
    assert prepared.prompt == f"Add the numbers.\n\n{STDIN}"
    assert prepared.payload == {**PAYLOAD, "inputs": ["1 2\n", "3\n 4"], "expected": ["3\n", "7"]}


def test_a_call_of_eurus_has_one_json_argument_per_line():
    payload = from_eurus(inputs=['[1, 2]\n"x"', [[], "y"]], outputs=["3", 0], fn_name="f").payload
    assert (payload["inputs"], payload["expected"]) == ([[[1, 2], "x"], [[], "y"]], [3, 0])


@pytest.mark.parametrize(
    ("outputs", "maybe_wrapped", "right", "wrong"),
    [
        (["[2]", "[4]"], True, "2 * x", "2 * x + 1"),
        (["[2]", "[4]"], True, "[2 * x]", "[x]"),
        (["[[2]]", "[[4]]"], True, "[2 * x]", "2 * x"),
        (["[2]"], True, "2 * x", "x"),
        (["[2]"], True, "[2 * x]", "[[2 * x]]"),
        (["[2]", "[4, 5]"], False, "[2] if x == 1 else [4, 5]", "2"),
        (["2", "4"], False, "2 * x", "[2 * x]"),
        ([2, 4], False, "2 * x", "[2 * x]"),
    ],
)
def test_results_that_apps_may_have_wrapped_are_right_either_way(run, outputs, maybe_wrapped, right, wrong):
    payload = from_eurus(inputs=["1", "2"][: len(outputs)], outputs=outputs, fn_name="f").payload
    assert payload["maybe_wrapped"] is maybe_wrapped
    for expression, passes in ((right, True), (wrong, False)):
        source = f"def f(x): return {expression}"
        assert (judge_program(run, source, asked(payload), OPENING).score == 1) is passes


def test_a_script_or_a_contest_is_never_wrapped():
    assert not from_eurus(inputs=["1", "2"], outputs=["[2]", "[4]"]).payload["maybe_wrapped"]
    private = json.dumps([{"input": "3\n4", "output": "[4]"}, {"input": "5\n4", "output": "[5]"}])
    payload = contest(CONTEST[1], no_sandbox, public="[]", private=private).payload
    assert (payload["expected"], payload["maybe_wrapped"], payload["tolerance"]) == ([[4], [5]], False, None)


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ({"inputs": [], "outputs": []}, "no tests"),
        ({"inputs": ["1"]}, "no tests"),
        ({"inputs": "5 6", "outputs": "11\n"}, "no lists"),
        ({"inputs": {"a": "1"}, "outputs": {"a": "2"}}, "no lists"),
        ({"inputs": ["1", "2"], "outputs": ["1"]}, "not one output per input"),
        ({"inputs": ["f("], "outputs": ["1"], "fn_name": "f"}, "no JSON"),
        ({"inputs": ["NaN"], "outputs": ["1"], "fn_name": "f"}, "no JSON"),
        ({"inputs": [{"a": 1}], "outputs": ["1"]}, "no text"),
        ({"inputs": ["x" * 200_000], "outputs": ["1"]}, "too large"),
        ({"inputs": ["1"], "outputs": [""]}, "all empty"),
        ({"inputs": ["1", "2"], "outputs": ["\n", " "]}, "all empty"),
        ({"inputs": ["1"], "outputs": ["null"], "fn_name": "f"}, "all empty"),
        ({"inputs": ["1", "2"], "outputs": ["[]", "[]"], "fn_name": "f"}, "all empty"),
        ({"inputs": ["1", "2"], "outputs": ["Yes", "Yes\n"]}, "one expected output"),
        ({"inputs": ["1", "2"], "outputs": ["0.5", "0.50"]}, "one expected output"),
        ({"inputs": ["1", "2"], "outputs": ["true", "true"], "fn_name": "f"}, "one expected output"),
        ({"inputs": ['{"1": 2}'], "outputs": ["3"], "fn_name": "f"}, "keys JSON made text"),
        (
            {"inputs": ["[" * 99 + "]" * 99], "outputs": ["1"], "fn_name": "f"},
            "with a value nested too deeply",
        ),
        ({"inputs": ["1"], "outputs": ["[" * 99 + "]" * 99], "fn_name": "f"}, "nested too deeply"),
        ({"inputs": ["9" * 4250], "outputs": ["1"], "fn_name": "f"}, "an integer of too many digits"),
        ({"inputs": ["1"], "outputs": ["1"], "fn_name": "a b"}, "a name that Python does not allow"),
        ({"inputs": ["1"], "outputs": ["1"], "fn_name": 5}, "a name that Python does not allow"),
    ],
)
def test_rows_without_usable_tests_are_dropped(tests, reason):
    with pytest.raises(Drop, match=reason):
        from_eurus(**tests)


def test_tests_are_capped_in_number_evenly_and_in_size(monkeypatch):
    numbers = [str(n) for n in range(1000)]
    kept = from_eurus(inputs=numbers, outputs=numbers).payload["inputs"]
    assert len(kept) == module.MAX_TESTS
    assert kept[0] == "0"
    assert int(kept[-1]) > 950
    monkeypatch.setattr(module, "MAX_TOTAL_BYTES", 100)
    few = from_eurus(inputs=numbers, outputs=numbers).payload
    assert len(json.dumps([few["inputs"], few["expected"]])) <= 100
    large = ["x" * 200_000, "small"]
    assert from_eurus(inputs=large, outputs=["1", "2"]).payload["expected"] == ["2"]


def test_packed_tests_are_opened_in_the_sandbox_and_nowhere_else(run, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("unpickled in this process")

    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "Unpickler", refuse)
    script, call = (contest(row, run) for row in CONTEST)
    assert script.payload["expected"] == ["4\n", "81\n"]
    assert script.prompt.endswith(STDIN)
    assert (call.payload["entry"], call.payload["inputs"]) == ("larger", [[2, 5], [8, 3]])
    assert "class Solution" in call.prompt
    assert call.prompt.endswith(COMPLETE)
    method = "class Solution:\n    def larger(self, a, b):\n        return max(a, b)"
    assert judge_program(run, method, asked(call.payload), OPENING).score == 1


class Touches:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_hostile_pickle_creates_nothing_and_costs_its_row(run, tmp_path):
    canary = tmp_path / "canary"
    tmp_path.chmod(0o777)
    packed = base64.b64encode(zlib.compress(pickle.dumps(Touches(canary)))).decode()
    with pytest.raises(Drop, match="cannot be opened"):
        contest(CONTEST[0], run, private=packed)
    assert not canary.exists()
    pickle.loads(pickle.dumps(Touches(canary)))
    assert canary.exists(), "the pickle would have done it here"


def test_packed_tests_are_capped_inside_the_sandbox(run, monkeypatch):
    monkeypatch.setattr(module, "MAX_TESTS", 5)
    many = pack([{"input": f"{n}\n", "output": f"{n}\n"} for n in range(300)])
    kept = contest(CONTEST[0], run, private=many).payload["inputs"]
    assert kept == ["2\n", "0\n", "60\n", "120\n", "180\n"]


def test_plain_private_tests_need_no_sandbox():
    plain = json.dumps([{"input": "3\n", "output": "9\n"}])
    assert contest(CONTEST[0], no_sandbox, private=plain).payload["expected"] == ["4\n", "9\n"]
    assert contest(CONTEST[0], no_sandbox, private="").payload["expected"] == ["4\n"]


def test_the_asserts_of_humaneval_become_inputs_and_expected_values(run):
    prepared = asserts(run)
    tests = {"inputs": [[[3, 1, 2]], [[]], [[5, 5]]], "expected": [[1, 2, 3], [], [5, 5]]}
    assert prepared.payload == {**PAYLOAD, "entry": "ordered", **tests}
    source = extract_code(prepared.solution.answer)
    assert judge_program(run, source, asked(prepared.payload), OPENING).score == 1


def test_an_argument_that_the_solution_changes_is_noted_as_it_was(run):
    assert asserts(run, solution="    values.sort()\n    return values\n").payload["inputs"][0] == [[3, 1, 2]]


@pytest.mark.parametrize(
    "changes",
    [
        {"test": "def assertion(out, exp, atol): pass\ndef check(c):\n    assertion(c({5: 1}), [5], 0)\n"},
        {"solution": "    return nonsense\n"},
        {"entry": "absent"},
        {"test": "def check(candidate):\n    assert candidate([1]) == [1]\n"},
        {"test": "def assertion(out, exp, atol): pass\ndef check(candidate):\n    assert candidate([1])\n"},
        {"test": "import sys\nsys.exit(0)\n"},
    ],
)
def test_a_solution_that_fails_or_a_test_of_another_kind_costs_its_row(changes, run):
    with pytest.raises(Drop, match="cannot be opened"):
        asserts(run, **changes)
    with pytest.raises(Drop, match="fails its own test"):
        asserts(run, solution="    return values\n")


def test_a_broken_sandbox_stops_the_preparation_instead_of_dropping_everything():
    with pytest.raises(DataError, match=r"no server.*prorl doctor"):
        contest(CONTEST[0], broken_sandbox)


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
