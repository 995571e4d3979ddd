"""Sample rollouts for people: what the model was asked, what it wrote, what the verifier said."""

from __future__ import annotations

from typing import Any

from prorl.rollout.collect import Harvest

GROUPS_PER_STEP = 8
ROLLOUTS_PER_GROUP = 2


def sample_records(step: int, harvest: Harvest) -> list[dict[str, Any]]:
    """The first few consumed groups of a step, trained on or rejected, as plain JSON records."""
    accepted = {group.draw for group in harvest.groups}
    return [
        {
            "step": step,
            "draw": group.draw,
            "task": group.problem.task,
            "domain": group.problem.domain,
            "level": group.problem.level,
            "trained": group.draw in accepted,
            "prompt": group.problem.prompt,
            "response": rollout.text,
            "score": rollout.verdict.score,
            "status": rollout.verdict.status,
            "note": rollout.verdict.note,
            "tokens": len(rollout.completion.tokens),
            "finish": rollout.completion.finish,
        }
        for group in harvest.consumed[:GROUPS_PER_STEP]
        for rollout in group.rollouts[:ROLLOUTS_PER_GROUP]
    ]
