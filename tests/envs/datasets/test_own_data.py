"""Data of the user's own in the layouts of other trainers, and from the hub: nothing but a kind is said."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from prorl.build import check_sandbox
from prorl.envs.datasets.catalogue import DataError, SourceRequest, resolve
from prorl.envs.datasets.prepare import DatasetTask
from prorl.envs.extensions import Extension
from prorl.envs.sandbox.sandbox import Sandbox
from support.data_rows import all_problems, prepared
from support.recipes import recipe

USER = {"role": "user", "content": "What is 6 times 7?"}
LAYOUTS = {
    "GSM8K": {"question": USER["content"], "answer": "6 * 7 = <<6*7=42>>42\n#### 42"},
    "verl": {
        "data_source": "openai/gsm8k",
        "prompt": [USER],
        "reward_model": {"style": "rule", "ground_truth": "42"},
        "extra_info": {"split": "train", "index": 0},
    },
    "TRL, conversational": {"prompt": [USER], "solution": "42"},
    "TRL, plain": {"prompt": USER["content"], "ground_truth": "42"},
    "NeMo-RL": {"input": USER["content"], "output": "42"},
    "messages": {"messages": [USER], "target": 42.0},
    "Alpaca": {"instruction": USER["content"], "output": "42"},
}


def first(task: DatasetTask):
    return all_problems(task)[0]


@pytest.mark.parametrize("row", LAYOUTS.values(), ids=LAYOUTS)
def test_a_layout_is_recognised_by_its_columns(tmp_path, row):
    task = prepared(tmp_path, [row], kind="math")
    problem = first(task)
    assert problem.prompt.startswith(USER["content"])
    assert task.verify(problem, r"\boxed{42}").score == 1.0
    assert task.verify(problem, r"\boxed{41}").score == 0.0


def test_what_alpaca_says_beside_an_instruction_belongs_to_the_question(tmp_path):
    rows = [
        {"instruction": f"{verb} the number.", "input": number, "output": result}
        for verb, number, result in (("Square", "7", "49"), ("Halve", "7", "3.5"), ("What is 2+2?", "", "4"))
    ]
    task = prepared(tmp_path, rows, kind="math")
    asked = {problem.prompt.partition("\nLet's")[0] for problem in all_problems(task)}
    assert asked == {"Square the number.\n\n7", "Halve the number.\n\n7", "What is 2+2? the number."}
    alone = prepared(tmp_path, rows[:1], kind="math", columns={"prompt": "instruction"})
    assert first(alone).prompt.startswith("Square the number.\nLet's")


@pytest.mark.parametrize(
    ("answers", "accepted"), [("A" * 20, False), ("A" * 19, True), ("A" * 19 + "B", True)]
)
def test_options_that_nobody_has_to_read_are_refused(tmp_path, answers, accepted):
    rows = [
        {"prompt": f"Question {number}?", "options": ["one", "two"], "answer": answer}
        for number, answer in enumerate(answers)
    ]
    if accepted:
        assert prepared(tmp_path, rows, kind="choice").splits
    else:
        with pytest.raises(DataError, match=r"the right option is A in all of its 20 rows.*shuffle"):
            prepared(tmp_path, rows, kind="choice")


def test_chats_are_told_apart_by_all_that_is_said_in_them(tmp_path):
    before = [
        [{"role": "user", "content": content}, {"role": "assistant", "content": "ok"}]
        for content in ("Think of 7.", [{"type": "text", "text": "Think of 8."}])
    ]
    double = {"role": "user", "content": [{"type": "text", "text": "Double it."}]}
    rows = [
        {"prompt": [*turns, double], "answer": 2 * number}
        for turns, number in zip(before, (7, 8), strict=True)
    ]
    task = prepared(tmp_path, [*rows, rows[0]], kind="math")
    problems = all_problems(task)
    right = {problem.history[0][1]: task.verify(problem, r"\boxed{14}").score for problem in problems}
    assert (right, len(problems)) == ({"Think of 7.": 1.0, "Think of 8.": 0.0}, 2)


@pytest.mark.parametrize("content", [None, [{"type": "image_url", "image_url": "x"}], 5])
def test_a_turn_that_is_no_text_costs_its_row(tmp_path, content):
    chat = [USER, {"role": "assistant", "content": content}, USER]
    with pytest.raises(DataError, match="a turn that is no text"):
        prepared(tmp_path, [{"prompt": chat, "answer": 42}], kind="math")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("Final: (.+)", "first 3, then 4.\nFinal: 42"),
        ("[0-9]+", "3, then 4, then 42"),
        ("(?<=<a>).*(?=</a>)", "<a>42</a>"),
        ("[0-9]+", 42.0),  # not the 0 behind its point
    ],
)
def test_an_answer_is_where_the_pattern_finds_it_last(tmp_path, pattern, text):
    row = {"prompt": USER["content"], "answer": text}
    task = prepared(tmp_path, [row], kind="math", answer_pattern=pattern)
    assert task.verify(first(task), r"\boxed{42}").score == 1.0


def test_rows_without_the_pattern_are_dropped_and_the_first_is_shown(tmp_path):
    with pytest.raises(DataError, match=r"no answer where answer_pattern looks for it .*row 1, .*a word"):
        prepared(tmp_path, [{"prompt": "?", "answer": "a word"}], kind="math", answer_pattern="#### (.+)")


@pytest.mark.parametrize("pattern", ["\\w+", "(x)?.*", "(?s).*"])
@pytest.mark.parametrize("answer", [None, float("nan"), True, ""])
@pytest.mark.parametrize("judged", [{"kind": "math"}, {"graded": True}])
def test_a_pattern_finds_nothing_where_there_is_no_answer(tmp_path, judged, answer, pattern):
    with pytest.raises(DataError, match=r"no answer where answer_pattern looks for it \(1\)"):
        prepared(tmp_path, [{"prompt": "?", "answer": answer}], answer_pattern=pattern, **judged)


def test_rows_of_one_s_own_keep_all_their_columns_and_may_have_no_answer(tmp_path):
    row = {"prompt": "Rhyme with tree.", "level": {"of": 3}, "dates": [1, None]}
    task = prepared(tmp_path, [row], graded=True, domain="poems")
    assert task.domain == "poems"
    assert first(task).prompt == "Rhyme with tree."


def test_a_row_that_is_nested_too_deeply_is_dropped(tmp_path):
    nested = json.loads("[" * 500 + "]" * 500)
    task = prepared(tmp_path, [{"prompt": "?", "more": more} for more in (nested, 1)], graded=True)
    assert len(all_problems(task)) == 1


def test_a_function_of_trl_s_signature_gets_the_chat_from_whatever_column_it_is_in(tmp_path):
    chat = [{"role": "system", "content": "Be brief."}, USER]
    prepared(tmp_path, [{"messages": chat}], graded=True)
    source = (
        "def score(prompts, completions, messages, **_):\n"
        " return [float(prompts == messages and completions[0][0]['content'] == 'r')]"
    )
    task = DatasetTask("mine", tmp_path / "mine.parquet", Extension(use="mine.py:score", source=source))
    assert task.verify(first(task), "r").status == "ok"


def test_a_name_with_a_slash_is_a_hub_id_unless_something_lies_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    request = SourceRequest(name="mine", kind="math", path="openai/gsm8k", subset="main", split="train[:50%]")
    assert request.local is None
    assert resolve(request).published == "openai/gsm8k, config main, split train[:50%]"
    (tmp_path / "openai" / "gsm8k").mkdir(parents=True)
    assert request.local is not None
    for path in ("rows/train.jsonl", "/data/rows", "rows.parquet", "a/b/c"):
        assert SourceRequest(name="mine", kind="math", path=path).local is not None


@pytest.mark.parametrize(("kind", "domain", "asked"), [("code", "algorithms", True), ("math", "code", False)])
def test_programs_need_a_sandbox_whatever_their_domain_is_called(monkeypatch, kind, domain, asked):
    monkeypatch.setattr(Sandbox, "open", lambda policy: nullcontext(SimpleNamespace(warning="unsafe")))
    config = recipe(tasks={"mine": {"path": "rows.jsonl", "kind": kind, "domain": domain}})
    assert check_sandbox(config) == ("unsafe" if asked else "")
