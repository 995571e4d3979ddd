"""Tasks and reward functions of the user's own: found, loaded, refused in a sentence, and judged by."""

import math
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from prorl.build import build_tasks
from prorl.envs import extensions
from prorl.envs.base import verdict_of
from prorl.envs.check import check_task
from prorl.envs.errors import ProrlError, UsageError
from prorl.envs.extensions import Extension, absolute, find, load, load_reward, load_task
from prorl.envs.registry import VerifierSpec, make_task, make_verifier, task_names
from prorl.envs.types import Verdict
from support.own_tasks import REVERSE_WORDS
from support.recipes import recipe


@pytest.fixture
def own(tmp_path: Path):
    """Writes a file of the user's own and returns the place of `name` in it."""

    def write(text: str, name: str = "score", file: str = "mine.py") -> str:
        (tmp_path / file).write_text(text)
        return f"{tmp_path / file}:{name}"

    return write


def test_a_task_in_a_file_keeps_the_promises_of_a_task(own):
    task = make_task(own(REVERSE_WORDS, "ReverseWords"))
    found = check_task(task, 10)
    assert found.faults == ()
    assert (task.name, task.domain, found.with_solution) == ("ReverseWords", "logic", 10)
    assert make_task("mine", {4: 1}, own(REVERSE_WORDS, "ReverseWords")).problem(0, "train").level == 4


def test_a_task_has_the_name_that_the_recipe_gives_it_and_its_problems_depend_on_it(own):
    place = own(REVERSE_WORDS, "ReverseWords")
    one, other = (load_task(find(place), name) for name in ("one", "other"))
    assert one.problem(0, "train").task == "one"
    assert one.problem(0, "train").prompt != other.problem(0, "train").prompt


def test_what_a_file_said_at_the_start_is_what_judges(own):
    """A file edited while a run goes on must not change what a replaced worker judges by."""
    place = own("def score(response, row, gold): return 1.0")
    before = find(place)
    own("def score(response, row, gold): return 0.0")
    assert load_reward(before)("", {}, None).score == 1.0
    assert load_reward(find(place))("", {}, None).score == 0.0
    assert before.fingerprint != find(place).fingerprint


def test_the_judge_of_a_recipe_needs_only_what_travels_to_it(own, tmp_path):
    place = own(REVERSE_WORDS, "ReverseWords")
    spec = VerifierSpec(tasks=("mine",), own={"mine": find(place)})
    problem = load_task(find(place), "mine").problem(0, "test")
    (tmp_path / "mine.py").unlink()
    verify = make_verifier(spec)
    assert verify(problem, f"<answer>{problem.solution.answer}</answer>").score == 1.0
    assert verify(problem, "<answer>no</answer>").status == "wrong"


def test_a_change_of_what_a_file_imports_beside_it_is_told_and_of_no_other_file(own):
    place = own("import json, beside_three\ndef score(response, row, gold): return 1.0")
    told = []
    for file in ("beside_three.py", "beside_three.py", "elsewhere.py"):
        own(f"HALF = {len(told)}", file=file)
        told.append(find(place).fingerprint)
    assert (told[0] != told[1], told[1] == told[2]) == (True, True)


def test_a_file_may_import_what_lies_beside_it_and_never_gets_that_of_another_folder(own, tmp_path):
    uses = "from beside_two import HALF\ndef score(response, row, gold): return HALF"
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        own("HALF = 0.5", file=f"{folder}/beside_two.py")
    assert load_reward(find(own(uses, file="one/mine.py")))("", {}, None).score == 0.5
    with pytest.raises(UsageError, match=r"is .*/one/beside_two.py and not .*/two/beside_two.py, .* rename"):
        load_reward(find(own(uses, file="two/mine.py")))


