"""Which runs there are, and that a name from the network never becomes a path."""

import pytest

from prorl.lab.dashboard.pages import find_runs
from prorl.run.store import RunStore


@pytest.fixture
def root(tmp_path):
    for name in ("a", "group/b", "deep/er/c"):
        RunStore.create(tmp_path / "runs" / name, {"steps": 1})
    RunStore.create(tmp_path / "outside", {"steps": 1})
    return tmp_path / "runs"


def test_runs_lie_in_the_folder_or_one_level_below(root):
    assert find_runs(root) == {"a": root / "a", "group/b": root / "group" / "b"}


def test_a_folder_that_is_a_run_is_the_only_one(root):
    assert find_runs(root / "a") == {"a": root / "a"}


def test_a_link_out_of_the_folder_is_no_run_of_it(root):
    (root / "link").symlink_to(root.parent / "outside")
    (root / "alias").symlink_to(root / "a")
    assert "link" not in find_runs(root)
    assert "alias" in find_runs(root)


def test_the_folder_itself_may_be_a_link(root):
    (root.parent / "shown").symlink_to(root)
    assert set(find_runs(root.parent / "shown")) == {"a", "group/b"}


def test_an_empty_or_missing_folder_holds_none(tmp_path):
    assert find_runs(tmp_path) == find_runs(tmp_path / "nowhere") == {}
