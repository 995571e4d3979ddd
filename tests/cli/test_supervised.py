"""With which commands a trainer is started, and started again, and how long it may take to begin."""

from typer.testing import CliRunner

from prorl.cli import app
from prorl.config.recipe import to_json
from prorl.run import supervise
from prorl.run.store import RunStore
from support.recipes import recipe


def started(monkeypatch, *arguments):
    """The commands of the first trainer and of those after it, without the interpreter; seconds to take a run up."""
    commands = []

    class Supervisor:
        def __init__(self, first, again, folder, *, say, patience):
            commands.extend((first[3:], again[3:], patience.taking_up))

        def run(self):
            return 0

    monkeypatch.setattr(supervise, "Supervisor", Supervisor)
    assert CliRunner().invoke(app, arguments).exit_code == 0
    return commands


def test_a_resume_that_dies_at_once_leaves_its_changes_to_the_next(monkeypatch, tmp_path):
    run, said = str(tmp_path / "run"), ["save.every=1", "cluster.room_deadline=7200"]
    with RunStore.create(tmp_path / "run", to_json(recipe(backend="ray"))):
        pass
    first, again, seconds = started(monkeypatch, "resume", run, *said, "--address", "10.0.0.1:6379")
    assert first == again == ["resume", run, *said, "cluster.address=10.0.0.1:6379", "--no-supervise"]
    assert seconds == 3600 + 7200  # a cluster may have no room for so long


def test_a_training_that_was_saved_goes_on_under_its_own_recipe(monkeypatch, tmp_path):
    first, again, _ = started(monkeypatch, "train", "nano", "steps=2", "--run", str(tmp_path))
    assert first == ["train", "nano", "steps=2", "--run", str(tmp_path), "--no-supervise"]
    assert again == ["resume", str(tmp_path), "--no-supervise"]
