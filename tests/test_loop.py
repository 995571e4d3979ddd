"""The whole loop on the fake backend: real tasks, director, journal and checkpoints, no torch."""

import json
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from prorl.control.events import LevelRaised, ReferenceReset, StageEntered, Stepped, Validated, Warned
from prorl.control.plan import make_plan
from prorl.control.state import RunState, fold
from prorl.envs.errors import ProrlError
from prorl.envs.registry import make_task
from prorl.envs.types import Verdict
from prorl.local import judge as local_judge
from prorl.local.judge import LocalJudge
from prorl.rollout.pipeline import WaitEnded, wait_silently
from prorl.run.history import read_history
from prorl.run.store import RunStore
from support.defaults import planned, some_resets
from support.fake_backend import FakeBackend, FakeEngine, FakeJudge
from support.fake_runs import PLAN, OutJudge, events, of, run_in, timeless
from support.mishaps import AMISS, CURSED, make_mishap
from support.recipes import recipe


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert run_in(folder, PLAN).stopped == "done"
    return folder


def test_every_step_is_journalled_once_and_in_order(finished):
    assert [event.step for event in of(finished, Stepped)] == list(range(1, 13))


def test_the_policy_learns_by_validations_before_the_first_step_every_few_and_after_the_last(finished):
    validations = of(finished, Validated)
    assert [event.step for event in validations] == [0, 4, 8, 12]
    assert validations[-1].score > validations[0].score + 0.2


def test_resets_follow_the_schedule_and_name_their_parents(finished):
    resets = of(finished, ReferenceReset)
    assert [(r.step, r.name, r.parent, r.reason) for r in resets] == [
        (5, "ref_001", "ref_000", "schedule"),
        (10, "ref_002", "ref_001", "schedule"),
    ]


def test_a_run_whose_journal_leads_elsewhere_than_to_its_checkpoint_does_not_go_on(tmp_path, monkeypatch):
    """As under another version that counts otherwise: every file is whole."""
    run_in(tmp_path / "run", PLAN, until=lambda state: state.step == 2)
    monkeypatch.setattr("prorl.run.resume.fold", lambda past: replace(fold(past), cursor=0))
    with pytest.raises(ProrlError, match="does not lead to the state saved in"):
        run_in(tmp_path / "run", PLAN)


def test_a_reset_starts_the_kl_again_from_zero(finished):
    kls = {event.step: event.update.kl for event in of(finished, Stepped)}
    assert kls[6] < kls[5]


def test_the_saved_state_is_the_fold_of_the_journal(finished):
    state = fold(events(finished))
    assert RunStore.open(finished).latest_checkpoint().reached == state
    assert state.step == 12


def test_dynamic_sampling_rejects_and_never_skips_a_draw(finished):
    steps = of(finished, Stepped)
    assert sum(step.rollout_stats.easy + step.rollout_stats.hard for step in steps) > 0
    assert sum(step.rollout_stats.draws for step in steps) == steps[-1].cursor


@pytest.mark.parametrize("stop", [1, 3, 5, 8])
def test_interrupting_and_resuming_changes_nothing(finished, tmp_path, stop):
    folder = tmp_path / "run"
    halted = run_in(folder, PLAN, until=lambda state: state.step == stop)
    assert (halted.stopped, halted.step) == ("interrupted", stop)
    resumed = run_in(folder, PLAN)
    assert resumed == fold(events(finished))
    assert timeless(events(folder)) == timeless(events(finished))


def test_work_behind_the_last_checkpoint_is_done_again_the_same(finished, tmp_path):
    folder = tmp_path / "run"

    def die(state: RunState) -> bool:
        if state.step == 5:
            raise ConnectionError("the machine went away")
        return False

    with pytest.raises(ConnectionError):
        run_in(folder, PLAN, until=die)
    assert RunStore.open(folder).latest_checkpoint().step == 4  # the best validation's
    assert run_in(folder, PLAN) == fold(events(finished))
    assert timeless(events(folder)) == timeless(events(finished))


def test_why_a_run_ended_and_what_was_mended_before_is_in_the_journal_it_goes_on_with(tmp_path):
    folder = tmp_path / "run"

    def fail(backend: FakeBackend) -> None:
        told = [[], [], [], [], [], ["engine 1 has died and is replaced"]]
        backend.incidents = lambda: told.pop(0)

        def lost():
            raise ConnectionError("engine 1 has died,\n the 4th since the last sync")

        update = backend.learner.update
        backend.learner.update = lambda *given: lost() if len(told) == 1 else update(*given)

    with pytest.raises(ConnectionError):
        run_in(folder, PLAN, sabotage=fail)
    expected = [
        Warned(step=4, text="engine 1 has died and is replaced"),
        Warned(step=4, text="ended by ConnectionError: engine 1 has died, the 4th since the last sync"),
    ]
    assert events(folder)[-2:] == expected
    for _ in range(2):  # taken up twice from the same checkpoint: told once
        run_in(folder, PLAN, until=lambda state: True)
        assert of(folder, Warned) == expected


