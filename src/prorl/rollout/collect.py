"""Dynamic sampling: draw problems in order until enough groups teach (METHOD §2).

Groups are accepted in draw order, never in order of completion, which would favour short answers. What was
generated past the last accepted draw is surplus: it is not consumed, and its draws come again next step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from prorl.algo.dynamic_sampling import is_informative, wave_size
from prorl.control.events import Tally
from prorl.envs.types import Problem
from prorl.rollout.batch import shaped_rewards
from prorl.rollout.pipeline import Worker, roll_out
from prorl.stopwatch import Stopwatch
from prorl.types import Group, Knobs, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    """What one step collected: the groups to train on in draw order, and where the data order goes on."""

    groups: tuple[Group, ...]
    consumed: tuple[Group, ...]  # accepted and rejected, in draw order: for samples and statistics
    cursor: int
    version: int  # of the policy that sampled
    tally: Tally


def collect(
    worker: Worker,
    problem_at: Callable[[int], Problem],
    knobs: Knobs,
    *,
    cursor: int,
    expected_share: float,
    seed: int,
    clock: Stopwatch,
) -> Harvest:
    """Roll out draws from `cursor` on until `prompts_per_step` groups teach or the budget of draws ends.

    `expected_share` is the recent share of groups that taught; it sizes the waves, so that one usually does.
    """
    wanted = knobs.prompts_per_step
    end = cursor + math.ceil(wanted * knobs.max_draw_factor)
    sampling = Sampling(temperature=knobs.temperature, top_p=knobs.top_p, limit=knobs.response_limit)
    accepted: list[Group] = []
    consumed: list[Group] = []
    generated: list[Group] = []
    while len(accepted) < wanted and cursor < end:
        draws = range(
            cursor, min(end, cursor + wave_size(wanted - len(accepted), expected_share, knobs.wave_margin))
        )
        wave = roll_out(
            worker,
            [(draw, problem_at(draw)) for draw in draws],
            samples=knobs.samples_per_prompt,
            sampling=sampling,
            seed=seed,
            clock=clock,
        )
        generated += wave
        for group in wave:
            consumed.append(group)
            cursor = group.draw + 1
            if _teaches(group, knobs):
                accepted.append(group)
                if len(accepted) == wanted:
                    break
    return Harvest(
        groups=tuple(accepted),
        consumed=tuple(consumed),
        cursor=cursor,
        version=worker.engine.version,
        tally=_tally(accepted, consumed, generated, knobs),
    )


def _teaches(group: Group, knobs: Knobs) -> bool:
    return not group.has_error and is_informative(group.scores, knobs.min_spread)


def _tally(
    accepted: Sequence[Group], consumed: Sequence[Group], generated: Sequence[Group], knobs: Knobs
) -> Tally:
    judged = [group for group in consumed if not group.has_error]
    rejected = [group for group in judged if not _teaches(group, knobs)]
    easy = sum(fmean(group.scores) > 0.5 for group in rejected)
    rollouts = [rollout for group in judged for rollout in group.rollouts]
    domains = sorted({group.problem.domain for group in judged})
    return Tally(
        draws=len(consumed),
        accepted=len(accepted),
        easy=easy,
        hard=len(rejected) - easy,
        errors=len(consumed) - len(judged),
        surplus=len(generated) - len(consumed),
        rollouts=sum(len(group.rollouts) for group in generated),
        sampled_tokens=sum(len(r.completion.tokens) for group in generated for r in group.rollouts),
        score=_mean(rollout.verdict.score for rollout in rollouts),
        reward=_mean(reward for group in accepted for reward in shaped_rewards(group, knobs)),
        length=_mean(len(rollout.completion.tokens) for rollout in rollouts),
        truncated=_mean(rollout.completion.finish == "length" for rollout in rollouts),
        unanswered=_mean(not rollout.verdict.answered for rollout in rollouts),
        domain_scores={
            domain: fmean(
                score for group in judged if group.problem.domain == domain for score in group.scores
            )
            for domain in domains
        },
        domain_errors={
            domain: fmean(
                rollout.verdict.status == "error"
                for group in consumed
                if group.problem.domain == domain
                for rollout in group.rollouts
            )
            for domain in sorted({group.problem.domain for group in consumed})
        },
    )


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return fmean(values) if values else None
