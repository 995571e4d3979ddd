"""The operator's commands: what may be commanded, judged alike by the sender and by the trainer that obeys.

They lie in an inbox, one JSON object per line, appended by anybody and read by the trainer between steps. Nothing is
taken out of it: how many bytes were read is part of the run's state, so each command is obeyed exactly once in the
journal that holds, however often the trainer dies. A last line without its end counts once it is whole.

A command that sets hyperparameters is checked like a stage of the recipe: together with all that holds already, and
with the stages still to come. Judging is pure and never raises for what a command says: nonsense is refused.
"""

import fcntl
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from prorl.config.checks import no_room
from prorl.config.recipe import RecipeError
from prorl.config.schema import HPARAMS, RunConfig, StageConfig, setting
from prorl.control.decide import TOLD_TO_STOP
from prorl.control.events import CommandGiven
from prorl.control.plan import Plan, hparams_at, hparams_now, make_plan, staged
from prorl.control.state import RunState, evolve, fold
from prorl.envs.errors import ProrlError, nearest
from prorl.envs.files import StorageError, encode_json
from prorl.run.history import read_events
from prorl.run.journal import append_bytes
from prorl.run.store import RunStore

INBOX = "inbox.jsonl"
OBEYED = "obeyed when the current step ends, or when it is resumed if nobody trains it now"
MAX_LINE = 16_384  # bytes
EXCERPT = 80  # characters of an unreadable line that are journalled

UNREADABLE = "unreadable"  # the name of a line that is no command
WORDS = ("pause", "resume", "stop", "save", "validation", "reset-reference", "roll-back")
ALL = f"{', '.join(WORDS)}, note TEXT, or KEY=VALUE with one of {', '.join(HPARAMS)}"
KEYS = {name: key for key, name in HPARAMS.items()}  # of `HParams` → of the recipe
PLANNED = "plan"  # as a value: the operator gives the hyperparameter back to the recipe
FAR = 10.0  # times up or down, from which on a hyperparameter moves only when that is confirmed
# A roll back undoes these; others are obeyed again.
UNDONE = ("set", "reset-reference", "roll-back", "stop", "pause", "resume")


class CommandError(ProrlError):
    """A command that cannot be given, said in one sentence."""


