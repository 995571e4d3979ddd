"""A task, a reward function and rows of the user's own: trained, resumed, evaluated and exported like all others."""

import json
from pathlib import Path

import pytest

from prorl.config.recipe import load_recipe
from prorl.control.events import Stepped, Warned
from prorl.run.layout import read_config
from support.commands import done, refused, tables
from support.data_rows import write_jsonl
from support.own_tasks import ADDING, LENGTH_REWARD, REVERSE_WORDS
from support.runs import of_kind

CHAT = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "Say: tree"},
    {"role": "assistant", "content": "tree"},
]


@pytest.fixture
def recipe(workplace: Path, write_recipe) -> Path:
    """A recipe in a folder of its own, beside which the user's files lie; commands run elsewhere."""
    folder = workplace / "mine"
    folder.mkdir()
    (folder / "my_tasks.py").write_text(REVERSE_WORDS)
    (folder / "my_rewards.py").write_text(LENGTH_REWARD)
    rows = [
        {"chat": [*CHAT, {"role": "user", "content": f"Say: {n} leaves"}], "wanted": {"text": f"{n} leaves"}}
        for n in range(100)
    ]
    write_jsonl(folder / "rows.jsonl", rows)
    tasks = {
        "reversed_words": {"use": "my_tasks.py:ReverseWords", "weight": 2},
        "say": {
            "grade": "my_rewards.py:score",
            "path": "rows.jsonl",
            "domain": "instruct",
            "columns": {"prompt": "chat", "answer": "wanted.text"},
        },
    }
    return write_recipe(
        folder, tasks=tasks, data="prepared", steps=2, save={"every": 1}, system_prompt="Be right."
    )


def test_a_run_on_tasks_of_the_user_s_own_is_trained_resumed_evaluated_and_exported(recipe, workplace):
    done("train", recipe)
    run = workplace / "runs" / "tiny"
    steps = of_kind(run, Stepped)
    assert [step.rollout_stats.errors for step in steps] == [0, 0]
    asked = [
        json.loads(line) for path in (run / "samples").iterdir() for line in path.read_text().splitlines()
    ]
    assert {line["task"] for line in asked} == {"reversed_words", "say"}
    assert {line["domain"] for line in asked} == {"logic", "instruct"}

    assert set(read_config(run)["tasks"]["reversed_words"]["levels"]) == {"3", "4", "5"}
    done("eval", run, "--k", "1,2", "--per-domain", "2", "--ood", "0", "--per-level", "1")
    done("export", run, workplace / "model")
    assert "reversed_words" in (workplace / "model" / "README.md").read_text()


def test_a_run_goes_on_with_changed_code_and_says_so(recipe, workplace):
    done("train", recipe)
    rewards = recipe.parent / "my_rewards.py"
    for branch, text in (("same", ""), ("changed", "# a comment\n")):
        rewards.write_text(rewards.read_text() + text)
        done("train", "--branch", "tiny@1", "--run", branch)
        told = [event for event in of_kind(workplace / branch, Warned) if "code of say" in event.text]
        assert len(told) == (branch == "changed")
    others = [{"chat": f"Say: {n} roots", "wanted": {"text": f"{n} roots"}} for n in range(100)]
    rows = write_jsonl(recipe.parent / "others.jsonl", others)
    done("train", "--branch", "tiny@1", "--run", "elsewhere", f"tasks.say.path={rows}", "sample_every=1")
    (samples,) = (workplace / "elsewhere" / "samples").iterdir()
    assert "roots" in samples.read_text()


def test_history_and_system_prompt_reach_the_policy(recipe):
    from prorl.build import build_tasks, prepare_own_data, task_makers

    config = load_recipe(str(recipe))
    prepare_own_data(config, lambda *_: None)
    tasks = build_tasks(config)
    drawn = [tasks.problem(draw, "train") for draw in range(20)]
    ours = next(problem for problem in drawn if problem.task == "say")
    assert ours.history == tuple((turn["role"], turn["content"]) for turn in CHAT)
    assert ours.prompt.startswith("Say: ")
    assert task_makers(config)["say"]().verify(ours, "leaves").status != "error"
    assert next(problem for problem in drawn if problem.task == "reversed_words").history == ()


