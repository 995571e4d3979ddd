"""`prorl creativity` on a run with evaluations: its default corpus, corpora of one's own, and what is refused."""

from pathlib import Path

import pytest

from prorl.build import mixture
from prorl.config.recipe import RecipeError, to_json
from prorl.envs.extract import respond
from prorl.lab.creativity import read_creativity, warmup_texts
from prorl.lab.evals.evaluation_store import write_evaluation
from prorl.run.store import RunStore
from support.commands import done, refused, tables
from support.evaluations import evaluation, kept, result
from support.recipes import recipe

CONFIG = recipe(
    model={"warmup": {"steps": 5, "batch_size": 4}},
    sampling={"response_limit": 16},
    tasks={"countdown": {}},
)
NEW = "nobody ever wrote these seven odd words"


def write(path: Path, step: int | None, text: str) -> None:
    problems = [
        result(0, 2, index=index, task="countdown", domain="logic", kept=kept(text)) for index in range(3)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_evaluation(path, evaluation(path.stem, problems, step=step))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose base repeats what it was warmed up on, and whose last checkpoint does not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "runs" / "tiny"
    RunStore.create(folder, to_json(CONFIG))
    shown = max(warmup_texts(CONFIG), key=len)
    for step, text in ((9, shown), (10, NEW)):
        write(folder / "evals" / "evaluation" / f"step_{step:06d}.parquet", step, text)
    write(folder / "evals" / "evaluation" / "base.parquet", 0, shown)
    write(folder / "evals" / "measurement" / "base.parquet", 0, NEW)
    return folder


def test_a_run_is_compared_with_what_its_base_was_warmed_up_on(run):
    (table, *_) = tables("creativity", "tiny")
    assert table["rows"][-1]["gain of step 10"] == {"value": 8.0, "low": 8.0, "high": 8.0}
    text = done("creativity", "tiny")
    assert "base " in text
    assert "+8.00 (+8.00 to +8.00)" in text
    found = read_creativity(run / "evals" / "evaluation" / "creativity.json")
    assert [responses.model for responses in found.models] == ["base", "step_000009", "step_000010"]
    assert {row.model: row.index.mean for row in found.rows if row.domain == "mean"} == {
        "base": 0,
        "step_000009": 0,
        "step_000010": 8,
    }
    assert (found.corpus, found.corpus_documents) == ("the warm-up of its base", 40)


def test_a_evaluation_and_a_corpus_of_ones_own(run, tmp_path):
    (tmp_path / "mine.txt").write_text(f"Before. {NEW.upper()}! Behind.")
    arguments = ("--name", "measurement", "--corpus", "mine.txt", "--longest", "6")
    text = done("creativity", "tiny", *arguments)
    assert "corpus: mine.txt, 12 words, documents: 1" in text
    found = read_creativity(run / "evals" / "measurement" / "creativity.json")
    assert [(row.domain, row.index.mean) for row in found.rows] == [("logic", 0), ("mean", 0)]
    assert found.lengths.longest == 6


def test_files_of_evaluations_side_by_side(run, tmp_path):
    (tmp_path / "mine.txt").write_text(NEW)
    write(tmp_path / "other.parquet", None, NEW)
    base = run / "evals" / "measurement" / "base.parquet"
    text = done("creativity", tmp_path / "other.parquet", base, "--corpus", "mine.txt")
    assert text.index("base ") < text.index("other ")
    assert (tmp_path / "creativity.json").exists()
    said = refused("creativity", tmp_path / "other.parquet")
    assert "lies in no run, so there is no default corpus" in said


def test_what_cannot_be_compared_is_refused_in_a_sentence(run, tmp_path):
    assert "there is no run and no evaluation file nowhere" in refused("creativity", "nowhere")
    assert "has no evaluation mine: it has evaluation, measurement" in refused(
        "creativity", "tiny", "--name", "mine"
    )
    assert "give one run, or files of evaluations" in refused("creativity", "tiny", "tiny")
    assert "choose two lengths" in refused("creativity", "tiny", "--longest", "99")
    assert "there is no corpus missing.txt" in refused("creativity", "tiny", "--corpus", "missing.txt")
    empty = tmp_path / "runs" / "empty"
    RunStore.create(empty, to_json(CONFIG))
    assert "make one first, with `prorl eval`" in refused("creativity", "empty")


# -- the default corpus: what a base is warmed up on, read again without a model


WARMUP = {"steps": 3, "batch_size": 4, "levels": {"arithmetic": {2: 1}}}


def warmed(**settings):
    return recipe(model={"warmup": WARMUP}, sampling={"response_limit": 16}, **settings)


def test_the_warm_up_corpus_is_what_the_warm_up_draws():
    config = warmed()
    problems = mixture(config, config.model.warmup)
    drawn = [problems.problem(draw, "train") for draw in range(12)]
    assert {problem.level for problem in drawn if problem.task == "arithmetic"} == {2}
    settings = config.model.warmup.model_copy(update={"weights": {"arithmetic": 0.0}})
    others = mixture(config, settings)
    assert {others.problem(draw, "train").task for draw in range(12)} == set(config.tasks) - {"arithmetic"}
    texts = warmup_texts(config)
    assert texts[0::2] == [problem.prompt for problem in drawn]
    assert texts[1::2] == [respond(problem.solution.steps, problem.solution.answer) for problem in drawn]


def test_the_warm_up_corpus_follows_the_recipe():
    assert warmup_texts(warmed()) == warmup_texts(warmed(steps=7))
    assert warmup_texts(warmed()) != warmup_texts(warmed(seed=7))


@pytest.mark.parametrize("model", [{"warmup": WARMUP | {"until_loss": 0.1}}, {"path": "from/elsewhere"}])
def test_where_nobody_knows_how_long_the_warm_up_was_there_is_no_corpus(model):
    with pytest.raises(RecipeError, match="name a corpus with --corpus"):
        warmup_texts(recipe(model=model, sampling={"response_limit": 16}))
