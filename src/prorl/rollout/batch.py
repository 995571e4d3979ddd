"""From judged groups to what the learner trains on: shaped rewards (METHOD §1), then advantages (METHOD §3)."""

from __future__ import annotations

from collections.abc import Sequence

from prorl.algo.cosine_length_penalty import shaped_reward
from prorl.algo.reinforce_baseline import advantages
from prorl.algo.truncation import truncated_score
from prorl.types import Action, Batch, Group, Knobs, PromptActions, Rollout


def shaped_rewards(group: Group, knobs: Knobs) -> list[float]:
    """Rewards of a group's rollouts: raw scores, scaled where truncated, plus the cosine length term."""
    return [_shaped(rollout, knobs) for rollout in group.rollouts]


def make_batch(groups: Sequence[Group], knobs: Knobs) -> Batch:
    """Shape rewards, turn them into one advantage per rollout, and keep only what the learner needs."""
    rewards = [shaped_rewards(group, knobs) for group in groups]
    lengths = [[len(rollout.completion.tokens) for rollout in group.rollouts] for group in groups]
    scaled = advantages(rewards, lengths, level=knobs.advantage_level)
    return Batch(
        groups=tuple(
            PromptActions(
                prompt=group.prompt,
                actions=tuple(
                    Action(
                        tokens=rollout.completion.tokens,
                        engine_logps=rollout.completion.logps,
                        advantage=advantage,
                    )
                    for rollout, advantage in zip(group.rollouts, group_advantages, strict=True)
                ),
            )
            for group, group_advantages in zip(groups, scaled, strict=True)
        )
    )


def _shaped(rollout: Rollout, knobs: Knobs) -> float:
    score = truncated_score(
        rollout.verdict.score, rollout.completion.finish == "length", knobs.truncated_scale
    )
    return shaped_reward(
        score,
        len(rollout.completion.tokens),
        knobs.response_limit,
        weight=knobs.length_weight,
        eta_min=knobs.length_eta_min,
        eta_max=knobs.length_eta_max,
        applies=knobs.length_applies_to == "all" or rollout.verdict.status == "ok",
    )