def test_rows_that_change_between_two_runs_are_prepared_anew(recipe):
    from prorl.build import build_tasks, prepare_own_data

    config = load_recipe(str(recipe))
    seen, fingerprints = [], set()
    for word, answer in (("leaves", "leaves"), ("roots", "roots"), ("roots", "leaves")):
        write_jsonl(
            recipe.parent / "rows.jsonl",
            [{"chat": f"Say: {n} {word}", "wanted": {"text": answer}} for n in range(100)],
        )
        prepare_own_data(config, lambda *_: None)
        tasks = build_tasks(config)
        problems = [tasks.problem(draw, "train") for draw in range(30)]
        seen.append({problem.prompt.split()[-1] for problem in problems if problem.task == "say"})
        fingerprints.add(tasks.rows_fingerprint())
    assert seen == [{"leaves"}, {"roots"}, {"roots"}]
    assert len(fingerprints) == 3  # right answers, which nobody is shown, count too


def test_a_run_keeps_its_rows_whatever_becomes_of_their_file(recipe):
    from prorl.build import build_tasks, prepare_own_data, settled, with_rows_of_now

    begun, fingerprints = [], []
    for word in ("leaves", "roots"):
        write_jsonl(
            recipe.parent / "rows.jsonl",
            [{"chat": f"Say: {n} {word}", "wanted": {"text": word}} for n in range(100)],
        )
        begun.append(settled(load_recipe(str(recipe), ["data=null"])))
        prepare_own_data(begun[-1], lambda *_: None)
        fingerprints.append(build_tasks(begun[-1]).rows_fingerprint())
    assert [build_tasks(config).rows_fingerprint() for config in begun] == fingerprints
    assert len({*fingerprints}) == 2
    first, second = begun
    assert settled(with_rows_of_now(first)) == second  # as a branch begins
    (recipe.parent / "rows.jsonl").unlink()
    assert settled(with_rows_of_now(first)) == first


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("tasks.reversed_words.use=nowhere.py:X", "the file cannot be read"),
        ("tasks.reversed_words.levels.9=1", "its trained levels are"),
        ("tasks.reversed_words.path=x.jsonl", "leave out `path`"),
        ("tasks.say.kind=math", "leave one out"),
        ("tasks.say.grade=mine/my_rewards.py:nothing", "verifiers cannot be started"),
        ("tasks.say.path=nowhere.jsonl", "nowhere.jsonl"),
        ("tasks.say.columns.prompt=nothing", "has no column nothing, only chat"),
        ("tasks.say.answer_pattern='('", "answer_pattern is no regular expression"),
        ("tasks.say.answer_pattern='a{99999999999}'", "answer_pattern is no regular expression"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_before_anything_is_trained(
    recipe, workplace, override, sentence
):
    assert sentence in refused("train", recipe, override)
    assert not (workplace / "runs" / "tiny").exists()


@pytest.mark.slow
def test_an_environment_of_verifiers_is_trained_on(workplace, write_recipe, monkeypatch):
    pytest.importorskip("verifiers.v1", reason="needs the extra `verifiers`")
    (workplace / "adding_env.py").write_text(ADDING)
    monkeypatch.syspath_prepend(workplace)
    done("train", write_recipe(workplace, tasks={"mine": {"use": "verifiers:adding-env"}}, steps=2))
    steps = of_kind(workplace / "runs" / "tiny", Stepped)
    assert [step.rollout_stats.errors for step in steps] == [0, 0]


def test_a_function_that_fails_costs_its_responses_and_says_so(recipe, workplace):
    (recipe.parent / "my_rewards.py").write_text(
        "def score(response, row, gold):\n    if '3' in gold: raise RuntimeError('I do not like 3')\n    return 0.5\n"
    )
    done("train", recipe)
    run = workplace / "runs" / "tiny"
    assert all(step.update.updates == 1 for step in of_kind(run, Stepped))


def test_new_writes_files_that_work_as_they_are(workplace):
    done("new", "task", "my_tasks.py")
    done("new", "recipe", "mine.yaml")
    done("new", "data", "rows.yaml")
    assert "MyTask" in done("tasks", "check", "my_tasks.py:MyTask")
    added = "tasks.my_task={use: 'my_tasks.py:MyTask'}"
    assert "my_tasks.py:MyTask" in done("train", "mine.yaml", added, "model.parameters=6e8", "--dry-run")
    write_jsonl(
        workplace / "rows.jsonl", [{"question": f"{n} + 1?", "answer": f"so #### {n + 1}"} for n in range(9)]
    )
    assert "rows.jsonl" in done("train", "rows.yaml", "--dry-run")
    assert tables("data", "prepare", "rows.yaml")[0]["rows"][0]["dropped"] == 0
    assert "exists: choose another name" in refused("new", "task", "my_tasks.py")
    assert "ends in .yaml" in refused("new", "recipe", "mine.py")
