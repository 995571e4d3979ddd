"""Problems → rollouts → rewards → advantages → batch: what one step trains on.

Dynamic sampling accepts informative groups in draw order, never in order of completion, which would favour short
answers. What was generated past the last accepted draw is surplus: its draws come again next step. With partial
rollouts (docs/method.md) nothing is surplus: what has not ended or is not needed yet stays in hand.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean
from typing import Any

from prorl.algo import reinforce_baseline
from prorl.algo.cosine_length_penalty import cosine_length_reward
from prorl.algo.dynamic_sampling import is_informative, wave_size
from prorl.algo.pass_at_k import best_of_k_parts
from prorl.algo.truncation import truncated_score
from prorl.control.events import RolloutStats
from prorl.envs.seeds import derive
from prorl.envs.types import Problem
from prorl.rollout.partial import OpenGroup
from prorl.rollout.pipeline import Sampler, grouped, roll_out
from prorl.stopwatch import Stopwatch
from prorl.types import Action, Batch, Group, HParams, PromptActions, Rollout, Sampling

SHOWN_GROUPS, SHOWN_ROLLOUTS = 8, 2  # sample records of a step: groups, and rollouts of each
SHOWN_ERRORS = 4  # further groups, of those that could not be judged


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutBatch:
    """What one step collected: the groups to train on in draw order, and where the data order goes on."""

    groups: tuple[Group, ...]
    consumed: tuple[Group, ...]  # accepted and rejected, in draw order: for samples and statistics
    cursor: int
    version: int  # of the oldest policy that sampled what is learned from
    rollout_stats: RolloutStats
    in_hand: tuple[OpenGroup, ...] = ()  # for the next step


def collect(
    sampler: Sampler,
    problem_at: Callable[[int], Problem],
    hparams: HParams,
    *,
    cursor: int,
    expected_share: float,
    seed: int,
    clock: Stopwatch,
    in_hand: Sequence[OpenGroup] = (),
    partial: float = 0.0,
    max_age: int = 1,
) -> RolloutBatch:
    """Sample draws from `cursor` on until `prompts_per_step` groups are informative or the budget of draws ends.

    `expected_share` is the recent share of informative groups; it sizes the waves. What is `in_hand` comes first;
    what was begun under another limit, temperature or number of samples, or more than `max_age` steps ago, is begun
    anew. With `partial` a wave has so many more groups than it is expected to need, as a share of those, and stops
    when enough have ended; without, all end.
    """
    wanted = hparams.prompts_per_step
    end = cursor + math.ceil(wanted * hparams.max_draw_factor)
    sampling = Sampling(temperature=hparams.temperature, top_p=hparams.top_p, limit=hparams.response_limit)
    oldest = sampler.engine.version - max_age
    left = {one.group.draw: one for one in in_hand if one.goes_on_under(hparams, oldest)}
    anew = {one.group.draw: one for one in in_hand if one.group.draw not in left}
    before = _written([one.group for one in left.values()])
    accepted: list[Group] = []
    consumed: list[Group] = []
    fresh = cursor
    while True:
        for draw in sorted(draw for draw, one in left.items() if not one.group.unfinished):
            if len(accepted) == wanted:
                break
            consumed.append(group := left.pop(draw).group)
            if _informative(group, hparams):
                accepted.append(group)
        begun = [one.group for one in left.values() if one.group.unfinished]
        if len(accepted) == wanted or not (begun or anew or fresh < end):
            break
        size = wave_size(wanted - len(accepted), expected_share, hparams.wave_margin)
        more = max(0, math.ceil((1 + partial) * size) - len(begun) - len(anew))
        draws = range(fresh, min(end, fresh + more))
        begun += [Group(draw=draw, problem=problem_at(draw)) for draw in (*anew, *draws)]
        begun.sort(key=attrgetter("draw"))
        fresh, anew = draws.stop, {}
        wave = roll_out(
            sampler,
            begun,
            samples=hparams.samples_per_prompt,
            sampling=sampling,
            seeds=[derive(seed, group.draw) for group in begun],
            clock=clock,
            stop_after=size if partial else None,
        )
        for group in wave:
            drawn = left[group.draw].hparams if group.draw in left else hparams
            left[group.draw] = OpenGroup(group=group, hparams=drawn)
    generated = [*consumed, *(one.group for one in left.values())]
    left |= anew  # of a step that needed nothing more: they wait as they are
    if not partial:
        fresh = max([cursor, *(group.draw + 1 for group in consumed)])
    kept = tuple(one for draw, one in sorted(left.items()) if draw < fresh)
    rollouts, tokens = (now - then for now, then in zip(_written(generated), before, strict=True))
    return RolloutBatch(
        groups=tuple(accepted),
        consumed=tuple(consumed),
        cursor=fresh,
        version=min(
            (rollout.completion.policy_version for group in accepted for rollout in group.rollouts),
            default=sampler.engine.version,
        ),
        rollout_stats=_rollout_stats(
            accepted,
            consumed,
            hparams,
            surplus=len(left) - len(kept),
            in_hand=len(kept),
            rollouts=rollouts,
            sampled_tokens=tokens,
        ),
        in_hand=kept,
    )


def make_batch(groups: Sequence[Group], hparams: HParams) -> Batch:
    """Rewards of the groups' rollouts, from them one advantage per rollout, and no more than the learner needs."""
    rewards = [shaped_rewards(group, hparams) for group in groups]
    lengths = [[len(rollout.completion.tokens) for rollout in group.rollouts] for group in groups]
    advantages = reinforce_baseline.advantages(rewards, lengths, level=hparams.advantage_level)
    prompts = []
    for group, group_advantages in zip(groups, advantages, strict=True):
        pairs = zip([rollout.completion for rollout in group.rollouts], group_advantages, strict=True)
        actions = [Action(tokens=done.tokens, engine_logps=done.logps, advantage=own) for done, own in pairs]
        prompts.append(PromptActions(prompt=group.prompt, actions=tuple(actions)))
    return tuple(prompts)


