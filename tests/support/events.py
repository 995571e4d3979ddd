"""Events with plausible contents, of which a test states only what it is about."""

from prorl.control.events import (
    CommandGiven,
    Event,
    Intervened,
    LevelRaised,
    ReferenceReset,
    Resumed,
    RolloutStats,
    StageEntered,
    Started,
    Stepped,
    Stopped,
    Validated,
    Warned,
)
from prorl.types import UpdateStats


def rollout_stats(**changes) -> RolloutStats:
    plausible = {
        "draws": 10,
        "accepted": 4,
        "easy": 3,
        "hard": 2,
        "errors": 1,
        "surplus": 2,
        "rollouts": 48,
        "sampled_tokens": 4800,
        "score": 0.5,
        "reward": 0.4,
        "length": 100.0,
        "truncated": 0.125,
        "unanswered": 0.25,
        "domain_scores": {"math": 0.75, "code": 0.25},
    }
    return RolloutStats(**(plausible | changes))


def update(**changes) -> UpdateStats:
    plausible = {
        "updates": 1,
        "skipped": 0,
        "loss": 0.1,
        "kl": 0.02,
        "entropy": 0.6,
        "grad_norm": 1.5,
        "clip_share": 0.01,
        "mismatch": 0.0,
        "mismatch_out_share": 0.0,
        "mismatch_factors": {"0": 1.0},
        "tokens": 3000,
        "action_tokens": 2000,
    }
    if changes.get("updates") == 0:
        measured = ("loss", "kl", "entropy", "grad_norm", "clip_share", "mismatch", "mismatch_out_share")
        plausible |= dict.fromkeys(measured) | {
            "skipped_last": changes.get("skipped", 0),
            "mismatch_factors": {},
        }
    return UpdateStats(**(plausible | changes))


def blind(step: int = 1) -> Stepped:
    """A step whose verdicts were all errors: nothing was measured, and nothing learned."""
    nothing = dict.fromkeys(("score", "reward", "length", "truncated", "unanswered"))
    lost = rollout_stats(draws=4, errors=4, accepted=0, easy=0, hard=0, domain_scores={}, **nothing)
    return stepped(step, rollout_stats=lost, update=update(updates=0))


def stepped(step: int = 1, **changes) -> Stepped:
    plausible = {
        "cursor": 10 * step,
        "version": step,
        "rollout_stats": rollout_stats(),
        "update": update(),
        "learning_rate": 1e-6,
        "length_weight": 0.0,
        "kl_coef": 1e-4,
        "seconds": {"generate": 6.0, "learn": 3.0, "other": 1.0, "total": 10.0},
    }
    return Stepped(step=step, **(plausible | changes))


def evaluated(step: int, score: float, **changes) -> Validated:
    plausible = {
        "domains": {"math": score, "code": score},
        "pass_at_n": 0.9,
        "unanswered": 0.05,
        "seconds": 12.0,
        "responses": 800,
    }
    return Validated(step=step, score=score, **(plausible | changes))


def reset(step: int, **changes) -> ReferenceReset:
    plausible = {
        "name": "ref_001",
        "parent": "ref_000",
        "reason": "schedule",
        "target": "current",
        "source_step": step,
        "optimizer": "keep",
        "hash": "abc",
    }
    return ReferenceReset(step=step, **(plausible | changes))


def intervened(**changes) -> Intervened:
    plausible = {
        "step": 1,
        "detector": "kl_spike",
        "action": "warn",
        "reason": "the KL to the reference is 9 times what is usual",
        "numbers": {"reading": 9.0, "threshold": 8.0, "hits": 2, "of_last": 3},
    }
    return Intervened(**(plausible | changes))


def command(name: str, **changes) -> CommandGiven:
    return CommandGiven(**({"step": 1, "name": name, "inbox": 40} | changes))


def one_of_each() -> tuple[Event, ...]:
    """A journal that holds every kind of event."""
    return (
        Started(config_hash="c0ffee", reference_hash="abc"),
        evaluated(0, 0.25),
        StageEntered(step=0, index=0),
        LevelRaised(step=0, task="word_list", level=3),
        stepped(1),
        reset(1),
        intervened(),
        command("set", settings={"kl.coef": 5e-4}, overrides={"kl_coef": 5e-4}, inbox=90),
        Stopped(step=1, reason="interrupted"),
        Resumed(step=1, config_hash="c0ffee"),
        Warned(step=1, text="the disk is full"),
    )
