"""What the user sees: on a terminal and without one, of one run and of all; and in TensorBoard."""

from io import StringIO
from typing import get_args

import pytest
from rich.console import Console as RichConsole
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from prorl.config.schema import Action
from prorl.control.events import Resumed, StageEntered, Started, Stopped
from prorl.control.state import RunState, evolve
from prorl.lab.tables import text
from prorl.lab.watch.console import Console, LivePanel, overview
from prorl.lab.watch.scalars import Scalars
from prorl.run.history import RunHistory, describe, read_history
from support.events import (
    blind,
    command,
    evaluated,
    intervened,
    one_of_each,
    reset,
    rollout_stats,
    stepped,
    update,
)
from support.journals import run_with


@pytest.fixture
def plain() -> Console:
    return Console(RichConsole(file=StringIO(), force_terminal=False, highlight=False, soft_wrap=True))


@pytest.fixture
def terminal() -> Console:
    return Console(RichConsole(file=StringIO(), force_terminal=True, record=True, width=120))


def written(console: Console) -> list[str]:
    return console.rich.file.getvalue().splitlines()


def follow(console: Console, events) -> None:
    state = RunState()
    with console.live(100) as watch:
        for event in events:
            state = evolve(state, event)
            watch(event, state)


def rendered(*events) -> str:
    """The panel of a run after some events, as text."""
    panel, state = LivePanel(100), RunState()
    for event in events:
        state = evolve(state, event)
        panel.update(event, state)
    console = RichConsole(file=StringIO(), force_terminal=True, record=True, width=120)
    console.print(panel)
    return console.export_text()


def test_without_a_terminal_a_run_is_its_lines(plain):
    follow(plain, one_of_each())
    assert written(plain) == [describe(event, 100) for event in one_of_each()]


def test_on_a_terminal_every_event_but_a_step_leaves_a_line(terminal):
    follow(terminal, one_of_each())
    text = terminal.rich.export_text()
    for event in one_of_each():
        assert (describe(event, 100)[:60] in text) is (event.kind != "stepped")


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([], "0/100"),
        ([evaluated(0, 0.5)], "0/100"),
        ([blind(1)], "reward –|entropy –|informative –"),
        (
            [stepped(1), stepped(42)],
            "42/100|reward 0.400|entropy 0.600|KL 0.0200|reference none|informative 44%|tokens/s 480",
        ),
        ([Started(config_hash="c", reference_hash="h"), stepped(1), reset(1)], "reference ref_001"),
        ([stepped(1)], "length penalty 0"),
        ([stepped(1, length_weight=0.1)], "length penalty 0.1"),
        ([stepped(1), evaluated(1, 0.5, domains={"logic": 0.5})], "logic|code"),
    ],
)
def test_the_panel_shows_the_last_step_and_the_progress(events, told):
    shown = rendered(*events)
    assert [part for part in told.split("|") if part not in shown] == []


def test_the_panel_compares_the_first_validation_with_the_last_one():
    shown = rendered(evaluated(0, 0.11), evaluated(50, 0.22), stepped(51), evaluated(100, 0.33))
    assert all(part in shown for part in ("validation, step 0", "validation, step 100", "11%", "33%"))
    assert "validation, step 50 " not in shown


def test_square_brackets_are_text(plain):
    plain.say("[bold]x[/bold] [/]")
    assert written(plain) == ["[bold]x[/bold] [/]"]


def test_names_with_square_brackets_are_text_in_all_that_moves(terminal):
    odd = "a[/b] [red]"
    assert odd in rendered(evaluated(0, 0.5, domains={odd: 0.5}))
    with terminal.progress(odd) as progress:
        progress(1, 2, f"note {odd}")
    with terminal.counting("preparing") as counted:
        counted(odd, 3)
    shown = terminal.rich.export_text()
    assert f"{odd} " in shown
    assert f"note {odd}" in shown
    assert f"preparing {odd}: 3" in shown


def test_progress_without_a_terminal_is_a_line_every_tenth_and_the_last(plain):
    with plain.progress("warming up") as advance:
        for done in range(1, 101):
            advance(done, 100, "loss 1.0")
    assert len(written(plain)) == 11
    assert written(plain)[0] == "warming up: 1/100 loss 1.0"
    assert written(plain)[-1] == "warming up: 100/100 loss 1.0"


def test_progress_on_a_terminal_shows_title_count_and_note_once_there_is_some(terminal):
    with terminal.progress("warming up"):
        pass
    assert "warming up" not in terminal.rich.export_text(clear=False)
    with terminal.progress("warming up") as advance:
        advance(3, 7, "loss 1.0")
    text = terminal.rich.export_text()
    assert all(part in text for part in ("warming up", "3/7", "loss 1.0"))


