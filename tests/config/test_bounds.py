"""No number of a recipe is without a bound, and no default stands in two places."""

from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import pytest

from prorl.config.schema import HPARAMS, RunConfig
from prorl.control.plan import Plan
from prorl.types import HParams

SCHEMA = RunConfig.model_json_schema()
UPPER, LOWER = {"maximum", "exclusiveMaximum"}, {"minimum", "exclusiveMinimum"}
LENGTHS = {"string": "maxLength", "array": "maxItems"}


def nodes(node: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of the schema that describes a value, those of unions, lists and mappings among them."""
    if isinstance(node, dict):
        if isinstance(node.get("type"), str):
            yield place, node
        for key, inner in node.items():
            yield from nodes(inner, f"{place}/{key}")
    elif isinstance(node, list):
        for index, inner in enumerate(node):
            yield from nodes(inner, f"{place}/{index}")


NODES = list(nodes(SCHEMA))


def test_every_number_of_the_schema_is_bounded_on_both_sides():
    numbers = {place: node.keys() for place, node in NODES if node["type"] in ("integer", "number")}
    assert len(numbers) > 100
    assert [place for place, keys in numbers.items() if not (UPPER & keys and LOWER & keys)] == []


@pytest.mark.parametrize("kind", LENGTHS)
def test_every_text_and_list_of_the_schema_has_a_longest(kind):
    found = {place: node.keys() for place, node in NODES if node["type"] == kind}
    assert found
    endless = [place for place, keys in found.items() if not {LENGTHS[kind], "enum", "const"} & keys]
    assert [place for place in endless if not place.endswith("propertyNames")] == []


def test_a_default_of_the_recipe_stands_nowhere_else():
    sections = {name: set(node.get("properties", {})) for name, node in SCHEMA["$defs"].items()}
    keys = set(SCHEMA["properties"]).union(*sections.values(), HPARAMS.values())
    repeated = [
        (record.__name__, field.name)
        for record in (HParams, Plan)
        for field in fields(record)
        if field.name in keys and (field.default, field.default_factory) != (MISSING, MISSING)
    ]
    assert repeated == []
