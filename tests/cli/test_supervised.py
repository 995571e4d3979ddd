"""With which commands a trainer is started, and started again."""

from typer.testing import CliRunner

from prorl.cli import app
from prorl.run import supervise


def started(monkeypatch, *arguments):
    """The commands of the first trainer and of those after it, without the interpreter."""
    commands = []

    class Supervisor:
        def __init__(self, first, again, folder, *, say):
            commands.extend((first[3:], again[3:]))

        def run(self):
            return 0

    monkeypatch.setattr(supervise, "Supervisor", Supervisor)
    assert CliRunner().invoke(app, arguments).exit_code == 0
    return commands


def test_a_resume_that_dies_at_once_leaves_its_changes_to_the_next(monkeypatch, tmp_path):
    changes = ["save.every=1", "cluster.address=10.0.0.1:6379"]
    first, again = started(monkeypatch, "resume", str(tmp_path), "save.every=1", "--address", "10.0.0.1:6379")
    assert first == again == ["resume", str(tmp_path), *changes, "--no-supervise"]


def test_a_training_that_was_saved_goes_on_under_its_own_recipe(monkeypatch, tmp_path):
    first, again = started(monkeypatch, "train", "nano", "steps=2", "--run", str(tmp_path))
    assert first == ["train", "nano", "steps=2", "--run", str(tmp_path), "--no-supervise"]
    assert again == ["resume", str(tmp_path), "--no-supervise"]
