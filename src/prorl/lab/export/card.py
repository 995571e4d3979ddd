"""The model card: what an exported model is, what it can do, how it was trained and where it ends; from the journal.

Pure. Whatever comes from elsewhere (reasons, notes, prompts, names) goes through `markdown.py`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from prorl import __version__
from prorl.config.schema import RUNTIME_SECTIONS as SECTIONS
from prorl.config.schema import RunConfig
from prorl.control.events import Evaluated, Intervened, Ordered, StageEntered
from prorl.lab.evals.statistics import MEAN
from prorl.lab.export.markdown import bullets, fenced, plain, table
from prorl.lab.report.gains import Gain
from prorl.run.history import RunHistory, describe

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What the exported files are, as far as the journal does not say."""

    step: int
    parameters: int
    architecture: str
    dtype: str
    context: int | None  # tokens
    temperature: float
    top_p: float
    response_limit: int  # tokens
    chat: bool  # whether the tokenizer has a chat template
    prompt: str  # one that the model was asked in training
    gains: tuple[Gain, ...] = ()


def model_card(story: RunHistory, config: RunConfig, model: Exported) -> str:
    """The whole README.md of an export; `story` ends at the exported step."""
    parts = (
        _front_matter(config),
        f"# {plain(story.name)}, step {model.step}",
        _summary(story, config, model),
        "## Use",
        *_use(config, model),
        "## Results",
        *_results(story, model),
        "## Training",
        *_training(story, config),
        "## Limits",
        bullets(_limits(story, config, model)),
        "## Going on",
        *_going_on(story, config, model),
    )
    return "\n\n".join(parts) + "\n"


def _front_matter(config: RunConfig) -> str:
    data: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["prorl", "reinforcement-learning", "verifiable-rewards"],
    }
    path = config.model.path
    if path is not None and _HUB_ID.fullmatch(path) and not Path(path).exists():
        data["base_model"] = path
    return f"---\n{yaml.safe_dump(data, sort_keys=False)}---"


def _summary(story: RunHistory, config: RunConfig, model: Exported) -> str:
    base = "a tiny base that knew only such tasks" if config.model.path is None else plain(config.model.path)
    return (
        f"A language model of {_amount(model.parameters)} parameters ({plain(model.architecture)}, {model.dtype}), "
        "trained by prolonged reinforcement learning with verifiable rewards (ProRL v2), with prorl "
        f"{__version__}, on these tasks: {plain(', '.join(config.tasks))}. It began as {base}, and is the policy "
        f"after step {model.step} of {config.steps}. Until then "
        f"{story.steps.total('tally.rollouts'):,.0f} responses with "
        f"{_amount(int(story.steps.total('tally.sampled_tokens')))} tokens were sampled and judged by programs."
    )


def _use(config: RunConfig, model: Exported) -> Iterator[str]:
    if config.instruction:
        yield "In training, an empty line and this instruction followed every problem but those of data sets:"
        yield fenced(config.instruction, "text")
    if model.chat:
        asked = (
            "inputs = tokenizer.apply_chat_template(\n"
            '    [{"role": "user", "content": prompt}],\n'
            '    add_generation_prompt=True, return_tensors="pt", return_dict=True,\n'
            ")"
        )
    else:
        asked = 'inputs = tokenizer(prompt + "\\n", return_tensors="pt")  # there is no chat template'
    yield fenced(
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'path = "."  # this folder, or where it was uploaded to\n'
        "tokenizer = AutoTokenizer.from_pretrained(path)\n"
        "model = AutoModelForCausalLM.from_pretrained(path)\n\n"
        f"prompt = {model.prompt!r}\n"
        f"{asked}\n"
        "output = model.generate(**inputs)\n"
        'print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))',
        "python",
    )
    yield (
        f"`generation_config.json` samples as in training: temperature {model.temperature:g}, top-p {model.top_p:g}, "
        f"at most {model.response_limit} tokens. `manifest.json` has the hash of every file."
    )


def _results(story: RunHistory, model: Exported) -> Iterator[str]:
    exams, best = story.of(Evaluated), story.best
    if best is not None:
        yield (
            "pass@1 on held-out problems in the exams during the run. They steer a run (its resets, its best "
            "checkpoint), so they flatter it."
        )
        yield _exam_table(exams[0], exams[-1], best)
    for (study, part, step), gains in groupby(model.gains, lambda gain: (gain.study, gain.part, gain.step)):
        yield (
            f"{plain(f'{study}, {part}')}: base against step {step} on the same problems, which nothing in the run "
            "saw; gains in points with 95 % intervals over problems."
        )
        yield _gain_table(list(gains))
    if best is None and not model.gains:
        yield "Nothing was measured: the run sat no exam and has no study."


