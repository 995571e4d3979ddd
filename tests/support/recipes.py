"""A recipe that says no more than it must."""

from collections.abc import Mapping
from typing import Any

from prorl.config.recipe import check
from prorl.config.schema import RunConfig

SMALLEST: Mapping[str, Any] = {
    "name": "r",
    "model": {"path": "m"},
    "tasks": {"arithmetic": {}, "countdown": {}},
}


def recipe(**settings: Any) -> RunConfig:
    """The smallest recipe with top-level settings replaced."""
    return check({**SMALLEST, **settings}, "r")
