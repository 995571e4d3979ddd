"""The model card: what it says is what the journal says, and nothing in it can become markup."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

from prorl.config.recipe import check, load_recipe, to_json
from prorl.config.schema import RUNTIME_SECTIONS as SECTIONS
from prorl.control.events import Resumed, Started
from prorl.control.plan import hparams_now, make_plan
from prorl.control.state import RunState
from prorl.lab.export import Exported, model_card
from prorl.lab.results import Pair
from prorl.lab.results import gains as gains_of
from support.events import command, evaluated, intervened, reset, rollout_stats, stepped
from support.stories import STARTED, evaluation, history, result, story

HOSTILE = "<script>alert(1)</script> | [x](javascript:y) `"

MODEL = Exported(
    step=4,
    parameters=1_234_567,
    architecture="qwen3",
    dtype="float32",
    context=256,
    hparams=hparams_now(make_plan(load_recipe("nano")), RunState()),
    chat=True,
    prompt="make 24",
)


def card(events=None, *, name="nano", model=MODEL, overrides=()):
    told = story(history() if events is None else events, name=name)
    return model_card(told, load_recipe("nano", overrides), model)


def measured(base, trained, *, name="measurement", domain="math"):
    """Gains of an evaluation with 4 responses to each of two problems, of which so many passed."""

    def asked(solved, step):
        return evaluation([result(at, number, domain=domain) for at, number in enumerate(solved)], step=step)

    pair = Pair(evaluation=name, base=asked(base, None), trained=asked(trained, 4))
    return tuple(gains_of(pair))


@pytest.mark.parametrize(
    ("chat", "system", "asked"),
    [
        (True, "Be brief.", '[{"role": "system", "content": \'Be brief.\'}, {"role": "user"'),
        (True, "", '[{"role": "user"'),
        (False, "Be brief.", "tokenizer('Be brief.\\n' + prompt + \"\\n\""),
        (False, "", 'tokenizer(prompt + "\\n"'),
    ],
)
def test_the_example_asks_as_training_did(chat, system, asked):
    """With the recipe's system prompt, if any: as `ChatRenderer` puts it, with a template and without."""
    code = block(card(overrides=[f"system_prompt='{system}'"], model=replace(MODEL, chat=chat)), "python")
    assert asked in code
    assert ("apply_chat_template" in code) is chat


def block(text, language):
    return re.search(rf"^(`+){language}\n(.*?)\n\1$", text, re.DOTALL | re.MULTILINE)[2]


def front(text):
    return yaml.safe_load(text.split("---\n")[1])


def test_what_was_never_trained_is_not_named_as_trained():
    (summary,) = (line for line in card().splitlines() if "on these tasks" in line)
    assert "countdown" in summary
    assert "pushing" not in summary
    assert "blicket" not in summary


# -- where the hub looks


def test_the_front_matter_is_what_the_hub_reads_and_names_a_base_that_it_has(tmp_path, monkeypatch):
    assert front(card())["library_name"] == "transformers"
    assert "base_model" not in front(card())  # a tiny base has no name
    overrides = ["model.warmup=null", "model.path=some/base-1.5B"]
    assert front(card(overrides=overrides))["base_model"] == "some/base-1.5B"
    monkeypatch.chdir(tmp_path)
    Path("some/base-1.5B").mkdir(parents=True)  # then it is a directory, which nobody else can look up
    assert "base_model" not in front(card(overrides=overrides))


# -- what the journal says


def test_validations_are_those_of_the_journal():
    events = [
        STARTED,
        evaluated(0, 0.25, response_limit=7),
        evaluated(2, 0.75, domains={"math": 1.0, "code": 0.5}, response_limit=16),
        stepped(4),
        evaluated(4, 0.5, response_limit=16),
    ]
    assert "not comparable" in card(events)  # as they are cut off at other lengths
    lines = card(events).splitlines()
    assert "| domain | step 0 | step 4, the last | step 2, the best |" in lines
    assert "| math | 25.0% | 50.0% | 100.0% |" in lines
    assert "| mean | 25.0% | 50.0% | 75.0% |" in lines


