"""Names lead to tasks, and looking at the list costs no heavy import."""

import subprocess
import sys

import pytest

from prorl.envs.registry import TASKS, make_task, task_names


def test_every_name_makes_the_task_that_bears_it():
    for name in task_names():
        assert make_task(name).name == name == TASKS[name].name


def test_five_domains_are_trained():
    assert {task.domain for task in TASKS.values() if task.levels} == {
        "math",
        "code",
        "stem",
        "logic",
        "instruct",
    }


def test_a_misspelt_name_is_told_the_nearest():
    with pytest.raises(ValueError, match=r"did you mean arithmetic\?"):
        make_task("arithmetik")


def test_a_name_like_no_other_is_told_all():
    with pytest.raises(ValueError, match=r"no task 'zzzz'; there are .*word_list"):
        make_task("zzzz")


def test_level_weights_choose_the_levels():
    task = make_task("list_trace", {3: 1.0})
    assert {task.problem(index, "train").level for index in range(8)} == {3}


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="no level"):
        make_task("list_trace", {9: 1.0})


def test_the_registry_imports_neither_torch_nor_reasoning_gym():
    check = (
        "import sys, prorl.envs.registry, prorl.envs.mixture;"
        "sys.exit(bool({'torch', 'reasoning_gym', 'sympy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
