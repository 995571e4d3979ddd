"""The family tree of a run's references."""

import shutil

import pytest

from prorl.control.events import Resumed, Started, to_record
from prorl.run.lineage import branches, condition, references, tree
from prorl.run.store import RunStore
from support.events import reset, stepped

EVENTS = [
    Started(config_hash="c", reference_hash="aaaa"),
    stepped(1),
    reset(2, hash="bbbb"),
    Resumed(step=2, config_hash="d", branched_from="nano@2"),
    reset(5, name="ref_002", parent="ref_001", reason="stage", optimizer="clear", hash="cccc"),
    Resumed(step=5, config_hash="d"),
]


def test_every_reference_is_told_with_birth_reason_parent_and_optimizer():
    assert [(one.name, one.step, one.reason, one.parent, one.optimizer) for one in references(EVENTS)] == [
        ("ref_000", 0, "start", None, "new"),
        ("ref_001", 2, "schedule", "ref_000", "keep"),
        ("ref_002", 5, "stage", "ref_001", "clear"),
    ]


def test_a_run_without_penalty_has_none():
    assert references([Started(config_hash="c", reference_hash=None), stepped(1)]) == []


def test_the_runs_it_branched_from():
    assert branches(EVENTS) == ["nano@2"]


def test_the_tree_hangs_children_below_parents():
    born = references(EVENTS)
    lines = list(tree(born, {one.name: "stored" for one in born}))
    assert [line.index("ref_") for line in lines] == [0, 3, 6]
    assert "born at step 5 (stage) from the policy of step 5, optimizer clear, hash cccc, stored" in lines[2]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: None, "stored"),
        (lambda path: (path / "model").unlink(), "damaged"),
        (shutil.rmtree, "deleted"),
    ],
)
def test_the_condition_of_what_is_stored(tmp_path, harm, said):
    with RunStore.create(tmp_path / "run", {}) as store:
        digest = store.write_reference("ref_000", lambda folder: (folder / "model").write_text("w"))
        store.journal.append(to_record(Started(config_hash="c", reference_hash=digest)))
    (born,) = references([Started(config_hash="c", reference_hash=digest)])
    harm(tmp_path / "run" / "references" / "ref_000")
    assert condition(tmp_path / "run", born) == said
