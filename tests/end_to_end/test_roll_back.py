"""A roll back on the real local backend returns every bit: what follows is the run that never had the trouble."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console as RichConsole

from prorl.config.recipe import load_recipe
from prorl.control.events import Event, Intervened
from prorl.control.state import RunState, fold
from prorl.lab.watch.console import Console
from prorl.learn.optim import GuardedAdamW
from prorl.session import resume_run, start_run
from support import runs
from support.runs import events, finished, of_kind, timeless

OFF = {"mode": "off"}  # the base ends and answers nothing
WATCHED = {"non_finite": {"threshold": 2, "steps": 9}, "truncated_share": OFF, "unanswered_share": OFF}
SETTINGS = {"name": "sick", "steps": 6, "detectors": WATCHED}
BEARABLE = 6e-3  # the learning rate from which on updates are refused, between the recipe's and half of it
SICK_FROM = 3  # completed steps


class Sickbed(Console):
    """Knows how far the run is, and stops it with an error at a chosen event."""

    def __init__(self, fatal: Callable[[Event], bool] = lambda event: False) -> None:
        super().__init__(RichConsole(file=StringIO()))
        self.step = 0
        self._fatal = fatal

    @contextmanager
    def live(self, steps: int) -> Iterator[Callable[[Event, RunState], None]]:
        def watch(event: Event, state: RunState) -> None:
            self.step = state.step
            if self._fatal(event):
                raise ConnectionError("the machine went away")

        yield watch


@pytest.fixture
def sicken(monkeypatch) -> Callable[[Sickbed], Sickbed]:
    """Make updates refuse, as a gradient that is not finite does, while the learning rate is too high."""
    sound = GuardedAdamW.step

    def sicken(bed: Sickbed) -> Sickbed:
        def step(self, loss, hparams):
            if bed.step >= SICK_FROM and hparams.learning_rate > BEARABLE:
                loss = loss * float("nan")
            return sound(self, loss, hparams)

        monkeypatch.setattr(GuardedAdamW, "step", step)
        return bed

    return sicken


def contents(run: Path) -> dict[str, bytes]:
    """All but the state, which knows what happened."""
    return {name: data for name, data in runs.contents(run).items() if not name.endswith("state.json")}


@pytest.fixture(scope="module")
def config(write_recipe, tmp_path_factory):
    return load_recipe(str(write_recipe(tmp_path_factory.mktemp("recipe"), **SETTINGS)))


@pytest.fixture(scope="module")
def spared(write_recipe, tmp_path_factory) -> Path:
    """The run that had the smaller step by its recipe, from the checkpoint on that the sick one returns to."""
    folder = tmp_path_factory.mktemp("spared")
    lr = {"points": [[0, 1e-2], [2, 5e-3]]}
    return finished(write_recipe(folder, **SETTINGS, optimizer={"lr": lr}), folder / "run")


def test_a_roll_back_returns_every_bit(config, sicken, spared, tmp_path):
    state = start_run(config, tmp_path / "run", sicken(Sickbed()))
    assert state.stopped == "done"
    (told,) = of_kind(tmp_path / "run", Intervened)
    assert (told.action, told.from_step, told.step, told.lr_scale) == ("roll_back", 5, 2, 0.5)
    assert contents(tmp_path / "run") == contents(spared)
    quieted = [event for event in timeless(tmp_path / "run") if event.kind not in ("intervened", "started")]
    assert quieted == [event for event in timeless(spared) if event.kind != "started"]
    assert fold(events(tmp_path / "run")) == state


@pytest.mark.parametrize("kind", ["intervened", "reference_reset"])
def test_a_kill_after_a_roll_back_changes_no_bit(config, sicken, spared, tmp_path, kind):
    rolled = False

    def fatal(event: Event) -> bool:
        nonlocal rolled
        rolled = rolled or event.kind == "intervened"
        return rolled and event.kind == kind

    with pytest.raises(ConnectionError):
        start_run(config, tmp_path / "run", sicken(Sickbed(fatal)))
    assert resume_run(tmp_path / "run", sicken(Sickbed())).stopped == "done"
    assert contents(tmp_path / "run") == contents(spared)
    assert len(of_kind(tmp_path / "run", Intervened)) == 1
