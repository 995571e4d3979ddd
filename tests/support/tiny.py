"""Tiny random checkpoints, a recipe that runs on them in a second, and models of every kind that layers compute."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from prorl.config.schema import ShapeConfig
from prorl.learn.base_model import build_model, train_tokenizer

CONTEXT = 192
NARROW = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
}
"""Of a model of transformers that is computed in no time."""
FOUR_HEADS = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
}
"""Of one whose key heads a test chooses."""
ENDS = range(24)  # token ids that end a response too, so that random responses differ in length

TINY: dict[str, Any] = {
    "name": "tiny",
    "seed": 1,
    "steps": 3,
    "threads": 1,
    "workers": 1,
    "device": "cpu",
    "tasks": {"arithmetic": {"levels": {1: 1}}, "word_list": {}},
    "sampling": {"prompts_per_step": 3, "samples_per_prompt": 4, "response_limit": 16},
    "dynamic_sampling": {"min_spread": 0},  # a random model is never right, so no group has a spread
    "length_penalty": {"weight": 1.0},  # what it can learn is to be brief
    "optimizer": {"lr": 1e-2},
    "kl": {"coef": 1e-2},
    "reset": {"every": 2, "cooldown": 0},
    "validation": {"every": 2, "per_domain": 2, "samples": 2},
    "evaluation": {"per_domain": 2, "ood_per_domain": 2, "samples": 2},
    "save": {"every": 2},
    "sample_every": 1,
}
"""A recipe without its model."""


def write_model(
    folder: Path,
    architecture: str,
    *,
    width: int = 32,
    layers: int = 2,
    context: int = CONTEXT,
    words: Sequence[str] = (),
) -> Path:
    """A random checkpoint with a tokenizer, in which `words` are tokens; of two heads, and tied embeddings."""
    tokenizer = train_tokenizer(["Say 1 + 2 between the tags."] * 4, 300)
    tokenizer.add_tokens(list(words))
    if architecture == "gpt_neox":
        config = GPTNeoXConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=2,
            intermediate_size=3 * width // 2,
            max_position_embeddings=context,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = GPTNeoXForCausalLM(config)
    else:
        shape = ShapeConfig(
            architecture=architecture,
            hidden_size=width,
            layers=layers,
            heads=2,
            kv_heads=1,
            intermediate_size=3 * width // 2,
            context=context,
        )
        model = build_model(shape, len(tokenizer), seed=0)
    model.generation_config = GenerationConfig(eos_token_id=[tokenizer.eos_token_id, *ENDS])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_recipe(folder: Path, model: Path, /, **settings: Any) -> Path:
    """The tiny recipe, with other settings if given; its file is named like the recipe."""
    recipe = TINY | {"model": {"path": str(model)}} | settings
    path = folder / f"{recipe['name']}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 32}


def randomised(model):
    """All weights drawn anew, in evaluation mode: norms and biases too are neither ones nor zeros."""
    generator = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        weight.data.normal_(1.0 if "norm" in name or "ln_" in name else 0.0, 0.2, generator=generator)
    return model.eval()


def qwen2(**options):
    return randomised(Qwen2ForCausalLM(Qwen2Config(**FOUR_HEADS, num_key_value_heads=2, **options)))


def qwen3(**options):
    return randomised(Qwen3ForCausalLM(Qwen3Config(**FOUR_HEADS, num_key_value_heads=2, **options)))


def llama(key_heads, **options):
    return randomised(LlamaForCausalLM(LlamaConfig(**FOUR_HEADS, num_key_value_heads=key_heads, **options)))


def gpt2():
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    config = GPT2Config(vocab_size=FOUR_HEADS["vocab_size"], bos_token_id=0, eos_token_id=0, **sizes)
    return randomised(GPT2LMHeadModel(config))


NATIVE = {
    "qwen2-tied": lambda: qwen2(tie_word_embeddings=True),
    "qwen2-untied-yarn": lambda: qwen2(tie_word_embeddings=False, rope_parameters=YARN),
    "qwen3": lambda: qwen3(head_dim=16, attention_bias=True),
    "llama-one-key-head-biased": lambda: llama(1, attention_bias=True, mlp_bias=True),
    "llama-no-groups": lambda: llama(4),
}
"""That own layers compute."""
MODELS = NATIVE | {"gpt2": gpt2}
