"""What an operator may command, judged alike by the sender and by the trainer that obeys.

A command that sets hyperparameters is checked like a stage of the recipe: together with all that holds already, and
with the stages still to come. Judging is pure and never raises for what a command says: nonsense is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from prorl.config.checks import no_room
from prorl.config.recipe import RecipeError, check, nearest
from prorl.config.schema import HPARAMS, RunConfig, StageConfig, setting
from prorl.control.events import CommandGiven
from prorl.control.plan import Plan, apply_stage, hparams_at, hparams_now, make_plan
from prorl.control.state import RunState, evolve, fold
from prorl.envs.errors import ProrlError
from prorl.run.history import read_events
from prorl.run.inbox import INBOX, UNREADABLE, Command, new_command, next_command, send
from prorl.run.store import RunStore

WORDS = ("pause", "resume", "stop", "save", "validation", "reset-reference", "roll-back")
ALL = f"{', '.join(WORDS)}, note TEXT, or KEY=VALUE with one of {', '.join(HPARAMS)}"
PLANNED = "plan"  # as a value: the operator gives the hyperparameter back to the recipe
FAR = 10.0  # times up or down, from which on a hyperparameter moves only when that is confirmed
UNDONE = ("set", "reset-reference", "roll-back", "stop")  # a roll back undoes these; others are obeyed again


class CommandError(ProrlError):
    """A command that cannot be given, said in one sentence."""


class UnconfirmedError(CommandError):
    """A command that moves a hyperparameter far, and that nobody has confirmed."""


def parse_command(words: Sequence[str]) -> Command:
    """The command that somebody typed: `pause`, `kl.coef=5e-4 clip.high=0.3`, `roll-back=100`, `note some text`.

    Raises:
        CommandError: none of these.
    """
    if not words:
        raise CommandError(f"say what to tell: {ALL}")
    first, *rest = words
    if first == "note":
        if not rest:
            raise CommandError('a note needs its text, as in: note "new verifier from here on"')
        return new_command("note", text=" ".join(rest))
    if first in WORDS and not rest:
        return new_command(first)
    if first.startswith("roll-back=") and not rest:
        return new_command("roll-back", settings={"step": _setting(first)[1]})
    if any("=" not in word for word in words):
        odd = next((word for word in words if "=" not in word and word not in WORDS), " ".join(words))
        raise CommandError(f"{odd!r} is no command{_hint(odd, *WORDS, 'note', *HPARAMS)}")
    return new_command("set", settings=dict(map(_setting, words)))


def tell(
    folder: Path, words: Sequence[str], *, confirm: Callable[[str], bool] = lambda move: False
) -> Command:
    """Give a command to the run in `folder`, judged as the trainer would judge it now.

    `confirm` is asked about a command that moves a hyperparameter far, with what it moves from where to where.

    Raises:
        UnconfirmedError: it said no.
        CommandError: the command is nonsense, or the run could not obey it.
        StorageError: there is no run, or no room.
    """
    config = check(RunStore.open(folder).config, str(folder))
    command = parse_command(words)
    state = fold(read_events(folder))
    if state.stopped == "done":
        raise CommandError(f"{folder} is done and obeys nothing more; branch it to go on")
    while (pending := take_in_next(config, folder / INBOX, state)) is not None:
        state = evolve(state, pending)
    judged = take_in(config, state, replace(command, end=state.inbox + 1))
    if judged.refused is not None:
        raise CommandError(judged.refused)
    far = far_moves(make_plan(config), state, evolve(state, judged))
    if far and not confirm(far):
        raise UnconfirmedError(f"{far}, more than {FAR:g} times: add --yes to give this command")
    send(folder / INBOX, command)
    return command


def take_in_next(
    config: RunConfig, inbox: Path, state: RunState, *, context: int | None = None
) -> CommandGiven | None:
    """The next command of an inbox that a run in this state has not taken in; `context` is the model's, in tokens."""
    if "roll-back" in state.asked:  # what comes after it is obeyed where the run goes on
        return None
    command = next_command(inbox, state.inbox, state.last_command)
    return None if command is None else take_in(config, state, command, context=context)


def take_in(
    config: RunConfig, state: RunState, command: Command, *, context: int | None = None
) -> CommandGiven:
    """The event that a command becomes in `state`: taken in, or refused with the reason."""
    refused, overrides = None, state.overrides
    try:
        if command.name in UNDONE and command.end <= state.obeyed:
            raise CommandError("a roll back has undone it: give it again if it is still wanted")
        _require_sense(config, state, command)
        if command.name == "set":
            overrides = _overrides(config, state, command.settings, context)
    except (CommandError, RecipeError) as error:
        refused = str(error)
    return CommandGiven(
        step=state.step,
        id=command.id,
        name=command.name,
        settings=command.settings,
        text=command.text,
        refused=refused,
        overrides=overrides,
        inbox=command.end,
    )


