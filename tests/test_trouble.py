"""Detectors on whole runs of the fake backend: what they do to a run that goes wrong, and what they leave alone."""

import json
import re
import shutil
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from prorl.commands import INBOX, parse_command, send
from prorl.config.schema import LearnerConfig, SaveConfig
from prorl.control.decide import TOLD_TO_STOP, decide
from prorl.control.detectors import CORRECTED, degraded
from prorl.control.events import CommandGiven, Intervened, ReferenceReset, Resumed, Stepped, Validated, Warned
from prorl.control.state import RunState, fold, from_json
from prorl.envs.files import StorageError
from prorl.envs.types import Verdict
from prorl.local.engine import require_room
from prorl.run import resume as resuming
from prorl.run.checkpoint import Checkpointer
from prorl.run.history import describe, read_history
from prorl.run.journal import EventLog
from prorl.run.resume import branch, resume, roll_back
from prorl.run.store import RunStore
from support.defaults import planned, some_detectors, some_resets, some_validations
from support.fake_backend import WRONG, FakeEngine, FakeJudge, FakeLearner
from support.fake_runs import PLAN, events, of, once_at, run_in, timeless


def watched(**rows):
    """The plan of the tests under the detectors named, with changes to their defaults."""
    return planned(PLAN, detectors=some_detectors(**rows))


def dies(*_, **__):
    """As if the process were killed here."""
    raise KeyboardInterrupt


class RefusingLearner(FakeLearner):
    """Its updates are not finite from one policy version on, as long as the learning rate is above `bearable`."""

    def __init__(self, skill: float, *, since: int, bearable: float) -> None:
        super().__init__(skill)
        self._updates = 0
        self._since = since
        self._bearable = bearable

    def update(self, batch, hparams):
        if self.skill_version() < self._since or hparams.learning_rate <= self._bearable:
            return super().update(batch, hparams)
        before = self.skill, self.momentum
        stats = super().update(batch, hparams)
        self.skill, self.momentum = before
        nothing = dict.fromkeys(("loss", "kl", "entropy", "grad_norm"))
        return replace(stats, updates=0, skipped=1, skipped_last=1, **nothing)

    def skill_version(self) -> int:
        return self.backend.engine.version


def refusing(since: int, bearable: float, kind: type[RefusingLearner] = RefusingLearner):
    def sabotage(backend) -> None:
        backend.learner = kind(0.3, since=since, bearable=bearable)
        backend.learner.backend = backend

    return sabotage


def discarded(folder: Path) -> list[dict]:
    return list(map(json.loads, (folder / "journal.discarded.jsonl").read_bytes().splitlines()))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("healthy") / "run"
    assert run_in(folder, PLAN).stopped == "done"
    return folder


def test_a_healthy_run_is_the_same_under_all_detectors(healthy, tmp_path):
    run_in(tmp_path / "run", planned(PLAN, detectors=some_detectors()))
    assert timeless(events(tmp_path / "run")) == timeless(events(healthy))


# -- updates that are not finite

STRICT = watched(non_finite={"steps": 4})
SICK = refusing(since=6, bearable=0.05)  # half the plan's learning rate can be borne