SPIKE = "the KL to the reference is 9 times what is usual (threshold 8, 2 of 3)"


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Started(config_hash="c0ffee", reference_hash="h"), "started: recipe c0ffee, a reference is held"),
        (
            Started(config_hash="c0ffee", reference_hash=None),
            "started: recipe c0ffee, no reference: the run pays no KL penalty",
        ),
        (Resumed(step=7, config_hash="c0ffee"), "resumed from the checkpoint of step 7"),
        (
            reset(9, reason="kl_ceiling", target="best", source_step=5, optimizer="clear"),
            "reference reset at step 9 (kl_ceiling): ref_000 → ref_001, the policy of step 5, optimizer clear",
        ),
        (
            evaluated(50, 0.25, domains={"math": 0.4, "code": 0.1}),
            "validation at step 50: pass@1 25.0% (math 40% code 10%), pass@n 90.0%, without answer 5.0%, 12 s",
        ),
        (StageEntered(step=3, index=0), "stage 1 entered at step 3"),
        (Stopped(step=3, reason="done"), "stopped after step 3: done"),
        (intervened(step=7), f"KL_SPIKE at step 7: {SPIKE}; warned only"),
        (
            intervened(step=50, action="roll_back", from_step=63, lr_scale=0.5, lr_until=113),
            f"KL_SPIKE at step 63: {SPIKE}; rolled back from step 63 to the checkpoint of step 50, "
            "learning rate × 0.5 until step 113",
        ),
        (
            intervened(
                detector="command", action="roll_back", reason="told to roll back", numbers={}, from_step=9
            ),
            "COMMAND at step 9: told to roll back; rolled back from step 9 to the checkpoint of step 1",
        ),
        (intervened(step=7, action="validation"), f"KL_SPIKE at step 7: {SPIKE}; the policy is validated"),
        (command("set", settings={"kl.coef": 5e-4}), "command at step 1: set kl.coef=0.0005"),
        (command("note", text="new verifier"), "command at step 1: note “new verifier”"),
        (command("puase", refused="no command"), "command refused at step 1: puase: no command"),
        (
            stepped(3),
            "step 3/100 · training score 0.500 · reward 0.400 · entropy 0.600 · KL 0.0200 · gradient norm 1.50 · "
            "response length 100.0 · informative 44% · tokens/s 480 · easy 3, hard 2 · "
            "10.00 s (generate 60%, learn 30%, rest 10.0%) · 1 groups lost to verifier errors",
        ),
    ],
)
def test_a_line_says_what_happened(event, text):
    assert describe(event, 100) == text


@pytest.mark.parametrize("action", get_args(Action))
def test_whatever_a_detector_does_has_a_line(action):
    assert describe(intervened(step=7, action=action)).startswith(f"KL_SPIKE at step 7: {SPIKE}; ")


def test_what_a_step_did_not_measure_is_a_dash():
    names = ("training score", "reward", "entropy", "KL", "gradient norm", "response length", "informative")
    assert describe(blind(3), 100).startswith(f"step 3/100 · {' · '.join(f'{name} –' for name in names)}")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"length_weight": 0.1}, "length penalty 0.1"),
        ({"update": update(skipped=2)}, "2 UPDATES NOT FINITE, SKIPPED"),
        ({"rollout_stats": rollout_stats(errors=5)}, "5 groups lost to verifier errors"),
    ],
)
def test_a_step_tells_of_what_is_not_usual_only_when_it_happens(changes, told):
    usual = {"rollout_stats": rollout_stats(errors=0)}
    assert told in describe(stepped(**(usual | changes)), 100)
    assert told not in describe(stepped(**usual), 100)


def rows(run):
    return [[text(cell) for cell in row] for table in overview([run]) for row in table.rows]


def test_a_row_says_what_there_is_to_say(tmp_path):
    happened = [stepped(120, seconds={"total": 2.0}), evaluated(100, 0.305), reset(5)]
    row, (name, said) = rows(read_history(run_with(tmp_path / "nano", happened, steps=320)))
    assert row == ["nano", "120", "320", "1,800", "0 s ago", "30.5%", "100", "crashed"]
    assert (name, said[:38]) == ("nano", "reference reset at step 5 (schedule): ")
    assert rows(RunHistory(tmp_path / "new")) == [["new", "0", "0", *"––––", "not begun"]]


def points(folder, happened) -> dict[str, list[int]]:
    """The steps of every scalar, after some events each with the step that it leads to."""
    scalars = Scalars(folder)
    for event, step in happened:
        scalars(event, RunState(step=step))
    scalars.close()
    read = EventAccumulator(str(folder))
    read.Reload()
    return {name: [point.step for point in read.Scalars(name)] for name in read.Tags()["scalars"]}


def test_what_was_not_measured_is_no_point(tmp_path):
    steps = points(tmp_path, [(stepped(1), 1), (blind(2), 2), (stepped(3), 3)])
    policy = (f"policy/{name}" for name in ("entropy", "kl", "grad_norm", "loss"))
    for name in (*policy, "learning/score", "sampling/length", "sampling/informative_share"):
        assert steps[name] == [1, 3], name
    assert steps["schedule/learning_rate"] == [1, 2, 3]


def test_what_a_roll_back_undid_is_no_point(tmp_path):
    steps, back = [(stepped(step), step) for step in (1, 2, 3)], intervened(action="roll_back")
    assert points(tmp_path, [*steps, (back, 1), steps[1]])["learning/score"] == [1, 2]