def far_moves(plan: Plan, before: RunState, after: RunState) -> str:
    """Which hyperparameters move by more than `FAR` times between two states, in words; empty if none does.

    One that is 0 now, as in a ramp, is compared with what the recipe has for it at the end of the run. To switch an
    idea off (0) or on (from 0, to its end) is no move.
    """
    end, told = hparams_at(plan, plan.steps), []
    for key, name in HPARAMS.items():
        old, new = (getattr(hparams_now(plan, state), name) for state in (before, after))
        old = old or getattr(end, name)
        numbers = isinstance(old, (int, float)) and isinstance(new, (int, float)) and old and new
        if numbers and not 1 / FAR <= abs(new / old) <= FAR:
            told.append(f"{key} moves from {old:g} to {new:g}")
    return ", ".join(told)


def _require_sense(config: RunConfig, state: RunState, command: Command) -> None:
    name = command.name
    to = command.settings.get("step", 0) if name == "roll-back" else 0
    if name == UNREADABLE:
        raise CommandError("this line of the inbox is no command; give commands with `prorl tell`")
    if name not in (*WORDS, "note", "set"):
        raise CommandError(f"{name!r} is no command{_hint(name, *WORDS, 'note')}")
    if name == "validation" and not config.validation.every:
        raise CommandError("this run has no validations (validation.every is 0)")
    if name == "reset-reference" and state.reference is None:
        raise CommandError("this run pays no KL penalty, so it holds no reference to reset")
    if name in ("reset-reference", "roll-back") and state.step == 0:
        raise CommandError("no step has been made yet: there is nothing to reset to or to roll back")
    if isinstance(to, bool) or not isinstance(to, int) or not 0 <= to < max(state.step, 1):
        raise CommandError(
            f"roll-back={to} names no step before this one: say one from 0 to {state.step - 1}"
        )


def _overrides(
    config: RunConfig, state: RunState, settings: Mapping[str, Any], context: int | None
) -> dict[str, Any]:
    """All hyperparameters that the operator holds after `settings`, by name, as the checked values.

    Raises:
        CommandError, RecipeError: they contradict the recipe or each other, now or in a stage to come.
    """
    if not settings:
        raise CommandError("a command to set hyperparameters names at least one: kl.coef=5e-4")
    unknown = next((key for key in settings if key not in HPARAMS), None)
    if unknown is not None:
        raise CommandError(f"{unknown!r} cannot change during a run{_hint(unknown, *HPARAMS)}")
    keys = {name: key for key, name in HPARAMS.items()}
    held = {keys[name]: value for name, value in state.overrides.items()} | dict(settings)
    held = {key: value for key, value in held.items() if value != PLANNED}
    entered = state.stage + 1
    checked = _checked(config, entered, held, "with this command")
    for index, stage in enumerate(config.stages[entered:], start=entered + 1):
        _checked(config, index, held, f"with this command, in the stage of step {stage.at}")
    found = {HPARAMS[key]: setting(checked, key) for key in held}
    if found.get("kl_coef") and state.reference is None:
        raise CommandError("this run was begun without a KL penalty, so it holds no reference to pay one to")
    if context is not None and (limit := found.get("response_limit", 0)) >= context:
        raise CommandError(no_room(limit, context))
    return found


def _checked(config: RunConfig, stages: int, held: Mapping[str, Any], when: str) -> RunConfig:
    """The recipe as its first `stages` stages leave it, with what is held on top as if by one more."""
    data = config.model_dump() | {"stages": ()}
    for stage in (*config.stages[:stages], StageConfig(at=0, set=dict(held))):
        apply_stage(data, stage)
    return check(data, when)


def _setting(word: str) -> tuple[str, Any]:
    """A key and the value that a recipe would read from the same text."""
    key, _, _ = word.partition("=")
    if not key:
        raise CommandError(f"{word!r} names no hyperparameter: say KEY=VALUE, as in kl.coef=5e-4")
    try:
        value = OmegaConf.select(OmegaConf.from_dotlist([word]), key, throw_on_missing=True)
    except (YAMLError, OmegaConfBaseException, ValueError, RecursionError) as error:
        raise CommandError(f"{word[:80]!r} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(value, (str, int, float, type(None))):
        raise CommandError(f"{key} takes one value that holds from now on, not {word.partition('=')[2]!r}")
    return key, value


def _hint(word: str, *known: str) -> str:
    return f": {nearest(word, known, f'there are {ALL}')}"
