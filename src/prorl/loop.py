"""The algorithm: one prolonged run of ProRL v2, top to bottom.

Nothing is in flight at the top of the loop. With `max_staleness` what the next step learns from may have been sampled
already, and is dropped unless nothing happens there. What happens at that boundary (exam, the director's decisions,
checkpoint) depends on plan, state and the operator's orders alone, so a run resumed from a checkpoint goes on as if
never stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from prorl.control.decide import (
    Decision,
    EnterStage,
    ResetReference,
    Stop,
    decide,
    exam_due,
    is_quiet,
    save_due,
)
from prorl.control.detectors import Intervene, good_step, intervened
from prorl.control.events import (
    Evaluated,
    Event,
    Intervened,
    Ordered,
    ReferenceReset,
    StageEntered,
    Stepped,
    Stopped,
    Warned,
)
from prorl.control.knobs import knobs_now
from prorl.control.plan import Plan
from prorl.control.state import RunState
from prorl.envs.mixture import Mixture
from prorl.envs.seeds import derive
from prorl.ports import Backend, Renderer
from prorl.rollout.batch import Harvest, collect, make_batch, sample_records
from prorl.rollout.pipeline import Wait, WaitEnded, Worker, wait_silently
from prorl.rollout.validation import domain_rates, sit_exam, unanswered_share
from prorl.run.checkpoint import Checkpointer
from prorl.run.journal import EventLog
from prorl.run.resume import roll_back
from prorl.run.store import RunStore
from prorl.stopwatch import Pulse, Stopwatch, unheard
from prorl.types import Sampling

PAUSE_POLL = 1.0  # seconds between two looks into the inbox while the run is paused


def no_orders(_state: RunState) -> Ordered | None:
    """The orders of a run that nobody steers."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The parts of a run, put together by the composition root."""

    plan: Plan
    backend: Backend
    renderer: Renderer
    tasks: Mixture
    store: RunStore
    recorder: EventLog
    keeper: Checkpointer
    wait: Wait = wait_silently
    next_order: Callable[[RunState], Ordered | None] = no_orders
    pulse: Pulse = unheard

    @property
    def worker(self) -> Worker:
        """Who renders, samples and judges, and who waits."""
        return Worker(
            engine=self.backend.engine, judge=self.backend.judge, renderer=self.renderer, wait=self.wait
        )


def train(run: Run, *, interrupted: Callable[[], bool] = lambda: False) -> RunState:
    """Train until the plan is done, somebody interrupts, or the run is broken; the end is always saved."""
    plan, record = run.plan, run.recorder.record
    run.backend.sync(run.recorder.state.version)
    ahead: Harvest | None = None
    while True:
        before = run.recorder.state
        state = boundary(run, interrupted, in_hand=ahead is not None)
        if state.stopped is not None:
            return state

        clock = Stopwatch(run.pulse)
        knobs = knobs_now(plan, state)
        ahead = undisturbed(run, before, ahead)
        try:
            harvest = ahead or gather(run, state, clock)
        except WaitEnded:
            continue  # nothing was consumed; the wish to stop is granted above
        batch = make_batch(harvest.groups, knobs)
        learning = run.backend.learner.begin_update(batch, knobs)
        ahead = None if interrupted() else gather_ahead(run, state, harvest.cursor, clock)
        with clock.phase("learn"):
            update = learning()
        with clock.phase("sync"):
            run.backend.sync(state.version + 1)
        if plan.sample_every and state.step % plan.sample_every == 0:
            run.store.write_samples(state.step, sample_records(state.step, harvest))
        record(
            Stepped(
                step=state.step + 1,
                cursor=harvest.cursor,
                version=state.version + 1,
                tally=harvest.tally,
                update=update,
                learning_rate=knobs.learning_rate,
                length_weight=knobs.length_weight,
                kl_coef=knobs.kl_coef,
                seconds=clock.seconds(),
                staleness=state.version - harvest.version,
            )
        )


def gather(run: Run, state: RunState, clock: Stopwatch) -> Harvest:
    """Collect what the step that begins with this state learns from.

    Raises:
        WaitEnded: somebody asked to stop while verifiers were out.
    """
    knobs = knobs_now(run.plan, state)
    return collect(
        run.worker,
        partial(run.tasks.problem, split="train", weights=knobs.mixture),
        knobs,
        cursor=state.cursor,
        expected_share=state.informative_share,
        seed=derive(run.plan.seed, "rollout"),
        clock=clock,
    )


def gather_ahead(run: Run, state: RunState, cursor: int, clock: Stopwatch) -> Harvest | None:
    """The next step's harvest by the policy that serves now; None where it must not be stale or would be dropped."""
    following = replace(state, step=state.step + 1, cursor=cursor, asked=())  # as far as it can be foreseen
    if not run.plan.max_staleness or not is_quiet(run.plan, following) or run.keeper.late:
        return None
    with suppress(WaitEnded):  # the wish to stop is granted at the boundary
        return gather(run, following, clock)
    return None


