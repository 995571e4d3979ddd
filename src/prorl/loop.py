"""The algorithm: one prolonged run of ProRL v2, top to bottom.

Nothing is in flight at the top of the loop, at most the next step's rollouts are in hand (`max_staleness`). What
happens between two steps (commands, validation, decisions, checkpoint) depends on plan, state and the operator's
commands alone, so a run resumed from a checkpoint goes on as if never stopped.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from prorl.algo.dynamic_sampling import wave_size
from prorl.build import Session
from prorl.commands import INBOX, take_in_next
from prorl.control.decide import Decision, ResetReference, decide, is_quiet, save_due, validation_due
from prorl.control.detectors import Intervene, good_step, intervened
from prorl.control.events import ReferenceReset, Stepped, Stopped, Validated, Warned
from prorl.control.plan import Plan, hparams_now
from prorl.control.state import RunState
from prorl.envs.errors import UsageError
from prorl.envs.files import StorageError
from prorl.envs.mixture import KEPT
from prorl.envs.seeds import derive, purpose
from prorl.rollout.batch import RolloutBatch, collect, make_batch, sample_records
from prorl.rollout.partial import InHand, OpenGroup, problem_of
from prorl.rollout.pipeline import Wait, WaitEnded, domain_rates, sample_problems, score, unanswered_share
from prorl.run.checkpoint import Checkpointer
from prorl.run.journal import EventLog
from prorl.run.resume import roll_back
from prorl.run.store import RunStore
from prorl.stopwatch import Pulse, Stopwatch
from prorl.types import Backend, Sampling

PAUSE_POLL = 1.0  # seconds between two looks into the inbox while the run is paused


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the loop works with."""

    session: Session  # recipe, plan, tasks, backend
    store: RunStore
    event_log: EventLog
    checkpointer: Checkpointer
    in_hand: InHand
    interrupted: Callable[[], bool]  # whether somebody asked to stop
    wait: Wait
    pulse: Pulse

    @property
    def plan(self) -> Plan:
        """What is to be done at every step."""
        return self.session.plan

    @property
    def backend(self) -> Backend:
        """Engine, judge and learner."""
        return self.session.backend

    @property
    def state(self) -> RunState:
        """What all events so far lead to."""
        return self.event_log.state


def train(run: Run) -> RunState:
    """Train until the plan is done, somebody interrupts, or the run is broken; the end is always saved."""
    run.backend.sync(run.state.version)
    every = run.plan.config.sample_every
    ahead: RolloutBatch | None = None
    while True:
        before = run.state
        # Commands, validation, decisions, checkpoint.
        state = between_steps(run, sampled_ahead=ahead is not None)
        if state.stopped is not None:
            return state

        clock = Stopwatch(run.pulse)
        hparams = hparams_now(run.plan, state)
        ahead = undisturbed(run, before, ahead)
        try:
            rollouts = ahead or sample(run, state, clock, run.in_hand.groups)
        except WaitEnded:
            continue  # nothing was consumed; the request to stop is granted above
        batch = make_batch(rollouts.groups, hparams)  # rewards, then advantages
        with clock.phase("learn") as beat:
            finish_update = run.backend.learner.begin_update(batch, hparams, beat)
            prepare(run, state, rollouts.cursor)  # while it computes
        ahead = None if run.interrupted() else sample_ahead(run, state, rollouts, clock)
        with clock.phase("learn"):
            update = finish_update()
        with clock.phase("sync"):
            run.backend.sync(state.version + 1)
        failing = 4 * rollouts.rollout_stats.errors > rollouts.rollout_stats.draws
        if every and (state.step % every == 0 or failing):
            run.store.write_samples(state.step, sample_records(state.step, rollouts))
        run.in_hand.groups = rollouts.in_hand
        run.event_log.record(
            Stepped(
                step=state.step + 1,
                cursor=rollouts.cursor,
                version=state.version + 1,
                rollout_stats=rollouts.rollout_stats,
                update=update,
                learning_rate=hparams.learning_rate,
                length_weight=hparams.length_weight,
                kl_coef=hparams.kl_coef,
                seconds=clock.seconds(),
                staleness=state.version - rollouts.version,
            )
        )


def sample(run: Run, state: RunState, clock: Stopwatch, in_hand: Sequence[OpenGroup]) -> RolloutBatch:
    """Sample what the step that begins with this state learns from, beginning with what is in hand.

    WaitEnded if somebody asks to stop meanwhile.
    """
    hparams = hparams_now(run.plan, state)
    return collect(
        run.session.sampler(run.wait),
        partial(problem_of, run.session.tasks, hparams),
        hparams,
        cursor=state.cursor,
        expected_share=state.informative_share,
        seed=derive(run.plan.config.seed, "rollout"),
        clock=clock,
        in_hand=in_hand,
        partial=run.plan.config.sampling.partial,
        max_age=run.plan.config.sampling.max_age,
    )


def prepare(run: Run, state: RunState, cursor: int) -> None:
    """Make the problems and prompts that the next step begins with; tasks and renderer keep the last ones made."""
    hparams = hparams_now(run.plan, replace(state, step=state.step + 1, asked=()))
    wave = wave_size(hparams.prompts_per_step, state.informative_share, hparams.wave_margin)
    for draw in range(cursor, cursor + min(wave, KEPT)):
        problem = problem_of(run.session.tasks, hparams, draw)
        with suppress(UsageError):  # refused prompts are told of when they are drawn
            run.session.renderer.encode(problem.prompt, problem.history)


