"""Every recipe in recipes/: it loads, plans and dry-runs, says nothing twice, and is what its name says."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from prorl.cluster.estimate import dry_run
from prorl.config.recipe import RecipeError, check, differences, load_recipe, merge, to_json
from prorl.control.plan import hparams_at, make_plan
from prorl.envs.datasets.catalogue import SOURCES
from prorl.envs.families.gym import HELD_OUT_9
from prorl.envs.registry import make_task

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "recipes").glob("*.yaml"))
NAMES = [path.stem for path in FILES]
CLIMBS = {"frontier", "frontier_long", "without_adaptive_levels"}  # of one task
FIVE = {"math", "code", "stem", "logic", "instruct"}
RESETS_OFF = {"reset.every": 0, "reset.kl_ceiling": None, "reset.stalled_validations": 0}
ABLATIONS: dict[str, dict[str, Any]] = {
    "without_cosine_length_penalty": {"length_penalty.weight": 0},
    "without_truncation": {"truncation.scale": 1},
    "without_dynamic_sampling": {"dynamic_sampling.min_spread": 0},
    "without_reinforce_baseline": {"advantage.level": "group"},
    "without_clip_higher": {"clip.high": 0.2},
    "without_kl_to_reference": {"kl.coef": 0, **RESETS_OFF},
    "without_reference_reset": RESETS_OFF,
}
PLAIN = {
    key: value
    for name, values in ABLATIONS.items()
    for key, value in values.items()
    if name != "without_clip_higher"
}


def loaded(path: Path) -> dict[str, Any]:
    data = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(data, dict)
    return data


def changes(name: str, parent: str) -> dict[str, Any]:
    """Dotted keys on which a recipe differs from another one, with its own values."""
    mine, theirs = to_json(load_recipe(name)), to_json(load_recipe(parent))
    keys = [difference.split(": ")[0] for difference in differences(mine, theirs)]
    return {key: value_at(mine, key) for key in keys if key != "name"}


def value_at(data: dict[str, Any], key: str) -> Any:
    for part in key.split("."):
        data = data[part]
    return data


def leaves(data: dict[str, Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


def without(data: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    """A copy that lacks one leaf."""
    key, *rest = path
    if not rest:
        return {other: value for other, value in data.items() if other != key}
    return data | {key: without(data[key], tuple(rest))}


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_can_be_tried_dry(name):
    described = dry_run(load_recipe(name))
    assert f"name: {name}\n" in described
    comments = "".join(line for line in described.splitlines() if line.startswith("# "))
    assert "the run trains on at most" in comments
    assert "the model has" in comments
    assert "disk:" in comments


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_what_a_dry_run_prints_is_a_recipe(name, full):
    config = load_recipe(name)
    assert check(yaml.safe_load(dry_run(config, full=full)), name) == config


@pytest.mark.parametrize("name", [name for name in NAMES if name not in CLIMBS])
def test_every_recipe_trains_five_domains_and_holds_families_out(name):
    tasks = load_recipe(name).tasks
    trained = {SOURCES[task].domain for task in tasks if task in SOURCES and SOURCES[task].use == "train"}
    procedural = {task: make_task(task) for task in tasks if task not in SOURCES}
    held_out = {name for name, task in procedural.items() if "train" not in task.splits}
    trained |= {task.domain for name, task in procedural.items() if name not in held_out}
    assert trained == FIVE
    assert held_out in ({"box_pushing", "blicket"}, set(HELD_OUT_9))


def resolved(data: dict[str, Any], parent: DictConfig) -> dict[str, Any] | None:
    """What a file's settings on top of its parent's come to; None where they are no recipe."""
    settings = OmegaConf.to_container(merge(parent, OmegaConf.create(data), "r"))
    assert isinstance(settings, dict)
    try:
        return to_json(check(settings | {"name": "r"}, "r"))
    except RecipeError:
        return None


def raw(name: str) -> DictConfig:
    """The settings of a recipe and its ancestors, before any default."""
    data = loaded(ROOT / "recipes" / f"{name}.yaml")
    parent = data.pop("extends", None)
    merged = OmegaConf.merge(raw(parent) if parent else {}, data)
    assert isinstance(merged, DictConfig)
    return merged


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_recipe_says_nothing_that_would_hold_anyway(path):
    data = loaded(path)
    extends = data.pop("extends", None)
    parent = raw(extends) if extends else OmegaConf.create({})
    whole = resolved(data, parent)
    # Weights mean something only beside each other, so a mixture is written out. A mixture of many tasks repeats
    # itself, so one of each kind is tried.
    tried = {
        (leaf[0], leaf[2:]) if leaf[0] == "tasks" else leaf: leaf
        for leaf in leaves(data)
        if (leaf[0], leaf[-1]) != ("tasks", "weight")
    }
    assert [leaf for leaf in tried.values() if resolved(without(data, leaf), parent) == whole] == []


def changed_by_stages(plan):
    return [{name for name in after if after[name] != b[name]} for b, after in pairwise(plan.settings)]


@pytest.mark.parametrize("name", NAMES)
def test_every_stage_changes_all_that_it_names(name):
    config = load_recipe(name)
    for stage, changed in zip(config.stages, changed_by_stages(make_plan(config)), strict=True):
        assert len(changed) == len(stage.set) + bool(stage.mixture)
        assert changed or stage.reset_reference


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_is_nano_less_one_idea(name):
    assert changes(name, "nano") == ABLATIONS[name]


def test_every_idea_has_a_recipe_without_it_or_with_it():
    apart = {"without_adaptive_levels", "with_pass_at_k"}
    assert {name for name in NAMES if name.startswith("with")} == ABLATIONS.keys() | apart
    assert changes("without_adaptive_levels", "frontier") == {"tasks.operator_chain.adaptive": None}
    assert changes("with_pass_at_k", "nano") == {"advantage.pass_at_k": 2}


def test_the_controls_have_every_idea_off_but_the_wider_clip():
    assert changes("nano_grpo_plain", "nano") == PLAIN
    assert changes("grpo_plain", "prorl_v2") == PLAIN | {
        "mismatch.kind": "none",
        "detectors.mismatch.mode": "warn",  # or it would be corrected once the engine errs
    }
    assert load_recipe("grpo_plain").clip.high == 0.28


def test_the_long_demo_differs_in_cadence_only():
    config = load_recipe("nano_long")
    sections = {key.split(".")[0] for key in changes("nano_long", "nano")}
    assert sections <= {"steps", "reset", "length_penalty", "validation", "save"}
    assert (config.steps, config.reset.every) == (3000, 250)
    assert (config.length_penalty.on_steps, config.length_penalty.off_steps) == (100, 500)


def test_prorl_v2_is_as_published():
    config = load_recipe("prorl_v2")
    hparams = hparams_at(make_plan(config), 0)
    assert (config.steps, hparams.samples_per_prompt, hparams.response_limit) == (3000, 16, 8192)
    assert (hparams.clip_low, hparams.clip_high) == (0.2, 0.28)
    assert (hparams.kl_estimator, hparams.kl_coef) == ("k2", 1e-4)
    assert (config.reset.every, config.reset.optimizer, config.reset.target) == (250, "keep", "current")
    assert config.reset.kl_ceiling
    assert config.reset.stalled_validations
    assert (config.length_penalty.on_steps, config.length_penalty.off_steps) == (100, 500)


def test_the_eight_runs_of_prorl_v1_are_stages():
    plan = make_plan(load_recipe("prorl_v1"))
    runs = [hparams_at(plan, stage.at) for stage in plan.config.stages]
    assert [run.samples_per_prompt for run in runs] == [16, 16, 16, 16, 16, 32, 32, 16]
    assert [run.response_limit for run in runs] == [8192] * 7 + [16384]
    assert [run.truncated_scale for run in runs] == [1, 1, 1, 0, 0, 0, 0, 0]
    assert [run.mixture["nemotron_instructions"] > 0 for run in runs] == [False, False, *[True] * 6]
    same = {(run.clip_high, run.temperature, run.updates_per_step, run.length_weight) for run in runs}
    assert same == {(0.4, 1.2, 4, 0.0)}
    assert [stage.reset_reference for stage in plan.config.stages] == [False, *[True] * 7]
    assert {stage.optimizer for stage in plan.config.stages[1:]} == {plan.config.reset.optimizer} == {"clear"}
    assert plan.config.steps - plan.config.stages[-1].at == 200


def test_the_stages_of_v1_are_tried_at_the_size_of_the_demo():
    large, small = (make_plan(load_recipe(name)) for name in ("prorl_v1", "nano_stages"))
    first, large_first = hparams_at(small, 0), hparams_at(large, 0)
    assert changed_by_stages(small) == changed_by_stages(large)
    for mine, theirs in zip(small.config.stages, large.config.stages, strict=True):
        assert (mine.reset_reference, mine.optimizer) == (theirs.reset_reference, theirs.optimizer)
        assert mine.at / small.config.steps == pytest.approx(theirs.at / large.config.steps, abs=0.02)
        few, many = (hparams_at(*pair).samples_per_prompt for pair in ((small, mine.at), (large, theirs.at)))
        assert few / first.samples_per_prompt == many / large_first.samples_per_prompt
    assert hparams_at(small, 319).response_limit == 2 * first.response_limit
    assert first.clip_high == large_first.clip_high
    assert first.advantage_level == large_first.advantage_level == "group"


def test_brorl_samples_eight_times_as_much_and_steps_as_much_further():
    broad, base = (hparams_at(make_plan(load_recipe(name)), 0) for name in ("brorl", "prorl_v2"))
    assert (broad.samples_per_prompt, broad.prompts_per_step, broad.response_limit) == (512, 128, 16384)
    rollouts = [hparams.samples_per_prompt * hparams.prompts_per_step for hparams in (broad, base)]
    ratio = rollouts[0] / rollouts[1]
    assert ratio == 8
    assert broad.learning_rate / base.learning_rate == pytest.approx(ratio**0.5, rel=1e-2)


@pytest.mark.parametrize("page", ["docs/method.md", "README.md"])
def test_recipes_that_the_documents_name_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:without_|with_|nano|prorl_v|grpo_|brorl)\w*)`", text))
    assert named
    assert named <= set(NAMES)
