"""The adapter: item numbers are hashes that equal a fresh dataset, payloads are lean, broken scorers are errors."""

import pickle
from random import Random

import pytest
import reasoning_gym

from prorl.envs.extract import respond
from prorl.envs.families.gym import ChainSum, FractionSimplification, TimeIntervals
from prorl.envs.families.gym_library import LibraryTask
from prorl.envs.reasoning_gym import PREFIX, ReasoningGym
from prorl.envs.registry import TASKS

GYM = [
    task() for task in TASKS.values() if issubclass(task, ReasoningGym) and not issubclass(task, LibraryTask)
]
each_task = pytest.mark.parametrize("task", GYM, ids=lambda task: task.name)


def test_the_tasks_with_a_ladder_cover_four_domains():
    assert len(GYM) == 14
    assert {task.domain for task in GYM} == {"math", "code", "stem", "logic"}


@each_task
def test_an_item_is_what_a_fresh_dataset_with_that_seed_begins_with(task):
    for level in (*task.levels, *task.ood_levels):
        item = Random(level).getrandbits(63)
        fresh = reasoning_gym.create_dataset(
            task.name.removeprefix(PREFIX), seed=item, size=1, **task.configs[level]
        )[0]
        if task.usable(fresh):
            draft = task.generate(Random(level), level)
            assert (draft.prompt, draft.witness.answer) == (fresh["question"].strip(), fresh["answer"])


@each_task
def test_neighbouring_indices_share_no_run_of_problems(task):
    prompts = [task.problem(index, "train").prompt for index in range(6)]
    assert len(set(prompts)) >= 4


@each_task
def test_a_payload_is_picklable_and_holds_only_what_the_scorer_reads(task):
    problem = task.problem(0, "train")
    level, entry = problem.payload
    assert level == problem.level
    assert set(entry) == {"answer", "metadata"}
    assert set(entry["metadata"]) == set(task.scored_fields)
    elsewhere = pickle.loads(pickle.dumps(problem))
    assert type(task)().verify(elsewhere, respond("", problem.witness.answer)).score == 1


def test_a_documented_failure_of_the_scorer_is_a_wrong_answer():
    task = TimeIntervals()
    verdict = task.verify(task.problem(0, "train"), respond("", "9" * 400 + ":00"))
    assert (verdict.score, verdict.status, verdict.note) == (0.0, "wrong", "malformed: OverflowError")


def test_any_other_failure_is_an_error():
    class Forgetful(TimeIntervals):
        scored_fields = ()

    task = Forgetful()
    verdict = task.verify(task.problem(0, "train"), respond("", "00:10"))
    assert (verdict.score, verdict.status) == (0.0, "error")
    assert "task_type" in verdict.note


@each_task
def test_the_librarys_defaults_must_be_asked_for(task):
    assert {task.problem(index, "train").level for index in range(12)} <= set(task.levels) - {0}
    asked = type(task)({0: 1.0})
    problem = asked.problem(0, "train")
    assert (problem.level, problem.witness.steps) == (0, "")
    assert task.verify(problem, respond("", problem.witness.answer)).score == 1  # by a judge of any levels


@each_task
def test_with_the_librarys_defaults_nothing_is_out_of_domain(task):
    assert "ood" in task.splits
    for weights in ({0: 1.0}, {0: 1.0, 1: 2.0}):
        assert type(task)(weights).splits == {"train", "exam", "test"}
    assert "ood" in type(task)({0: 0.0, 1: 1.0}).splits


def test_a_dataset_without_usable_items_is_an_error(monkeypatch):
    monkeypatch.setattr(ChainSum, "usable", lambda self, entry: False)
    with pytest.raises(ValueError, match="rg_chain_sum: 1000 items in a row"):
        ChainSum().problem(0, "train")


@pytest.mark.parametrize(
    ("task", "answer"),
    [(FractionSimplification, "{0} or 1/2"), (TimeIntervals, "{0}, 12:00"), (TimeIntervals, "{0} or 3 days")],
)
def test_the_first_of_several_candidates_is_not_taken(task, answer):
    for index in range(6):
        problem = task({0: 1.0}).problem(index, "train")
        assert task().verify(problem, respond("", answer.format(problem.witness.answer))).score == 0.0


def test_an_untrained_level_is_refused():
    with pytest.raises(ValueError, match=r"rg_chain_sum: no level \[4\]"):
        ChainSum({4: 1.0})
