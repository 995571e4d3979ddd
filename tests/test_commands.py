"""What an operator may command, what is refused in one sentence, and commands on whole runs of the fake backend."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prorl import loop
from prorl.cli.main import app
from prorl.commands import (
    INBOX,
    UNDONE,
    WORDS,
    Command,
    CommandError,
    UnconfirmedError,
    far_moves,
    parse_command,
    send,
    take_in,
    take_in_next,
    tell,
)
from prorl.config.recipe import to_json
from prorl.config.schema import HPARAMS, SaveConfig
from prorl.control.decide import TOLD_TO_STOP
from prorl.control.events import CommandGiven, ReferenceReset, Resumed, Stepped, Validated
from prorl.control.plan import make_plan
from prorl.control.state import Reference, RunState, evolve, fold, from_json
from prorl.envs.files import encode_json, write_atomic
from prorl.run.store import RunStore
from support.defaults import planned, some_resets
from support.fake_runs import CONFIG, PLAN, events, of, run_in, timeless
from support.recipes import recipe

BASE = Reference(name="ref_000", hash="h")
STATE = RunState(step=7, reference=BASE)


def judged(command: str = "set", *, state=STATE, config=None, context=None, **settings) -> CommandGiven:
    """Settings are recipe keys with the dot written as two underscores."""
    keys = {key.replace("__", "."): value for key, value in settings.items()}
    command = Command(name=command, settings=keys, end=99)
    return take_in(config or recipe(), state, command, context=context)


@pytest.mark.parametrize(
    ("words", "command", "settings", "text"),
    [
        (["pause"], "pause", {}, ""),
        (["reset-reference"], "reset-reference", {}, ""),
        (["note", "new", "verifier"], "note", {}, "new verifier"),
        (["note", "a=b"], "note", {}, "a=b"),
        (["kl.coef=5e-4"], "set", {"kl.coef": 5e-4}, ""),
        (["clip.high=0.3", "clip.dual=null"], "set", {"clip.high": 0.3, "clip.dual": None}, ""),
        (["kl.coef=plan"], "set", {"kl.coef": "plan"}, ""),
        (["advantage.level=group"], "set", {"advantage.level": "group"}, ""),
        (["roll-back"], "roll-back", {}, ""),
        (["roll-back=50"], "roll-back", {"step": 50}, ""),
    ],
)
def test_what_can_be_typed(words, command, settings, text):
    parsed = parse_command(words)
    assert (parsed.name, dict(parsed.settings), parsed.text) == (command, settings, text)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "say what to tell"),
        (["puase"], "'puase' is no command: did you mean 'pause'?"),
        (["xyzzy"], "'xyzzy' is no command: there are pause, resume"),
        (["pause", "now"], "'now' is no command"),
        (["kl.coef", "5e-4"], "'kl.coef' is no command: did you mean 'kl.coef=VALUE'?"),
        (["clip.hgh"], "did you mean 'clip.high=VALUE'?"),
        (["note"], "a note needs its text"),
        (["=3"], "'=3' names no hyperparameter"),
        (["[=3"], "'[=3' names no hyperparameter"),
        (["clip.dual=???"], "Missing mandatory value"),
        (["clip.dual=" + "[" * 3000], "cannot be read"),
        (["kl.coef=${oc.env:HOME}"], "a command says the value itself"),
        (["kl.coef=1", "pause"], "no command"),
        (["kl.coef={ramp: linear}"], "kl.coef takes one value"),
        (["kl.coef=[1,2]"], "kl.coef takes one value"),
        (["kl.coef={"], "cannot be read"),
        (["roll-back=5", "pause"], "no command"),
        (["roll-back=[1]"], "takes one value"),
    ],
)
def test_what_cannot_be_typed(words, told):
    with pytest.raises(CommandError) as error:
        parse_command(words)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("to", "told"),
    [
        (0, None),
        (6, None),
        *(
            (odd, "names no step before this one: say one from 0 to 6")
            for odd in (7, -1, 2.5, "x", None, True)
        ),
    ],
)
def test_a_roll_back_goes_to_a_step_before_this_one(to, told):
    refused = judged("roll-back", step=to).refused
    assert refused is None if told is None else told in refused


@pytest.mark.parametrize("command", [*WORDS, "note", "set"])
def test_after_a_roll_back_what_it_undid_is_refused_and_the_rest_is_obeyed_again(command):
    settings = {"kl__coef": 0.1} if command == "set" else {}
    after = replace(STATE, obeyed=99)
    assert (judged(command, state=after, **settings).refused is not None) == (command in UNDONE)
    assert judged(command, state=replace(after, obeyed=98), **settings).refused is None
    if command == "roll-back":
        assert judged(command, state=after).refused == "it was carried out"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"optimizer.lr": 1e-3}, ""),
        ({"optimizer.lr": 1.1e-3}, "optimizer.lr moves from 0.0001 to 0.0011"),
        ({"optimizer.lr": 9e-6}, "optimizer.lr moves from 0.0001 to 9e-06"),
        ({"optimizer.lr": 0.0}, ""),  # off
        ({"length_penalty.weight": 9.0}, ""),  # on, and the recipe has no other value
        (
            {"optimizer.lr": 5, "kl.coef": 0.5},
            "kl.coef moves from 0.001 to 0.5, optimizer.lr moves from 0.0001 to 5",
        ),
        ({"kl.estimator": "k3"}, ""),
    ],
)
def test_a_hparam_moves_far_by_more_than_ten_times_up_or_down(settings, told):
    config = recipe(optimizer={"lr": 1e-4}, kl={"coef": 1e-3}, length_penalty={"weight": 0})
    event = judged(config=config, **{key.replace(".", "__"): value for key, value in settings.items()})
    assert event.refused is None
    assert far_moves(make_plan(config), STATE, evolve(STATE, event)) == told


def test_a_hparam_that_is_still_at_zero_is_compared_with_where_its_ramp_ends():
    config = recipe(optimizer={"lr": {"ramp": "linear", "start": 0, "end": 1e-4, "steps": 20}})
    plan, state = make_plan(config), RunState(reference=BASE)
    told = far_moves(plan, state, evolve(state, judged(config=config, state=state, optimizer__lr=5)))
    assert told == "optimizer.lr moves from 0.0001 to 5"
    assert far_moves(plan, state, state) == ""


def test_what_is_held_stays_held_until_it_is_given_back():
    state = evolve(STATE, judged(kl__coef=1, clip__high=0.3))
    assert state.overrides == {"kl_coef": 1.0, "clip_high": 0.3}
    assert isinstance(state.overrides["kl_coef"], float)  # the value as it was checked
    state = evolve(state, judged(state=state, kl__coef="plan", sampling__top_p=0.9))
    assert state.overrides == {"clip_high": 0.3, "top_p": 0.9}


def test_every_hparam_can_be_given_back():
    assert judged(**{key.replace(".", "__"): "plan" for key in HPARAMS}).overrides == {}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "names at least one"),
        ({"kl__ceof": 1}, "'kl.ceof' cannot change during a run: did you mean 'kl.coef'?"),
        ({"save__every": 1}, "'save.every' cannot change during a run"),
        ({"kl": 1}, "'kl' cannot change during a run"),
        ({"kl__coef": -1}, "kl.coef"),
        ({"kl__coef": None}, "kl.coef"),
        ({"sampling__samples_per_prompt": 1}, "samples_per_prompt must be at least 2"),
        ({"clip__high": 0.1}, "clip.low (0.2) is above clip.high (0.1)"),
        ({"optimizer__updates_per_step": 5}, "does not divide"),
        ({"sampling__prompts_per_step": 1e12}, "sampling.prompts_per_step: Input should be a valid integer"),
        ({"sampling__prompts_per_step": 10**12}, "less than or equal to 65536, not 1000000000000"),
        ({"sampling__samples_per_prompt": 60_000}, "1,920,000 rollouts in every step"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(settings, told):
    event = judged(**settings)
    assert told in event.refused
    assert "\n" not in event.refused
    assert evolve(STATE, event).overrides == {}
    assert evolve(STATE, event).inbox == 99


@pytest.mark.parametrize("command", ["", "sudo", "unreadable", "Pause", "set\n"])
def test_words_that_are_no_commands_are_refused(command):
    assert "no command" in judged(command).refused


def test_a_setting_is_judged_together_with_stages_entered_and_to_come():
    config = recipe(stages=[{"at": 5, "set": {"clip.low": 0.1}}, {"at": 9, "set": {"clip.low": 0.25}}])
    entered = RunState(step=7, stage=0, reference=BASE)
    assert judged(config=config, state=entered, clip__high=0.26).refused is None
    assert judged(config=config, state=entered, clip__high=0.15).refused == (
        "with this command, in the stage of step 9: clip.low (0.25) is above clip.high (0.15)"
    )
    past = RunState(step=10, stage=1, reference=BASE)
    assert judged(config=config, state=past, clip__high=0.3).refused is None


def test_commands_that_this_run_cannot_obey_are_refused():
    bare = RunState(step=7)
    assert "holds no reference" in judged("reset-reference", state=bare).refused
    for word in ("reset-reference", "roll-back"):
        assert "no step has been made yet" in judged(word, state=RunState(reference=BASE)).refused
    assert "has no validations" in judged("validation", config=recipe(validation={"every": 0})).refused
    off = recipe(kl={"coef": 0}, reset={"every": 0})
    assert "no reference to pay one to" in judged(config=off, state=bare, kl__coef=0.1).refused
    assert "context of 4096 tokens" in judged(context=4096, sampling__response_limit=4096).refused
    assert judged(context=4096, sampling__response_limit=4095).refused is None


# -- on whole runs: obeyed between two steps, exactly once, whatever happens meanwhile

QUIET = planned(PLAN, reset=some_resets())


def undisturbed(folder: Path) -> list:
    """What happened but for the commands, and when."""
    return [event for event in timeless(events(folder)) if event.kind != "command_given"]


def saved(folder: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (folder / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert run_in(folder, QUIET).stopped == "done"
    return folder


def test_a_hparam_holds_from_the_next_step_on(tmp_path):
    first = "kl.coef=0.5 length_penalty.weight=0 sampling.samples_per_prompt=8"
    run_in(tmp_path / "run", QUIET, commands={3: first, 8: "kl.coef=plan"})
    steps = of(tmp_path / "run", Stepped)
    assert [step.kl_coef for step in steps] == [1e-3] * 3 + [0.5] * 5 + [1e-3] * 4
    assert [step.length_weight for step in steps[3:]] == [0] * 9
    stats = [step.rollout_stats for step in steps]
    assert [one.rollouts // (one.draws + one.surplus) for one in stats] == [4] * 3 + [8] * 9
    assert [command.step for command in of(tmp_path / "run", CommandGiven)] == [3, 8]


def test_an_validation_a_reset_and_a_checkpoint_on_demand(tmp_path):
    save = SaveConfig(keep_last=9)
    run_in(tmp_path / "run", QUIET, commands={2: "validation", 5: "reset-reference", 7: "save"}, save=save)
    assert [validation.step for validation in of(tmp_path / "run", Validated)] == [0, 2, 4, 8, 12]
    (reset,) = of(tmp_path / "run", ReferenceReset)
    assert (reset.step, reset.reason) == (5, "command")
    assert 7 in saved(tmp_path / "run")
    assert 5 not in saved(tmp_path / "run")


def test_a_note_is_journalled_and_changes_nothing_else(alone, tmp_path):
    run_in(tmp_path / "run", QUIET, commands={3: "note the verifier was repaired"})
    (note,) = of(tmp_path / "run", CommandGiven)
    assert (note.step, note.text) == (3, "the verifier was repaired")
    assert undisturbed(tmp_path / "run") == timeless(events(alone))


def test_a_stop_ends_the_run_saved_and_a_resumed_run_goes_on(alone, tmp_path):
    stopped = run_in(tmp_path / "run", QUIET, commands={5: "stop"})
    assert (stopped.stopped, stopped.step) == (TOLD_TO_STOP, 5)
    assert saved(tmp_path / "run")[-1] == 5
    assert run_in(tmp_path / "run", QUIET).stopped == "done"
    assert undisturbed(tmp_path / "run") == timeless(events(alone))


def test_a_paused_run_makes_no_step_is_saved_says_why_and_obeys_until_it_goes_on(tmp_path):
    folder = tmp_path / "run"
    script = ["note waiting", "validation", "kl.coef=0.5", "resume"]
    said: list[str] = []

    def wait(reason: str, seconds: float) -> None:
        said.append(reason)
        assert saved(folder)[-1] == 5
        send(folder / INBOX, parse_command(script.pop(0).split()))

    assert run_in(folder, QUIET, commands={5: "pause"}, wait=wait).stopped == "done"
    assert said == ["paused at step 5: told to pause", "", "", ""]
    assert {command.step for command in of(folder, CommandGiven)} == {5}
    assert 5 in [validation.step for validation in of(folder, Validated)]
    assert [step.kl_coef for step in of(folder, Stepped)] == [1e-3] * 5 + [0.5] * 7


def test_pausing_changes_nothing(alone, tmp_path):
    folder = tmp_path / "run"
    run_in(folder, QUIET, commands={5: "pause"}, wait=lambda *_: send(folder / INBOX, Command(name="resume")))
    assert undisturbed(folder) == timeless(events(alone))


def test_a_paused_run_that_is_stopped_is_still_paused_when_it_is_taken_up_again(tmp_path):
    folder = tmp_path / "run"
    waits: list[str] = []
    stopped = run_in(
        folder,
        QUIET,
        commands={5: "pause"},
        wait=lambda r, s: waits.append(r),
        until=lambda s: len(waits) == 3,
    )
    assert (stopped.stopped, stopped.step, stopped.paused) == ("interrupted", 5, "told to pause")
    resumed = run_in(folder, QUIET, wait=lambda r, s: send(folder / INBOX, Command(name="stop")))
    assert (resumed.stopped, resumed.step) == (TOLD_TO_STOP, 5)
    assert run_in(folder, QUIET).stopped == "done"  # a told stop ends the pause


def test_nonsense_is_refused_in_the_journal_and_leaves_the_run_as_it_was(alone, tmp_path):
    folder = tmp_path / "run"
    nonsense = [
        b"\x00\xff rubbish\n",
        b'{"name": "rm -rf"}\n',
        b'{"name": "set", "settings": {"kl.coef": -1}}\n',
        b'{"name": "set", "settings": {"kl.coef": 1e999, "clip.high": "NaN"}}\n',
        b'{"name": "set", "settings": {"sampling.response_limit": 0}}\n',
        b'{"name": "note", "text": "NaN"}\n',
        b'{"name": "torn',
    ]

    def watch(event, state) -> None:
        if isinstance(event, Stepped) and event.step == 3:
            (folder / INBOX).write_bytes(b"".join(nonsense))

    assert run_in(folder, QUIET, watch=watch).stopped == "done"
    refused = of(folder, CommandGiven)
    assert [bool(command.refused) for command in refused] == [True] * 5 + [False]
    assert undisturbed(folder) == timeless(events(alone))
    checkpoint = RunStore.open(folder).latest_checkpoint()
    assert from_json(checkpoint.state) == fold(events(folder))


class Killed(BaseException):
    """As a SIGKILL: nothing that could clean up hears of it."""


COMMAND = "kl.coef=0.5"


@pytest.fixture(scope="module")
def obeyed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("obeyed") / "run"
    run_in(folder, QUIET, commands={3: COMMAND})
    return folder


def test_a_kill_between_reading_a_command_and_journalling_it_loses_nothing(tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def die(config, inbox, state, **context):
        if take_in_next(config, inbox, state, **context) is not None:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(loop, "take_in_next", die)
        with pytest.raises(Killed):
            run_in(folder, QUIET, commands={3: COMMAND})
    run_in(folder, QUIET)
    (command,) = of(folder, CommandGiven)  # before the first step there is now, which follows the checkpoint
    assert command.step == 0
    assert [step.kl_coef for step in of(folder, Stepped)] == [0.5] * 12


@pytest.mark.parametrize("kill", ["command_given", "stepped"])
def test_a_kill_after_a_command_was_journalled_obeys_it_once(obeyed, tmp_path, kill):
    """Where a checkpoint lies between command and kill it is in the journal; elsewhere it is still in the inbox."""
    folder = tmp_path / "run"
    send_at_3 = {3: COMMAND}

    def watch(event, state) -> None:
        if isinstance(event, Stepped) and event.step in send_at_3:
            send(folder / INBOX, parse_command(send_at_3.pop(event.step).split()))
        if event.kind == kill and (kill == "command_given" or event.step == 5):
            raise Killed

    with pytest.raises(Killed):
        run_in(folder, QUIET, watch=watch)
    run_in(folder, QUIET)
    (command,) = of(folder, CommandGiven)
    (resumed,) = of(folder, Resumed)
    assert command.step == (3 if kill == "stepped" else resumed.step)
    first = command.step
    assert [step.kl_coef for step in of(folder, Stepped)] == [1e-3] * first + [0.5] * (12 - first)
    if kill == "stepped":
        assert timeless(events(folder)) == timeless(events(obeyed))


@pytest.fixture
def told(tmp_path) -> Path:
    """A run that was stopped in the middle, with the recipe that a sender checks commands against."""
    folder = tmp_path / "run"
    run_in(folder, QUIET, commands={5: "stop"})
    write_atomic(folder / "config.json", encode_json(to_json(CONFIG)))
    return folder


@pytest.mark.parametrize(
    ("word", "refused"), [("kl.ceof=1", "did you mean 'kl.coef'"), ("stop", "is told to stop already")]
)
def test_a_sender_refuses_nonsense_and_a_second_stop_before_they_reach_the_run(told, word, refused):
    before = (told / INBOX).read_bytes()
    with pytest.raises(CommandError, match=refused):
        tell(told, [word])
    assert (told / INBOX).read_bytes() == before


def test_a_sender_knows_the_commands_that_wait(told):
    tell(told, ["clip.low=0.1"])
    tell(told, ["clip.high=0.15"])
    with pytest.raises(CommandError, match=r"clip.low \(0.3\) is above clip.high \(0.15\)"):
        tell(told, ["clip.low=0.3"])
    run_in(told, QUIET)
    assert [command.refused for command in of(told, CommandGiven)] == [None] * 3


@pytest.mark.parametrize(
    ("yes", "asked"), [([], "more than 10 times: add --yes to give this command"), (["--yes"], "")]
)
def test_a_script_says_yes_before_a_hparam_moves_far(told, yes, asked):
    before = (told / INBOX).read_bytes()
    done = CliRunner().invoke(app, ["tell", str(told), "optimizer.lr=5", *yes])
    assert (done.exit_code, asked in done.output) == (bool(asked), True)
    assert ((told / INBOX).read_bytes() == before) == bool(asked)


def test_a_roll_back_that_goes_much_further_than_it_says_is_asked_about(told):
    save = {"save": SaveConfig(every=1)}
    write_atomic(told / "config.json", encode_json(to_json(CONFIG.model_copy(update=save))))
    assert tell(told, ["roll-back"]).name == "roll-back"
    for path in (told / "checkpoints").iterdir():
        if path.name != "step_000000":
            shutil.rmtree(path)
    with pytest.raises(CommandError, match="asked for already"):  # a second one would land before the first
        tell(told, ["roll-back"])
    (told / INBOX).unlink()
    with pytest.raises(UnconfirmedError, match="up to step 4 is that of step 0: add --yes"):
        tell(told, ["roll-back"])


def test_who_sits_at_a_terminal_is_asked_before_a_hparam_moves_far(told):
    asked = []
    with pytest.raises(UnconfirmedError):
        tell(told, ["optimizer.lr=5"], confirm=asked.append)  # which says no
    tell(told, ["optimizer.lr=2e-6"], confirm=asked.append)
    given = tell(told, ["optimizer.lr=5"], confirm=lambda move: asked.append(move) is None)
    assert given.settings == {"optimizer.lr": 5}
    tell(told, ["optimizer.lr=4"], confirm=asked.append)
    assert asked == [f"optimizer.lr moves from {now} to 5" for now in ("1e-06", "2e-06")]
