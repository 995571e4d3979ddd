"""Writes a run's checkpoint as a transformers directory: weights, config, tokenizer, generation config, model card.

What is exported was found whole, hash by hash, and appears under its name complete or not at all. The run's lock is
not taken: it may be training meanwhile.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

import torch
from safetensors import safe_open
from transformers import GenerationConfig
from transformers.utils.logging import disable_progress_bar

from prorl import __version__
from prorl.config.recipe import check
from prorl.config.schema import RunConfig
from prorl.control.events import Started, Stepped
from prorl.control.plan import hparams_now, make_plan
from prorl.control.state import fold
from prorl.envs.files import StorageError
from prorl.lab.export.card import Exported, model_card
from prorl.lab.measurement import newest
from prorl.lab.results import gains, newest_pairs
from prorl.learn.model import listed_eos_ids, load_model, load_tokenizer
from prorl.run.checkpoint import commit
from prorl.run.history import RunHistory, read_events, read_history
from prorl.run.layout import CONFIG, SAMPLES, TOKENIZER
from prorl.run.resume import hash_files
from prorl.run.store import RunStore
from prorl.types import HParams

disable_progress_bar()  # a model is read and written in one go; the command says when it is done

Dtype = Literal["float32", "bfloat16"]

RECIPE, CARD, MODEL_CONFIG = "prorl_config.json", "README.md", "config.json"
MODEL_FILES = (MODEL_CONFIG, "*.safetensors", "*.safetensors.index.json")
QUESTION = "What is 12 + 30?"  # where the run kept no prompt that could be shown


def export(
    folder: Path,
    target: Path,
    *,
    step: int | None = None,
    dtype: Dtype | None = None,
    say: Callable[[str], None],
) -> int:
    """Export the checkpoint of `step`, by default the newest whole one, into the new folder `target`.

    `dtype` is that of the weights, by default as stored. `say` hears of a damaged checkpoint that was passed over.
    Returns the step that was exported.

    Raises:
        StorageError: no such run or checkpoint, it is damaged, or `target` is not empty; then nothing was written.
        RecipeError, ModelError: the recipe or the model cannot be read.
    """
    target = target.resolve()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise StorageError(f"{target} is there already and nothing is overwritten: choose another folder")
    store = RunStore.open(folder, report=say)
    checkpoint = newest(store) if step is None else store.checkpoint(step)
    config = check(store.config, str(folder / CONFIG))
    story = read_history(folder, up_to=checkpoint.step)
    for note in story.notes:
        say(note)
    tokenizer = _tokenizer(story)

    def fill(aside: Path) -> None:
        _write_model(checkpoint.path, aside, dtype)
        shutil.copytree(tokenizer, aside, dirs_exist_ok=True)
        shutil.copyfile(folder / CONFIG, aside / RECIPE)
        generation = _generation(aside, checkpoint.path, _last_hparams(story, config))
        generation.save_pretrained(aside)
        card = model_card(story, config, _exported(story, checkpoint.step, aside, generation))
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


def _tokenizer(story: RunHistory) -> Path:
    """The folder of the run's tokenizer, which is the one that was trained with."""
    folder = story.folder / TOKENIZER
    before = next((event.environment.get(TOKENIZER) for event in story.of(Started)), None)
    if not folder.is_dir() or before not in (None, hash_files(folder)):
        raise StorageError(f"the files in {folder} are not those the run was trained with: restore them")
    return folder


def _last_hparams(story: RunHistory, config: RunConfig) -> HParams:
    """The dials of the last training step, those of the recipe's start before any."""
    events = [event for event in read_events(story.folder) if getattr(event, "step", 0) <= story.step]
    last = max((at for at, event in enumerate(events) if isinstance(event, Stepped)), default=0)
    return hparams_now(make_plan(config), fold(events[:last]))


def _write_model(checkpoint: Path, aside: Path, dtype: Dtype | None) -> None:
    """Weights and config: the very files, unless the weights are to be rounded."""
    if dtype is not None and dtype != json.loads((checkpoint / MODEL_CONFIG).read_bytes()).get("dtype"):
        load_model(checkpoint, dtype=getattr(torch, dtype), device="cpu").save_pretrained(aside)
        return
    for path in sorted(checkpoint.iterdir()):
        if any(fnmatch(path.name, pattern) for pattern in MODEL_FILES):
            shutil.copyfile(path, aside / path.name)


def _generation(tokenizer: Path, checkpoint: Path, hparams: HParams) -> GenerationConfig:
    """Sampling as in training: the base's own settings, as for top-k, did not hold there."""
    tokens = load_tokenizer(tokenizer)
    base = GenerationConfig.from_pretrained(checkpoint)
    return GenerationConfig(
        do_sample=True,
        temperature=hparams.temperature,
        top_p=hparams.top_p,
        top_k=0,
        max_new_tokens=hparams.response_limit,
        bos_token_id=base.bos_token_id,
        eos_token_id=list(listed_eos_ids(base, tokens)),
        pad_token_id=tokens.eos_token_id if tokens.pad_token_id is None else tokens.pad_token_id,
    )


def _exported(story: RunHistory, step: int, aside: Path, generation: GenerationConfig) -> Exported:
    """What the card says of the files themselves."""
    model = json.loads((aside / MODEL_CONFIG).read_bytes())
    return Exported(
        step=step,
        parameters=_parameters(aside),
        architecture=model["model_type"],
        dtype=model["dtype"],
        context=model.get("max_position_embeddings"),
        temperature=generation.temperature,
        top_p=generation.top_p,
        response_limit=generation.max_new_tokens,
        chat=bool(load_tokenizer(aside).chat_template),
        prompt=_prompt(story, step),
        gains=tuple(one for pair in newest_pairs(story.folder, up_to=step) for one in gains(pair)),
    )


def _parameters(folder: Path) -> int:
    """Number of stored scalars; tied weights are stored once."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as tensors:
            total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    return total


def _prompt(story: RunHistory, step: int) -> str:
    """The shortest prompt among the last sample rollouts, as the model was asked it in training."""
    paths = sorted((story.folder / SAMPLES).glob("step_*.jsonl"))
    told = [path for path in paths if int(path.stem.removeprefix("step_")) <= step]
    lines = told[-1].read_bytes().splitlines() if told else []
    return min((json.loads(line)["prompt"] for line in lines), key=len, default=QUESTION)