@pytest.fixture(scope="module")
def rolled_back(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rolled") / "run"
    assert run_in(folder, STRICT, sabotage=SICK).stopped == "done"
    return folder


def test_updates_that_are_not_finite_roll_back_to_the_last_good_checkpoint(rolled_back):
    (told,) = of(rolled_back, Intervened)
    assert (told.detector, told.action, told.from_step, told.step) == ("non_finite", "roll_back", 9, 6)
    assert told.reason == "3 updates in a row were not finite"
    assert (told.lr_scale, told.lr_until) == (0.5, 13)


def test_the_journal_of_a_rolled_back_run_tells_each_step_once_and_keeps_what_it_gave_up(rolled_back):
    assert [event.step for event in of(rolled_back, Stepped)] == list(range(1, 13))
    assert [event["kind"] for event in discarded(rolled_back)].count("stepped") == 3
    checkpoint = RunStore.open(rolled_back).latest_checkpoint()
    assert from_json(checkpoint.state) == fold(events(rolled_back))
    assert [event.learning_rate for event in of(rolled_back, Stepped)] == [0.1] * 6 + [0.05] * 6


def test_warnings_outlive_the_steps_that_were_given_up(tmp_path):
    def sabotage(backend) -> None:
        SICK(backend)
        told = iter([[]] * 9 + [["engine 0 has died"]])
        backend.incidents = lambda: next(told, [])

    run_in(tmp_path / "run", STRICT, sabotage=sabotage)
    told = of(tmp_path / "run", (Warned, Intervened))
    assert [(type(event), event.step) for event in told] == [(Warned, 8), (Intervened, 6)]


def test_a_run_with_a_smaller_step_from_the_start_of_the_trouble_comes_to_the_same(rolled_back, tmp_path):
    """The roll back restored policy, optimizer, reference and data order: nothing of the bad steps is left."""
    from prorl.config.fields import PointsConfig

    lowered = planned(PLAN, learning_rate=PointsConfig(points=((0, 0.1), (6, 0.05))))
    run_in(tmp_path / "run", lowered)
    told = [event for event in timeless(events(rolled_back)) if event.kind != "intervened"]
    assert told == timeless(events(tmp_path / "run"))


@pytest.mark.parametrize("stop", [5, 6, 8, 10])
def test_interrupting_a_run_that_rolls_back_changes_nothing(rolled_back, tmp_path, stop):
    folder = tmp_path / "run"
    assert run_in(folder, STRICT, sabotage=SICK, until=once_at(stop)).stopped == "interrupted"
    assert run_in(folder, STRICT, sabotage=SICK).stopped == "done"
    assert timeless(events(folder)) == timeless(events(rolled_back))


@pytest.mark.parametrize("when", ["stepped", "intervened", "restoring"])
def test_a_kill_around_and_within_a_roll_back_changes_nothing(rolled_back, tmp_path, monkeypatch, when):
    folder = tmp_path / "run"

    def die(event, state) -> None:
        if event.kind == when and (when == "intervened" or state.step == 9):
            raise ZeroDivisionError("the machine went away")

    with monkeypatch.context() as patch:
        if when == "restoring":
            patch.setattr(FakeLearner, "restore", lambda self, folder: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_in(folder, STRICT, sabotage=SICK, watch=die)
    assert run_in(folder, STRICT, sabotage=SICK).stopped == "done"
    assert timeless(events(folder)) == timeless(events(rolled_back))


@pytest.mark.parametrize(("since", "most"), [(6, 2), (0, 3)])
def test_roll_backs_that_do_not_help_stop_the_run_and_say_so(tmp_path, since, most):
    """From the base on, every checkpoint is behind the trouble, so each roll back forgets the one before."""
    plan = watched(non_finite={"max": most})
    state = run_in(tmp_path / "run", plan, sabotage=refusing(since=since, bearable=0.0))
    assert state.stopped == f"3 updates in a row were not finite, and {most} roll backs did not help"
    assert [(t.action, t.acted["non_finite"], t.lr_scale) for t in of(tmp_path / "run", Intervened)] == [
        *(("roll_back", number, 0.5**number) for number in range(1, most + 1)),
        ("stop", most + 1, 0.5**most),
    ]


def test_of_the_time_that_was_undone_hparams_and_a_stop_are_refused_and_other_commands_are_obeyed_again(
    tmp_path,
):
    folder = tmp_path / "run"
    script = {4: "note before", 6: "note after", 7: "kl.coef=0.5", 8: "stop"}
    steered = {"sabotage": SICK, "save": SaveConfig(keep_last=9)}
    assert run_in(folder, STRICT, **steered, commands=script).stopped == TOLD_TO_STOP
    assert run_in(folder, STRICT, **steered).stopped == "done"
    told = [(o.step, o.name, bool(o.refused)) for o in of(folder, CommandGiven)]
    assert told == [(4, "note", False), (6, "note", False), (6, "set", True), (6, "stop", True)]
    assert {step.kl_coef for step in of(folder, Stepped)} == {1e-3}


def test_where_no_checkpoint_is_old_enough_as_in_a_branch_the_oldest_has_to_do(tmp_path):
    folder = tmp_path / "run"
    run_in(folder, STRICT, sabotage=SICK, until=lambda state: state.step == 8)
    for path in (folder / "checkpoints").iterdir():
        if path.name != "step_000008":
            shutil.rmtree(path)
    assert run_in(folder, planned(STRICT, reset=some_resets()), sabotage=SICK).stopped == "done"
    (told,) = of(folder, Intervened)
    assert (told.from_step, told.step) == (9, 8)


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        *((moment, "roll-back=5") for moment in ("fold", "discard", "restore", "save")),
        *((moment, "roll-back") for moment in ("restore", "save")),
    ],
)
def test_a_kill_in_a_roll_back_gives_back_nothing_that_was_undone(tmp_path, monkeypatch, moment, words):
    """Before the journal says so, while checkpoints move, before the learner is restored, or before the save."""
    commands = {7: "kl.coef=0.5", 11: words}

    def run(name, **given):
        return run_in(tmp_path / name, STRICT, save=SaveConfig(every=5, keep_last=9), **given)

    def watch(event, state) -> None:
        if moment == "save" and isinstance(event, Intervened):
            dies()

    assert run("undisturbed", commands=commands).stopped == "done"
    places = {
        "fold": (resuming, "fold"),
        "discard": (RunStore, "_discard"),
        "restore": (FakeLearner, "restore"),
    }
    with monkeypatch.context() as patch:
        if moment in places:
            patch.setattr(*places[moment], dies)
        with pytest.raises(KeyboardInterrupt):
            run("killed", commands=commands, watch=watch)
    assert run("killed").stopped == "done"
    once, again = tmp_path / "undisturbed", tmp_path / "killed"
    (back,), (expected,) = (of(folder, Intervened) for folder in (again, once))
    assert back == (replace(expected, from_step=9) if moment == "fold" else expected)  # the checkpoint before
    assert of(again, CommandGiven) == of(once, CommandGiven)
    assert [event.kl_coef for event in of(again, Stepped)] == [event.kl_coef for event in of(once, Stepped)]


