"""The seam: what the loop asks of a backend. `local` and `ray` implement these protocols.

An engine and a judge are machines one ticks: submit work, then poll for what has finished. Between steps
nothing is in flight, so a checkpoint is driver state plus tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from prorl.envs.errors import ProrlError
from prorl.envs.types import Problem, Verdict
from prorl.types import Batch, Completion, Knobs, Request, UpdateStats


class Engine(Protocol):
    """Samples responses from the current policy."""

    @property
    def version(self) -> int:
        """Version of the weights that serve requests now."""

    def submit(self, request: Request) -> None:
        """Queue one prompt with its n samples."""

    def poll(self) -> list[Completion]:
        """Advance, and return what has finished; an empty list means that nothing is in flight."""

    def cancel(self) -> None:
        """Drop everything in flight."""


class JudgeOutError(ProrlError):
    """No judge can be started now. Nothing is lost: a `poll` after `seconds` tries again."""

    def __init__(self, reason: str, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds


class Judge(Protocol):
    """Runs verifiers away from the trainer's process."""

    def submit(self, ticket: int, problem: Problem, text: str) -> None:
        """Queue one response under the caller's ticket."""

    def poll(self, *, wait: bool) -> list[tuple[int, Verdict]]:
        """Verdicts that are ready; with `wait`, block for at least one unless none is outstanding.

        Raises:
            JudgeOutError: there is none to wait for, as no judge can be started now.
        """


class Learner(Protocol):
    """Owns all tensor memory: policy, optimizer, reference."""

    def begin_update(self, batch: Batch, knobs: Knobs) -> Callable[[], UpdateStats]:
        """Begin one step: `knobs.updates_per_step` optimizer updates on disjoint mini-batches of `batch`.

        The returned function waits for its end and is called once. Until then nothing else is asked of the learner,
        and engines serve the weights of their last sync.
        """

    def reset_reference(self, source: Path | None, *, clear_optimizer: bool) -> None:
        """Make the policy (`source=None`) or the weights in a checkpoint folder the reference."""

    def snapshot(self) -> Callable[[Path], None]:
        """Copy policy and optimizer to host memory as they are now.

        The returned function writes them into an existing folder, the policy as a transformers checkpoint; it may
        run in another thread while the learner goes on.
        """

    def restore(self, folder: Path) -> None:
        """Load what a snapshot wrote."""

    def save_reference(self, folder: Path) -> None:
        """Write the reference weights into an existing folder."""

    def restore_reference(self, folder: Path) -> None:
        """Load what `save_reference` wrote."""


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
        """Publish the learner's weights to the engine as `version` and prove by a probe that they agree."""

    def incidents(self) -> list[str]:
        """What failed and was mended since this was last asked: a sentence each, to be journalled."""

    def close(self) -> None:
        """Release processes and devices; nothing may be in flight."""


class Renderer(Protocol):
    """Text to tokens and back, by the model's own tokenizer and chat template."""

    def encode(self, prompt: str) -> tuple[int, ...]:
        """A user prompt as the token ids that open the assistant's turn."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Response tokens as text; the end-of-sequence token is dropped, thinking and answer tags stay."""
