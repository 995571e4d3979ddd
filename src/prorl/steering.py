"""What an operator may order, judged alike by the sender and by the trainer that obeys.

An order that sets knobs is checked like a stage of the recipe: together with all that holds already, and with
the stages still to come. Judging is pure and never raises for what an order says: nonsense is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from prorl.config.recipe import RecipeError, check
from prorl.config.schema import KNOBS, RunConfig
from prorl.director.events import Ordered, from_record
from prorl.director.state import RunState, evolve, fold
from prorl.errors import ProrlError
from prorl.files import StorageError
from prorl.planning import apply_stage
from prorl.run.inbox import INBOX, UNREADABLE, Letter, Order, new_order, next_letter, send
from prorl.run.journal import read_journal
from prorl.run.layout import JOURNAL
from prorl.run.store import RunStore

WORDS = ("pause", "resume", "stop", "save", "exam", "reset-reference")
PLANNED = "plan"  # as a value: the operator lets go of the knob

_KEYS: Mapping[str, str] = {knob: key for key, knob in KNOBS.items()}


class OrderError(ProrlError):
    """An order that cannot be given, said in one sentence."""


def parse_order(words: Sequence[str]) -> Order:
    """The order that somebody typed: `pause`, `kl.coef=5e-4 clip.high=0.3`, `note some text`.

    Raises:
        OrderError: none of these.
    """
    if not words:
        raise OrderError(f"say what to tell: {_what_there_is()}")
    first, *rest = words
    if first == "note":
        if not rest:
            raise OrderError('a note needs its text, as in: note "new verifier from here on"')
        return new_order("note", text=" ".join(rest))
    if first in WORDS and not rest:
        return new_order(first)
    if any("=" not in word for word in words):
        odd = next((word for word in words if "=" not in word and word not in WORDS), " ".join(words))
        raise OrderError(f"{odd!r} is no order{_nearest(odd, (*WORDS, 'note', *KNOBS))}")
    return new_order("set", settings=dict(map(_setting, words)))


def tell(folder: Path, words: Sequence[str]) -> Order:
    """Give an order to the run in `folder`, judged as the trainer would judge it now.

    Raises:
        OrderError: the order is nonsense, or the run could not obey it.
        StorageError: there is no run, or no room.
    """
    config = check(RunStore.open(folder).config, str(folder))
    order = parse_order(words)
    try:
        state = fold(map(from_record, read_journal(folder / JOURNAL)))
    except ValueError as error:
        raise StorageError(f"{folder / JOURNAL} cannot be followed: {error}") from error
    if state.stopped == "done":
        raise OrderError(f"{folder} is done and obeys nothing more; branch it to go on")
    obey = next_order(config, folder / INBOX)
    while (pending := obey(state)) is not None:
        state = evolve(state, pending)
    refused = judge(config, state, Letter(order=order, end=state.inbox)).refused
    if refused is not None:
        raise OrderError(refused)
    send(folder / INBOX, order)
    return order


def next_order(
    config: RunConfig, inbox: Path, *, context: int | None = None
) -> Callable[[RunState], Ordered | None]:
    """What finds the next order that a run in some state has not taken in; `context` is the model's, in tokens."""

    def following(state: RunState) -> Ordered | None:
        letter = next_letter(inbox, state.inbox, state.last_order)
        return None if letter is None else judge(config, state, letter, context=context)

    return following


def judge(config: RunConfig, state: RunState, letter: Letter, *, context: int | None = None) -> Ordered:
    """The event that an order becomes at the boundary of `state`: taken in, or refused with the reason."""
    order = letter.order
    refused, overrides = None, state.overrides
    try:
        _require_sense(config, state, order)
        if order.order == "set":
            overrides = _overrides(config, state, order.settings, context)
    except (OrderError, RecipeError) as error:
        refused = str(error)
    return Ordered(
        step=state.step,
        id=order.id,
        order=order.order,
        settings=order.settings,
        text=order.text,
        refused=refused,
        overrides=overrides,
        inbox=letter.end,
    )


def _require_sense(config: RunConfig, state: RunState, order: Order) -> None:
    if order.order == UNREADABLE:
        raise OrderError("this line of the inbox is no order; give orders with `prorl tell`")
    if order.order not in (*WORDS, "note", "set"):
        raise OrderError(f"{order.order!r} is no order{_nearest(order.order, (*WORDS, 'note'))}")
    if order.order == "exam" and not config.exam.every:
        raise OrderError("this run sits no exams (exam.every is 0)")
    if order.order == "reset-reference" and state.reference is None:
        raise OrderError("this run pays no KL penalty, so it holds no reference to reset")
    if order.order == "reset-reference" and state.step == 0:
        raise OrderError("no step has been made yet: the reference is the policy")


def _overrides(
    config: RunConfig, state: RunState, settings: Mapping[str, Any], context: int | None
) -> dict[str, Any]:
    """All knobs that the operator holds after `settings`, by name, as the checked values.

    Raises:
        OrderError, RecipeError: they contradict the recipe or each other, now or in a stage to come.
    """
    if not settings:
        raise OrderError("an order to set knobs names at least one: kl.coef=5e-4")
    unknown = next((key for key in settings if key not in KNOBS), None)
    if unknown is not None:
        raise OrderError(f"{unknown!r} cannot change during a run{_nearest(unknown, tuple(KNOBS))}")
    held = {_KEYS[knob]: value for knob, value in state.overrides.items()} | dict(settings)
    held = {key: value for key, value in held.items() if value != PLANNED}
    data = config.model_dump() | {"stages": ()}
    for stage in config.stages[: state.stage + 1]:
        apply_stage(data, stage)
    checked = _checked(data, held, "with this order")
    for stage in config.stages[state.stage + 1 :]:
        apply_stage(data, stage)
        _checked(data, held, f"with this order, in the stage of step {stage.at}")
    found = {KNOBS[key]: _at(checked, key) for key in held}
    if found.get("kl_coef") and state.reference is None:
        raise OrderError("this run was begun without a KL penalty, so it holds no reference to pay one to")
    if context is not None and found.get("response_limit", 0) >= context:
        raise OrderError(
            f"sampling.response_limit ({found['response_limit']}) leaves no room for a prompt in the model's "
            f"context of {context} tokens"
        )
    return found


def _checked(data: Mapping[str, Any], held: Mapping[str, Any], when: str) -> RunConfig:
    settings = {section: dict(value) if isinstance(value, dict) else value for section, value in data.items()}
    for key, value in held.items():
        section, name = key.split(".")
        settings[section][name] = value
    return check(settings, when)


def _at(config: RunConfig, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(config, section), name)


def _setting(word: str) -> tuple[str, Any]:
    """A key and the value that a recipe would read from the same text."""
    key, _, _ = word.partition("=")
    if not key:
        raise OrderError(f"{word!r} names no knob: say KNOB=VALUE, as in kl.coef=5e-4")
    try:
        value = OmegaConf.select(OmegaConf.from_dotlist([word]), key, throw_on_missing=True)
    except (YAMLError, OmegaConfBaseException, ValueError, RecursionError) as error:
        raise OrderError(f"{word[:80]!r} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(value, (str, int, float, type(None))):
        raise OrderError(f"{key} takes one value that holds from now on, not {word.partition('=')[2]!r}")
    return key, value


def _nearest(word: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(word, known, n=1, cutoff=0.6)
    return f": did you mean {near[0]!r}?" if near else f"; there are: {_what_there_is()}"


def _what_there_is() -> str:
    return f"{', '.join(WORDS)}, note TEXT, or KNOB=VALUE with one of {', '.join(KNOBS)}"