def test_a_roll_back_with_no_whole_checkpoint_to_go_to_is_refused_and_the_run_goes_on(tmp_path):
    def damage(event, _state):
        if isinstance(event, Stepped) and event.step == 8:
            path = tmp_path / "run" / "checkpoints" / "step_000000" / "model.json"
            path.write_bytes(b"x" * path.stat().st_size)

    state = run_in(tmp_path / "run", STRICT, watch=damage, commands={9: "roll-back=0"})
    assert state.stopped == "done"
    (told,) = of(tmp_path / "run", Intervened)
    assert (told.action, told.from_step) == ("warn", None)
    assert re.match(r"told to roll back, which cannot be done: none of .* can be used", told.reason)


@pytest.fixture
def new_branch(tmp_path):
    """The directory of a branch that nobody has gone on with yet."""
    run_in(tmp_path / "parent", PLAN, until=lambda state: state.step == 8)
    parent = RunStore.open(tmp_path / "parent")
    begun = Resumed(step=8, config_hash="d", branched_from="parent@8", stages=0, same_validation=False)
    branch(parent, tmp_path / "branch", parent.checkpoint(8), {}, begun)
    return tmp_path / "branch"


def test_a_branch_that_is_rolled_back_to_where_it_began_is_still_a_branch(new_branch):
    with RunStore.open(new_branch) as store:
        learner = FakeLearner(0.1)
        event_log = EventLog(store.journal, RunState())
        resume(store, learner, event_log, store.checkpoint(8), "d", {})
        event_log.record(replace(of(new_branch.parent / "parent", Stepped)[-1], step=9))
        told = Warned(step=8, text="rolled back")
        roll_back(store, learner, event_log, store.checkpoint(8), tell=lambda landed: told)
        assert (event_log.state.step, event_log.state.config_hash) == (8, "d")
    (resumed,) = of(new_branch, Resumed)
    assert (resumed.config_hash, resumed.branched_from) == ("d", "parent@8")