def undisturbed(run: Run, before: RunState, ahead: Harvest | None) -> Harvest | None:
    """What was sampled ahead, unless something happened at this boundary since the state `before`.

    So no decision meets older samples. As nothing is saved with a harvest in hand unless something happened, a run
    goes on from a checkpoint as one that is resumed from it does.
    """
    state = run.recorder.state
    if ahead is None or state == before:
        return ahead
    tally = ahead.tally
    run.recorder.record(
        Warned(
            step=state.step,
            text=f"{tally.rollouts} responses of {tally.sampled_tokens} tokens that had been sampled ahead are "
            "dropped, as something happened between the steps; their draws come again",
        )
    )
    return None


def boundary(run: Run, interrupted: Callable[[], bool], *, in_hand: bool = False) -> RunState:
    """All that comes between two steps: orders, exam, decisions, checkpoint; while paused again and again, saved.

    `in_hand`: what the next step learns from has been sampled already; a checkpoint by the clock then waits a step.
    It is over when nothing is left to decide: a roll back lands at a boundary of its own, where orders may wait.
    """
    plan, record = run.plan, run.recorder.record
    saved: RunState | None = None
    while True:
        while (order := run.next_order(run.recorder.state)) is not None:
            record(order)
        with suppress(WaitEnded):  # the wish to stop is granted below; the exam stays due
            if exam_due(plan, run.recorder.state):
                record(examine(run, run.recorder.state))
        decisions = decide(plan, run.recorder.state, interrupted=interrupted())
        for decision in decisions:
            record(perform(decision, run, run.recorder.state))
        state = run.recorder.state
        if decisions and state.stopped is None:
            continue
        due = save_due(plan, state) and state != saved
        run.keeper.keep(state, due=due, good_step=good_step(plan, state), patient=in_hand)
        if state.paused is None or state.stopped is not None:
            return state
        with suppress(WaitEnded):
            run.wait("" if saved else f"paused at step {state.step}: {state.paused}", PAUSE_POLL)
        saved = state


def examine(run: Run, state: RunState) -> Evaluated:
    """Sit the exam of this step: the same held-out problems and random numbers every time."""
    rules = run.plan.exam
    knobs = knobs_now(run.plan, state)
    clock = Stopwatch(run.pulse, within="exam")
    results = sit_exam(
        run.worker,
        run.tasks.exam_problems("exam", rules.per_domain),
        part="exam",
        samples=rules.samples,
        sampling=Sampling(temperature=1.0, top_p=1.0, limit=knobs.response_limit),
        seed=derive(run.plan.seed, "exam"),
        pass_threshold=run.tasks.pass_threshold,
        clock=clock,
    )
    domains = domain_rates(results, 1)
    return Evaluated(
        step=state.step,
        score=fmean(domains.values()),
        domains=domains,
        pass_at_n=fmean(domain_rates(results, rules.samples).values()),
        unanswered=unanswered_share(results),
        responses=sum(result.samples for result in results),
        seconds=clock.seconds()["total"],
    )


def perform(decision: Decision, run: Run, state: RunState) -> Event:
    """Carry out one decision of the director and say what happened."""
    match decision:
        case EnterStage(index=index):
            return StageEntered(step=state.step, index=index)
        case ResetReference():
            return _reset_reference(decision, run, state)
        case Intervene(action="roll_back"):
            return _roll_back(decision, run, state)
        case Intervene():
            return intervened(decision, state)
        case Stop(reason=reason):
            return Stopped(step=state.step, reason=reason)


def _roll_back(decision: Intervene, run: Run, state: RunState) -> Intervened:
    roll_back(run.store, run.backend.learner, run.recorder, up_to=decision.good_step)
    landed = run.recorder.state
    run.backend.sync(landed.version)
    return intervened(decision, state, landed=landed)


def _reset_reference(decision: ResetReference, run: Run, state: RunState) -> ReferenceReset:
    assert state.reference is not None, "the director resets only a reference that exists"
    source_step, target = state.step, decision.target
    if target == "best" and state.best_step is not None and run.store.has_checkpoint(state.best_step):
        source_step = state.best_step
    elif target == "best":
        target = "current"  # a full disk has cost the best one
    source = None if source_step == state.step else run.store.checkpoint_path(source_step)
    learner = run.backend.learner
    learner.reset_reference(source, clear_optimizer=decision.optimizer == "clear")
    name = f"ref_{state.references_born + 1:03d}"
    return ReferenceReset(
        step=state.step,
        name=name,
        parent=state.reference.name,
        reason=decision.reason,
        target=target,
        source_step=source_step,
        optimizer=decision.optimizer,
        hash=run.store.write_reference(name, learner.save_reference),
    )
