"""Generate and judge a fixed list of problems, overlapped: the part that training and exams share.

Which sequences decode together follows from the order of the problems alone, never from how fast a verdict
came; the result is in problem order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prorl.envs.errors import ProrlError
from prorl.envs.seeds import derive
from prorl.envs.types import Problem, Verdict
from prorl.rollout.outage import Item, Wait, collect_verdicts, heal, wait_silently
from prorl.stopwatch import Stopwatch
from prorl.types import Completion, Engine, Group, Judge, Renderer, Request, Rollout, Sampling


class StaleCompletionError(ProrlError):
    """A completion came from other weights than the ones that were asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """The hands of a roll-out: who renders, samples and judges, and who waits while verifiers are out."""

    engine: Engine
    judge: Judge
    renderer: Renderer
    wait: Wait = wait_silently


def roll_out(
    worker: Worker,
    problems: Sequence[tuple[int, Problem]],  # (draw, problem), draws distinct
    *,
    samples: int,
    sampling: Sampling,
    seed: int,
    clock: Stopwatch,
) -> list[Group]:
    """Sample `samples` responses to every problem and judge each one as soon as it ends.

    Raises:
        StaleCompletionError: the engine answered with weights of another version than it has now.
        WaitEnded: somebody asked to stop while verifiers or judges were out; the judge may still owe verdicts.
    """
    prompts = {draw: worker.renderer.encode(problem.prompt) for draw, problem in problems}
    by_draw = dict(problems)
    version = worker.engine.version
    for draw, prompt in prompts.items():
        request = Request(
            draw=draw, prompt=prompt, samples=samples, seed=derive(seed, draw), sampling=sampling
        )
        worker.engine.submit(request)

    completions: list[Completion] = []
    judged: list[Item] = []
    verdicts: dict[int, Verdict] = {}
    while True:
        with clock.phase("generate"):
            finished = worker.engine.poll()
        if not finished:
            break
        for completion in finished:
            if completion.policy_version != version:
                raise StaleCompletionError(
                    f"draw {completion.draw} was sampled by policy version {completion.policy_version}, "
                    f"but version {version} was asked"
                )
            text = worker.renderer.decode(completion.tokens)
            worker.judge.submit(len(completions), by_draw[completion.draw], text)
            completions.append(completion)
            judged.append((by_draw[completion.draw], text))
        verdicts.update(worker.judge.poll(wait=False))
    with clock.phase("judge"):
        verdicts = collect_verdicts(worker.judge, verdicts, len(completions), worker.wait)
        verdicts = heal(worker.judge, judged, verdicts, worker.wait)

    rollouts = (
        Rollout(completion=completion, text=text, verdict=verdicts[ticket])
        for ticket, (completion, (_, text)) in enumerate(zip(completions, judged, strict=True))
    )
    return _groups(problems, prompts, rollouts)


def _groups(
    problems: Sequence[tuple[int, Problem]],
    prompts: dict[int, tuple[int, ...]],
    rollouts: Iterable[Rollout],
) -> list[Group]:
    by_draw: dict[int, list[Rollout]] = {draw: [] for draw, _ in problems}
    for rollout in rollouts:
        by_draw[rollout.completion.draw].append(rollout)
    return [
        Group(
            draw=draw,
            problem=problem,
            prompt=prompts[draw],
            rollouts=tuple(sorted(by_draw[draw], key=lambda rollout: rollout.completion.sample)),
        )
        for draw, problem in problems
    ]
