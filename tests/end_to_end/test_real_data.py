"""From local files in the public data sets' own schemas to training steps: no hub, real verifiers, real sandbox."""

import json
from pathlib import Path

import pytest

from prorl.cluster.estimate import data_findings
from prorl.config.recipe import load_recipe
from prorl.control.events import Stepped
from support.commands import done, refused, tables
from support.data_rows import ROWS, USABLE, write_jsonl, write_parquet
from support.runs import of_kind

TRAINED = ("deepscaler", "eurus2_code", "webinstruct_verified", "nemotron_mcqa", "nemotron_instructions")
VALIDATED = tuple(n for n in ("aime24", "humaneval_plus", "gpqa_diamond", "ifeval") if n in USABLE)


@pytest.fixture
def recipe(workplace: Path, write_recipe) -> Path:
    """Five training sets and four evaluation sets; too few rows for validations by domain."""
    tasks = {name: {"path": write_jsonl(workplace / f"{name}.jsonl", ROWS[name])} for name in TRAINED[1:]}
    tasks |= {name: {"path": write_jsonl(workplace / f"{name}.jsonl", ROWS[name])} for name in VALIDATED}
    tasks["deepscaler"] = {"path": write_parquet(workplace / "deepscaler.parquet", ROWS["deepscaler"])}
    own = [{"q": f"How many corners have {n} squares?", "gold": str(4 * n)} for n in range(1, 9)]
    tasks["corners"] = {
        "kind": "math",
        "path": write_jsonl(workplace / "own.jsonl", own),
        "columns": {"prompt": "q", "answer": "gold"},
    }
    return write_recipe(
        workplace,
        "wide",
        tasks=tasks,
        data="prepared",
        sampling={"prompts_per_step": 8, "samples_per_prompt": 2, "response_limit": 16},
        validation={"every": 0},
        reset={"every": 2, "cooldown": 0},
        evaluation={"per_domain": 0, "ood_per_domain": 0},
    )


def test_a_run_over_local_files_of_the_real_schemas(recipe):
    said = refused("train", recipe, "tasks.deepscaler.path=null")
    assert f"not prepared in {recipe.parent / 'prepared'} as this recipe asks" in said
    assert "yes" in done("data", "prepare", recipe)
    assert "yes" not in done("data", "prepare", recipe)
    for path in recipe.parent.glob("prepared/*"):
        path.unlink()

    done("train", recipe)  # prepares what lies in files itself
    assert "yes" not in done("data", "prepare", recipe)
    run = recipe.parent / "runs" / "tiny"
    steps = of_kind(run, Stepped)
    assert [step.update.updates for step in steps] == [1, 1, 1]
    assert all(step.rollout_stats.errors == 0 for step in steps)
    asked = [
        json.loads(line)["task"]
        for path in (run / "samples").iterdir()
        for line in path.read_text().splitlines()
    ]
    assert set(asked) <= {*TRAINED, "corners"}
    assert len(set(asked)) >= 4


def test_what_was_prepared_and_dropped_is_one_json_document(workplace, write_recipe):
    bad = [{"problem": "x?", "answer": ""}, {"problem": "y?", "answer": ""}, {"problem": "", "answer": 1}]
    path = write_jsonl(workplace / "rows.jsonl", [*ROWS["deepscaler"], *bad])
    recipe = write_recipe(workplace, "wide", tasks={"deepscaler": {"path": path}}, data="prepared")
    for redone in ("yes", "no"):
        kept, dropped = tables("data", "prepare", recipe)
        (row,) = kept["rows"]
        assert sum(row.pop(split) for split in ("train", "validation", "test")) == 60
        assert row == {"data set": "deepscaler", "rows": 63, "dropped": 3, "redone": redone}
        assert kept["notes"] == [
            "no evaluation set is listed: overlap with them was not looked for",
            f"prepared in {recipe.parent / 'prepared'}",
        ]
        assert [list(row.values()) for row in dropped["rows"]] == [
            ["deepscaler", "no answer", 2, "row 61, {'prompt': 'x?', 'answer': ''}"],
            ["deepscaler", "no prompt", 1, "row 63, {'prompt': '', 'answer': 1}"],
        ]
    assert tables("data", "prepare", "nano")[0]["rows"] == []


def test_a_dry_run_lists_the_data_and_where_it_comes_from(recipe):
    said = done("train", recipe, "--dry-run")
    assert "deepscaler.parquet; 40,315 rows as published; licence MIT; not prepared" in said
    assert f"# data, prepared into {recipe.parent / 'prepared'} by `prorl data prepare`:" in said


def test_the_doctor_of_a_cluster_says_whether_the_data_are_prepared(recipe):
    config = load_recipe(str(recipe))
    (missing,) = data_findings(config, str(recipe))
    assert not missing.works
    folder = recipe.parent / "prepared"
    assert (
        f"not prepared in {folder} as this recipe asks: `prorl data prepare {recipe}` first" in missing.detail
    )
    done("data", "prepare", recipe)
    (found,) = data_findings(config, str(recipe))
    assert found.works
    assert found.detail == f"{len(TRAINED) + len(VALIDATED) + 1} data sets, prepared in {folder}"


def test_tasks_of_prepared_data_keep_their_promises(recipe):
    done("data", "prepare", recipe)
    said = done("tasks", "check", "--recipe", recipe, "--problems", 2)
    for name in (*TRAINED, *VALIDATED, "corners"):
        assert name[:8] in said
