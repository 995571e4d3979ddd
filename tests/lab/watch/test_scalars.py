"""What TensorBoard is given."""

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from prorl.control.state import RunState
from prorl.lab.watch.scalars import Scalars
from support.events import blind, stepped


def test_what_was_not_measured_is_no_point(tmp_path):
    scalars = Scalars(tmp_path)
    for event in (stepped(1), blind(2), stepped(3)):
        scalars(event, RunState(step=event.step))
    scalars.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    steps = {name: [point.step for point in read.Scalars(name)] for name in read.Tags()["scalars"]}
    measured = (
        "policy/entropy",
        "policy/kl",
        "policy/grad_norm",
        "policy/loss",
        "train/score",
        "train/length",
    )
    assert [steps[name] for name in measured] == [[1, 3]] * len(measured)
    assert steps["train/informative_share"] == [1, 3]
    assert steps["knobs/learning_rate"] == [1, 2, 3]
