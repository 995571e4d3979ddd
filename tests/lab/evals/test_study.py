"""What a study leaves behind comes back as it was, and damage is said in a sentence."""

import pytest

from prorl.envs.files import StorageError
from prorl.lab.evals.evaluation_store import SLIM, Study, read_study, write_study
from prorl.rollout.validation import Kept, ProblemResult, Vote

KEPT = Kept(sample=3, text="<answer>7</answer>", tokens=9, finish="stop", score=1.0, status="ok", note="")
PROBLEM = ProblemResult(
    task="countdown",
    domain="logic",
    part="ladder",
    level=4,
    index=17,
    prompt="Reach 24 with 4, 6.",
    samples=16,
    solved=3,
    unanswered=2,
    truncated=1,
    errors=0,
    length=21.5,
    votes=(
        Vote(answer="7", count=3, solved=True),
        Vote(answer="\ud800 odd".encode("utf-8", "replace").decode(), count=2, solved=False),
    ),
    kept=(KEPT,),
)
STUDY = Study(model="step_000320", step=320, samples=16, seconds=12.5, problems=(PROBLEM,))


def test_a_study_comes_back_as_it_was(tmp_path):
    write_study(tmp_path / "s.parquet", STUDY)
    assert read_study(tmp_path / "s.parquet") == STUDY


def test_counts_can_be_read_without_the_texts(tmp_path):
    write_study(tmp_path / "s.parquet", STUDY)
    (problem,) = read_study(tmp_path / "s.parquet", columns=SLIM).problems
    assert (problem.solved, problem.votes, problem.kept) == (3, (), ())


def test_a_study_without_a_problem_is_one(tmp_path):
    empty = Study(model="base", step=0, samples=1, seconds=0.0, problems=())
    write_study(tmp_path / "s.parquet", empty)
    assert read_study(tmp_path / "s.parquet") == empty


@pytest.mark.parametrize("damage", [b"", b"PAR1 is not enough"])
def test_a_damaged_file_is_said_in_a_sentence(tmp_path, damage):
    (tmp_path / "s.parquet").write_bytes(damage)
    with pytest.raises(StorageError, match="measure again"):
        read_study(tmp_path / "s.parquet")


def test_a_file_that_is_no_study_is_said_in_a_sentence(tmp_path):
    with pytest.raises(StorageError, match="cannot be read"):
        read_study(tmp_path / "missing.parquet")
