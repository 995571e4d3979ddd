"""Operators on whole runs of the fake backend: obeyed at a boundary, exactly once, whatever happens meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prorl import loop
from prorl.cli.main import app
from prorl.config.recipe import to_json
from prorl.config.schema import SaveConfig
from prorl.control.decide import TOLD_TO_STOP
from prorl.control.events import Ordered, ReferenceReset, Resumed, Stepped, Validated
from prorl.control.state import fold, from_json
from prorl.envs.files import encode_json, write_atomic
from prorl.run.inbox import INBOX, new_command, send
from prorl.run.store import RunStore
from prorl.steering import OrderError, UnconfirmedError, next_order, parse_order, tell
from support.defaults import some_resets
from support.fake_runs import CONFIG, PLAN, events, nameless, of, run_in, timeless

QUIET = replace(PLAN, reset=some_resets())


def saved(folder: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (folder / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert run_in(folder, QUIET).stopped == "done"
    return folder


# -- each order


def test_a_hparam_holds_from_the_next_step_on(tmp_path):
    run_in(tmp_path / "run", QUIET, orders={3: "kl.coef=0.5 length_penalty.weight=0", 8: "kl.coef=plan"})
    steps = of(tmp_path / "run", Stepped)
    assert [step.kl_coef for step in steps] == [1e-3] * 3 + [0.5] * 5 + [1e-3] * 4
    assert [step.length_weight for step in steps[3:]] == [0] * 9
    assert [order.step for order in of(tmp_path / "run", Ordered)] == [3, 8]


def test_the_data_mixture_and_the_size_of_a_step_follow_orders(tmp_path):
    run_in(tmp_path / "run", QUIET, orders={3: "sampling.samples_per_prompt=8"})
    sizes = [
        s.rollout_stats.rollouts // (s.rollout_stats.draws + s.rollout_stats.surplus)
        for s in of(tmp_path / "run", Stepped)
    ]
    assert sizes == [4] * 3 + [8] * 9


def test_an_validation_a_reset_and_a_checkpoint_on_demand(tmp_path):
    save = SaveConfig(keep_last=9)
    run_in(tmp_path / "run", QUIET, orders={2: "validation", 5: "reset-reference", 7: "save"}, save=save)
    assert [validation.step for validation in of(tmp_path / "run", Validated)] == [0, 2, 4, 8, 12]
    (reset,) = of(tmp_path / "run", ReferenceReset)
    assert (reset.step, reset.reason) == (5, "order")
    assert 7 in saved(tmp_path / "run")
    assert 5 not in saved(tmp_path / "run")


def test_a_note_is_journalled_and_changes_nothing_else(alone, tmp_path):
    run_in(tmp_path / "run", QUIET, orders={3: "note the verifier was repaired"})
    (note,) = of(tmp_path / "run", Ordered)
    assert (note.step, note.text) == (3, "the verifier was repaired")
    told = [event for event in timeless(events(tmp_path / "run")) if event.kind != "ordered"]
    assert told == timeless(events(alone))


def test_a_stop_ends_the_run_saved_and_a_resumed_run_goes_on(alone, tmp_path):
    stopped = run_in(tmp_path / "run", QUIET, orders={5: "stop"})
    assert (stopped.stopped, stopped.step) == (TOLD_TO_STOP, 5)
    assert saved(tmp_path / "run")[-1] == 5
    assert run_in(tmp_path / "run", QUIET).stopped == "done"
    told = [event for event in timeless(events(tmp_path / "run")) if event.kind != "ordered"]
    assert told == timeless(events(alone))


def test_a_paused_run_makes_no_step_is_saved_says_why_and_obeys_until_it_goes_on(tmp_path):
    folder = tmp_path / "run"
    script = ["note waiting", "validation", "kl.coef=0.5", "resume"]
    said: list[str] = []

    def wait(reason: str, seconds: float) -> None:
        said.append(reason)
        assert saved(folder)[-1] == 5
        send(folder / INBOX, parse_order(script.pop(0).split()))

    assert run_in(folder, QUIET, orders={5: "pause"}, wait=wait).stopped == "done"
    assert said == ["paused at step 5: told to pause", "", "", ""]
    assert {order.step for order in of(folder, Ordered)} == {5}
    assert 5 in [validation.step for validation in of(folder, Validated)]
    assert [step.kl_coef for step in of(folder, Stepped)] == [1e-3] * 5 + [0.5] * 7


def test_pausing_changes_nothing(alone, tmp_path):
    folder = tmp_path / "run"
    run_in(
        folder,
        QUIET,
        orders={5: "pause"},
        wait=lambda reason, seconds: send(folder / INBOX, new_command("resume")),
    )
    told = [event for event in timeless(events(folder)) if event.kind != "ordered"]
    assert told == timeless(events(alone))


def test_a_paused_run_that_is_stopped_is_still_paused_when_it_is_taken_up_again(tmp_path):
    folder = tmp_path / "run"
    waits: list[str] = []
    stopped = run_in(
        folder, QUIET, orders={5: "pause"}, wait=lambda r, s: waits.append(r), until=lambda s: len(waits) == 3
    )
    assert (stopped.stopped, stopped.step, stopped.paused) == ("interrupted", 5, "told to pause")
    resumed = run_in(folder, QUIET, wait=lambda r, s: send(folder / INBOX, new_command("stop")))
    assert (resumed.stopped, resumed.step) == (TOLD_TO_STOP, 5)
    assert run_in(folder, QUIET).stopped == "done"  # a told stop ends the pause


# -- nonsense


def test_nonsense_is_refused_in_the_journal_and_leaves_the_run_as_it_was(alone, tmp_path):
    folder = tmp_path / "run"
    nonsense = [
        b"\x00\xff rubbish\n",
        b'{"id": "ab", "order": "rm -rf"}\n',
        b'{"id": "ac", "order": "set", "settings": {"kl.coef": -1}}\n',
        b'{"id": "ad", "order": "set", "settings": {"kl.coef": 1e999, "clip.high": "NaN"}}\n',
        b'{"id": "ae", "order": "set", "settings": {"sampling.response_limit": 0}}\n',
        b'{"id": "af", "order": "note", "text": "NaN"}\n',
        b'{"id": "torn',
    ]

    def watch(event, state) -> None:
        if isinstance(event, Stepped) and event.step == 3:
            (folder / INBOX).write_bytes(b"".join(nonsense))

    assert run_in(folder, QUIET, watch=watch).stopped == "done"
    refused = of(folder, Ordered)
    assert [bool(order.refused) for order in refused] == [True] * 5 + [False]
    told = [event for event in timeless(events(folder)) if event.kind != "ordered"]
    assert told == timeless(events(alone))
    checkpoint = RunStore.open(folder).latest_checkpoint()
    assert from_json(checkpoint.state) == fold(events(folder))


# -- exactly once


class Killed(BaseException):
    """As a SIGKILL: nothing that could clean up hears of it."""


ORDER = "kl.coef=0.5"


@pytest.fixture(scope="module")
def obeyed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("obeyed") / "run"
    run_in(folder, QUIET, orders={3: ORDER})
    return folder


def test_a_kill_between_reading_an_order_and_journalling_it_loses_nothing(tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def die(config, inbox, state, **context):
        if next_order(config, inbox, state, **context) is not None:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(loop, "next_order", die)
        with pytest.raises(Killed):
            run_in(folder, QUIET, orders={3: ORDER})
    run_in(folder, QUIET)
    (order,) = of(folder, Ordered)  # at the first boundary there is now, which is that of the checkpoint
    assert order.step == 0
    assert [step.kl_coef for step in of(folder, Stepped)] == [0.5] * 12


@pytest.mark.parametrize("kill", ["ordered", "stepped"])
def test_a_kill_after_an_order_was_journalled_obeys_it_once(obeyed, tmp_path, kill):
    """Where a checkpoint lies between order and kill it is in the journal; elsewhere it is still in the inbox."""
    folder = tmp_path / "run"
    send_at_3 = {3: ORDER}

    def watch(event, state) -> None:
        if isinstance(event, Stepped) and event.step in send_at_3:
            send(folder / INBOX, parse_order(send_at_3.pop(event.step).split()))
        if event.kind == kill and (kill == "ordered" or event.step == 5):
            raise Killed

    with pytest.raises(Killed):
        run_in(folder, QUIET, watch=watch)
    run_in(folder, QUIET)
    (order,) = of(folder, Ordered)
    (resumed,) = of(folder, Resumed)
    assert order.step == (3 if kill == "stepped" else resumed.step)
    first = order.step
    assert [step.kl_coef for step in of(folder, Stepped)] == [1e-3] * first + [0.5] * (12 - first)
    if kill == "stepped":
        assert nameless(folder) == nameless(obeyed)


# -- from another process


@pytest.fixture
def told(tmp_path) -> Path:
    """A run that was stopped in the middle, with the recipe that a sender checks orders against."""
    folder = tmp_path / "run"
    run_in(folder, QUIET, orders={5: "stop"})
    write_atomic(folder / "config.json", encode_json(to_json(CONFIG)))
    return folder


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["kl.ceof=1"], "did you mean 'kl.coef'?"),
        (["sampling.samples_per_prompt=60000"], "rollouts in every step"),
    ],
)
def test_a_sender_refuses_nonsense_before_it_reaches_the_run(told, words, refused):
    before = (told / INBOX).read_bytes()
    with pytest.raises(OrderError) as error:
        tell(told, words)
    assert refused in str(error.value)
    assert (told / INBOX).read_bytes() == before


def test_a_sender_knows_the_orders_that_wait(told):
    tell(told, ["clip.low=0.1"])
    tell(told, ["clip.high=0.15"])
    with pytest.raises(OrderError, match=r"clip.high \(0.15\) is below clip.low \(0.3\)"):
        tell(told, ["clip.low=0.3"])
    run_in(told, QUIET)
    assert [order.refused for order in of(told, Ordered)] == [None] * 3


@pytest.mark.parametrize(
    ("yes", "asked"), [([], "more than 10 times: add --yes to give this order"), (["--yes"], "")]
)
def test_a_script_says_yes_before_a_hparam_moves_far(told, yes, asked):
    before = (told / INBOX).read_bytes()
    done = CliRunner().invoke(app, ["tell", str(told), "optimizer.lr=5", *yes])
    assert (done.exit_code, asked in done.output) == (bool(asked), True)
    assert ((told / INBOX).read_bytes() == before) == bool(asked)


@pytest.mark.parametrize("answer", [True, False])
def test_who_sits_at_a_terminal_is_asked_before_a_hparam_moves_far(told, answer):
    asked = []

    def confirm(move: str) -> bool:
        asked.append(move)
        return answer

    if answer:
        assert tell(told, ["optimizer.lr=5"], confirm=confirm).settings == {"optimizer.lr": 5}
    else:
        with pytest.raises(UnconfirmedError):
            tell(told, ["optimizer.lr=5"], confirm=confirm)
    assert asked == ["optimizer.lr moves from 1e-06 to 5"]
    tell(told, ["optimizer.lr=2e-6"] if not answer else ["optimizer.lr=4"], confirm=confirm)
    assert len(asked) == 1