def test_a_branch_that_dies_before_its_first_checkpoint_goes_on_as_one(new_branch, monkeypatch):
    for restored in (False, False, True, True):
        with RunStore.open(new_branch) as store, monkeypatch.context() as patch:
            if not restored:
                patch.setattr(FakeLearner, "restore", dies)
            with nullcontext() if restored else pytest.raises(KeyboardInterrupt):
                again = EventLog(store.journal, RunState())
                resume(store, FakeLearner(0.1), again, store.latest_checkpoint(), "d", {})
    assert (again.state.step, again.state.config_hash) == (8, "d")
    assert [event.branched_from for event in of(new_branch, Resumed)] == ["parent@8"]
    with RunStore.open(new_branch) as store:
        log = EventLog(store.journal, RunState())
        with pytest.raises(StorageError, match="is not the recipe the run was"):
            resume(store, FakeLearner(0.1), log, store.latest_checkpoint(), "e", {})


# -- verifiers


def test_a_limit_that_leaves_no_room_for_prompts_stops_a_run_that_can_go_on_once_it_is_taken_back(tmp_path):
    def like_a_real_one(backend) -> None:
        submit = backend.engine.submit

        def checked(request):
            require_room(len(request.context), request.sampling.limit, 10_000)
            submit(request)

        backend.engine.submit = checked

    folder, plan = tmp_path / "run", watched(verifier_errors={})
    state = run_in(folder, plan, sabotage=like_a_real_one, commands={5: "sampling.response_limit=9999"})
    assert (state.step, state.stopped[:12]) == (6, "100% of the ")
    send(folder / INBOX, parse_command(["sampling.response_limit=plan"]))
    assert run_in(folder, plan, sabotage=like_a_real_one).stopped == "done"


class LyingJudge(FakeJudge):
    """Praises wrong answers in training and tells the truth in validations, as a policy that games its reward sees
    it."""

    def submit(self, ticket, problem, text):
        if problem.split == "train":
            right = WRONG in text
            self._ready.append((ticket, Verdict(score=float(right), status="ok" if right else "wrong")))
        else:
            super().submit(ticket, problem, text)


def lying(backend) -> None:
    backend.judge = LyingJudge(backend.judge._tasks)


def test_a_verifier_that_praises_what_is_wrong_raises_the_alarm_and_pauses_the_run(tmp_path):
    plan = planned(
        watched(reward_hacking={"mode": "act", "hits": 1, "of_last": 1}),
        steps=40,
        learning_rate=0.05,
        validation=some_validations(every=4, per_domain=20, samples=4),
        reset=some_resets(),
    )
    waits = []
    state = run_in(
        tmp_path / "run",
        plan,
        sabotage=lying,
        wait=lambda reason, seconds: waits.append(reason),
        until=lambda state: state.paused is not None and bool(waits),
    )
    (told,) = of(tmp_path / "run", Intervened)
    validations = [event.score for event in of(tmp_path / "run", Validated)]
    assert validations[-1] < validations[0]
    assert (told.detector, told.action) == ("reward_hacking", "pause")
    assert "reward_hacking: the training score rose and the validation fell" in waits[0]
    assert state.stopped == "interrupted"
    assert state.paused


class BrokenJudge(FakeJudge):
    """Fails on one response in four: too few for an outage, and yet every group is lost."""

    def submit(self, ticket, problem, text):
        if problem.split == "train" and ticket % 4 == 0:
            self._ready.append((ticket, Verdict(score=0.0, status="error", note="crashed")))
        else:
            super().submit(ticket, problem, text)


def test_verifiers_that_fail_stop_the_run_with_a_sentence_and_do_so_again_if_nothing_was_repaired(tmp_path):
    def broken(backend) -> None:
        backend.judge = BrokenJudge(backend.judge._tasks)

    plan = watched(verifier_errors={})
    first = run_in(tmp_path / "run", plan, sabotage=broken)
    assert "verifiers failed" in first.stopped
    second = run_in(tmp_path / "run", plan, sabotage=broken)
    assert (second.step, second.stopped[:20]) == (first.step + 1, first.stopped[:20])
    assert run_in(tmp_path / "run", plan).stopped == "done"