def test_numbers_of_the_run_are_sums_over_its_steps():
    stats = rollout_stats(rollouts=100, sampled_tokens=2_000_000)
    events = [STARTED, *(stepped(step, rollout_stats=stats) for step in (1, 2))]
    assert "200 responses with 4.0M tokens" in card(events)
    assert "1.2M parameters" in card(events)


def test_the_measurement_is_a_row_per_domain_with_all_k():
    text = card(model=replace(MODEL, gains=measured((1, 1), (3, 0))))
    lines = text.splitlines()
    assert "| domain | problems | pass@1 | gain in pass@1 | pass@4 | gain in pass@4 |" in lines
    row = next(line for line in lines if line.startswith("| mean | 2 |"))
    assert row.startswith("| mean | 2 | 25.0% → 37.5% | +12.5 (−25.0 to +50.0) | 100.0% → 50.0% | −50.0 (")
    assert "worse than its base" not in text
    worse = card(model=replace(MODEL, gains=measured((1, 4), (0, 2))))
    assert "worse than its base at pass@1 on the held-out problems of measurement: 62.5% → 25.0%" in worse


def test_references_interventions_and_commands_are_told():
    events = [
        *history(),
        reset(4, name="ref_002", parent="ref_001", reason="kl_ceiling", optimizer="clear"),
        intervened(step=4, detector="reward_hacking"),
        command("set", settings={"kl.coef": 5e-4}),
        Resumed(step=4, config_hash="d", branched_from="other@2"),
    ]
    text = card(events)
    assert "| ref\\_002 | 4 | kl\\_ceiling | ref\\_001 | 4 | clear |" in text
    assert "REWARD\\_HACKING at step 4" in text
    assert "kl.coef=0.0005" in text
    assert "a branch of other@2" in text
    assert "reward hacking reported 1 time:" in text


def test_what_there_was_not_is_said_or_left_out():
    assert "No detector" in card()
    assert "not comparable" not in card()
    assert "Nothing was measured" in card([STARTED, stepped(1)])
    bare = card([Started(config_hash="c", reference_hash=None)])
    assert "ref" not in bare.split("## Training")[1].split("yaml")[0]


@pytest.mark.parametrize("name", ["nano", "nano_stages", "prorl_v2"])
def test_the_recipe_in_the_card_is_the_recipe(name):
    config = load_recipe(name)
    text = block(model_card(story(), config, MODEL), "yaml")
    shown, runtime = check(yaml.safe_load(text), "the card"), set(SECTIONS)
    assert shown.model_dump(exclude=runtime) == config.model_dump(exclude=runtime)
    assert len(text) < len(yaml.safe_dump(to_json(config)))


# -- how it is used


def test_the_instruction_is_part_of_the_prompt_and_shown():
    instruction = "Answer between ``` and ```."
    assert block(card(overrides=[f"instruction='{instruction}'"]), "text") == instruction
    assert "instruction" not in card()


@pytest.mark.parametrize("prompt", ['it\'s\n"two" lines', "```\nfence", "\ud800 half a pair", HOSTILE])
def test_any_prompt_is_a_python_literal(prompt):
    code = block(card(model=replace(MODEL, prompt=prompt)), "python")
    line = next(line for line in code.splitlines() if line.startswith("prompt = "))
    told = {}
    exec(line, told)
    assert told["prompt"] == prompt


# -- whatever a model or an operator wrote


def test_text_from_elsewhere_never_becomes_markup():
    events = [
        *history(),
        intervened(reason=HOSTILE),
        command("note", text=HOSTILE),
        evaluated(4, 0.5, domains={HOSTILE: 0.5}),
        reset(4, name=HOSTILE),
        Resumed(step=4, config_hash="d", branched_from=HOSTILE),
    ]
    gains = measured((1, 1), (2, 2), name=HOSTILE, domain=HOSTILE)
    text = card(events, name=HOSTILE, model=replace(MODEL, prompt=HOSTILE, architecture=HOSTILE, gains=gains))
    body = text.split("---\n", 2)[2]
    tokens = MarkdownIt("commonmark").enable("table").parse(body)
    kinds = [token.type for token in tokens]
    assert "html_block" not in kinds
    inner = [child for token in tokens for child in token.children or ()]
    assert "html_inline" not in {child.type for child in inner}
    links = [child.attrs["href"] for child in inner if child.type == "link_open"]
    assert links == ["prorl_config.json"]
