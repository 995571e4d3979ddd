"""Which checkpoint a pattern is told by, and what a study may not take from a run."""

import pytest
from prorl.lab.measurement.sources import Source
from prorl.lab.measurement.studies import _require_free_gpus, between

from prorl.config.recipe import load_recipe, to_json
from prorl.envs.errors import ProrlError
from prorl.lab.evals.measure import Subject
from prorl.lab.evals.study import Study, write_study
from prorl.run.store import RunStore
from support.studies import results, study


def checkpoint(step: int) -> Study:
    return study(f"step_{step:06d}", results([1]), step=step)


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (0, 400, 100),  # as near to half as 300: the earlier one
        (0, 300, 100),
        (100, 400, 300),
        (100, 300, None),
        (300, 400, None),
        (None, 400, None),  # from a model from elsewhere no way leads here
    ],
)
def test_the_checkpoint_between_lies_on_the_way(tmp_path, start, end, found):
    for step in (100, 300, 400):
        write_study(tmp_path / f"step_{step:06d}.parquet", checkpoint(step))
    write_study(tmp_path / "step_final.parquet", study("step_final", results([1])))
    base = study("base", results([1]), step=start)
    chosen = between(tmp_path, base, checkpoint(end))
    assert (None if chosen is None else chosen.step) == found


ON_GPUS = ["backend=ray", "device=cuda"]


@pytest.mark.parametrize(
    "harmless",
    [["backend=local", "device=cuda"], ["backend=ray", "device=cpu"], [*ON_GPUS, "cluster.address=auto"]],
)
def test_a_study_does_not_take_the_gpus_of_a_run_that_trains(tmp_path, harmless):
    config = load_recipe("nano", ON_GPUS)
    with RunStore.create(tmp_path / "run", to_json(config)) as run:
        source = Source(subject=Subject(model="step_000004", step=4), model="", run=run)
        _require_free_gpus(source, load_recipe("nano", harmless))
        with pytest.raises(ProrlError, match=r"is being trained.*--address"):
            _require_free_gpus(source, config)
    _require_free_gpus(source, config)
