"""A policy that dies in a whole run of the fake backend: seen, said, undone, and never made the reference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prorl.control.detectors import degraded
from prorl.control.events import Evaluated, Intervened, Ordered, ReferenceReset, Stepped
from prorl.fake import FakeEngine, FakeLearner
from prorl.lab.watch.lines import line
from prorl.run.inbox import INBOX, send
from prorl.run.keeper import KeepRules
from prorl.run.retention import Retention
from prorl.steering import parse_order
from support.defaults import some_detectors, some_exams, some_resets
from support.fake_runs import PLAN, events, run_in, timeless

WATCHED = replace(
    PLAN,
    steps=40,
    detectors=some_detectors(),
    exam=some_exams(every=10, per_domain=20, samples=4),
    reset=some_resets(every=8, cooldown=2, stalled_exams=1),
    save_every=5,
)
DEAD = 0.0001
BEARABLE = 1.0  # learning rate


def discarded(folder):
    return list(map(json.loads, (folder / "journal.discarded.jsonl").read_bytes().splitlines()))


class FragileLearner(FakeLearner):
    """Its policy dies of a learning rate that it cannot bear, and never learns again."""

    def update(self, batch, knobs):
        stats = super().update(batch, knobs)
        if knobs.learning_rate > BEARABLE or self.skill == DEAD:
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


def steered(folder: Path, plan=WATCHED, *, orders=(), **options):
    conditions = {}

    def watch(event, state) -> None:
        if isinstance(event, Stepped):
            conditions[event.step] = degraded(plan, state)

    options = {"sabotage": fragile} | options
    return run_in(folder, plan, watch=watch, orders=dict(orders), **options), conditions


def of(folder: Path, kind: type) -> list:
    return [event for event in events(folder) if isinstance(event, kind)]


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> tuple[Path, dict[int, str]]:
    folder = tmp_path_factory.mktemp("killed") / "run"
    state, conditions = steered(folder, orders={13: "optimizer.lr=5"})
    assert state.stopped == "done"
    return folder, conditions


def test_a_deadly_order_is_undone_within_twenty_steps_and_the_old_rate_holds(killed):
    folder, _ = killed
    (back,) = of(folder, Intervened)  # the early exam was asked for in what is given up
    assert (back.detector, back.action, back.from_step, back.step) == ("exam_collapse", "roll_back", 17, 10)
    assert back.reason.endswith("and the knobs ordered since then are undone")
    (refused,) = of(folder, Ordered)
    assert (refused.step, refused.settings) == (10, {"optimizer.lr": 5})
    assert refused.refused == "a roll back has undone it: give it again if it is still wanted"
    assert {step.learning_rate for step in of(folder, Stepped)} == {0.1}
    assert of(folder, Evaluated)[-1].score > 0.3


def test_the_journal_and_its_lines_tell_what_happened(killed):
    folder, _ = killed
    given_up = discarded(folder)
    asked = [(r["detector"], r["action"], r["step"]) for r in given_up if r.get("action") == "exam"]
    assert asked == [("truncated_share", "exam", 17), ("unanswered_share", "exam", 17)]
    (back,) = of(folder, Intervened)
    assert line(back, 40).endswith("; rolled back from step 17 to the checkpoint of step 10")


def test_a_dead_policy_is_never_made_the_reference(killed):
    folder, _ = killed
    given_up = [record["kind"] for record in discarded(folder)]
    assert "reference_reset" not in given_up  # one was due at step 16
    assert [reset.step for reset in of(folder, ReferenceReset)][:2] == [8, 16]


def test_the_run_is_degraded_until_it_is_back(killed):
    _, conditions = killed
    assert conditions[17] == ""  # of step 17 as it was made again
    assert set(conditions.values()) == {""}


def test_a_dead_policy_is_told_as_degraded_where_nothing_acts(tmp_path):
    acting = ("truncated_share", "unanswered_share", "no_signal", "exam_collapse")
    warned = some_detectors() | some_detectors(**{name: {"mode": "warn"} for name in acting})
    plan = replace(WATCHED, detectors=warned)
    _, conditions = steered(tmp_path / "run", plan, orders={13: "optimizer.lr=5"})
    assert [conditions[step] for step in (16, 17)] == ["", "100% of responses hit the length limit"]
    assert conditions[40] == "the exam is at most 9% of the best one"
    assert max(reset.step for reset in of(tmp_path / "run", ReferenceReset)) < 14
    measured = [step.update.entropy for step in of(tmp_path / "run", Stepped)]
    assert measured[13] is not None
    assert set(measured[14:]) == {None}


def test_a_collapse_without_an_order_goes_back_at_a_lower_rate_and_stops_when_that_does_not_help(tmp_path):
    class Doomed(FragileLearner):
        def update(self, batch, knobs):
            return super().update(batch, replace(knobs, learning_rate=knobs.learning_rate + self.extra()))

        def extra(self):
            return 5.0 if self.engine.version >= 13 else 0.0

    def doomed(backend) -> None:
        fragile(backend)
        backend.learner = Doomed(0.3)
        backend.learner.engine = backend.engine

    state, _ = steered(tmp_path / "run", sabotage=doomed)
    assert state.stopped == "the exam is at most 9% of the best one, and 3 roll backs did not help"
    backs = [told for told in of(tmp_path / "run", Intervened) if told.detector == "exam_collapse"]
    assert [(told.action, told.lr_scale) for told in backs][-1] == ("stop", 0.125)


@pytest.mark.parametrize("stop", [12, 15, 17])
def test_interrupting_a_run_that_collapses_changes_nothing(killed, tmp_path, stop):
    folder = tmp_path / "run"
    asked: list[int] = []

    def once(state) -> bool:
        if state.step == stop and not asked:
            asked.append(stop)
            return True
        return False

    assert steered(folder, orders={13: "optimizer.lr=5"}, until=once)[0].stopped == "interrupted"
    assert steered(folder, orders={13: "optimizer.lr=5"} if stop < 13 else {})[0].stopped == "done"

    def told(path):
        return [replace(e, id="") if isinstance(e, Ordered) else e for e in timeless(events(path))]

    assert told(folder) == told(killed[0])


@pytest.mark.parametrize(("words", "landed"), [("roll-back", 10), ("roll-back=7", 5), ("roll-back=0", 0)])
def test_an_operator_rolls_back_once_and_what_was_ordered_after_it_holds(tmp_path, words, landed):
    folder = tmp_path / "run"
    watch_for = {13: "kl.coef=0.5", 17: words}
    keep = KeepRules(retention=Retention(keep_last=9))
    state, _ = steered(folder, orders=watch_for, keep=keep)
    (back,) = of(folder, Intervened)
    assert (back.detector, back.from_step, back.step, back.lr_scale) == ("order", 17, landed, 1.0)
    assert line(back, 40) == (
        "ORDER at step 17: told to roll back, and the knobs ordered since then are undone; "
        f"rolled back from step 17 to the checkpoint of step {landed}"
    )
    assert [(o.order, o.step, bool(o.refused)) for o in of(folder, Ordered)] == [
        ("set", landed, True),
        ("roll-back", landed, True),
    ]
    assert state.stopped == "done"
    assert {step.kl_coef for step in of(folder, Stepped)} == {1e-3}


def test_an_order_that_follows_a_roll_back_at_the_same_boundary_is_obeyed_after_it(tmp_path):
    folder = tmp_path / "run"

    def watch(event, state) -> None:
        if isinstance(event, Stepped) and event.step == 17 and not (folder / INBOX).exists():
            for words in (["roll-back"], ["kl.coef=0.5"], ["stop"]):
                send(folder / INBOX, parse_order(words))

    state = run_in(folder, WATCHED, sabotage=fragile, watch=watch)
    assert (state.step, state.stopped, state.overrides) == (10, "told to stop", {"kl_coef": 0.5})