class UnconfirmedError(CommandError):
    """A command that goes far, and that nobody has confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What an operator wants: `set` with recipe keys and values, `note` with a text, or just a word."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    end: int = 0  # byte up to which an inbox has been read that it was found in


def parse_command(words: Sequence[str]) -> Command:
    """The command that somebody typed: `pause`, `kl.coef=5e-4 clip.high=0.3`, `roll-back=100`, `note some text`.

    CommandError for anything else.
    """
    if not words:
        raise CommandError(f"say what to tell: {ALL}")
    first, *rest = words
    if first == "note":
        if not rest:
            raise CommandError('a note needs its text, as in: note "new verifier from here on"')
        return Command(name="note", text=" ".join(rest))
    if first in WORDS and not rest:
        return Command(name=first)
    if first.startswith("roll-back=") and not rest:
        return Command(name="roll-back", settings={"step": _setting(first)[1]})
    if any("=" not in word for word in words):
        odd = next((word for word in words if "=" not in word and word not in WORDS), " ".join(words))
        settings = (f"{key}=VALUE" for key in HPARAMS)
        raise CommandError(f"{odd!r} is no command{_hint(odd, *WORDS, 'note', *settings)}")
    return Command(name="set", settings=dict(map(_setting, words)))


def tell(
    folder: Path, words: Sequence[str], *, confirm: Callable[[str], bool] = lambda move: False
) -> Command:
    """Give a command to the run in `folder`, judged as the trainer would judge it now.

    `confirm` is asked, in words, about a command that moves a hyperparameter far, or rolls back further than it says.
    Raises UnconfirmedError where it says no, CommandError for nonsense and what the run could not obey, StorageError
    where there is no run, or no room.
    """
    store = RunStore.open(folder)
    config, command = store.config, parse_command(words)
    state = fold(read_events(folder))
    if state.stopped == "done":
        raise CommandError(f"{folder} is done and obeys nothing more; branch it to go on")
    while (pending := take_in_next(config, folder / INBOX, state)) is not None:
        state = evolve(state, pending)
    if command.name == "roll-back" and "roll-back" in state.asked:
        raise CommandError("a roll back is asked for already: wait until `prorl status` shows it")
    if command.name == "stop" and ("stop" in state.asked or state.stopped == TOLD_TO_STOP):
        raise CommandError(
            "this run is told to stop already; if somebody resumes it just now, give the command again after a step"
        )
    judged = take_in(config, state, replace(command, end=state.inbox + 1))
    if judged.refused is not None:
        raise CommandError(judged.refused)
    far = far_moves(make_plan(config), state, evolve(state, judged))
    why = f"{far}, more than {FAR:g} times"
    if command.name == "roll-back":
        to = command.settings.get("step", state.step - 1)
        landing = max((step for step in store.checkpoints() if step <= to), default=0)
        if to - landing > 2 * config.save.every:
            far = why = f"the newest checkpoint up to step {to} is that of step {landing}"
    if far and not confirm(far):
        raise UnconfirmedError(f"{why}: add --yes to give this command")
    send(folder / INBOX, command)
    return command


def send(path: Path, command: Command) -> None:
    """Append a command; it is on disk, whole, when this returns. StorageError if it has no room or is too long."""
    line = encode_json({"name": command.name, "settings": command.settings, "text": command.text})
    if len(line) > MAX_LINE:
        raise StorageError(f"a command may have {MAX_LINE:,} bytes, not {len(line):,}: say it shorter")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # against other senders; the trainer only reads
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        append_bytes(descriptor, b"\n" + line if torn else line, path)
    finally:
        os.close(descriptor)


def next_command(inbox: Path, position: int) -> Command | None:
    """The first command behind byte `position`, up to which the inbox was read; None while there is none.

    A line that is no command comes as one that is `UNREADABLE`. So does, as a whole, an inbox that was changed by
    hand so that no line ends at `position`: to obey a command twice would be worse than never.
    """
    try:
        data = inbox.read_bytes()
    except FileNotFoundError:
        return None
    if position > len(data) or (position and data[position - 1 : position] != b"\n"):
        whole = data.rfind(b"\n") + 1
        lost = "the inbox was changed by hand; what it holds is not obeyed, give the commands again"
        return Command(name=UNREADABLE, text=lost, end=whole) if whole else None
    while end := data.find(b"\n", position) + 1:
        line = data[position : end - 1]
        if line.strip():
            excerpt = line[:EXCERPT].decode(errors="replace")
            return replace(_parse_line(line) or Command(name=UNREADABLE, text=excerpt), end=end)
        position = end
    return None


def _parse_line(line: bytes) -> Command | None:
    """The command that a line of an inbox holds; None for everything else, whatever it is."""
    try:
        command = Command(**json.loads(line))
        texts = isinstance(command.name, str) and isinstance(command.text, str)
        plain = all(isinstance(value, str | int | float | None) for value in command.settings.values())
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    if len(line) > MAX_LINE or not (texts and plain) or command.end:
        return None
    return replace(command, text=" ".join(command.text.split()))


def take_in_next(
    config: RunConfig, inbox: Path, state: RunState, *, context: int | None = None
) -> CommandGiven | None:
    """The next command of an inbox that a run in this state has not taken in; `context` is the model's, in tokens."""
    if "roll-back" in state.asked:  # what comes after it is obeyed where the run goes on
        return None
    command = next_command(inbox, state.inbox)
    return None if command is None else take_in(config, state, command, context=context)


