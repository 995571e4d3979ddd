"""The worked examples of the pages are run."""

import doctest
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from prorl.config.recipe import load_recipe
from prorl.control.plan import make_plan
from support import key_reference
from support.events import stepped
from support.own_tasks import REVERSE_WORDS

DOCS = Path(__file__).parents[1] / "docs"
README = DOCS.parent / "README.md"
VERIFIERS = "## Environments of `verifiers`\n"  # of envs.md; its examples need that extra


@pytest.mark.parametrize("page", ["architecture.md", "envs.md"])
def test_the_examples_of_a_page_run(page):
    text = (DOCS / page).read_text()
    if find_spec("verifiers") is None:
        text, _, _ = text.partition(VERIFIERS)
    names = {"__name__": "__main__", "event": stepped(1)}
    found = doctest.DocTestParser().get_doctest(text, names, page, str(DOCS / page), 0)
    failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found)
    assert failed == 0
    assert tried >= 5


def test_the_recipe_of_the_readme_is_one(tmp_path):
    (text,) = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "my_recipe.yaml").write_text(text)
    (tmp_path / "my_tasks.py").write_text(REVERSE_WORDS)
    (tmp_path / "my_rewards.py").write_text("def score(response, row, gold): return 1.0\n")
    (tmp_path / "rows.jsonl").write_text('{"question": "How far is 3 m twice?", "answer": "6 m"}\n')
    config = load_recipe(str(tmp_path / "my_recipe.yaml"))
    assert list(make_plan(config).levels) == ["countdown"]
    assert {name for name, task in config.tasks.items() if task.grade or task.kind} == {"physics", "capitals"}


def test_the_page_of_all_keys_is_that_of_the_schema():
    assert key_reference.PAGE.read_text() == key_reference.page(), (
        "PYTHONPATH=tests python -m support.key_reference > docs/keys.md"
    )
