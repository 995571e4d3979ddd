"""The resolved recipe of each run: first what differs from the defaults, then all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from prorl.config.schema import RunConfig
from prorl.lab.report.markup import fold, heading, preformatted, remark, table
from prorl.lab.report.section import Section
from prorl.run.history import RunHistory

DEEP = 9  # levels of nesting; no recipe has more


def recipe_section(runs: Sequence[RunHistory]) -> Section:
    """Every run's recipe, unfolded for one run and folded for several."""
    parts = [(run.name, _recipe(run.config)) for run in runs]
    html = parts[0][1] if len(parts) == 1 else "".join(fold(name, body) for name, body in parts)
    return Section(key="recipe", title="Recipe", html=html)


def changes(config: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Dotted key, value and default of every setting that is not at its default; no default reads as empty."""
    defaults = _defaults()
    found = []
    for section, settings in config.items():
        # What every recipe must say (its model, its tasks) has no default to go through key by key.
        depth = DEEP if section in defaults else 1
        default = dict(_flat({section: defaults[section]}, depth)) if section in defaults else {}
        for key, value in _flat({section: settings}, depth):
            if value != default.get(key):
                found.append((key, _text(value), _text(default[key]) if key in default else ""))
    return found


def _recipe(config: Mapping[str, Any]) -> str:
    if not config:
        return remark("The recipe cannot be read.", "warn")
    return "".join(
        [
            heading("What differs from the defaults"),
            table(("setting", "here", "default"), changes(config)),
            fold("The whole recipe", preformatted(json.dumps(config, indent=2, ensure_ascii=False))),
        ]
    )


def _defaults() -> dict[str, Any]:
    """What a recipe that says nothing would be, without the sections that it must name."""
    given = {
        name: field.get_default() for name, field in RunConfig.model_fields.items() if not field.is_required()
    }
    return {
        name: value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        for name, value in given.items()
    }


def _flat(settings: Mapping[str, Any], depth: int, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by dotted key, as far down as `depth` says."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value and depth:
            yield from _flat(value, depth - 1, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
