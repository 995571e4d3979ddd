"""What an operator may command, and what is refused in one sentence."""

from dataclasses import replace

import pytest

from prorl.commands import UNDONE, WORDS, CommandError, far_moves, parse_command, take_in
from prorl.config.schema import HPARAMS
from prorl.control.events import CommandGiven
from prorl.control.plan import make_plan
from prorl.control.state import Reference, RunState, evolve
from prorl.run.inbox import Command
from support.recipes import recipe

BASE = Reference(name="ref_000", birth_step=0, parent=None, reason="start", hash="h")
STATE = RunState(step=7, reference=BASE)


def judged(command: str = "set", *, state=STATE, config=None, context=None, **settings) -> CommandGiven:
    """Settings are recipe keys with the dot written as two underscores."""
    keys = {key.replace("__", "."): value for key, value in settings.items()}
    command = Command(id="ab", name=command, settings=keys, end=99)
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
        (["note"], "a note needs its text"),
        (["=3"], "'=3' names no hyperparameter"),
        (["clip.dual=???"], "Missing mandatory value"),
        (["clip.dual=" + "[" * 3000], "cannot be read"),
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


@pytest.mark.parametrize("command", [*WORDS, "note"])
def test_plain_commands_are_taken_in(command):
    event = judged(command)
    assert (event.refused, event.step, event.id, event.inbox) == (None, 7, "ab", 99)


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


def test_before_the_first_step_there_is_nothing_to_roll_back():
    assert "no step has been made yet" in judged("roll-back", state=RunState()).refused


@pytest.mark.parametrize("command", [*WORDS, "note", "set"])
def test_after_a_roll_back_what_it_undid_is_refused_and_the_rest_is_obeyed_again(command):
    settings = {"kl__coef": 0.1} if command == "set" else {}
    after = replace(STATE, obeyed=99)
    assert (judged(command, state=after, **settings).refused is not None) == (command in UNDONE)
    assert judged(command, state=replace(after, obeyed=98), **settings).refused is None


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


def test_hparams_are_held_as_checked_values_by_their_own_names():
    event = judged(kl__coef=1, sampling__samples_per_prompt=32)
    assert event.refused is None
    assert event.overrides == {"kl_coef": 1.0, "samples_per_prompt": 32}
    assert isinstance(event.overrides["kl_coef"], float)


def test_what_is_held_stays_held_until_it_is_given_back():
    state = evolve(STATE, judged(kl__coef=0.1, clip__high=0.3))
    assert state.overrides == {"kl_coef": 0.1, "clip_high": 0.3}
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
        ({"clip__high": 0.1}, "clip.high (0.1) is below clip.low (0.2)"),
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


def test_a_setting_is_judged_together_with_what_is_held():
    state = evolve(STATE, judged(clip__low=0.1))
    assert judged(clip__high=0.15).refused is not None
    assert judged(state=state, clip__high=0.15).refused is None


def test_a_setting_is_judged_together_with_stages_entered_and_to_come():
    config = recipe(stages=[{"at": 5, "set": {"clip.low": 0.1}}, {"at": 9, "set": {"clip.low": 0.25}}])
    entered = RunState(step=7, stage=0, reference=BASE)
    assert judged(config=config, state=entered, clip__high=0.26).refused is None
    assert judged(config=config, state=entered, clip__high=0.15).refused == (
        "with this command, in the stage of step 9: clip.high (0.15) is below clip.low (0.25)"
    )
    past = RunState(step=10, stage=1, reference=BASE)
    assert judged(config=config, state=past, clip__high=0.3).refused is None


def test_commands_that_this_run_cannot_obey_are_refused():
    bare = RunState(step=7)
    assert "holds no reference" in judged("reset-reference", state=bare).refused
    assert "no step has been made yet" in judged("reset-reference", state=RunState(reference=BASE)).refused
    assert "has no validations" in judged("validation", config=recipe(validation={"every": 0})).refused
    off = recipe(kl={"coef": 0}, reset={"every": 0})
    assert "no reference to pay one to" in judged(config=off, state=bare, kl__coef=0.1).refused
    assert "context of 4096 tokens" in judged(context=4096, sampling__response_limit=4096).refused
    assert judged(context=4096, sampling__response_limit=4095).refused is None