def test_without_kl_no_reference_exists(tmp_path):
    plan = planned(PLAN, steps=2, kl_coef=0.0, reset=some_resets())
    state = run_in(tmp_path / "run", plan)
    assert state.reference is None
    assert list((tmp_path / "run" / "references").iterdir()) == []


def test_a_step_without_signal_updates_nothing_and_goes_on(tmp_path):
    plan = planned(PLAN, steps=2, min_spread=1.0, temperature=1.0, prompts_per_step=2)
    plan = planned(plan, samples_per_prompt=2, response_limit=3)
    state = run_in(tmp_path / "run", plan)
    steps = of(tmp_path / "run", Stepped)
    assert [step.update.updates for step in steps] == [0, 0]
    assert state.stopped == "done"
    assert state.cursor == 2 * 8  # the whole budget of draws, each step


def test_a_stale_completion_is_refused(tmp_path, monkeypatch):
    def outdated(self, request, sample):
        return replace(original(self, request, sample), policy_version=-5)

    original = FakeEngine._sample
    monkeypatch.setattr(FakeEngine, "_sample", outdated)
    with pytest.raises(ProrlError, match="version -5"):
        run_in(tmp_path / "run", PLAN)


def test_an_outage_delays_a_run_and_changes_nothing(tmp_path, finished):
    waits: list[str] = []

    def heal_after_two(judge: OutJudge, reason: str) -> None:
        waits.append(reason)
        judge.out = len(waits) < 2

    assert run_in(tmp_path / "run", PLAN, out=heal_after_two).stopped == "done"
    assert len(waits) == 2
    assert timeless(events(tmp_path / "run")) == timeless(events(finished))


def test_a_wish_to_stop_during_an_outage_is_granted_and_saved(tmp_path, finished):
    wished = False

    def stop(judge: OutJudge, _reason: str) -> None:
        nonlocal wished
        wished = True
        raise WaitEnded

    state = run_in(tmp_path / "run", PLAN, until=lambda state: wished, out=stop)
    assert (state.stopped, state.step) == ("interrupted", 0)
    assert run_in(tmp_path / "run", PLAN).stopped == "done"
    assert timeless(events(tmp_path / "run")) == timeless(events(finished))


class LateJudge(OutJudge):
    """Out while the validation of one step is judged."""

    def __init__(self, tasks, step) -> None:
        super().__init__(tasks)
        self._step = step

    def submit(self, ticket, problem, text):
        self.out = problem.split == "validation" and self.backend.engine.version == self._step
        super().submit(ticket, problem, text)


@pytest.mark.parametrize("step", [8, 12])
def test_a_validation_that_was_given_up_is_sat_when_the_run_goes_on_before_anything_is_decided(
    tmp_path, step
):
    plan = planned(PLAN, reset=some_resets(every=8, cooldown=2, target="best"))
    wished = []

    def sabotage(backend) -> None:
        backend.judge = LateJudge(backend.judge._tasks, step)
        backend.judge.backend = backend

    def stop(_reason, _seconds) -> None:
        wished.append(True)
        raise WaitEnded

    folder = tmp_path / "run"
    state = run_in(folder, plan, sabotage=sabotage, wait=stop, until=lambda state: bool(wished))
    assert (state.stopped, state.step, state.last_validation) == ("interrupted", step, step - 4)
    assert run_in(folder, plan).stopped == "done"
    assert run_in(tmp_path / "undisturbed", plan).stopped == "done"
    assert timeless(events(folder)) == timeless(events(tmp_path / "undisturbed"))


def test_what_was_mended_in_the_last_step_does_not_hide_that_the_run_is_done(tmp_path):
    def sabotage(backend) -> None:
        told = iter(["a judge worker was replaced"])
        backend.incidents = lambda: [next(told, "")] * (backend.engine.version == 12)

    assert run_in(tmp_path / "run", PLAN, sabotage=sabotage).stopped == "done"
    assert read_history(tmp_path / "run").stopped == "done"


