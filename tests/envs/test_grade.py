"""The public door: every kind right, wrong and malformed; tasks by name; light to import; docs that run."""

import json
import subprocess
import sys
import time

import pytest

import prorl.envs
from prorl.envs import grade, task, tasks
from prorl.envs.errors import ProrlError
from prorl.envs.extract import respond
from prorl.envs.sandbox.jobs import CaseResult
from prorl.envs.types import Problem, Task, Verdict

ADD = {"inputs": ["1 2\n", "5 6\n"], "outputs": ["3\n", "11\n"]}
TWICE = {"inputs": [[4], "7"], "outputs": [8, "14"], "fn_name": "twice"}
DIGITS = {"inputs": [["1", "10"], ["1", "1"]], "outputs": ["11", "2"], "fn_name": "add"}
KEYS = {"inputs": [[1]], "outputs": [{1: (2,)}], "fn_name": "f"}
QUIET = [{"id": "punctuation:no_comma"}, {"id": "change_case:english_lowercase", "kwargs": {}}]


def code(source):
    return f"<think>easy</think>```python\n{source}\n```"


@pytest.mark.parametrize(("kind", "gold", "options", "response", "score"), [
    ("math", r"\frac{1}{2}", {}, r"so \boxed{0.5}", 1), ("math", "12", {}, "<answer>13</answer>", 0),
    ("math", "1.4", {"tolerance": 0.1}, r"\boxed{1.45}", 1), ("math", "3, -3", {}, r"\boxed{-3, 3}", 1),
    ("math", 12, {}, r"<answer>\boxed{12}</answer>", 1),
    ("math", "2", {}, r"<think>\boxed{3}</think> so \boxed{2}", 1),
    ("quantity", "20 g/cm^3", {}, "<answer>20000 kg/m^3</answer>", 1),
    ("quantity", "20 g/cm^3", {}, "<answer>20 kg</answer>", 0),
    ("choice", "B", {"options": ["iron", "neon"]}, r"\boxed{B}", 1),
    ("choice", "neon", {"options": ["iron", "neon"]}, r"\boxed{(b) neon}", 1),
    ("choice", "B", {"options": ["iron", "neon"]}, r"\boxed{A or B}", 0),
    ("code", ADD, {}, code("print(sum(map(int, input().split())))"), 1), ("code", ADD, {}, code("print(3)"), 0.5),
    ("code", json.dumps(ADD), {}, code("print(sum(map(int, input().split())))"), 1),  # as verl's rows have it
    ("code", TWICE, {}, code("def twice(x):\n    return 2 * x"), 1),
    ("code", TWICE, {}, code("def thrice(x):\n    return 3 * x"), 0),
    ("code", DIGITS, {}, code("def add(a, b):\n    return str(int(a) + int(b))"), 1),
    ("code", DIGITS, {}, code("def add(a, b):\n    return int(a) + int(b)"), 0),
    ("code", KEYS, {}, code("def f(x):\n    return {x: [2]}"), 1),
    ("code", {"inputs": ["1"], "outputs": ["0.5"]}, {"tolerance": 0.01}, code("print(0.504)"), 1),
    ("instructions", QUIET, {}, "boats sleep along the quay while lanterns blink", 1),
    ("instructions", QUIET, {}, respond("Hm, A, B.", "boats sleep on the quay while lanterns blink"), 1),
    ("instructions", QUIET, {}, "Boats sleep along the quay while lanterns blink", 0.5),
])  # fmt: skip
def test_a_response_is_graded_by_its_kind(kind, gold, options, response, score):
    verdict = grade(kind, gold, response, **options)
    assert isinstance(verdict, Verdict)
    assert (verdict.score, verdict.status) == (score, "ok" if score == 1 else "wrong")


@pytest.mark.parametrize(("kind", "gold", "options"), [
    ("math", "1", {}), ("quantity", "1 m", {}), ("choice", "A", {"options": ["x", "y"]}), ("code", ADD, {}),
])  # fmt: skip
def test_a_response_without_an_answer_is_wrong_and_told_apart(kind, gold, options):
    for response in ("", "no form at all", f"<think>\\boxed{{{gold}}}"):
        verdict = grade(kind, gold, response, **options)
        assert (verdict.score, verdict.status, verdict.answered) == (0, "wrong", False)
    assert not grade("instructions", QUIET, "<think>boats sleep along the quay").answered