def test_an_installed_package_offers_tasks(own, monkeypatch):
    offered = EntryPoints([EntryPoint("theirs", "prorl.envs.families.numbers:Arithmetic", "prorl.tasks")])
    monkeypatch.setattr(extensions, "entry_points", lambda group: offered.select(group=group))
    assert task_names()[-1] == "theirs"
    assert make_task("theirs").problem(0, "train").task == "theirs"
    with pytest.raises(UsageError, match=r"did you mean .theirs"):
        make_task("their")


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("mine.py", "say FILE.py:NAME, package.module:NAME, verifiers:"),
        (":Name", "say FILE.py:NAME"),
        ("mine.py:not a name", "say FILE.py:NAME"),
        ("nowhere.py:Name", "the file cannot be read"),
        ("no_such_module:Name", "there is no module no_such_module"),
        ("prorl.nothing.here:Name", "there is no module prorl.nothing.here"),
        ("failing_package.rewards:score", "running failing_package failed: RuntimeError: no"),
    ],
)
def test_a_place_that_is_none(place, sentence, tmp_path, monkeypatch):
    (tmp_path / "failing_package").mkdir()
    (tmp_path / "failing_package" / "__init__.py").write_text("raise RuntimeError('no')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=sentence):
        find(place)


def test_code_without_a_source_has_a_fingerprint_too():
    assert len({Extension(use=use).fingerprint for use in ("math:sqrt", "_bisect:bisect", "json:loads")}) > 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def score(:", "the file is no Python"),
        ("import no_such_thing", r"ModuleNotFoundError: .*no_such_thing.* \(line 1\)"),
        ("x = 1\nraise SystemExit(3)", r"SystemExit: 3 \(line 2\)"),
        ("class Reward: pass", "it has no score, only Reward"),
        ("score = 3", "it is of type int, not a function"),
        ("def score(response, gold): return 1", r"cannot be called with \(response, row, gold\): too many"),
        ("class score: pass", r"cannot be called with \(response, row, gold\): too many"),
        ("score = type", r"cannot be called with \(response, row, gold\): no signature"),
    ],
)
def test_a_reward_that_cannot_be_used_is_one_sentence(own, text, sentence):
    with pytest.raises(UsageError, match=sentence):
        load_reward(find(own(text)))


REFINED = "from prorl.envs.families.numbers import LinearEquation\nclass score(LinearEquation):\n ood_levels = ()\n "
UNFINISHED = """
from prorl.envs import ProceduralTask
class score(ProceduralTask):
    levels = (1,)
    def generate(self, rng, level): pass
    def score(self, payload, answer): pass
"""
READ_ONLY = """
from prorl.envs.families.numbers import Arithmetic
class score(Arithmetic):
    name = property(lambda self: "mine")
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def score(): raise RuntimeError('no')", "RuntimeError: no"),
        ("score = list", "a task needs domain, splits"),
        (UNFINISHED, "a task needs domain: set it in the class"),
        (READ_ONLY, "no task can be made of it: AttributeError"),
        ("def score(): raise SystemExit", "no task can be made of it: SystemExit"),
        ("class score:\n def __init__(self, sides): pass", "no task can be made of it: TypeError"),
        ("from prorl.envs import ProceduralTask\nclass score(ProceduralTask): pass", "abstract"),
        (REFINED + "levels = ('easy', 'hard')", "ValueError: levels are whole numbers, not 'easy'"),
        (REFINED + "ood_levels = (1, 9)\n levels = (1, 2)", r"levels \[1\] are among levels and ood_levels"),
        (REFINED + "levels = ()", "the task has no problems: name at least one of its levels"),
        (REFINED + "domain = ['a']", r"domain must be a text, not \['a'\]"),
        (REFINED + "def __init__(self, weights): pass", r"__init__ must call super\(\).__init__\(weights\)"),
    ],
)
def test_a_task_that_cannot_be_used_is_one_sentence(own, text, sentence):
    with pytest.raises(UsageError, match=sentence):
        load_task(find(own(text)), "mine")


def test_levels_are_only_for_tasks_that_have_them(own):
    place = own(REVERSE_WORDS, "ReverseWords")
    with pytest.raises(UsageError, match="its trained levels are"):
        load_task(find(place), "mine", {99: 1.0})
    with pytest.raises(UsageError, match="only a subclass of ProceduralTask has levels"):
        load_task(find(own("def score(): pass")), "mine", {1: 1.0})


BROKEN = """
from random import random
from prorl.envs import ProceduralTask, draft
class Broken(ProceduralTask):
    domain, levels = "logic", (1,)
    def generate(self, rng, level):
        return {generate}
    def score(self, payload, answer):
        return {score}
