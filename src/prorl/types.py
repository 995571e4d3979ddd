"""The plain data that crosses module boundaries: frozen records, no torch, no behaviour beyond small properties.

Raw score `s` (what the verifier said) and shaped reward `r` (what training uses) are never stored in one field:
filtering, exams and stop rules read `Verdict.score`; only advantages read rewards (METHOD, notation).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from prorl.envs.types import Problem, Verdict

Finish = Literal["stop", "length"]


def token_ids(tokens: Iterable[int]) -> array[int]:
    """A response's tokens as 32-bit integers: compared by value, never changed, and no keys as prompts are."""
    return array("i", tokens)


def log_probs(logps: Iterable[float]) -> array[float]:
    """Its log-probs as 32-bit floats, which is what engines compute."""
    return array("f", logps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample a response: `limit` bounds it in tokens, the end-of-sequence token included.

    Temperature 0 takes the most probable token, the first of equals, so all samples of a request are equal.
    """

    temperature: float
    top_p: float
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Ask an engine for `samples` responses to one tokenised prompt."""

    draw: int  # position in the data order; with `sample` it names a completion
    prompt: tuple[int, ...]
    samples: int
    seed: int  # every random number of this request derives from (seed, sample, position)
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled response. `logps[t]` is log p(tokens[t]) under the untruncated, temperature-scaled policy.

    At temperature 0 that is the policy at temperature 1; with `top_p` below 1 vLLM reports the truncated one's.
    """

    draw: int
    sample: int
    tokens: array[int]  # the end-of-sequence token is included when finish == "stop"
    logps: array[float]
    finish: Finish
    policy_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One completion with its text and verdict: one record, never parallel lists."""

    completion: Completion
    text: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All rollouts of one drawn problem, in sample order."""

    draw: int
    problem: Problem
    prompt: tuple[int, ...]
    rollouts: tuple[Rollout, ...]

    @property
    def scores(self) -> tuple[float, ...]:
        """Raw verifier scores in sample order."""
        return tuple(rollout.verdict.score for rollout in self.rollouts)

    @property
    def has_error(self) -> bool:
        """Whether any verdict is an error, which makes the whole group unusable for training."""
        return any(rollout.verdict.status == "error" for rollout in self.rollouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What the learner needs of one rollout: action tokens, the engine's log-probs of them, one advantage."""

    tokens: array[int]
    engine_logps: array[float]
    advantage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptActions:
    """A prompt and its n rollouts; kept together so that the learner computes the prompt once."""

    prompt: tuple[int, ...]
    actions: tuple[Action, ...]

    @property
    def action_tokens(self) -> int:
        """Number of action tokens over all rollouts."""
        return sum(len(action.tokens) for action in self.actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Everything one training step learns from: ragged plain data, in draw order."""

    groups: tuple[PromptActions, ...]

    @property
    def action_tokens(self) -> int:
        """Global action-token count, the denominator of the token-level mean (METHOD §4)."""
        return sum(group.action_tokens for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Every dial of one step, as numbers: what the schedules and stages of the plan say at this step.

    The off value of each idea removes it exactly (METHOD): `min_spread=0`, `length_weight=0`,
    `truncated_scale=1`, `clip_high=clip_low`, `kl_coef=0`, `mismatch="none"`.
    """

    # sampling
    prompts_per_step: int  # informative groups wanted per step
    samples_per_prompt: int
    response_limit: int  # T, tokens
    temperature: float
    top_p: float
    # dynamic sampling (METHOD §2)
    min_spread: float
    max_draw_factor: float  # at most this many draws per wanted group
    wave_margin: float  # standard deviations of its yield by which a wave is larger than it need be
    # reward shaping (METHOD §1)
    length_weight: float
    length_eta_min: float
    length_eta_max: float
    length_applies_to: Literal["all", "correct"]
    truncated_scale: float
    # advantage (METHOD §3) and loss (METHOD §4-6)
    advantage_level: Literal["token", "sequence", "group"]
    clip_low: float
    clip_high: float
    dual_clip: float | None
    mismatch: Literal["none", "tis", "icepop", "sequence_mask"]
    mismatch_low: float
    mismatch_high: float
    kl_coef: float
    kl_estimator: Literal["k1", "k2", "k3"]
    # optimizer
    learning_rate: float
    grad_clip: float
    updates_per_step: int
    # data mixture: task name → weight, relative; empty means equal weights
    mixture: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    """What one `Learner.update` measured: means over the action tokens of the applied updates unless said otherwise.

    What was not measured is None: every mean where no update was applied.
    """

    updates: int  # optimizer updates applied
    skipped: int  # updates skipped because the loss or the gradient was not finite
    loss: float | None
    kl: float | None  # against the reference by k2, whatever the loss uses; None when kl_coef is 0
    entropy: float | None  # nats per token
    grad_norm: float | None  # before clipping, mean over updates
    clip_share: float | None  # share of tokens whose ratio was clipped
    mismatch: float | None  # mean |log w|, w = learner_old / engine (METHOD §5)
    mismatch_out_share: float | None  # share of tokens with weight zero or truncated
    tokens: int  # token positions computed, prompts and padding included
    action_tokens: int
    skipped_last: int = 0  # of the skipped ones, those after the last applied update