@pytest.mark.parametrize(("kind", "gold", "options", "sentence"), [
    ("maths", "1", {}, "no kind 'maths'; the kinds are math, quantity"),
    ("math", None, {}, r"\(no answer\); it must be a text"), ("math", "", {}, "no answer"),
    ("math", "no one (knows", {}, "fails its own verifier"),
    ("math", "1", {"options": ["x"]}, "options belongs to kind choice, not to math"),
    ("math", "1", {"tolerance": 1.0}, "tolerance is 1.0; it must be at least 0 and below 1"),
    ("quantity", "about three", {}, "fails its own verifier"), ("choice", "B", {}, "needs options="),
    ("choice", "C", {"options": ["x", "y"]}, "not among the options"),
    ("choice", "A", {"options": ["x y", "x  y"]}, "two options are the same"), ("code", "print(1)", {}, "no JSON"),
    ("code", {"inputs": [], "outputs": []}, {}, "no tests"),
    ("code", {"inputs": ["1"], "outputs": []}, {}, "not one output per input"),
    ("code", {"inputs": [{"a": 1}], "outputs": ["1"]}, {}, "no text"),
    ("code", {"inputs": 1, "outputs": 2}, {}, "must be {'inputs'"),
    ("code", {"inputs": [[1]], "outputs": [{1}], "fn_name": "f"}, {}, "a result that JSON cannot say"),
    ("code", {"inputs": [[{1}]], "outputs": [1], "fn_name": "f"}, {}, "tests with a value of type set"),
    ("code", {"inputs": ["1"], "outputs": ["x" * 2**21]}, {}, "tests too large"),
    ("code", {"inputs": [[1], [2]], "outputs": [[0] * 200_000] * 2, "fn_name": "f"}, {}, "tests too large"),
    ("instructions", [{"id": "foo:bar"}], {}, "nobody can check"),
    ("instructions", [{"id": "keywords:existence"}], {}, "nobody can check"), ("instructions", [], {}, "instruction"),
    ("instructions", "be nice", {}, "must be .*'id'"),
    ("instructions", QUIET, {"checkers": "mine"}, "'ifeval' or 'ifbench'"),
])  # fmt: skip
def test_arguments_that_cannot_be_graded_are_one_sentence(kind, gold, options, sentence):
    with pytest.raises(ProrlError, match=sentence) as caught:
        grade(kind, gold, "x", **options)
    assert "\n" not in str(caught.value)


def test_a_response_is_a_text():
    with pytest.raises(ProrlError, match="the response is of type NoneType; it must be a text"):
        grade("math", "1", None)


def test_a_sandbox_that_fails_is_an_error_and_no_score():
    def broken(job):
        return (CaseResult(status="sandbox_error", note="no server"),) * len(job.inputs)

    verdict = grade("code", ADD, code("print(3)"), run=broken)
    assert (verdict.score, verdict.status) == (0, "error")


def test_tasks_are_found_by_name_and_what_the_door_does_not_have_is_an_attribute_error():
    assert {"countdown", "rg_graph_color"} <= set(tasks())
    assert isinstance(task("countdown", {2: 1.0}).problem(0, "test"), Problem)
    assert Task is not None
    with pytest.raises(AttributeError, match="no attribute 'Reward'"):
        _ = prorl.envs.Reward


HEAVY = ("torch", "numpy", "reasoning_gym", "sympy", "math_verify", "pyarrow", "datasets", "transformers")


@pytest.mark.parametrize(("code", "allowed"), [
    ("import prorl.envs", ("prorl", "prorl.envs")),
    ("from prorl.envs import tasks, task; tasks(); task('arithmetic').problem(0, 'train')", None),
    ("import prorl.envs.mixture, prorl.envs.check", None),
])  # fmt: skip
def test_importing_it_is_quick_and_brings_nothing_heavy(code, allowed):
    check = (
        f"import sys; {code}\n"
        f"assert not {set(HEAVY)} & sys.modules.keys()\n"
        "ours = {name for name in sys.modules if name.split('.')[0] == 'prorl'}\n"
        f"allowed = {allowed}\n"
        "assert all(name == 'prorl' or name.startswith('prorl.envs') for name in ours), ours\n"
        "assert allowed is None or ours == set(allowed), ours"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < (5 if allowed else 20)  # 0.1 s and 0.5 s on an idle machine
