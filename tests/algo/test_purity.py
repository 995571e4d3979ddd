"""The folder's contract: every idea imports nothing from prorl, and torch or numpy only where arrays are the data."""

import ast
import sys
from pathlib import Path

import pytest

import prorl.algo

FILES = sorted(path for path in Path(prorl.algo.__file__).parent.glob("*.py") if path.name != "__init__.py")
THIRD_PARTY = {
    "clip_higher": {"torch"},
    "forecast": {"numpy"},
    "kl_to_reference": {"torch"},
    "mismatch_correction": {"torch"},
}


def imported_packages(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return {name if name.startswith(".") else name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_idea_imports_only_what_it_may(path):
    packages = imported_packages(path.read_text(encoding="utf-8"))
    assert packages - set(sys.stdlib_module_names) == THIRD_PARTY.get(path.stem, set())
