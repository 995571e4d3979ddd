"""TensorBoard scalars of a run, by step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from prorl.control.events import Evaluated, Event, ReferenceReset, Stepped
from prorl.control.state import RunState


class Scalars:
    """A watcher that writes what `tensorboard --logdir RUN/tb` shows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def __call__(self, event: Event, state: RunState) -> None:
        """Write the numbers of an event; where they cannot be written they are missed."""
        # Opened late: a resume that is refused must not leave an empty file behind.
        self._writer = self._writer or SummaryWriter(log_dir=str(self._folder))
        try:
            for name, value in _scalars(event):
                if value is not None:  # not measured: no point
                    self._writer.add_scalar(name, value, state.step)
        except OSError:  # a full disk, heard from the writer's thread; the journal has the same numbers
            self._writer = None

    def close(self) -> None:
        """Flush what is buffered."""
        if self._writer is not None:
            self._writer.close()


def _scalars(event: Event) -> Iterator[tuple[str, float | None]]:
    match event:
        case Stepped():
            tally, update = event.tally, event.update
            yield "train/score", tally.score
            yield "train/reward", tally.reward
            yield "train/informative_share", tally.informative_share
            yield "train/length", tally.length
            yield "train/truncated", tally.truncated
            yield "train/unanswered", tally.unanswered
            yield from ((f"score/{domain}", score) for domain, score in tally.domain_scores.items())
            yield from ((f"errors/{domain}", share) for domain, share in tally.domain_errors.items())
            yield "policy/entropy", update.entropy
            yield "policy/kl", update.kl
            yield "policy/grad_norm", update.grad_norm
            yield "policy/clip_share", update.clip_share
            yield "policy/mismatch", update.mismatch
            yield "policy/staleness", event.staleness
            yield "policy/loss", update.loss
            yield "knobs/learning_rate", event.learning_rate
            yield "knobs/length_weight", event.length_weight
            yield "knobs/kl_coef", event.kl_coef
            yield from ((f"seconds/{phase}", seconds) for phase, seconds in event.seconds.items())
            yield "speed/tokens_per_second", tally.sampled_tokens / event.seconds["total"]
        case Evaluated():
            yield "exam/mean", event.score
            yield "exam/pass_at_n", event.pass_at_n
            yield from ((f"exam/{domain}", score) for domain, score in event.domains.items())
        case ReferenceReset():
            yield "policy/reference_reset", 1.0
        case _:
            return
