"""The worked examples of the pages are run."""

import doctest
from pathlib import Path

import pytest

from support.events import stepped

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("page", ["architecture.md", "envs.md"])
def test_the_examples_of_a_page_run(page):
    failed, tried = doctest.testfile(
        str(DOCS / page),
        module_relative=False,
        optionflags=doctest.ELLIPSIS,
        extraglobs={"event": stepped(1)},
    )
    assert failed == 0
    assert tried >= 5
