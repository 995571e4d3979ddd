"""TensorBoard scalars of a run, by step."""

from contextlib import suppress
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from prorl.control.events import Event, Intervened, ReferenceReset, Stepped, Validated
from prorl.control.metrics import metrics_of
from prorl.control.state import RunState


class Scalars:
    """A watcher that writes what `tensorboard --logdir RUN/tb` shows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def __call__(self, event: Event, state: RunState) -> None:
        """Write the numbers of an event; where they cannot be written they are missed."""
        try:
            if isinstance(event, Intervened) and event.action == "roll_back":
                self.close()
                self._writer = None
            # Opened late: a resume that is refused must not leave an empty file behind. What was undone is not shown.
            self._writer = self._writer or SummaryWriter(str(self._folder), purge_step=state.step + 1)
            if isinstance(event, ReferenceReset):
                self._writer.add_scalar("policy/reference_reset", 1.0, state.step)
            elif isinstance(event, (Stepped, Validated)):
                for name, value in (pair for metric in metrics_of(event) for pair in metric.values(event)):
                    if value is not None:  # not measured: no point
                        self._writer.add_scalar(name, value, state.step)
        except OSError:  # a full disk, heard from the writer's thread; the journal has the same numbers
            self._writer = None

    def close(self) -> None:
        """Flush what is buffered."""
        with suppress(OSError):
            if self._writer is not None:
                self._writer.close()