def sample_ahead(run: Run, state: RunState, now: RolloutBatch, clock: Stopwatch) -> RolloutBatch | None:
    """The rollouts of the step after `now` by the policy that serves now; None where it must not be so."""
    # As far as it can be foreseen.
    following = replace(state, step=state.step + 1, cursor=now.cursor, asked=())
    stale = run.plan.config.sampling.max_staleness
    if not stale or not is_quiet(run.plan, following) or run.checkpointer.late:
        return None
    with suppress(WaitEnded):  # the request to stop is granted between the steps
        return sample(run, following, clock, now.in_hand)
    return None


def undisturbed(run: Run, before: RunState, ahead: RolloutBatch | None) -> RolloutBatch | None:
    """What was sampled ahead, unless something happened between the steps, since the state `before`.

    So no decision meets older samples. As a checkpoint is saved only where nothing was sampled ahead, or where it is
    dropped here, a run goes on after it as one that is resumed from it does.
    """
    if ahead is None or run.state == before:
        return ahead
    stats = ahead.rollout_stats
    text = (
        f"{stats.rollouts} responses of {stats.sampled_tokens} tokens that had been sampled ahead are "
        "dropped, as something happened between the steps; their draws come again"
    )
    run.event_log.record(Warned(step=run.state.step, text=text))
    return None


def between_steps(run: Run, *, sampled_ahead: bool = False) -> RunState:
    """All that comes between two steps: commands, validation, decisions, checkpoint; while paused again and again.

    `sampled_ahead`: the next step's rollouts are there already; a checkpoint by the clock then waits a step. Repeats
    until nothing is left to decide: after a roll back there may be commands to obey.
    """
    plan, record = run.plan, run.event_log.record
    config, inbox = run.session.config, run.store.folder / INBOX
    saved: RunState | None = None
    while True:
        while (command := take_in_next(config, inbox, run.state, context=run.session.context)) is not None:
            record(command)
        try:
            if validation_due(plan, run.state):
                record(validate(run))
            run.checkpointer.look()  # before the end is decided, so that nothing is told after it
            decisions = decide(plan, run.state, interrupted=run.interrupted())
        except WaitEnded:  # the validation stays due, and so does what is decided by it
            decisions = (Stopped(step=run.state.step, reason="interrupted"),)
        for decision in decisions:
            perform(decision, run)
        state = run.state
        if decisions and state.stopped is None:
            continue
        due = save_due(plan, state) and state != saved
        run.checkpointer.keep(state, due=due, good_step=good_step(plan, state), patient=sampled_ahead)
        if state.stopped is None and run.interrupted():
            continue  # a save may take long, and it looks whether there is memory left
        if state.paused is None or state.stopped is not None:
            return state
        with suppress(WaitEnded):
            run.wait("" if saved else f"paused at step {state.step}: {state.paused}", PAUSE_POLL)
        saved = state


def validate(run: Run) -> Validated:
    """Ask the held-out problems of this run: the same problems and random numbers every time."""
    state, rules = run.state, run.plan.config.validation
    hparams = hparams_now(run.plan, state)
    clock = Stopwatch(run.pulse, within="validation")
    problems = run.session.tasks.validation_problems("validation", rules.per_domain)
    seed = derive(run.plan.config.seed, purpose("validation"))
    groups = sample_problems(
        run.session.sampler(run.wait),
        problems,
        samples=rules.samples,
        sampling=Sampling(temperature=1.0, top_p=1.0, limit=hparams.response_limit),
        seeds=[derive(seed, number) for number in range(len(problems))],
        clock=clock,
    )
    threshold = run.session.tasks.pass_threshold
    scores = [score(group, threshold(group.problem.task)) for group in groups]
    domains = domain_rates(scores, 1)
    return Validated(
        step=state.step,
        score=fmean(domains.values()),
        domains=domains,
        pass_at_n=fmean(domain_rates(scores, rules.samples).values()),
        unanswered=unanswered_share(scores),
        responses=sum(one.samples for one in scores),
        response_limit=hparams.response_limit,
        seconds=clock.seconds()["total"],
    )


def perform(decision: Decision, run: Run) -> None:
    """Carry out one decision and record what happened; a new stage and the end only have to be recorded."""
    before, log = run.state, run.event_log
    match decision:
        case ResetReference():
            log.record(_reset_reference(decision, run))
        case Intervene(action="roll_back"):
            try:  # a branch may hold none that old; then it is the oldest
                oldest = min(run.store.checkpoints(), default=0)
                checkpoint = run.store.latest_checkpoint(up_to=max(decision.good_step, oldest))
            except StorageError as error:
                _cannot_roll_back(decision, before, log, why=str(error))
                return
            roll_back(
                run.store, run.backend.learner, log, checkpoint, tell=partial(intervened, decision, before)
            )
            run.in_hand.restore(checkpoint.path)
            run.backend.sync(run.state.version)
        case Intervene():
            log.record(intervened(decision, before))
        case _:
            log.record(decision)


def _cannot_roll_back(decision: Intervene, state: RunState, log: EventLog, *, why: str) -> None:
    """Refuse a command to roll back; stop, saved, where a detector wanted to."""
    reason = f"{decision.reason}, which cannot be done: {why}"
    told = decision.rule is None
    log.record(intervened(replace(decision, action="warn" if told else "stop", reason=reason), state))
    if not told:
        log.record(Stopped(step=state.step, reason=reason))


def _reset_reference(decision: ResetReference, run: Run) -> ReferenceReset:
    state = run.state
    assert state.reference is not None, "only a reference that exists is reset"
    source_step, target = state.step, decision.target
    source = None
    if target == "best" and state.best_step is not None and state.best_step != state.step:
        try:
            source_step, source = state.best_step, run.store.checkpoint(state.best_step).path
        except StorageError:
            source_step, target = state.step, "current"  # a full disk has cost the best one
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
