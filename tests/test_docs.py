"""The worked examples of the pages are run."""

import doctest
from pathlib import Path

import pytest

from support import key_reference
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


def test_the_page_of_all_keys_is_that_of_the_schema():
    assert key_reference.PAGE.read_text() == key_reference.page(), (
        "PYTHONPATH=tests python -m support.key_reference > docs/keys.md"
    )
