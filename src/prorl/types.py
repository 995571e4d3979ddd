"""Records that cross module boundaries, and what the loop asks of a backend. No torch, no behaviour.

Raw score `s` (what the verifier said) and shaped reward `r` (what training uses) are never stored in one field:
filtering, validation and stop rules read `Verdict.score`; only advantages read rewards (docs/method.md, Notation).

The backends `local` and `ray` implement the protocols. Engine and judge are polled for what has finished.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from prorl.envs.errors import ProrlError
from prorl.envs.types import Problem, Verdict
from prorl.stopwatch import unheard

Finish = Literal["stop", "length"]


def token_ids(tokens: Iterable[int]) -> array[int]:
    """A response's tokens as 32-bit integers, never changed."""
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
    """Ask an engine for `samples` responses to one tokenised prompt, or to go on with one that was begun."""

    draw: int  # position in the data order; with `sample` it names a completion
    prompt: tuple[int, ...]
    samples: int
    seed: int  # every random number of this request derives from (seed, sample, position)
    sampling: Sampling  # its limit counts new tokens only, as do the completions
    first: int = 0  # number of the first sample
    begun: tuple[int, ...] = ()  # tokens of the response so far

    @property
    def numbers(self) -> range:
        """The numbers of its samples."""
        return range(self.first, self.first + self.samples)

    @property
    def context(self) -> tuple[int, ...]:
        """The tokens that new ones follow."""
        return self.prompt + self.begun


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
    policy_version: int  # where several have written it, of the first


NOT_BEGUN = Completion(
    draw=0, sample=0, tokens=token_ids(()), logps=log_probs(()), finish="length", policy_version=0
)


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
    prompt: tuple[int, ...] = ()  # once it is asked
    rollouts: tuple[Rollout, ...] = ()
    unfinished: tuple[Completion, ...] = ()  # those that a later step goes on with

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
    """What the learner needs of one rollout."""

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


Batch = tuple[PromptActions, ...]
"""Everything one training step learns from: ragged plain data, in draw order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HParams:
    """Every hyperparameter of one step: the recipe's fields marked `Live`, mixture and levels, as the plan says them.

    Defaults and bounds are the recipe's (config/schema.py). The off value of each idea removes it exactly.
    """

    prompts_per_step: int
    samples_per_prompt: int
    response_limit: int
    temperature: float
    top_p: float
    min_spread: float
    max_draw_factor: float
    wave_margin: float
    length_weight: float
    length_eta_min: float
    length_eta_max: float
    length_applies_to: Literal["all", "correct"]
    truncated_scale: float
    advantage_level: Literal["token", "sequence", "group", "none"]
    pass_at_k: int
    clip_low: float
    clip_high: float
    dual_clip: float | None
    mismatch: Literal["none", "tis", "icepop", "sequence_mask"]
    mismatch_low: float
    mismatch_high: float
    kl_coef: float
    kl_estimator: Literal["k2", "k3"]
    learning_rate: float
    grad_clip: float
    updates_per_step: int
    mixture: Mapping[str, float]  # task → weight, relative; empty means equal weights
    # Of tasks with adaptive levels: those in play, weights.
    levels: Mapping[str, tuple[tuple[int, float], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    """What one step's updates measured: means over the action tokens of the applied ones unless said otherwise.

    None is what was not measured, as every mean where no update was applied.
    """

    updates: int  # optimizer updates applied
    skipped: int  # updates skipped because the loss or the gradient was not finite
    loss: float | None
    kl: float | None  # against the reference by k2, whatever the loss uses; None when kl_coef is 0
    entropy: float | None  # nats per token
    grad_norm: float | None  # before clipping, mean over updates
    clip_share: float | None  # share of tokens whose ratio was clipped
    mismatch: float | None  # mean |log w|, w = learner_old / engine
    mismatch_out_share: float | None  # share of tokens with weight zero or truncated
    tokens: int  # token positions computed, prompts and padding included
    action_tokens: int
    # First position of a part of the responses → mean exp |log w| there: 1 where engine and learner agree.
    mismatch_factors: Mapping[str, float] = field(default_factory=dict)
    skipped_last: int = 0  # of the skipped ones, those after the last applied update


class JudgeOutError(ProrlError):
    """No judge can be started now. Nothing is lost: a `poll` after `seconds` tries again."""

    def __init__(self, reason: str, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds


class Engine(Protocol):
    """Samples responses from the current policy."""

    @property
    def version(self) -> int:
        """Version of the weights that serve requests now."""

    def submit(self, request: Request) -> None:
        """Queue one prompt with its n samples."""

    def poll(self) -> list[Completion]:
        """Advance, and return what has finished; an empty list means that nothing is in flight."""

    def cancel(self) -> list[Completion]:
        """Stop all that is in flight; what was written of some or all of it, as if cut off there, or to its end."""


class Judge(Protocol):
    """Runs verifiers away from the trainer's process."""

    def submit(self, ticket: int, problem: Problem, text: str) -> None:
        """Queue one response under the caller's ticket."""

    def poll(self, *, wait: bool) -> list[tuple[int, Verdict]]:
        """Verdicts that are ready; with `wait`, block for at least one unless none is outstanding.

        Raises JudgeOutError where there is none to wait for, as no judge can be started now.
        """


class Learner(Protocol):
    """Owns all tensor memory: policy, optimizer, reference."""

    def begin_update(
        self, batch: Batch, hparams: HParams, beat: Callable[[], None] = unheard
    ) -> Callable[[], UpdateStats]:
        """Begin `hparams.updates_per_step` optimizer updates on disjoint mini-batches of `batch`.

        The returned function waits for their end and is called once. Until then nothing else is asked of the learner.
        Each call of `beat` is a sign of life: passes were made.
        """

    def reset_reference(self, source: Path | None, *, clear_optimizer: bool) -> None:
        """Make the policy (`source=None`) or the weights in a folder, of either sort, the reference."""

    def snapshot(self) -> Callable[[Path], None]:
        """Copy policy and optimizer to host memory; the returned function writes them into an existing folder.

        The policy is a transformers checkpoint. It may be written in another thread while the learner goes on.
        """

    def restore(self, folder: Path) -> None:
        """Load what a snapshot wrote."""

    def save_reference(self, folder: Path) -> None:
        """Write the reference weights into an existing folder."""


class Backend(Protocol):
    """Engine, judge and learner of one run."""

    @property
    def engine(self) -> Engine:
        """Samples responses."""

    @property
    def judge(self) -> Judge:
        """Reaches verdicts."""

    @property
    def learner(self) -> Learner:
        """Updates the policy."""

    def sync(self, version: int) -> None:
        """Publish the learner's weights to the engine as `version` and prove by a probe that they agree.

        The proof is given before the engine returns responses of that version.
        """

    def incidents(self) -> list[str]:
        """What failed and was mended since this was last asked: a sentence each, to be journalled."""

    def close(self) -> None:
        """Release processes and devices; nothing may be in flight."""
