"""A stage plan on the fake backend: a domain joins, n and response limit double, the optimizer is cleared once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prorl.control.events import ReferenceReset, StageEntered, Stepped
from prorl.control.plan import make_plan
from prorl.control.state import fold
from support.defaults import some_resets
from support.fake_backend import FakeLearner
from support.fake_runs import PLAN, events, of, run_in, timeless
from support.recipes import recipe

STAGED = replace(
    PLAN,
    reset=some_resets(),
    stages=make_plan(
        recipe(
            tasks={"arithmetic": {}, "word_list": {}},
            sampling={"samples_per_prompt": 4, "response_limit": 200},
            stages=[
                {"at": 0, "mixture": {"word_list": 0}},
                {"at": 3, "mixture": {"word_list": 1}},
                {"at": 6, "set": {"sampling.samples_per_prompt": 8, "sampling.response_limit": 400}},
                {"at": 9, "reset_reference": True, "optimizer": "clear"},
            ],
        )
    ).stages,
)


class Diary:
    """What learner and engine were asked, by policy version."""

    def __init__(self) -> None:
        self.asked: dict[int, set[tuple[int, int]]] = {}
        self.cleared: list[int] = []

    def keep(self, backend) -> None:
        submit, reset = backend.engine.submit, backend.learner.reset_reference

        def submit_and_tell(request):
            asked = self.asked.setdefault(backend.engine.version, set())
            asked.add((request.samples, request.sampling.limit))
            submit(request)

        def reset_and_tell(source, *, clear_optimizer):
            self.cleared += [backend.engine.version] if clear_optimizer else []
            reset(source, clear_optimizer=clear_optimizer)
            assert backend.learner.momentum == 0.0 or not clear_optimizer

        backend.engine.submit, backend.learner.reset_reference = submit_and_tell, reset_and_tell


@pytest.fixture(scope="module")
def diary() -> Diary:
    return Diary()


@pytest.fixture(scope="module")
def staged(diary, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("staged") / "run"
    assert run_in(folder, STAGED, sabotage=diary.keep).stopped == "done"
    return folder


def test_each_stage_is_entered_at_its_step_once(staged):
    entered = [(event.step, event.index) for event in of(staged, StageEntered)]
    assert entered == [(0, 0), (3, 1), (6, 2), (9, 3)]
    assert fold(events(staged)).stage == 3


def test_a_domain_joins(staged):
    domains = [set(step.rollout_stats.domain_scores) for step in of(staged, Stepped)]
    assert domains[:3] == [{"math"}] * 3
    assert set().union(*domains[3:]) == {"math", "instruct"}


def test_rollouts_and_response_limit_double(diary, staged):
    validations = (0, 4, 8, 12)  # sat with as many samples as ever
    small = [asked for version, asked in diary.asked.items() if version not in validations and version < 6]
    large = [asked for version, asked in diary.asked.items() if version not in validations and version >= 6]
    assert small == [{(4, 200)}] * 4
    assert large == [{(8, 400)}] * 5


def test_the_optimizer_is_cleared_once(diary, staged):
    assert diary.cleared == [9]
    (reset,) = of(staged, ReferenceReset)
    assert (reset.step, reset.reason, reset.optimizer) == (9, "stage", "clear")


@pytest.mark.parametrize("stop", [3, 7, 9])
def test_interrupting_between_stages_changes_nothing(staged, tmp_path, stop):
    folder = tmp_path / "run"
    assert run_in(folder, STAGED, until=lambda state: state.step == stop).step == stop
    run_in(folder, STAGED)
    assert timeless(events(folder)) == timeless(events(staged))


def test_the_policy_learns_through_all_of_it(staged):
    learner = FakeLearner(0.0)
    learner.restore(staged / "checkpoints" / "step_000012")
    assert learner.skill > 0.5
