"""Reading loosely typed cells: the same thing is a string here, a chat there, a float elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prorl.envs.datasets.records import Drop


def as_text(value: Any) -> str:
    """A cell as stripped text; None is empty, and 142.0 is "142"."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def user_text(value: Any) -> str:
    """What the user says: a text, the last user message of a chat, or of the chat under `input`.

    System prompts are dropped on purpose: Eurus-2's names actions that nothing else here knows.

    Raises:
        Drop: nothing is said.
    """
    if isinstance(value, Mapping):
        value = value.get("input")
    if isinstance(value, list | tuple):
        spoken = [
            turn.get("content") for turn in value if isinstance(turn, Mapping) and turn.get("role") == "user"
        ]
        value = spoken[-1] if spoken else None
    if not isinstance(value, str) or not value.strip():
        raise Drop("no prompt")
    return value.strip()


def parsed(value: Any) -> Any:
    """JSON where a cell holds it as text; anything else as it is.

    Raises:
        Drop: a text that is no strict JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Drop("a cell that is no JSON") from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