# -- the reference


def test_a_detector_resets_the_reference_by_name(tmp_path):
    row = {"mode": "act", "action": "reset_reference", "threshold": 0.0, "rearm": 0.0, "cooldown": 100}
    plan = planned(watched(stalled_validation=row), reset=some_resets(cooldown=0))
    run_in(tmp_path / "run", plan)
    (told,), (reset,) = of(tmp_path / "run", Intervened), of(tmp_path / "run", ReferenceReset)
    assert (told.detector, told.action, told.step) == ("stalled_validation", "reset_reference", reset.step)
    assert (reset.reason, reset.name, reset.parent) == ("stalled_validation", "ref_001", "ref_000")


def test_a_step_that_was_decided_decides_nothing_more(rolled_back):
    journal = events(rolled_back)
    state = fold(journal[: next(i for i, e in enumerate(journal) if e.kind == "intervened") + 1])
    assert decide(STRICT, state) == ()


# -- a policy that dies: seen, said, undone, and never made the reference

WATCHED = planned(
    PLAN,
    steps=40,
    detectors=some_detectors(),
    validation=some_validations(every=10, per_domain=20, samples=4),
    reset=some_resets(every=8, cooldown=2, stalled_validations=1),
    save=SaveConfig(every=5),
)
DEAD = 0.0001
BEARABLE = 1.0  # learning rate


class FragileLearner(FakeLearner):
    """Its policy dies of a learning rate that it cannot bear, and never learns again."""

    def update(self, batch, hparams):
        stats = super().update(batch, hparams)
        if hparams.learning_rate > BEARABLE or self.skill == DEAD:
            self.skill, self.momentum = DEAD, 0.0
        return stats


class BabblingEngine(FakeEngine):
    """A dead policy writes to the limit."""

    def _sample(self, request, sample):
        completion = super()._sample(request, sample)
        if self._skill > DEAD:
            return completion
        tokens = (ord("x"),) * request.sampling.limit
        return replace(completion, tokens=tokens, logps=(-1.0,) * len(tokens), finish="length")


def fragile(backend) -> None:
    backend.learner = FragileLearner(0.3)
    backend.engine = BabblingEngine(backend.engine._answers)


def steered(folder: Path, plan=WATCHED, *, commands=(), **options):
    conditions = {}

    def watch(event, state) -> None:
        if isinstance(event, Stepped):
            conditions[event.step] = degraded(plan, state)

    options = {"sabotage": fragile} | options
    return run_in(folder, plan, watch=watch, commands=dict(commands), **options), conditions


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> tuple[Path, dict[int, str]]:
    folder = tmp_path_factory.mktemp("killed") / "run"
    state, conditions = steered(folder, commands={13: "optimizer.lr=5"})
    assert state.stopped == "done"
    return folder, conditions


def test_a_deadly_command_is_undone_within_twenty_steps_and_the_old_rate_holds(killed):
    folder, _ = killed
    (back,) = of(folder, Intervened)  # the early validation was asked for in what is given up
    assert (back.detector, back.action, back.from_step, back.step) == (
        "validation_collapse",
        "roll_back",
        17,
        10,
    )
    assert back.reason.endswith("and the hyperparameters set since then are undone")
    (refused,) = of(folder, CommandGiven)
    assert (refused.step, refused.settings) == (10, {"optimizer.lr": 5})
    assert refused.refused == "a roll back has undone it: give it again if it is still wanted"
    assert {step.learning_rate for step in of(folder, Stepped)} == {0.1}
    assert of(folder, Validated)[-1].score > 0.3


def test_the_journal_and_its_lines_tell_what_happened(killed):
    folder, conditions = killed
    assert set(conditions.values()) == {""}  # of step 17 as it was made again
    given_up = discarded(folder)
    asked = [(r["detector"], r["action"], r["step"]) for r in given_up if r.get("action") == "validation"]
    assert asked == [("truncated_share", "validation", 17), ("unanswered_share", "validation", 17)]
    (back,) = of(folder, Intervened)
    assert describe(back, 40).endswith("; rolled back from step 17 to the checkpoint of step 10")


