"""Writes a run's checkpoint as a transformers directory: weights, config, tokenizer, generation config, model card.

What is exported was found whole, hash by hash, and appears under its name complete or not at all. The run's lock is
not taken: it may be training meanwhile. The card tells from the journal what the model is, what it can do, how it was
trained and where it ends; whatever comes from elsewhere (reasons, notes, prompts, names) is escaped in it.
"""

import json
import math
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from prorl import __version__
from prorl.config.schema import RUNTIME_SECTIONS, RunConfig
from prorl.control.events import Intervened, Started, Stepped, Validated
from prorl.control.plan import hparams_now, make_plan
from prorl.control.state import fold
from prorl.envs.errors import ProrlError
from prorl.envs.files import StorageError, hash_folder
from prorl.envs.mixture import MEAN
from prorl.lab.report.rollouts import read_records
from prorl.lab.report.summary import cut_otherwise, trained_tasks
from prorl.lab.results import NAMES, Gains, gain_table, gains, newest_pairs
from prorl.lab.tables import Cell, Number, Table, count, plain, to_markdown
from prorl.local.backend import Dtype
from prorl.run.checkpoint import commit
from prorl.run.history import RunHistory, read_events, read_history
from prorl.run.layout import CONFIG, TOKENIZER, samples
from prorl.run.store import RunStore
from prorl.types import HParams

RECIPE, CARD, MODEL_CONFIG = "prorl_config.json", "README.md", "config.json"
MODEL_FILES = (MODEL_CONFIG, "*.safetensors", "*.safetensors.index.json")
SAME_NAMES = frozenset({"llama", "qwen2", "qwen3"})  # models whose weights have no others on the hub
QUESTION = "What is 12 + 30?"  # where the run kept no prompt that could be shown
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What the exported files are, as far as the journal does not say."""

    step: int
    parameters: int
    architecture: str
    dtype: str
    context: int | None  # tokens
    hparams: HParams  # of the last step
    chat: bool  # whether the tokenizer has a chat template
    prompt: str  # one that the model was asked in training
    gains: tuple[Gains, ...] = ()


def export(
    folder: Path, target: Path, *, step: int | None, dtype: Dtype | None, say: Callable[[str], None]
) -> int:
    """Export the checkpoint of `step`, by default the newest whole one, into the new folder `target`.

    `dtype` is that of the weights, by default as stored. `say` hears of a damaged checkpoint that was passed over,
    and of evaluations that cannot be read, which the card lacks. Returns the step that was exported. Raises
    StorageError: no such run or checkpoint, it is damaged, or `target` is not empty; then nothing was written;
    RecipeError or ModelError: the recipe or the model cannot be read.
    """
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # a model is read and written in one go; the command says when it is done
    target = target.resolve()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise StorageError(f"{target} is there already and nothing is overwritten: choose another folder")
    store = RunStore.open(folder, report=say)
    checkpoint = store.latest_checkpoint() if step is None else store.checkpoint(step)
    config = store.config
    story = read_history(folder, up_to=checkpoint.step)
    for note in story.notes:
        say(note)
    tokenizer = _tokenizer(story)

    def fill(aside: Path) -> None:
        _write_model(checkpoint.path, aside, dtype)
        shutil.copytree(tokenizer, aside, dirs_exist_ok=True)
        aside.chmod(0o755)  # or it would be as read-only as what was copied
        shutil.copyfile(folder / CONFIG, aside / RECIPE)
        hparams = _last_hparams(story, config)
        _write_generation(aside, checkpoint.path, hparams)
        card = model_card(story, config, _exported(story, checkpoint.step, aside, hparams, say))
        # Half a surrogate pair, which a tokenizer may leave in a text, has no UTF-8.
        (aside / CARD).write_text(card, encoding="utf-8", errors="replace")

    try:
        commit(target, fill, {"run": story.name, "step": checkpoint.step, "prorl": __version__})
    except (shutil.Error, FileNotFoundError) as error:
        raise StorageError(
            f"a file of {folder} vanished while it was copied, perhaps because its trainer made room: "
            f"export again ({error})"
        ) from error
    return checkpoint.step


def push(folder: Path, repository: str, *, public: bool = False) -> str:
    """Upload an exported folder to the hub, which makes the repository if there is none; returns its address.

    Raises ProrlError: no login, no network, no such organisation; the folder stays.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        address = api.create_repo(repository, private=not public, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message=f"prorl {__version__}")
    except Exception as error:  # the hub's client has its own, and its transport others
        reason = str(error).strip().partition("\n")[0]
        raise ProrlError(
            f"{folder} is written, but could not be pushed to {repository} ({reason}): run `hf auth login`, check "
            f"the name ORG/NAME, then `hf upload {repository} {folder}`"
        ) from error
    return str(address)


def _tokenizer(story: RunHistory) -> Path:
    """The folder of the run's tokenizer, which is the one that was trained with."""
    folder = story.folder / TOKENIZER
    before = next((event.environment.get(TOKENIZER) for event in story.of(Started)), None)
    if not folder.is_dir() or before not in (None, hash_folder(folder)):
        raise StorageError(f"the files in {folder} are not those the run was trained with: restore them")
    return folder


