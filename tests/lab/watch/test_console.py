"""What the user sees, on a terminal and without one."""

from io import StringIO

import pytest
from rich.console import Console as RichConsole

from prorl.control.events import Started
from prorl.control.state import RunState, evolve
from prorl.lab.watch.console import Console, LivePanel
from prorl.lab.watch.lines import line
from support.events import blind, evaluated, one_of_each, reset, stepped


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


def rendered(events) -> str:
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
    assert written(plain) == [line(event, 100) for event in one_of_each()]


def test_on_a_terminal_every_event_but_a_step_leaves_a_line(terminal):
    follow(terminal, one_of_each())
    text = terminal.rich.export_text()
    for event in one_of_each():
        assert (line(event, 100)[:60] in text) is (event.kind != "stepped")


def test_the_panel_shows_a_dash_for_what_was_not_measured():
    shown = rendered([blind(1)])
    assert "reward –" in shown
    assert "entropy –" in shown
    assert "informative –" in shown


def test_the_panel_shows_the_last_step_and_the_progress():
    text = rendered([stepped(1), stepped(42)])
    assert "42/100" in text
    for part in ("reward 0.400", "entropy 0.600", "KL 0.0200 to none", "informative 44%", "480 tokens/s"):
        assert part in text


def test_the_panel_compares_the_first_exam_with_the_last_one():
    text = rendered([evaluated(0, 0.11), evaluated(50, 0.22), stepped(51), evaluated(100, 0.33)])
    assert "exam, step 0" in text
    assert "exam, step 50 " not in text
    assert "exam, step 100" in text
    assert "11%" in text
    assert "33%" in text


def test_the_panel_names_the_reference_and_the_length_penalty():
    start = Started(config_hash="c", reference_hash="h")
    assert "to ref_001" in rendered([start, stepped(1), reset(1), stepped(2)])
    assert "length penalty off" in rendered([stepped(1)])
    assert "length penalty on (0.1)" in rendered([stepped(1, length_weight=0.1)])


def test_a_domain_that_was_not_drawn_stays_empty_and_one_not_examined_too():
    text = rendered([stepped(1), evaluated(1, 0.5, domains={"logic": 0.5})])
    assert "logic" in text
    assert "code" in text


@pytest.mark.parametrize("events", [[], [evaluated(0, 0.5)]], ids=["nothing", "an exam"])
def test_the_panel_can_be_drawn_before_the_first_step(events):
    assert "0/100" in rendered(events)


def test_square_brackets_are_text(plain):
    plain.say("[bold]x[/bold] [/]")
    assert written(plain) == ["[bold]x[/bold] [/]"]


def test_progress_without_a_terminal_is_a_line_every_tenth_and_the_last(plain):
    with plain.progress("warming up") as advance:
        for done in range(1, 101):
            advance(done, 100, "loss 1.0")
    assert len(written(plain)) == 11
    assert written(plain)[0] == "warming up: 1/100 loss 1.0"
    assert written(plain)[-1] == "warming up: 100/100 loss 1.0"


def test_progress_on_a_terminal_shows_title_count_and_note(terminal):
    with terminal.progress("warming up") as advance:
        advance(3, 7, "loss 1.0")
    text = terminal.rich.export_text()
    assert "warming up" in text
    assert "3/7" in text
    assert "loss 1.0" in text