def _exam_table(first: Evaluated, last: Evaluated, best: Evaluated) -> str:
    header = ("domain", f"step {first.step}", f"step {last.step}", f"best, step {best.step}")
    rows = [
        (domain, *(_share(exam.domains.get(domain)) for exam in (first, last, best)))
        for domain in dict.fromkeys([*first.domains, *last.domains, *best.domains])
    ]
    return table(header, [*rows, ("mean", _share(first.score), _share(last.score), _share(best.score))])


def _gain_table(gains: Sequence[Gain]) -> str:
    ks = list(dict.fromkeys(gain.k for gain in gains))
    cells = {
        (gain.domain, gain.k): [f"{gain.base:.1%} → {gain.trained:.1%}", _change(gain)] for gain in gains
    }
    problems = {gain.domain: str(gain.problems) for gain in gains}
    return table(
        ("domain", "problems", *(title for k in ks for title in (f"pass@{k}", "gain"))),
        (
            (domain, count, *(cell for k in ks for cell in cells[domain, k]))
            for domain, count in problems.items()
        ),
    )


def _change(gain: Gain) -> str:
    low, high = gain.interval
    return f"{100 * (gain.trained - gain.base):+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def _training(story: RunHistory, config: RunConfig) -> Iterator[str]:
    yield (
        "The recipe, as far as it differs from the defaults; [prorl_config.json](prorl_config.json) has every key."
    )
    settings = config.model_dump(mode="json", exclude_defaults=True, exclude=set(SECTIONS))
    yield fenced(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), "yaml")
    parents = story.branches
    if parents:
        yield f"The run is a branch of {plain(' of '.join(reversed(parents)))}."
    born = story.references
    if born:
        yield "The references that the KL penalty was paid to:"
        yield table(
            ("reference", "born after step", "reason", "parent", "policy of step", "optimizer"),
            (
                (one.name, str(one.step), one.reason, one.parent or "", str(one.source_step), one.optimizer)
                for one in born
            ),
        )
    told = [event for event in story.events if isinstance(event, (StageEntered, Intervened, Ordered))]
    if told:
        yield "Stages, interventions of detectors and orders of the operator:"
        yield bullets(describe(event) for event in told)


def _limits(story: RunHistory, config: RunConfig, model: Exported) -> Iterator[str]:
    yield (
        "It was rewarded for what programs can check on the tasks above and for nothing else. Helpfulness and "
        "safety were neither trained nor measured."
    )
    if config.model.path is None:
        yield "Its base learned only from solutions of such tasks, so it knows no language beyond them."
    context = "" if model.context is None else f" Its context is {model.context} tokens, prompt included."
    yield f"Longer responses than {model.response_limit} tokens were cut off in training.{context}"
    for gain in model.gains:
        if gain.domain == MEAN and gain.interval[1] < 0:
            yield (
                f"It does worse than its base at pass@{gain.k} on the problems of {gain.study}, {gain.part}: "
                f"{gain.base:.1%} → {gain.trained:.1%}."
            )
    alarms = [event.detector for event in story.of(Intervened)]
    hacking = alarms.count("reward_hacking")
    if hacking:
        yield (
            f"The detector of reward hacking spoke {hacking} times: part of the reward may have been earned by "
            "tricks. What it saw is said above."
        )
    elif alarms:
        yield f"Detectors spoke {len(alarms)} times, as said above; that of reward hacking did not."
    else:
        yield "No detector, that of reward hacking among them, spoke during the run."
    yield "The licence of its base, and those of its data sets, hold for it too; they are not stated here."


def _going_on(story: RunHistory, config: RunConfig, model: Exported) -> Iterator[str]:
    yield "Training goes on from these weights under any recipe, with a fresh optimizer and reference:"
    tiny = " model.warmup=null" if config.model.warmup else ""
    yield fenced(f"prorl train RECIPE model.path=PATH/TO/THIS/FOLDER{tiny}", "sh")
    yield "Where the run directory is at hand, a branch keeps optimizer, references and history:"
    yield fenced(f"prorl train --branch {shlex.quote(story.name)}@{model.step} --run NEW", "sh")


def _amount(number: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6)):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:,}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
