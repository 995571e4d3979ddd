"""What a recipe may say about detectors."""

import pytest

from prorl.config.recipe import RecipeError, load_recipe
from prorl.control.plan import make_plan
from support.defaults import some_detectors
from support.recipes import recipe


def test_a_row_that_is_named_in_part_keeps_the_rest_of_its_defaults():
    row = recipe(detectors={"length_blowup": {"mode": "act"}}).detectors.length_blowup
    default = recipe().detectors.length_blowup
    assert row == default.model_copy(update={"mode": "act"})


def test_the_plan_has_the_detectors_that_are_on():
    plan = make_plan(recipe(detectors={"kl_spike": {"mode": "off"}, "no_signal": {"cooldown": 7}}))
    assert plan.detectors.keys() == some_detectors().keys() - {"kl_spike"}
    assert plan.detectors["no_signal"].cooldown == 7


def test_every_detector_has_an_action_of_its_own_to_turn_on():
    every = some_detectors(**{name: {"mode": "act"} for name in some_detectors()})
    assert all(rule.action != "warn" for rule in every.values())


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ({"kl_spik": {}}, "unknown key 'detectors.kl_spik': did you mean 'detectors.kl_spike'?"),
        ({"kl_spike": {"treshold": 3}}, "did you mean 'detectors.kl_spike.threshold'?"),
        ({"kl_spike": {"mode": "panic"}}, "detectors.kl_spike.mode"),
        ({"kl_spike": {"hits": 4}}, "hits (4) is above of_last (3)"),
        ({"kl_spike": {"of_last": 17}}, "detectors.kl_spike.of_last"),
        ({"kl_spike": {"cooldown": 0}}, "detectors.kl_spike.cooldown"),
        ({"kl_spike": {"factor": 1.5}}, "detectors.kl_spike.factor"),
        ({"kl_spike": {"mode": "act", "action": "warn"}}, "mode: act needs an action"),
        ({"kl_spike": {"rearm": 9}}, "detectors.kl_spike: rearm (9) is above its threshold (8)"),
        ({"no_signal": {"rearm": 0}}, "detectors.no_signal: rearm (0) is below its threshold (0.01)"),
        ({"kl_spike": "off"}, "detectors.kl_spike"),
    ],
)
def test_nonsense_is_one_sentence(rows, told):
    with pytest.raises(RecipeError) as error:
        recipe(detectors=rows)
    assert told in str(error.value)


def test_without_a_penalty_no_detector_resets_the_reference():
    off = {"kl": {"coef": 0}, "reset": {"every": 0}}
    with pytest.raises(RecipeError, match="give it another action"):
        make_plan(recipe(detectors={"kl_spike": {"mode": "act"}}, **off))
    assert make_plan(recipe(detectors={"kl_spike": {"mode": "warn"}}, **off))


def test_an_override_reaches_a_row():
    config = load_recipe(
        "nano", ["detectors.entropy_collapse.mode=act", "detectors.entropy_collapse.action=stop"]
    )
    row = config.detectors.entropy_collapse
    assert (row.mode, row.action, row.threshold) == ("act", "stop", 0.02)
