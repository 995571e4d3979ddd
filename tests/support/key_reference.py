"""The page of all keys of a recipe, written from the schema: `PYTHONPATH=tests python -m support.key_reference`."""

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from prorl.config import schema
from prorl.config.fields import Live
from prorl.config.schema import RUNTIME_SECTIONS, RunConfig

PAGE = Path(__file__).parents[2] / "docs" / "keys.md"
HEAD = """# Every key of a recipe

Written from the schema (`src/prorl/config/schema.py`) by `tests/support/key_reference.py`; a test keeps it true. Any
key can be given on the command line: `prorl train nano kl.coef=5e-4`. ● marks what may change in a run, at a step
by `stages` or at once by `prorl tell`; the cycle of the length penalty may change by `stages`. `optimizer.lr` and
`kl.coef` may also be schedules:
`{{ramp: linear, start: 0, end: 1.0e-4, steps: 50, start_step: 0}}`, `cosine` likewise, or
`{{points: [[0, 1.0e-4], [500, 5.0e-5]]}}`. `prorl resume` may change {runtime}, as they change no result.
`extends: OTHER`, in a file, names the recipe that this one changes.
"""
DETECTOR_COLUMNS = ("mode", "threshold", "rearm", "hits", "of_last", "cooldown", "max", "action")


def comments() -> dict[str, dict[str, str]]:
    """What the schema's source says behind or above each field: class → field → text."""
    source = inspect.getsource(schema)
    lines, found = source.splitlines(), {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = dict(_fields(node, lines))
    return found


def _fields(node: ast.ClassDef, lines: list[str]) -> Iterator[tuple[str, str]]:
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            _, _, behind = lines[field.end_lineno - 1].partition("  # ")
            above, at = [], field.lineno - 2
            while lines[at].strip().startswith("# "):
                above.insert(0, lines[at].strip().removeprefix("# "))
                at -= 1
            yield field.target.id, " ".join([*above, behind]).strip()


def models(annotation: Any) -> list[type[BaseModel]]:
    """The models inside a field's type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in models(inner)]


def choices(annotation: Any) -> list[str]:
    """What a field with a choice may be."""
    if get_origin(annotation) is Literal:
        return [json.dumps(value) for value in get_args(annotation)]
    return [choice for inner in get_args(annotation) for choice in choices(inner)]


def rows(model: type[BaseModel], prefix: str, said: dict[str, dict[str, str]]) -> Iterator[str]:
    """A row of the table per key, the nested ones too."""
    for name, field in model.model_fields.items():
        told = next(
            (said[kind.__name__][name] for kind in model.__mro__ if name in said.get(kind.__name__, {})), ""
        )
        inner = [nested for nested in models(field.annotation) if nested.__module__ == schema.__name__]
        scheduled = any(issubclass(nested, schema.Schedule) for nested in inner)
        if inner and not scheduled:
            many = "NAME." if get_origin(field.annotation) is dict else ""
            yield from rows(inner[0], f"{prefix}{name}.{many}", said)
            continue
        default = ""
        if not field.is_required():
            default = f"`{json.dumps(field.get_default(call_default_factory=True), default=str)}` "
        live = "●" if any(isinstance(mark, Live) for mark in field.metadata) else ""
        allowed = "" if scheduled else " · ".join(f"`{choice}`" for choice in choices(field.annotation))
        meaning = "; ".join(filter(None, (told, allowed))).replace("|", "\\|")
        yield f"| `{prefix}{name}` | {default}| {live} | {meaning} |"


def page() -> str:
    """The whole page."""
    said = comments()
    parts = [HEAD.format(runtime=", ".join(f"`{name}`" for name in RUNTIME_SECTIONS))]
    sections = {
        name: inner[0]
        for name, field in RunConfig.model_fields.items()
        if (inner := models(field.annotation))
    }
    plain = RunConfig.model_fields.keys() - sections.keys()
    top = [row for row in rows(RunConfig, "", said) if row.split("`")[1] in plain]
    parts.append(_section("The run", inspect.getdoc(RunConfig), top))
    for name, model in sections.items():
        many = {"tasks": "NAME.", "detectors": "NAME."}.get(name, "")
        keys = schema.DetectorConfig if model is schema.DetectorsConfig else model
        parts.append(_section(name, inspect.getdoc(model), list(rows(keys, f"{name}.{many}", said))))
        if keys is not model:
            parts.append("".join(f"{line}\n" for line in detectors()))
    return "\n".join(parts)


def detectors() -> Iterator[str]:
    """The table of each detector's own defaults."""
    yield f"| detector | {' | '.join(DETECTOR_COLUMNS)} |"
    yield "|---" * (1 + len(DETECTOR_COLUMNS)) + "|"
    for name, row in RunConfig.model_fields["detectors"].default:
        yield f"| `{name}` | {' | '.join(str(getattr(row, column)) for column in DETECTOR_COLUMNS)} |"


def _section(title: str, about: str | None, found: list[str]) -> str:
    table = "\n".join(["| key | default | | |", "|---|---|---|---|", *found])
    return f"## {title}\n\n{' '.join((about or '').split())}\n\n{table}\n"


if __name__ == "__main__":
    sys.stdout.write(page())
