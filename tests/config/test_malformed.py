"""Every key of a recipe with every kind of wrong value: one sentence, status 1, and nothing left on disk."""

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from prorl.config.recipe import RecipeError, check
from prorl.config.schema import RunConfig
from support.commands import refused, tree

SCHEMA = RunConfig.model_json_schema()
BASE: dict[str, Any] = {
    "name": "r",
    "model": {"path": "no/such/model"},
    "tasks": {"arithmetic": {}},
    "sampling": {"response_limit": 16},
}
WRONG: dict[str, list[Any]] = {
    "integer": ["text", True, 1.5, [1], {"a": 1}, b"\xff", math.nan, math.inf, 10**30, -(10**30), "1"],
    "number": ["text", True, [1], {"a": 1}, b"\xff", math.nan, math.inf, 1e300, -1e300, "1"],
    "string": [True, 7, 0.5, [1], {"a": 1}, b"\xff", "x" * 100_000],
    "boolean": ["perhaps", 1, 0.0, [True], {"a": 1}, b"\xff"],
    "array": ["text", True, 7, 0.5, b"\xff", ["text"], [None], [1e300, 1e300, 1e300]],
}


def leaves(node: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Path of every key, and values that it cannot have."""
    nullable = {"type": "null"} in node.get("anyOf", ())
    choices = [
        choice for choice in node.get("anyOf", node.get("oneOf", [node])) if choice != {"type": "null"}
    ]
    node = choices[0]
    if "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    null = [] if nullable else [None]
    inner = node.get("additionalProperties")
    if "properties" in node:
        yield path, ["text", 7, True, [1], b"\xff"]
        for key, value in node["properties"].items():
            if path != ("detectors",) or key == "kl_spike":  # one row stands for all: they have one schema
                yield from leaves(value, (*path, key))
    elif "enum" in node or "const" in node:
        yield path, ["nonsense", 7, True, [1], {"a": 1}, b"\xff", *null]
    elif node["type"] == "object":
        yield path, ["text", True, 7, 0.5, [1], b"\xff", *null]
        if inner is not True and "$ref" in inner:
            yield from leaves(inner, (*path, "arithmetic"))
        elif inner is not True:
            yield from leaves(inner, (*path, "1"))
    elif node["type"] == "array":
        yield path, [*WRONG["array"], *null]
        if "$ref" in node.get("items", {}):
            yield from leaves(node["items"], (*path, "0"))
    else:
        least = node.get("minimum", node.get("exclusiveMinimum", -math.inf))
        zero = [0] if least > 0 or node.get("exclusiveMinimum") == 0 else []
        below = [least - 1] if least > -math.inf else []
        yield path, [*WRONG[node["type"]], *null, *zero, *below]


FIELDS = [leaf for leaf in leaves(SCHEMA) if leaf[0]]


def malformed(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The smallest recipe with one wrong value."""
    recipe = copy.deepcopy(BASE)
    if path[0] == "stages" and len(path) > 1:
        recipe["stages"] = [{"at": 5}]
    if path[:2] == ("model", "warmup"):
        recipe["model"] = {"warmup": {}}
    place: Any = recipe
    for key in path[:-1]:
        place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
    place[int(path[-1]) if isinstance(place, list) else path[-1]] = value
    return recipe


@pytest.mark.parametrize(("path", "values"), FIELDS, ids=[".".join(path) for path, _ in FIELDS])
def test_a_wrong_value_is_refused_in_one_sentence(tmp_path, monkeypatch, path, values):
    passed: list[Any] = []
    for value in values:
        try:
            check(malformed(path, value), "r")
        except RecipeError as error:
            if ".".join(path) in str(error) and len(str(error)) < 1000:
                continue
        passed.append(value)
    assert passed == []
    # One of them, another for every key, through the command itself.
    monkeypatch.chdir(tmp_path)
    value = values[len("".join(path)) % len(values)]
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(malformed(path, value), allow_unicode=True))
    text = refused("train", "r.yaml", "--dry-run")
    assert len(text) < 1000
    assert set(tree(tmp_path)) == {"r.yaml"}


def test_the_table_is_long():
    assert sum(len(values) for _, values in FIELDS) > 1000