"""


@pytest.mark.parametrize(
    ("generate", "score", "fault"),
    [
        ("draft(f'{random()}', None, '', '1')", "1.0", "differs when it is made again"),
        ("draft(f'{rng.random()}', None, '', '1')", "3", "returned 3, not a score in [0, 1]"),
        ("draft(f'{rng.random()}', None, '', '1')", "1 / 0", "ZeroDivisionError"),
        ("draft(f'{rng.random()}', None, '', '1')", "exit(0)", "SystemExit"),
    ],
)
def test_a_check_finds_what_a_task_does_not_keep(own, generate, score, fault):
    task = make_task(own(BROKEN.format(generate=generate, score=score), "Broken"))
    assert any(fault in found for found in check_task(task, 3).faults)


@pytest.mark.parametrize(
    ("generate", "sentence"),
    [
        ("[][level]", "task Broken: generate at level 1 raised IndexError"),
        ("exit()", "task Broken: generate at level 1 raised SystemExit"),
        ("draft('1 + 1', '2', '', 2)", "task Broken: answer must be a text, not 2"),
        (r"draft('\ud800', '2', '', '2')", r"task Broken: prompt must be a text, not '\\ud800'"),
        ("'a text'", r"task Broken: generate must return draft\(…\), not str"),
        (
            "draft('always this', None, '', '1')",
            "its space is too small: let generate draw from more prompts",
        ),
        ("draft(f'{rng.random()}', lambda: 1, '', '1')", "the payload must be plain data"),
    ],
)
def test_a_task_that_makes_no_problems_says_so(own, generate, sentence):
    task = make_task(own(BROKEN.format(generate=generate, score="1.0"), "Broken"))
    with pytest.raises(UsageError, match=sentence):
        [task.problem(0, split) for split in ("train", "validation")]


def test_a_task_that_fails_where_a_measurement_asks_it_is_not_told_to_be_asked_less(own):
    place = own(REVERSE_WORDS + "    ood_levels = (99,)\n", "ReverseWords")
    with pytest.raises(ProrlError, match=r"level 99 raised ValueError: [\w ]+$"):
        build_tasks(recipe(tasks={"mine": {"use": place}}))


@pytest.mark.parametrize(
    "text",
    [
        "def score(response, row, gold): return 0.25 if (response, row['b'], gold) == ('r', 2, 'g') else 0",
        "\ufeffdef score(response, row, gold): return 0.25",  # a mark of the byte order is no part of a file
        "async def score(response, row, gold): return 0.25 if (response, row['b'], gold) == ('r', 2, 'g') else 0",
        "class Scorer:\n def __call__(self, response, row, gold): return 0.25\nscore = Scorer()",
        "from prorl.envs import Verdict\n"
        "def score(response, row, gold): return Verdict(score=0.25, status='wrong')",
        "def score(prompts, completions, b, **columns):\n"
        " return [0.25 if (prompts, completions, b) == (['p'], ['r'], [2]) else 0]",
        "def score(data_source, solution_str, ground_truth, extra_info=None):\n"
        " return {'score': 0.25 if (solution_str, ground_truth) == ('r', 'g') else 0}",
    ],
)
def test_the_forms_of_a_reward_function(own, text):
    verdict = load_reward(find(own(text)))("r", {"prompt": "p", "b": 2}, "g")
    assert (verdict.score, verdict.status) == (0.25, "wrong")


CLIENT = """
import asyncio, threading
kept = threading.local()
async def score(response, row, gold):
    if not hasattr(kept, "loop"):  # as a client of HTTP keeps the loop of its connections
        kept.loop = asyncio.get_running_loop()
    return await kept.loop.create_task(asyncio.sleep(0.01, 1.0))
"""


def test_an_async_function_may_keep_a_client_from_one_response_to_the_next(own):
    reward = load_reward(find(own(CLIENT)))
    with ThreadPoolExecutor(2) as threads:
        scores = [
            *(reward("", {}, None) for _ in range(2)),
            *threads.map(reward, [""] * 4, [{}] * 4, [0] * 4),
        ]
    assert [verdict.score for verdict in scores] == [1.0] * 6


@pytest.mark.parametrize("value", [None, [None], "word", 2, -0.1, math.nan, 10**400, [1, 2], {"no": 1}])
def test_a_result_that_is_no_score_is_an_error_and_never_a_reward_of_zero(own, value):
    assert verdict_of(value).status == "error"


@pytest.mark.parametrize("value", [True, 1, 1.0, [1.0], {"score": 1, "acc": 0}])
def test_a_result_of_one_is_right(value):
    assert verdict_of(value) == Verdict(score=1.0, status="ok")


SUMS = [(0.7 + 0.2 + 0.1, 1.0, "ok"), (0.2 + 0.4 + 0.3 + 0.1, 1.0, "ok"), (0.3 - 0.2 - 0.1, 0.0, "wrong")]


@pytest.mark.parametrize(("total", "score", "status"), SUMS)
def test_a_sum_of_weighted_parts_is_whole_whatever_floats_make_of_it(own, total, score, status):
    verdict = Verdict(score=score, status=status)
    assert total != score
    assert verdict_of(total) == verdict
    task = make_task(
        "mine", own=own(REVERSE_WORDS + f"\n    def score(self, *_): return {total!r}\n", "ReverseWords")
    )
    assert task.verify(task.problem(0, "train"), "<answer>x</answer>") == verdict


def test_places_become_absolute_and_modules_stay(tmp_path):
    assert absolute("a/b.py:C", tmp_path) == f"{tmp_path / 'a/b.py'}:C"
    assert absolute("/a/b.py:C", tmp_path) == "/a/b.py:C"
    assert absolute("package.module:C", tmp_path) == "package.module:C"


def test_a_module_is_run_once_in_a_process(own):
    place = own("seen = []\ndef score(response, row, gold): seen.append(1); return float(len(seen) == 2)")
    assert load(find(place)) is load(find(place))