def test_a_dead_policy_is_never_made_the_reference(killed):
    folder, _ = killed
    given_up = [record["kind"] for record in discarded(folder)]
    assert "reference_reset" not in given_up  # one was due at step 16
    assert [reset.step for reset in of(folder, ReferenceReset)][:2] == [8, 16]


def test_a_dead_policy_is_told_as_degraded_where_nothing_acts(tmp_path):
    acting = ("truncated_share", "unanswered_share", "no_signal", "validation_collapse")
    warned = some_detectors() | some_detectors(**{name: {"mode": "warn"} for name in acting})
    plan = planned(WATCHED, detectors=warned)
    _, conditions = steered(tmp_path / "run", plan, commands={13: "optimizer.lr=5"})
    assert [conditions[step] for step in (16, 17)] == ["", "100% of responses hit the length limit"]
    assert conditions[40] == "the validation is at most 9% of the best one"
    assert max(reset.step for reset in of(tmp_path / "run", ReferenceReset)) < 14
    measured = [step.update.entropy for step in of(tmp_path / "run", Stepped)]
    assert measured[13] is not None
    assert set(measured[14:]) == {None}


def test_a_collapse_without_a_command_goes_back_at_a_lower_rate_and_stops_when_that_does_not_help(tmp_path):
    class Doomed(FragileLearner):
        def update(self, batch, hparams):
            return super().update(batch, replace(hparams, learning_rate=hparams.learning_rate + self.extra()))

        def extra(self):
            return 5.0 if self.engine.version >= 13 else 0.0

    def doomed(backend) -> None:
        fragile(backend)
        backend.learner = Doomed(0.3)
        backend.learner.engine = backend.engine

    state, _ = steered(tmp_path / "run", sabotage=doomed)
    assert state.stopped == "the validation is at most 9% of the best one, and 3 roll backs did not help"
    backs = [told for told in of(tmp_path / "run", Intervened) if told.detector == "validation_collapse"]
    assert [(told.action, told.lr_scale) for told in backs][-1] == ("stop", 0.125)


@pytest.mark.parametrize("stop", [12, 15, 17])
def test_interrupting_a_run_that_collapses_changes_nothing(killed, tmp_path, stop):
    folder = tmp_path / "run"
    assert steered(folder, commands={13: "optimizer.lr=5"}, until=once_at(stop))[0].stopped == "interrupted"
    assert steered(folder, commands={13: "optimizer.lr=5"} if stop < 13 else {})[0].stopped == "done"
    assert timeless(events(folder)) == timeless(events(killed[0]))


@pytest.mark.parametrize(("words", "landed"), [("roll-back", 10), ("roll-back=7", 5), ("roll-back=0", 0)])
def test_an_operator_rolls_back_once_and_what_was_ordered_after_it_holds(tmp_path, words, landed):
    folder = tmp_path / "run"
    watch_for = {13: "kl.coef=0.5", 17: words}
    save = SaveConfig(keep_last=9)
    state, _ = steered(folder, commands=watch_for, save=save)
    (back,) = of(folder, Intervened)
    assert (back.detector, back.from_step, back.step, back.lr_scale) == ("command", 17, landed, 1.0)
    assert describe(back, 40) == (
        "COMMAND at step 17: told to roll back, and the hyperparameters set since then are undone; "
        f"rolled back from step 17 to the checkpoint of step {landed}"
    )
    assert [(o.name, o.step, bool(o.refused)) for o in of(folder, CommandGiven)] == [
        ("set", landed, True),
        ("roll-back", landed, True),
    ]
    assert state.stopped == "done"
    assert {step.kl_coef for step in of(folder, Stepped)} == {1e-3}


def test_a_pause_that_a_stop_ended_is_not_obeyed_again_after_a_roll_back(tmp_path):
    folder, save = tmp_path / "run", SaveConfig(every=5, keep_last=9)

    def stop(reason, seconds) -> None:
        send(folder / INBOX, parse_command(["stop"]))

    first = {"commands": {7: "pause"}, "wait": stop}
    assert run_in(folder, STRICT, save=save, **first).stopped == TOLD_TO_STOP
    second = {"commands": {12: "roll-back=5"}, "wait": lambda *_: pytest.fail("paused again")}
    assert run_in(folder, STRICT, save=save, **second).stopped == "done"
    assert read_history(folder).told.paused is None


