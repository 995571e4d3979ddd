"""Sampling the next step while this one is learned: what is stale, by how much, and when it is dropped."""

import re
from functools import partial
from pathlib import Path

import pytest

from prorl.config.schema import SamplingConfig, SaveConfig
from prorl.control.events import ReferenceReset, Stepped, Warned
from prorl.control.state import RunState, fold
from prorl.rollout.pipeline import WaitEnded
from support.defaults import planned, some_resets, some_validations
from support.fake_backend import FakeEngine, FakeLearner
from support.fake_runs import PLAN, OutJudge, events, of, run_in, timeless

STALE = planned(
    PLAN,
    sampling=SamplingConfig(max_staleness=1),
    save=SaveConfig(every=100),
    validation=some_validations(every=6, per_domain=5, samples=2),
)
BUSY = (0, 5, 6, 10)  # steps after which a validation, a reset or a checkpoint is due


def staleness(folder: Path) -> dict[int, int]:
    return {event.step: event.staleness for event in of(folder, Stepped)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert run_in(folder, STALE).stopped == "done"
    return folder


def test_every_step_is_one_update_behind_unless_something_happens_before_it(finished):
    assert staleness(finished) == {step: int(step - 1 not in BUSY) for step in range(1, 13)}
    assert not of(finished, Warned)  # nothing that was foreseen is dropped


def test_no_draw_is_skipped_or_learned_twice(finished):
    steps = of(finished, Stepped)
    assert sum(step.rollout_stats.draws for step in steps) == steps[-1].cursor
    assert sum(step.rollout_stats.easy + step.rollout_stats.hard for step in steps) > 0


def test_the_journal_says_whose_samples_a_step_learned_from(tmp_path, monkeypatch):
    sampled: dict[int, int] = {}  # draw → version of the last policy that sampled it

    def remember(self, request, sample):
        sampled[request.draw] = self.version
        return original(self, request, sample)

    original = FakeEngine._sample
    monkeypatch.setattr(FakeEngine, "_sample", remember)
    plan = planned(STALE, validation=some_validations(every=0), max_draw_factor=1.0)
    run_in(tmp_path / "run", plan)
    cursor = 0
    for event in of(tmp_path / "run", Stepped):
        versions = {sampled[draw] for draw in range(cursor, event.cursor)}
        assert versions == {event.step - 1 - event.staleness}
        cursor = event.cursor


def test_engines_sample_between_the_begin_of_an_update_and_its_end(tmp_path, monkeypatch):
    calls: list[str] = []

    def begin(self, batch, hparams, _beat):
        calls.append("begin")
        return partial(end, self, batch, hparams)

    def end(self, batch, hparams):
        calls.append("end")
        return self.update(batch, hparams)

    def submit(self, request):
        calls.append("sample")
        self._queue.append(request)

    monkeypatch.setattr(FakeLearner, "begin_update", begin)
    monkeypatch.setattr(FakeEngine, "submit", submit)
    run_in(tmp_path / "run", planned(STALE, steps=2, validation=some_validations(every=0)))
    told = [call for at, call in enumerate(calls) if calls[at - 1 : at] != [call]]
    assert told == ["sample", "begin", "sample", "end", "begin", "end"]


def test_work_behind_the_last_checkpoint_is_done_again_the_same(finished, tmp_path):
    def die(state: RunState) -> bool:
        if state.step == 9:
            raise ConnectionError("the machine went away")
        return False

    with pytest.raises(ConnectionError):
        run_in(tmp_path / "run", STALE, until=die)
    assert run_in(tmp_path / "run", STALE) == fold(events(finished))
    assert timeless(events(tmp_path / "run")) == timeless(events(finished))


@pytest.mark.parametrize("stop", [1, 3, 8])
def test_an_interrupted_run_goes_on_with_the_newest_policy(tmp_path, stop):
    run_in(tmp_path / "run", STALE, until=lambda state: state.step == stop)
    assert run_in(tmp_path / "run", STALE).stopped == "done"
    assert staleness(tmp_path / "run") == {step: int(step - 1 not in (*BUSY, stop)) for step in range(1, 13)}


def test_a_command_drops_what_was_sampled_ahead_and_says_so(tmp_path):
    run_in(tmp_path / "run", STALE, commands={3: "note look"})
    assert staleness(tmp_path / "run")[4] == 0
    (warned,) = of(tmp_path / "run", Warned)
    assert warned.step == 3
    assert re.match(r"\d+ responses of \d+ tokens that had been sampled ahead are dropped", warned.text)


def test_a_command_to_save_is_no_reason_to_be_on_policy_for_long(tmp_path):
    run_in(tmp_path / "run", planned(STALE, steps=4), commands={1: "save"})
    assert staleness(tmp_path / "run") == {1: 0, 2: 0, 3: 1, 4: 1}


def test_a_reset_that_nobody_foresaw_drops_what_was_sampled_ahead(tmp_path):
    rules = some_resets(kl_ceiling=1e-9, kl_count=2, kl_window=2, cooldown=2)
    run_in(tmp_path / "run", planned(STALE, steps=4, reset=rules))
    resets = [event.step for event in of(tmp_path / "run", ReferenceReset)]
    assert resets
    followed = [step for step in resets if step < 4]
    assert all(staleness(tmp_path / "run")[step + 1] == 0 for step in followed)
    assert [event.step for event in of(tmp_path / "run", Warned)] == followed


def test_nothing_is_sampled_ahead_of_a_checkpoint_by_the_clock(tmp_path):
    run_in(tmp_path / "run", STALE, save=SaveConfig(minutes=1e-9))
    assert set(staleness(tmp_path / "run").values()) == {0}
    assert not of(tmp_path / "run", Warned)


def test_a_checkpoint_by_the_clock_waits_until_nothing_is_in_hand(tmp_path, monkeypatch):
    """Every step of this clock takes a minute, which passes while the learner learns."""
    now = 0.0
    monkeypatch.setattr("prorl.run.checkpoint.time.monotonic", lambda: now)

    def hasten(backend) -> None:
        original = backend.learner.update

        def update(batch, hparams):
            nonlocal now
            now += 60
            return original(batch, hparams)

        backend.learner.update = update

    plan = planned(STALE, steps=12, validation=some_validations(every=0), reset=some_resets())
    run_in(tmp_path / "run", plan, sabotage=hasten, save=SaveConfig(minutes=3))
    assert not of(tmp_path / "run", Warned)
    fresh = [step for step, behind in staleness(tmp_path / "run").items() if not behind]
    assert fresh == [1, 5, 9]
    saved = {int(path.name.removeprefix("step_")) for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert {step - 1 for step in fresh} >= saved - {12}


def test_nothing_is_sampled_ahead_for_somebody_who_wants_to_stop(tmp_path):
    asked: list[int] = []

    def count(backend) -> None:
        original = backend.engine.submit

        def submit(request):
            asked.append(request.draw)
            original(request)

        backend.engine.submit = submit

    plan = planned(STALE, validation=some_validations(every=0))
    state = run_in(tmp_path / "run", plan, sabotage=count, until=lambda _: bool(asked))
    assert (state.stopped, state.step) == ("interrupted", 1)
    assert len(asked) == len(set(asked)), "those of the one step, and no others"


def test_a_wish_to_stop_while_sampling_ahead_loses_no_update(tmp_path):
    learning = False

    def stop(judge: OutJudge, _reason: str) -> None:
        if learning:
            raise WaitEnded
        judge.out = False

    def break_the_judge_at_the_update(backend) -> None:
        original = backend.learner.begin_update

        def begin(batch, hparams, _beat):
            nonlocal learning
            learning = backend.judge.out = True
            return original(batch, hparams)

        backend.learner.begin_update = begin

    plan = planned(STALE, validation=some_validations(every=0))
    sabotage = break_the_judge_at_the_update
    state = run_in(tmp_path / "run", plan, until=lambda _: learning, out=stop, sabotage=sabotage)
    assert (state.stopped, state.step, state.version) == ("interrupted", 1, 1)