@pytest.mark.parametrize(
    ("kind", "deadline", "cursed", "told"),
    [
        ("SIGKILL", 8.0, False, "1 × verifier process died, exit code -9 ("),
        ("SIGSTOP", 1.0, False, "1 × deadline of 1 s ("),
        ("SIGKILL", 8.0, True, "2 × start failed: MemoryError: for a while; 1 × verifier process died"),
    ],
    ids=["killed", "stopped", "killed where none can be started"],
)
def test_a_judge_lost_in_the_middle_of_a_response_changes_nothing_but_is_told(
    tmp_path, finished, monkeypatch, kind, deadline, cursed, told
):
    monkeypatch.setattr(local_judge, "FIRST_PAUSE", 0.01)
    folder, waits = tmp_path / "run", []

    def strike(event, state) -> None:
        if isinstance(event, Stepped) and event.step == 6:
            (tmp_path / AMISS).write_text(kind)
            if cursed:
                (tmp_path / CURSED).touch()

    def wait(reason: str, seconds: float) -> None:
        waits.append(reason)
        if len(waits) == 2:
            (tmp_path / CURSED).unlink()
        wait_silently(reason, seconds)

    def judged_apart(backend: FakeBackend) -> None:
        backend.judge, backend.incidents = judge, judge.incidents

    with closing(LocalJudge(partial(make_mishap, tmp_path), deadline=deadline)) as judge:
        state = run_in(folder, PLAN, sabotage=judged_apart, watch=strike, wait=wait)
    (warned,) = of(folder, Warned)
    assert told in warned.text
    assert warned.step == 7
    assert len(waits) == 2 * cursed
    assert all(
        "no judge can be started (MemoryError: for a while); trying again in 0 s" in why for why in waits
    )
    assert timeless(events(folder)) == timeless(events(finished))
    assert state == fold(events(finished))


def test_what_verifiers_failed_of_can_be_read(tmp_path):
    class Ailing(FakeJudge):
        ill, failed = False, ()

        def submit(self, ticket, problem, text):
            if (
                self.ill and len(self.failed) < 2
            ):  # few enough to be no outage, more than a quarter of the draws
                self.failed = {*self.failed, problem.prompt}
            if problem.prompt in self.failed:
                self._ready.append((ticket, Verdict(score=0.0, status="error", note="no sandbox")))
            else:
                super().submit(ticket, problem, text)

    def sabotage(backend):
        backend.judge = ailing

    def watch(event, state):
        ailing.ill = state.step == 2

    ailing = Ailing({name: make_task(name) for name in ("arithmetic", "word_list")})
    run_in(tmp_path / "run", PLAN, sabotage=sabotage, watch=watch, until=lambda state: state.step == 4)
    written = {int(file.stem.rpartition("_")[2]) for file in (tmp_path / "run" / "samples").iterdir()}
    assert written == {0, 2}
    assert "no sandbox" in (tmp_path / "run" / "samples" / "step_000002.jsonl").read_text()


# -- adaptive levels

_CLIMBING = make_plan(
    recipe(
        tasks={
            "arithmetic": {"adaptive": {"start": 1, "window": 1, "rollouts": 8, "raise_at": 0.4}},
            "word_list": {},
        }
    )
)
CLIMBING = replace(
    PLAN,
    config=PLAN.config.model_copy(update={"tasks": _CLIMBING.config.tasks, "sample_every": 1}),
    levels=_CLIMBING.levels,
)


def test_a_task_climbs_its_levels_as_it_masters_them_and_the_same_way_when_resumed(tmp_path):
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    state = run_in(whole, CLIMBING)
    raised = of(whole, LevelRaised)
    assert [event.level for event in raised] == list(range(2, 2 + len(raised)))
    assert state.levels["arithmetic"].highest == raised[-1].level > 2
    run_in(halved, CLIMBING, until=lambda state: state.step == raised[0].step + 1)
    run_in(halved, CLIMBING)
    assert timeless(events(halved)) == timeless(events(whole))
    for file in sorted((whole / "samples").glob("*.jsonl")):
        for record in map(json.loads, file.read_text().splitlines()):
            if record["task"] == "arithmetic":
                highest = max([event.level for event in raised if event.step <= record["step"]], default=1)
                assert record["level"] <= highest


# -- a stage plan: a domain joins, n and response limit double, the optimizer is cleared once

_STAGES = make_plan(
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
)
_CHANGED = ("mixture", "samples_per_prompt", "response_limit")
STAGED = replace(
    planned(PLAN, reset=some_resets(), stages=_STAGES.config.stages),
    settings=tuple(PLAN.settings[0] | {name: at[name] for name in _CHANGED} for at in _STAGES.settings),
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