def shaped_rewards(group: Group, hparams: HParams) -> list[float]:
    """Rewards of a group: scores, scaled where truncated, as the objective counts them, plus the length term."""

    def reward(rollout: Rollout, score: float) -> float:
        completion, verdict = rollout.completion, rollout.verdict
        cut_off = completion.finish == "length" and not hparams.truncated_scale
        if hparams.length_applies_to == "correct" and (verdict.status != "ok" or cut_off):
            return score
        eta = {"eta_min": hparams.length_eta_min, "eta_max": hparams.length_eta_max}
        bonus = cosine_length_reward(len(completion.tokens), hparams.response_limit, **eta)
        return score + hparams.length_weight * bonus

    scores = [
        truncated_score(rollout.verdict.score, rollout.completion.finish == "length", hparams.truncated_scale)
        for rollout in group.rollouts
    ]
    counted = best_of_k_parts(scores, hparams.pass_at_k)
    return [reward(rollout, score) for rollout, score in zip(group.rollouts, counted, strict=True)]


def sample_records(step: int, rollout_batch: RolloutBatch) -> list[dict[str, Any]]:
    """Rollouts of the first few consumed groups of a step, trained on or rejected, as plain JSON.

    After them come some of later groups that could not be judged. What is an error stands first in its group.
    """
    accepted = {group.draw for group in rollout_batch.groups}
    first, later = rollout_batch.consumed[:SHOWN_GROUPS], rollout_batch.consumed[SHOWN_GROUPS:]
    unjudged = [group for group in later if group.has_error][:SHOWN_ERRORS]
    return [
        {
            "step": step,
            "draw": group.draw,
            "task": group.problem.task,
            "domain": group.problem.domain,
            "level": group.problem.level,
            "trained": group.draw in accepted,
            "prompt": group.problem.prompt,
            "answer": group.problem.solution.answer if group.problem.solution else "",
            "response": rollout.text,
            "score": rollout.verdict.score,
            "status": rollout.verdict.status,
            "note": rollout.verdict.note,
            "tokens": len(rollout.completion.tokens),
            "finish": rollout.completion.finish,
        }
        for group in (*first, *unjudged)
        for rollout in sorted(group.rollouts, key=lambda one: one.verdict.status != "error")[:SHOWN_ROLLOUTS]
    ]


def _informative(group: Group, hparams: HParams) -> bool:
    if group.has_error:
        return False
    scores = best_of_k_parts(group.scores, hparams.pass_at_k)
    return is_informative(scores, hparams.min_spread)


def _written(groups: Sequence[Group]) -> tuple[int, int]:
    """Responses that have ended, and tokens of all."""
    ended = [rollout.completion for group in groups for rollout in group.rollouts]
    unfinished = (one for group in groups for one in group.unfinished)
    return len(ended), sum(len(one.tokens) for one in (*ended, *unfinished))


def _rollout_stats(
    accepted: Sequence[Group], consumed: Sequence[Group], hparams: HParams, **counted: int
) -> RolloutStats:
    """Of the consumed groups, beside what was `counted` of all."""
    judged = [group for group in consumed if not group.has_error]
    rejected = [group for group in judged if not _informative(group, hparams)]
    easy = sum(fmean(group.scores) > 0.5 for group in rejected)
    rollouts = [rollout for group in judged for rollout in group.rollouts]
    by_level = grouped(judged, lambda group: (group.problem.task, group.problem.level))
    highest = {task: levels[-1][0] for task, levels in hparams.levels.items()}
    top = {
        task: [score for group in by_level[task, level] for score in group.scores]
        for task, level in highest.items()
        if (task, level) in by_level
    }
    return RolloutStats(
        draws=len(consumed),
        accepted=len(accepted),
        easy=easy,
        hard=len(rejected) - easy,
        errors=len(consumed) - len(judged),
        **counted,
        score=_mean(rollout.verdict.score for rollout in rollouts),
        reward=_mean(reward for group in accepted for reward in shaped_rewards(group, hparams)),
        length=_mean(len(rollout.completion.tokens) for rollout in rollouts),
        truncated=_mean(rollout.completion.finish == "length" for rollout in rollouts),
        unanswered=_mean(not rollout.verdict.answered for rollout in rollouts),
        domain_scores=_by_domain(judged, lambda rollout: rollout.verdict.score),
        domain_errors=_by_domain(consumed, lambda rollout: rollout.verdict.status == "error"),
        top_levels=highest,
        top_rollouts={task: len(scores) for task, scores in top.items()},
        top_scores={task: fmean(scores) for task, scores in top.items()},
    )


def _by_domain(groups: Sequence[Group], value: Callable[[Rollout], float]) -> dict[str, float]:
    by_domain = grouped(groups, lambda group: group.problem.domain)
    return {
        domain: fmean(value(rollout) for group in members for rollout in group.rollouts)
        for domain, members in sorted(by_domain.items())
    }


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return fmean(values) if values else None