def test_a_kill_between_the_moves_of_a_roll_back_leaves_a_run_that_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("prorl.run.store.MAY_REDO", 25)
    plan = planned(PLAN, steps=60, validation=some_validations(every=0), reset=some_resets())
    save = SaveConfig(every=10, keep_last=2, keep_every=20)
    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "_discard", dies)
        with pytest.raises(KeyboardInterrupt):
            run_in(tmp_path / "run", plan, commands={55: "roll-back=20"}, save=save)
    assert run_in(tmp_path / "run", plan, save=save).stopped == "done"


def test_a_best_checkpoint_that_has_rotten_costs_the_reset_to_it_and_not_the_run(tmp_path):
    rules = some_resets(every=5, cooldown=0, target="best")
    plan = planned(PLAN, validation=some_validations(every=2, per_domain=5, samples=2), reset=rules)

    def watch(event, state) -> None:
        best = tmp_path / "run" / "checkpoints" / f"step_{state.best_step or 0:06d}"
        if isinstance(event, Stepped) and event.step == 5:
            while not best.exists():  # it is written beside the step
                time.sleep(0.01)
            largest = max(best.iterdir(), key=lambda path: path.stat().st_size)
            largest.write_bytes(bytes(byte ^ 1 for byte in largest.read_bytes()))

    save = SaveConfig(every=2, keep_last=9)
    assert run_in(tmp_path / "run", plan, watch=watch, save=save).stopped == "done"
    assert of(tmp_path / "run", ReferenceReset)[0].target == "current"


def test_who_asks_to_stop_while_the_run_saves_waits_for_no_further_step(tmp_path, monkeypatch):
    """As the guard of memory does, which looks after a step."""
    asked, keep = [], Checkpointer.keep

    def save_and_ask(self, state, **rules):
        keep(self, state, **rules)
        asked.extend([state.step] * (state.step == 5))

    monkeypatch.setattr(Checkpointer, "keep", save_and_ask)
    state = run_in(tmp_path / "run", PLAN, until=lambda _: bool(asked))
    assert (state.step, state.stopped) == (5, "interrupted")
    assert RunStore.open(tmp_path / "run").latest_checkpoint().step == 5


@pytest.mark.parametrize("errs", [False, True])
def test_a_roll_back_lowers_the_rate_and_goes_on_correcting_where_the_mismatch_was_corrected(tmp_path, errs):
    """The correction is no hyperparameter of the operator's, which undoing would mend."""

    class Erring(RefusingLearner):
        def update(self, batch, hparams):
            factor = 1.06 if errs and self.skill_version() >= 4 else 1.001
            return replace(super().update(batch, hparams), mismatch_factors={"0": factor})

    rules = some_detectors(non_finite={"steps": 4}, mismatch={"mode": "act", "cooldown": 1})
    plan = planned(PLAN, detectors=rules, learner=LearnerConfig(old_logprobs="learner"))
    state = run_in(tmp_path / "run", plan, sabotage=refusing(6, 0.05, Erring))
    (back,) = (event for event in of(tmp_path / "run", Intervened) if event.action == "roll_back")
    assert (state.stopped, back.lr_scale) == ("done", 0.5)
    assert state.overrides == (CORRECTED if errs else {})


def test_a_command_that_follows_a_roll_back_after_the_same_step_is_obeyed_after_it(tmp_path):
    folder = tmp_path / "run"

    def watch(event, state) -> None:
        if isinstance(event, Stepped) and event.step == 17 and not (folder / INBOX).exists():
            for words in (["roll-back"], ["kl.coef=0.5"], ["stop"]):
                send(folder / INBOX, parse_command(words))

    state = run_in(folder, WATCHED, sabotage=fragile, watch=watch)
    assert (state.step, state.stopped, state.overrides) == (10, "told to stop", {"kl_coef": 0.5})