def _last_hparams(story: RunHistory, config: RunConfig) -> HParams:
    """The dials of the last training step, those of the recipe's start before any."""
    events = [event for event in read_events(story.folder) if getattr(event, "step", 0) <= story.step]
    last = max((at for at, event in enumerate(events) if isinstance(event, Stepped)), default=0)
    return hparams_now(make_plan(config), fold(events[:last]))


def _write_model(checkpoint: Path, aside: Path, dtype: Dtype | None) -> None:
    """Weights and config: the very files, unless the weights are to be rounded or may have other names on the hub."""
    config = json.loads((checkpoint / MODEL_CONFIG).read_bytes())
    stored = config["dtype"]
    if dtype not in (None, stored) or config["model_type"] not in SAME_NAMES:
        import torch

        from prorl.learn.model import load_model

        load_model(checkpoint, dtype=getattr(torch, dtype or stored), device="cpu").save_pretrained(aside)
        return
    for pattern in MODEL_FILES:
        for path in checkpoint.glob(pattern):
            shutil.copyfile(path, aside / path.name)


def _write_generation(aside: Path, checkpoint: Path, hparams: HParams) -> None:
    """Sampling as in training: the base's own settings, as for top-k, did not hold there."""
    from transformers import GenerationConfig

    from prorl.learn.model import eos_ids, load_tokenizer

    tokens = load_tokenizer(aside)
    base = GenerationConfig.from_pretrained(checkpoint)
    GenerationConfig(
        do_sample=True,
        temperature=hparams.temperature,
        top_p=hparams.top_p,
        top_k=0,
        max_new_tokens=hparams.response_limit,
        bos_token_id=base.bos_token_id,
        eos_token_id=list(eos_ids(base, tokens)),
        pad_token_id=tokens.eos_token_id if tokens.pad_token_id is None else tokens.pad_token_id,
    ).save_pretrained(aside)


def _exported(
    story: RunHistory, step: int, aside: Path, hparams: HParams, say: Callable[[str], None]
) -> Exported:
    """What the card says of the files themselves; `say` hears of evaluations that it cannot tell of."""
    from prorl.learn.model import load_tokenizer

    model = json.loads((aside / MODEL_CONFIG).read_bytes())
    return Exported(
        step=step,
        parameters=_parameters(aside),
        architecture=model["model_type"],
        dtype=model["dtype"],
        context=model.get("max_position_embeddings"),
        hparams=hparams,
        chat=bool(load_tokenizer(aside).chat_template),
        prompt=_prompt(story, step),
        gains=tuple(
            one for pair in newest_pairs(story.folder, up_to=step, report=say) for one in gains(pair)
        ),
    )


def _parameters(folder: Path) -> int:
    """Number of stored scalars; tied weights are stored once."""
    from safetensors import safe_open

    total = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as tensors:
            total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    return total


def _prompt(story: RunHistory, step: int) -> str:
    """The shortest prompt among the last sample rollouts, as the model was asked it in training."""
    told = [path for at, path in samples(story.folder).items() if at <= step]
    records = read_records(told[-1]) if told else []
    return min((str(record["prompt"]) for record in records), key=len, default=QUESTION)


# -- the model card


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
    )
    return "\n\n".join(parts) + "\n"


def _front_matter(config: RunConfig) -> str:
    tags, path = ["prorl", "reinforcement-learning", "verifiable-rewards"], config.model.path
    data = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": tags}
    if path is not None and _HUB_ID.fullmatch(path) and not Path(path).exists():
        data["base_model"] = path
    return f"---\n{yaml.safe_dump(data, sort_keys=False)}---"


def _summary(story: RunHistory, config: RunConfig, model: Exported) -> str:
    base = "a tiny base that knew only such tasks" if config.model.path is None else plain(config.model.path)
    trained = trained_tasks(config.model_dump(mode="json")["tasks"])
    responses = story.steps.total("rollout_stats.rollouts")
    tokens = int(story.steps.total("rollout_stats.sampled_tokens"))
    return (
        f"A language model of {_amount(model.parameters)} parameters ({plain(model.architecture)}, {model.dtype}), "
        "trained by prolonged reinforcement learning with verifiable rewards (ProRL v2), with prorl "
        f"{__version__}, on these tasks: {plain(', '.join(trained))}. It began as {base}, and is the policy "
        f"after step {model.step} of {config.steps}. Until then {responses:,.0f} responses with {_amount(tokens)} "
        "tokens were sampled and judged by programs."
    )


