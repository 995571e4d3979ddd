"""Whole runs of the real loop on the fake backend, in milliseconds: started, resumed, steered, sabotaged."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from prorl.build import Session
from prorl.commands import INBOX, parse_command, send
from prorl.config.schema import GuardsConfig, RunConfig, SaveConfig
from prorl.control.events import Event, Stepped, Validated, from_record
from prorl.control.plan import Plan
from prorl.control.state import RunState
from prorl.envs.extract import respond
from prorl.envs.mixture import Mixture
from prorl.envs.registry import make_task
from prorl.envs.types import Verdict
from prorl.loop import Run, train
from prorl.rollout.partial import InHand
from prorl.rollout.pipeline import wait_silently
from prorl.run.checkpoint import Checkpointer
from prorl.run.journal import EventLog, Watcher, read_journal
from prorl.run.resume import begin, resume
from prorl.run.store import RunStore
from prorl.stopwatch import unheard
from support.defaults import some_plan, some_resets, some_validations
from support.fake_backend import FakeBackend, FakeJudge, FakeRenderer
from support.recipes import recipe

CONFIG = recipe(
    tasks={"arithmetic": {}, "word_list": {}},
    validation={"every": 4},
    length_penalty={"on_steps": 2, "off_steps": 3},
)
"""By which commands are judged."""

PLAN = some_plan(
    seed=7,
    steps=12,
    prompts_per_step=4,
    samples_per_prompt=4,
    response_limit=200,
    learning_rate=0.1,
    kl_coef=1e-3,
    length_weight=CONFIG.length_penalty,
    reset=some_resets(every=5, cooldown=2),
    validation=some_validations(every=4, per_domain=5, samples=2),
    save=SaveConfig(every=3),
    sample_every=4,
)


Answers = dict[tuple[int, ...], str]
"""Solution responses by encoded prompt, filled as the mixture hands problems out."""


class SolutionMixture(Mixture):
    """A mixture that tells the fake policy what the right answer to each drawn problem is."""

    def __init__(self, answers: Answers) -> None:
        super().__init__([(make_task("arithmetic"), 1.0), (make_task("word_list"), 1.0)], seed=3)
        self.answers = answers

    def problem(self, draw, split, weights=None, levels=None):
        return self.told(super().problem(draw, split, weights, levels))

    def validation_problems(self, split, per_domain):
        return tuple(map(self.told, super().validation_problems(split, per_domain)))

    def told(self, problem):
        solution = problem.solution
        self.answers[FakeRenderer().encode(problem.prompt)] = respond(solution.steps, solution.answer)
        return problem


class OutJudge(FakeJudge):
    """Out from its first verdict on until `heals` is called."""

    def __init__(self, tasks) -> None:
        super().__init__(tasks)
        self.out = True

    def submit(self, ticket, problem, text):
        if self.out:
            self._ready.append((ticket, Verdict(score=0.0, status="error", note="no sandbox")))
        else:
            super().submit(ticket, problem, text)


def run_in(
    folder: Path,
    plan: Plan,
    *,
    until: Callable[[RunState], bool] = lambda state: False,
    out: Callable[[OutJudge, str], None] | None = None,
    wait: Callable[[str, float], None] = wait_silently,
    config: RunConfig = CONFIG,
    commands: Mapping[int, str] = MappingProxyType({}),
    sabotage: Callable[[FakeBackend], None] = lambda backend: None,
    watch: Watcher = lambda event, state: None,
    save: SaveConfig | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> RunState:
    """Start or resume a run in `folder`.

    `until` interrupts it between two steps, `out` is what a broken judge meets, `sabotage` changes the backend;
    `commands` are given as {step: words} right when that step has been made.
    """
    script = dict(commands)

    def watch_and_command(event: Event, state: RunState) -> None:
        if isinstance(event, Stepped) and event.step in script:
            send(folder / INBOX, parse_command(script.pop(event.step).split()))
        watch(event, state)

    answers = Answers()
    tasks = SolutionMixture(answers)
    verifiers = {name: make_task(name) for name in ("arithmetic", "word_list")}
    backend = FakeBackend(verifiers, answers, skill=0.3)
    sabotage(backend)
    if out is not None:
        backend.judge = OutJudge(verifiers)

        def wait(reason: str, seconds: float) -> None:
            out(backend.judge, reason)

    session = Session(
        config=config,
        plan=plan,
        tasks=tasks,
        backend=backend,
        renderer=FakeRenderer(),
        tokenizer=None,
        context=10_000,
    )
    new = not folder.exists()
    with RunStore.create(folder, {}, report=report) if new else RunStore.open(folder, report=report) as store:
        event_log = EventLog(store.journal, RunState(), [watch_and_command])
        if new:
            begin(store, backend.learner, event_log, "c", {}, with_reference=plan.needs_reference)
        else:
            checkpoint = store.latest_checkpoint()
            resume(store, backend.learner, event_log, checkpoint, "c", {})
        in_hand = InHand(tasks, session.renderer)
        if not new:
            in_hand.restore(checkpoint.path)
        checkpointer = Checkpointer(
            store, backend, event_log, save or SaveConfig(), GuardsConfig(), also=in_hand.snapshot
        )
        run = Run(
            session=session,
            store=store,
            event_log=event_log,
            checkpointer=checkpointer,
            in_hand=in_hand,
            interrupted=lambda: until(event_log.state),
            wait=wait,
            pulse=unheard,
        )
        with checkpointer.journal_failure():
            return train(run)


def events(folder: Path) -> list[Event]:
    return [from_record(record) for record in read_journal(folder / "journal.jsonl")]


def of(folder: Path, kind: type | tuple[type, ...]) -> list:
    return [event for event in events(folder) if isinstance(event, kind)]


def once_at(step: int) -> Callable[[RunState], bool]:
    """An interruption at a step, the first time that it is reached."""
    asked: list[int] = []

    def wanted(state: RunState) -> bool:
        if state.step != step or asked:
            return False
        asked.append(step)
        return True

    return wanted


def timeless(events: list[Event]) -> list[Event]:
    """What happened, without how long it took and without the interruptions themselves."""
    return [
        replace(event, seconds={} if isinstance(event, Stepped) else 0.0)
        if isinstance(event, (Stepped, Validated))
        else event
        for event in events
        if event.kind not in ("resumed", "stopped", "warned")
    ]
