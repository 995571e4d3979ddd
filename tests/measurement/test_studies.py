"""Which checkpoint a pattern is told by."""

import pytest

from prorl.evals.study import Study, write_study
from prorl.measurement.studies import between
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