def _use(config: RunConfig, model: Exported) -> Iterator[str]:
    if config.instruction:
        yield "In training, an empty line and this instruction followed every problem but those of data sets:"
        yield fenced(config.instruction, "text")
    system = config.system_prompt
    if model.chat:
        first = f'{{"role": "system", "content": {system!r}}}, ' if system else ""
        asked = (
            "inputs = tokenizer.apply_chat_template(\n"
            f'    [{first}{{"role": "user", "content": prompt}}],\n'
            '    add_generation_prompt=True, return_tensors="pt", return_dict=True,\n'
            ")"
        )
    else:
        begin = repr(f"{system}\n") + " + " if system else ""
        asked = f'inputs = tokenizer({begin}prompt + "\\n", return_tensors="pt")  # there is no chat template'
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
    hparams = model.hparams
    yield (
        f"`generation_config.json` samples as in training: temperature {hparams.temperature:g}, top-p "
        f"{hparams.top_p:g}, at most {hparams.response_limit} tokens. `manifest.json` has the hash of every file."
    )


def _results(story: RunHistory, model: Exported) -> Iterator[str]:
    validations, best = story.of(Validated), story.best
    if best is not None:
        yield (
            "pass@1 on held-out problems in the validations during the run. They steer a run (its resets, its best "
            "checkpoint), so they flatter it."
        )
        yield _validation_table(validations[0], validations[-1], best)
        yield from map(plain, cut_otherwise(story))
    for found in model.gains:
        yield (
            f"{plain(found.title)}, base against step {found.pair.trained.step} on the same problems, which nothing "
            "in the run saw; gains in points with 95 % intervals over problems."
        )
        yield to_markdown(gain_table(found, ""))
    if best is None and not model.gains:
        yield "Nothing was measured: the run has no validation, and no evaluation that can be read."


def _validation_table(first: Validated, last: Validated, best: Validated) -> str:
    shown = (first, last, best)
    names = (f"step {first.step}", f"step {last.step}, the last", f"step {best.step}, the best")
    domains = dict.fromkeys(domain for one in shown for domain in one.domains)
    rows: list[tuple[Cell, ...]] = []
    for domain in domains:
        rows.append((domain, *(Number(one.domains.get(domain), ".1%") for one in shown)))
    rows.append(("mean", *(Number(one.score, ".1%") for one in shown)))
    return to_markdown(Table(title="", columns=("domain", *names), rows=tuple(rows)))


def _training(story: RunHistory, config: RunConfig) -> Iterator[str]:
    yield "The recipe as far as it differs from the defaults; [prorl_config.json](prorl_config.json) has every key."
    settings = config.model_dump(mode="json", exclude_defaults=True, exclude=set(RUNTIME_SECTIONS))
    yield fenced(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), "yaml")
    if story.branches:
        yield f"The run is a branch of {plain(' of '.join(reversed(story.branches)))}."
    if story.references:
        yield "The references that the KL penalty was paid to:"
        columns = ("reference", "born after step", "reason", "parent", "policy of step", "optimizer")
        rows = [
            (one.name, one.step, one.reason, one.parent or "", one.source_step, one.optimizer)
            for one in story.references
        ]
        yield to_markdown(Table(title="", columns=columns, rows=tuple(rows)))
    kinds = ("stage", "intervention", "roll back", "command")
    if told := [mark.text for mark in story.marks if mark.kind in kinds]:
        yield "Stages, interventions of detectors and commands of the operator:"
        yield bullets(told)


def _limits(story: RunHistory, config: RunConfig, model: Exported) -> Iterator[str]:
    yield (
        "It was rewarded for what programs can check on the tasks above and for nothing else. Helpfulness and "
        "safety were neither trained nor measured."
    )
    if config.model.path is None:
        yield "Its base learned only from solutions of such tasks, so it knows no language beyond them."
    context = "" if model.context is None else f" Its context is {model.context} tokens, prompt included."
    yield f"Longer responses than {model.hparams.response_limit} tokens were cut off in training.{context}"
    for found in model.gains:
        for worse in (one for one in found.rows[MEAN] if one.high < 0):
            yield (
                f"It does worse than its base at pass@{worse.k} on the {NAMES[found.part]} problems of "
                f"{found.pair.evaluation}: {worse.base:.1%} → {worse.trained:.1%}."
            )
    alarms = [event.detector for event in story.of(Intervened) if event.detector != "command"]
    if hacking := alarms.count("reward_hacking"):
        yield (
            f"The detector of reward hacking reported {count(hacking, 'time')}: part of the reward may have been "
            "earned by tricks. What it saw is said above."
        )
    elif alarms:
        yield f"Detectors reported {count(len(alarms), 'time')}, as said above; that of reward hacking did not."
    else:
        yield "No detector, that of reward hacking among them, reported anything during the run."
    yield "The licence of its base, and those of its data sets, hold for it too; they are not stated here."


def _amount(number: int) -> str:
    if number >= 10**9:
        return f"{number / 10**9:.1f}B"
    return f"{number / 10**6:.1f}M" if number >= 10**6 else f"{number:,}"


def bullets(texts: Iterable[str]) -> str:
    """A list of plain texts."""
    return "\n".join(f"- {plain(text)}" for text in texts)


def fenced(text: str, language: str = "") -> str:
    """A block of code, verbatim; the fence is longer than any that the text itself holds."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