def take_in(
    config: RunConfig, state: RunState, command: Command, *, context: int | None = None
) -> CommandGiven:
    """The event that a command becomes in `state`: taken in, or refused with the reason."""
    refused, overrides = None, state.overrides
    try:
        if command.name == "roll-back" and command.end == state.obeyed:
            raise CommandError("it was carried out")
        if command.name in UNDONE and command.end <= state.obeyed:
            raise CommandError("a roll back has undone it: give it again if it is still wanted")
        _require_sense(config, state, command)
        if command.name == "set":
            overrides = _overrides(config, state, command.settings, context)
    except (CommandError, RecipeError) as error:
        refused = str(error)
    return CommandGiven(
        step=state.step,
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
    end, told = hparams_at(plan, plan.config.steps), []
    for key, name in HPARAMS.items():
        old, new = (getattr(hparams_now(plan, state), name) for state in (before, after))
        old = old or getattr(end, name)
        numbers = isinstance(old, (int, float)) and isinstance(new, (int, float)) and old and new
        if numbers and not 1 / FAR <= abs(new / old) <= FAR:
            told.append(f"{key} moves from {old:g} to {new:g}")
    return ", ".join(told)


def _require_sense(config: RunConfig, state: RunState, command: Command) -> None:
    name, to = command.name, command.settings.get("step", 0)
    if name == UNREADABLE:
        raise CommandError("this line of the inbox is no command; give commands with `prorl tell`")
    if name not in (*WORDS, "note", "set"):
        raise CommandError(f"{name!r} is no command{_hint(name, *WORDS, 'note')}")
    if name == "validation" and not config.validation.every:
        raise CommandError("this run has no validations (validation.every is 0)")
    if name == "validation" and state.last_validation == state.step:
        raise CommandError(f"step {state.step} is validated already: give it again after a step")
    if name == "reset-reference" and state.reference is None:
        raise CommandError("this run pays no KL penalty, so it holds no reference to reset")
    if name in ("reset-reference", "roll-back") and state.step == 0:
        raise CommandError("no step has been made yet: there is nothing to reset to or to roll back")
    if name == "roll-back" and (type(to) is not int or not 0 <= to < state.step):
        raise CommandError(
            f"roll-back={to} names no step before this one: say one from 0 to {state.step - 1}"
        )


def _overrides(
    config: RunConfig, state: RunState, settings: Mapping[str, Any], context: int | None
) -> dict[str, Any]:
    """All hyperparameters that the operator holds after `settings`, by name, as the checked values.

    CommandError or RecipeError where they contradict the recipe or each other, now or in a stage to come.
    """
    if not settings:
        raise CommandError("a command to set hyperparameters names at least one: kl.coef=5e-4")
    unknown = next((key for key in settings if key not in HPARAMS), None)
    if unknown is not None:
        raise CommandError(f"{unknown!r} cannot change during a run{_hint(unknown, *HPARAMS)}")
    held = {KEYS[name]: value for name, value in state.overrides.items()} | dict(settings)
    held = {key: value for key, value in held.items() if value != PLANNED}
    entered = state.stage + 1
    on_top = StageConfig(at=0, set=held)
    checked = staged(config, (*config.stages[:entered], on_top), "with this command")
    for index, stage in enumerate(config.stages[entered:], start=entered + 1):
        when = f"with this command, in the stage of step {stage.at}"
        staged(config, (*config.stages[:index], on_top), when)
    found = {HPARAMS[key]: setting(checked, key) for key in held}
    if found.get("kl_coef") and state.reference is None:
        raise CommandError("this run was begun without a KL penalty, so it holds no reference to pay one to")
    if context is not None and (limit := found.get("response_limit", 0)) >= context:
        raise CommandError(no_room(limit, context))
    return found


def require_overrides(config: RunConfig, state: RunState) -> None:
    """RecipeError where what the operator has set contradicts the recipe under which a run is to go on."""
    held = StageConfig(at=0, set={KEYS[name]: value for name, value in state.overrides.items()})
    staged(config, (*config.stages[: state.stage + 1], held), "with what `prorl tell` has set")


def _setting(word: str) -> tuple[str, Any]:
    """A key and the value that a recipe would read from the same text."""
    key, _, _ = word.partition("=")
    if not key or key.startswith("["):
        raise CommandError(f"{word!r} names no hyperparameter: say KEY=VALUE, as in kl.coef=5e-4")
    if "${" in word:  # it would be read from the environment of whoever reads the command
        raise CommandError(f"{word[:80]!r}: a command says the value itself")
    try:
        value = OmegaConf.select(OmegaConf.from_dotlist([word]), key, throw_on_missing=True)
    except (YAMLError, OmegaConfBaseException, ValueError, RecursionError) as error:
        raise CommandError(f"{word[:80]!r} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(value, str | int | float | None):
        raise CommandError(f"{key} takes one value that holds from now on, not {word.partition('=')[2]!r}")
    return key, value


def _hint(word: str, *known: str) -> str:
    return f": {nearest(word, known, f'there are {ALL}')}"
